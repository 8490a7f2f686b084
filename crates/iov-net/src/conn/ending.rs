//! How a connection ends, or turns out to have ended.

use std::sync::atomic::{AtomicU32, Ordering};

use iov_store::{Rings, seam};
use iov_types::{Error, Outcome};

use super::{Connection, PAUSE_NS, asked::Waiter, lock};
use crate::{socket, tcp};

/// Longest that is waited for those who are told that a connection broke: one of them may wait for the next one.
const TELLING_NS: i64 = 1_000_000_000;
/// How long is waited each time.
const LOOK_NS: u64 = 50_000;

/// One thread less tells those who waited.
struct Told<'a>(&'a AtomicU32);

impl Drop for Told<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Connection {
    /// Looks whether a connection on which nobody waits for anything has ended: over a network a request to a daemon that is
    /// gone is sent all the same, and then nobody knows what became of it.
    pub(crate) fn look(&self) {
        if !self.network {
            return;
        }
        if self.is_awaited() {
            // Perhaps only for an answer that nobody needs, which is there, as after a close.
            self.drive(0);
        }
        if !self.is_awaited() && socket::has_ended(self.as_fd()) {
            self.fail(&Error::unavailable("the store's daemon has closed the connection"));
        }
    }

    /// Waits until nothing is left to be sent. Who cannot be told finds the connection gone.
    pub(crate) fn send_rest(&self, until_ns: i64) {
        loop {
            self.flush();
            if self.is_broken() || !self.has_more_to_send() || seam::monotonic_ns() >= until_ns {
                return;
            }
            self.drive(0);
            socket::wait_for_either(&self.stream, PAUSE_NS);
        }
    }

    /// When it turned out to be broken, on the monotonic clock.
    pub(crate) fn broke_ns(&self) -> Option<i64> {
        Some(self.broke_ns.load(Ordering::SeqCst)).filter(|ns| self.is_broken() && *ns > 0)
    }

    /// Of one that broke: waits until all who waited for something over it have been told, so that what they send again is there
    /// before the next one is.
    pub(crate) fn wait_told(&self) {
        let until_ns = seam::monotonic_ns() + TELLING_NS;
        while self.telling.load(Ordering::SeqCst) > 0 && seam::monotonic_ns() < until_ns {
            seam::sleep(LOOK_NS);
        }
    }

    /// The connection is of no more use: everybody who waits hears of it.
    pub(crate) fn fail(&self, error: &Error) {
        self.telling.fetch_add(1, Ordering::SeqCst);
        let _told = Told(&self.telling);
        if !self.broken.swap(true, Ordering::SeqCst) {
            self.broke_ns.store(seam::monotonic_ns(), Ordering::SeqCst);
        }
        // The daemon hears of it although somebody may still hold the connection: until then it keeps the session for it.
        match self.network {
            // Else it would take the end of this connection for the end of the session.
            true => tcp::abort(&self.stream),
            false => drop(rustix::net::shutdown(&self.stream, rustix::net::Shutdown::Both)),
        }
        // What nobody has taken from the ring by now nobody will.
        let taken = self.stream.rings().map_or(0, Rings::give_up);
        // Both at once: another one who finds it broken must not judge by what was taken out here.
        let (unsent, mut waiting) = {
            let mut out = lock(&self.out);
            let unsent = out.give_up(taken);
            let waiting: Vec<(u64, Waiter)> = lock(&self.waiting).drain().collect();
            (unsent, waiting)
        };
        // In the order in which they were sent: some are sent again.
        waiting.sort_unstable_by_key(|(request, _)| *request);
        for (request, waiter) in waiting {
            let outcome = if unsent.binary_search(&request).is_ok() { Outcome::NotApplied } else { Outcome::Unknown };
            (waiter.done)(Err(error.clone().with_outcome(outcome)));
        }
    }
}
