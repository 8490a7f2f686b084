//! The three traits of the house ([`Backend`] for bytes, [`Catalog`] for facts, [`MetadataStore`] under the catalog), their
//! implementations in memory, decorators that trace, break and limit them, and the suites that each one must pass.
//!
//! `unsafe` lives in [`Memory`] (memory lent by a caller) and in [`seam`] (fork detection) only.

mod backend;
mod catalog;
pub mod conformance;
mod cx;
//mod decorate;
mod heap;
mod memory;
mod metadata;
mod metadata_memory;
pub mod seam;

pub use backend::{Backend, Sink, Submitted, run_one};
pub use catalog::{Answer, Catalog, CatalogCapability, OnAnswer, ask};
pub use cx::OpCx;
//pub use decorate::{Fault, Faulty, Limit, Trace, TraceEvent};
pub use heap::Heap;
pub use memory::Memory;
pub use metadata::{Commit, Guard, KeyRange, MetadataStore, Record, Snapshot, Txn};
pub use metadata_memory::MemoryStore;

#[cfg(test)]
mod tests;
