//! A set of bytes as disjoint, merged intervals.

use std::collections::BTreeMap;

use iov_types::Range;

/// Disjoint half-open intervals, neighbours merged. Clones are deep.
#[derive(Clone, Default, Debug, PartialEq)]
pub(super) struct Intervals(BTreeMap<u64, u64>);

impl Intervals {
    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a range.
    pub(super) fn insert(&mut self, range: Range) {
        let (mut from, mut to) = (range.offset, range.end());
        if from == to {
            return;
        }
        // All intervals that touch [from, to] melt into one.
        while let Some((&f, &t)) = self.0.range(..=to).next_back() {
            if t < from {
                break;
            }
            if f <= from && to <= t {
                return;
            }
            (from, to) = (from.min(f), to.max(t));
            self.0.remove(&f);
        }
        self.0.insert(from, to);
    }

    /// Takes a range out.
    pub(super) fn remove(&mut self, range: Range) {
        let (from, to) = (range.offset, range.end());
        if from == to {
            return; // an empty cut must not split what it lies in
        }
        while let Some((&f, &t)) = self.0.range(..to).next_back() {
            if t <= from {
                break;
            }
            self.0.remove(&f);
            if to < t {
                self.0.insert(to, t);
            }
            if f < from {
                self.0.insert(f, from);
            }
        }
    }

    /// The intervals that overlap a range, cut to it, in order.
    pub(super) fn within(&self, range: Range) -> impl Iterator<Item = Range> + '_ {
        let first = self.0.range(..=range.offset).next_back().map_or(range.offset, |(f, _)| *f);
        self.0.range(first..range.end()).filter_map(move |(f, t)| Range { offset: *f, len: *t - *f }.intersect(&range))
    }
}
