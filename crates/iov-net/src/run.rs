//! One submission on its way: operation after operation, by direct access where that is granted.
//!
//! It never waits (O8): what it needs of the daemon is asked for, and it goes on in the thread that drives the request.

use std::{
    collections::{HashSet, VecDeque},
    sync::{Arc, Mutex, PoisonError},
};

use iov_store::{
    Memory, OpCx, Sink, Submitted,
    block_sums::{BLOCKS, BlockSum},
    seam,
};
use iov_types::{Clause, Counters, Error, Evidence, Kind, ObjectId, ObjectOp, ObjectVerb, Outcome, Range, Result};
use iov_wire::messages::{Access, GrantRequest, SumsAnswer, SumsRequest};

use crate::{
    conn::{Reply, Terms},
    direct::{Direct, Way},
    grant::{Grant, Written},
    kept::{Piece, Pieces, RUNS},
    link::Link,
};

mod grants;

/// Most pieces of checksums asked for at a time.
const PIECES_AT_ONCE: usize = 64;

/// Fewer reads are not scattered.
const SCATTERED: usize = 8;

/// Whether operations only read, and most of them different objects.
fn is_scattered(ops: &[Submitted]) -> bool {
    let objects: HashSet<ObjectId> = ops.iter().map(|(op, _)| op.object).collect();
    objects.len() * 2 > ops.len() && ops.iter().all(|(op, _)| matches!(op.verb, ObjectVerb::Read { .. }))
}

/// Whether a process may carry it out itself: no unit, stage or sync is wanted, which need the daemon.
fn by_itself(op: &ObjectOp) -> bool {
    let d = &op.demand;
    matches!(op.verb, ObjectVerb::Write { .. } | ObjectVerb::Read { .. })
        && d.stage.is_none()
        && d.unit == 0
        && d.durability.is_none()
}

/// Bytes that were read, and are still to be compared with checksums.
struct Unchecked {
    grant: Arc<Grant>,
    got: u64,
    pieces: Pieces,
}

/// How far the first operation is.
#[derive(Default)]
struct Now {
    written: u64,
    /// Some bytes may have been written besides.
    void: bool,
    /// What was asked for.
    granted: Option<Arc<Grant>>,
    read: Option<Unchecked>,
}

impl Now {
    /// The error of an operation that may have had an effect already.
    fn error(&self, e: Error) -> Error {
        if self.may_show() { e.with_outcome(Outcome::Unknown) } else { e }
    }

    fn may_show(&self) -> bool {
        self.written > 0 || self.void
    }
}

/// What an operation needs next.
enum Next {
    Done(Result<Evidence>),
    /// Leave to go on with this much of it.
    Grant(Access, Range),
    /// The checksums of what was read.
    Sums,
    /// To go by way of the daemon, from its beginning.
    Socket,
}

/// Operations under way; those on one object keep their order, so that all of them go one way.
pub(crate) struct Run {
    direct: Arc<Direct>,
    cx: OpCx,
    sink: Arc<dyn Sink>,
    ops: VecDeque<Submitted>,
    /// The place of the first.
    index: usize,
    now: Now,
    by_socket: HashSet<ObjectId>,
    /// All of them read, and most of them different objects.
    scattered: bool,
    rest: Vec<(usize, Submitted)>,
    /// Those of the rest that may have had an effect already.
    shown: HashSet<usize>,
}

impl Run {
    pub(crate) fn new(direct: Arc<Direct>, cx: &OpCx, ops: Vec<Submitted>, sink: Arc<dyn Sink>) -> Run {
        let mut by_socket: HashSet<ObjectId> =
            ops.iter().filter(|(op, _)| !by_itself(op)).map(|(op, _)| op.object).collect();
        for (op, _) in &ops {
            if let ObjectVerb::Copy { source, .. } = op.verb {
                by_socket.insert(source);
            }
        }
        let scattered = ops.len() >= SCATTERED && is_scattered(&ops);
        Run {
            direct,
            cx: cx.clone(),
            sink,
            scattered,
            ops: ops.into(),
            index: 0,
            now: Now::default(),
            by_socket,
            rest: Vec::new(),
            shown: HashSet::new(),
        }
    }

