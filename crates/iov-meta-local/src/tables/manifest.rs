//! The manifest of a tree: the file `vN`, which says what tables there are, and `current`, which names it.
//!
//! The library writes both, and believes that a change whose writing ends with an error did not take place. But the last
//! steps of it come after the new `current` is there. Then the medium has the change and the library has not, and what
//! the library does next would leave a tree that cannot be opened: see [`restore`].

use std::{
    fs::File,
    io::{self, Write},
    path::Path,
};

use xxhash_rust::xxh3::xxh3_128;

use crate::files::{create, u64_at};

/// The file that names a tree's manifest, and carries the manifest's sum.
pub(super) const CURRENT: &str = "current";
/// The number of the manifest, its sum, the kind of sum, of which there is one.
const CURRENT_BYTES: usize = 8 + 16 + 1;
/// What each file of the library ends with: these bytes, the sum, the offset and the length of its list of sections.
pub(super) const TRAILER: &[u8] = b"SFA!\x01\x00";
pub(super) const TRAILER_BYTES: usize = TRAILER.len() + 16 + 8 + 8;
/// What a list of sections begins with.
const LIST: &[u8] = b"TOC!";

/// A table as a manifest names it: its number, its sum, the number of the state that it came with.
pub(super) type Named = (u64, u128, u64);

/// The manifest that `current` names, once it matches its sum: a flipped bit there would make tables newer or older than
/// they are. `None` for a tree that is to be made.
pub(super) fn read(folder: &Path) -> io::Result<Result<Option<Vec<u8>>, &'static str>> {
    let file = |name: &str| match std::fs::read(folder.join(name)) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    };
    let Some(current) = file(CURRENT)? else { return Ok(Ok(None)) };
    let Ok(current) = <[u8; CURRENT_BYTES]>::try_from(current) else {
        return Ok(Err("the file `current` has a wrong length"));
    };
    let Some(manifest) = file(&format!("v{}", u64_at(&current, 0)))? else { return Ok(Err("the manifest is missing")) };
    let fits = xxh3_128(&manifest).to_le_bytes() == current[8..24] && current[24] == 0;
    Ok(if fits { Ok(Some(manifest)) } else { Err("the manifest does not match its sum") })
}

/// The tables that a manifest names; `None` if it makes no sense.
pub(super) fn named(manifest: &[u8]) -> Option<Vec<Named>> {
    let mut rest = section(manifest, b"tables")?;
    let mut found = Vec::new();
    for _level in 0..number(&mut rest, 1)? {
        for _run in 0..number(&mut rest, 1)? {
            for _table in 0..number(&mut rest, 4)? {
                let id = number(&mut rest, 8)? as u64;
                let kind = number(&mut rest, 1)?;
                let table = (id, number(&mut rest, 16)?, number(&mut rest, 8)? as u64);
                found.push((kind == 0).then_some(table)?);
            }
        }
    }
    rest.is_empty().then_some(found)
}

/// The bytes of a section of one of the library's files.
fn section<'a>(file: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let trailer = file.len().checked_sub(TRAILER_BYTES)?;
    let mut rest = file[trailer..].strip_prefix(TRAILER)?.get(16..)?;
    let inside = |at: u128, len: u128| file.get(usize::try_from(at).ok()?..usize::try_from(at + len).ok()?);
    let mut list = inside(number(&mut rest, 8)?, number(&mut rest, 8)?)?.strip_prefix(LIST)?;
    for _ in 0..number(&mut list, 4)? {
        let (at, len) = (number(&mut list, 8)?, number(&mut list, 8)?);
        let name_len = number(&mut list, 2)? as usize;
        if take(&mut list, name_len)? == name {
            return inside(at, len);
        }
    }
    None
}

fn take<'a>(bytes: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    Some(taken)
}

/// A number of so many bytes.
fn number(bytes: &mut &[u8], len: usize) -> Option<u128> {
    Some(take(bytes, len)?.iter().rev().fold(0, |number, byte| number << 8 | u128::from(*byte)))
}

/// Sees to it that `current` names the manifest that the library is at, which has these tables, in order of number. Until
/// then no table may be removed, as `current` may name it, and no manifest written: the next one has the number of the
/// one that failed, and writing it begins with emptying that. With `again` it is written also if it reads right: the
/// last attempt may be in memory only. Nobody else may change the manifest meanwhile.
pub(super) fn restore(folder: &Path, number: u64, tables: &[Named], again: bool) -> io::Result<()> {
    match std::fs::read(folder.join(CURRENT)) {
        Ok(current) if !again && current.len() == CURRENT_BYTES && u64_at(&current, 0) == number => return Ok(()),
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let manifest = std::fs::read(folder.join(format!("v{number}")))?;
    // Its sum was in the `current` that is gone. The new one must not make damage pass for right.
    let fits = named(&manifest).is_some_and(|mut named| {
        named.sort_unstable();
        named == tables
    });
    if !fits {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("v{number} does not name the tables there are"),
        ));
    }
    let mut current = number.to_le_bytes().to_vec();
    current.extend_from_slice(&xxh3_128(&manifest).to_le_bytes());
    current.push(0);
    let new = folder.join(format!("{CURRENT}.new"));
    let write = || {
        let mut file = create(&new, true)?;
        file.write_all(&current)?;
        file.sync_all()?;
        std::fs::rename(&new, folder.join(CURRENT))
    };
    if let Err(e) = write() {
        let _ = std::fs::remove_file(&new);
        return Err(e);
    }
    File::open(folder)?.sync_all()
}
