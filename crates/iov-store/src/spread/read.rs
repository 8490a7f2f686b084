//! The end of a read from several targets: what is short on one of them may be a hole, or the end; and what came from different
//! versions may be of different publications (M1).

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use iov_layout::Piece;
use iov_types::{Error, Evidence, ObjectOp, ObjectVerb, Outcome, Place, Range, Result};

use super::{
    gather::{Asked, Part, worst},
    run,
};
use crate::{Memory, Sink, Submitted};

/// How often a read begins anew that publications come across.
const ATTEMPTS: u32 = 64;

/// What is known of an object.
#[derive(Clone, Copy, Default)]
struct Known {
    /// How long it is, as far as that is known.
    size: Option<u64>,
    /// The version in which it was read.
    version: Option<u64>,
    mtime_ns: i64,
    epoch: u64,
}

/// All parts have come.
pub(super) fn finish(asked: Asked, parts: Vec<Part>) {
    if let Some(e) = worst(&parts, false) {
        let e = if e.outcome() == Outcome::Unknown { e.with_outcome(Outcome::NotApplied) } else { e };
        return asked.sink.complete(asked.index, Err(e));
    }
    let Some(known) = known_of(&asked, &parts) else { return again(asked) };
    let versions = versions_of(&known);
    // Of one object, or of objects of which nothing was ever published, nothing can be mixed.
    let checked = versions.len() < 2
        || asked.op.demand.stage.is_some()
        || versions.iter().all(|(_, version)| *version == 0)
        || asked.inner.seen.know(asked.op.object.collection, &versions);
    let full = parts.iter().all(|part| moved(part) == part.piece.map_or(0, |piece| piece.len));
    let reach = reach_of(&asked, &parts, &known);
    let needs_sizes = !full && reach < end_of(&asked);
    let to_ask: Vec<usize> = (0..known.len())
        .filter(|index| (needs_sizes && known[*index].size.is_none()) || (!checked && known[*index].version.is_some()))
        .collect();
    if to_ask.is_empty() {
        return fill(asked, parts, known);
    }
    Others::ask(asked, parts, known, to_ask);
}

fn end_of(asked: &Asked) -> u64 {
    let ObjectVerb::Read { offset } = asked.op.verb else { return 0 };
    offset.saturating_add(asked.memory.len() as u64)
}

fn moved(part: &Part) -> u64 {
    part.result.as_ref().map_or(0, |e| e.bytes)
}

/// What the parts tell of the objects. `None`: one was read in two versions.
fn known_of(asked: &Asked, parts: &[Part]) -> Option<Vec<Known>> {
    let mut known = vec![Known::default(); asked.stripes.width()];
    for part in parts {
        let (Ok(e), Some(piece)) = (&part.result, part.piece) else { continue };
        let known = &mut known[part.index];
        if known.version.is_some_and(|version| version != e.version) {
            return None;
        }
        known.version = Some(e.version);
        known.epoch = known.epoch.max(e.epoch);
        known.mtime_ns = known.mtime_ns.max(e.mtime_ns);
        // Who reads directly is not told how long it is, but sees where it ends.
        let read_to = piece.local + e.bytes;
        if e.size >= read_to && e.size > 0 {
            known.size = Some(known.size.unwrap_or(0).max(e.size));
        } else if e.bytes < piece.len {
            known.size = Some(known.size.unwrap_or(0).max(if e.bytes > 0 { read_to } else { 0 }));
        }
    }
    Some(known)
}

fn versions_of(known: &[Known]) -> Vec<(usize, u64)> {
    known.iter().enumerate().filter_map(|(index, known)| Some((index, known.version?))).collect()
}

/// How far the collection reaches, as far as that is known.
fn reach_of(asked: &Asked, parts: &[Part], known: &[Known]) -> u64 {
    let sizes = known.iter().enumerate().map(|(index, known)| asked.stripes.reach(index, known.size.unwrap_or(0)));
    let read = parts.iter().filter(|part| moved(part) > 0);
    let read = read.filter_map(|part| part.piece.map(|piece| piece.offset + moved(part)));
    sizes.chain(read).max().unwrap_or(0)
}

