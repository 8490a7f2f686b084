//! A committed rollback batch or publication.

use iov_types::{Place, Uuid, catalog::CatalogReply};
use iov_wire::message;

/// A collection whose staged changes belong to a batch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Staging {
    pub(crate) ws: Uuid,
    pub(crate) collection: Uuid,
    pub(crate) place: Place,
}

message! { strict Staging { 1 => ws: uuid, 2 => collection: uuid, 3 => place: uint } }

/// That it exists means that the batch is committed: point P of B3 has passed.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct BatchRecord {
    /// Whose it is: nobody else gets its replies.
    pub(crate) uid: u32,
    /// The replies are kept for a retry until then, in nanoseconds since 1970; 0 = they are not.
    pub(crate) expires_ns: i64,
    /// Still to be published at targets.
    pub(crate) publish: Vec<Staging>,
    /// Still to be sealed at targets.
    pub(crate) seal: Vec<Staging>,
    pub(crate) replies: Vec<CatalogReply>,
}

message! {
    strict BatchRecord {
        1 => uid: uint,
        2 => expires_ns: sint,
        3 => publish: repeated message,
        4 => seal: repeated message,
        5 => replies: repeated message,
    }
}
