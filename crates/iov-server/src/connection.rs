//! One connection: the handshake, then one verb after the other; answers may come from other threads.
//!
//! It is a state machine: whichever worker finds that it has something serves it as far as it goes without waiting.

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering},
    },
};

use iov_net::{
    frames::{Frame, Frames},
    polling::Polling,
    stream::Stream,
    tls::Exported,
};
use iov_store::{End as Side, Rings, rings_memory, seam};
use iov_types::{Error, Kind, Outcome, Priority, Result};
use iov_wire::{Body, Header, Verb, frame, messages::Fault};

use crate::{
    Server,
    buffers::Buffer,
    client::{Client, priority},
    outgoing::{Outgoing, Parcel},
    verbs::{self, hello::Greeting},
    watch::Others,
    workers::{Awaits, Workers},
};

mod behind;
mod ending;
mod gentle;
mod looked;

use ending::{End, Falls};

/// How long whoever connects may take to say who he is.
const GREETING_NS: i64 = 10_000_000_000;

/// Largest frame of whoever is not in yet.
const GREETING_BYTES: usize = 16 << 10;

/// A worker serves a connection for so many frames, or bytes, before others get their turn.
const TURN_FRAMES: usize = 256;
const TURN_BYTES: usize = 16 << 20;
/// The same for requests in the background, which wait for others, and have few to serve them.
const GENTLE_FRAMES: usize = 8;
/// What a worker keeps for the payloads to come.
const SPARE_BYTES: usize = 4 << 20;

/// A connection and what is known of its other side.
pub(crate) struct Connection {
    id: u64,
    stream: Stream,
    born_ns: i64,
    /// It came over a network.
    network: bool,
    greeted: AtomicBool,
    /// Nobody has closed it: what could be sent no more, or this side has given up, is no end of the session.
    broke: AtomicBool,
    /// It has ended: what came over it waits for nothing any more.
    left: AtomicBool,
    /// Somebody serves it.
    served: AtomicBool,
    /// How often it was gone through until nothing was left, twice; odd while it is.
    rounds: AtomicU64,
    /// Nobody has to wait until it is through, for so many reasons.
    passed: AtomicU32,
    /// Another worker looks at it: what comes by its ring need not be told of.
    looked_at: AtomicBool,
    /// Until when something is expected, on the monotonic clock.
    expected_ns: AtomicI64,
    out: Mutex<Out>,
    /// Whoever serves it has this.
    incoming: Mutex<Incoming>,
}

struct Out {
    outgoing: Outgoing,
    /// Since when the peer has taken nothing.
    stuck_since_ns: i64,
    /// Somebody serves it, and sees to what it waits for next.
    served: bool,
    /// A request has been read already, for those who serve it now.
    set_aside: bool,
    /// Those who serve it; `None` before and behind its life.
    workers: Option<Arc<Workers>>,
    /// What they have been told to wait for, and have not been told of yet.
    armed: Option<Awaits>,
}