    /// Goes on until the daemon is needed.
    pub(crate) fn go(mut self) {
        while let Some((op, mut memory)) = self.ops.pop_front() {
            let next = match self.by_socket.contains(&op.object) {
                true => Next::Socket,
                false => self.step(&op, &mut memory),
            };
            match next {
                Next::Done(evidence) => self.ended(evidence),
                Next::Socket => {
                    if std::mem::take(&mut self.now).may_show() {
                        self.shown.insert(self.index);
                    }
                    self.by_socket.insert(op.object);
                    self.rest.push((self.index, (op, memory)));
                    self.index += 1;
                }
                Next::Grant(access, range) => {
                    let demand = &op.demand;
                    let request = GrantRequest {
                        context: Link::context(&self.cx),
                        object: op.object,
                        range,
                        access,
                        epoch: demand.epoch,
                        memory: false,
                        anew: false,
                        tickets: Vec::new(),
                    };
                    let stage = demand.stage;
                    self.ops.push_front((op, memory));
                    return self.ask_grant(request, stage);
                }
                Next::Sums => {
                    let object = op.object;
                    self.ops.push_front((op, memory));
                    return self.ask_sums(object);
                }
            }
        }
        let Run { direct, cx, mut sink, rest, shown, .. } = self;
        if !shown.is_empty() {
            sink = Arc::new(Shown { sink, shown });
        }
        direct.socket.send(&cx, rest, sink);
    }

    /// The first operation has its evidence.
    fn ended(&mut self, evidence: Result<Evidence>) {
        self.now = Now::default();
        self.index += 1;
        self.sink.complete(self.index - 1, evidence);
    }

    fn go_on(self, with: impl FnOnce(Run) + Send + 'static) {
        let sink = self.sink.clone();
        sink.go_on(Box::new(move || with(self)));
    }

    fn granted(mut self, taken: Result<Option<Arc<Grant>>>) {
        let Some((op, _)) = self.ops.front() else { return self.go() };
        match taken {
            Ok(Some(grant)) => self.now.granted = Some(grant),
            // From the beginning: the same bytes once more.
            Ok(None) => drop(self.by_socket.insert(op.object)),
            Err(e) => {
                let e = match e.kind() {
                    Kind::Timeout => Error::timeout("the daemon did not grant access in time").with_clause(Clause::O8),
                    _ => e,
                };
                let e = self.now.error(e);
                self.ops.pop_front();
                self.ended(Err(e));
            }
        }
        self.go();
    }

    /// Asks for checksums of what was read, so many pieces at a time, and of each only if no other does.
    fn ask_sums(self, object: ObjectId) {
        let read = self.now.read.as_ref();
        let missing: Vec<u64> = read.iter().flat_map(|read| read.pieces.missing()).take(PIECES_AT_ONCE).collect();
        let Some(up) = read.and_then(|read| read.grant.up.upgrade()) else {
            return self.go_on(|run| run.summed(true));
        };
        let (context, until, terms) = (Link::context(&self.cx), self.cx.deadline_ns, Terms::of(&self.cx));
        let (asked_ns, direct) = (seam::monotonic_ns(), self.direct.clone());
        let gather = Arc::new(Mutex::new(Gather { run: Some(self), left: missing.len(), failed: false }));
        for first in missing {
            let link = direct.link.clone();
            let another = move |gather: Arc<Mutex<Gather>>, told: Option<Option<_>>| {
                Gather::take(&gather, first, told.flatten());
            };
            let Some(gather) = link.sums_asked.join((object, first), until, gather.clone(), another) else { continue };
            Counters::add(&link.counters().round_trips, 1);
            let request = SumsRequest { context, object, first, runs: RUNS };
            let direct = direct.clone();
            let reply = Box::new(move |reply| {
                let piece = sums(reply).ok().map(|sums| direct.kept.keep(object, first, sums, asked_ns));
                direct.link.sums_asked.answered((object, first), piece.clone());
                Gather::take(&gather, first, piece);
            });
            up.connection.request_in_time(&request, Vec::new(), Vec::new(), terms, reply);
        }
    }

    fn summed(mut self, failed: bool) {
        if failed && let Some((op, _)) = self.ops.front() {
            // Whatever is the matter, the daemon will say it when it is asked for the bytes.
            self.by_socket.insert(op.object);
        }
        self.go();
    }

