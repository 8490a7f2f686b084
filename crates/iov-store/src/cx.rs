//! What goes with every submission.

use iov_types::{Caller, Priority, Uuid};

use crate::seam;

/// Who asks, until when, for which batch.
#[derive(Clone, Debug)]
pub struct OpCx {
    /// The identity that the transport proved. A server replaces it by what it knows.
    pub caller: Caller,
    /// When to give up, on the clock of [`seam::monotonic_ns`]; `i64::MAX` = never.
    pub deadline_ns: i64,
    /// The batch; nil = none.
    pub batch: Uuid,
    /// What comes first.
    pub priority: Priority,
    /// Nobody needs an answer, whatever comes of it: a catalog on this host then sends none, and `done` hears at once that it was asked.
    pub unheard: bool,
}

impl OpCx {
    /// A context for a session of this process, with no batch, in the foreground.
    pub fn new(caller: Caller, timeout_ns: i64) -> OpCx {
        let deadline_ns = seam::monotonic_ns().saturating_add(timeout_ns);
        OpCx { caller, deadline_ns, batch: Uuid::NIL, priority: Priority::Foreground, unheard: false }
    }

    /// A context for what a store does by itself.
    pub fn own(timeout_ns: i64) -> OpCx {
        let caller = Caller { uid: 0, gid: 0, groups: Vec::new(), session: Uuid::NIL, holder: Uuid::NIL };
        OpCx::new(caller, timeout_ns)
    }

    /// The same with another priority.
    pub fn at(self, priority: Priority) -> OpCx {
        OpCx { priority, ..self }
    }

    /// The same where nobody needs an answer.
    pub fn unheard(self) -> OpCx {
        OpCx { unheard: true, ..self }
    }

    /// Nanoseconds left; 0 when time is up.
    pub fn left_ns(&self) -> i64 {
        self.deadline_ns.saturating_sub(seam::monotonic_ns()).max(0)
    }
}
