//! A seal of several objects: nobody gets in at one while another is sealed already, so that what was written before the seal is
//! a beginning of what was being written (M2, T11).

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use iov_types::{Clause, Demand, Error, Evidence, Kind, ObjectId, ObjectOp, ObjectVerb, Result, Uuid};

use super::{cut::Done, run::Step};
use crate::{Memory, seam::new_uuid};

/// Seals whose targets were not all let go are remembered up to this many.
const CUT_OFF: usize = 4096;

/// The stages of seals that were cut off: a target may be frozen that could not be told. Who repeats the seal passes that under the
/// same stage, and lets everybody in again.
#[derive(Default)]
pub(super) struct CutOff(Mutex<HashMap<Uuid, Uuid>>);

impl CutOff {
    /// The stage to carry out a seal of a collection under.
    pub(super) fn stage_of(&self, collection: Uuid) -> Uuid {
        let mut stages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        stages.remove(&collection).unwrap_or_else(new_uuid)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    fn note(&self, collection: Uuid, stage: Uuid) {
        let mut stages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if stages.len() < CUT_OFF {
            stages.insert(collection, stage);
        }
    }
}

/// Seals.
pub(super) fn start(step: Step, op: ObjectOp, done: Done) {
    if op.demand.stage.is_some() {
        // Some targets have changes of it and some have none: only the former would refuse.
        let e = Error::invalid("a seal of an object over several targets, through a stage").with_clause(Clause::M2);
        return done(Err(e));
    }
    let (object, stage) = (op.object, step.inner.cut_off.stage_of(op.object.collection));
    let freeze = ObjectOp { object, verb: ObjectVerb::Freeze { stage }, demand: op.demand.clone() };
    let seal = ObjectOp { object, verb: ObjectVerb::Seal, demand: Demand { stage: Some(stage), ..op.demand.clone() } };
    let ask = step.share();
    ask.ask(freeze, Memory::default(), move |frozen| match frozen {
        // Some of it are sealed: what was cut off is brought to its end.
        Err(e) if e.kind() == Kind::Immutable => {
            end(step, object, stage, move |step| step.ask(op, Memory::default(), done));
        }
        Err(e) => end(step, object, stage, move |_| done(Err(e))),
        Ok(_) => {
            let ask = step.share();
            let sealed = move |sealed: Result<Evidence>| end(step, object, stage, move |_| done(sealed));
            ask.ask(seal, Memory::default(), sealed);
        }
    });
}

/// Lets everybody in again.
fn end(step: Step, object: ObjectId, stage: Uuid, then: impl FnOnce(Step) + Send + 'static) {
    let ask = step.share();
    let thaw = ObjectOp { object, verb: ObjectVerb::Discard { stage }, demand: Demand::default() };
    ask.ask(thaw, Memory::default(), move |thawed| {
        if thawed.is_err() {
            step.inner.cut_off.note(object.collection, stage);
        }
        then(step);
    });
}
