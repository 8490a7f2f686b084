//! The end of a read from several targets: what is short on one of them may be a hole, or the end.

use std::sync::{Arc, Mutex, PoisonError};

use iov_types::{Evidence, ObjectOp, ObjectVerb, Outcome, Place, Result};

use super::gather::{Asked, Part, sum, worst};
use crate::{Memory, Sink};

/// All parts have come.
pub(super) fn finish(asked: Asked, parts: Vec<Part>) {
    if let Some(e) = worst(&parts, false) {
        let e = if e.outcome() == Outcome::Unknown { e.with_outcome(Outcome::NotApplied) } else { e };
        return asked.sink.complete(asked.index, Err(e));
    }
    let found = sum(&asked.stripes, &parts);
    let end = end_of(&asked);
    let full = parts.iter().all(|part| moved(part) == part.piece.map_or(0, |piece| piece.len));
    if full || found.size >= end {
        return answer(&asked, &parts, found);
    }
    // The others know whether it goes on behind.
    let asks = |index: usize| !parts.iter().any(|part| part.index == index);
    let others: Vec<usize> = (0..asked.lined.backends.len()).filter(|index| asks(*index)).collect();
    if others.is_empty() {
        return answer(&asked, &parts, found);
    }
    ask_others(asked, parts, others);
}

fn end_of(asked: &Asked) -> u64 {
    let ObjectVerb::Read { offset } = asked.op.verb else { return 0 };
    offset.saturating_add(asked.memory.len() as u64)
}

fn moved(part: &Part) -> u64 {
    part.result.as_ref().map_or(0, |e| e.bytes)
}

/// Waits for the lengths of the objects that were not read from.
struct Others {
    state: Mutex<Waiting>,
    sink: Arc<dyn Sink>,
}

struct Waiting {
    left: usize,
    found: Evidence,
    /// Until the answer has been given.
    read: Option<(Asked, Vec<Part>)>,
}

/// One of them.
struct Other {
    of: Arc<Others>,
    index: usize,
}

impl Sink for Other {
    fn complete(&self, _: usize, evidence: Result<Evidence>) {
        let mut state = self.of.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.left -= 1;
        let Some((asked, _)) = &state.read else { return };
        match evidence {
            Ok(e) => {
                let reach = asked.stripes.reach(self.index, e.size);
                state.found.size = state.found.size.max(reach);
                state.found.mtime_ns = state.found.mtime_ns.max(e.mtime_ns);
            }
            Err(e) => {
                // Nobody knows where it ends.
                let read = state.read.take();
                drop(state);
                if let Some((asked, _)) = read {
                    asked.sink.complete(asked.index, Err(e));
                }
                return;
            }
        }
        if state.left > 0 {
            return;
        }
        let (found, read) = (std::mem::take(&mut state.found), state.read.take());
        drop(state);
        if let Some((asked, parts)) = read {
            answer(&asked, &parts, found);
        }
    }

    fn go_on(&self, work: Box<dyn FnOnce() + Send>) {
        self.of.sink.go_on(work);
    }
}

fn ask_others(asked: Asked, parts: Vec<Part>, others: Vec<usize>) {
    let (cx, lined, op) = (asked.cx.clone(), asked.lined.clone(), asked.op.clone());
    let found = sum(&asked.stripes, &parts);
    let sink = asked.sink.clone();
    let state = Mutex::new(Waiting { left: others.len(), found, read: Some((asked, parts)) });
    let of = Arc::new(Others { state, sink });
    for index in others {
        let object = Place::part(op.object.collection, index);
        let stat = ObjectOp { object, verb: ObjectVerb::Stat, demand: op.demand.clone() };
        let sink = Arc::new(Other { of: of.clone(), index });
        lined.backends[index].submit(&cx, vec![(stat, Memory::default())], sink);
    }
}

/// Puts zeros where nothing lies, up to the end of the collection.
fn answer(asked: &Asked, parts: &[Part], found: Evidence) {
    let ObjectVerb::Read { offset } = asked.op.verb else { return };
    let end = end_of(asked).min(found.size).max(offset);
    // What was read is there, even if the collection has been cut since.
    let read = parts.iter().filter(|part| moved(part) > 0);
    let read_to = read.filter_map(|part| part.piece.map(|piece| piece.offset + moved(part))).max();
    let end = end.max(read_to.unwrap_or(0));
    for part in parts {
        let Some(piece) = part.piece else { continue };
        let (from, to) = (piece.offset + moved(part), (piece.offset + piece.len).min(end));
        if from < to {
            let mut hole = asked.memory.part((from - offset) as usize, (to - from) as usize);
            hole.bytes_mut().fill(0);
        }
    }
    let evidence = Evidence { bytes: end - offset, offset, size: found.size.max(end), ..found };
    asked.sink.complete(asked.index, Ok(evidence));
}
