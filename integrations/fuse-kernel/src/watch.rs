//! Who sees to it that no request is left lying in a queue of the kernel while there are threads to take it.
//!
//! By rings the kernel hands a request to a thread that is there as it comes, or puts it down: then only who answers another one of that queue is handed it. If all that
//! are busy there wait for something, such as for pages to be dropped that are about to be written, what they wait for may be what lies there. So a queue in which some
//! are busy and nothing moves is given something to answer now and then.

use std::sync::Weak;

use iov_store::seam;

use crate::crew::Pulse;

/// How often queues are looked at in which something goes on, and in which nothing does, in nanoseconds.
const OFTEN_NS: u64 = 20_000_000;
const SELDOM_NS: u64 = 250_000_000;
/// How long nothing is done at most for a queue in which some wait for long, and nothing lies: so many looks.
const MOST_LOOKS: u32 = 50;
/// How much it is given to answer at once.
const AT_ONCE: usize = 8;

/// What is watched.
pub(crate) trait Watched: Send + Sync + 'static {
    /// Gets ready to give queues something to answer, again where that has ended.
    fn begin(&self);
    /// Gives a queue something to answer.
    fn look(&self, queue: u16);
    /// How its queues do; none: it has ended.
    fn pulses(&self) -> Option<Vec<Pulse>>;
}

/// What is known of one queue.
#[derive(Clone, Copy, Default)]
pub(crate) struct Seen {
    pulse: Pulse,
    /// What of its requests were made here since.
    made: u64,
    /// Looks until something is done for it, and how many were waited for the last time.
    looks: u32,
    waited: u32,
}

impl Seen {
    /// How many requests are to be made for it now.
    pub(crate) fn looks_at(&mut self, now: Pulse) -> usize {
        let before = std::mem::replace(&mut self.pulse, now);
        let made = std::mem::take(&mut self.made);
        if now.busy == 0 || now.idle == 0 {
            (self.looks, self.waited) = (0, 0);
            return 0;
        }
        if now.shorts != before.shorts {
            // Something may lie there since.
            (self.looks, self.waited) = (0, 0);
        }
        match now.taken.wrapping_sub(before.taken) {
            // Others answer, and are handed what lies there.
            moved if moved > made && made == 0 => return 0,
            // So it was with what was made here.
            moved if moved > made => (self.looks, self.waited) = (0, 0),
            // Some wait for long, and nothing lay there.
            _ if made > 0 && now.shorts == before.shorts => {
                self.waited = (self.waited * 2).clamp(1, MOST_LOOKS);
                self.looks = self.waited;
            }
            _ => {}
        }
        if self.looks > 0 {
            self.looks -= 1;
            return 0;
        }
        // Such as are on their way lie there themselves, or where the directory is that it is mounted on.
        let makes = now.idle.min(AT_ONCE.saturating_sub(now.looking));
        self.made = makes as u64;
        makes
    }
}

/// Watches until it has ended.
pub(crate) fn begin<W: Watched>(watched: Weak<W>) {
    // Without it most requests come through all the same.
    let _ = seam::spawn("iov-fuse-watch", move || watch(&watched));
}

fn watch<W: Watched>(watched: &Weak<W>) {
    let Some(()) = watched.upgrade().map(|watched| watched.begin()) else { return };
    let mut seen: Vec<Seen> = Vec::new();
    let mut pause_ns = SELDOM_NS;
    loop {
        seam::sleep(pause_ns);
        let Some(watched) = watched.upgrade() else { return };
        let Some(pulses) = watched.pulses() else { return };
        watched.begin();
        seen.resize(pulses.len(), Seen::default());
        pause_ns = SELDOM_NS;
        for ((queue, seen), now) in (0..).zip(&mut seen).zip(pulses) {
            if now.busy > 0 || now.taken != seen.pulse.taken {
                pause_ns = OFTEN_NS;
            }
            for _ in 0..seen.looks_at(now) {
                watched.look(queue);
            }
        }
    }
}
