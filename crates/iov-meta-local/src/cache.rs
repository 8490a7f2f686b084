//! Values of the tables that were read lately, up to a number of bytes.
//!
//! An entry is always what the newest tables hold. While a buffer moves into tables, readers find its keys in the buffer
//! itself, so the moment between the two does not show. An older view takes an entry only if it was written before it.
//!
//! Entries lie one behind the other in blocks, which are used in a ring: when there is no room, the oldest block is
//! emptied, and what was read in it since it was filled moves on. So an entry costs little more than its bytes, and the
//! memory in use is what was asked for, whatever the sizes of values.

use std::sync::{
    PoisonError, RwLock,
    atomic::{AtomicU64, Ordering},
};

use hashbrown::HashTable;

use crate::files::u64_at;

/// Bytes of a block.
const BLOCK: usize = 64 << 10;
/// Largest entry: one value must not drive out many. The largest inline collections fit.
const ENTRY: usize = BLOCK / 4;
/// Bytes before each entry's key: hash, length of value, length of key, revision.
const HEAD: usize = 18;
/// Entries share a mark of having been read if they begin within that many bytes.
const GRAIN: usize = 64;
const MAX_SHARDS: usize = 64;

struct Block {
    bytes: Vec<u8>,
    /// Which parts were read since the block was filled.
    read: Vec<AtomicU64>,
}

struct Shard {
    /// Where entries lie: number of the block, offset in it.
    index: HashTable<u32>,
    ring: Vec<Block>,
    /// The block that is filled.
    filling: usize,
    blocks: usize,
}

/// The cache.
pub(crate) struct Cache {
    shards: Vec<RwLock<Shard>>,
    /// The epoch of the tables that entries are from.
    epoch: AtomicU64,
    used: AtomicU64,
}

/// An entry as it lies.
#[derive(Clone, Copy)]
struct Entry<'a> {
    hash: u32,
    revision: u64,
    key: &'a [u8],
    value: &'a [u8],
}

impl<'a> Entry<'a> {
    fn read(bytes: &'a [u8]) -> Entry<'a> {
        let number = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let key_len = u16::from_le_bytes([bytes[8], bytes[9]]) as usize;
        let (key, rest) = bytes[HEAD..].split_at(key_len);
        Entry { hash: number(0), revision: u64_at(bytes, 10), key, value: &rest[..number(4) as usize] }
    }

    fn write(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.hash.to_le_bytes());
        to.extend_from_slice(&(self.value.len() as u32).to_le_bytes());
        to.extend_from_slice(&(self.key.len() as u16).to_le_bytes());
        to.extend_from_slice(&self.revision.to_le_bytes());
        to.extend_from_slice(self.key);
        to.extend_from_slice(self.value);
    }

    fn size(&self) -> usize {
        HEAD + self.key.len() + self.value.len()
    }
}

/// The hash as the index wants it: any bits of it may count.
fn spread(hash: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(hash)
}

impl Cache {
    /// An empty one for tables of an epoch. With less than two blocks it stays empty.
    pub(crate) fn new(bytes: usize, epoch: u64) -> Cache {
        let blocks = bytes / BLOCK;
        // Few blocks of a shard would make its ring a poor memory of what was read.
        let shards = (blocks / 8).clamp(1, MAX_SHARDS);
        let per_shard = if blocks < 2 { 0 } else { blocks / shards };
        let shard = || Shard { index: HashTable::new(), ring: Vec::new(), filling: 0, blocks: per_shard };
        Cache {
            shards: (0..shards).map(|_| RwLock::new(shard())).collect(),
            epoch: AtomicU64::new(epoch),
            used: AtomicU64::new(0),
        }
    }

