//! One answer out of those of several targets.

use std::sync::{Arc, Mutex, PoisonError};

use iov_layout::{Piece, Stripes};
use iov_types::{Capability, Clause, Error, Evidence, Kind, ObjectOp, ObjectVerb, Outcome, Result};

use super::{Inner, read, shape, split, table::Lined};
use crate::{Memory, OpCx, Sink, Submitted};

/// What came of a part.
pub(super) struct Part {
    /// The position of its target in the line.
    pub(super) index: usize,
    pub(super) piece: Option<Piece>,
    pub(super) result: Result<Evidence>,
}

/// What is asked, and of whom.
pub(super) struct Asked {
    pub(super) cx: OpCx,
    pub(super) op: ObjectOp,
    pub(super) lined: Arc<Lined>,
    pub(super) stripes: Stripes,
    /// Of a read: all of it, which nobody touches while parts of it are lent.
    pub(super) memory: Memory,
    pub(super) inner: Arc<Inner>,
    /// How often it was tried before.
    pub(super) attempt: u32,
    /// Where the answer goes.
    pub(super) index: usize,
    pub(super) sink: Arc<dyn Sink>,
}

/// An operation of which parts are under way.
pub(super) struct Gather {
    state: Mutex<State>,
}

struct State {
    left: usize,
    parts: Vec<Part>,
    /// Until the last part has come.
    asked: Option<Asked>,
}

/// A part of an operation on its way, for the sink of a target.
pub(super) enum Route {
    /// All of it.
    All(usize, Arc<dyn Sink>),
    /// One of several.
    Part(Arc<Gather>, usize, Option<Piece>),
}

impl Route {
    fn arrived(&self, evidence: Result<Evidence>) {
        match self {
            Route::All(index, sink) => sink.complete(*index, evidence),
            Route::Part(gather, index, piece) => {
                gather.arrived(Part { index: *index, piece: *piece, result: evidence })
            }
        }
    }

    fn sink(&self) -> Option<Arc<dyn Sink>> {
        match self {
            Route::All(_, sink) => Some(sink.clone()),
            Route::Part(gather, ..) => gather.lock().asked.as_ref().map(|asked| asked.sink.clone()),
        }
    }
}

/// What goes to one target.
pub(super) struct Routes(pub(super) Vec<Route>);

impl Sink for Routes {
    fn complete(&self, index: usize, evidence: Result<Evidence>) {
        if let Some(route) = self.0.get(index) {
            route.arrived(evidence);
        }
    }

    fn go_on(&self, work: Box<dyn FnOnce() + Send>) {
        // All of a submission have the same one.
        match self.0.iter().find_map(Route::sink) {
            Some(sink) => sink.go_on(work),
            None => work(),
        }
    }
}

