//! How long files may become that a process writes (`RLIMIT_FSIZE`).

use std::{
    cell::Cell,
    ffi::c_int,
    sync::atomic::{AtomicU64, Ordering},
};

use iov_posix::{Errno, Outcome};

use super::export;
use crate::{files::Patience, raw::kernel, world::Inside};

/// The limit, so that not each write has to ask for it.
static LONGEST: AtomicU64 = AtomicU64::new(libc::RLIM_INFINITY);

/// Finds out what the limit is now.
pub(crate) fn learn() {
    let mut limit = libc::rlimit64 { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    let none = std::ptr::null::<libc::rlimit64>();
    if kernel!(libc::SYS_prlimit64, 0, libc::RLIMIT_FSIZE, none, &raw mut limit) == 0 {
        LONGEST.store(limit.rlim_cur, Ordering::Relaxed);
    }
}

thread_local! {
    /// The thread has wanted too much, and is to hear of it when it has left the library.
    static EXCEEDED: Cell<bool> = const { Cell::new(false) };
}

fn exceeded() -> Errno {
    EXCEEDED.set(true);
    Errno::EFBIG
}

/// The thread leaves the library: tells it as the kernel does that it wanted too much, if so. It may end by that, or go anywhere.
pub(crate) fn tell() {
    if EXCEEDED.replace(false) {
        if let Some(world) = super::process::ending() {
            let _inside = Inside::enter();
            super::process::publish_all(world, &mut Patience::new(world));
        }
        kernel!(libc::SYS_tgkill, kernel!(libc::SYS_getpid), kernel!(libc::SYS_gettid), libc::SIGXFSZ);
    }
}

/// Whether a file of this size may become so long.
pub(super) fn may_grow(size: impl FnOnce() -> Outcome<u64>, to: u64) -> Outcome<()> {
    if to > LONGEST.load(Ordering::Relaxed) && to > size()? { Err(exceeded()) } else { Ok(()) }
}

/// How many of so many bytes may be written; `at` tells where.
pub(super) fn room(len: usize, at: impl FnOnce() -> Outcome<u64>) -> Outcome<usize> {
    let longest = LONGEST.load(Ordering::Relaxed);
    if longest == libc::RLIM_INFINITY || len == 0 {
        return Ok(len);
    }
    match longest.checked_sub(at()?) {
        None | Some(0) => Err(exceeded()),
        Some(room) => Ok(usize::try_from(room).map_or(len, |room| room.min(len))),
    }
}

/// Files of the library's own that are no longer than this.
const SHORT: u64 = 1 << 20;

/// Does something with a file of the library's own: what is too long for the program's limit fails, and the program hears of no signal for that.
pub(crate) fn without_signal<T>(work: impl FnOnce() -> T) -> T {
    if LONGEST.load(Ordering::Relaxed) >= SHORT {
        return work();
    }
    let signal = 1_u64 << (libc::SIGXFSZ - 1);
    let (mut blocked, mut waits, now) = (0_u64, 0_u64, libc::timespec { tv_sec: 0, tv_nsec: 0 });
    kernel!(libc::SYS_rt_sigpending, &raw mut waits, size_of::<u64>());
    kernel!(libc::SYS_rt_sigprocmask, libc::SIG_BLOCK, &raw const signal, &raw mut blocked, size_of::<u64>());
    let done = work();
    // Not one that somebody else has sent.
    if waits & signal == 0 {
        kernel!(libc::SYS_rt_sigtimedwait, &raw const signal, 0, &raw const now, size_of::<u64>());
    }
    kernel!(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const blocked, 0, size_of::<u64>());
    done
}

export! {
    /// `setrlimit(2)`
    fn setrlimit(what: c_int, limit: *const libc::rlimit64) -> c_int =
        change(0, what, limit, std::ptr::null_mut());
    /// `prlimit(2)`
    fn prlimit(pid: c_int, what: c_int, new: *const libc::rlimit64, old: *mut libc::rlimit64) -> c_int =
        change(pid, what, new, old);
}

fn change(pid: c_int, what: c_int, new: *const libc::rlimit64, old: *mut libc::rlimit64) -> isize {
    let call = || kernel!(libc::SYS_prlimit64, pid, what, new, old);
    // Not while the library has raised it for a moment.
    let done = match what == libc::RLIMIT_NOFILE as c_int {
        true => ioverbs::kept::with_limit(call).unwrap_or_else(call),
        false => call(),
    };
    if what == libc::RLIMIT_FSIZE as c_int && !new.is_null() {
        learn();
    }
    done
}
