//! Where the dynamic linker finds a library, if it could see workspaces.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    ffi::{CString, c_char, c_int},
    os::fd::AsRawFd,
    sync::Arc,
};

use iov_posix::{Attributes, File, Flags, Kind, Node, Stop, linked::Linked};
use ioverbs::Uuid;

use super::super::{Here, Where, locate, outer, process::in_memory, temporary};
use crate::{
    raw::kernel,
    world::{Inside, World},
};

/// Libraries of which there is one for each process.
const OF_THE_SYSTEM: [&[u8]; 2] = [b"libc.so.6", b"ld-linux-x86-64.so.2"];

/// How often a path may leave a workspace, as for links of the kernel.
const LINKS: usize = 40;

/// Libraries that one program needs, at most.
const MOST: usize = 4096;

/// A file of a workspace.
pub(super) struct Ours {
    /// Its path, by which others find it again.
    pub(super) path: Vec<u8>,
    pub(super) node: Arc<Node>,
    pub(super) attributes: Attributes,
}

/// Where a library is.
pub(super) enum Found {
    Inside(Ours),
    /// The kernel knows it, by this path.
    Outside(Vec<u8>),
    /// The same, but what was asked for leads there through a workspace.
    Beyond(Vec<u8>),
}

/// The directory that a file lies in.
pub(super) fn origin(path: &[u8]) -> &[u8] {
    path.iter().rposition(|b| *b == b'/').map_or(b".", |at| &path[..at])
}

/// The file at the end of a path, if it leads into a workspace, or through one.
fn located(world: &World, path: &[u8], links: usize) -> Option<Found> {
    let (mut path, mut left) = (Cow::Borrowed(path), links);
    while left > 0 {
        left -= 1;
        let _inside = Inside::enter();
        let here = match locate(world, libc::AT_FDCWD, &path).ok()? {
            Where::Inside(here) => here,
            Where::Through(through) if matches!(path, Cow::Owned(_)) => {
                path = Cow::Owned(through);
                break;
            }
            _ => break,
        };
        match here.find(true) {
            Ok((node, attributes)) => {
                let ours = |here: &Here| Found::Inside(Ours { path: here.absolute(), node: node.clone(), attributes });
                return (node.kind() == Kind::File).then(|| ours(&here));
            }
            Err(Stop::Leaves(to)) => path = Cow::Owned(here.beyond(to)),
            Err(Stop::Failed(_)) => return None,
        }
    }
    let Cow::Owned(path) = path else { return None };
    let there = CString::new(&path[..]).ok()?;
    match kernel!(libc::SYS_faccessat, libc::AT_FDCWD, there.as_ptr(), libc::R_OK) {
        0 => Some(Found::Beyond(path)),
        _ => led(world, &path, left),
    }
}

/// The file at the end of a path on which the kernel finds nothing, if a link leads from there into a workspace.
fn led(world: &World, path: &[u8], links: usize) -> Option<Found> {
    if links == 0 {
        return None;
    }
    let path = CString::new(path).ok()?;
    let led = outer::leads_in(world, libc::AT_FDCWD, path.as_ptr(), outer::Last::Followed)?;
    located(world, led.as_bytes(), links)
}

/// The file at the end of a path, if it is one of a workspace, or of where one leads.
pub(super) fn through(world: &World, path: &[u8]) -> Option<Found> {
    located(world, path, LINKS).or_else(|| led(world, path, LINKS))
}

/// Whether a directory is one of a workspace.
pub(super) fn leads_in(world: &World, dir: &[u8]) -> bool {
    let _inside = Inside::enter();
    matches!(locate(world, libc::AT_FDCWD, dir), Ok(Where::Inside(_) | Where::Top(_)))
}

/// Whether a library of this name is looked for in directories, and may be another one than that of the system. A path is followed wherever it leads.
pub(super) fn is_sought(name: &[u8]) -> bool {
    !name.contains(&b'/') && !OF_THE_SYSTEM.contains(&name)
}

/// What is read of a file that the linker is to load, mapped.
struct Mapped {
    at: *const u8,
    len: usize,
}

impl Mapped {
    fn of(fd: c_int) -> Option<Mapped> {
        // SAFETY: all of it may be zero, and the call fills it.
        let mut stat: libc::stat = unsafe { std::mem::zeroed() };
        if kernel!(libc::SYS_fstat, fd, &raw mut stat) != 0 || stat.st_mode & libc::S_IFMT != libc::S_IFREG {
            return None;
        }
        let len = usize::try_from(stat.st_size).ok().filter(|len| *len > 0)?;
        let at = kernel!(libc::SYS_mmap, 0, len, libc::PROT_READ, libc::MAP_PRIVATE, fd, 0);
        (at > 0).then_some(Mapped { at: at as *const u8, len })
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: so many bytes are mapped there for as long as this is.
        unsafe { std::slice::from_raw_parts(self.at, self.len) }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        kernel!(libc::SYS_munmap, self.at, self.len);
    }
}

/// What a file of the kernel is linked with; none: it is none for the linker.
pub(super) fn linked(fd: c_int) -> Option<Linked> {
    Linked::of(Mapped::of(fd)?.bytes())
}

