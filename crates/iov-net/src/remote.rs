//! A catalog and a target with a wire in front: the same traits.

use std::{
    os::fd::OwnedFd,
    sync::{Arc, Weak},
};

use iov_store::{Answer, Backend, Catalog, CatalogCapability, ChangeView, OnAnswer, OpCx, Route, Sink, Submitted};
use iov_types::{
    Capability, Counters, Error, Kind, ObjectId, ObjectOp, ObjectVerb, Outcome, Priority, Result, Uuid,
    catalog::{CatalogOp, CatalogReply, Submission},
};
use iov_wire::{
    Verb,
    frame::PAYLOAD_BYTES,
    messages::{CatalogAnswer, CatalogRequest},
};

use crate::{
    book::Entry,
    conn::{Reply, Terms},
    joined::{Again, Joined},
    link::{ATTEMPTS, Link, Up},
    part::{Part, after},
    tickets::{Need, Shown, Tickets},
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
                    | CatalogOp::Look { .. }
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
                    | CatalogOp::Map { .. }
                    | CatalogOp::Ticket { .. }
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
pub(crate) fn again(e: &Error, up: &Weak<Up>, cx: &OpCx, repeatable: bool, attempt: u32) -> bool {
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
    /// When it first went.
    begun: Option<u64>,
    /// An earlier attempt may have taken effect.
    maybe: bool,
    /// Operations that are answered here: what they are about did not come through the end of a daemon.
    left_out: Vec<(usize, Error)>,
    done: OnAnswer,
}

impl Asked {
    fn send(mut self) {
        if self.link.in_child() {
            return (self.done)(Err(Error::forked("the connection belongs to the parent process")));
        }
        let (link, cx) = (self.link.clone(), self.cx.clone());
        if let Some(sibling) = self.sibling_to_hear() {
            // Whether its part is still there, it hears when it comes back.
            return sibling.with_up(
                &cx,
                Box::new(move |up| match up {
                    Ok(_) => self.send_now(),
                    Err(e) => self.finish(Err(e)),
                }),
            );
        }
        if !self.entry.ends() {
            let begun = *self.begun.get_or_insert_with(|| link.begin());
            return link.with_lane(0, begun, &cx, Box::new(move |up| self.send_over(up)));
        }
        // A session that ends does not come back for that.
        let up = link.current().ok_or_else(|| Error::unavailable("the store's daemon has ended"));
        self.send_over(up);
    }

    /// A link to another target that has something in the stage to be published, and no connection now.
    fn sibling_to_hear(&self) -> Option<Arc<Link>> {
        let Submission::All { batch, .. } = &self.request.how else { return None };
        let deaf = |sibling: &Arc<Link>| {
            let up = sibling.current();
            up.iter().for_each(|up| up.connection.look());
            sibling.book().has_stage(*batch) && up.is_none_or(|up| up.connection.is_broken())
        };
        self.link.siblings().into_iter().find(deaf)
    }

    /// The next of them, or the submission itself.
    fn send_now(self) {
        self.send();
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
        let (until, terms, connection) = (self.cx.deadline_ns, Terms::of(&self.cx), Arc::downgrade(&up));
        let ended = self.entry.ends().then(|| self.link.clone());
        up.connection.request(&*request, terms, Box::new(move |reply| self.replied(reply, &connection)));
        if let Some(link) = ended {
            up.connection.send_rest(until);
            // What has come meanwhile is taken: with it left unread the kernel would say that the connection broke.
            up.connection.drive(0);
            // Whoever waits for an answer holds the link, and the link the connection with those who wait.
            link.end();
        }
    }

    /// What was staged must be whole, or nothing is published.
    fn check_staged(&self) -> Result<()> {
        let Submission::All { batch, staged, .. } = &self.request.how else { return Ok(()) };
        staged.iter().try_for_each(|s| self.link.book().check(s.collection, Some(*batch)))?;
        // At other targets too.
        let siblings = self.link.siblings();
        siblings.iter().try_for_each(|sibling| sibling.book().check(Uuid::NIL, Some(*batch)))
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

    /// What a session may do with a collection changes as it opens it, makes it or commits to it.
    fn forget_tickets(&self, answer: &Answer) {
        let opened = |reply: &Result<CatalogReply>| match reply {
            Ok(CatalogReply::Opened(opened)) => Some(opened.uuid),
            _ => None,
        };
        let mut changed: Vec<Uuid> = answer.iter().flatten().filter_map(opened).collect();
        if let Submission::All { staged, .. } = &self.request.how {
            changed.extend(staged.iter().map(|s| s.collection));
        }
        if !changed.is_empty() {
            self.link.siblings().iter().for_each(|sibling| sibling.tickets.forget(&changed));
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
        if self.link.has_siblings() {
            self.forget_tickets(&answer);
        }
        if self.entry.decides() && self.link.has_siblings() {
            self.link.siblings().iter().for_each(|sibling| sibling.book().decided(&self.entry, &answer));
        }
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
        if cx.unheard
            && cx.priority == Priority::Foreground
            && !link.in_child()
            && let Some(up) = link.current().filter(|up| !up.connection.is_network())
        {
            // Over a network it would not be known whether it arrived; here the session is taken up anew, without it, if it did not.
            let mut answer = Ok(request.ops.iter().map(|_| Ok(CatalogReply::Done)).collect());
            // First: who finds the connection broken takes up what the book has.
            link.book().answered(&entry, &mut answer);
            up.connection.tell(&*request);
            return done(answer);
        }
        let (left_out, maybe) = (Vec::new(), false);
        Asked { link, cx: cx.clone(), request, entry, repeatable, attempt: 0, begun: None, maybe, left_out, done }
            .send();
    }

    fn drive(&self, timeout_ns: i64) -> bool {
        let drives = self.0.drive(timeout_ns);
        self.0.expire();
        drives
    }

    fn connection(&self) -> u64 {
        self.0.connection()
    }

    fn changes(&self) -> Option<Arc<ChangeView>> {
        self.0.changes()
    }

    fn watch(&self, set: &OwnedFd) {
        self.0.watch(set);
    }

    fn routes(&self, cx: &OpCx) -> Vec<Route> {
        self.0.routes(cx)
    }
}

/// The target on the other side of a link: every byte goes over the socket.
pub struct RemoteBackend(pub Arc<Link>);

/// Most operations in one frame, and most bytes of each way, so that one request does not keep others waiting.
const CALLS: usize = 4096;
const BYTES: usize = 1 << 20;
/// How often a read begins that publications come across.
const READS: u32 = 64;
/// From so many bytes on a request is a piece of a large transfer.
const BULK: usize = 256 << 10;

impl RemoteBackend {
    /// Sends operations with the places they have in the caller's submission.
    pub(crate) fn send(&self, cx: &OpCx, ops: Vec<(usize, Submitted)>, sink: Arc<dyn Sink>) {
        if self.0.in_child() {
            let gone = Error::forked("the connection belongs to the parent process");
            return ops.into_iter().for_each(|(i, _)| sink.complete(i, Err(gone.clone())));
        }
        if let Tickets::None = &self.0.tickets {
            return self.send_with(cx, ops, &Shown::default(), sink);
        }
        let needs: Vec<Need> = ops.iter().flat_map(|(_, (op, _))| needs(op)).collect();
        let (link, again) = (self.0.clone(), cx.clone());
        let go = move |tickets| match tickets {
            Ok(tickets) => RemoteBackend(link).send_with(&again, ops, &tickets, sink),
            Err(e) => {
                let failed = |(i, _)| sink.complete(i, Err(Error::clone(&e).with_outcome(Outcome::NotApplied)));
                ops.into_iter().for_each(failed);
            }
        };
        self.0.tickets.with(cx, || needs, Box::new(go));
    }

    fn send_with(&self, cx: &OpCx, ops: Vec<(usize, Submitted)>, tickets: &Shown, sink: Arc<dyn Sink>) {
        // By lanes: what is not in one part may arrive in any order, but for what goes the same way.
        let mut parts: Vec<(Vec<(usize, Submitted)>, usize)> = Vec::new();
        parts.resize_with(self.0.lanes.all().len(), Default::default);
        for (index, (op, memory)) in ops {
            let lane = self.0.lanes.of(op.object);
            let (part, bytes) = &mut parts[lane as usize];
            // Not for the sake of a small remainder.
            if memory.len() > 2 * BYTES {
                self.flush(cx, lane, std::mem::take(part), tickets, &sink);
                *bytes = 0;
                self.split((cx, lane, tickets), index, (op, memory), &sink, 1);
                continue;
            }
            if part.len() >= CALLS || (*bytes > 0 && *bytes + memory.len() > BYTES) {
                self.flush(cx, lane, std::mem::take(part), tickets, &sink);
                *bytes = 0;
            }
            *bytes += memory.len();
            part.push((index, (op, memory)));
        }
        for (lane, (part, _)) in parts.into_iter().enumerate() {
            self.flush(cx, lane as u32, part, tickets, &sink);
        }
    }

    /// A large read or write as several; an append must stay one record. A read that a publication has come across begins anew.
    fn split(
        &self,
        (cx, lane, tickets): (&OpCx, u32, &Shown),
        index: usize,
        (op, memory): Submitted,
        sink: &Arc<dyn Sink>,
        attempt: u32,
    ) {
        let offset = match op.verb {
            ObjectVerb::Write { offset } | ObjectVerb::Read { offset } => offset,
            _ if memory.len() <= PAYLOAD_BYTES => {
                return self.flush(cx, lane, vec![(index, (op, memory))], tickets, sink);
            }
            _ => {
                let e = format!("one record has at most {PAYLOAD_BYTES} bytes over the daemon's socket: split it");
                return sink.complete(index, Err(Error::too_big(e)));
            }
        };
        let pieces = memory.len().div_ceil(BYTES);
        let lens = (0..pieces).map(|n| BYTES.min(memory.len() - n * BYTES) as u64).collect();
        let again = matches!(op.verb, ObjectVerb::Read { .. }).then(|| -> Again {
            let (link, cx, tickets) = (self.0.clone(), cx.clone(), tickets.clone());
            let whole = (op.clone(), memory.part(0, memory.len()));
            Box::new(move |sink, index| {
                if attempt >= READS || cx.left_ns() == 0 {
                    let e = "the collection is published again and again while it is read: read less at a time";
                    return sink.complete(index, Err(Error::timeout(e)));
                }
                let to = sink.clone();
                let once_more =
                    move || RemoteBackend(link).split((&cx, lane, &tickets), index, whole, &to, attempt + 1);
                sink.go_on(Box::new(once_more));
            })
        });
        let joined = Arc::new(Joined::new(index, sink.clone(), lens, again));
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
            self.flush(cx, lane, vec![(n, (op, memory.part(from, len)))], tickets, &sink);
        }
    }

    fn flush(&self, cx: &OpCx, lane: u32, ops: Vec<(usize, Submitted)>, tickets: &Shown, sink: &Arc<dyn Sink>) {
        if ops.is_empty() {
            return;
        }
        let bulk = ops.iter().map(|(_, (_, memory))| memory.len()).sum::<usize>() >= BULK;
        let (sink, link, cx) = (sink.clone(), self.0.clone(), cx.clone());
        Part::new(ops, sink, link, cx, (lane, bulk), tickets.clone()).go();
    }
}

/// What an operation is about.
pub(crate) fn needs(op: &ObjectOp) -> impl Iterator<Item = Need> {
    let source = match op.verb {
        ObjectVerb::Copy { source, .. } => Some((source.collection, false)),
        _ => None,
    };
    let itself = (op.object.collection, op.verb.changes_bytes() || op.demand.stage.is_some());
    std::iter::once(itself).chain(source)
}

impl Backend for RemoteBackend {
    fn capability(&self) -> &Capability {
        self.0.targets()
    }

    fn submit(&self, cx: &OpCx, ops: Vec<Submitted>, sink: Arc<dyn Sink>) {
        self.send(cx, ops.into_iter().enumerate().collect(), sink);
    }

    fn closed(&self, object: ObjectId) {
        self.0.tickets.forget(&[object.collection]);
    }

    fn may_wait(&self) -> bool {
        true
    }
}
