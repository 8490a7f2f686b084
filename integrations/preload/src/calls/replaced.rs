//! Descriptors under whose number another thread puts something else in the middle of a call (`dup2`), as who rotates a log does.

use std::{ffi::c_int, sync::Arc};

use iov_posix::{Errno, Outcome};

use crate::{
    files::Open,
    raw::{failed, kernel},
    signals::Quiet,
    world::{World, world},
};

/// How often it is written once more. What else refuses a write refuses it each time.
const TRIES: usize = 3;

/// Whether a descriptor still stands for what it did, as far as that matters: an offset that is kept here is nobody else's. Who has [`Open::rests`] knows it until he lets
/// go of that.
pub(super) fn stands_for(world: &World, fd: c_int, open: &Arc<Open>) -> bool {
    !open.standing.is_own() || world.files.get(fd).is_some_and(|there| Arc::ptr_eq(&there, open))
}

fn outcome(done: isize) -> Outcome<isize> {
    if done < 0 { Err(Errno(-done as c_int)) } else { Ok(done) }
}

/// Reads from what the kernel has there now.
pub(super) fn read(fd: c_int, pieces: &mut [&mut [u8]]) -> Outcome<isize> {
    let list = |piece: &mut &mut [u8]| libc::iovec { iov_base: piece.as_mut_ptr().cast(), iov_len: piece.len() };
    let list: Vec<_> = pieces.iter_mut().map(list).collect();
    outcome(kernel!(libc::SYS_readv, fd, list.as_ptr(), list.len()))
}

/// Writes to what the kernel has there now.
pub(super) fn write(fd: c_int, pieces: &[&[u8]]) -> Outcome<isize> {
    let list = |piece: &&[u8]| libc::iovec { iov_base: piece.as_ptr().cast_mut().cast(), iov_len: piece.len() };
    let list: Vec<_> = pieces.iter().map(list).collect();
    outcome(kernel!(libc::SYS_writev, fd, list.as_ptr(), list.len()))
}

/// Writes by the kernel to what is not ours. Where what is ours has come there meanwhile, what stands for that refuses it: it is done `again`; and by the kernel, if that has
/// gone again by then.
pub(super) fn once_more(fd: c_int, mut write: impl FnMut() -> isize, again: impl FnOnce() -> isize) -> isize {
    let mut done = write();
    for _ in 0..TRIES {
        let Some(world) = world().filter(|_| done == failed(Errno::EPERM)) else { break };
        let quiet = Quiet::enter();
        let is_ours = world.files.get_settled(fd).is_some();
        drop(quiet);
        if is_ours {
            return again();
        }
        done = write();
    }
    done
}
