//! The catalog: typed records (workspaces, collections, groups, batches) and their invariants, as transactions over any
//! [`MetadataStore`](iov_store::MetadataStore).
//!
//! [`Service`] is the one owner of its facts. It runs each submission on a view of the store, commits all of it in one
//! call, and lets readers pass. `docs/format.md` documents the records, `docs/semantics/clauses.md` the promises.
#![forbid(unsafe_code)]

mod access;
mod batch;
mod changes;
mod check;
mod core;
mod elsewhere;
mod exec;
mod hash;
mod housekeeping;
pub mod index;
mod keys;
mod left_to_do;
mod lock_table;
pub mod locks;
mod map;
mod objects;
mod patience;
pub mod predicate;
mod promise;
mod record;
mod recovery;
mod redo;
mod resume;
pub mod search;
mod service;
mod sources;
mod state;
mod system;
mod targets;
mod temporary;
mod verbs;
mod view;

pub use crate::core::{Options, ServiceStats};
pub use check::Checked;
pub use map::{Fleet, anywhere};
pub use service::Service;

#[cfg(test)]
mod tests;
