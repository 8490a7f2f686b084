//! Changes of length over several targets.
//!
//! A collection that is made shorter at one target after the other would have holes for a moment where bytes were (C5). So the
//! cuts are staged, and the catalog has them all shown at once.

use crate::seam::new_uuid;
use iov_types::{Clause, Demand, Error, Evidence, ObjectOp, ObjectVerb, Outcome, Place, Result, Uuid, catalog::Staged};

use super::run::{Step, no_place};
use crate::Memory;

/// What came of it.
pub(super) type Done = Box<dyn FnOnce(Result<Evidence>) + Send>;

fn other(op: &ObjectOp, verb: ObjectVerb, demand: Demand) -> ObjectOp {
    ObjectOp { object: op.object, verb, demand }
}

/// What looks at the same object as an operation does.
pub(super) fn look(op: &ObjectOp) -> ObjectOp {
    let demand = Demand { stage: op.demand.stage, epoch: op.demand.epoch, ..Demand::default() };
    other(op, ObjectVerb::Stat, demand)
}

/// Makes a collection shorter or longer.
pub(super) fn start(step: Step, op: ObjectOp, done: Done) {
    let ObjectVerb::Truncate { size } = op.verb else { return done(Err(no_place())) };
    let stat = look(&op);
    let ask = step.share();
    ask.ask(stat, Memory::default(), move |found| match found {
        Err(e) => done(Err(e)),
        Ok(found) if op.demand.max_size != 0 && size > op.demand.max_size && size > found.size => {
            done(Err(too_big(size, op.demand.max_size)));
        }
        // Where it grows, whoever looks meanwhile sees it shorter or longer, with holes.
        Ok(found) if size >= found.size => {
            let grow = other(&op, ObjectVerb::Truncate { size }, Demand { max_size: 0, ..op.demand.clone() });
            step.ask(grow, Memory::default(), done);
        }
        Ok(_) => stage(step, op, size, done),
    });
}

fn stage(step: Step, op: ObjectOp, size: u64, done: Done) {
    let stage = new_uuid();
    let demand = Demand { stage: Some(stage), max_size: 0, ..op.demand.clone() };
    let staged = other(&op, ObjectVerb::Truncate { size }, demand);
    let ask = step.share();
    ask.ask(staged, Memory::default(), move |staged| match staged {
        Err(e) => drop_stage(&step, &op, stage, Err(e), done),
        Ok(_) => publish(step, op, stage, done),
    });
}

/// Answers once what was staged has been dropped.
fn drop_stage(step: &Step, op: &ObjectOp, stage: Uuid, answer: Result<Evidence>, done: Done) {
    let drop_it = other(op, ObjectVerb::Discard { stage }, Demand::default());
    step.ask(drop_it, Memory::default(), move |_| done(answer));
}

fn publish(step: Step, op: ObjectOp, stage: Uuid, done: Done) {
    let (inner, cx) = (step.inner.clone(), step.cx.clone());
    let (Some(publisher), Some(workspace), Some(place)) =
        (inner.publisher.get(), op.demand.domain, Place::of(op.object))
    else {
        return done(Err(no_place()));
    };
    let staged = Staged { workspace, collection: op.object.collection, epoch: op.demand.epoch, place };
    let shown = move |published: Result<()>| match published {
        // Nobody will show it, then.
        Err(e) if e.outcome() == Outcome::NotApplied => drop_stage(&step, &op, stage, Err(e), done),
        Err(e) => done(Err(e)),
        Ok(()) => {
            let durable = op.demand.durability.is_some();
            let verb = if durable { ObjectVerb::Sync } else { ObjectVerb::Stat };
            let demand = Demand { durability: op.demand.durability, ..Demand::default() };
            // It is shown: what fails now does not undo that (O7).
            let shown = move |looked: Result<Evidence>| done(looked.map_err(|e| e.with_outcome(Outcome::Unknown)));
            step.ask(other(&op, verb, demand), Memory::default(), shown);
        }
    };
    publisher.publish(&cx, stage, staged, Box::new(shown));
}

/// The error for bytes beyond the limit.
fn too_big(end: u64, max: u64) -> Error {
    Error::file_too_big(format!(
        "byte {end} is beyond collection_size.max = {max}; use a collection with a larger limit"
    ))
    .with_clause(Clause::H1)
}

/// A change that reaches beyond the collection's limit: that is wrong, unless it reaches no farther than the collection does.
pub(super) fn within_limit(step: Step, op: ObjectOp, memory: Memory, done: Done) {
    let end = match op.verb {
        ObjectVerb::Truncate { size } => size,
        ObjectVerb::Write { offset } => offset.saturating_add(memory.len() as u64),
        ObjectVerb::Allocate { range, .. } => range.end(),
        _ => 0,
    };
    let stat = look(&op);
    let ask = step.share();
    ask.ask(stat, memory.part(0, 0), move |found| match found {
        Err(e) => done(Err(e)),
        Ok(found) if end > found.size => done(Err(too_big(end, op.demand.max_size))),
        Ok(_) => {
            let demand = Demand { max_size: 0, ..op.demand.clone() };
            let op = ObjectOp { demand, ..op };
            match op.verb {
                // Within what there is: it does not grow.
                ObjectVerb::Write { .. } | ObjectVerb::Allocate { .. } => step.ask(op, memory, done),
                _ if step.can_publish(&op) => start(step, op, done),
                _ => step.ask(op, memory, done),
            }
        }
    });
}
