//! A metadata engine in memory over one that stays as it is: what is written is seen, and gone with the process.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use iov_store::{Commit, Guard, KeyRange, MemoryStore, MetadataStore, Record, Snapshot, Txn};
use iov_types::{Error, Result};

/// What stands before a value that was written; a delete is a value without anything.
const THERE: u8 = 1;
/// Revisions above are larger than all below.
const ABOVE: u64 = 1 << 60;
/// Pairs of a level that are read at a time.
const PAGE: usize = 256;

/// The two levels.
pub(crate) struct Overlay {
    above: MemoryStore,
    below: Arc<dyn Snapshot>,
    /// Taken by one commit at a time.
    turn: Mutex<()>,
}

/// What one of them is at a moment.
struct View {
    above: Box<dyn Snapshot>,
    below: Arc<dyn Snapshot>,
}

impl Overlay {
    /// Nothing is written yet.
    pub(crate) fn new(below: Box<dyn Snapshot>) -> Overlay {
        Overlay { above: MemoryStore::new(), below: below.into(), turn: Mutex::new(()) }
    }

    fn view(&self) -> Result<View> {
        Ok(View { above: self.above.snapshot()?, below: self.below.clone() })
    }

    fn check(&self, guard: &Guard) -> Result<()> {
        let (Guard::Absent(key) | Guard::Present(key) | Guard::Revision(key, _)) = guard;
        let found = self.view()?.get(&[key])?.pop().flatten();
        let holds = match guard {
            Guard::Absent(_) => found.is_none(),
            Guard::Present(_) => found.is_some(),
            Guard::Revision(_, revision) => found.is_some_and(|found| found.revision == *revision),
        };
        if holds { Ok(()) } else { Err(Error::conflict(format!("the record {key:02x?} was changed meanwhile"))) }
    }
}

/// A value above: itself, or that there is none.
fn shown(record: Record) -> Option<Record> {
    (!record.value.is_empty()).then(|| Record { value: record.value.slice(1..), revision: record.revision + ABOVE })
}

impl Snapshot for View {
    fn get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Record>>> {
        let above = self.above.get(keys)?;
        let missing: Vec<&[u8]> =
            keys.iter().zip(&above).filter(|(_, found)| found.is_none()).map(|(k, _)| *k).collect();
        let mut below = self.below.get(&missing)?.into_iter();
        Ok(above.into_iter().map(|found| found.map_or_else(|| below.next().flatten(), shown)).collect())
    }

    fn scan(&self, range: &KeyRange, after: Option<&[u8]>, limit: usize) -> Result<Vec<(Bytes, Record)>> {
        let mut above = Pages::new(&*self.above, range, after, limit);
        let mut below = Pages::new(&*self.below, range, after, limit);
        let mut out = Vec::new();
        while out.len() < limit {
            let first = above.peek()?.cloned();
            match (first, below.peek()?.cloned()) {
                (None, None) => break,
                (Some(key), other) if other.as_ref().is_none_or(|other| key <= *other) => {
                    if other == Some(key) {
                        below.take();
                    }
                    out.extend(above.take().and_then(|(key, record)| Some((key, shown(record)?))));
                }
                _ => out.extend(below.take()),
            }
        }
        Ok(out)
    }
}

/// The pairs of one level in order, some at a time.
struct Pages<'a> {
    level: &'a dyn Snapshot,
    range: &'a KeyRange,
    after: Option<Vec<u8>>,
    size: usize,
    page: std::iter::Peekable<std::vec::IntoIter<(Bytes, Record)>>,
    ended: bool,
}

impl<'a> Pages<'a> {
    fn new(level: &'a dyn Snapshot, range: &'a KeyRange, after: Option<&[u8]>, limit: usize) -> Pages<'a> {
        let page = Vec::new().into_iter().peekable();
        Pages { level, range, after: after.map(<[u8]>::to_vec), size: limit.clamp(1, PAGE), page, ended: false }
    }

    fn peek(&mut self) -> Result<Option<&Bytes>> {
        if self.page.peek().is_none() && !self.ended {
            let page = self.level.scan(self.range, self.after.as_deref(), self.size)?;
            self.ended = page.len() < self.size;
            self.after = page.last().map(|(key, _)| key.to_vec());
            self.page = page.into_iter().peekable();
        }
        Ok(self.page.peek().map(|(key, _)| key))
    }

    fn take(&mut self) -> Option<(Bytes, Record)> {
        self.page.next()
    }
}

impl MetadataStore for Overlay {
    fn get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Record>>> {
        self.view()?.get(keys)
    }

    fn scan(&self, range: &KeyRange, after: Option<&[u8]>, limit: usize) -> Result<Vec<(Bytes, Record)>> {
        self.view()?.scan(range, after, limit)
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot>> {
        Ok(Box::new(self.view()?))
    }

    fn commit(&self, txns: Vec<Txn>) -> Result<Vec<Commit>> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let mut commits = Vec::with_capacity(txns.len());
        for txn in txns {
            if let Err(e) = txn.guards.iter().try_for_each(|guard| self.check(guard)) {
                commits.push(Err(e));
                continue;
            }
            let marked = |value: Option<Bytes>| value.map_or_else(Bytes::new, |v| [&[THERE], &v[..]].concat().into());
            let writes = txn.writes.into_iter().map(|(key, value)| (key, Some(marked(value)))).collect();
            let done = self.above.commit(vec![Txn { guards: Vec::new(), writes }])?;
            commits.extend(done.into_iter().map(|done| done.map(|revision| revision + ABOVE)));
        }
        Ok(commits)
    }

    fn persist(&self) -> Result<()> {
        Ok(())
    }

    fn bytes(&self) -> u64 {
        self.above.bytes()
    }
}