/// Reads it once more.
fn again(asked: Asked) {
    let Asked { inner, cx, op, memory, index, sink, attempt, .. } = asked;
    if attempt >= ATTEMPTS || cx.left_ns() == 0 {
        let e = "the collection is published again and again while it is read: read less at a time";
        return sink.complete(index, Err(Error::timeout(e)));
    }
    run::read_again(&inner, &cx, (index, (op, memory)), sink, attempt + 1);
}

/// Waits for what some of the objects say of themselves.
struct Others {
    state: Mutex<Waiting>,
    sink: Arc<dyn Sink>,
}

struct Waiting {
    left: usize,
    known: Vec<Known>,
    /// An object has another version than when it was read.
    changed: bool,
    /// Until the answer has been given.
    read: Option<(Asked, Vec<Part>)>,
}

/// One of them.
struct Other {
    of: Arc<Others>,
    index: usize,
}

impl Others {
    fn ask(asked: Asked, parts: Vec<Part>, known: Vec<Known>, to_ask: Vec<usize>) {
        let (cx, lined, op) = (asked.cx.clone(), asked.lined.clone(), asked.op.clone());
        let sink = asked.sink.clone();
        let state = Mutex::new(Waiting { left: to_ask.len(), known, changed: false, read: Some((asked, parts)) });
        let of = Arc::new(Others { state, sink });
        for index in to_ask {
            let object = Place::part(op.object.collection, index);
            let stat = ObjectOp { object, verb: ObjectVerb::Stat, demand: op.demand.clone() };
            let sink = Arc::new(Other { of: of.clone(), index });
            lined.backends[index].submit(&cx, vec![(stat, Memory::default())], sink);
        }
    }
}

