//! Copies between targets, through the memory of whoever asks, and around holes. What is copied is of one publication of the
//! source, with its length and its holes (M1): if one has come across, the copy begins anew.

use std::sync::{Arc, Mutex, PoisonError};

use iov_types::{
    Clause, Demand, Error, Evidence, Extent, ExtentKind, ObjectId, ObjectOp, ObjectVerb, Outcome, Range, Result,
};

use super::{
    chain::Chain,
    cut::Done,
    run::{Step, no_place},
};
use crate::{Memory, objects::whole_units};

/// Most bytes under way at a time, unless they are staged or their units are larger.
const PIECE: u64 = 4 << 20;
/// Holes from this size on stay holes.
const HOLE: u64 = 1 << 20;
/// How often a copy begins that publications come across.
const ATTEMPTS: u32 = 64;
/// Data and holes asked for at a time.
const EXTENTS: usize = 256;

static ZERO: [u8; 1] = [0];

struct Copy {
    step: Step,
    op: ObjectOp,
    source: ObjectId,
    from: u64,
    to: u64,
    /// Bytes to copy, if the source has as many.
    asked: u64,
    chain: Chain,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Bytes to copy, once the length of the source is known.
    len: u64,
    copied: u64,
    /// The version of the source at the beginning.
    version: u64,
    attempt: u32,
    last: Evidence,
    /// What is known of what comes next in the source, in order.
    extents: Vec<Extent>,
    buffer: Vec<u8>,
    next: Next,
    done: Option<Done>,
}

/// What comes next.
#[derive(Clone, Copy, Default)]
enum Next {
    #[default]
    Look,
    /// Whether the source is as it was.
    Check,
    Shape,
    Read,
    Write(u64),
    /// A hole of so many bytes, and what marks its end.
    Punch(u64),
    Mark(u64),
}

/// Copies.
pub(super) fn start(step: Step, op: ObjectOp, done: Done) {
    let ObjectVerb::Copy { source, source_offset, offset, len } = op.verb else { return done(Err(no_place())) };
    let ranges = Range::new(source_offset, len).and_then(|from| Ok((from, Range::new(offset, len)?)));
    match ranges {
        Err(e) => return done(Err(e)),
        Ok((from, to)) if source == op.object && from.overlaps(&to) => {
            return done(Err(Error::invalid("source and target of a copy overlap; copy through another object")));
        }
        Ok(_) => {}
    }
    let state = Mutex::new(State { len, done: Some(done), ..State::default() });
    let copy = Copy { step, op, source, from: source_offset, to: offset, asked: len, chain: Chain::default(), state };
    Arc::new(copy).go_on();
}

impl State {
    /// A piece was written: what follows.
    fn goes_on(&mut self) -> bool {
        self.next = if self.copied < self.len { Next::Shape } else { Next::Check };
        true
    }
}

impl Copy {
    fn go_on(self: &Arc<Copy>) {
        self.chain.kick(|| self.next());
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, answer: Result<Evidence>) {
        let (done, partly) = {
            let mut state = self.lock();
            // Before the end of a hole is marked, the hole has been made.
            let partly = state.copied > 0 || state.attempt > 0 || matches!(state.next, Next::Mark(_));
            (state.done.take(), partly)
        };
        let answer = answer.map_err(|e| if partly { e.with_outcome(Outcome::Unknown) } else { e });
        if let Some(done) = done {
            done(answer);
        }
    }

    /// Asks for the next thing; what comes of it decides what follows.
    fn ask(
        self: &Arc<Copy>,
        object: ObjectId,
        verb: ObjectVerb,
        demand: Demand,
        memory: Memory,
        arrived: fn(&Copy, &mut State, Evidence) -> bool,
    ) {
        let copy = self.clone();
        let op = ObjectOp { object, verb, demand };
        self.step.ask(op, memory, move |found| copy.arrived(found, arrived));
    }

    /// All was copied; it must be of one publication.
    fn checked(self: &Arc<Copy>, found: Result<Evidence>) {
        let found = match found {
            Ok(found) => found,
            Err(e) => return self.end(Err(e)),
        };
        let same = {
            let mut state = self.lock();
            let left = found.size.saturating_sub(self.from).min(self.asked);
            if found.version == state.version {
                true
            } else if state.attempt < ATTEMPTS && left >= state.copied {
                // Over what was copied: nothing else is left of it.
                let (attempt, done) = (state.attempt + 1, state.done.take());
                *state = State { len: self.asked, attempt, done, ..State::default() };
                false
            } else {
                drop(state);
                let e = "the source was published anew while it was copied: copy it once more";
                return self.end(Err(Error::conflict(e).with_clause(Clause::M1)));
            }
        };
        if same { self.copied() } else { self.go_on() }
    }

    fn copied(&self) {
        let (bytes, last) = {
            let mut state = self.lock();
            (state.copied, std::mem::take(&mut state.last))
        };
        self.end(Ok(Evidence { bytes, offset: self.to, ..last }));
    }

    fn arrived(self: &Arc<Copy>, found: Result<Evidence>, arrived: fn(&Copy, &mut State, Evidence) -> bool) {
        let found = match found {
            Ok(found) => found,
            Err(e) => return self.end(Err(e)),
        };
        let goes_on = arrived(self, &mut self.lock(), found);
        if goes_on {
            return self.go_on();
        }
        self.copied();
    }

