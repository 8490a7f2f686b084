//! A catalog and a target with a wire in front: the same traits.

use std::sync::{Arc, Mutex, PoisonError};

use iov_store::{Answer, Backend, Catalog, CatalogCapability, OnAnswer, OpCx, Sink, Submitted};
use iov_types::{
    Capability, Counters, Error, Evidence, ObjectVerb, Result,
    catalog::{CatalogOp, Submission},
};
use iov_wire::{
    Verb,
    frame::PAYLOAD_BYTES,
    messages::{CatalogAnswer, CatalogRequest, ObjectAnswer, ObjectCall, ObjectRequest},
};

use crate::{conn::Reply, link::Link};

/// The catalog on the other side of a link.
pub struct RemoteCatalog(pub Arc<Link>);

/// Whether a submission changes nothing, so that it may be asked again after a break.
fn only_reads(ops: &[CatalogOp]) -> bool {
    ops.iter().all(|op| {
        matches!(
            op,
            CatalogOp::Stat { .. }
                | CatalogOp::MetaGet { .. }
                | CatalogOp::MetaList { .. }
                | CatalogOp::WorkspaceLoad { .. }
                | CatalogOp::WorkspaceStat { .. }
                | CatalogOp::WorkspaceSearch { .. }
                | CatalogOp::Search { .. }
                | CatalogOp::LockQuery { .. }
        )
    })
}

fn catalog_answer(reply: Result<Reply>) -> Answer {
    match reply? {
        Reply::Frame(frame) if frame.header.verb == Verb::CatalogAnswer.number() => {
            frame.header.body::<CatalogAnswer>(&frame.body)?.into()
        }
        _ => Err(Error::corrupt("the daemon answered a catalog request with something else")),
    }
}

impl RemoteCatalog {
    fn send(link: Arc<Link>, cx: OpCx, request: CatalogRequest, again: bool, done: OnAnswer) {
        if link.in_child() {
            return done(Err(Error::forked("the connection belongs to the parent process")));
        }
        let up = match link.up(&cx) {
            Ok(up) => up,
            Err(e) => return done(Err(e)),
        };
        let counters = link.counters();
        Counters::add(&counters.round_trips, 1);
        let left = cx.left_ns();
        if !again {
            return up.connection.request(&request, &[], left, Box::new(|reply| done(catalog_answer(reply))));
        }
        let copy = CatalogRequest { context: request.context, how: request.how.clone(), ops: request.ops.clone() };
        let (link, cx) = (link.clone(), cx.clone());
        let retry = move |reply: Result<Reply>| match reply {
            Err(e) if e.kind() == iov_types::Kind::Unavailable && cx.left_ns() > 0 => {
                Counters::add(&link.counters().retries, 1);
                RemoteCatalog::send(link, cx, copy, false, done);
            }
            reply => done(catalog_answer(reply)),
        };
        up.connection.request(&request, &[], left, Box::new(retry));
    }
}

impl Catalog for RemoteCatalog {
    fn capability(&self) -> &CatalogCapability {
        self.0.capability()
    }

    fn submit(&self, cx: &OpCx, ops: Vec<CatalogOp>, how: Submission, done: OnAnswer) {
        let again = only_reads(&ops);
        let ops = ops.into_iter().map(Ok).collect();
        let request = CatalogRequest { context: Link::context(cx), how, ops };
        RemoteCatalog::send(self.0.clone(), cx.clone(), request, again, done);
    }

    fn drive(&self, timeout_ns: i64) -> bool {
        match self.0.current() {
            Some(up) => {
                up.connection.drive(timeout_ns);
                true
            }
            None => false,
        }
    }
}

/// The target on the other side of a link: every byte goes over the socket.
pub struct RemoteBackend(pub Arc<Link>);

/// Most operations in one frame, and most bytes of each way, so that one request does not keep others waiting.
const CALLS: usize = 4096;
const BYTES: usize = PAYLOAD_BYTES / 4;

struct Part {
    ops: Vec<(usize, Submitted)>,
    sink: Arc<dyn Sink>,
    link: Arc<Link>,
}

impl Part {
    /// Gives each operation its evidence and its bytes.
    fn finish(self, reply: Result<Reply>) {
        let Part { mut ops, sink, link } = self;
        let mut results: Vec<Option<Result<Evidence>>> = ops.iter().map(|_| None).collect();
        let failed = self::unpack(reply, &mut ops, &mut results, &link).err();
        for ((index, _), result) in ops.into_iter().zip(results) {
            let missing = || {
                Err(failed.clone().unwrap_or_else(|| {
                    Error::internal("the daemon left out an operation").with_outcome(iov_types::Outcome::Unknown)
                }))
            };
            sink.complete(index, result.unwrap_or_else(missing));
        }
    }
}

