//! The metadata engine of one machine: our own checksummed log and in-memory buffers in front of sorted tables.
//!
//! A commit is one write to the log and an insertion into the active buffer. A full buffer is sealed; one thread moves
//! sealed buffers into tables, oldest first, and only then deletes their part of the log. Readers look into the buffers,
//! newest first, then into a cache, then into the tables. `docs/format.md` draws the files, ADR 0003 says why.
#![forbid(unsafe_code)]

mod apply;
mod buffer;
mod cache;
mod commit;
mod compact;
mod engine;
mod files;
mod hooks;
mod log;
mod look;
mod open;
mod options;
mod persist;
mod reserve;
mod scan;
mod space;
mod store;
mod tables;
mod view;

pub use look::ReadOnly;
pub use options::{Options, Stats};
pub use store::LocalStore;

#[cfg(test)]
mod tests;
