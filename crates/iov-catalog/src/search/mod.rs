//! Search (O5): predicates over the records of one snapshot, along declared indexes and names where that is less work.
//!
//! [`Cursor::start`] reads what is asked for and chooses a path, [`Cursor::next`] makes pages, [`Cursors`] keeps what is to
//! be gone on with. Where the records lie and how they are read is the [`Source`]'s to say.
//!
//! A collection with several names is looked at under each of them by itself, and found once if one of these matches;
//! with [`names`](iov_types::catalog::SearchSpec::names) each matching name is a result.

mod collect;
mod cursor;
mod cursors;
mod order;
mod places;
mod plan;
mod query;
mod ranges;
mod source;
mod walk;

pub use cursor::{Cursor, Results};
pub use cursors::Cursors;
pub use source::{Found, Source};

/// What a search has cost: the proof that an index answers in time proportional to the matches.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SearchStats {
    /// Records that were decoded and checked.
    pub records: u64,
    /// Index entries that were read.
    pub index_entries: u64,
    /// Names that were read.
    pub names: u64,
    /// Keys that were counted to choose a path.
    pub probed: u64,
    /// Matches so far.
    pub matches: u64,
}

impl SearchStats {
    /// Keys looked at on the path.
    fn keys(&self) -> u64 {
        self.records + self.index_entries + self.names
    }
}

#[cfg(test)]
mod tests;
