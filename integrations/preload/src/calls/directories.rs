//! Reading directories.

use std::{
    ffi::{c_int, c_void},
    sync::{Arc, OnceLock},
};

use iov_posix::{Directory, Errno, Kind, Outcome, number};

use super::export;
use crate::{
    files::{Open, What, with},
    memory::{self, Use},
    raw::kernel,
    world::{World, d_type},
};

/// Bytes of an entry before its name (`struct linux_dirent64`).
const HEAD: usize = 19;
/// Entries that are asked for at once.
const AT_ONCE: usize = 512;

/// An entry: its number, kind and name.
type Entry = (u64, u8, Vec<u8>);

/// Entries from a position on. The first two are the directory itself and the one above.
fn entries(world: &World, what: &What, at: usize) -> Outcome<Vec<Entry>> {
    let d_dir = d_type(Kind::Directory);
    let dots = |own: u64, above: u64| [(own, d_dir, b".".to_vec()), (above, d_dir, b"..".to_vec())].into_iter();
    match what {
        What::Directory(dir) => {
            let (own, above) = (dir.node().ino(), dir.node().parent().map_or(1, |parent| parent.ino()));
            let rest = dir.entries(at.saturating_sub(2), AT_ONCE)?;
            let rest = rest.into_iter().map(|entry| (number(entry.uuid), d_type(entry.kind), entry.name));
            Ok(dots(own, above).skip(at).chain(rest).collect())
        }
        What::Top(names) => {
            let names = top(world, names)?.iter().map(|name| (2, d_dir, name.clone()));
            Ok(dots(1, 1).chain(names).skip(at).collect())
        }
        What::File(_) => Err(Errno::ENOTDIR),
        What::Path(_) => Err(Errno::EBADF),
    }
}

fn top<'a>(world: &World, names: &'a OnceLock<Vec<Vec<u8>>>) -> Outcome<&'a Vec<Vec<u8>>> {
    if names.get().is_none() {
        let _ = names.set(world.workspaces()?);
    }
    names.get().ok_or(Errno::EIO)
}

/// From now on its entries are those of this moment.
pub(super) fn rewind(world: &World, open: &Open) -> Outcome<()> {
    if let What::Directory(dir) = open.what(world)? {
        Directory::rewind(dir);
    }
    Ok(())
}

/// Fills the memory of a program with entries from the offset of the descriptor on.
fn fill(world: &World, fd: c_int, open: &Arc<Open>, room: &mut [u8]) -> Outcome<isize> {
    let _one = open.moves(fd);
    let what = open.what(world)?;
    let mut at = usize::try_from(open.standing.offset(fd)).map_err(|_| Errno::EINVAL)?;
    let mut used = 0;
    'all: loop {
        let entries = entries(world, what, at)?;
        if entries.is_empty() {
            break;
        }
        for (ino, kind, name) in entries {
            let len = (HEAD + name.len() + 1).next_multiple_of(8);
            let Some(entry) = room.get_mut(used..used + len) else {
                if used == 0 {
                    return Err(Errno::EINVAL);
                }
                break 'all;
            };
            entry.fill(0);
            entry[..8].copy_from_slice(&ino.to_ne_bytes());
            entry[8..16].copy_from_slice(&(at as u64 + 1).to_ne_bytes());
            entry[16..18].copy_from_slice(&(len as u16).to_ne_bytes());
            entry[18] = kind;
            entry[HEAD..HEAD + name.len()].copy_from_slice(&name);
            (used, at) = (used + len, at + 1);
        }
    }
    open.standing.move_to(fd, at as u64);
    if let (What::Directory(dir), Some(mounted)) = (what, open.mounted(world)?) {
        mounted.paths.reads(dir);
    }
    Ok(used as isize)
}

export! {
    /// `getdents64(2)`
    fn getdents64(fd: c_int, room: *mut c_void, len: usize) -> isize =
        with(fd, |w, open| {
            memory::check(room, len, Use::Write)?;
            // SAFETY: the memory is the program's for this call.
            fill(w, fd, open, unsafe { std::slice::from_raw_parts_mut(room.cast(), len) })
        })
            .unwrap_or_else(|| kernel!(libc::SYS_getdents64, fd, room, len));
}
