//! Whether what was sent by a connection up to a time has been served.

use std::sync::atomic::Ordering;

use super::Connection;

impl Connection {
    /// Whoever serves it takes what has come. Nobody else does so at the same time.
    pub(super) fn begins_round(&self) {
        let rounds = self.rounds.load(Ordering::Relaxed);
        self.rounds.store(rounds | 1, Ordering::Release);
    }

    /// He has found nothing more, and is done with all that he had.
    pub(super) fn ends_round(&self) {
        let rounds = self.rounds.load(Ordering::Relaxed);
        self.rounds.store(rounds + (rounds & 1), Ordering::Release);
    }

    /// What [`Connection::is_through`] is asked with later.
    pub(crate) fn round(&self) -> u64 {
        self.rounds.load(Ordering::Acquire)
    }

    /// Whether all has been served that had come when this was its round: nothing is there, or it was begun anew since, and ended.
    pub(crate) fn is_through(&self, since: u64) -> bool {
        // First: who takes something from there has said before that he does.
        let nothing_there = !self.stream.holds()
            && !self.stream.stirs()
            && rustix::io::ioctl_fionread(&self.stream).is_ok_and(|bytes| bytes == 0);
        let round = self.round();
        // That which was under way may have looked before.
        (nothing_there && round.is_multiple_of(2)) || round >= since + 3
    }
}