impl Gather {
    /// The parts of an operation, each with where it goes. An operation that is wrong is answered at once.
    pub(super) fn begin(asked: Asked) -> Vec<(usize, Submitted, Route)> {
        let parts = match split::parts(&asked.lined, &asked.stripes, &asked.op, &asked.memory) {
            Ok(parts) => parts,
            Err(e) => {
                asked.sink.complete(asked.index, Err(e));
                return Vec::new();
            }
        };
        let state = State { left: parts.len(), parts: Vec::with_capacity(parts.len()), asked: Some(asked) };
        let gather = Arc::new(Gather { state: Mutex::new(state) });
        let route = |part: split::Part| {
            let route = Route::Part(gather.clone(), part.index, part.piece);
            (part.index, part.submitted, route)
        };
        parts.into_iter().map(route).collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn arrived(&self, part: Part) {
        let mut state = self.lock();
        state.parts.push(part);
        state.left -= 1;
        if state.left > 0 {
            return;
        }
        let (asked, mut parts) = (state.asked.take(), std::mem::take(&mut state.parts));
        drop(state);
        let Some(asked) = asked else { return };
        parts.sort_by_key(|part| (part.piece.map(|piece| piece.offset), part.index));
        finish(asked, parts);
    }
}

fn finish(asked: Asked, parts: Vec<Part>) {
    let answer = match asked.op.verb {
        ObjectVerb::Read { .. } if asked.stripes.width() > 1 => return read::finish(asked, parts),
        ObjectVerb::Extents { range, max } => shape::merge(&asked.lined, &asked.stripes, range, max, parts),
        _ => combine(&asked, parts),
    };
    asked.sink.complete(asked.index, answer);
}

/// The error that says most; one that came behind an effect of another part says so.
pub(super) fn worst(parts: &[Part], changes: bool) -> Option<Error> {
    let errors = || parts.iter().filter_map(|part| part.result.as_ref().err());
    // That one target has nothing of it says nothing as long as another does not answer.
    let unknown = errors().find(|e| e.outcome() != Outcome::NotApplied);
    let worst = unknown.or_else(|| errors().find(|e| e.kind() != Kind::NotFound)).or_else(|| errors().next())?;
    // What one has and another has not is to be repeated.
    let differ = worst.outcome() != Outcome::NotApplied
        && errors().any(|e| e.outcome() == Outcome::NotApplied && e.kind() != Kind::NotFound);
    let partly = changes && (differ || parts.iter().any(|part| part.result.is_ok()));
    Some(if partly { worst.clone().with_outcome(Outcome::Unknown) } else { worst.clone() })
}

/// What is known of the whole by what is known of its parts.
pub(super) fn sum(stripes: &Stripes, parts: &[Part]) -> Evidence {
    let mut all = Evidence::default();
    let mut durability = None;
    // A target that had several pieces has told of its object several times.
    let mut last: Vec<Option<&Evidence>> = vec![None; stripes.width()];
    for part in parts {
        let Ok(e) = &part.result else { continue };
        all.bytes += e.bytes;
        let known = &mut last[part.index];
        if known.is_none_or(|known| known.size <= e.size) {
            *known = Some(e);
        }
        // What is not there survives everything.
        durability = [durability, e.durability].into_iter().flatten().min();
    }
    for (index, e) in last.iter().enumerate() {
        let Some(e) = e else { continue };
        all.size = all.size.max(stripes.reach(index, e.size));
        all.allocated += e.allocated;
        // It grows when that of any part does.
        all.version += e.version;
        all.epoch = all.epoch.max(e.epoch);
        all.mtime_ns = all.mtime_ns.max(e.mtime_ns);
    }
    all.durability = durability;
    all
}

fn combine(asked: &Asked, mut parts: Vec<Part>) -> Result<Evidence> {
    if asked.stripes.width() == 1 && parts.len() == 1 {
        return parts.remove(0).result;
    }
    let verb = &asked.op.verb;
    let looks = matches!(verb, ObjectVerb::Stat | ObjectVerb::Read { .. });
    if let Some(e) = worst(&parts, !looks) {
        return Err(e);
    }
    if matches!(verb, ObjectVerb::Stat) && asked.op.demand.stage.is_none() {
        check_whole(&asked.lined, &parts)?;
    }
    let offset = match verb {
        ObjectVerb::Write { offset } | ObjectVerb::Read { offset } => *offset,
        _ => 0,
    };
    Ok(Evidence { offset, ..sum(&asked.stripes, &parts) })
}

/// Whether objects of a medium are there from their making on, so that one that is not has been lost.
fn tells_of_making(medium: &str) -> bool {
    [Capability::FILES, Capability::SHARED_MEMORY].contains(&medium)
}

/// All objects of a collection are made together: where only some are there, bytes are gone (P1).
fn check_whole(lined: &Lined, parts: &[Part]) -> Result<()> {
    let there = |part: &Part| part.result.as_ref().is_ok_and(|e| e.size > 0 || e.mtime_ns != 0);
    let gone = |part: &&Part| !there(part) && tells_of_making(lined.capabilities[part.index].medium);
    match parts.iter().find(gone) {
        Some(part) if parts.iter().any(there) => {
            let capability = &lined.capabilities[part.index];
            let kind = if capability.is_memory() { Kind::Lost } else { Kind::Corrupt };
            Err(Error::new(
                kind,
                format!(
                    "a part of the bytes was on target {}, in {}, which has it no more: delete the collection and make it \
                     again, or restore it from a copy",
                    lined.numbers[part.index], capability.medium
                ),
            )
            .with_clause(Clause::P1))
        }
        _ => Ok(()),
    }
}
