//! Whether others want the processors on which somebody looks.
//!
//! Who looks lets others pass in between, and uses up its share of the processor: somebody who computes, and lets nobody pass, then keeps it for a slice of some
//! milliseconds. Who sleeps has it as soon as he is woken. So where looking has taken long, all of this process sleep for a while instead, each time for longer.

use std::sync::atomic::{AtomicI64, Ordering};

/// Who has lost the processor for so long has lost it to somebody who computes, in nanoseconds, and not to who asks and answers.
const LOST_NS: i64 = 1_000_000;
/// So much must have been lost until nobody looks, of which a part is forgotten as time goes by: a tenth of that time.
const ENOUGH_NS: i64 = 8_000_000;
const FORGOTTEN: i64 = 10;
/// For how long nobody looks behind the first time, and at most.
const FIRST_NS: i64 = 20_000_000;
const LAST_NS: i64 = 1_000_000_000;
/// So many times as long as nobody had looked, there must be no crowd until it begins anew.
const PATIENCE: i64 = 4;

/// What is known of others. Where two threads find the same at once, one of the two counts.
#[derive(Debug)]
pub(super) struct Crowd {
    /// What was lost by then, on the monotonic clock, as far as it is not forgotten.
    lost_ns: AtomicI64,
    at_ns: AtomicI64,
    /// Until when nobody looks, and how long that was the last time.
    until_ns: AtomicI64,
    pause_ns: AtomicI64,
}

impl Crowd {
    pub(super) const fn new() -> Crowd {
        let (lost_ns, at_ns, until_ns, pause_ns) =
            (AtomicI64::new(0), AtomicI64::new(0), AtomicI64::new(0), AtomicI64::new(0));
        Crowd { lost_ns, at_ns, until_ns, pause_ns }
    }

    /// Whether it is better to sleep.
    pub(super) fn is_there(&self, now_ns: i64) -> bool {
        now_ns < self.until_ns.load(Ordering::Relaxed)
    }

    /// Somebody has looked once, and let others pass, since then; so many look, each of whom would have found the same in a crowd.
    pub(super) fn passed(&self, since_ns: i64, now_ns: i64, looking: usize) {
        let lost_ns = now_ns - since_ns;
        if lost_ns < LOST_NS || self.is_there(now_ns) {
            return;
        }
        let forgotten_ns = (now_ns - self.at_ns.swap(now_ns, Ordering::Relaxed)) / FORGOTTEN;
        let all_ns = (self.lost_ns.load(Ordering::Relaxed) - forgotten_ns).max(0) + lost_ns / looking.max(1) as i64;
        if all_ns < ENOUGH_NS {
            self.lost_ns.store(all_ns, Ordering::Relaxed);
            return;
        }
        let before_ns = self.pause_ns.load(Ordering::Relaxed);
        let again = now_ns - self.until_ns.load(Ordering::Relaxed) <= PATIENCE * before_ns;
        let pause_ns = if again { (2 * before_ns).min(LAST_NS) } else { FIRST_NS };
        self.pause_ns.store(pause_ns, Ordering::Relaxed);
        self.lost_ns.store(0, Ordering::Relaxed);
        self.until_ns.store(now_ns + pause_ns, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
