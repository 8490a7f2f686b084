//! A target that nothing changes, as a catalog wants it: what it asks to change when it is opened and used is answered as if
//! it were done, where nobody sees a difference, and else refused.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, PoisonError, RwLock},
};

use iov_store::{Backend, Bytes, Memory, OpCx, Sink, Submitted, run_all};
use iov_types::{
    Capability, Clause, Demand, Error, Evidence, Kind, ObjectId, ObjectOp, ObjectVerb, Persistence, Result, Uuid,
};

use crate::hold::Hold;

/// What a batch has staged for an object.
pub(crate) type Staged = (Uuid, ObjectId);

/// What the catalog believes to have done.
#[derive(Default)]
struct Done {
    /// Batches that are committed, and whose changes are read through their stages.
    published: HashMap<ObjectId, Uuid>,
    removed: HashSet<ObjectId>,
}

/// The target, and the lock that keeps daemons away as long as anybody reads it.
pub(crate) struct Still {
    inner: Arc<dyn Backend>,
    capability: Capability,
    staged: HashSet<Staged>,
    done: RwLock<Done>,
    _hold: Arc<Hold>,
}

/// What reading promises is decided: where a store in files has been copied to, and how long that lasts, is of no concern.
fn as_it_was(capability: &Capability) -> Capability {
    let mut capability = capability.clone();
    if capability.medium == Capability::FILES {
        capability.durability = Persistence::Durable;
    }
    capability
}

fn gone() -> Error {
    Error::not_found("the collection was deleted").with_clause(Clause::O10)
}

impl Still {
    /// `staged`: what there is in stages.
    pub(crate) fn new(inner: Arc<dyn Backend>, staged: HashSet<Staged>, hold: Arc<Hold>) -> Still {
        Still { capability: as_it_was(inner.capability()), inner, staged, done: RwLock::default(), _hold: hold }
    }

    /// The facts of an object; of one that is not there, nothing.
    pub(crate) fn facts(&self, cx: &OpCx, object: ObjectId) -> Result<Evidence> {
        let (stage, removed) = {
            let done = self.done.read().unwrap_or_else(PoisonError::into_inner);
            (done.published.get(&object).copied(), done.removed.contains(&object))
        };
        if removed {
            return Ok(Evidence::default());
        }
        let op = ObjectOp { object, verb: ObjectVerb::Stat, demand: Demand { stage, ..Demand::default() } };
        let evidence = run_all(&*self.inner, cx, vec![(op, Bytes::None)]).pop();
        match evidence.map(|(evidence, _)| evidence) {
            Some(Err(e)) if e.kind() == Kind::NotFound => Ok(Evidence::default()),
            // The record knows when the batch has changed it.
            Some(Ok(evidence)) if stage.is_some() && evidence.size > 0 => Ok(Evidence { mtime_ns: 0, ..evidence }),
            Some(evidence) => evidence,
            None => Err(Error::internal("a target did not answer")),
        }
    }

    /// Answers what would change something.
    fn pretend(&self, cx: &OpCx, op: &ObjectOp) -> Result<Evidence> {
        match &op.verb {
            // Of these nothing is to be seen in what is read afterwards.
            ObjectVerb::Create | ObjectVerb::Fence { .. } | ObjectVerb::Seal | ObjectVerb::Sync => {}
            ObjectVerb::Freeze { .. } | ObjectVerb::Discard { .. } | ObjectVerb::Thaw { .. } => {}
            ObjectVerb::Remove => {
                self.done.write().unwrap_or_else(PoisonError::into_inner).removed.insert(op.object);
                return Ok(Evidence::default());
            }
            // Behind its point P: from here on it is shown (B3). One that is not there any more had been published.
            ObjectVerb::Publish { stage } if self.staged.contains(&(*stage, op.object)) => {
                self.done.write().unwrap_or_else(PoisonError::into_inner).published.insert(op.object, *stage);
            }
            ObjectVerb::Publish { .. } => {}
            _ => return Err(Error::denied("the store is read without its daemon: nothing in it can be changed so")),
        }
        self.facts(cx, op.object)
    }

    fn read(&self, cx: &OpCx, index: usize, mut op: ObjectOp, memory: Memory, sink: &Arc<dyn Sink>) {
        {
            let done = self.done.read().unwrap_or_else(PoisonError::into_inner);
            if done.removed.contains(&op.object) {
                drop(done);
                return sink.complete(index, Err(gone()));
            }
            op.demand.stage = op.demand.stage.or_else(|| done.published.get(&op.object).copied());
        }
        self.inner.submit(cx, vec![(op, memory)], Arc::new(At(index, sink.clone())));
    }
}

/// A catalog lists what is damaged as it was, and tells who uses it. What is not finished is to be no obstacle either.
fn as_damage(e: Error) -> Error {
    match (e.kind(), e.clause()) {
        (Kind::Unavailable, Some(clause)) => Error::corrupt(e.detail()).with_clause(clause),
        _ => e,
    }
}

/// Evidence of one operation, at its place among others.
struct At(usize, Arc<dyn Sink>);

impl Sink for At {
    fn complete(&self, _: usize, evidence: Result<Evidence>) {
        self.1.complete(self.0, evidence);
    }
}

impl Backend for Still {
    fn capability(&self) -> &Capability {
        &self.capability
    }

    fn submit(&self, cx: &OpCx, ops: Vec<Submitted>, sink: Arc<dyn Sink>) {
        for (index, (op, memory)) in ops.into_iter().enumerate() {
            match op.verb {
                ObjectVerb::Read { .. } | ObjectVerb::Extents { .. } | ObjectVerb::List { .. } => {
                    self.read(cx, index, op, memory, &sink);
                }
                ObjectVerb::Stat => sink.complete(index, self.facts(cx, op.object).map_err(as_damage)),
                _ => sink.complete(index, self.pretend(cx, &op)),
            }
        }
    }
}
