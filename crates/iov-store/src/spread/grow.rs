//! Writes over several targets that reach beyond the end.
//!
//! A collection reaches as far as the farthest of its objects. If the last piece of a write came first, the collection would
//! count bytes for a moment that nobody has written yet (C5, T18). So what lies behind the end goes in order, one piece after
//! the other. Whoever holds the collection alone, has made it as long as it will be before, or publishes it as a whole does not
//! pay for that: then all pieces go at once.

use std::sync::{Arc, Mutex, PoisonError};

use iov_layout::Piece;
use iov_types::{Evidence, ObjectOp, ObjectVerb, Outcome, Place, Range, Result};

use super::{
    chain::Chain,
    cut::{Done, look},
    run::{Step, no_place},
};
use crate::Memory;

struct Grow {
    step: Step,
    op: ObjectOp,
    chain: Chain,
    state: Mutex<State>,
}

struct State {
    /// What is to be written, the last piece first.
    pieces: Vec<Range>,
    memory: Memory,
    all: Evidence,
    done: Option<Done>,
}

/// Writes.
pub(super) fn start(step: Step, op: ObjectOp, memory: Memory, done: Done) {
    let ObjectVerb::Write { offset } = op.verb else { return done(Err(no_place())) };
    let known = Range::new(offset, memory.len() as u64).and_then(|range| {
        let place = Place::of(op.object).ok_or_else(no_place)?;
        Ok((range, step.inner.lined(place)?))
    });
    let (range, (lined, stripes)) = match known {
        Ok(known) => known,
        Err(e) => return done(Err(e)),
    };
    let pieces = move |range: Range| -> Vec<Range> {
        let range_of = |piece: Piece| Range { offset: piece.offset, len: piece.len };
        let mut pieces: Vec<Range> = stripes.pieces(range).map(range_of).collect();
        pieces.reverse();
        pieces
    };
    if lined.backends.iter().all(|backend| backend.is_near()) {
        return Grow::begin(step, op, memory, pieces(range), done);
    }
    let ask = step.share();
    let stat = look(&op);
    ask.ask(stat, Memory::default(), move |found| match found {
        Err(e) => done(Err(e)),
        Ok(found) if range.end() <= found.size => step.ask(op, memory, done),
        Ok(found) => {
            // What there is already goes at once.
            let inside = found.size.clamp(range.offset, range.end()) - range.offset;
            let behind = Range { offset: range.offset + inside, len: range.len - inside };
            let mut all = pieces(behind);
            if inside > 0 {
                all.push(Range { offset: range.offset, len: inside });
            }
            Grow::begin(step, op, memory, all, done);
        }
    });
}

impl Grow {
    fn begin(step: Step, op: ObjectOp, memory: Memory, pieces: Vec<Range>, done: Done) {
        let state = Mutex::new(State { pieces, memory, all: Evidence::default(), done: Some(done) });
        Arc::new(Grow { step, op, chain: Chain::default(), state }).go_on();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn go_on(self: &Arc<Grow>) {
        self.chain.kick(|| self.next());
    }

    fn next(self: &Arc<Grow>) {
        let ObjectVerb::Write { offset } = self.op.verb else { return };
        let mut state = self.lock();
        let Some(piece) = state.pieces.pop() else {
            let all = std::mem::take(&mut state.all);
            drop(state);
            return self.end(Ok(Evidence { offset, ..all }));
        };
        let memory = state.memory.part((piece.offset - offset) as usize, piece.len as usize);
        drop(state);
        let op = ObjectOp { verb: ObjectVerb::Write { offset: piece.offset }, ..self.op.clone() };
        let grow = self.clone();
        self.step.ask(op, memory, move |written| match written {
            Err(e) => {
                let partly = grow.lock().all.bytes > 0;
                grow.end(Err(if partly { e.with_outcome(Outcome::Unknown) } else { e }));
            }
            Ok(e) => {
                let mut state = grow.lock();
                let bytes = state.all.bytes + e.bytes;
                let size = state.all.size.max(e.size);
                state.all = Evidence { bytes, size, ..e };
                drop(state);
                grow.go_on();
            }
        });
    }

    fn end(&self, answer: Result<Evidence>) {
        let done = self.lock().done.take();
        if let Some(done) = done {
            done(answer);
        }
    }
}
