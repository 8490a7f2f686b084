//! How a connection ends.

use std::sync::atomic::Ordering;

use iov_types::Error;
use iov_wire::{MAX_VERSION, messages::Fault};

use super::{Connection, GREETING_NS, lock};
use crate::outgoing::Outgoing;

/// How a connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// The peer has closed it, or is not let in, or has broken the protocol.
    Over,
    /// Nobody has closed it: the network, or the peer's host, is gone.
    Broke,
}

/// Ends a connection whose request made this thread panic: the next worker finds it gone.
pub(super) struct Falls<'a>(pub(super) &'a Connection);

impl Drop for Falls<'_> {
    fn drop(&mut self) {
        self.0.shut();
        let mut out = lock(&self.0.out);
        out.served = false;
        self.0.served.store(false, Ordering::Relaxed);
        out.outgoing = Outgoing::default();
        self.0.arm(&mut out);
    }
}

impl Connection {
    /// Takes no more requests: those that have arrived are still answered.
    pub(crate) fn drain(&self) {
        // It may be gone already.
        let _ = rustix::net::shutdown(&self.stream, rustix::net::Shutdown::Read);
    }

    /// Ends it from another thread.
    pub(crate) fn shut(&self) {
        self.broke.store(true, Ordering::SeqCst);
        // It may be gone already.
        let _ = rustix::net::shutdown(&self.stream, rustix::net::Shutdown::Both);
    }

    /// It has ended.
    pub(crate) fn leaves(&self) {
        self.left.store(true, Ordering::SeqCst);
    }

    /// Whether it has: what came over it must not take effect behind what comes over another one.
    pub(crate) fn has_left(&self) -> bool {
        self.left.load(Ordering::SeqCst)
    }

    /// Ends it if its peer takes nothing of an answer for so long, or never said who it is.
    pub(crate) fn expire(&self, now_ns: i64, patience_ns: i64) {
        let out = lock(&self.out);
        let stuck = !self.has_sent(&out) && now_ns.saturating_sub(out.stuck_since_ns) > patience_ns;
        drop(out);
        if stuck || (!self.greeted.load(Ordering::Relaxed) && now_ns - self.born_ns > GREETING_NS) {
            self.shut();
        }
    }

    /// Tells a peer that it is not let in.
    pub(crate) fn refuse(&self, error: &Error) {
        self.fault(MAX_VERSION, 0, error.clone());
    }

    pub(crate) fn fault(&self, version: u16, request: u64, error: Error) {
        self.answer(version, request, &Fault { error }, Vec::new(), Vec::new());
    }
}
