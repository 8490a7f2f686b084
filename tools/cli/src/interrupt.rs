//! Ctrl-C: the first asks the command to stop and to take back what is half done, the second ends the process.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use ioverbs::{Error, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Whether the command has been asked to stop. Clones share the answer.
#[derive(Clone, Default)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// One that listens to the signals that end programs.
    pub(crate) fn on_signals() -> Interrupt {
        let stop = Interrupt::default();
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            let code = 128 + signal;
            // The order matters: the second signal finds the flag set by the first. Where a handler cannot be set, the
            // signal ends the process at once, as it does by default.
            let _ = signal_hook::flag::register_conditional_shutdown(signal, code, stop.0.clone());
            let _ = signal_hook::flag::register(signal, stop.0.clone());
        }
        stop
    }

    /// Whether it is time to stop.
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Asks to stop.
    #[cfg(test)]
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Fails if it is time to stop.
    pub(crate) fn check(&self) -> Result<()> {
        if self.is_set() { Err(interrupted()) } else { Ok(()) }
    }
}

/// What an interrupted command fails with.
pub(crate) fn interrupted() -> Error {
    Error::cancelled("interrupted: what was complete stays, nothing half done was left behind")
}