/// What the file at this path is linked with.
pub(super) fn linked_at(path: *const c_char) -> Option<Linked> {
    let fd = kernel!(libc::SYS_openat, libc::AT_FDCWD, path, libc::O_RDONLY | libc::O_NONBLOCK | libc::O_CLOEXEC, 0);
    if fd < 0 {
        return None;
    }
    let linked = linked(fd as c_int);
    kernel!(libc::SYS_close, fd);
    linked
}

/// The file itself below a file of a workspace, which nobody changes any more, if the linker can have it: all who load it share its pages.
fn lent(file: &File) -> Option<c_int> {
    let lent = file.lend()?;
    let fd = lent.file().as_raw_fd();
    // SAFETY: all of it may be zero.
    let mut below: libc::statfs64 = unsafe { std::mem::zeroed() };
    // Of what lies where nothing may be run the linker can have a copy only.
    if kernel!(libc::SYS_fstatfs, fd, &raw mut below) < 0 || below.f_flags as u64 & libc::ST_NOEXEC != 0 {
        return None;
    }
    // The linker opens it anew: who has become another user may not.
    let path = CString::new(temporary::path_of(fd)).ok()?;
    let again = kernel!(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC, 0);
    c_int::try_from(again).ok().filter(|fd| *fd >= 0)
}

/// A descriptor that the linker can have of a file of a workspace, mostly of a copy, and what that is linked with; none: it is none for the linker.
pub(super) fn copied(ours: &Ours) -> Option<(c_int, Linked)> {
    let _inside = Inside::enter();
    let file = File::open(&ours.node, Flags::default()).ok()?.0;
    let fd = lent(&file).or_else(|| in_memory(&file, ours.attributes.size).ok())?;
    let linked = linked(fd);
    if linked.is_none() {
        kernel!(libc::SYS_close, fd);
    }
    Some((fd, linked?))
}

/// The first of these directories that has a library of this name.
pub(super) fn find(world: &World, name: &[u8], dirs: &[Vec<u8>]) -> Option<Found> {
    dirs.iter().find_map(|dir| {
        let path = [dir, &b"/"[..], name].concat();
        if let Some(found) = located(world, &path, LINKS) {
            return Some(found);
        }
        let there = CString::new(&path[..]).ok()?;
        match kernel!(libc::SYS_faccessat, libc::AT_FDCWD, there.as_ptr(), libc::R_OK) {
            0 => Some(Found::Outside(path)),
            _ => led(world, &path, LINKS),
        }
    })
}

/// Something that needs libraries.
pub(super) struct Needs {
    pub(super) linked: Linked,
    pub(super) path: Vec<u8>,
    /// [`Linked::first`] of whoever needs it.
    pub(super) of_others: Vec<Vec<u8>>,
    /// It is one of a workspace, so that the linker looks for what it needs elsewhere.
    pub(super) inside: bool,
}

/// A library that the linker would not find where it is.
pub(super) struct Missed {
    /// Under which name it is needed.
    pub(super) name: Vec<u8>,
    pub(super) path: Vec<u8>,
    /// A copy, and of what; none: the kernel knows it by its path.
    pub(super) copy: Option<(c_int, Key)>,
}

/// What a library is: the identity and the version of what it is of. It is loaded once.
pub(super) type Key = (Uuid, u64);

impl Ours {
    pub(super) fn key(&self) -> Key {
        (self.node.uuid(), self.attributes.version)
    }
}

/// All that a program needs, and what that needs, as far as the linker would not find it. The descriptors are the caller's.
pub(super) fn missed(world: &World, program: Needs, library_path: &[Vec<u8>]) -> Vec<Missed> {
    let mut known: HashSet<Vec<u8>> = HashSet::new();
    // What has several names is one.
    let mut copies: HashMap<Key, c_int> = HashMap::new();
    let mut missed = Vec::new();
    let mut open = std::collections::VecDeque::from([program]);
    while let Some(needs) = open.pop_front() {
        let Needs { linked, path, of_others, inside } = needs;
        let dirs = linked.searched(origin(&path), &of_others, library_path);
        let of_others = linked.first(origin(&path), &of_others);
        for name in &linked.needed {
            if !is_sought(name) || known.len() > MOST || !known.insert(name.clone()) {
                continue;
            }
            let (path, copy, linked, is_inside, is_missed) = match find(world, name, &dirs) {
                None => continue,
                Some(Found::Inside(ours)) => {
                    let key = ours.key();
                    if let Some(fd) = copies.get(&key) {
                        missed.push(Missed { name: name.clone(), path: ours.path, copy: Some((*fd, key)) });
                        continue;
                    }
                    let Some((fd, linked)) = copied(&ours) else { continue };
                    copies.insert(key, fd);
                    (ours.path, Some((fd, key)), Some(linked), true, true)
                }
                Some(found @ (Found::Outside(_) | Found::Beyond(_))) => {
                    let beyond = matches!(found, Found::Beyond(_));
                    let (Found::Outside(path) | Found::Beyond(path)) = found else { continue };
                    let Ok(text) = CString::new(&path[..]) else { continue };
                    (path, None, linked_at(text.as_ptr()), false, beyond || inside)
                }
            };
            if is_missed {
                missed.push(Missed { name: name.clone(), path: path.clone(), copy });
            }
            if let Some(linked) = linked {
                open.push_back(Needs { linked, path, of_others: of_others.clone(), inside: is_inside });
            }
        }
    }
    missed
}
