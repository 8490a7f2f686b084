//! `preadv2` and `pwritev2`: how one call is to be done, whatever the file was opened for.

use std::{ffi::c_int, sync::Arc};

use iov_posix::{Errno, Outcome};

use super::{
    bytes::{self, append_pieces, kept, lower, offset, pieces_to_write},
    syncs::sync_of,
};
use crate::{
    files::{Open, with},
    raw::{failed, unanswered},
    world::World,
};

/// What `preadv2` may be asked for: all of it changes the cost alone, or nothing of a read.
const READS_AS: c_int = WRITES_AS | libc::RWF_NOWAIT;
/// What `pwritev2` may be asked for.
const WRITES_AS: c_int =
    libc::RWF_HIPRI | libc::RWF_DSYNC | libc::RWF_SYNC | libc::RWF_APPEND | RWF_NOAPPEND | RWF_DONTCACHE;
/// It is written where it was said, also if the file was opened for appending.
const RWF_NOAPPEND: c_int = 0x20;
/// The kernel need not keep it.
const RWF_DONTCACHE: c_int = 0x80;

/// Whether `preadv2` can be done so.
pub(super) fn may_read(flags: c_int) -> bool {
    flags & !READS_AS == 0
}

/// `pwritev2`.
///
/// # Safety
/// As the function.
pub(super) unsafe fn write(fd: c_int, iov: *const libc::iovec, count: c_int, at: i64, flags: c_int) -> isize {
    if flags & !WRITES_AS != 0 {
        return failed(Errno::EOPNOTSUPP);
    }
    if flags & libc::RWF_APPEND != 0 && flags & RWF_NOAPPEND != 0 {
        return failed(Errno::EINVAL);
    }
    let written = match (flags & libc::RWF_APPEND != 0, at) {
        (false, 0..) if flags & RWF_NOAPPEND != 0 => {
            // SAFETY: the memory is the program's for this call.
            with(fd, |w, open| bytes::write_at(w, open, at, &unsafe { pieces_to_write(iov, count) }?))
                .unwrap_or_else(|| failed(Errno::EBADF))
        }
        // SAFETY: the memory is the program's for this call.
        (true, _) => with(fd, |w, open| append(w, fd, open, at, &unsafe { pieces_to_write(iov, count) }?))
            .unwrap_or_else(|| failed(Errno::EBADF)),
        (false, -1) if flags & RWF_NOAPPEND != 0 => return failed(Errno::EOPNOTSUPP),
        // SAFETY: as of this one.
        (false, -1) => unanswered(unsafe { bytes::writev(fd, iov, count) }),
        // SAFETY: as of this one.
        (false, at) => unanswered(unsafe { bytes::pwritev(fd, iov, count, at) }),
    };
    let syncs = flags & (libc::RWF_DSYNC | libc::RWF_SYNC) != 0;
    match syncs.then(|| sync_of(fd)).flatten() {
        Some(failure) if written > 0 && failure < 0 => failure,
        _ => written,
    }
}

/// Writes at the end, whatever it was opened for; with `at` -1 the place of the next one moves behind it.
fn append(world: &World, fd: c_int, open: &Arc<Open>, at: i64, pieces: &[&[u8]]) -> Outcome<isize> {
    let file = open.to_write(world)?;
    lower(file)?;
    if at != -1 {
        offset(at)?;
    }
    if pieces.iter().all(|piece| piece.is_empty()) {
        return Ok(0);
    }
    let _one = (at == -1).then(|| open.moves(fd));
    let (n, end) = append_pieces(file, pieces)?;
    if at == -1 {
        open.standing.move_to(fd, end);
    }
    kept(open, file, n)
}
