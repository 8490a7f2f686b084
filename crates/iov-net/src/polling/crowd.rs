//! Whether others want the processors on which somebody looks.
//!
//! Who looks lets others pass in between, and uses up its share of the processor: somebody who computes, and lets nobody pass, then keeps it for a slice of some
//! milliseconds. Who sleeps has it as soon as he is woken. Which of the two is better is not to be told from that: it depends on how many compute on how many
//! processors, and on what the other side does. So where looking has taken long, all of this process try both in turn for a while, and go on with what more came by.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};

/// Who has lost the processor for so long has lost it to somebody who computes, in nanoseconds, and not to who asks and answers.
const LOST_NS: i64 = 1_000_000;
/// So much must have been lost until it is tried, of which a part is forgotten as time goes by: a tenth of that time.
const ENOUGH_NS: i64 = 8_000_000;
const FORGOTTEN: i64 = 10;
/// For how long one of the two is tried at a time, as far as there was anything to wait for, and how often each.
const TRY_NS: i64 = 16_000_000;
const TRIES: u32 = 4;
/// What takes longer than this to come is not waited for: the program does something else.
const AT_ONCE_NS: i64 = 10_000_000;
/// Who has had so little to wait for that it took longer than this knows nothing.
const PATIENCE_NS: i64 = 4_000_000_000;
/// For how long one goes on with what was better the first time, and at most.
const FIRST_NS: i64 = 250_000_000;
const LAST_NS: i64 = 2_000_000_000;

/// So many times as much as by the other is clear before all has been tried.
const CLEAR: i64 = 2;
/// A daemon sleeps as long as that does not take so many times, as a fraction, what looking does: its clients try too, and look best where it sleeps.
const SERVERS: (i64, i64) = (3, 2);

/// Nobody else is known: they look.
const ALONE: u32 = 0;
/// From 1 on it is tried: to sleep where the number is odd, else to look.
const LAST_TRY: u32 = 2 * TRIES;
/// What was better.
const LOOKS: u32 = LAST_TRY + 1;
const SLEEPS: u32 = LAST_TRY + 2;

/// What came in one of the two ways.
#[derive(Debug)]
struct Way {
    took_ns: AtomicI64,
    came: AtomicI64,
}

/// What is known of others. Where several threads find something at the same time, some of it may not count.
#[derive(Debug)]
pub(super) struct Crowd {
    /// What was lost by then, on the monotonic clock, as far as it is not forgotten.
    lost_ns: AtomicI64,
    at_ns: AtomicI64,
    phase: AtomicU32,
    /// Until when that is so.
    until_ns: AtomicI64,
    /// How long one went on with what was better the last time, and what that was.
    pause_ns: AtomicI64,
    better: AtomicU32,
    /// When something came the last time, while it is tried.
    came_ns: AtomicI64,
    looking: Way,
    sleeping: Way,
    /// It is a daemon.
    serves: AtomicBool,
}

impl Way {
    const fn new() -> Way {
        Way { took_ns: AtomicI64::new(0), came: AtomicI64::new(0) }
    }

    fn clear(&self) {
        self.took_ns.store(0, Ordering::Relaxed);
        self.came.store(0, Ordering::Relaxed);
    }

    fn each_ns(&self) -> i64 {
        self.took_ns.load(Ordering::Relaxed) / self.came.load(Ordering::Relaxed).max(1)
    }
}

impl Crowd {
    pub(super) const fn new() -> Crowd {
        Crowd {
            lost_ns: AtomicI64::new(0),
            at_ns: AtomicI64::new(0),
            phase: AtomicU32::new(ALONE),
            until_ns: AtomicI64::new(0),
            pause_ns: AtomicI64::new(0),
            better: AtomicU32::new(ALONE),
            came_ns: AtomicI64::new(0),
            looking: Way::new(),
            sleeping: Way::new(),
            serves: AtomicBool::new(false),
        }
    }

    /// This process serves others.
    pub(super) fn serves(&self) {
        self.serves.store(true, Ordering::Relaxed);
    }

