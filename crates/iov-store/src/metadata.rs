//! Under the catalog: a small ordered key-value store with transactions.

use bytes::Bytes;
use iov_types::Result;

/// A value and the revision at which it was written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// The value.
    pub value: Bytes,
    /// Grows with every commit to the store; never 0.
    pub revision: u64,
}

/// A half-open range of keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyRange {
    /// First key.
    pub from: Vec<u8>,
    /// First key behind it; `None` = no end.
    pub to: Option<Vec<u8>>,
}

impl KeyRange {
    /// All keys that begin with a prefix.
    pub fn prefix(prefix: &[u8]) -> KeyRange {
        let mut to = prefix.to_vec();
        while let Some(last) = to.pop() {
            if last < 0xff {
                to.push(last + 1);
                return KeyRange { from: prefix.to_vec(), to: Some(to) };
            }
        }
        KeyRange { from: prefix.to_vec(), to: None }
    }

    /// Whether a key lies in it.
    pub fn contains(&self, key: &[u8]) -> bool {
        key >= &self.from[..] && self.to.as_ref().is_none_or(|to| key < &to[..])
    }
}

/// What must hold for a transaction to apply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Guard {
    /// The key has no value.
    Absent(Vec<u8>),
    /// The key has a value.
    Present(Vec<u8>),
    /// The key was last written at this revision.
    Revision(Vec<u8>, u64),
}

/// Writes that apply together if all guards hold, else not at all.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Txn {
    /// Conditions.
    pub guards: Vec<Guard>,
    /// Puts (`Some`) and deletes (`None`), in order; a later one of the same key wins.
    pub writes: Vec<(Vec<u8>, Option<Bytes>)>,
}

/// How one transaction ended: the revision at which it applied, or [`iov_types::Kind::Conflict`] if a guard did not hold.
pub type Commit = Result<u64>;

/// A view that later commits do not change.
pub trait Snapshot: Send + Sync {
    /// Values of keys.
    fn get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Record>>>;
    /// Up to `limit` pairs of a range in key order, behind `after`.
    fn scan(&self, range: &KeyRange, after: Option<&[u8]>, limit: usize) -> Result<Vec<(Bytes, Record)>>;
}

/// What room a commit may take where the medium is full. Each leaves what the next ones need.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Room {
    /// None that is kept: it can wait.
    Free,
    /// Some of what is kept: it lets somebody read, or end.
    Kept,
    /// More of it: it makes room.
    Freeing,
    /// Still more: it gives back the space of bytes that lie elsewhere on the medium at once.
    Releasing,
    /// All of it: without this commit the store cannot be opened.
    Last,
}

/// A metadata engine.
pub trait MetadataStore: Send + Sync {
    /// Present values of keys.
    fn get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Record>>>;

    /// Up to `limit` present pairs of a range in key order, behind `after`.
    fn scan(&self, range: &KeyRange, after: Option<&[u8]>, limit: usize) -> Result<Vec<(Bytes, Record)>>;

    /// A view of now.
    fn snapshot(&self) -> Result<Box<dyn Snapshot>>;

    /// Applies transactions in order, each seeing the ones before it; one that fails does not stop the others. All that
    /// apply are one write to the log: they survive the process together, or none does. The outer error is of the log:
    /// then the outcome of all is unknown, and the store refuses further commits (P8).
    fn commit(&self, txns: Vec<Txn>) -> Result<Vec<Commit>>;

    /// The same for what must go on when the medium is full: it may take room that is kept for that.
    fn commit_with(&self, txns: Vec<Txn>, room: Room) -> Result<Vec<Commit>> {
        let _ = room;
        self.commit(txns)
    }

    /// Keeps that room again, if it was taken and there is enough by now.
    fn keep_room(&self) {}

    /// Whether little of the medium is free, about: values that could as well be kept elsewhere should be then, where deleting them gives back their
    /// space at once.
    fn is_scarce(&self) -> bool {
        false
    }

    /// Whether commits that can wait are refused for want of room, about.
    fn is_full(&self) -> bool {
        false
    }

    /// Makes every commit so far survive power loss; a store in memory has nothing to do.
    fn persist(&self) -> Result<()>;

    /// Approximate bytes on the medium.
    fn bytes(&self) -> u64;
}
