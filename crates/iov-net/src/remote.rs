//! A catalog and a target with a wire in front: the same traits.

use std::{
    os::fd::OwnedFd,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use iov_store::{Answer, Backend, Catalog, CatalogCapability, Memory, OnAnswer, OpCx, Sink, Submitted};
use iov_types::{
    Capability, Counters, Error, Evidence, Kind, ObjectId, ObjectOp, ObjectVerb, Outcome, Result,
    catalog::{CatalogOp, CatalogReply, Submission},
};
use iov_wire::{
    Verb,
    frame::PAYLOAD_BYTES,
    messages::{CatalogAnswer, CatalogRequest, ObjectCall, ObjectRequest},
};

use crate::{
    book::Entry,
    conn::Reply,
    gate::Goes,
    link::{ATTEMPTS, Link, Up},
};

/// The catalog on the other side of a link.
pub struct RemoteCatalog(pub Arc<Link>);

/// Whether a submission may be asked again although nobody knows whether it took effect.
fn is_repeatable(ops: &[Result<CatalogOp>], how: &Submission) -> bool {
    match how {
        Submission::DryRun => true,
        // The catalog remembers it (B3).
        Submission::All { remember, .. } => *remember,
        Submission::Each | Submission::UntilFailure => ops.iter().flatten().all(|op| {
            matches!(
                op,
                CatalogOp::Stat { .. }
                    | CatalogOp::MetaGet { .. }
                    | CatalogOp::MetaList { .. }
                    | CatalogOp::WorkspaceLoad { .. }
                    | CatalogOp::WorkspaceStat { .. }
                    | CatalogOp::WorkspaceSearch { .. }
                    | CatalogOp::WorkspacePersist { .. }
                    | CatalogOp::Search { .. }
                    | CatalogOp::LockQuery { .. }
                    | CatalogOp::Read { .. }
                    | CatalogOp::MoveOut { .. }
                    | CatalogOp::TokenExport
                    | CatalogOp::Renew
                    // Its second time is the same owner's.
                    | CatalogOp::Lock { .. }
                    | CatalogOp::Unlock { .. }
                    // What was opened over a connection ends with it, and closing, publishing and sealing twice is as once.
                    | CatalogOp::Open { .. }
                    | CatalogOp::Close { .. }
                    | CatalogOp::Publish { .. }
                    | CatalogOp::Seal { .. }
            )
        }),
    }
}

/// Whether a request that failed so is to be sent over a new connection: nothing of it arrived, or it may arrive twice.
fn again(e: &Error, up: &Weak<Up>, cx: &OpCx, repeatable: bool, attempt: u32) -> bool {
    let broke = e.kind() == Kind::Unavailable && up.upgrade().is_none_or(|up| up.connection.is_broken());
    broke && (repeatable || e.outcome() == Outcome::NotApplied) && attempt < ATTEMPTS && cx.left_ns() > 0
}

fn catalog_answer(reply: Result<Reply>) -> Answer {
    match reply? {
        Reply::Frame(frame) if frame.header.verb == Verb::CatalogAnswer.number() => {
            frame.header.body::<CatalogAnswer>(&frame.body)?.into()
        }
        _ => Err(Error::corrupt("the daemon answered a catalog request with something else")),
    }
}

/// A submission under way.
struct Asked {
    link: Arc<Link>,
    cx: OpCx,
    request: Arc<CatalogRequest>,
    entry: Entry,
    repeatable: bool,
    attempt: u32,
    /// An earlier attempt may have taken effect.
    maybe: bool,
    /// Operations that are answered here: what they are about did not come through the end of a daemon.
    left_out: Vec<(usize, Error)>,
    done: OnAnswer,
}

impl Asked {
    fn send(self) {
        if self.link.in_child() {
            return (self.done)(Err(Error::forked("the connection belongs to the parent process")));
        }
        let (link, cx) = (self.link.clone(), self.cx.clone());
        if !self.entry.ends() {
            return link.with_up(&cx, Box::new(move |up| self.send_over(up)));
        }
        // A session that ends does not come back for that.
        let up = link.current().ok_or_else(|| Error::unavailable("the store's daemon has ended"));
        self.send_over(up);
    }

    fn send_over(mut self, up: Result<Arc<Up>>) {
        let up = match up {
            Ok(up) => up,
            Err(e) => return self.finish(Err(e)),
        };
        let request = match self.check_staged().and_then(|()| self.leave_out()) {
            Ok(request) if request.ops.is_empty() && !self.left_out.is_empty() => return self.finish(Ok(Vec::new())),
            Ok(request) => request,
            Err(e) => return self.finish(Err(e)),
        };
        Counters::add(&self.link.counters().round_trips, 1);
        let (until, connection) = (self.cx.deadline_ns, Arc::downgrade(&up));
        let ended = self.entry.ends().then(|| self.link.clone());
        up.connection.request(&*request, until, Box::new(move |reply| self.replied(reply, &connection)));
        if let Some(link) = ended {
            up.connection.send_rest(until);
            // Whoever waits for an answer holds the link, and the link the connection with those who wait.
            link.end();
        }
    }

    /// What was staged must be whole, or nothing is published.
    fn check_staged(&self) -> Result<()> {
        let Submission::All { batch, staged, .. } = &self.request.how else { return Ok(()) };
        staged.iter().try_for_each(|s| self.link.book().check(s.collection, Some(*batch)))
    }

    /// What to send: not what needs a lock or a hold that is gone, and nothing where the rest depends on that.
    fn leave_out(&mut self) -> Result<Arc<CatalogRequest>> {
        self.left_out = self.link.book().check_ops(self.request.ops.iter().flatten());
        if self.left_out.is_empty() {
            return Ok(self.request.clone());
        }
        if self.request.how != Submission::Each {
            return Err(self.left_out.swap_remove(0).1);
        }
        let mut request = (*self.request).clone();
        for (i, _) in self.left_out.iter().rev() {
            drop(request.ops.remove(*i));
        }
        Ok(Arc::new(request))
    }

    fn replied(self, reply: Result<Reply>, connection: &Weak<Up>) {
        match reply {
            Err(e) if !self.entry.ends() && again(&e, connection, &self.cx, self.repeatable, self.attempt) => {
                Counters::add(&self.link.counters().retries, 1);
                let maybe = self.maybe || e.outcome() != Outcome::NotApplied;
                Asked { attempt: self.attempt + 1, maybe, ..self }.send();
            }
            reply => self.finish(catalog_answer(reply)),
        }
    }

    fn finish(mut self, mut answer: Answer) {
        if self.maybe {
            answer = answer.map_err(|e| after(true, e));
        }
        if let Ok(replies) = &mut answer {
            for (i, e) in std::mem::take(&mut self.left_out) {
                replies.insert(i.min(replies.len()), Err(e));
            }
        }
        self.link.book().answered(&self.entry, &mut answer);
        (self.done)(answer);
    }
}

impl Catalog for RemoteCatalog {
    fn capability(&self) -> &CatalogCapability {
        self.0.capability()
    }

    fn submit(&self, cx: &OpCx, ops: Vec<CatalogOp>, how: Submission, done: OnAnswer) {
        let mut entry = Entry::of(ops.iter(), &how);
        if entry.ends() && self.0.current().is_none() {
            // The session has ended with its connection; a daemon is not started to be told so.
            self.0.end();
            return done(Ok(ops.iter().map(|_| Ok(CatalogReply::Done)).collect()));
        }
        let ops: Vec<_> = ops.into_iter().map(Ok).collect();
        let repeatable = is_repeatable(&ops, &how);
        let request = Arc::new(CatalogRequest { context: Link::context(cx), how, ops });
        let link = self.0.clone();
        link.book().asked(&mut entry);
        let (left_out, maybe) = (Vec::new(), false);
        Asked { link, cx: cx.clone(), request, entry, repeatable, attempt: 0, maybe, left_out, done }.send();
    }

    fn drive(&self, timeout_ns: i64) -> bool {
        let drives = self.0.drive(timeout_ns);
        self.0.expire();
        drives
    }

    fn connection(&self) -> u64 {
        self.0.connection()
    }

    fn watch(&self, set: &OwnedFd) {
        self.0.watch(set);
    }
}

/// The target on the other side of a link: every byte goes over the socket.
pub struct RemoteBackend(pub Arc<Link>);

/// Most operations in one frame, and most bytes of each way, so that one request does not keep others waiting.
const CALLS: usize = 4096;
const BYTES: usize = 1 << 20;
/// From so many bytes on a request is a piece of a large transfer.
const BULK: usize = 256 << 10;

/// Operations under way in one frame.
pub(crate) struct Part {
    ops: Vec<(usize, Submitted)>,
    sink: Arc<dyn Sink>,
    link: Arc<Link>,
    cx: OpCx,
    attempt: u32,
    /// An earlier attempt may have taken effect.
    maybe: bool,
    /// It goes over a network.
    network: bool,
    /// Which way it goes.
    lane: u32,
    bulk: bool,
}

impl Goes for Part {
    fn is_bulk(&self) -> bool {
        self.bulk
    }

    fn concerns(&self, object: ObjectId) -> bool {
        self.ops.iter().any(|(_, (op, _))| op.object == object)
    }

    fn objects(&self) -> Vec<ObjectId> {
        self.ops.iter().map(|(_, (op, _))| op.object).collect()
    }
}

/// Whether an operation may be carried out again although nobody knows whether it was: where nobody else can have come
/// in between, because its writer is alone (X1) or its stage is not public yet, the second time changes nothing.
fn has_no_witness(op: &ObjectOp) -> bool {
    let alone = op.demand.epoch != 0 || op.demand.stage.is_some();
    match op.verb {
        ObjectVerb::Read { .. } | ObjectVerb::Stat | ObjectVerb::Extents { .. } | ObjectVerb::Sync => true,
        ObjectVerb::Discard { .. } => true,
        ObjectVerb::Append => op.demand.batch.is_some(),
        ObjectVerb::Write { .. } | ObjectVerb::Truncate { .. } | ObjectVerb::Punch(_) | ObjectVerb::Allocate { .. } => {
            alone
        }
        _ => false,
    }
}

/// The error of an attempt; an earlier one may have taken effect.
fn after(maybe: bool, e: Error) -> Error {
    if maybe { e.with_outcome(Outcome::Unknown) } else { e }
}

impl Part {
    /// Those whose handle or stage did not come through the end of a daemon are answered at once.
    fn check(&mut self) {
        let (book, sink, maybe) = (self.link.book(), &self.sink, self.maybe);
        self.ops.retain(|(index, (op, _))| match book.check(op.object.collection, op.demand.stage) {
            Ok(()) => true,
            Err(e) => {
                sink.complete(*index, Err(after(maybe, e)));
                false
            }
        });
    }

    /// Its time is up.
    pub(crate) fn is_late(&self) -> bool {
        self.cx.left_ns() == 0
    }

    /// Goes as soon as those that are under way leave room.
    fn go(self) {
        let link = self.link.clone();
        if let Some(part) = link.lanes.lane(self.lane).gate.enter(self) {
            part.send();
        }
    }

    fn send(self) {
        let (link, cx, lane) = (self.link.clone(), self.cx.clone(), self.lane);
        link.with_lane(lane, &cx, Box::new(move |up| self.send_over(up)));
    }

    /// It has not gone.
    pub(crate) fn give_up(self, e: Error) {
        let e = after(self.maybe, e);
        self.ops.into_iter().for_each(|(index, _)| self.sink.complete(index, Err(e.clone())));
    }

    /// It is not under way any more.
    fn left(link: &Link, lane: u32, bulk: bool) {
        if bulk {
            link.lanes.lane(lane).gate.leave(Part::send);
        }
    }

    fn send_over(mut self, up: Result<Arc<Up>>) {
        let (link, lane, bulk) = (self.link.clone(), self.lane, self.bulk);
        let up = match up {
            Ok(up) => up,
            Err(e) => {
                self.give_up(e);
                return Part::left(&link, lane, bulk);
            }
        };
        self.network = up.connection.is_network();
        self.check();
        if self.ops.is_empty() {
            return Part::left(&link, lane, bulk);
        }
        let counters = self.link.counters();
        let (mut loans, mut rooms) = (Vec::new(), Vec::with_capacity(self.ops.len()));
        let moved = by_network(counters, up.connection.is_network());
        let mut calls = Vec::with_capacity(self.ops.len());
        for (_, (op, memory)) in &self.ops {
            let mut checksum = None;
            rooms.push(match op.verb {
                ObjectVerb::Read { .. } => memory.part(0, memory.len()),
                _ => Memory::default(),
            });
            if matches!(op.verb, ObjectVerb::Write { .. } | ObjectVerb::Append) {
                checksum = Some(iov_wire::frame::checksum(memory.bytes()));
                loans.push(memory.part(0, memory.len()));
                Counters::add(moved, memory.len() as u64);
            }
            calls.push(ObjectCall { op: Ok(op.clone()), len: memory.len() as u64, checksum });
        }
        Counters::add(&counters.round_trips, 1);
        let request = ObjectRequest { context: Link::context(&self.cx), calls };
        let (until, connection) = (self.cx.deadline_ns, Arc::downgrade(&up));
        // The operations, and with them the caller's memory, are held until the answer or the deadline.
        let replied = Box::new(move |reply| self.replied(reply, &connection));
        up.connection.request_in_time(&request, loans, rooms, until, replied);
    }

    fn replied(self, reply: Result<Reply>, connection: &Weak<Up>) {
        match reply {
            Err(e)
                if again(
                    &e,
                    connection,
                    &self.cx,
                    self.ops.iter().all(|(_, (op, _))| has_no_witness(op)),
                    self.attempt,
                ) =>
            {
                Counters::add(&self.link.counters().retries, 1);
                let maybe = self.maybe || e.outcome() != Outcome::NotApplied;
                Part { attempt: self.attempt + 1, maybe, ..self }.send();
            }
            reply => self.finish(reply),
        }
    }

    /// Gives each operation its evidence and its bytes.
    fn finish(self, reply: Result<Reply>) {
        let Part { ops, sink, link, maybe, network, lane, bulk, .. } = self;
        let mut results: Vec<Option<Result<Evidence>>> = ops.iter().map(|_| None).collect();
        let failed = unpack(reply, &ops, &mut results, by_network(link.counters(), network)).err();
        let ok = |result: &Option<Result<Evidence>>| matches!(result, Some(Ok(_)));
        link.book().done(ops.iter().zip(&results).map(|((_, (op, _)), result)| (op, ok(result))));
        for ((index, _), result) in ops.into_iter().zip(results) {
            let missing = || {
                Err(failed.clone().unwrap_or_else(|| {
                    Error::internal("the daemon left out an operation").with_outcome(iov_types::Outcome::Unknown)
                }))
            };
            sink.complete(index, result.unwrap_or_else(missing).map_err(|e| after(maybe, e)));
        }
        Part::left(&link, lane, bulk);
    }
}

/// What counts the bytes.
fn by_network(counters: &Counters, network: bool) -> &std::sync::atomic::AtomicU64 {
    if network { &counters.bytes_tcp } else { &counters.bytes_unix }
}

fn unpack(
    reply: Result<Reply>,
    ops: &[(usize, Submitted)],
    results: &mut [Option<Result<Evidence>>],
    moved: &std::sync::atomic::AtomicU64,
) -> Result<()> {
    let Reply::Read(answer) = reply? else {
        return Err(Error::corrupt("the daemon answered an object request with something else"));
    };
    if let Some(e) = answer.failed {
        return Err(e);
    }
    for completion in answer.completions {
        let index = completion.index as usize;
        let Some((_, (_, memory))) = ops.get(index) else {
            return Err(Error::corrupt("the daemon completed an operation that was not asked for"));
        };
        let Some(bytes) = memory.bytes().get(..completion.len as usize) else {
            return Err(Error::corrupt("the daemon sent more bytes than there is room for"));
        };
        if completion.checksum.is_some_and(|sum| sum != iov_wire::frame::checksum(bytes)) {
            results[index] =
                Some(Err(Error::corrupt("bytes were damaged on their way from the daemon")
                    .with_clause(iov_types::Clause::I1)));
            continue;
        }
        Counters::add(moved, completion.len);
        results[index] = Some(completion.result);
    }
    Ok(())
}

impl RemoteBackend {
    /// Sends operations with the places they have in the caller's submission.
    pub(crate) fn send(&self, cx: &OpCx, ops: Vec<(usize, Submitted)>, sink: Arc<dyn Sink>) {
        if self.0.in_child() {
            let gone = Error::forked("the connection belongs to the parent process");
            return ops.into_iter().for_each(|(i, _)| sink.complete(i, Err(gone.clone())));
        }
        // By lanes: what is not in one part may arrive in any order, but for what goes the same way.
        let mut parts: Vec<(Vec<(usize, Submitted)>, usize)> = Vec::new();
        parts.resize_with(self.0.lanes.all().len(), Default::default);
        for (index, (op, memory)) in ops {
            let lane = self.0.lanes.of(op.object);
            let (part, bytes) = &mut parts[lane as usize];
            if memory.len() > BYTES {
                self.flush(cx, lane, std::mem::take(part), &sink);
                *bytes = 0;
                self.split(cx, lane, index, (op, memory), &sink);
                continue;
            }
            if part.len() >= CALLS || *bytes + memory.len() > BYTES {
                self.flush(cx, lane, std::mem::take(part), &sink);
                *bytes = 0;
            }
            *bytes += memory.len();
            part.push((index, (op, memory)));
        }
        for (lane, (part, _)) in parts.into_iter().enumerate() {
            self.flush(cx, lane as u32, part, &sink);
        }
    }

    /// A large read or write as several; an append must stay one record.
    fn split(&self, cx: &OpCx, lane: u32, index: usize, (op, memory): Submitted, sink: &Arc<dyn Sink>) {
        let offset = match op.verb {
            ObjectVerb::Write { offset } | ObjectVerb::Read { offset } => offset,
            _ if memory.len() <= PAYLOAD_BYTES => return self.flush(cx, lane, vec![(index, (op, memory))], sink),
            _ => {
                let e = format!("one record has at most {PAYLOAD_BYTES} bytes over the daemon's socket: split it");
                return sink.complete(index, Err(Error::too_big(e)));
            }
        };
        let pieces = memory.len().div_ceil(BYTES);
        let joined = Arc::new(Joined {
            index,
            sink: sink.clone(),
            state: Mutex::new(Pieces { left: pieces, done: Evidence::default(), any_done: false, failed: None }),
        });
        for n in 0..pieces {
            let from = n * BYTES;
            let len = BYTES.min(memory.len() - from);
            let mut op = op.clone();
            let at = offset + from as u64;
            op.verb = match op.verb {
                ObjectVerb::Write { .. } => ObjectVerb::Write { offset: at },
                _ => ObjectVerb::Read { offset: at },
            };
            let sink: Arc<dyn Sink> = joined.clone();
            self.flush(cx, lane, vec![(0, (op, memory.part(from, len)))], &sink);
        }
    }

    fn flush(&self, cx: &OpCx, lane: u32, ops: Vec<(usize, Submitted)>, sink: &Arc<dyn Sink>) {
        if ops.is_empty() {
            return;
        }
        let bulk = ops.iter().map(|(_, (_, memory))| memory.len()).sum::<usize>() >= BULK;
        let (sink, link, cx) = (sink.clone(), self.0.clone(), cx.clone());
        Part { ops, sink, link, cx, attempt: 0, maybe: false, network: false, lane, bulk }.go();
    }
}

/// How the pieces of one split operation end.
struct Pieces {
    left: usize,
    done: Evidence,
    any_done: bool,
    failed: Option<Error>,
}

/// The pieces of one split operation.
struct Joined {
    index: usize,
    sink: Arc<dyn Sink>,
    state: Mutex<Pieces>,
}

impl Sink for Joined {
    fn complete(&self, _: usize, evidence: Result<Evidence>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.left -= 1;
        match evidence {
            Ok(e) => {
                state.done = Evidence { bytes: state.done.bytes + e.bytes, ..e };
                state.any_done = true;
            }
            // One of which nobody knows whether it took effect says more than one that did not.
            Err(e) if state.failed.as_ref().is_none_or(|f| f.outcome() == Outcome::NotApplied) => {
                state.failed = Some(e)
            }
            Err(_) => {}
        }
        if state.left == 0 {
            let partly = state.any_done;
            let result = match state.failed.take() {
                Some(e) => Err(after(partly, e)),
                None => Ok(std::mem::take(&mut state.done)),
            };
            drop(state);
            self.sink.complete(self.index, result);
        }
    }
}

impl Backend for RemoteBackend {
    fn capability(&self) -> &Capability {
        self.0.targets()
    }

    fn submit(&self, cx: &OpCx, ops: Vec<Submitted>, sink: Arc<dyn Sink>) {
        self.send(cx, ops.into_iter().enumerate().collect(), sink);
    }

    fn may_wait(&self) -> bool {
        true
    }
}
