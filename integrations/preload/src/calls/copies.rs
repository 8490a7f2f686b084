//! Bytes from one descriptor to another.

use std::{ffi::c_int, sync::Arc};

use iov_posix::{Errno, Outcome};

use super::{
    bytes::{is_ours, kept, lseek, offset, position, pread, pwrite, read, write},
    descriptors::fcntl,
    export, limits,
};
use crate::{
    files::Open,
    memory::{self, Use},
    raw::{failed, kernel, outcome, set_errno, unanswered},
    signals::Quiet,
};

/// Bytes that are moved at once where they go through this process.
const CHUNK: usize = 4 << 20;

/// Reads at most as many bytes as there is room for, once, and writes them. What was read, or why nothing was; and how much of it was written: what was
/// not is not read yet either, of a file.
pub(super) fn move_some(from: c_int, from_at: *mut i64, to: c_int, to_at: *mut i64, room: &mut [u8]) -> (isize, usize) {
    // SAFETY: the offsets are null or the program's own for this call; the buffer is ours.
    let n = unsafe {
        if from_at.is_null() {
            read(from, room.as_mut_ptr().cast(), room.len())
        } else {
            pread(from, room.as_mut_ptr().cast(), room.len(), *from_at)
        }
    };
    if n <= 0 {
        return (unanswered(n), 0);
    }
    let n = n as usize;
    let mut wrote = 0;
    while wrote < n {
        let rest = &room[wrote..n];
        // SAFETY: as above.
        let m = unsafe {
            if to_at.is_null() {
                write(to, rest.as_ptr().cast(), rest.len())
            } else {
                pwrite(to, rest.as_ptr().cast(), rest.len(), *to_at)
            }
        };
        if m <= 0 {
            break;
        }
        wrote += m as usize;
        if !to_at.is_null() {
            // SAFETY: it is the program's own for this call.
            unsafe { *to_at += m as i64 };
        }
    }
    let errno = crate::raw::errno();
    if from_at.is_null() {
        if wrote < n {
            // SAFETY: it moves an offset.
            unsafe { lseek(from, wrote as i64 - n as i64, libc::SEEK_CUR) };
            // Why not all of it was written.
            set_errno(errno);
        }
    } else {
        // SAFETY: it is the program's own for this call.
        unsafe { *from_at += wrote as i64 };
    }
    (n as isize, wrote)
}

/// Copies from one descriptor to another, of which one is ours at least, each at an offset or at that of the descriptor.
fn transfer(from: c_int, from_at: *mut i64, to: c_int, to_at: *mut i64, len: usize) -> isize {
    let quiet = Quiet::enter();
    let mut room = vec![0_u8; len.min(CHUNK)];
    let mut done = 0;
    while done < len {
        let want = room.len().min(len - done);
        // The kernel may have it wait for a reader.
        let (n, wrote) = quiet.without(|| move_some(from, from_at, to, to_at, &mut room[..want]));
        if n <= 0 {
            return if done > 0 { done as isize } else { n };
        }
        done += wrote;
        if wrote < n as usize {
            return if done > 0 { done as isize } else { -(crate::raw::errno() as isize) };
        }
    }
    done as isize
}

