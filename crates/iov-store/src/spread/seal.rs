//! A seal of several objects: nobody gets in at one while another is sealed already, so that what was written before the seal is
//! a beginning of what was being written (M2, T11).

use iov_types::{Clause, Demand, Error, Evidence, Kind, ObjectOp, ObjectVerb, Result, Uuid};

use super::{cut::Done, run::Step};
use crate::Memory;

/// Turns a collection into the stage of its seal. A seal that was cut off may leave a target frozen that could not be told; who
/// repeats it passes that, and lets everybody in again.
const SEAL: [u8; 4] = *b"seal";

/// The stage that all seals of a collection are carried out under: only one is on its way at a time.
fn stage_of(collection: Uuid) -> Uuid {
    let mut stage = collection;
    stage.0.iter_mut().zip(SEAL).for_each(|(byte, with)| *byte ^= with);
    stage
}

/// Seals.
pub(super) fn start(step: Step, op: ObjectOp, done: Done) {
    if op.demand.stage.is_some() {
        // Some targets have changes of it and some have none: only the former would refuse.
        let e = Error::invalid("a seal of an object over several targets, through a stage").with_clause(Clause::M2);
        return done(Err(e));
    }
    let stage = stage_of(op.object.collection);
    let other = |verb: ObjectVerb, demand: Demand| ObjectOp { object: op.object, verb, demand };
    let freeze = other(ObjectVerb::Freeze { stage }, op.demand.clone());
    let seal = other(ObjectVerb::Seal, Demand { stage: Some(stage), ..op.demand.clone() });
    let thaw = other(ObjectVerb::Discard { stage }, Demand::default());
    let ask = step.share();
    ask.ask(freeze, Memory::default(), move |frozen| match frozen {
        // Some of it are sealed: what was cut off is brought to its end.
        Err(e) if e.kind() == Kind::Immutable => end(step, thaw, move |step| step.ask(op, Memory::default(), done)),
        Err(e) => end(step, thaw, move |_| done(Err(e))),
        Ok(_) => {
            let ask = step.share();
            ask.ask(seal, Memory::default(), move |sealed: Result<Evidence>| end(step, thaw, move |_| done(sealed)));
        }
    });
}

/// Lets everybody in again.
fn end(step: Step, thaw: ObjectOp, then: impl FnOnce(Step) + Send + 'static) {
    let ask = step.share();
    ask.ask(thaw, Memory::default(), move |_| then(step));
}