struct Incoming {
    frames: Frames,
    greeting: Greeting,
    polling: Polling,
    client: Option<Arc<Client>>,
    /// It has asked something besides for what it had.
    back: bool,
    /// Of the requests that are served just now.
    priority: Priority,
    /// The next one, where others than those who have read it serve it.
    aside: Option<Frame>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl Connection {
    pub(crate) fn new(id: u64, stream: Stream, network: bool) -> Connection {
        let out = Out {
            outgoing: Outgoing::default(),
            stuck_since_ns: 0,
            served: false,
            set_aside: false,
            workers: None,
            armed: None,
        };
        let mut frames = Frames::without_descriptors();
        frames.limit(GREETING_BYTES);
        let incoming = Incoming {
            frames,
            greeting: Greeting::default(),
            polling: Polling::of_server(),
            client: None,
            back: false,
            priority: Priority::Foreground,
            aside: None,
        };
        Connection {
            id,
            stream,
            born_ns: seam::monotonic_ns(),
            network,
            greeted: AtomicBool::new(false),
            broke: AtomicBool::new(false),
            left: AtomicBool::new(false),
            served: AtomicBool::new(false),
            rounds: AtomicU64::new(0),
            passed: AtomicU32::new(0),
            looked_at: AtomicBool::new(false),
            expected_ns: AtomicI64::new(0),
            out: Mutex::new(out),
            incoming: Mutex::new(incoming),
        }
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Whether its peer has not proved yet who it is.
    pub(crate) fn is_greeting(&self) -> bool {
        !self.greeted.load(Ordering::Relaxed)
    }

    /// Whether it came over a network, where no kernel tells who is there.
    pub(crate) fn is_network(&self) -> bool {
        self.network
    }

    /// Has these workers serve it from now on.
    pub(crate) fn served_by(&self, workers: &Arc<Workers>) -> Result<()> {
        let mut out = lock(&self.out);
        if let Some(old) = out.workers.take() {
            old.remove(self);
        }
        let awaits = self.awaits(&out);
        workers.add(self, awaits)?;
        out.armed = Some(awaits);
        out.workers = Some(workers.clone());
        Ok(())
    }

    /// Sends an answer, now or as the peer takes it. One that has gone does not need it, and whoever serves it sees the end.
    pub(crate) fn answer<B: Body>(
        &self,
        version: u16,
        request: u64,
        body: &B,
        payload: Vec<Buffer>,
        fds: Vec<OwnedFd>,
    ) {
        self.answer_of(version, request, body, payload, fds, Outcome::NotApplied);
    }

    /// The same of what may have changed something: `else_told`, if the answer is larger than any can be.
    pub(crate) fn answer_of<B: Body>(
        &self,
        version: u16,
        request: u64,
        body: &B,
        payload: Vec<Buffer>,
        fds: Vec<OwnedFd>,
        else_told: Outcome,
    ) {
        let payload_len = payload.iter().map(|p| p.len() as u64).sum();
        let header = Header { version, payload_len, ..Header::new(B::VERB, request) };
        let mut parcel = Parcel { head: Vec::new(), payload, fds };
        if let Err(error) = frame::append(header, body, &mut parcel.head) {
            parcel = Parcel::default();
            let error = error.with_outcome(else_told);
            if frame::append(Header { payload_len: 0, ..header }, &Fault { error }, &mut parcel.head).is_err() {
                return;
            }
        }
        let mut out = lock(&self.out);
        out.outgoing.push(parcel);
        self.send(&mut out);
        if !self.has_sent(&out) && !out.served {
            self.arm(&mut out);
        }
    }

    /// Sends what the peer takes now.
    fn send(&self, out: &mut Out) {
        match out.outgoing.send(&self.stream) {
            Ok(false) if out.stuck_since_ns != 0 => {}
            Ok(_) => out.stuck_since_ns = seam::monotonic_ns(),
            // It cannot go on in the middle of a frame. Whoever reads sees the end, of which the kernel says no more how it came.
            Err(_) => {
                out.outgoing = Outgoing::default();
                self.shut();
            }
        }
        if self.has_sent(out) {
            out.stuck_since_ns = 0;
        }
    }

    /// Whether nothing waits for room.
    fn has_sent(&self, out: &Out) -> bool {
        out.outgoing.is_empty() && !self.stream.owes()
    }

    /// From now on what may goes by rings; their memory, for its peer.
    pub(crate) fn begin_rings(&self) -> Result<OwnedFd> {
        let memory = rings_memory()?;
        self.stream.begin(Rings::map(&memory, Side::Server)?);
        Ok(memory)
    }

    /// What only the two ends of this connection know.
    pub(crate) fn exported(&self) -> Result<Option<Exported>> {
        self.stream.exported()
    }

    fn arm(&self, out: &mut Out) {
        let awaits = Some(self.awaits(out));
        if let (Some(workers), Some(awaits)) = (&out.workers, awaits.filter(|_| out.armed != awaits)) {
            workers.arm(self, awaits);
            out.armed = Some(awaits);
        }
    }

    fn awaits(&self, out: &Out) -> Awaits {
        match self.has_sent(out) {
            // What has been read ahead the socket does not tell of any more.
            true if out.set_aside || (self.stream.holds() && !self.looked_at.load(Ordering::SeqCst)) => Awaits::Turn,
            true => Awaits::Request,
            false => Awaits::Room,
        }
    }

    /// Serves what has arrived for one of these workers, and has them, or others by then, wait for more. What the worker then serves, as it looks at that
    /// too. `told`: it was told that there is something, and not looking.
    pub(crate) fn serve(
        self: &Arc<Self>,
        by: &Arc<Workers>,
        server: &Arc<Server>,
        spare: &mut Vec<u8>,
        others: &mut Others,
        told: bool,
    ) -> Option<Arc<Connection>> {
        let mut out = lock(&self.out);
        if told {
            out.armed = None;
        }
        // It may have gone to others since it was told of. Whoever serves it still has them wait again.
        if out.served || !out.workers.as_ref().is_some_and(|workers| Arc::ptr_eq(workers, by)) {
            return None;
        }
        out.served = true;
        self.served.store(true, Ordering::Relaxed);
        drop(out);
        let mut incoming = lock(&self.incoming);
        let falls = Falls(self);
        // Payloads go into memory of the worker: so many workers, so many buffers.
        incoming.frames.exchange(spare);
        let served = self.run(server, &mut incoming, others);
        let may_be_kept = served.is_ok() && incoming.priority == Priority::Foreground && incoming.polling.pays();
        if may_be_kept && self.stream.has_rings() && server.watch.keep(self) {
            self.expected_ns.store(incoming.polling.leave(), Ordering::Relaxed);
        } else {
            server.watch.let_go_of(self);
            // Before it is asked what is there that nobody will be told of.
            self.stream.look(false);
            incoming.polling.rest();
        }
        incoming.frames.take_back(spare);
        if spare.len() > SPARE_BYTES {
            *spare = Vec::new();
        }
        std::mem::forget(falls);
        let mut out = lock(&self.out);
        out.served = false;
        self.served.store(false, Ordering::Relaxed);
        let end = match served {
            Ok(next) => {
                drop(incoming);
                self.arm(&mut out);
                return next;
            }
            Err(end) => end,
        };
        server.watch.forget(self);
        if let Some(workers) = out.workers.take() {
            workers.remove(self);
        }
        drop(out);
        let client = incoming.client.take();
        drop(incoming);
        if let Some(client) = client {
            // Before its session goes on over another one.
            server.leave_parked(self);
            let broke = self.network && (end == End::Broke || self.broke.load(Ordering::SeqCst));
            server.connection_ended(client.session, client.channel, self.id, broke);
        }
        // Somebody who looks may still know it.
        let _ = rustix::net::shutdown(&self.stream, rustix::net::Shutdown::Both);
        server.ended(self.id);
        // What it had has gone.
        self.is_passed();
        None
    }

    /// Serves what has arrived. What is to be served next, by who looks.
    fn run(
        self: &Arc<Self>,
        server: &Arc<Server>,
        incoming: &mut Incoming,
        others: &mut Others,
    ) -> std::result::Result<Option<Arc<Connection>>, End> {
        let (mut frames, mut bytes) = (0, 0);
        loop {
            // Others want to be served too, and a daemon to end; but what is in the buffer no socket tells of again.
            let most = if incoming.priority == Priority::Background { GENTLE_FRAMES } else { TURN_FRAMES };
            if (frames >= most || bytes >= TURN_BYTES) && incoming.frames.is_between() {
                return Ok(None);
            }
            if server.is_over() {
                return Err(End::Over);
            }
            let mut out = lock(&self.out);
            self.send(&mut out);
            if !self.has_sent(&out) {
                return Ok(None);
            }
            out.set_aside = false;
            drop(out);
            self.begins_round();
            let next = match incoming.aside.take() {
                Some(frame) => Ok(Some(frame)),
                None => incoming.frames.next(&self.stream, false),
            };
            if matches!(next, Ok(None)) {
                self.ends_round();
            }
            let frame = match next {
                Ok(Some(frame)) => {
                    incoming.polling.came();
                    frame
                }
                Ok(None) if incoming.priority == Priority::Foreground => {
                    // Who has come to it in vain looks, for a while, before he goes on.
                    if let Some(other) = others.ready(self).filter(|_| frames > 0) {
                        return Ok(Some(other.clone()));
                    }
                    let there = || self.stream.stirs() || others.ready(self).is_some();
                    if !incoming.polling.goes_on(&self.stream, there) {
                        let other = others.expected(self).filter(|_| !incoming.polling.has_no_place());
                        return Ok(other.cloned());
                    }
                    server.watch.looks(others);
                    if let Some(other) = others.ready(self) {
                        return Ok(Some(other.clone()));
                    }
                    continue;
                }
                Ok(None) => return Ok(None),
                Err(e) if e.kind() != Kind::Unavailable => {
                    self.refuse(&e);
                    // Over a network it was damaged on its way, perhaps: its client comes back.
                    return Err(End::Broke);
                }
                Err(_) if incoming.frames.at_end() => return Err(End::Over),
                Err(_) => return Err(End::Broke),
            };
            let Some(client) = &incoming.client else {
                match verbs::hello::greet(self, server, &mut incoming.greeting, &frame) {
                    Ok(None) => continue,
                    Ok(Some(client)) => incoming.client = Some(Arc::new(client)),
                    Err(e) => {
                        self.refuse(&e);
                        return Err(End::Over);
                    }
                }
                self.greeted.store(true, Ordering::Relaxed);
                incoming.frames.limit(usize::MAX);
                continue;
            };
            if frame.header.verb == Verb::Wake.number() {
                frames += 1;
                continue;
            }
            if priority(&frame.header) != incoming.priority {
                let channel = client.channel;
                server.watch.forget(self);
                return self.set_aside(server, incoming, frame, channel).map(|()| None);
            }
            (frames, bytes) = (frames + 1, bytes + frame.payload.len());
            let request = frame.header.request;
            // A session that comes back first says what it had: until it has, nothing of that is given up.
            if !incoming.back && frame.header.verb() != Ok(Verb::Resume) {
                incoming.back = true;
                server.came_back(client.session);
            }
            let handled = self.handle(server, client, &frame);
            match handled {
                Ok(true) => {}
                Ok(false) => return Err(End::Over),
                // Nobody waits for what has no number, and the fault of a connection has none.
                Err(_) if request == 0 => {}
                Err(e) => self.fault(client.version, request, e),
            }
            incoming.frames.give_back(frame);
        }
    }

    /// `false`: the peer said goodbye.
    fn handle(self: &Arc<Self>, server: &Arc<Server>, client: &Arc<Client>, frame: &Frame) -> Result<bool> {
        server.requests.fetch_add(1, Ordering::Relaxed);
        let verb = frame.header.verb()?;
        let priority = priority(&frame.header);
        if priority == Priority::Background {
            server.background.fetch_add(1, Ordering::Relaxed);
            self.is_alive(server, client);
        }
        if client.channel > 0 && !matches!(verb, Verb::Object | Verb::Goodbye) {
            return Err(Error::invalid(format!("{} goes over the session's first connection", verb.name())));
        }
        if client.target > 0 && matches!(verb, Verb::Catalog) {
            return Err(Error::invalid("this session is for one target's objects: ask the catalog in another"));
        }
        match verb {
            Verb::Catalog => {
                let _turn = server.turns.take(priority);
                verbs::catalog::run(self, server, client, frame)?;
            }
            Verb::Object => {
                let _turn = server.turns.take(priority);
                verbs::object::run(self, server, client, frame)?;
            }
            Verb::Grant => verbs::grant::run(self, server, client, frame)?,
            Verb::Sums => {
                let _turn = server.turns.take(priority);
                verbs::sums::run(self, server, client, frame)?;
            }
            Verb::TakeBack => verbs::take_back::run(self, server, client, frame)?,
            Verb::GiveBack => verbs::give_back::run(server, client, frame)?,
            Verb::Renew => verbs::renew::run(self, server, client, frame)?,
            Verb::Status => verbs::status::run(self, server, client, frame)?,
            Verb::Resume => verbs::resume::run(self, server, client, frame)?,
            Verb::Join => verbs::join::run(self, server, client, frame)?,
            Verb::Shutdown => verbs::shutdown::run(self, server, client, frame)?,
            Verb::Goodbye => return Ok(false),
            verb => {
                return Err(Error::version(format!("a client does not send {}", verb.name())));
            }
        }
        Ok(true)
    }
}
