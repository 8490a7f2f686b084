//! Results that must be sorted before the first is returned.

use std::collections::BinaryHeap;

use iov_types::{Clause, Error, Name, Result, Uuid, limits};

/// A match, without its metadata: that is read again when it is returned.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Match {
    /// What it is sorted by; the rest makes the order total.
    pub(super) sort_key: Vec<u8>,
    pub(super) uuid: Uuid,
    pub(super) place: Option<(Uuid, Name)>,
}

/// The first matches in order: all, or with a limit as many as that.
pub(super) struct Collected {
    /// The last in order is at the top, to make room.
    heap: BinaryHeap<Match>,
    bytes: usize,
    max_bytes: usize,
}

/// What a match takes apart from its sort key.
const MATCH_BYTES: usize = 128;

impl Default for Collected {
    fn default() -> Collected {
        Collected::bounded(limits::SORTED_BYTES)
    }
}

impl Collected {
    /// Nothing yet, and at most so many bytes.
    pub(super) fn bounded(max_bytes: usize) -> Collected {
        Collected { heap: BinaryHeap::new(), bytes: 0, max_bytes }
    }

    /// Takes a match; drops the last one if there are more than `limit`.
    pub(super) fn push(&mut self, m: Match, limit: u64) -> Result<()> {
        self.bytes += MATCH_BYTES + m.sort_key.len();
        self.heap.push(m);
        if self.heap.len() as u64 > limit
            && let Some(last) = self.heap.pop()
        {
            self.bytes -= MATCH_BYTES + last.sort_key.len();
        }
        if self.heap.len() > limits::SORTED_RESULTS || self.bytes > self.max_bytes {
            return Err(Error::too_big(format!(
                "more than {} results, or {} MiB of what they are sorted by, are too many to sort: give a limit, a \
                 narrower predicate, or no order",
                limits::SORTED_RESULTS,
                self.max_bytes >> 20
            ))
            .with_clause(Clause::O5));
        }
        Ok(())
    }

    /// All of them, the first in order last.
    pub(super) fn into_reversed(self) -> Vec<Match> {
        let mut sorted = self.heap.into_sorted_vec();
        sorted.reverse();
        sorted
    }
}