fn unpack(
    reply: Result<Reply>,
    ops: &mut [(usize, Submitted)],
    results: &mut [Option<Result<Evidence>>],
    link: &Link,
) -> Result<()> {
    let Reply::Frame(frame) = reply? else {
        return Err(Error::corrupt("the daemon answered an object request with a grant"));
    };
    let answer: ObjectAnswer = frame.header.body(&frame.body)?;
    if let Some(e) = answer.failed {
        return Err(e);
    }
    let mut payload = &frame.payload[..];
    for completion in answer.completions {
        let Some((_, (_, memory))) = ops.get_mut(completion.index as usize) else {
            return Err(Error::corrupt("the daemon completed an operation that was not asked for"));
        };
        let len = completion.len as usize;
        if len > payload.len() || (len > 0 && len > memory.len()) {
            return Err(Error::corrupt("the daemon sent more bytes than there is room for"));
        }
        let (bytes, rest) = payload.split_at(len);
        payload = rest;
        if completion.checksum.is_some_and(|sum| sum != iov_wire::frame::checksum(bytes)) {
            results[completion.index as usize] =
                Some(Err(Error::corrupt("bytes were damaged on their way from the daemon")
                    .with_clause(iov_types::Clause::I1)));
            continue;
        }
        if len > 0 {
            memory.bytes_mut()[..len].copy_from_slice(bytes);
            Counters::add(&link.counters().bytes_unix, len as u64);
            Counters::add(&link.counters().bytes_copied, len as u64);
        }
        results[completion.index as usize] = Some(completion.result);
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
        let mut part = Vec::new();
        let mut bytes = 0;
        for (index, (op, memory)) in ops {
            if memory.len() > BYTES {
                self.flush(cx, std::mem::take(&mut part), &sink);
                bytes = 0;
                self.split(cx, index, (op, memory), &sink);
                continue;
            }
            if part.len() >= CALLS || bytes + memory.len() > BYTES {
                self.flush(cx, std::mem::take(&mut part), &sink);
                bytes = 0;
            }
            bytes += memory.len();
            part.push((index, (op, memory)));
        }
        self.flush(cx, part, &sink);
    }

    /// A large read or write as several; an append must stay one record.
    fn split(&self, cx: &OpCx, index: usize, (op, memory): Submitted, sink: &Arc<dyn Sink>) {
        let offset = match op.verb {
            ObjectVerb::Write { offset } | ObjectVerb::Read { offset } => offset,
            _ if memory.len() <= PAYLOAD_BYTES => return self.flush(cx, vec![(index, (op, memory))], sink),
            _ => {
                let e = format!("one record has at most {PAYLOAD_BYTES} bytes over the daemon's socket: split it");
                return sink.complete(index, Err(Error::too_big(e)));
            }
        };
        let pieces = memory.len().div_ceil(BYTES);
        let joined =
            Arc::new(Joined { index, sink: sink.clone(), state: Mutex::new((pieces, Evidence::default(), None)) });
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
            self.flush(cx, vec![(0, (op, memory.part(from, len)))], &sink);
        }
    }

    fn flush(&self, cx: &OpCx, ops: Vec<(usize, Submitted)>, sink: &Arc<dyn Sink>) {
        if ops.is_empty() {
            return;
        }
        let counters = self.0.counters();
        let mut loans = Vec::new();
        let mut calls = Vec::with_capacity(ops.len());
        for (_, (op, memory)) in &ops {
            if matches!(op.verb, ObjectVerb::Write { .. } | ObjectVerb::Append) {
                loans.push(memory.part(0, memory.len()));
                Counters::add(&counters.bytes_unix, memory.len() as u64);
            }
            calls.push(ObjectCall { op: Ok(op.clone()), len: memory.len() as u64, checksum: None });
        }
        let request = ObjectRequest { context: Link::context(cx), calls };
        let up = match self.0.up(cx) {
            Ok(up) => up,
            Err(e) => return ops.iter().for_each(|(index, _)| sink.complete(*index, Err(e.clone()))),
        };
        Counters::add(&counters.round_trips, 1);
        let payload: Vec<&[u8]> = loans.iter().map(|m| m.bytes()).collect();
        let part = Part { ops, sink: sink.clone(), link: self.0.clone() };
        // The operations, and with them the caller's memory, are held until the answer: as long as the sending takes.
        up.connection.request(&request, &payload, cx.left_ns(), Box::new(move |reply| part.finish(reply)));
    }
}

/// The pieces of one split operation.
struct Joined {
    index: usize,
    sink: Arc<dyn Sink>,
    state: Mutex<(usize, Evidence, Option<Error>)>,
}

impl Sink for Joined {
    fn complete(&self, _: usize, evidence: Result<Evidence>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.0 -= 1;
        match evidence {
            Ok(e) => state.1 = Evidence { bytes: state.1.bytes + e.bytes, ..e },
            Err(e) => state.2 = Some(e),
        }
        if state.0 == 0 {
            let result = state.2.take().map_or_else(|| Ok(std::mem::take(&mut state.1)), Err);
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
}
