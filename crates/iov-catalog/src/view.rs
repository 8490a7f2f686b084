//! The writes of a submission before they are committed, and the store as seen through them.

use std::{
    collections::{BTreeMap, HashMap},
    hash::BuildHasher,
    ops::Bound,
    sync::Arc,
};

use bytes::Bytes;
use iov_store::{KeyRange, MetadataStore, Record, Snapshot};
use iov_types::Result;

use crate::hash::{Ready, Seeded};

/// What the sorted copy of the pending writes looks like.
type Sorted = BTreeMap<Vec<u8>, Option<Bytes>>;

struct Entry {
    key: Vec<u8>,
    value: Option<Bytes>,
    hash: u64,
    /// The entry before this one with the same hash, plus one.
    before: u32,
}

/// Pending writes: a log in order of execution, so that the last ones can be taken back, with an index by key.
#[derive(Default)]
pub(crate) struct Pending {
    log: Vec<Entry>,
    newest: HashMap<u64, u32, Ready>,
    seed: Seeded,
    /// Built at the first scan and kept up from then on.
    sorted: Option<Arc<Sorted>>,
}

impl Pending {
    /// How many writes there are: a place to go back to.
    pub(crate) fn mark(&self) -> usize {
        self.log.len()
    }

    /// Writes that its memory has room for.
    pub(crate) fn capacity(&self) -> usize {
        self.log.capacity()
    }

    /// Adds a write.
    pub(crate) fn put(&mut self, key: Vec<u8>, value: Option<Bytes>) {
        if let Some(sorted) = &mut self.sorted {
            Arc::make_mut(sorted).insert(key.clone(), value.clone());
        }
        let hash = self.seed.hash_one(&key[..]);
        let slot = self.newest.entry(hash).or_insert(0);
        let before = std::mem::replace(slot, self.log.len() as u32 + 1);
        self.log.push(Entry { key, value, hash, before });
    }

    /// The pending value of a key: `Some(None)` is a delete, `None` says that nothing is pending.
    #[inline]
    pub(crate) fn get(&self, key: &[u8]) -> Option<&Option<Bytes>> {
        if self.log.is_empty() {
            return None;
        }
        let mut at = *self.newest.get(&self.seed.hash_one(key))?;
        while at != 0 {
            let entry = &self.log[at as usize - 1];
            if entry.key == key {
                return Some(&entry.value);
            }
            at = entry.before;
        }
        None
    }

    /// Takes back everything after a mark.
    pub(crate) fn rollback(&mut self, mark: usize) {
        if mark < self.log.len() {
            self.sorted = None;
        }
        while self.log.len() > mark {
            let Some(entry) = self.log.pop() else { break };
            match entry.before {
                0 => drop(self.newest.remove(&entry.hash)),
                before => drop(self.newest.insert(entry.hash, before)),
            }
        }
    }

    /// The writes in order, for a transaction; a later one of the same key wins. Leaves none behind.
    pub(crate) fn take(&mut self) -> Vec<(Vec<u8>, Option<Bytes>)> {
        self.newest.clear();
        self.sorted = None;
        self.log.drain(..).map(|entry| (entry.key, entry.value)).collect()
    }

    /// Forgets everything, but keeps the memory for the next submission.
    pub(crate) fn clear(&mut self) {
        self.log.clear();
        self.newest.clear();
        self.sorted = None;
    }

    fn sorted(&mut self) -> &Arc<Sorted> {
        self.sorted.get_or_insert_with(|| {
            // In order of the log, so that a later write of a key replaces an earlier one.
            Arc::new(self.log.iter().map(|e| (e.key.clone(), e.value.clone())).collect())
        })
    }

    /// A view of the store with the writes so far, which later ones do not change.
    pub(crate) fn snapshot(&mut self, store: &dyn MetadataStore) -> Result<Box<dyn Snapshot>> {
        let base = store.snapshot()?;
        if self.log.is_empty() {
            return Ok(base);
        }
        Ok(Box::new(Overlay { base, writes: self.sorted().clone() }))
    }

    /// Up to `limit` pairs of a range as they will be.
    pub(crate) fn scan(
        &mut self,
        store: &dyn MetadataStore,
        range: &KeyRange,
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<(Bytes, Record)>> {
        if self.log.is_empty() {
            return store.scan(range, after, limit);
        }
        let writes = self.sorted().clone();
        scan_over(&writes, range, after, limit, |after, n| store.scan(range, after, n))
    }
}

struct Overlay {
    base: Box<dyn Snapshot>,
    writes: Arc<Sorted>,
}

/// The revision of a value that is not committed yet.
const UNCOMMITTED: u64 = u64::MAX;

impl Snapshot for Overlay {
    fn get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Record>>> {
        let mut found = self.base.get(keys)?;
        for (key, record) in keys.iter().zip(&mut found) {
            if let Some(value) = self.writes.get(*key) {
                *record = value.clone().map(|value| Record { value, revision: UNCOMMITTED });
            }
        }
        Ok(found)
    }

    fn scan(&self, range: &KeyRange, after: Option<&[u8]>, limit: usize) -> Result<Vec<(Bytes, Record)>> {
        scan_over(&self.writes, range, after, limit, |after, n| self.base.scan(range, after, n))
    }
}

/// Merges a scan of the base with pending writes.
fn scan_over(
    writes: &Sorted,
    range: &KeyRange,
    after: Option<&[u8]>,
    limit: usize,
    base: impl Fn(Option<&[u8]>, usize) -> Result<Vec<(Bytes, Record)>>,
) -> Result<Vec<(Bytes, Record)>> {
    let from = match after {
        Some(after) if after >= &range.from[..] => Bound::Excluded(after),
        _ => Bound::Included(&range.from[..]),
    };
    let mut pending =
        writes.range::<[u8], _>((from, Bound::Unbounded)).take_while(|(key, _)| range.contains(key)).peekable();
    let mut out = Vec::new();
    let mut last: Option<Bytes> = None;
    let mut page = Vec::new().into_iter().peekable();
    let mut more = true;
    while out.len() < limit {
        if more && page.peek().is_none() {
            // A little more than is missing: pending deletes hide some of it.
            let want = (limit - out.len()).saturating_add(16);
            let next = base(last.as_deref().or(after), want)?;
            more = next.len() == want;
            last = next.last().map(|(key, _)| key.clone()).or(last);
            page = next.into_iter().peekable();
        }
        let written = match (page.peek(), pending.peek()) {
            (None, None) => break,
            (Some((key, _)), Some((written, _))) if key[..] < written[..] => None,
            (Some(_), None) => None,
            (stored, Some((written, _))) => {
                if stored.is_some_and(|(key, _)| key[..] == written[..]) {
                    page.next();
                }
                pending.next()
            }
        };
        match written {
            Some((key, Some(value))) => {
                let record = Record { value: value.clone(), revision: UNCOMMITTED };
                out.push((Bytes::copy_from_slice(key), record));
            }
            Some((_, None)) => {}
            None => out.extend(page.next()),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests;
