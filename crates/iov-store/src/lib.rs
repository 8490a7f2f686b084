//! The three traits of the house ([`Backend`] for bytes, [`Catalog`] for facts, [`MetadataStore`] under the catalog), their
//! implementations in memory, decorators that trace, break and limit them, and the suites that each one must pass.
//!
//! `unsafe` lives in [`Memory`] and [`Viewed`] (memory lent by a caller, or to one), [`LeasePage`], [`Rings`], [`Segment`] and [`FileMap`] (memory shared with others),
//! [`peer_credentials`] (who is on the other side of a socket) and [`seam`] (fork detection) only.

mod backend;
mod bell;
pub mod block_sums;
mod catalog;
pub mod change_page;
pub mod conformance;
pub mod copied;
mod credentials;
mod cx;
mod decorate;
mod file_map;
mod heap;
pub mod kept;
mod lease_page;
mod memory;
mod metadata;
mod metadata_memory;
mod null;
pub mod objects;
mod overlay;
mod owned;
mod rings;
pub mod seam;
mod segment;
mod spread;
mod trace_file;
mod words;

pub use backend::{AtOnce, Backend, LENT_MODE, LentFile, Now, Shown, Sink, Submitted, Viewed, run_one};
pub use bell::Bell;
pub use catalog::{Answer, Catalog, CatalogCapability, OnAnswer, Route, ask};
pub use change_page::{ChangePage, ChangeView, Fact, Moment};
pub use credentials::{Credentials, peer_credentials};
pub use cx::OpCx;
pub use decorate::{Action, Fault, Faulty, FaultyStore, Limit, Trace, TraceEvent, TraceRing, When};
pub use file_map::FileMap;
pub use heap::Heap;
pub use lease_page::{
    ClientPage, ClientSlot, FoundLease, LEASE_ENDED, LEASE_PAGE_BYTES, LEASE_SLOTS, LeaseAccess, LeaseOwner, LeasePage,
    WriteGuard,
};
pub use memory::Memory;
pub use metadata::{Commit, Guard, KeyRange, MetadataStore, Record, Room, Snapshot, Txn};
pub use metadata_memory::MemoryStore;
pub use null::Null;
pub use overlay::{Overlay, PieceSource};
pub use owned::{Bytes, run_all, run_all_in};
pub use rings::{End, RINGS_BYTES, Rings, rings_memory};
pub use segment::{HEAD_BYTES, Head, SEGMENT_BLOCK, Segment};
pub use spread::{OnPublished, Publisher, Spread};
pub use trace_file::{TraceEntry, TraceReader, TraceWriter};

#[cfg(test)]
mod tests;