    /// Goes on with the first operation as far as it goes without the daemon.
    fn step(&mut self, op: &ObjectOp, memory: &mut Memory) -> Next {
        let (access, offset) = match op.verb {
            ObjectVerb::Write { offset } => (Access::Write, offset),
            ObjectVerb::Read { offset } => (Access::Read, offset),
            _ => return Next::Socket,
        };
        let len = memory.len() as u64;
        let range = match Range::new(offset, len) {
            Ok(range) => range,
            Err(e) => return Next::Done(Err(e)),
        };
        // A handle or lock that is gone, of which the target may not know: what goes by the socket hears of it.
        if self.direct.link.check(op.object.collection, op.demand.stage).is_err() {
            return Next::Socket;
        }
        if access == Access::Write && op.demand.max_size != 0 && len > 0 && range.end() > op.demand.max_size {
            // The target checks it again where it counts: this saves a grant.
            return Next::Socket;
        }
        loop {
            let moved = match self.now.read.take() {
                Some(read) => self.check(op, memory, offset, read),
                None => match self.leave(op, access, range) {
                    Ok(grant) if access == Access::Write => self.write(memory, range, grant),
                    Ok(grant) => self.read(op, memory, offset, grant),
                    Err(next) => return next,
                },
            };
            match moved {
                Moved::All(Err(e)) => return Next::Done(Err(e)),
                Moved::All(Ok((bytes, grant))) => {
                    if op.demand.once {
                        grant.forget(range.end());
                    }
                    Counters::add(&self.direct.link.counters().bytes_direct, bytes);
                    let (epoch, version) = (grant.epoch, grant.version);
                    return Next::Done(Ok(Evidence { bytes, offset, epoch, version, ..Evidence::default() }));
                }
                Moved::Part => {}
                Moved::Unchecked(read) => {
                    self.now.read = Some(read);
                    return Next::Sums;
                }
                Moved::Unclear => return Next::Socket,
                // Ask again, which waits until whatever it was taken for is over.
                Moved::Lost(grant) => self.direct.lost(op.object, &grant),
            }
        }
    }

    /// Leave to move what is left.
    fn leave(&mut self, op: &ObjectOp, access: Access, range: Range) -> std::result::Result<Arc<Grant>, Next> {
        // Of an object that is kept by checksums a writer gets one part after the other.
        let done = self.now.written;
        let left = Range { offset: range.offset + done, len: range.len - done };
        let granted = self.now.granted.take();
        let is_new = granted.is_some();
        let grant = match granted {
            Some(grant) => grant,
            None => match self.direct.way(op, access, left, done == 0, self.scattered) {
                Way::Granted(grant) => grant,
                Way::Socket => return Err(Next::Socket),
                Way::Ask if self.cx.left_ns() > 0 => return Err(Next::Grant(access, left)),
                Way::Ask => {
                    let late = Error::timeout(
                        "the deadline passed before the daemon granted access, or while it was \
                                               taken back again and again",
                    );
                    return Err(Next::Done(Err(self.now.error(late.with_clause(Clause::G1)))));
                }
            },
        };
        // What is lent to a writer in parts is written from part to part, and may be read as a whole.
        let lent = (grant.kept || grant.in_memory()) && grant.access == Access::Write;
        let enough = match (access, lent) {
            (Access::Read, _) if grant.in_memory() => grant.is_enough(left, false),
            (Access::Read, true) => true,
            (Access::Write | Access::Lent, true) => grant.covers(Range { len: left.len.min(1), ..left }),
            (_, false) => grant.covers(left),
        };
        if !enough && is_new && grant.in_memory() {
            self.direct.not_enough(op.object);
        }
        // Else it is beyond what is granted, such as what an appender has not finished yet, or a hole.
        if enough { Ok(grant) } else { Err(Next::Socket) }
    }

    fn write(&mut self, memory: &Memory, range: Range, grant: Arc<Grant>) -> Moved {
        let from = range.offset + self.now.written;
        let end = grant.range.end().min(range.end());
        let bytes = &memory.bytes()[self.now.written as usize..(end - range.offset) as usize];
        let asked = bytes.len();
        let Written { done, void, failed } = grant.write(&self.cx, bytes, from);
        self.now.written += done as u64;
        self.now.void |= void;
        if let Some(e) = failed {
            Moved::All(Err(self.now.error(e)))
        } else if void {
            Moved::Lost(grant)
        } else if self.now.written == range.len {
            Moved::All(Ok((range.len, grant)))
        } else if done == asked && done > 0 {
            Moved::Part
        } else {
            Moved::Lost(grant)
        }
    }

