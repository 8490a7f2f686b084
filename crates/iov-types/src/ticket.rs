//! Leave to work on the objects of a collection at targets of other daemons than the catalog's (A1).

use crate::Uuid;

/// What the catalog lets a session do with a collection, as it tells those who hold the bytes. It is signed, so that nobody
/// else can make one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ticket {
    /// The store.
    pub store: Uuid,
    /// The collection; nil = all, which only the catalog itself has.
    pub collection: Uuid,
    /// Its workspace: whose memory its bytes go to (G5).
    pub ws: Uuid,
    /// The session for the store that it was given to.
    pub session: Uuid,
    /// What may be done: [`Ticket::READ`] and the others, added up.
    pub rights: u32,
    /// The epoch under which the session writes; 0 = it holds nothing (X1).
    pub epoch: u64,
    /// Until when, by the catalog's clock, in nanoseconds since 1970.
    pub expires_ns: i64,
}

impl Ticket {
    /// To read, and to look at what there is.
    pub const READ: u32 = 1;
    /// To change bytes.
    pub const WRITE: u32 = 2;
    /// What only the catalog does: to make, fence, freeze, publish, seal and remove.
    pub const CATALOG: u32 = 4;

    /// To change bytes only in a stage: the session has the collection not open for writing.
    pub const STAGE: u32 = 8;
    /// Nobody has it open, and perhaps there is none yet.
    pub const NEW: u32 = 16;

    /// Whether it gives a right.
    pub const fn gives(&self, right: u32) -> bool {
        self.rights & right == right
    }
}

/// A ticket as a session gets it: what is in it is for targets.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SignedTicket {
    /// To be shown to targets as it is.
    pub bytes: Vec<u8>,
    /// How long it is good from now on, in nanoseconds.
    pub lasts_ns: u64,
    /// Whether it gives leave to write.
    pub writable: bool,
}
