//! What those ask of a connection who look at it besides another one.

use std::sync::atomic::Ordering;

use iov_store::seam;

use super::{Connection, lock};

impl Connection {
    /// Something has come by its ring which nobody takes up.
    pub(crate) fn has_come(&self) -> bool {
        !self.served.load(Ordering::Relaxed) && self.stream.stirs()
    }

    /// Something is expected to come soon.
    pub(crate) fn is_expected(&self) -> bool {
        !self.served.load(Ordering::Relaxed) && seam::monotonic_ns() < self.expected_ns.load(Ordering::Relaxed)
    }

    /// Another worker looks for what comes.
    pub(crate) fn is_looked_at(&self) {
        self.looked_at.store(true, Ordering::SeqCst);
        self.stream.look(true);
    }

    /// Whether another worker may look at it.
    pub(crate) fn may_be_looked_at(&self) -> bool {
        self.looked_at.load(Ordering::SeqCst)
    }

    /// None is to look any more. Whoever serves it then has others told of what comes.
    pub(crate) fn is_let_go_of(&self) {
        self.looked_at.store(false, Ordering::SeqCst);
    }

    /// None does any more.
    pub(crate) fn is_looked_at_no_more(&self) {
        self.is_let_go_of();
        self.stream.look(false);
        self.is_taken_up();
    }

    /// Somebody serves what has come by its ring.
    pub(crate) fn is_taken_up(&self) {
        let mut out = lock(&self.out);
        // Who serves it looks once more, or has looked behind that.
        if !out.served && self.stream.holds() {
            self.arm(&mut out);
        }
    }
}