    fn next(self: &Arc<Copy>) {
        let reader = Demand { stage: self.op.demand.stage, ..Demand::default() };
        let mut state = self.lock();
        let (next, copied, len) = (state.next, state.copied, state.len);
        if copied > 0 && self.step.cx.left_ns() == 0 {
            drop(state);
            let why = format!("the deadline passed after {copied} of {len} bytes were copied");
            return self.end(Err(Error::timeout(why).with_clause(Clause::O8)));
        }
        match next {
            Next::Look => {
                drop(state);
                let arrived = |copy: &Copy, state: &mut State, found: Evidence| {
                    state.len = state.len.min(found.size.saturating_sub(copy.from));
                    state.version = found.version;
                    state.next = Next::Shape;
                    state.len > 0
                };
                self.ask(self.source, ObjectVerb::Stat, reader, Memory::default(), arrived);
            }
            Next::Check => {
                drop(state);
                let copy = self.clone();
                let op = ObjectOp { object: self.source, verb: ObjectVerb::Stat, demand: reader };
                self.step.ask(op, Memory::default(), move |found| copy.checked(found));
            }
            Next::Shape if self.op.demand.stage.is_some() || !state.extents.is_empty() || len - copied < HOLE => {
                state.next = self.by_shape(&mut state);
                drop(state);
                self.go_on();
            }
            Next::Shape => {
                drop(state);
                let range = Range { offset: self.from + copied, len: len - copied };
                let arrived = |copy: &Copy, state: &mut State, found: Evidence| {
                    state.extents = found.extents;
                    state.extents.reverse();
                    state.next = copy.by_shape(state);
                    true
                };
                let verb = ObjectVerb::Extents { range, max: EXTENTS };
                self.ask(self.source, verb, reader, Memory::default(), arrived);
            }
            Next::Read => {
                let want = match self.piece(&state) {
                    Ok(want) => want,
                    Err(e) => {
                        drop(state);
                        return self.end(Err(e));
                    }
                };
                state.buffer.clear();
                if state.buffer.try_reserve_exact(want).is_err() {
                    drop(state);
                    return self.end(Err(Error::exhausted("no memory to copy through")));
                }
                state.buffer.resize(want, 0);
                // SAFETY: the buffer is neither moved nor touched before the answer has arrived, as nothing else is under way.
                let memory = unsafe { Memory::writable(state.buffer.as_mut_ptr(), want) };
                drop(state);
                let arrived = |_: &Copy, state: &mut State, found: Evidence| {
                    if found.bytes < state.buffer.len() as u64 {
                        // The source was cut meanwhile.
                        state.len = state.copied + found.bytes;
                    }
                    state.next = if found.bytes > 0 { Next::Write(found.bytes) } else { Next::Check };
                    true
                };
                let verb = ObjectVerb::Read { offset: self.from + copied };
                self.ask(self.source, verb, reader, memory, arrived);
            }
            Next::Write(bytes) => {
                // SAFETY: as above.
                let memory = unsafe { Memory::readable(state.buffer.as_ptr(), bytes as usize) };
                drop(state);
                self.write(ObjectVerb::Write { offset: self.to + copied }, memory, |_, state, found| {
                    state.copied += found.bytes;
                    state.last = found;
                    state.goes_on()
                });
            }
            Next::Punch(bytes) => {
                drop(state);
                let hole = Range { offset: self.to + copied, len: bytes };
                self.write(ObjectVerb::Punch(hole), Memory::default(), |_, state, _| {
                    if let Next::Punch(bytes) = state.next {
                        state.next = Next::Mark(bytes);
                    }
                    true
                });
            }
            Next::Mark(bytes) => {
                drop(state);
                let verb = ObjectVerb::Write { offset: self.to + copied + bytes - 1 };
                self.write(verb, Memory::constant(&ZERO), |_, state, found| {
                    if let Next::Mark(bytes) = state.next {
                        state.copied += bytes;
                    }
                    state.last = found;
                    state.goes_on()
                });
            }
        }
    }

    /// Writes as if it were asked by whoever asked for the copy: in order, and within the limit.
    fn write(self: &Arc<Copy>, verb: ObjectVerb, memory: Memory, arrived: fn(&Copy, &mut State, Evidence) -> bool) {
        let copy = self.clone();
        let op = ObjectOp { verb, ..self.op.clone() };
        self.step.share().perform(op, memory, Box::new(move |found| copy.arrived(found, arrived)));
    }

    /// Whether bytes or a hole come next.
    fn by_shape(&self, state: &mut State) -> Next {
        let at = self.from + state.copied;
        while state.extents.last().is_some_and(|extent| extent.range.end() <= at) {
            state.extents.pop();
        }
        let hole = state.extents.last().filter(|e| e.kind != ExtentKind::Data && e.range.offset <= at);
        let left = state.len - state.copied;
        let hole = hole.map_or(0, |hole| (hole.range.end() - at).min(left));
        // Up to where a unit ends: the rest of it is written with what follows (M1).
        let hole = if hole < left { whole_units(&self.op.demand, self.to + state.copied, hole) } else { hole };
        match hole {
            bytes if bytes >= HOLE => Next::Punch(bytes),
            _ => Next::Read,
        }
    }

    /// How much to copy at once: all of it into a stage, which holds it anyway; else whole units (M1), and up to where a hole
    /// begins.
    fn piece(&self, state: &State) -> Result<usize> {
        let left = state.len - state.copied;
        let piece = if self.op.demand.stage.is_some() {
            left.min(PIECE)
        } else {
            let (at, unit) = (self.to + state.copied, self.op.demand.unit.max(1));
            let end = (at + PIECE.max(unit)) / unit * unit;
            left.min(end - at)
        };
        usize::try_from(piece).map_err(|_| Error::exhausted("no memory to copy through"))
    }
}
