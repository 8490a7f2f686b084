//! Who moves the offset of an open file, which other processes may have as well.

use std::{
    ffi::{CString, c_int},
    sync::{MutexGuard, atomic::Ordering},
};

use super::Open;
use crate::{raw::kernel, world::lock};

impl Open {
    /// Nobody else moves the offset for as long as this is kept.
    pub(crate) fn moves(&self, fd: c_int) -> Moving<'_> {
        self.moves_from(self.rests(), fd)
    }

    /// The same, by who has [`Open::rests`].
    pub(crate) fn moves_from<'a>(&'a self, one: MutexGuard<'a, ()>, fd: c_int) -> Moving<'a> {
        let shared = self.shared.load(Ordering::Relaxed).then_some(fd);
        if shared.is_some() {
            self.mover.store(crate::raw::tid(), Ordering::Relaxed);
        }
        // What stands for it has a lock for that, which ends with its process, or with the program that it runs next.
        let shared = shared.filter(|fd| wait_for(*fd));
        if shared.is_none() {
            self.mover.store(0, Ordering::Relaxed);
        }
        Moving { _one: one, open: self, shared }
    }

    /// Nobody of this process moves the offset, or closes a descriptor, for as long as this is kept.
    pub(crate) fn rests(&self) -> MutexGuard<'_, ()> {
        self.lets_close();
        lock(&self.moving)
    }

    /// Does something while nobody else moves the offset, by who has [`Open::rests`]; not at all, if another process moves it for long.
    pub(crate) fn with_offset(&self, fd: c_int, work: impl FnOnce()) {
        if !self.shared.load(Ordering::Relaxed) {
            return work();
        }
        for _ in 0..SOON {
            if Moving::change(fd, libc::F_WRLCK) == 0 {
                work();
                Moving::change(fd, libc::F_UNLCK);
                return;
            }
            pause(SOON_NS);
        }
    }

    /// Who is about to close a descriptor comes first: those who move the offset would have that between them for ever. But it may be the one who is interrupted for
    /// this.
    fn lets_close(&self) {
        for _ in 0..MOMENTS {
            let closer = self.closer.load(Ordering::Relaxed);
            if closer == 0 || closer == crate::raw::tid() {
                break;
            }
            pause(MOMENT_NS);
        }
    }

    /// To be kept while a descriptor of it is closed, which ends the lock of this process by which it moves the offset ([`Open::moves`]): who does that is waited
    /// for, unless that was interrupted for this, and for some seconds at most.
    pub(crate) fn at_rest(&self) -> Option<MutexGuard<'_, ()>> {
        if !self.shared.load(Ordering::Relaxed) {
            return None;
        }
        let me = crate::raw::tid();
        let mut is_first = false;
        let mut rests = None;
        for _ in 0..MOMENTS {
            is_first = is_first || self.closer.compare_exchange(0, me, Ordering::Relaxed, Ordering::Relaxed).is_ok();
            rests = self.moving.try_lock().ok();
            if rests.is_some() || self.mover.load(Ordering::Relaxed) == me {
                break;
            }
            pause(MOMENT_NS);
        }
        if is_first {
            self.closer.store(0, Ordering::Relaxed);
        }
        rests
    }
}

/// How often somebody is waited for, and how long at a time, in nanoseconds.
const MOMENTS: usize = 2000;
const MOMENT_NS: i64 = 1_000_000;

/// How long somebody is waited for who has been stopped (`SIGSTOP`, or by a debugger) as he was about to move the offset: the kernel would have let him do that first.
const STOPPED_NS: i64 = 500 * MOMENT_NS;
/// So often it is looked for who appends.
const SOON: u32 = 50;
/// How long is waited between two looks at whether it can be locked, at first.
const SOON_NS: i64 = MOMENT_NS / 50;

/// Waits for the lock of the offset. `false`: somebody else has it who has been stopped for long, or there is none; it is moved without.
fn wait_for(fd: c_int) -> bool {
    let (mut wait_ns, mut stopped_ns) = (SOON_NS, 0);
    loop {
        match -Moving::change(fd, libc::F_WRLCK) as c_int {
            0 => return true,
            libc::EINTR => {}
            libc::EAGAIN | libc::EACCES => {
                pause(wait_ns);
                stopped_ns = if wait_ns >= MOMENT_NS && has_stopped_owner(fd) { stopped_ns + wait_ns } else { 0 };
                if stopped_ns >= STOPPED_NS {
                    return false;
                }
                wait_ns = (2 * wait_ns).min(MOMENT_NS);
            }
            _ => return false,
        }
    }
}

/// Whether who has the lock is stopped, as far as is known here: of a process that this one cannot see it is not.
fn has_stopped_owner(fd: c_int) -> bool {
    let mut lock = Moving::first(libc::F_WRLCK);
    if kernel!(libc::SYS_fcntl, fd, libc::F_GETLK, &raw mut lock) != 0 || lock.l_pid <= 0 {
        return false;
    }
    // `PID (NAME) STATE ...`, where a name may have brackets of its own (`proc_pid_stat(5)`).
    let mut text = [0_u8; 64];
    let Ok(path) = CString::new(format!("/proc/{}/stat", lock.l_pid)) else { return false };
    let stat = kernel!(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC, 0);
    if stat < 0 {
        return false;
    }
    let n = kernel!(libc::SYS_read, stat, text.as_mut_ptr(), text.len());
    kernel!(libc::SYS_close, stat);
    let text = usize::try_from(n).ok().and_then(|n| text.get(..n)).unwrap_or_default();
    let state = text.iter().rposition(|byte| *byte == b')').and_then(|at| text.get(at + 2));
    state.is_some_and(|state| b"Tt".contains(state))
}

fn pause(ns: i64) {
    let pause = libc::timespec { tv_sec: 0, tv_nsec: ns };
    kernel!(libc::SYS_nanosleep, &raw const pause, 0);
}

/// See [`Open::moves`].
pub(crate) struct Moving<'a> {
    _one: MutexGuard<'a, ()>,
    open: &'a Open,
    shared: Option<c_int>,
}

impl Moving<'_> {
    pub(super) fn change(fd: c_int, kind: c_int) -> isize {
        let first = Moving::first(kind);
        kernel!(libc::SYS_fcntl, fd, libc::F_SETLK, &raw const first)
    }

    /// The lock of the first byte.
    fn first(kind: c_int) -> libc::flock {
        // SAFETY: all of it may be zero.
        let mut first: libc::flock = unsafe { std::mem::zeroed() };
        (first.l_type, first.l_len) = (kind as i16, 1);
        first
    }
}

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        if let Some(fd) = self.shared {
            Moving::change(fd, libc::F_UNLCK);
            self.open.mover.store(0, Ordering::Relaxed);
        }
    }
}
