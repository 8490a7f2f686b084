//! Plain data that every other crate speaks: ids, names, values, controls, operations, errors, limits.
//!
//! Layer 0: no I/O, no clock, no randomness. Whatever crosses a trait or a wire is defined here, once.
#![forbid(unsafe_code)]

mod access;
mod attr;
mod bytes_range;
pub mod catalog;
mod clause;
mod controls;
mod counters;
mod error;
mod layout;
mod lifetime;
pub mod limits;
mod metadata;
mod name;
mod object;
mod place;
pub mod posix;
mod priority;
mod stat;
mod store_map;
mod ticket;
mod uuid;
mod value;

pub use access::{AccessEntry, AccessList, Caller, Right, Rights, Subject};
pub use attr::{Attr, WorkspaceAttr};
pub use bytes_range::{Extent, ExtentKind, Range};
pub use clause::Clause;
pub use controls::{
    Atomicity, Concurrency, Consistency, Controls, Effective, Limits, Mutability, OnError, Persistence, Point,
    Spatiality, Temporality,
};
pub use counters::Counters;
pub use error::{Error, Kind, Outcome, Result};
pub use layout::{Layout, Redundancy};
pub use lifetime::{Lifetime, Scope};
pub use metadata::Metadata;
pub use name::{Name, Which};
pub use object::{Capability, Demand, Evidence, ObjectId, ObjectOp, ObjectVerb, VerbKind};
pub use place::Place;
pub use priority::Priority;
pub use stat::{EntryKind, Stat, State};
pub use store_map::{Health, Pattern, Reach, StoreMap, Target};
pub use ticket::{SignedTicket, Ticket};
pub use uuid::Uuid;
pub use value::{Value, ValueType};

#[cfg(test)]
mod tests;