    fn read(&mut self, op: &ObjectOp, memory: &mut Memory, offset: u64, grant: Arc<Grant>) -> Moved {
        grant.advise(op.demand.pattern);
        let out = memory.bytes_mut();
        // The object has grown since: where to is to be asked.
        let Some(got) = grant.read_all(&self.cx, out, offset) else { return Moved::Part };
        let whole = matches!(got, Ok(got) if got == out.len() as u64);
        match got {
            Ok(got) if grant.kept && whole => {
                let pieces = self.direct.kept.pieces(op.object, offset, got);
                self.check(op, memory, offset, Unchecked { grant, got, pieces })
            }
            // What was read while the grant was taken back is void (G3).
            _ if !grant.slot.read_is_valid() => Moved::Lost(grant),
            // Whether the object ends here, or its file has lost what comes.
            Ok(_) if grant.kept => Moved::Unclear,
            Ok(got) => Moved::All(Ok((got, grant))),
            Err(e) => Moved::All(Err(e)),
        }
    }

    /// Compares what was read with the checksums, once they are there.
    fn check(&mut self, op: &ObjectOp, memory: &Memory, offset: u64, read: Unchecked) -> Moved {
        if read.pieces.missing().next().is_some() {
            return Moved::Unchecked(read);
        }
        let Unchecked { grant, got, pieces } = read;
        let bytes = &memory.bytes()[..got as usize];
        // Only files are kept by checksums.
        let fits = grant.file().is_some_and(|file| self.direct.kept.compare(op.object, file, offset, bytes, &pieces));
        match (grant.slot.read_is_valid(), fits) {
            (true, true) => Moved::All(Ok((got, grant))),
            // What does not fit may have been changed since: the daemon looks at it while nobody changes it.
            (true, false) => Moved::Unclear,
            (false, _) => Moved::Lost(grant),
        }
    }
}

/// How far a step came.
enum Moved {
    All(Result<(u64, Arc<Grant>)>),
    /// As much as was granted.
    Part,
    /// All was read, and is still to be compared.
    Unchecked(Unchecked),
    /// Only the daemon can tell what was read.
    Unclear,
    /// The grant was taken back meanwhile.
    Lost(Arc<Grant>),
}

/// Answers to several requests for checksums.
struct Gather {
    run: Option<Run>,
    left: usize,
    failed: bool,
}

impl Gather {
    fn take(this: &Mutex<Gather>, first: u64, piece: Option<Arc<Piece>>) {
        let mut gather = this.lock().unwrap_or_else(PoisonError::into_inner);
        gather.left -= 1;
        gather.failed |= piece.is_none();
        let read = gather.run.as_mut().and_then(|run| run.now.read.as_mut());
        if let (Some(piece), Some(read)) = (piece, read) {
            read.pieces.fill(first, piece);
        }
        let failed = gather.failed;
        let run = if gather.left == 0 { gather.run.take() } else { None };
        drop(gather);
        if let Some(run) = run {
            run.go_on(move |run| run.summed(failed));
        }
    }
}

/// Takes evidence of operations of which some may have had an effect already, by another way.
struct Shown {
    sink: Arc<dyn Sink>,
    shown: HashSet<usize>,
}

impl Sink for Shown {
    fn complete(&self, index: usize, evidence: Result<Evidence>) {
        let shown = self.shown.contains(&index);
        self.sink.complete(index, evidence.map_err(|e| if shown { e.with_outcome(Outcome::Unknown) } else { e }));
    }
}

/// What is known of the blocks of some runs of an object that is kept by checksums.
fn sums(reply: Result<Reply>) -> Result<Vec<BlockSum>> {
    let Reply::Frame(frame) = reply? else {
        return Err(Error::corrupt("the daemon answered a request for checksums with a grant"));
    };
    let answer: SumsAnswer = frame.header.body(&frame.body)?;
    if let Some(e) = answer.failed {
        return Err(e);
    }
    let (words, rest) = frame.payload.as_chunks::<{ BlockSum::BYTES }>();
    if !rest.is_empty() || words.len() as u64 != RUNS * BLOCKS as u64 {
        return Err(Error::corrupt("the daemon sent another number of checksums than was asked for"));
    }
    words.iter().map(|word| BlockSum::decode(*word)).collect()
}