    /// Bytes of its blocks.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    fn shard(&self, hash: u64) -> &RwLock<Shard> {
        // Other bits than those that the index uses.
        &self.shards[(hash >> 48) as usize % self.shards.len()]
    }

    /// Calls with a key's value and revision, if it is here and not newer than the view.
    #[inline]
    pub(crate) fn get(&self, key: &[u8], hash: u64, newest: u64, found: impl FnOnce(&[u8], u64)) -> bool {
        let shard = self.shard(hash).read().unwrap_or_else(PoisonError::into_inner);
        let Some(at) = shard.find(key, hash as u32) else { return false };
        let entry = shard.entry(at);
        if entry.revision > newest {
            return false;
        }
        shard.mark(at);
        found(entry.value, entry.revision);
        true
    }

    /// Remembers what tables of an epoch hold. What was read from older ones is not taken: it may have changed.
    pub(crate) fn put(&self, key: &[u8], hash: u64, value: &[u8], revision: u64, epoch: u64) {
        let entry = Entry { hash: hash as u32, revision, key, value };
        if entry.size() > ENTRY {
            return;
        }
        let mut shard = self.shard(hash).write().unwrap_or_else(PoisonError::into_inner);
        if self.epoch.load(Ordering::Acquire) != epoch || shard.find(key, hash as u32).is_some() {
            return;
        }
        let made = shard.insert(entry);
        self.used.fetch_add(made as u64, Ordering::Relaxed);
    }

    /// From now on entries are those of a newer epoch; the changes that make the difference must follow at once.
    pub(crate) fn advance(&self, epoch: u64) {
        self.epoch.store(epoch, Ordering::Release);
    }

    /// A key holds something else in the tables of the new epoch: the entry, if there is one, takes it over.
    pub(crate) fn change(&self, key: &[u8], hash: u64, value: Option<&[u8]>, revision: u64) {
        let shard = self.shard(hash);
        if shard.read().unwrap_or_else(PoisonError::into_inner).find(key, hash as u32).is_none() {
            return;
        }
        let mut shard = shard.write().unwrap_or_else(PoisonError::into_inner);
        shard.forget(key, hash as u32);
        let entry = value.map(|value| Entry { hash: hash as u32, revision, key, value });
        if let Some(entry) = entry.filter(|e| e.size() <= ENTRY) {
            let made = shard.insert(entry);
            self.used.fetch_add(made as u64, Ordering::Relaxed);
        }
    }
}

impl Shard {
    fn entry(&self, at: u32) -> Entry<'_> {
        Entry::read(&self.ring[at as usize / BLOCK].bytes[at as usize % BLOCK..])
    }

    fn mark(&self, at: u32) {
        let grain = at as usize % BLOCK / GRAIN;
        let (word, bit) = (&self.ring[at as usize / BLOCK].read[grain / 64], 1 << (grain % 64));
        // Most are marked already; a write would take the line from other processors.
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    #[inline]
    fn find(&self, key: &[u8], hash: u32) -> Option<u32> {
        let same = |at: &u32| {
            let entry = self.entry(*at);
            entry.hash == hash && entry.key == key
        };
        self.index.find(spread(hash), same).copied()
    }

    /// Takes a key out of the index; its bytes go when their block is emptied.
    fn forget(&mut self, key: &[u8], hash: u32) {
        if let Some(at) = self.find(key, hash)
            && let Ok(entry) = self.index.find_entry(spread(hash), |other| *other == at)
        {
            entry.remove();
        }
    }

    /// Adds an entry that is not there; how many bytes more are in use.
    fn insert(&mut self, entry: Entry<'_>) -> usize {
        let mut made = 0;
        // Emptying unmarks what it keeps, so that once around there is room.
        for _ in 0..=2 * self.blocks {
            if self.ring.get(self.filling).is_some_and(|block| block.bytes.len() + entry.size() <= BLOCK) {
                self.append(entry);
                return made;
            }
            if self.ring.len() < self.blocks {
                self.filling = self.ring.len();
                self.ring.push(Block::new());
                made += BLOCK;
            } else if self.blocks > 0 {
                self.filling = (self.filling + 1) % self.ring.len();
                self.recycle();
            }
        }
        made
    }

    fn append(&mut self, entry: Entry<'_>) {
        let bytes = &mut self.ring[self.filling].bytes;
        let at = (self.filling * BLOCK + bytes.len()) as u32;
        entry.write(bytes);
        let ring = &self.ring;
        let hash_of = |at: &u32| spread(Entry::read(&ring[*at as usize / BLOCK].bytes[*at as usize % BLOCK..]).hash);
        self.index.insert_unique(spread(entry.hash), at, hash_of);
    }

    /// Empties the block to be filled, except for what was read in it.
    fn recycle(&mut self) {
        let (mut offset, mut kept) = (0, Vec::new());
        // First out of the index with all of them: while it grows, it reads what it points to.
        let old = std::mem::replace(&mut self.ring[self.filling], Block::new());
        while offset < old.bytes.len() {
            let entry = Entry::read(&old.bytes[offset..]);
            let at = (self.filling * BLOCK + offset) as u32;
            let grain = offset / GRAIN;
            let read = old.read[grain / 64].load(Ordering::Relaxed) & (1 << (grain % 64)) != 0;
            offset += entry.size();
            // One that is not in the index has been changed or deleted.
            if let Ok(found) = self.index.find_entry(spread(entry.hash), |other| *other == at) {
                found.remove();
                if read {
                    kept.push(entry);
                }
            }
        }
        kept.into_iter().for_each(|entry| self.append(entry));
    }
}

impl Block {
    fn new() -> Block {
        let read = (0..BLOCK / GRAIN / 64).map(|_| AtomicU64::new(0)).collect();
        Block { bytes: Vec::with_capacity(BLOCK), read }
    }
}

#[cfg(test)]
mod tests;
