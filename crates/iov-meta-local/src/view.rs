//! What a reader sees: the buffers and a pinned state of the tables, all of one moment.

use std::{hash::BuildHasher, sync::Arc, sync::atomic::Ordering};

use bytes::Bytes;
use foldhash::fast::FixedState;
use iov_store::{KeyRange, Record, Snapshot};
use iov_types::Result;

use crate::{
    buffer::{Buffer, COPY_BYTES, Entries, Hit},
    cache::Cache,
    engine::Counts,
    scan,
    tables::{Family, KEY_BYTES, Pin},
};

/// How keys are hashed: differently in every process, since names come from anybody.
#[derive(Clone)]
pub(crate) struct Seed(FixedState);

impl Seed {
    /// A random one.
    pub(crate) fn random() -> Seed {
        let mut seed = [0; 8];
        iov_store::seam::random_bytes(&mut seed);
        Seed(FixedState::with_seed(u64::from_le_bytes(seed)))
    }

    #[inline]
    pub(crate) fn hash(&self, key: &[u8]) -> u64 {
        self.0.hash_one(key)
    }
}

/// What all views of a store share.
pub(crate) struct Shared {
    pub(crate) seed: Seed,
    pub(crate) cache: Cache,
    pub(crate) counts: Counts,
}

/// The parts of a store between two changes of what they are.
pub(crate) struct Parts {
    pub(crate) shared: Arc<Shared>,
    /// Where commits go.
    pub(crate) active: Arc<Buffer>,
    /// Full buffers that are not wholly in tables, newest first.
    pub(crate) sealed: Vec<Arc<Buffer>>,
    pub(crate) pin: Arc<Pin>,
}

/// The parts, and the revision up to which they are read.
pub(crate) struct View {
    pub(crate) parts: Arc<Parts>,
    pub(crate) revision: u64,
}

/// Keys looked up while the buffers are held: a commit does not wait for more.
const AT_ONCE: usize = 1024;

impl View {
    /// A view of now. The parts name the buffer, and it the revision: a commit into a newer buffer is not seen at all.
    pub(crate) fn new(parts: Arc<Parts>) -> View {
        let revision = parts.active.last();
        View { parts, revision }
    }

    /// Finds keys: calls with the number of each that has a value, the value, where that was found, and its revision.
    pub(crate) fn find(&self, keys: &[&[u8]], mut found: impl FnMut(usize, &[u8], Source<'_>, u64)) -> Result<()> {
        let mut missed = Vec::new();
        for (n, keys) in keys.chunks(AT_ONCE).enumerate() {
            self.find_in_buffers(n * AT_ONCE, keys, &mut missed, &mut found);
        }
        for (i, hash) in missed {
            self.find_in_tables(i, keys[i], hash, &mut found)?;
        }
        Ok(())
    }

    fn find_in_buffers(
        &self,
        first: usize,
        keys: &[&[u8]],
        missed: &mut Vec<(usize, u64)>,
        found: &mut impl FnMut(usize, &[u8], Source<'_>, u64),
    ) {
        let parts = &*self.parts;
        let active = parts.active.read();
        let sealed: Vec<_> = parts.sealed.iter().map(|b| b.read()).collect();
        for (i, key) in keys.iter().enumerate() {
            let hash = parts.shared.seed.hash(key);
            let mut find = |entries: &Entries| {
                let hit = entries.find(key, hash, self.revision)?;
                if let Some(value) = hit.value {
                    found(first + i, value, Source::Frame(&hit), hit.revision);
                }
                Some(())
            };
            // Deleted is an answer too: older buffers and tables are not asked.
            if find(&active).is_none() && sealed.iter().all(|entries| find(entries).is_none()) {
                missed.push((first + i, hash));
            }
        }
    }

    fn find_in_tables(
        &self,
        i: usize,
        key: &[u8],
        hash: u64,
        found: &mut impl FnMut(usize, &[u8], Source<'_>, u64),
    ) -> Result<()> {
        if key.len() > KEY_BYTES {
            return Ok(());
        }
        let Shared { cache, counts, .. } = &*self.parts.shared;
        let pin = &self.parts.pin;
        if cache.get(key, hash, self.revision, |value, revision| found(i, value, Source::Cache, revision)) {
            counts.cache_hits.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        counts.table_reads.fetch_add(1, Ordering::Relaxed);
        let family = Family::of(key);
        if let Some(item) = pin.tables().tree(family).get(key, pin.at(family))? {
            cache.put(key, hash, item.value(), item.revision(), pin.epoch);
            found(i, item.value(), Source::Table, item.revision());
        }
        Ok(())
    }

    /// The revisions of keys; `None` if they have no value.
    pub(crate) fn revisions(&self, keys: &[&[u8]]) -> Result<Vec<Option<u64>>> {
        let mut out = vec![None; keys.len()];
        self.find(keys, |i, _, _, revision| out[i] = Some(revision))?;
        Ok(out)
    }
}

/// Where a value was found.
pub(crate) enum Source<'a> {
    Frame(&'a Hit<'a>),
    Cache,
    Table,
}

impl Snapshot for View {
    fn get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Record>>> {
        let mut out = vec![None; keys.len()];
        self.find(keys, |i, value, source, revision| {
            let value = match source {
                Source::Frame(hit) if value.len() > COPY_BYTES => hit.to_bytes().unwrap_or_default(),
                _ => Bytes::copy_from_slice(value),
            };
            out[i] = Some(Record { value, revision });
        })?;
        Ok(out)
    }

    fn scan(&self, range: &KeyRange, after: Option<&[u8]>, limit: usize) -> Result<Vec<(Bytes, Record)>> {
        scan::scan(self, range, after, limit)
    }
}
