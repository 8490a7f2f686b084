//! Who is on the other side of a connection, and for whom it asks.

use std::{
    collections::BTreeSet,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicI64},
    },
};

use iov_store::OpCx;
use iov_types::{Caller, Priority, Uuid};
use iov_wire::{
    Header, Verb,
    frame::{BACKGROUND, NO_DEADLINE},
    messages::Context,
};

use crate::peer::Peer;

/// The session behind a connection, once it has said hello.
pub(crate) struct Client {
    pub(crate) peer: Peer,
    pub(crate) session: Uuid,
    /// That of the client for the store: whose stages there are.
    pub(crate) owner: Uuid,
    /// That of the client for the store, if this one is for a target.
    pub(crate) of: Uuid,
    /// Which of its connections this is.
    pub(crate) channel: u32,
    /// For which of the daemon's targets it is.
    pub(crate) target: usize,
    pub(crate) version: u16,
    /// Segments whose descriptors it has, and whether for writing.
    pub(crate) segments: Mutex<BTreeSet<(u64, bool)>>,
    /// When it was last noted to be alive, on the monotonic clock.
    pub(crate) alive_ns: AtomicI64,
    /// It has said what it had.
    pub(crate) resumed: AtomicBool,
}

impl Client {
    /// The context of a request. The peer says which holder it acts for; the catalog checks that it has joined it (X1).
    pub(crate) fn cx(&self, context: &Context, header: &Header) -> OpCx {
        let holder = if context.holder.is_nil() { self.session } else { context.holder };
        let caller =
            Caller { uid: self.peer.uid, gid: self.peer.gid, groups: Vec::new(), session: self.session, holder };
        let left = match header.deadline_left_ns {
            NO_DEADLINE => i64::MAX,
            left => left.min(i64::MAX as u64) as i64,
        };
        OpCx { batch: context.batch, priority: priority(header), ..OpCx::new(caller, left) }
    }
}

/// What comes first. What a session needs to live gives way to nothing.
pub(crate) fn priority(header: &Header) -> Priority {
    let may_wait = matches!(header.verb(), Ok(Verb::Object | Verb::Catalog | Verb::Sums));
    if may_wait && header.flags & BACKGROUND != 0 { Priority::Background } else { Priority::Foreground }
}
