//! What the catalog asks of targets.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use iov_store::{Backend, Bytes, OpCx, run_all, seam};
use iov_types::{Capability, Demand, Error, Evidence, Kind, ObjectId, ObjectOp, ObjectVerb, Result, Uuid, limits};

/// The targets, and a count of what was asked of them.
pub(crate) struct Targets {
    backend: Arc<dyn Backend>,
    asked: AtomicU64,
    left_over: Mutex<Vec<ObjectId>>,
}

/// An operation that demands at most an epoch (0 = any).
pub(crate) fn op(object: ObjectId, verb: ObjectVerb, epoch: u64) -> ObjectOp {
    ObjectOp { object, verb, demand: Demand { epoch, ..Demand::default() } }
}

/// Makes the object of a collection of workspace `ws`, which is its protection domain (A1).
fn create(ws: Uuid, object: ObjectId) -> ObjectOp {
    let mut create = op(object, ObjectVerb::Create, 0);
    create.demand.domain = Some(ws);
    create
}

impl Targets {
    pub(crate) fn new(backend: Arc<dyn Backend>) -> Targets {
        Targets { backend, asked: AtomicU64::new(0), left_over: Mutex::default() }
    }

    pub(crate) fn capability(&self) -> &Capability {
        self.backend.capability()
    }

    /// All of them as one.
    pub(crate) fn backend(&self) -> &dyn Backend {
        &*self.backend
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
        let ops = ops.into_iter().map(|op| (op, Bytes::None)).collect();
        run_all(&*self.backend, &cx, ops).into_iter().map(|(evidence, _)| evidence).collect()
    }

    /// The same with bytes; all of them must succeed. The evidence of the last.
    pub(crate) fn run_with(&self, cx: &OpCx, ops: Vec<(ObjectOp, Bytes<'_>)>) -> Result<Evidence> {
        self.asked.fetch_add(ops.len() as u64, Ordering::Relaxed);
        let latest = seam::monotonic_ns().saturating_add(limits::DEFAULT_DEADLINE_NS);
        let cx = OpCx { deadline_ns: cx.deadline_ns.min(latest), ..cx.clone() };
        let mut last = Err(Error::internal("nothing was asked of the target"));
        for op in ops {
            // One after the other: each needs the one before.
            for (evidence, _) in run_all(&*self.backend, &cx, vec![op]) {
                last = Ok(evidence?);
            }
        }
        last
    }

    fn last(&self, cx: &OpCx, ops: Vec<ObjectOp>) -> Result<Evidence> {
        let mut last = Err(Error::internal("nothing was asked of the target"));
        for evidence in self.run(cx, ops) {
            last = Ok(evidence?);
        }
        last
    }

    /// Length, space, times; those that what is staged will lead to, for the batch that has staged it.
    pub(crate) fn stat(&self, cx: &OpCx, object: ObjectId, stage: Option<Uuid>) -> Result<Evidence> {
        let demand = Demand { stage, ..Demand::default() };
        self.last(cx, vec![ObjectOp { object, verb: ObjectVerb::Stat, demand }])
    }

    /// Makes the objects of a collection of workspace `ws`.
    pub(crate) fn make(&self, cx: &OpCx, ws: Uuid, object: ObjectId) -> Result<()> {
        // A batch that is repeated makes the same once more.
        self.lock_left_over().retain(|left| *left != object);
        self.last(cx, vec![create(ws, object)]).map(drop)
    }

    /// The same, and tells what is there then: not all targets tell that of what they make.
    pub(crate) fn make_and_stat(&self, cx: &OpCx, ws: Uuid, object: ObjectId) -> Result<Evidence> {
        self.lock_left_over().retain(|left| *left != object);
        self.last(cx, vec![create(ws, object), op(object, ObjectVerb::Stat, 0)])
    }

    /// Removes objects that came to nothing. What cannot be done now is left over.
    pub(crate) fn remove(&self, cx: &OpCx, objects: Vec<ObjectId>) {
        let removed = self.run(cx, objects.iter().map(|object| op(*object, ObjectVerb::Remove, 0)).collect());
        let failed = |done: &Result<Evidence>| done.as_ref().is_err_and(|e| e.kind() != Kind::NotFound);
        let left = objects.into_iter().zip(removed).filter(|(_, done)| failed(done)).map(|(object, _)| object);
        self.lock_left_over().extend(left);
    }

    fn lock_left_over(&self) -> MutexGuard<'_, Vec<ObjectId>> {
        self.left_over.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What [`Targets::remove`] could not remove, for another try.
    pub(crate) fn take_left_over(&self) -> Vec<ObjectId> {
        std::mem::take(&mut *self.lock_left_over())
    }

    /// Raises the epoch; the object of a collection of workspace `ws` is made if there is none.
    pub(crate) fn fence(&self, cx: &OpCx, ws: Uuid, object: ObjectId, epoch: u64) -> Result<()> {
        // It is needed again.
        self.lock_left_over().retain(|left| *left != object);
        let ops = vec![create(ws, object), op(object, ObjectVerb::Fence { epoch }, 0)];
        self.last(cx, ops).map(drop)
    }

    /// Seals, and tells what was sealed; the object of a collection of workspace `ws` is made if there is none.
    pub(crate) fn seal(&self, cx: &OpCx, ws: Uuid, object: ObjectId, epoch: u64) -> Result<Evidence> {
        let ops = vec![create(ws, object), op(object, ObjectVerb::Seal, epoch), op(object, ObjectVerb::Stat, 0)];
        self.last(cx, ops)
    }
}
