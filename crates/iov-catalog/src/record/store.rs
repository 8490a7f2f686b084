//! The store as a whole, and what is left to do in it.

use iov_types::{Place, Uuid};
use iov_wire::message;

/// The version of the records that this release writes.
pub(crate) const FORMAT: u64 = 1;

/// Identity and life of a store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct StoreRecord {
    pub(crate) format: u64,
    pub(crate) uuid: Uuid,
    /// Grows each time the catalog is opened.
    pub(crate) incarnation: u64,
    /// The present or last incarnation ended in order: every size was recorded.
    pub(crate) clean: bool,
    /// Incarnations that did not: sizes of what was open in them are asked from targets.
    pub(crate) crashed: Vec<u64>,
    /// The incarnation in which collections could be opened for writing without their records saying so, for want of room; 0 = none.
    pub(crate) unmarked: u64,
    /// The last such incarnation that did not end in order: all records up to it may be behind their targets; 0 = none.
    pub(crate) behind: u64,
    /// No session that lives acts for another, as far as the store knows: no token was asked for. A release that does not know of this says
    /// nothing of it.
    pub(crate) alone: bool,
}

// Not strict: a newer format must be recognised by its number, not by a field that is unknown.
message! {
    StoreRecord {
        1 => format: uint,
        2 => uuid: uuid,
        3 => incarnation: uint,
        4 => clean: boolean,
        5 => crashed: repeated uint,
        6 => unmarked: uint,
        7 => behind: uint,
        8 => alone: boolean,
    }
}

/// A collection that was deleted and whose record or object may still be there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RemovedRecord {
    pub(crate) ws: Uuid,
    /// Where its bytes lie.
    pub(crate) place: Place,
}

message! { strict RemovedRecord { 1 => ws: uuid, 2 => place: uint } }

/// A collection whose last close behind a crash is to seal it, once nobody can come back who acts for the same holder (M2).
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ToSealRecord {
    pub(crate) ws: Uuid,
    pub(crate) holder: Uuid,
    /// The epoch of its hold.
    pub(crate) epoch: u64,
}

message! { strict ToSealRecord { 1 => ws: uuid, 2 => holder: uuid, 3 => epoch: uint } }

/// A collection that goes by itself.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct TemporaryRecord {
    pub(crate) ws: Uuid,
    /// Until when it stays if nobody uses it, as of the last end of the catalog that was in order; 0 = not noted.
    pub(crate) until_ns: i64,
}

message! { strict TemporaryRecord { 1 => ws: uuid, 2 => until_ns: sint } }
