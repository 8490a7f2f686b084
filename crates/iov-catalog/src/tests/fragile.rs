//! A store and a target that fail at a chosen step.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicI64, Ordering},
};

use iov_store::{
    Backend, Commit, Heap, KeyRange, MemoryStore, MetadataStore, OpCx, Record, Sink, Snapshot, Submitted, Txn,
};
use iov_types::{Capability, Error, Evidence, Outcome, Result, VerbKind};

use super::rig::{Rig, durable_heap, options};
use crate::Options;

/// How a step fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fails {
    /// It does not happen, nor does anything after it: the catalog was killed.
    Before,
    /// It still happens, its answer is lost, and nothing happens after it.
    After,
    /// It does not happen, all others do: a target was away.
    Once,
}

/// Counts the steps of the catalog (operations at targets, commits) and lets one fail.
pub(super) struct Fuse {
    left: AtomicI64,
    how: Mutex<Fails>,
}

impl Fuse {
    fn new() -> Fuse {
        Fuse { left: AtomicI64::new(i64::MAX), how: Mutex::new(Fails::Before) }
    }

    /// Whether the step happens, and whether its answer arrives.
    fn step(&self) -> (bool, bool) {
        let left = self.left.fetch_sub(1, Ordering::SeqCst);
        let how = *self.how.lock().unwrap();
        let fine = left > 1 || (left < 1 && how == Fails::Once);
        (fine || (left == 1 && how == Fails::After), fine)
    }

    pub(super) fn set(&self, steps: i64, how: Fails) {
        *self.how.lock().unwrap() = how;
        self.left.store(steps, Ordering::SeqCst);
    }

    /// The steps until it fails; 0 or less once it has.
    pub(super) fn left(&self) -> i64 {
        self.left.load(Ordering::SeqCst)
    }

    pub(super) fn mend(&self) {
        self.set(i64::MAX, Fails::Before);
    }
}

fn dead() -> Error {
    Error::unavailable("killed").with_outcome(Outcome::Unknown)
}

struct Target {
    inner: Arc<Heap>,
    fuse: Arc<Fuse>,
}

struct Deaf(Arc<dyn Sink>, usize);

impl Sink for Deaf {
    fn complete(&self, _: usize, _: Result<Evidence>) {
        self.0.complete(self.1, Err(dead()));
    }
}

struct At(Arc<dyn Sink>, usize);

impl Sink for At {
    fn complete(&self, _: usize, evidence: Result<Evidence>) {
        self.0.complete(self.1, evidence);
    }
}

impl Backend for Target {
    fn capability(&self) -> &Capability {
        self.inner.capability()
    }

    fn submit(&self, cx: &OpCx, ops: Vec<Submitted>, sink: Arc<dyn Sink>) {
        for (i, op) in ops.into_iter().enumerate() {
            // Looking is no step: it changes nothing.
            let looks = matches!(op.0.verb.kind(), VerbKind::Stat | VerbKind::Read | VerbKind::List);
            let (happens, answers) = if looks { (true, true) } else { self.fuse.step() };
            match (happens, answers) {
                (false, _) => sink.complete(i, Err(dead())),
                (true, false) => self.inner.submit(cx, vec![op], Arc::new(Deaf(sink.clone(), i))),
                (true, true) => self.inner.submit(cx, vec![op], Arc::new(At(sink.clone(), i))),
            }
        }
    }
}

struct Log {
    inner: Arc<MemoryStore>,
    fuse: Arc<Fuse>,
}

impl MetadataStore for Log {
    fn get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Record>>> {
        self.inner.get(keys)
    }

    fn scan(&self, range: &KeyRange, after: Option<&[u8]>, limit: usize) -> Result<Vec<(bytes::Bytes, Record)>> {
        self.inner.scan(range, after, limit)
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot>> {
        self.inner.snapshot()
    }

    fn commit(&self, txns: Vec<Txn>) -> Result<Vec<Commit>> {
        let (happens, answers) = self.fuse.step();
        let result = if happens { self.inner.commit(txns) } else { Err(dead()) };
        if answers { result } else { Err(dead()) }
    }

    fn persist(&self) -> Result<()> {
        if self.fuse.step().1 { self.inner.persist() } else { Err(dead()) }
    }

    fn bytes(&self) -> u64 {
        self.inner.bytes()
    }
}

pub(super) struct Fragile {
    pub(super) fuse: Arc<Fuse>,
    store: Arc<MemoryStore>,
    heap: Arc<Heap>,
}

impl Fragile {
    pub(super) fn new() -> Fragile {
        let fuse = Arc::new(Fuse::new());
        Fragile { fuse, store: Arc::new(MemoryStore::new()), heap: Arc::new(durable_heap()) }
    }

    pub(super) fn open(&self) -> Rig {
        self.open_with(options())
    }

    pub(super) fn open_with(&self, options: Options) -> Rig {
        let heap = Target { inner: self.heap.clone(), fuse: self.fuse.clone() };
        let store = Log { inner: self.store.clone(), fuse: self.fuse.clone() };
        Rig::over(Arc::new(store), Arc::new(heap), options).unwrap()
    }
}
