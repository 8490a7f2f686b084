//! Drives a target and the model through the same operations and compares what they say.

use std::sync::Arc;

use iov_store::{Backend, conformance::Probe};
use iov_types::{Demand, Evidence, Kind, ObjectId, ObjectOp, ObjectVerb, Range, Uuid};

use crate::{Model, Reply, Step};

/// How long one operation may take.
const PATIENCE_NS: i64 = 2_000_000_000;

/// Runs all steps on the target and on a fresh model; the first difference comes back as a text.
pub fn compare(target: &Arc<dyn Backend>, steps: &[Step]) -> Result<(), String> {
    run(target, Model::default(), steps)
}

/// The same for a target that knows no holes: all that an object has is data to it.
pub fn compare_dense(target: &Arc<dyn Backend>, steps: &[Step]) -> Result<(), String> {
    run(target, Model::dense(), steps)
}

fn run(target: &Arc<dyn Backend>, mut model: Model, steps: &[Step]) -> Result<(), String> {
    for (n, (op, data)) in steps.iter().enumerate() {
        step(target, &mut model, op, data).map_err(|e| format!("step {n}, {op:?} with {} bytes: {e}", data.len()))?;
    }
    look(target, &mut model).map_err(|e| format!("at the end: {e}"))
}

fn probe(target: &Arc<dyn Backend>, op: &ObjectOp) -> Probe {
    let mut probe = Probe::new(target, 0).with(|d| *d = op.demand.clone());
    probe.id = op.object;
    probe
}

fn step(target: &Arc<dyn Backend>, model: &mut Model, op: &ObjectOp, data: &[u8]) -> Result<(), String> {
    let expected = model.apply(op, data);
    // Nobody else is there: what has to wait waits for ever, and what has not needs no time.
    let probe = probe(target, op).patient(if expected == Err(Kind::Timeout) { 0 } else { PATIENCE_NS });
    let mut read = None;
    let result = if let ObjectVerb::Read { offset } = op.verb {
        probe.read(offset, data.len()).map(|bytes| {
            let evidence = Evidence { bytes: bytes.len() as u64, ..Evidence::default() };
            read = Some(bytes);
            evidence
        })
    } else {
        probe.send(op.verb.clone(), data)
    };
    match (expected, result) {
        (Err(kind), Err(e)) if e.kind() == kind => Ok(()),
        (Err(kind), other) => Err(format!("had to fail with {}, but was {other:?}", kind.c_name())),
        (Ok(_), Err(e)) => Err(format!("had to succeed, but failed: {e:?}")),
        (Ok(reply), Ok(evidence)) => differences(op, &reply, &evidence, read.as_deref()),
    }
}

fn differences(op: &ObjectOp, reply: &Reply, evidence: &Evidence, read: Option<&[u8]>) -> Result<(), String> {
    let number = |what: &str, expected: Option<u64>, is: u64| match expected {
        Some(expected) if expected != is => Err(format!("{what} is {is}, had to be {expected}")),
        _ => Ok(()),
    };
    number("bytes", reply.bytes, evidence.bytes)?;
    number("offset", reply.offset, evidence.offset)?;
    if let (Some(expected), Some(read)) = (&reply.read, read) {
        if let Some(at) = (0..expected.len().max(read.len())).find(|i| expected.get(*i) != read.get(*i)) {
            return Err(format!("byte {at} is {:?}, had to be {:?}", read.get(at), expected.get(at)));
        }
        return Ok(()); // the rest of a read's evidence stays with the probe
    }
    if op.verb != ObjectVerb::Create {
        number("size", reply.size, evidence.size)?;
        number("version", reply.version, evidence.version)?;
        number("epoch", reply.epoch, evidence.epoch)?;
    }
    match &reply.extents {
        Some(expected) if *expected != evidence.extents => {
            Err(format!("extents are {:?}, had to be {expected:?}", evidence.extents))
        }
        _ => Ok(()),
    }
}

/// Compares everything there is: the list, and each object through each of its stages.
fn look(target: &Arc<dyn Backend>, model: &mut Model) -> Result<(), String> {
    let any = Probe::new(target, 0);
    let listed =
        any.call(ObjectVerb::List { after: None, max: usize::MAX }).map_err(|e| format!("list: {e:?}"))?.objects;
    let (must, may) = model.listed();
    if must.iter().any(|id| !listed.contains(id)) || listed.iter().any(|id| !may.contains(id)) {
        return Err(format!("listed are {listed:?}, had to be {must:?}, at most {may:?}"));
    }
    for id in may {
        let (stages, frozen) = model.stages(id);
        for stage in std::iter::once(None).chain(stages.into_iter().map(Some)) {
            if frozen.is_none() || frozen == stage {
                look_through(target, model, id, stage)?;
            }
        }
    }
    Ok(())
}

fn look_through(
    target: &Arc<dyn Backend>,
    model: &mut Model,
    object: ObjectId,
    stage: Option<Uuid>,
) -> Result<(), String> {
    let demand = Demand { stage, ..Demand::default() };
    let op = |verb| ObjectOp { object, verb, demand: demand.clone() };
    let stat = op(ObjectVerb::Stat);
    let size = model.apply(&stat, &[]).ok().and_then(|r| r.size).unwrap_or(0) as usize;
    let everything = Range { offset: 0, len: u64::MAX };
    let looks = [
        (stat, vec![]),
        (op(ObjectVerb::Read { offset: 0 }), vec![0; size + 100]),
        (op(ObjectVerb::Extents { range: everything, max: usize::MAX }), vec![]),
    ];
    for (op, data) in looks {
        step(target, model, &op, &data)
            .map_err(|e| format!("object {} through {stage:?}, {:?}: {e}", object.slot, op.verb))?;
    }
    Ok(())
}