    /// Whether to sleep, as that is better or is tried just now.
    pub(super) fn is_there(&self, now_ns: i64) -> bool {
        match self.phase.load(Ordering::Relaxed) {
            ALONE | LOOKS => false,
            SLEEPS if now_ns < self.until_ns.load(Ordering::Relaxed) => true,
            // They may have gone.
            SLEEPS => {
                self.tries(SLEEPS, now_ns);
                true
            }
            _ if now_ns >= self.until_ns.load(Ordering::Relaxed) => {
                self.phase.store(ALONE, Ordering::Relaxed);
                false
            }
            tried => !tried.is_multiple_of(2),
        }
    }

    /// Somebody has looked once, and let others pass, since then; so many look, each of whom would have found the same in a crowd.
    pub(super) fn passed(&self, since_ns: i64, now_ns: i64, looking: usize) {
        let lost_ns = now_ns - since_ns;
        if lost_ns < LOST_NS {
            return;
        }
        let phase = self.phase.load(Ordering::Relaxed);
        if phase != ALONE && (phase != LOOKS || now_ns < self.until_ns.load(Ordering::Relaxed)) {
            return;
        }
        let forgotten_ns = (now_ns - self.at_ns.swap(now_ns, Ordering::Relaxed)) / FORGOTTEN;
        let all_ns = (self.lost_ns.load(Ordering::Relaxed) - forgotten_ns).max(0) + lost_ns / looking.max(1) as i64;
        let enough = all_ns >= ENOUGH_NS;
        self.lost_ns.store(if enough { 0 } else { all_ns }, Ordering::Relaxed);
        if enough {
            self.tries(phase, now_ns);
        }
    }

    fn tries(&self, from: u32, now_ns: i64) {
        self.looking.clear();
        self.sleeping.clear();
        self.came_ns.store(0, Ordering::Relaxed);
        self.until_ns.store(now_ns + PATIENCE_NS, Ordering::Relaxed);
        let _ = self.phase.compare_exchange(from, 1, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Whether it matters when something comes.
    pub(super) fn is_tried(&self) -> bool {
        (1..=LAST_TRY).contains(&self.phase.load(Ordering::Relaxed))
    }

    /// Something has come.
    pub(super) fn came(&self, now_ns: i64) {
        let phase = self.phase.load(Ordering::Relaxed);
        if !(1..=LAST_TRY).contains(&phase) {
            return;
        }
        let before_ns = self.came_ns.swap(now_ns, Ordering::Relaxed);
        if before_ns == 0 {
            return;
        }
        let way = if !phase.is_multiple_of(2) { &self.sleeping } else { &self.looking };
        let took_ns = (now_ns - before_ns).clamp(0, AT_ONCE_NS);
        way.came.fetch_add(1, Ordering::Relaxed);
        let all_ns = way.took_ns.fetch_add(took_ns, Ordering::Relaxed) + took_ns;
        if all_ns < TRY_NS * i64::from(phase.div_ceil(2)) {
            return;
        }
        self.came_ns.store(0, Ordering::Relaxed);
        let next = match phase {
            LAST_TRY => self.decided(now_ns),
            _ if phase.is_multiple_of(2) && self.is_clear() => self.decided(now_ns),
            _ => phase + 1,
        };
        let _ = self.phase.compare_exchange(phase, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// How long something took by either way, looking and sleeping, as they are to be compared.
    fn compared(&self) -> (i64, i64) {
        let of_looking = if self.serves.load(Ordering::Relaxed) { SERVERS.0 } else { SERVERS.1 };
        (of_looking * self.looking.each_ns(), SERVERS.1 * self.sleeping.each_ns())
    }

    fn is_clear(&self) -> bool {
        let (looking, sleeping) = self.compared();
        looking.max(sleeping) >= CLEAR * looking.min(sleeping)
    }

    fn decided(&self, now_ns: i64) -> u32 {
        let (looking, sleeping) = self.compared();
        let better = if sleeping < looking { SLEEPS } else { LOOKS };
        let before = self.better.swap(better, Ordering::Relaxed);
        let pause_ns = match self.pause_ns.load(Ordering::Relaxed) {
            pause_ns if before == better => (2 * pause_ns).min(LAST_NS),
            _ => FIRST_NS,
        };
        self.pause_ns.store(pause_ns, Ordering::Relaxed);
        self.until_ns.store(now_ns + pause_ns, Ordering::Relaxed);
        better
    }
}

#[cfg(test)]
mod tests;
