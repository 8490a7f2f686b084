//! Who comes first: what is asked in the background gives way to what somebody waits for, but not for ever.

use std::{
    sync::{
        Condvar, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use iov_store::seam;
use iov_types::Priority;

/// Most threads that serve what is asked in the background.
pub(crate) const WORKERS: usize = 2;
/// Longest that a request gives way, in nanoseconds: fifty pieces of a mebibyte come through in a second, whatever else happens.
const PATIENCE_NS: i64 = 20_000_000;

/// Requests that are served just now.
#[derive(Default)]
pub(crate) struct Turns {
    foreground: AtomicUsize,
    /// How many wait until that is 0.
    waiting: Mutex<usize>,
    is_over: Condvar,
}

/// A request that is being served.
pub(crate) struct Turn<'a>(Option<&'a Turns>);

impl Turns {
    /// Begins to serve a request, once it may be.
    pub(crate) fn take(&self, priority: Priority) -> Turn<'_> {
        match priority {
            Priority::Foreground => {
                self.foreground.fetch_add(1, Ordering::SeqCst);
                Turn(Some(self))
            }
            Priority::Background => {
                self.give_way();
                Turn(None)
            }
        }
    }

    fn give_way(&self) {
        if self.foreground.load(Ordering::SeqCst) == 0 {
            return;
        }
        let until_ns = seam::monotonic_ns() + PATIENCE_NS;
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        *waiting += 1;
        loop {
            let left = until_ns - seam::monotonic_ns();
            if left <= 0 || self.foreground.load(Ordering::SeqCst) == 0 {
                break;
            }
            let slept = self.is_over.wait_timeout(waiting, Duration::from_nanos(left as u64));
            waiting = slept.unwrap_or_else(PoisonError::into_inner).0;
        }
        *waiting -= 1;
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let Some(turns) = self.0 else { return };
        if turns.foreground.fetch_sub(1, Ordering::SeqCst) == 1 {
            let waiting = turns.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            if *waiting > 0 {
                turns.is_over.notify_all();
            }
        }
    }
}

#[cfg(test)]
mod tests;
