//! What the catalog asks of targets.

use std::sync::{
    Arc, Condvar, Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use iov_store::{Backend, Memory, OpCx, Sink, seam};
use iov_types::{Capability, Demand, Error, Evidence, ObjectId, ObjectOp, ObjectVerb, Result, Uuid, limits};

/// The targets, and a count of what was asked of them.
pub(crate) struct Targets {
    backend: Arc<dyn Backend>,
    asked: AtomicU64,
}

/// Collects the evidence of one submission.
struct Collect {
    slots: Mutex<(Vec<Option<Result<Evidence>>>, usize)>,
    all: Condvar,
}

impl Sink for Collect {
    fn complete(&self, index: usize, evidence: Result<Evidence>) {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let (items, left) = &mut *slots;
        if items.get(index).is_some_and(Option::is_none) {
            items[index] = Some(evidence);
            *left -= 1;
            if *left == 0 {
                self.all.notify_all();
            }
        }
    }
}

/// The first of the collection's objects: so far there is one.
pub(crate) fn object(collection: Uuid) -> ObjectId {
    ObjectId { collection, slot: 0 }
}

/// An operation that demands at most an epoch (0 = any).
pub(crate) fn op(collection: Uuid, verb: ObjectVerb, epoch: u64) -> ObjectOp {
    ObjectOp { object: object(collection), verb, demand: Demand { epoch, ..Demand::default() } }
}

impl Targets {
    pub(crate) fn new(backend: Arc<dyn Backend>) -> Targets {
        Targets { backend, asked: AtomicU64::new(0) }
    }

    pub(crate) fn capability(&self) -> &Capability {
        self.backend.capability()
    }

    /// Operations asked so far.
    pub(crate) fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }

    /// Runs operations and waits for all of them; answers in their order. Writers of facts wait meanwhile, so that even
    /// a caller without a deadline gets one.
    pub(crate) fn run(&self, cx: &OpCx, ops: Vec<ObjectOp>) -> Vec<Result<Evidence>> {
        if ops.is_empty() {
            return Vec::new();
        }
        self.asked.fetch_add(ops.len() as u64, Ordering::Relaxed);
        let latest = seam::monotonic_ns().saturating_add(limits::DEFAULT_DEADLINE_NS);
        let cx = OpCx { deadline_ns: cx.deadline_ns.min(latest), ..cx.clone() };
        let n = ops.len();
        let collect = Arc::new(Collect {
            slots: Mutex::new(((0..n).map(|_| None).collect(), n)),
            all: Condvar::new(),
        });
        self.backend.submit(&cx, ops.into_iter().map(|op| (op, Memory::default())).collect(), collect.clone());
        let mut slots = collect.slots.lock().unwrap_or_else(PoisonError::into_inner);
        while slots.1 > 0 {
            // Targets keep the deadline.
            slots = collect.all.wait(slots).unwrap_or_else(PoisonError::into_inner);
        }
        slots.0.drain(..).flatten().collect()
    }

    fn last(&self, cx: &OpCx, ops: Vec<ObjectOp>) -> Result<Evidence> {
        let mut last = Err(Error::internal("nothing was asked of the target"));
        for evidence in self.run(cx, ops) {
            last = Ok(evidence?);
        }
        last
    }

    /// Length, space, times.
    pub(crate) fn stat(&self, cx: &OpCx, uuid: Uuid) -> Result<Evidence> {
        self.last(cx, vec![op(uuid, ObjectVerb::Stat, 0)])
    }

    /// Raises the epoch.
    pub(crate) fn fence(&self, cx: &OpCx, uuid: Uuid, epoch: u64) -> Result<()> {
        let ops = vec![op(uuid, ObjectVerb::Create, 0), op(uuid, ObjectVerb::Fence { epoch }, 0)];
        self.last(cx, ops).map(drop)
    }

    /// Seals, and tells what was sealed.
    pub(crate) fn seal(&self, cx: &OpCx, uuid: Uuid, epoch: u64) -> Result<Evidence> {
        let ops = vec![
            op(uuid, ObjectVerb::Create, 0),
            op(uuid, ObjectVerb::Seal, epoch),
            op(uuid, ObjectVerb::Stat, 0),
        ];
        self.last(cx, ops)
    }
}
