//! Exports: plain files, and beside them sidecars that say everything that files do not. `docs/format.md` describes them.
//!
//! ```text
//! DIR/.iov-export/WS.jsonl        the sidecar of a workspace; WS.jsonl.part while it is exported
//! DIR/.iov-export/lock            held by who writes or reads the export
//! DIR/.iov-export/temp/…          files on their way
//! DIR/WS/GROUP/NAME               collections, under their names
//! DIR/WS/.iov-unnamed/UUID        those that have none
//! ```

pub(crate) mod book;
pub(crate) mod fetch;
pub(crate) mod names;
pub(crate) mod place;
pub(crate) mod records;
pub(crate) mod restore;
pub(crate) mod store;
pub(crate) mod sums;
pub(crate) mod tree;
pub(crate) mod values;
pub(crate) mod walk;

/// The version of sidecars that is written, and the newest that is read.
pub(crate) const VERSION: u64 = 1;
