//! Looking for a moment, before sleeping, whether what is waited for is there.
//!
//! Putting a thread to sleep and waking it costs more than most requests take: 20 to 80 µs where an idle processor has to be
//! woken. Where what comes next has come soon lately, whoever waits looks for it for [`SPAN_NS`] and lets other
//! threads pass meanwhile; where it has not, it sleeps at once, and so it does where others want the processors for themselves ([`crowd`]). The same is done by kernels for sockets (`net.core.busy_poll`) and for virtual processors
//! (`halt_poll_ns`).

use std::{
    num::NonZero,
    ops::RangeInclusive,
    sync::{
        OnceLock,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use iov_store::seam;
use iov_types::{Error, Result};

use crate::{lanes, polling::crowd::Crowd, stream::Stream};

mod crowd;

/// How long is looked, in nanoseconds, where nothing else is said.
const SPAN_NS: i64 = 300_000;
/// The longest that can be said.
const MOST_NS: i64 = 1_000_000;
/// Between two looks, in instructions of some 50 cycles each.
const PAUSES: u32 = 32;
/// The same where a look at memory comes behind each of them.
const GLANCES: u32 = 128;
/// With so many points it is looked.
const ENOUGH: u8 = 2;
/// Most points.
const BEST: u8 = 8;

/// How many threads of this process look just now. They leave half of its processors to others, if it has several.
static LOOKING: AtomicUsize = AtomicUsize::new(0);
/// Whether others want the processors.
static CROWD: Crowd = Crowd::new();
/// In which process, counted by forks.
static GENERATION: AtomicU64 = AtomicU64::new(0);

/// How one thread at a time waits for what comes next over a connection.
#[derive(Debug, Default)]
pub struct Polling {
    /// How often it came soon, lately.
    points: u8,
    /// Since when it is waited for, on the monotonic clock; 0: it is not.
    since_ns: i64,
    looks: Option<Looking>,
}

/// One of those who look.
#[derive(Debug)]
struct Looking;

impl Looking {
    fn begin(most: usize) -> Option<Looking> {
        // A child has the number of its parent's, and none of those who looked.
        let generation = seam::fork_generation();
        if GENERATION.swap(generation, Ordering::Relaxed) != generation {
            LOOKING.store(0, Ordering::Relaxed);
        }
        let more = LOOKING.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| (n < most).then_some(n + 1));
        more.ok().map(|_| Looking)
    }
}

impl Drop for Looking {
    fn drop(&mut self) {
        // Not below what a child has begun with.
        let _ = LOOKING.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
    }
}

/// How many there are for this process, whichever of them we have bound the calling thread to (those that serve a mount are).
fn processors() -> usize {
    seam::unbound(std::thread::available_parallelism).map_or(1, NonZero::get)
}

/// Most threads that look at a time: none where there is one processor for all. A program that was bound to one of several (the ranks of a job are) looks with
/// one.
fn most() -> usize {
    static MOST: OnceLock<usize> = OnceLock::new();
    *MOST.get_or_init(|| match processors() {
        1 if seam::for_others(std::thread::available_parallelism).is_ok_and(|all| all.get() > 1) => 1,
        all => all / 2,
    })
}

/// How long is looked: `IOVERBS_POLL_US`, 0 to 1,000 µs, if that is said.
fn span_ns() -> i64 {
    static SPAN: OnceLock<i64> = OnceLock::new();
    *SPAN.get_or_init(|| {
        // What it is not is told when a store is opened.
        let said = said("IOVERBS_POLL_US", 0..=MOST_NS / 1_000).ok().flatten();
        said.map_or(SPAN_NS, |us| us * 1_000)
    })
}

/// A number of the environment, if it is set; the nearest of a range.
pub(crate) fn said(name: &str, range: RangeInclusive<i64>) -> Result<Option<i64>> {
    let Some(text) = std::env::var_os(name).filter(|text| !text.is_empty()) else { return Ok(None) };
    let number = text.to_str().and_then(|text| text.trim().parse::<i64>().ok());
    let nearest = number.map(|n| n.clamp(*range.start(), *range.end()));
    nearest.map(Some).ok_or_else(|| {
        Error::invalid(format!(
            "{name}={}: it is a number from {} to {}",
            text.to_string_lossy(),
            range.start(),
            range.end()
        ))
    })
}

/// Fails where the environment says of connections what they do not take.
pub fn check_settings() -> Result<()> {
    said("IOVERBS_POLL_US", 0..=MOST_NS / 1_000)?;
    said("IOVERBS_CHANNELS", 1..=i64::from(lanes::MOST)).map(drop)
}

impl Polling {
    /// For what others ask of this process.
    pub fn of_server() -> Polling {
        CROWD.serves();
        Polling::default()
    }

    /// Whether it is to be looked from now on, as far as is known.
    pub fn pays(&self) -> bool {
        self.points >= ENOUGH && span_ns() > 0 && most() > 0 && !CROWD.is_there(seam::monotonic_ns())
    }

    /// Nothing has come yet. `true`: it is looked once more, after others have had their turn, or until something is `there`; `false`: sleep.
    pub fn goes_on(&mut self, stream: &Stream, mut there: impl FnMut() -> bool) -> bool {
        let span_ns = span_ns();
        let now_ns = seam::monotonic_ns();
        let most = if CROWD.is_there(now_ns) { 0 } else { most() };
        let looks = self.looks_at(now_ns, span_ns, most);
        if looks {
            stream.look(true);
            std::thread::yield_now();
            // The other thread of this core, which may be the one that is waited for, has it for itself meanwhile.
            let glances = stream.looks();
            for _ in 0..if glances { GLANCES } else { PAUSES } {
                std::hint::spin_loop();
                if glances && there() {
                    break;
                }
            }
            CROWD.passed(now_ns, seam::monotonic_ns(), LOOKING.load(Ordering::Relaxed));
        }
        looks
    }

    fn looks_at(&mut self, now_ns: i64, span_ns: i64, most: usize) -> bool {
        if self.since_ns == 0 {
            self.since_ns = now_ns;
            if self.points >= ENOUGH && span_ns > 0 {
                self.looks = Looking::begin(most);
            }
        } else if most == 0 {
            self.looks = None;
        } else if self.looks.is_some() && now_ns - self.since_ns >= span_ns {
            self.looks = None;
            self.points = self.points.saturating_sub(2);
        } else if self.looks.is_none() && self.points >= ENOUGH && now_ns - self.since_ns < span_ns {
            self.looks = Looking::begin(most);
        }
        self.looks.is_some()
    }

    /// Nobody could look although it would pay: others do.
    pub fn has_no_place(&self) -> bool {
        self.looks.is_none() && self.pays() && seam::monotonic_ns() - self.since_ns < span_ns()
    }

    /// Somebody else looks for now: until when that is worth while, on the monotonic clock.
    pub fn leave(&mut self) -> i64 {
        self.looks = None;
        self.since_ns.saturating_add(span_ns())
    }

    /// Nobody looks for now, and how long it takes is not known any more if it did.
    pub fn rest(&mut self) {
        if self.looks.take().is_some() {
            self.since_ns = 0;
        }
    }

    /// It has come.
    pub fn came(&mut self) {
        if CROWD.is_tried() {
            CROWD.came(seam::monotonic_ns());
        }
        if self.since_ns != 0 {
            self.came_at(seam::monotonic_ns(), span_ns());
        }
    }

    fn came_at(&mut self, now_ns: i64, span_ns: i64) {
        // Whoever had to be woken has it later than it came.
        let soon = if self.looks.is_some() { span_ns } else { 2 * span_ns };
        self.points = match now_ns - self.since_ns <= soon {
            true => (self.points + 1).min(BEST),
            false => self.points.saturating_sub(1),
        };
        (self.since_ns, self.looks) = (0, None);
    }
}

#[cfg(test)]
mod tests;
