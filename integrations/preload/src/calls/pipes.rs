//! `splice`: bytes between a pipe of the kernel and a file of the store, which the kernel would move without a copy, and are copied here.

use std::ffi::c_int;

use iov_posix::{Errno, Outcome};

use super::{
    bytes::is_ours,
    copies::{may_write, move_some},
    descriptors::fcntl,
    export,
};
use crate::{
    memory::{self, Use},
    raw::{kernel, outcome, set_errno},
    signals::Quiet,
};

/// What `splice` may be asked for.
const FLAGS: u32 = libc::SPLICE_F_MOVE | libc::SPLICE_F_NONBLOCK | libc::SPLICE_F_MORE | libc::SPLICE_F_GIFT;
/// Bytes that are written to a pipe all or not at all.
const TOGETHER: usize = libc::PIPE_BUF;
/// Bytes that are moved in one call, at most: what a pipe has room for.
const MOST: usize = 64 << 10;

fn is_pipe(fd: c_int) -> bool {
    // SAFETY: all of it may be zero, and the call fills it.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    kernel!(libc::SYS_fstat, fd, &raw mut stat) == 0 && stat.st_mode & libc::S_IFMT == libc::S_IFIFO
}

/// Whether a descriptor is ready for this at once.
fn is_ready(fd: c_int, events: i16) -> bool {
    let (mut asked, now) = (libc::pollfd { fd, events, revents: 0 }, libc::timespec { tv_sec: 0, tv_nsec: 0 });
    kernel!(libc::SYS_ppoll, &raw mut asked, 1, &raw const now, 0, 0) > 0
}

/// How many bytes a pipe takes without a wait for whoever reads it, where it takes any.
fn room_of(pipe: c_int) -> usize {
    let mut inside: c_int = 0;
    let asked = kernel!(libc::SYS_ioctl, pipe, libc::FIONREAD, &raw mut inside);
    let room = usize::try_from(kernel!(libc::SYS_fcntl, pipe, libc::F_GETPIPE_SZ)).unwrap_or(TOGETHER);
    // Behind what is in it there may be room in pages of which parts are used.
    if asked == 0 && inside == 0 { room.min(MOST) } else { TOGETHER }
}

fn move_between(from: (c_int, *mut i64), to: (c_int, *mut i64), len: usize, flags: u32) -> Outcome<isize> {
    let ((from, from_at), (to, to_at)) = (from, to);
    if flags & !FLAGS != 0 {
        return Err(Errno::EINVAL);
    }
    may_write(to)?;
    let out = is_ours(from);
    let (pipe, at, pipe_at, events) =
        if out { (to, from_at, to_at, libc::POLLOUT) } else { (from, to_at, from_at, libc::POLLIN) };
    if kernel!(libc::SYS_fcntl, pipe, libc::F_GETFD) < 0 {
        return Err(Errno::EBADF);
    }
    if is_ours(pipe) || !is_pipe(pipe) {
        return Err(Errno::EINVAL);
    }
    if !pipe_at.is_null() {
        return Err(Errno(libc::ESPIPE));
    }
    if !at.is_null() {
        memory::check(at.cast(), size_of::<i64>(), Use::Write)?;
    }
    // SAFETY: it asks for a number.
    if !out && unsafe { fcntl(to, libc::F_GETFL, 0) } & libc::O_APPEND != 0 {
        return Err(Errno::EINVAL);
    }
    if flags & libc::SPLICE_F_NONBLOCK != 0 && !is_ready(pipe, events) {
        return Err(Errno::EAGAIN);
    }
    match out {
        true => {
            let quiet = Quiet::enter();
            let mut room = vec![0; len.min(room_of(pipe))];
            let moved = moved(quiet.without(|| move_some(from, from_at, to, to_at, &mut room)));
            drop(room);
            moved
        }
        false => take_out(pipe, (to, to_at), len.min(MOST), flags),
    }
}

fn moved((n, wrote): (isize, usize)) -> Outcome<isize> {
    match (n, wrote) {
        (n, _) if n <= 0 => Ok(n),
        (_, 0) => Err(Errno(crate::raw::errno())),
        (_, wrote) => Ok(wrote as isize),
    }
}

/// Moves bytes from a pipe into a file. What the file does not take stays in the pipe: it gets a copy first.
fn take_out(pipe: c_int, (to, to_at): (c_int, *mut i64), len: usize, flags: u32) -> Outcome<isize> {
    let mut copy = [-1_i32; 2];
    let made = kernel!(libc::SYS_pipe2, copy.as_mut_ptr(), libc::O_CLOEXEC);
    if made < 0 {
        return Err(Errno(-made as c_int));
    }
    let copied = kernel!(libc::SYS_tee, pipe, copy[1], len, flags & libc::SPLICE_F_NONBLOCK);
    let _quiet = Quiet::enter();
    let done = match usize::try_from(copied) {
        Ok(n) if n > 0 => {
            let mut room = vec![0; n];
            let done = moved(move_some(copy[0], std::ptr::null_mut(), to, to_at, &mut room));
            if let Ok(wrote @ 1..) = done {
                kernel!(libc::SYS_read, pipe, room.as_mut_ptr(), wrote);
            }
            done
        }
        _ => Ok(copied),
    };
    for fd in copy {
        kernel!(libc::SYS_close, fd);
    }
    done
}

export! {
    /// `splice(2)`
    fn splice(from: c_int, from_at: *mut i64, to: c_int, to_at: *mut i64, len: usize, flags: u32) -> isize =
        match is_ours(from) || is_ours(to) {
            true if len == 0 => 0,
            true => {
                let errno = crate::raw::errno();
                let moved = outcome(move_between((from, from_at), (to, to_at), len, flags));
                set_errno(errno);
                moved
            }
            false => kernel!(libc::SYS_splice, from, from_at, to, to_at, len, flags),
        };
}