/// Copies within the store, without the bytes coming here, where both are files of one workspace; none: it has to be done
/// otherwise. `may_overlap`: also bytes of one file onto themselves.
fn copy_within(
    (from, from_at): (c_int, *mut i64),
    (to, to_at): (c_int, *mut i64),
    len: usize,
    may_overlap: bool,
) -> Option<isize> {
    let _quiet = Quiet::enter();
    let world = crate::world::world()?;
    let (src, dst) = (world.files.get(from)?, world.files.get(to)?);
    if src.record.at != dst.record.at || dst.appends(to) {
        return None;
    }
    let mut is_one_file = false;
    let mut copy = || {
        let (a, b) = (src.to_read(world)?, dst.to_write(world)?);
        is_one_file = a.node().is(b.node());
        // SAFETY: they are null or the program's own for this call.
        let (a_at, b_at) = unsafe {
            let at = |fd, open: &Arc<Open>, at: *mut i64| match at.is_null() {
                true => position(fd, open),
                false => offset(*at),
            };
            (at(from, &src, from_at)?, at(to, &dst, to_at)?)
        };
        let len = limits::room(len, || Ok(b_at))?;
        let n = a.copy_to(a_at, b, b_at, len as u64)?;
        kept(&dst, b, n as usize)?;
        for (fd, open, given, at) in [(from, &src, from_at, a_at), (to, &dst, to_at, b_at)] {
            match given.is_null() {
                true => {
                    let _one = crate::world::lock(&open.moving);
                    open.standing.move_to(fd, at + n);
                }
                // SAFETY: as above.
                false => unsafe { *given = (at + n) as i64 },
            }
        }
        Ok(n as isize)
    };
    let done = copy();
    match done {
        Err(Errno::EINVAL) if is_one_file && !may_overlap => Some(outcome(done)),
        Err(Errno::EOPNOTSUPP | Errno::EINVAL) => None,
        done => Some(outcome(done)),
    }
}

/// Whether a descriptor is open for writing, of whomever it is: also of what turns out to be no bytes.
pub(super) fn may_write(fd: c_int) -> Outcome<()> {
    // SAFETY: it asks for a number.
    match unsafe { fcntl(fd, libc::F_GETFL, 0) } {
        flags if flags < 0 || flags & libc::O_PATH != 0 || flags & libc::O_ACCMODE == libc::O_RDONLY => {
            Err(Errno::EBADF)
        }
        _ => Ok(()),
    }
}

/// Whether a descriptor is open, of whomever it is.
fn is_open(fd: c_int) -> bool {
    kernel!(libc::SYS_fcntl, fd, libc::F_GETFD) >= 0
}

/// Whether what is written by a descriptor goes to the end, wherever that is.
fn appends(fd: c_int) -> bool {
    // SAFETY: it asks for a number.
    let flags = unsafe { fcntl(fd, libc::F_GETFL, 0) };
    flags >= 0 && flags & libc::O_APPEND != 0
}

fn copy(
    (from, from_at): (c_int, *mut i64),
    (to, to_at): (c_int, *mut i64),
    len: usize,
    may_overlap: bool,
) -> Option<isize> {
    if !is_ours(from) && !is_ours(to) {
        return None;
    }
    for at in [from_at, to_at] {
        if !at.is_null()
            && let Err(e) = memory::check(at.cast(), size_of::<i64>(), Use::Write)
        {
            return Some(failed(e));
        }
    }
    if let Err(e) = may_write(to) {
        return Some(failed(e));
    }
    let errno = crate::raw::errno();
    let within = copy_within((from, from_at), (to, to_at), len, may_overlap);
    let done = within.unwrap_or_else(|| transfer(from, from_at, to, to_at, len));
    set_errno(errno);
    Some(done)
}

export! {
    /// `copy_file_range(2)`
    fn copy_file_range(
        from: c_int, from_at: *mut i64, to: c_int, to_at: *mut i64, len: usize, flags: u32
    ) -> isize = match (is_ours(from), is_ours(to)) {
        (true, _) | (_, true) if flags != 0 => failed(Errno::EINVAL),
        (true, true) if appends(to) => failed(Errno::EBADF),
        (true, true) => copy((from, from_at), (to, to_at), len, false).unwrap_or_else(|| failed(Errno::EBADF)),
        (false, false) => kernel!(libc::SYS_copy_file_range, from, from_at, to, to_at, len, flags),
        // Between file systems the kernel refuses it as well, and programs know what to do.
        (true, false) | (false, true) => match [from, to].into_iter().all(is_open) {
            true => failed(Errno(libc::EXDEV)),
            false => failed(Errno::EBADF),
        },
    };
    /// `sendfile(2)`
    fn sendfile(to: c_int, from: c_int, from_at: *mut i64, len: usize) -> isize =
        match is_ours(to) && appends(to) {
            true => Some(failed(Errno::EINVAL)),
            false => copy((from, from_at), (to, std::ptr::null_mut()), len, true),
        }
            .unwrap_or_else(|| kernel!(libc::SYS_sendfile, to, from, from_at, len));
}
