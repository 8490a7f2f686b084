//! What others may do with a file and its copy: a copy has the mode of what it is made from, without what the umask takes, as of
//! `cp`. It is never for more people.

use std::{
    fs::Metadata,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
    sync::OnceLock,
};

use ioverbs::{Attr, Collection, Lent, Op, Result, Status, Value, posix};

use crate::{ctx::Ctx, facts::Facts, failure::Done};

/// The bits that say what kind of file it is.
const KIND: u32 = 0o170_000;
/// A regular file, where that is said at all.
const REGULAR: u32 = 0o100_000;
/// A symbolic link.
const LINK: u32 = 0o120_000;
/// What everybody may do at most.
const PERMISSIONS: u32 = 0o777;

/// What kind of file a collection is for programs that see directories.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// One with bytes.
    File,
    /// A symbolic link; its bytes say where to.
    Link,
    /// A pipe, a socket or a device.
    Other,
}

/// What this process takes from what it makes.
pub(crate) fn umask() -> u32 {
    static UMASK: OnceLock<u32> = OnceLock::new();
    *UMASK.get_or_init(|| {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("Umask:"));
        // Without the system's word for it: nothing for others.
        mask.and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok()).unwrap_or(0o077)
    })
}

/// What kind of file a mode tells of.
fn kind_of(mode: u32) -> Kind {
    match mode & KIND {
        0 | REGULAR => Kind::File,
        LINK => Kind::Link,
        _ => Kind::Other,
    }
}

/// What a local file lets others do with its copy.
pub(crate) fn of_local(facts: &Metadata) -> u32 {
    facts.mode() & PERMISSIONS & !umask()
}

/// What kind of file a collection is.
pub(crate) fn kind(facts: &Facts) -> Kind {
    kind_of(mode(facts).unwrap_or(0))
}

fn mode(facts: &Facts) -> Option<u32> {
    facts.mode.and_then(|mode| u32::try_from(mode).ok())
}

/// Its permissions. Where it has a list of who may do what, the bits of its group are what anybody in that list may, and the group
/// itself is one of these.
fn permissions(facts: &Facts) -> Option<u32> {
    let mode = mode(facts)? & PERMISSIONS;
    let list = facts.user.iter().find(|(key, _)| key == posix::ACL_KEY);
    let Some((_, Value::Str(list))) = list else { return Some(mode) };
    let group = list.split(',').find_map(|entry| entry.strip_prefix("g::")).unwrap_or_default();
    let bits = [("r", 4), ("w", 2), ("x", 1)].iter().filter(|(letter, _)| group.contains(letter));
    let bits: u32 = bits.map(|(_, bit)| bit).sum();
    Some(mode & (0o707 | bits << 3))
}

/// What a copy in the store gets: the kind too, which the rest of its life goes by.
pub(crate) fn of_copy(facts: &Facts) -> Option<u32> {
    let kind = mode(facts)? & KIND;
    // Nobody asks for the rights of a link.
    let mask = if kind == LINK { 0 } else { umask() };
    Some(kind | permissions(facts)? & !mask)
}

/// What a local copy is made with; the system takes the umask from it.
pub(crate) fn for_local(facts: &Facts, target: &Path) -> u32 {
    in_place_of(target, permissions(facts).unwrap_or(0o600))
}

/// A mode of what may replace a local file, which was not for more people either.
pub(crate) fn in_place_of(target: &Path, mode: u32) -> u32 {
    match target.symlink_metadata() {
        Ok(there) if there.is_file() => mode & (0o700 | there.permissions().mode()),
        _ => mode,
    }
}

/// What a local directory is made with. Its owner puts something in it.
pub(crate) fn for_directory(facts: &Facts) -> u32 {
    0o700 | permissions(facts).unwrap_or(0)
}

/// What a file of an export is made with: its owner reads it.
pub(crate) fn for_export(mode: u32) -> u32 {
    // What the group's bits say is the list's, where there is one.
    let mask = if mode & posix::MODE_ACL != 0 { 0o707 } else { PERMISSIONS };
    0o400 | mode & mask
}

/// Makes something, with this mode.
pub(crate) fn make(ctx: &mut Ctx, create: Op, out: &Collection, mode: Option<u32>) -> Done<Result<()>> {
    let ops = std::iter::once(create).chain(set(out, mode)).map(Lent::from).collect();
    Ok(ctx.batch(ops)?.iter().try_for_each(Status::result))
}

/// Gives something that is being made its mode.
pub(crate) fn set(c: &Collection, mode: Option<u32>) -> Option<Op> {
    let attr = Attr { mode: Some(mode?), ..Attr::default() };
    Some(Op::SetAttr { c: c.clone(), attr })
}
