//! Operations on objects that go in one frame: how they are sent, sent again where that is safe, and answered.

use std::{
    collections::HashSet,
    sync::{Arc, Weak, atomic::AtomicU64},
};

use iov_store::{Memory, OpCx, Sink, Submitted};
use iov_types::{Clause, Counters, Error, Evidence, ObjectId, ObjectOp, ObjectVerb, Outcome, Result, Uuid};
use iov_wire::messages::{ObjectCall, ObjectRequest};

use crate::{
    conn::{Reply, Terms},
    gate::Goes,
    link::{Link, Up},
    remote::{again, needs},
    tickets::Shown,
};

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
    /// When it first went.
    begun: Option<u64>,
    bulk: bool,
    /// Leave to do it.
    tickets: Shown,
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
        // These the catalog alone does, which tries all of them again.
        ObjectVerb::Create
        | ObjectVerb::Fence { .. }
        | ObjectVerb::Freeze { .. }
        | ObjectVerb::Publish { .. }
        | ObjectVerb::Thaw { .. }
        | ObjectVerb::Seal
        | ObjectVerb::Remove => true,
        ObjectVerb::Append => op.demand.batch.is_some(),
        ObjectVerb::Write { .. } | ObjectVerb::Truncate { .. } | ObjectVerb::Punch(_) | ObjectVerb::Allocate { .. } => {
            alone
        }
        _ => false,
    }
}

/// The error of an attempt; an earlier one may have taken effect.
pub(crate) fn after(maybe: bool, e: Error) -> Error {
    if maybe { e.with_outcome(Outcome::Unknown) } else { e }
}

impl Part {
    /// Operations with the places they have in the caller's submission.
    pub(crate) fn new(
        ops: Vec<(usize, Submitted)>,
        sink: Arc<dyn Sink>,
        link: Arc<Link>,
        cx: OpCx,
        (lane, bulk): (u32, bool),
        tickets: Shown,
    ) -> Part {
        Part { ops, sink, link, cx, attempt: 0, maybe: false, network: false, lane, begun: None, bulk, tickets }
    }

    /// Those whose handle or stage did not come through the end of a daemon are answered at once.
    fn check(&mut self) {
        let (link, sink, maybe) = (&self.link, &self.sink, self.maybe);
        self.ops.retain(|(index, (op, _))| match link.check(op.object.collection, op.demand.stage) {
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
    pub(crate) fn go(self) {
        let link = self.link.clone();
        if let Some(part) = link.lanes.lane(self.lane).gate.enter(self) {
            part.send();
        }
    }

    fn send(mut self) {
        let about = self.ops.iter().map(|(_, (op, _))| op.object.collection);
        if let Some(main) = self.link.in_doubt(about) {
            // Once that is there again, it is known whether what was locked still is.
            let (cx, link, lane, bulk) = (self.cx.clone(), self.link.clone(), self.lane, self.bulk);
            let sent = move |up: Result<Arc<Up>>| match up {
                Ok(_) => self.send(),
                Err(e) => {
                    self.give_up(e);
                    Part::left(&link, lane, bulk);
                }
            };
            return main.with_up(&cx, Box::new(sent));
        }
        let (link, cx, lane) = (self.link.clone(), self.cx.clone(), self.lane);
        let begun = *self.begun.get_or_insert_with(|| link.begin());
        link.with_lane(lane, begun, &cx, Box::new(move |up| self.send_over(up)));
    }

    /// The tickets for what it is about.
    fn shown(&self) -> Vec<Vec<u8>> {
        if let [(_, one)] = &self.tickets[..] {
            return vec![one.to_vec()];
        }
        let mut about: HashSet<Uuid> =
            self.ops.iter().flat_map(|(_, (op, _))| needs(op)).map(|(uuid, _)| uuid).collect();
        // One for each collection.
        self.tickets.iter().filter(|(uuid, _)| about.remove(uuid)).map(|(_, bytes)| bytes.to_vec()).collect()
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
        let request = ObjectRequest { context: Link::context(&self.cx), calls, tickets: self.shown() };
        let (terms, connection) = (Terms::of(&self.cx), Arc::downgrade(&up));
        // The operations, and with them the caller's memory, are held until the answer or the deadline.
        let replied = Box::new(move |reply| self.replied(reply, &connection));
        up.connection.request_in_time(&request, loans, rooms, terms, replied);
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
            Err(e) if self.attempt == 0 && self.link.tickets.are_asked_for() && is_refused(&e) => {
                // A ticket that was taken for good has run out, as behind a sleep of this machine: another one is asked for.
                let needed: Vec<_> = self.ops.iter().flat_map(|(_, (op, _))| needs(op)).collect();
                let (link, cx) = (self.link.clone(), self.cx.clone());
                link.tickets.forget(&needed.iter().map(|(uuid, _)| *uuid).collect::<Vec<_>>());
                let go = move |tickets| match tickets {
                    Ok(tickets) => Part { attempt: self.attempt + 1, tickets, ..self }.send(),
                    Err(e) => self.finish(Err(e)),
                };
                link.tickets.with(&cx, || needed, Box::new(go));
            }
            reply => self.finish(reply),
        }
    }

    /// Gives each operation its evidence and its bytes.
    fn finish(self, reply: Result<Reply>) {
        let Part { ops, sink, link, maybe, network, lane, bulk, .. } = self;
        let mut results: Vec<Option<Result<Evidence>>> = ops.iter().map(|_| None).collect();
        let failed = unpack(reply, &ops, &mut results, by_network(link.counters(), network)).err();
        let denied =
            |result: &Option<Result<Evidence>>| matches!(result, Some(Err(e)) if e.clause() == Some(Clause::A1));
        // All of it where the request as a whole was refused: one bad ticket is enough for that.
        let all = failed.as_ref().is_some_and(|e| e.clause() == Some(Clause::A1));
        let refused: Vec<Uuid> = ops
            .iter()
            .zip(&results)
            .filter(|(_, result)| all || denied(result))
            .map(|((_, (op, _)), _)| op.object.collection)
            .collect();
        if !refused.is_empty() {
            // Whatever was wrong with its ticket: the next try gets another one.
            link.tickets.forget(&refused);
        }
        let ok = |result: &Option<Result<Evidence>>| matches!(result, Some(Ok(_)));
        link.book().done(ops.iter().zip(&results).map(|((_, (op, _)), result)| (op, ok(result))));
        for ((index, _), result) in ops.into_iter().zip(results) {
            let missing = || {
                Err(failed.clone().unwrap_or_else(|| {
                    Error::internal("the daemon left out an operation").with_outcome(Outcome::Unknown)
                }))
            };
            sink.complete(index, result.unwrap_or_else(missing).map_err(|e| after(maybe, e)));
        }
        Part::left(&link, lane, bulk);
    }
}

/// Whether nothing of a request was done, as the caller may not.
fn is_refused(e: &Error) -> bool {
    e.clause() == Some(Clause::A1) && e.outcome() == Outcome::NotApplied
}

/// What counts the bytes.
fn by_network(counters: &Counters, network: bool) -> &AtomicU64 {
    if network { &counters.bytes_tcp } else { &counters.bytes_unix }
}

fn unpack(
    reply: Result<Reply>,
    ops: &[(usize, Submitted)],
    results: &mut [Option<Result<Evidence>>],
    moved: &AtomicU64,
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
                Some(Err(Error::corrupt("bytes were damaged on their way from the daemon").with_clause(Clause::I1)));
            continue;
        }
        Counters::add(moved, completion.len);
        results[index] = Some(completion.result);
    }
    Ok(())
}
