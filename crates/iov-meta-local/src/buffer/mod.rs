//! The commits of one segment of the log, in memory: found by hash, sorted when somebody reads a range.
//!
//! Entries are never changed, only added, each with its revision; a view reads those up to its own. So a view costs
//! nothing, and a commit disturbs no reader.

mod page;
mod sorted;

pub(crate) use page::Page;

use std::sync::{
    PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

use bytes::Bytes;
use hashbrown::HashTable;

use crate::{
    log::{Write, key_of, value_of},
    tables::{FAMILIES, Family},
    view::Seed,
};
use sorted::Sorted;

/// Values up to this many bytes are copied out; a larger one shares the memory of its frame, which it keeps alive.
pub(crate) const COPY_BYTES: usize = 4096;

/// A put or delete.
struct Entry {
    frame: u32,
    at: u32,
    revision: u64,
    hash: u64,
    /// The write of the same key before this one, plus one.
    older: u32,
    key_len: u16,
}

/// What an entry takes in memory besides the bytes of its frame, with its share of the hash table.
const ENTRY_BYTES: usize = size_of::<Entry>() + 8;

/// What a buffer says about a key.
pub(crate) struct Hit<'a> {
    /// The value; `None` says that the key was deleted.
    pub(crate) value: Option<&'a [u8]>,
    pub(crate) revision: u64,
    frame: &'a Bytes,
}

impl Hit<'_> {
    /// The value as something to keep.
    pub(crate) fn to_bytes(&self) -> Option<Bytes> {
        self.value.map(|value| match value.len() {
            0..=COPY_BYTES => Bytes::copy_from_slice(value),
            _ => self.frame.slice_ref(value),
        })
    }
}

/// The entries, under the lock.
pub(crate) struct Entries {
    frames: Vec<Bytes>,
    entries: Vec<Entry>,
    index: HashTable<u32>,
    sorted: [Sorted; FAMILIES.len()],
}

/// Commits in memory.
pub(crate) struct Buffer {
    /// The number of the segment they are in.
    pub(crate) generation: u64,
    seed: Seed,
    entries: RwLock<Entries>,
    /// The last revision that is wholly in here.
    last: AtomicU64,
    bytes: AtomicUsize,
}

impl Buffer {
    /// An empty one; `last` is the last revision before it.
    pub(crate) fn new(generation: u64, seed: Seed, last: u64) -> Buffer {
        Buffer {
            generation,
            seed,
            entries: RwLock::new(Entries {
                frames: Vec::new(),
                entries: Vec::new(),
                index: HashTable::new(),
                sorted: Default::default(),
            }),
            last: AtomicU64::new(last),
            bytes: AtomicUsize::new(0),
        }
    }

    /// The last revision that can be read here.
    pub(crate) fn last(&self) -> u64 {
        self.last.load(Ordering::Acquire)
    }

    /// Bytes it takes, about.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Entries to read; adding waits meanwhile.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Entries> {
        self.entries.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Entries> {
        self.entries.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the writes of a frame, whose first transaction has the given revision. Views see them once all are in.
    pub(crate) fn add(&self, frame: Bytes, writes: &[Write], revision: u64, last: u64) {
        let bytes = frame.len() + writes.len() * ENTRY_BYTES;
        {
            let mut entries = self.write();
            entries.add(frame, writes, revision, &self.seed);
        }
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.last.store(last, Ordering::Release);
    }

    /// Sorts a family for good: called on a sealed buffer. Nobody waits while it sorts.
    pub(crate) fn seal(&self, family: Family) {
        let run = self.read().merged(family);
        self.write().sorted[family as usize].replace(run);
    }
}

impl Entries {
    fn add(&mut self, frame: Bytes, writes: &[Write], revision: u64, seed: &Seed) {
        let number = self.frames.len() as u32;
        self.frames.push(frame);
        for write in writes {
            let key = key_of(&self.frames[number as usize], write.at, write.key_len);
            let hash = seed.hash(key);
            let own = self.entries.len() as u32;
            let (entries, frames) = (&self.entries, &self.frames);
            let same = |i: &u32| {
                let entry = &entries[*i as usize];
                entry.hash == hash && entry.key(frames) == key
            };
            let older = match self.index.entry(hash, same, |i| entries[*i as usize].hash) {
                hashbrown::hash_table::Entry::Occupied(mut slot) => std::mem::replace(slot.get_mut(), own) + 1,
                hashbrown::hash_table::Entry::Vacant(slot) => {
                    slot.insert(own);
                    0
                }
            };
            let revision = revision + u64::from(write.txn);
            self.entries.push(Entry { frame: number, at: write.at, revision, hash, older, key_len: write.key_len });
            self.sorted[write.family as usize].push(own);
        }
    }

    fn key(&self, i: u32) -> &[u8] {
        self.entries[i as usize].key(&self.frames)
    }

    fn hit(&self, i: u32) -> Hit<'_> {
        let entry = &self.entries[i as usize];
        let frame = &self.frames[entry.frame as usize];
        Hit { value: value_of(frame, entry.at, entry.key_len), revision: entry.revision, frame }
    }

    /// The newest write of a key up to a revision.
    #[inline]
    pub(crate) fn find(&self, key: &[u8], hash: u64, revision: u64) -> Option<Hit<'_>> {
        let mut at = *self.index.find(hash, |i| {
            let entry = &self.entries[*i as usize];
            entry.hash == hash && entry.key(&self.frames) == key
        })?;
        loop {
            let entry = &self.entries[at as usize];
            if entry.revision <= revision {
                return Some(self.hit(at));
            }
            at = entry.older.checked_sub(1)?;
        }
    }

    /// Whether a family has no entries.
    pub(crate) fn is_empty(&self, family: Family) -> bool {
        self.sorted[family as usize].is_empty()
    }

    /// The newest write of every key of a sealed family, in order of keys.
    pub(crate) fn newest(&self, family: Family) -> impl Iterator<Item = (&[u8], Hit<'_>, u64)> {
        let mut before: Option<&[u8]> = None;
        self.sorted[family as usize].run().iter().filter_map(move |i| {
            let key = self.key(*i);
            let first = before != Some(key);
            before = Some(key);
            first.then(|| (key, self.hit(*i), self.entries[*i as usize].hash))
        })
    }
}

impl Entry {
    #[inline]
    fn key<'a>(&self, frames: &'a [Bytes]) -> &'a [u8] {
        key_of(&frames[self.frame as usize], self.at, self.key_len)
    }
}

#[cfg(test)]
mod tests;
