//! A metadata engine that fails when it is told to.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use iov_types::{Clause, Error, Outcome, Result};

use super::{
    When,
    faulty::{Action, dead},
};
use crate::{Commit, KeyRange, MetadataStore, Record, Snapshot, Txn, seam};

#[derive(Default)]
struct State {
    /// Commits until it strikes, and what happens then.
    faults: Vec<(u64, Action)>,
    dead: bool,
    /// A commit has failed: its outcome is unknown, and the trait wants no further ones.
    broken: bool,
}

/// A metadata engine with faults in its commits, which tests arm while it is in use.
pub struct FaultyStore {
    inner: Arc<dyn MetadataStore>,
    state: Mutex<State>,
}

impl FaultyStore {
    /// An engine without a fault so far.
    pub fn new(inner: Arc<dyn MetadataStore>) -> FaultyStore {
        FaultyStore { inner, state: Mutex::default() }
    }

    /// Lets the nth call of `commit` from now on (the first is 1) meet this.
    pub fn arm(&self, nth: u64, action: Action) {
        self.lock().faults.push((nth, action));
    }

    /// Dies now: everything fails as unavailable.
    pub fn die(&self) {
        self.lock().dead = true;
    }

    /// Comes back, from death or from a failed commit, with what was committed; faults that have not struck are gone.
    pub fn revive(&self) {
        *self.lock() = State::default();
    }

    /// Whether it is dead.
    pub fn is_dead(&self) -> bool {
        self.lock().dead
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn alive(&self) -> Result<()> {
        if self.lock().dead { Err(dead(Outcome::NotApplied)) } else { Ok(()) }
    }

    /// What the next commit meets; the delay is done with.
    fn next(&self) -> Result<Option<(When, Error)>> {
        let mut state = self.lock();
        if state.dead {
            return Err(dead(Outcome::NotApplied));
        }
        if state.broken {
            return Err(Error::unavailable("an earlier commit failed; open the store anew").with_clause(Clause::P8));
        }
        let (mut struck, mut delay_ns) = (None, 0);
        let mut later = Vec::new();
        for (nth, action) in std::mem::take(&mut state.faults) {
            match (nth, action) {
                (2.., action) => later.push((nth - 1, action)),
                (_, Action::Delay(ns)) => delay_ns += ns,
                (_, Action::Fail(when, error)) => {
                    state.broken = true;
                    struck = Some((when, error));
                }
                (_, Action::Die(when)) => {
                    state.dead = true;
                    struck = Some((when, dead(Outcome::Unknown)));
                }
            }
        }
        state.faults = later;
        drop(state);
        if delay_ns > 0 {
            seam::sleep(delay_ns);
        }
        Ok(struck)
    }
}

impl MetadataStore for FaultyStore {
    fn get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Record>>> {
        self.alive()?;
        self.inner.get(keys)
    }

    fn scan(&self, range: &KeyRange, after: Option<&[u8]>, limit: usize) -> Result<Vec<(Bytes, Record)>> {
        self.alive()?;
        self.inner.scan(range, after, limit)
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot>> {
        self.alive()?;
        self.inner.snapshot()
    }

    fn commit(&self, txns: Vec<Txn>) -> Result<Vec<Commit>> {
        match self.next()? {
            None => self.inner.commit(txns),
            Some((When::Before, error)) => Err(error),
            Some((When::After, error)) => {
                self.inner.commit(txns)?;
                Err(error)
            }
        }
    }

    fn is_full(&self) -> bool {
        self.inner.is_full()
    }

    fn is_scarce(&self) -> bool {
        self.inner.is_scarce()
    }

    fn persist(&self) -> Result<()> {
        self.alive()?;
        self.inner.persist()
    }

    fn bytes(&self) -> u64 {
        self.inner.bytes()
    }
}
