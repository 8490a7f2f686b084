//! Reading a range of a buffer, a page at a time, so that nobody waits long for the lock.

use std::{collections::VecDeque, ops::Bound};

use bytes::Bytes;

use super::Buffer;
use crate::tables::Family;

/// Entries of the first page: most ranges are left after a few.
const FIRST: usize = 16;
/// Entries of the largest page.
const MOST: usize = 1024;

/// A key and its newest write: value and revision, or `None` for a delete.
pub(crate) type Found = (Bytes, Option<Bytes>, u64);

/// A range of a buffer as a view sees it, read as it is asked for.
pub(crate) struct Page<'a> {
    buffer: &'a Buffer,
    family: Family,
    revision: u64,
    from: Bound<Vec<u8>>,
    to: Option<&'a [u8]>,
    found: VecDeque<Found>,
    size: usize,
    ended: bool,
}

impl<'a> Page<'a> {
    /// The range from a bound to before a key.
    pub(crate) fn new(
        buffer: &'a Buffer,
        family: Family,
        revision: u64,
        from: Bound<Vec<u8>>,
        to: Option<&'a [u8]>,
    ) -> Page<'a> {
        let ended = buffer.read().is_empty(family);
        Page { buffer, family, revision, from, to, found: VecDeque::new(), size: FIRST, ended }
    }

    /// The next pair, without taking it.
    pub(crate) fn peek(&mut self) -> Option<&Found> {
        while self.found.is_empty() && !self.ended {
            self.fill();
        }
        self.found.front()
    }

    /// Takes the next pair.
    pub(crate) fn take(&mut self) -> Option<Found> {
        self.found.pop_front()
    }

    fn fill(&mut self) {
        let entries = self.buffer.in_order(self.family);
        let runs = entries.sorted[self.family as usize].runs();
        let behind = |key: &[u8]| match &self.from {
            Bound::Included(from) => key >= &from[..],
            Bound::Excluded(from) => key > &from[..],
            Bound::Unbounded => true,
        };
        let mut heads: Vec<&[u32]> =
            runs.iter().map(|run| &run[run.partition_point(|i| !behind(entries.key(*i)))..]).collect();
        let mut last = None;
        // Entries that the view does not see count too: they take time under the lock.
        for _ in 0..self.size {
            let first =
                |a: &(usize, u32), b: &(usize, u32)| entries.key(a.1).cmp(entries.key(b.1)).then_with(|| b.1.cmp(&a.1));
            let next = heads.iter().enumerate().filter_map(|(n, run)| Some((n, *run.first()?))).min_by(first);
            let Some((_, mut at)) = next else {
                self.ended = true;
                break;
            };
            let key = entries.key(at);
            if self.to.is_some_and(|to| key >= to) {
                self.ended = true;
                break;
            }
            // The newest of this key is first; the ones before it hang on it.
            let visible = loop {
                let entry = &entries.entries[at as usize];
                if entry.revision <= self.revision {
                    break Some(entries.hit(at));
                }
                match entry.older.checked_sub(1) {
                    Some(older) => at = older,
                    None => break None,
                }
            };
            if let Some(hit) = visible {
                self.found.push_back((Bytes::copy_from_slice(key), hit.to_bytes(), hit.revision));
            }
            for run in &mut heads {
                let same = run.iter().take_while(|i| entries.key(**i) == key).count();
                *run = &run[same..];
            }
            last = Some(key);
        }
        self.size = (self.size * 4).min(MOST);
        if let Some(last) = last {
            self.from = Bound::Excluded(last.to_vec());
        }
    }
}