impl Sink for Other {
    fn complete(&self, _: usize, evidence: Result<Evidence>) {
        let mut state = self.of.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.left -= 1;
        match evidence {
            Ok(e) => {
                let known = &mut state.known[self.index];
                known.size = Some(known.size.unwrap_or(0).max(e.size));
                known.mtime_ns = known.mtime_ns.max(e.mtime_ns);
                let changed = known.version.is_some_and(|version| version != e.version);
                state.changed |= changed;
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
        let (known, changed, read) = (std::mem::take(&mut state.known), state.changed, state.read.take());
        drop(state);
        let Some((asked, parts)) = read else { return };
        if changed {
            return again(asked);
        }
        // All were of these versions when the first of them was asked, behind the last byte that was read.
        let versions = versions_of(&known);
        if versions.len() > 1 && asked.op.demand.stage.is_none() {
            asked.inner.seen.learn(asked.op.object.collection, asked.stripes.width(), &versions);
        }
        fill(asked, parts, known);
    }

    fn go_on(&self, work: Box<dyn FnOnce() + Send>) {
        self.of.sink.go_on(work);
    }
}

/// What of a piece was not there when it was read, before the end.
fn gap(piece: &Piece, moved: u64, end: u64) -> Option<Range> {
    let (from, to) = (piece.offset + moved, (piece.offset + piece.len).min(end));
    (from < to).then(|| Range { offset: from, len: to - from })
}

/// Reads once more what was not there although the collection goes on behind it: it may have been written between the two, and
/// whoever has seen what came later must see that too (T18). What is not there now either is a hole.
fn fill(asked: Asked, parts: Vec<Part>, known: Vec<Known>) {
    let ObjectVerb::Read { offset } = asked.op.verb else { return };
    let end = end_of(&asked).min(reach_of(&asked, &parts, &known)).max(offset);
    let mut gaps: BTreeMap<usize, (Vec<Submitted>, Vec<usize>)> = BTreeMap::new();
    for (at, part) in parts.iter().enumerate() {
        let Some(piece) = part.piece else { continue };
        let Some(gap) = gap(&piece, moved(part), end) else { continue };
        let object = Place::part(asked.op.object.collection, part.index);
        let verb = ObjectVerb::Read { offset: piece.local + moved(part) };
        let memory = asked.memory.part((gap.offset - offset) as usize, gap.len as usize);
        let (ops, of) = gaps.entry(part.index).or_default();
        ops.push((ObjectOp { object, verb, demand: asked.op.demand.clone() }, memory));
        of.push(at);
    }
    if gaps.is_empty() {
        return answer(&asked, &parts, end, &known);
    }
    let (cx, lined, sink) = (asked.cx.clone(), asked.lined.clone(), asked.sink.clone());
    let left = gaps.values().map(|(ops, _)| ops.len()).sum();
    let state = Mutex::new(Filling { left, changed: false, failed: None, read: Some((asked, parts, known)), end });
    let filling = Arc::new((state, sink));
    for (index, (ops, of)) in gaps {
        lined.backends[index].submit(&cx, ops, Arc::new(Fill { of: filling.clone(), parts: of }));
    }
}

struct Filling {
    left: usize,
    changed: bool,
    failed: Option<Error>,
    /// Until the last of them has come: parts of the caller's memory are lent to all.
    read: Option<(Asked, Vec<Part>, Vec<Known>)>,
    end: u64,
}

/// What is read once more from one target.
struct Fill {
    of: Arc<(Mutex<Filling>, Arc<dyn Sink>)>,
    /// The parts that it belongs to.
    parts: Vec<usize>,
}

impl Sink for Fill {
    fn complete(&self, index: usize, evidence: Result<Evidence>) {
        let mut state = self.of.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.left -= 1;
        let Some((asked, parts, _)) = &mut state.read else { return };
        match evidence {
            Ok(e) => {
                let staged = asked.op.demand.stage.is_some();
                let changed = match parts.get_mut(self.parts[index]).map(|part| &mut part.result) {
                    Some(Ok(before)) => {
                        before.bytes += e.bytes;
                        // A direct read of nothing tells of no version.
                        !staged && e.version != 0 && before.version != e.version
                    }
                    _ => true,
                };
                state.changed |= changed;
            }
            Err(e) => state.failed = state.failed.take().or(Some(e)),
        }
        if state.left > 0 {
            return;
        }
        let (changed, end, read) = (state.changed, state.end, state.read.take());
        let failed = state.failed.take();
        drop(state);
        match read {
            Some((asked, ..)) if failed.is_some() => {
                let e = failed.unwrap_or_else(|| Error::internal("an error vanished"));
                asked.sink.complete(asked.index, Err(e));
            }
            Some((asked, ..)) if changed => again(asked),
            Some((asked, parts, known)) => answer(&asked, &parts, end, &known),
            None => {}
        }
    }

    fn go_on(&self, work: Box<dyn FnOnce() + Send>) {
        self.of.1.go_on(work);
    }
}

/// Puts zeros where nothing lies, up to the end of what was read.
fn answer(asked: &Asked, parts: &[Part], end: u64, known: &[Known]) {
    let ObjectVerb::Read { offset } = asked.op.verb else { return };
    for part in parts {
        let hole = part.piece.and_then(|piece| gap(&piece, moved(part), end));
        if let Some(hole) = hole {
            asked.memory.part((hole.offset - offset) as usize, hole.len as usize).bytes_mut().fill(0);
        }
    }
    let evidence = Evidence {
        bytes: end - offset,
        offset,
        size: reach_of(asked, parts, known).max(end),
        mtime_ns: known.iter().map(|known| known.mtime_ns).max().unwrap_or(0),
        epoch: known.iter().map(|known| known.epoch).max().unwrap_or(0),
        version: versions_of(known).iter().map(|(_, version)| version).sum(),
        ..Evidence::default()
    };
    asked.sink.complete(asked.index, Ok(evidence));
}
