//! Whether what was sent by a connection up to a time has been served.

use std::sync::atomic::{Ordering, fence};

use super::Connection;

/// Nobody has to wait for a connection while this is there.
pub(crate) struct Passed<'a>(&'a Connection);

impl Drop for Passed<'_> {
    fn drop(&mut self) {
        self.0.passed.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Connection {
    /// Whoever serves it takes what has come. Nobody else does so at the same time.
    pub(super) fn begins_round(&self) {
        let rounds = self.rounds.load(Ordering::Relaxed);
        if rounds & 1 == 0 {
            self.rounds.store(rounds + 1, Ordering::Release);
            // Before anything is taken.
            fence(Ordering::SeqCst);
        }
    }

    /// He has found nothing more, and is done with all that he had.
    pub(super) fn ends_round(&self) {
        let rounds = self.rounds.load(Ordering::Relaxed);
        self.rounds.store(rounds + (rounds & 1), Ordering::Release);
    }

    /// What came last waits for others: what came before it has been served.
    pub(crate) fn waits_for_others(&self) -> Passed<'_> {
        self.passed.fetch_add(1, Ordering::AcqRel);
        Passed(self)
    }

    /// Nobody waits for it from now on: it has ended, or gives way to whoever would.
    pub(super) fn is_passed(&self) {
        std::mem::forget(self.waits_for_others());
    }

    /// It is waited for again.
    pub(super) fn is_passed_no_more(&self) {
        drop(Passed(self));
    }

    /// What [`Connection::is_through`] is asked with later.
    pub(crate) fn round(&self) -> u64 {
        self.rounds.load(Ordering::Acquire)
    }

    /// Whether all has been served that had come when this was its round: nothing is there, or it was begun anew since, and ended.
    pub(crate) fn is_through(&self, since: u64) -> bool {
        if self.passed.load(Ordering::Acquire) > 0 {
            return true;
        }
        let nothing_there = !self.stream.holds() && !self.stream.stirs();
        let socket_is_empty = rustix::io::ioctl_fionread(&self.stream).is_ok_and(|bytes| bytes == 0);
        // Behind that: who takes something from there has said before that he does.
        fence(Ordering::SeqCst);
        let round = self.round();
        // That which was under way may have looked before; and not each round asks the socket.
        socket_is_empty && ((nothing_there && round.is_multiple_of(2)) || round >= since + 3)
    }
}
