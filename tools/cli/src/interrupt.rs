//! Ctrl-C: the first asks the command to stop and to take back what is half done; one that comes later ends the process.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use ioverbs::{Error, Result, seam};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    flag,
    iterator::Signals,
    low_level,
};

/// The signals that end programs.
const SIGNALS: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];
/// Signals that come so soon after the first mean the same: `timeout` sends one to the process and one to its group, and
/// people press Ctrl-C twice.
const SAME_NS: i64 = 1_000_000_000;

/// Whether the command has been asked to stop. Clones share the answer.
#[derive(Clone, Default)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// One that listens to the signals that end programs, but for those that whoever has started this one lets it ignore, as
    /// `nohup` does. Where nobody can listen they end the process at once, as they do by default.
    pub(crate) fn on_signals() -> Interrupt {
        let stop = Interrupt::default();
        let ignored = ignored(&std::fs::read_to_string("/proc/self/status").unwrap_or_default());
        let wanted = SIGNALS.into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0);
        let Ok(signals) = Signals::new(wanted.clone()) else { return stop };
        let asked = stop.clone();
        if seam::spawn("iov-signals", move || listen(signals, &asked)).is_err() {
            for signal in wanted {
                // Without a thread nobody looks at the time: the second signal ends the process, whenever it comes. The
                // order matters: it finds the flag set by the first.
                let _ = flag::register_conditional_shutdown(signal, 128 + signal, stop.0.clone());
                let _ = flag::register(signal, stop.0.clone());
            }
        }
        stop
    }

    /// Whether it is time to stop.
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Asks to stop.
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Fails if it is time to stop.
    pub(crate) fn check(&self) -> Result<()> {
        if self.is_set() { Err(interrupted()) } else { Ok(()) }
    }
}

/// The signals that a process ignores, the first one lowest, by what the system says of it.
fn ignored(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Takes every signal: the first asks to stop, those that follow at once are the same wish, a later one ends the process.
fn listen(mut signals: Signals, stop: &Interrupt) {
    let mut asked_ns = None;
    for signal in signals.forever() {
        let now = seam::monotonic_ns();
        if now.saturating_sub(*asked_ns.get_or_insert(now)) > SAME_NS {
            low_level::exit(128 + signal);
        }
        stop.set();
    }
}

/// What an interrupted command fails with.
pub(crate) fn interrupted() -> Error {
    Error::cancelled("interrupted: what was complete stays, nothing half done was left behind")
}
