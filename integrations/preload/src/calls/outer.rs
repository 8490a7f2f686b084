//! Symbolic links outside that lead into a workspace. The kernel, which has no such path, finds nothing behind them. Only then is looked for them
//! here, so that they cost nothing where there are none.

use std::{
    collections::VecDeque,
    ffi::{CString, c_char, c_int},
};

use iov_posix::Errno;

use super::bytes_of;
use crate::{
    raw::{failed, kernel},
    signals::Quiet,
    world::{World, world},
};

/// Links on one way, at most, as on Linux.
const LINKS: usize = 40;
/// The kernel is to stop at any symbolic link (`RESOLVE_NO_SYMLINKS`).
const NO_LINKS: u64 = 4;

/// What a call means where the last name of a path is that of a symbolic link.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Last {
    /// What it leads to.
    Followed,
    /// The link.
    Itself,
}

/// What `openat2` is told (`struct open_how`).
#[repr(C)]
struct OpenHow {
    flags: u64,
    mode: u64,
    resolve: u64,
}

/// Whether there may be a symbolic link on a way on which the kernel has found nothing.
fn may_have_links(dirfd: c_int, path: *const c_char) -> bool {
    let how = OpenHow { flags: (libc::O_PATH | libc::O_CLOEXEC) as u64, mode: 0, resolve: NO_LINKS };
    let found = kernel!(libc::SYS_openat2, dirfd, path, &raw const how, size_of::<OpenHow>());
    if found >= 0 {
        kernel!(libc::SYS_close, found);
    }
    found == failed(Errno::ELOOP) || found == failed(Errno(libc::ENOSYS))
}

/// Where a path of the kernel begins.
fn beginning(dirfd: c_int, path: &[u8]) -> Option<Vec<u8>> {
    if path.first() == Some(&b'/') {
        return Some(Vec::new());
    }
    let mut dir = vec![0_u8; libc::PATH_MAX as usize];
    let n = if dirfd == libc::AT_FDCWD {
        kernel!(libc::SYS_getcwd, dir.as_mut_ptr(), dir.len()) - 1
    } else {
        let link = format!("/proc/self/fd/{dirfd}\0");
        kernel!(libc::SYS_readlinkat, libc::AT_FDCWD, link.as_ptr(), dir.as_mut_ptr(), dir.len())
    };
    dir.truncate(usize::try_from(n).ok()?);
    dir.starts_with(b"/").then_some(dir)
}

/// Where a symbolic link of the kernel leads; an empty path: it is none. `None`: nothing is there.
fn link_at(path: &[u8]) -> Option<Vec<u8>> {
    let path = CString::new(path).ok()?;
    let mut to = vec![0_u8; libc::PATH_MAX as usize];
    let n = kernel!(libc::SYS_readlinkat, libc::AT_FDCWD, path.as_ptr(), to.as_mut_ptr(), to.len());
    if n == failed(Errno::EINVAL) {
        return Some(Vec::new());
    }
    to.truncate(usize::try_from(n).ok()?);
    Some(to)
}

/// The names of a path, in front of others.
fn put_in_front(rest: &mut VecDeque<Vec<u8>>, path: &[u8]) {
    for name in path.split(|b| *b == b'/').rev().filter(|name| !name.is_empty() && *name != b".") {
        rest.push_front(name.to_vec());
    }
}

/// Where a path leads, step by step; none: not into a workspace, or not by a link.
fn walk(world: &World, start: Vec<u8>, path: &[u8], last: Last) -> Option<Vec<u8>> {
    let mut so_far = if start == b"/" { Vec::new() } else { start };
    let mut rest = VecDeque::new();
    put_in_front(&mut rest, path);
    let mut links = 0;
    // As the program, or a link at its end, has said that it is a directory.
    let mut slash = path.ends_with(b"/");
    while let Some(name) = rest.pop_front() {
        if name == b".." {
            so_far.truncate(so_far.iter().rposition(|b| *b == b'/').unwrap_or(0));
            continue;
        }
        let here = [&so_far, &b"/"[..], &name].concat();
        if links > 0 && world.place(&here).is_some() {
            let behind = rest.iter().flat_map(|name| [&b"/"[..], name]).collect::<Vec<_>>().concat();
            return Some([&here[..], &behind, if slash { b"/" } else { b"" }].concat());
        }
        if rest.is_empty() && last == Last::Itself && !slash {
            return None;
        }
        let to = match link_at(&here) {
            // There need not be a directory above a place.
            None if world.is_above(&here) => Vec::new(),
            to => to?,
        };
        if to.is_empty() {
            so_far = here;
            continue;
        }
        links += 1;
        if links > LINKS {
            return None;
        }
        if to.starts_with(b"/") {
            so_far.clear();
        }
        slash |= rest.is_empty() && to.ends_with(b"/");
        put_in_front(&mut rest, &to);
    }
    None
}

/// The path in a workspace to which one leads on which the kernel has found nothing. None: it does not.
pub(super) fn leads_in(world: &World, dirfd: c_int, path: *const c_char, last: Last) -> Option<CString> {
    let _quiet = Quiet::enter();
    let bytes = bytes_of(path).filter(|bytes| !bytes.is_empty() && bytes.len() < libc::PATH_MAX as usize)?;
    if !may_have_links(dirfd, path) {
        return None;
    }
    let found = walk(world, beginning(dirfd, bytes)?, bytes, last)?;
    CString::new(found).ok().filter(|found| found.count_bytes() < libc::PATH_MAX as usize)
}

/// A path and where it begins.
type Path = (c_int, *const c_char);

/// Does what is asked of two paths, and once more by where links outside lead, if nothing was found.
pub(super) fn with_two(from: (Path, Last), to: Path, call: &dyn Fn(Path, Path) -> isize) -> isize {
    let _quiet = Quiet::enter();
    let (first, last) = from;
    let done = call(first, to);
    let Some(world) = world().filter(|_| done == failed(Errno::ENOENT)) else { return done };
    let new_from = leads_in(world, first.0, first.1, last);
    let new_to = leads_in(world, to.0, to.1, Last::Itself);
    if new_from.is_none() && new_to.is_none() {
        return done;
    }
    let of = |new: &Option<CString>, old: Path| new.as_ref().map_or(old, |new| (libc::AT_FDCWD, new.as_ptr()));
    call(of(&new_from, first), of(&new_to, to))
}
