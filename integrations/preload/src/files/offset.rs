//! Who moves the offset of an open file, which other processes may have as well.

use std::{
    ffi::c_int,
    sync::{MutexGuard, atomic::Ordering},
};

use super::Open;
use crate::{raw::kernel, world::lock};

impl Open {
    /// Nobody else moves the offset for as long as this is kept.
    pub(crate) fn moves(&self, fd: c_int) -> Moving<'_> {
        self.lets_close();
        let one = lock(&self.moving);
        let shared = self.shared.load(Ordering::Relaxed).then_some(fd);
        if let Some(fd) = shared {
            self.mover.store(crate::raw::tid(), Ordering::Relaxed);
            // What stands for it has a lock for that, which ends with its process, or with the program that it runs next.
            loop {
                match -Moving::change(fd, libc::F_WRLCK) as c_int {
                    libc::EINTR => {}
                    // The kernel takes two threads for one that waits for itself: each has one such lock at a time.
                    libc::EDEADLK => pause(MOMENT_NS / 10),
                    _ => break,
                }
            }
        }
        Moving { _one: one, open: self, shared }
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
        // SAFETY: all of it may be zero.
        let mut first: libc::flock = unsafe { std::mem::zeroed() };
        (first.l_type, first.l_len) = (kind as i16, 1);
        kernel!(libc::SYS_fcntl, fd, libc::F_SETLKW, &raw const first)
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
