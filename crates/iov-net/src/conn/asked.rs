//! A request, as whoever asks and waits sees it.

use std::os::fd::OwnedFd;

use iov_store::{Memory, OpCx};
use iov_types::{Priority, Result};
use iov_wire::messages::{Granted, ObjectAnswer};

use crate::frames::Frame;

/// What answers a request.
pub(crate) enum Reply {
    Frame(Frame),
    /// Its bytes are in the memory that was lent for them.
    Read(ObjectAnswer),
    /// Without descriptors where this process has no room for them.
    Granted(Granted, Option<Vec<OwnedFd>>),
}

pub(super) type OnReply = Box<dyn FnOnce(Result<Reply>) + Send>;

/// Until when a request is waited for, and what comes first.
#[derive(Clone, Copy)]
pub(crate) struct Terms {
    pub(super) deadline_ns: i64,
    pub(super) priority: Priority,
}

impl Terms {
    /// Those of an operation.
    pub(crate) fn of(cx: &OpCx) -> Terms {
        Terms { deadline_ns: cx.deadline_ns, priority: cx.priority }
    }

    /// In the foreground.
    pub(crate) fn by(deadline_ns: i64) -> Terms {
        Terms { deadline_ns, priority: Priority::Foreground }
    }
}

/// Who waits for an answer.
pub(super) struct Waiter {
    pub(super) done: OnReply,
    /// When it gives up.
    pub(super) until_ns: i64,
    /// Only if its frame has not been begun: behind that, whoever asked gives up by himself, and a late answer counts.
    pub(super) unsent_only: bool,
    /// It has lent memory to be sent.
    pub(super) lends: bool,
    /// Where the bytes of the answer go, one for each operation.
    pub(super) rooms: Vec<Memory>,
}
