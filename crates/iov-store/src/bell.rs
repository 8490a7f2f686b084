//! A condition variable that costs nobody anything while nobody waits.

use std::{
    sync::{
        Condvar, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

/// As [`Condvar`], but a ring without anybody who waits is one look at a counter, and no call of the kernel. Any number of threads.
#[derive(Debug, Default)]
pub struct Bell {
    heard: Condvar,
    /// Those who wait. A child of a fork may have its parent's, which only costs it calls.
    waiting: AtomicU32,
}

impl Bell {
    /// Lets go of the lock and waits for a ring, at most so long, or for nothing (as every condition variable may); has the lock
    /// again afterwards, also if somebody else panicked with it.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>, most: Duration) -> MutexGuard<'a, T> {
        // Under the lock: whoever changes what is waited for and rings behind that finds this, or is found to have changed it.
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let guard = self.heard.wait_timeout(guard, most).unwrap_or_else(PoisonError::into_inner).0;
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        guard
    }

    /// Wakes all who wait. What they wait for has been changed under the lock with which they do, which may be held or not.
    pub fn ring(&self) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.heard.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn nobody_who_waits_misses_a_change() {
        let shared = Arc::new((Mutex::new(0_u32), Bell::default()));
        let other = shared.clone();
        // Each waits for the other: a ring that is missed lasts a minute.
        let turns = move |me: &(Mutex<u32>, Bell), parity: u32| {
            for _ in 0..20_000 {
                let mut turn = me.0.lock().unwrap();
                while *turn % 2 != parity {
                    turn = me.1.wait(turn, Duration::from_secs(60));
                }
                *turn += 1;
                drop(turn);
                me.1.ring();
            }
        };
        let thread = crate::seam::spawn("bell", move || turns(&other, 1)).unwrap();
        turns(&shared, 0);
        thread.join().unwrap();
        assert_eq!((*shared.0.lock().unwrap(), shared.1.waiting.load(Ordering::SeqCst)), (40_000, 0));
    }

    #[test]
    fn who_waits_has_the_lock_again_when_the_time_is_up() {
        let (mutex, bell) = (Mutex::new(7), Bell::default());
        let guard = bell.wait(mutex.lock().unwrap(), Duration::from_millis(1));
        assert_eq!(*guard, 7);
        assert!(mutex.try_lock().is_err());
    }
}
