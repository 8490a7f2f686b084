//! A client's connection: requests wait in an outbox until the socket takes them, and whoever waits sends and receives for
//! all. Asking never waits (O8).

use std::{
    collections::HashMap,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError,
        atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering},
    },
    time::Duration,
};

use iov_store::{Bell, Memory, seam};
use iov_types::{Clause, Error, Outcome, Priority, Result};
use iov_wire::{
    Body, Header, Verb, frame,
    messages::{Fault, GiveBack, GrantAnswer, ObjectAnswer, Welcome},
};

use rustix::event::epoll::{self, EventData, EventFlags};

use crate::{
    frames::{Frame, Frames},
    outbox::{Outbox, Withdrawn},
    polling::Polling,
    socket,
    stream::Stream,
};

mod asked;
mod ending;
mod landing;
mod sleeping;

use asked::{OnReply, Waiter};
pub(crate) use asked::{Reply, Terms};
use landing::Landing;

/// The receiving side.
struct Reading {
    frames: Frames,
    polling: Polling,
    landing: Option<Landing>,
}

/// How long after its deadline a request is answered here: a daemon that lives says better how it ended.
const GRACE_NS: i64 = 200_000_000;
/// How long whoever waits for the socket sleeps before it looks again.
const PAUSE_NS: i64 = 50_000_000;
/// Most bytes sent before others get their turn.
const TURN: usize = 4 << 20;

/// A connection to a daemon.
pub(crate) struct Connection {
    pub(crate) stream: Stream,
    out: Mutex<Outbox>,
    reading: Mutex<Reading>,
    /// Somebody found `reading` locked and could not wait: whoever has it looks once more.
    missed: AtomicBool,
    waiting: Mutex<HashMap<u64, Waiter>>,
    /// Not later than the first of those who wait gives up.
    first_until: AtomicI64,
    /// Grows with each round of dispatching, so that those who do not read themselves know when to look again.
    rounds: Mutex<u64>,
    dispatched: Bell,
    broken: AtomicBool,
    /// When it turned out so.
    broke_ns: AtomicI64,
    /// How many threads are telling those who waited that it broke.
    telling: AtomicU32,
    /// The set of epoll that tells of answers.
    watched: OnceLock<Arc<OwnedFd>>,
    /// It tells of room in the socket too. Changes with the outbox locked.
    tells_of_room: AtomicBool,
    version: u16,
    /// The server knows what comes first.
    priorities: bool,
    network: bool,
    /// Of the server.
    pub(crate) incarnation: u64,
    /// For how long what is locked over it is sure once it has broken.
    pub(crate) sure_ns: i64,
    /// What was asked last is of the foreground: its answer is looked for.
    hurries: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Nobody looks any more, whatever became of who did.
struct Stops<'a>(&'a Stream);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.look(false);
    }
}

fn broken() -> Error {
    Error::unavailable("the connection to the store's daemon is broken")
}

/// How long a request is waited for; what tidies up behind its deadline is sent too.
fn until(deadline_ns: i64) -> i64 {
    deadline_ns.saturating_add(GRACE_NS).max(seam::monotonic_ns() + GRACE_NS / 4)
}

impl Connection {
    /// A connection over which hands have been shaken.
    pub(crate) fn new(stream: Stream, frames: Frames, welcome: &Welcome, network: bool) -> Connection {
        Connection {
            stream,
            out: Mutex::default(),
            reading: Mutex::new(Reading { frames, polling: Polling::default(), landing: None }),
            missed: AtomicBool::new(false),
            waiting: Mutex::default(),
            first_until: AtomicI64::new(i64::MAX),
            rounds: Mutex::default(),
            dispatched: Bell::default(),
            broken: AtomicBool::new(false),
            broke_ns: AtomicI64::new(0),
            telling: AtomicU32::new(0),
            watched: OnceLock::new(),
            tells_of_room: AtomicBool::new(false),
            version: welcome.version,
            priorities: welcome.priorities,
            network,
            incarnation: welcome.incarnation,
            sure_ns: crate::doubt::sure_ns(welcome.lease_ns),
            hurries: AtomicBool::new(false),
        }
    }

    /// Whether it goes over a network, and not by a socket of this host.
    pub(crate) fn is_network(&self) -> bool {
        self.network
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::SeqCst)
    }

    /// Sends a request; `done` is called once, from whatever thread reads the answer, or here if it cannot be sent. One that
    /// the socket does not take by the deadline is never sent.
    pub(crate) fn request<B: Body>(&self, body: &B, terms: Terms, done: OnReply) {
        let until_ns = until(terms.deadline_ns);
        let waiter = Waiter { done, until_ns, unsent_only: true, lends: false, rooms: Vec::new() };
        self.post(body, Vec::new(), terms, Some(waiter));
    }

    /// The same; `done` hears of the deadline as well if no answer comes by then (O8). The payload, and the rooms for what
    /// operations on objects read, are lent until `done` is called, and not touched after that.
    pub(crate) fn request_in_time<B: Body>(
        &self,
        body: &B,
        payload: Vec<Memory>,
        rooms: Vec<Memory>,
        terms: Terms,
        done: OnReply,
    ) {
        let until_ns = until(terms.deadline_ns);
        let waiter = Waiter { done, until_ns, unsent_only: false, lends: !payload.is_empty(), rooms };
        self.post(body, payload, terms, Some(waiter));
    }

    /// Sends a frame that has no answer; failures show at the next request.
    pub(crate) fn tell<B: Body>(&self, body: &B) {
        self.post(body, Vec::new(), Terms::by(i64::MAX), None);
    }

    /// Puts a frame behind what the socket has not taken yet, and sends what it takes now.
    fn post<B: Body>(&self, body: &B, payload: Vec<Memory>, terms: Terms, waiter: Option<Waiter>) {
        let mut out = lock(&self.out);
        let request = if waiter.is_some() { out.next() } else { 0 };
        let hurries = terms.priority == Priority::Foreground;
        if waiter.is_some() {
            self.hurries.store(hurries, Ordering::Relaxed);
        }
        let gives_way = self.priorities && !hurries;
        let flags = if gives_way { frame::BACKGROUND } else { 0 };
        let header = Header { version: self.version, flags, ..Header::new(B::VERB, request) };
        // Under the lock: whoever finds the connection broken later finds this in the outbox.
        let posted = if self.is_broken() { Err(broken()) } else { out.push(header, body, payload, terms.deadline_ns) };
        match (posted, waiter) {
            (Ok(()), Some(waiter)) => self.expect(request, waiter),
            (Err(e), Some(waiter)) => {
                drop(out);
                return (waiter.done)(Err(e.with_outcome(Outcome::NotApplied)));
            }
            (_, None) => {}
        }
        drop(out);
        self.flush();
    }

    fn expect(&self, request: u64, waiter: Waiter) {
        let mut waiting = lock(&self.waiting);
        self.first_until.fetch_min(waiter.until_ns, Ordering::SeqCst);
        waiting.insert(request, waiter);
    }

    /// Whether anybody waits for an answer, or for something to be sent.
    pub(crate) fn is_awaited(&self) -> bool {
        !lock(&self.waiting).is_empty() || self.has_more_to_send()
    }

    /// Whether anybody waits for an answer.
    pub(crate) fn has_waiters(&self) -> bool {
        !lock(&self.waiting).is_empty()
    }

    /// Whether the socket has not taken everything yet.
    pub(crate) fn has_more_to_send(&self) -> bool {
        self.has_unsent(&lock(&self.out))
    }

    fn has_unsent(&self, out: &Outbox) -> bool {
        !out.is_empty() || self.stream.owes()
    }

    /// Sends what the socket takes now.
    pub(crate) fn flush(&self) {
        let mut out = lock(&self.out);
        let mut done = 0;
        while !out.is_empty() && done < TURN && !self.is_broken() {
            out.refresh();
            let sent = self.stream.send_some(&out.pieces(), &[]);
            match sent {
                Ok(Some(n)) => {
                    out.took(n, self.stream.rings());
                    done += n;
                }
                Ok(None) => break,
                Err(e) => {
                    drop(out);
                    return self.fail(&e);
                }
            }
        }
        if self.stream.owes()
            && let Err(e) = self.stream.push()
        {
            drop(out);
            return self.fail(&e);
        }
        self.tell_of_room(self.has_unsent(&out));
    }

    /// Adds the connection to a set of epoll that tells of answers, and of room while there is something to send. A
    /// connection has at most one.
    pub(crate) fn watch(&self, set: &Arc<OwnedFd>) {
        // No room in the set: who waits for the descriptor alone then waits until it polls.
        if self.watched.set(set.clone()).is_ok() {
            let _ = epoll::add(&**set, &self.stream, EventData::new_u64(1), EventFlags::IN | EventFlags::ET);
            self.flush();
        }
    }

    /// The outbox is locked.
    fn tell_of_room(&self, wanted: bool) {
        if self.tells_of_room.load(Ordering::Relaxed) == wanted {
            return;
        }
        let Some(set) = self.watched.get() else { return };
        let room = if wanted { EventFlags::OUT } else { EventFlags::empty() };
        let changed =
            epoll::modify(&**set, &self.stream, EventData::new_u64(1), EventFlags::IN | EventFlags::ET | room);
        self.tells_of_room.store(wanted && changed.is_ok(), Ordering::Relaxed);
    }

    /// A frame that was begun cannot be ended.
    fn stuck(&self) {
        self.fail(&Error::exhausted("no memory is left to end a request that was begun"));
    }

    /// Tells those whose time is up.
    fn expire(&self) {
        let now = seam::monotonic_ns();
        if now < self.first_until.load(Ordering::SeqCst) {
            return;
        }
        let late: Vec<(Waiter, Withdrawn)> = {
            let mut out = lock(&self.out);
            let mut all = lock(&self.waiting);
            let is_late = |request: &u64, waiter: &mut Waiter| {
                let late = waiter.until_ns <= now;
                let goes_on = late && waiter.unsent_only && !out.is_unsent(*request);
                if goes_on {
                    waiter.until_ns = i64::MAX;
                }
                late && !goes_on
            };
            let mut late: Vec<(u64, Waiter)> = all.extract_if(is_late).collect();
            let next = all.values().map(|waiter| waiter.until_ns).min();
            // While nobody can ask for more.
            self.first_until.store(next.unwrap_or(i64::MAX), Ordering::SeqCst);
            drop(all);
            late.sort_unstable_by_key(|(request, _)| *request);
            late.into_iter().map(|(request, waiter)| (waiter, out.withdraw(request))).collect()
        };
        if late.iter().any(|(_, withdrawn)| *withdrawn == Withdrawn::Stuck) {
            self.stuck();
        }
        for (waiter, withdrawn) in late {
            let error = match withdrawn {
                Withdrawn::Unsent => Error::timeout("the daemon took no request by the deadline"),
                _ => Error::timeout("the daemon did not answer by the deadline; it may have taken effect")
                    .with_outcome(Outcome::Unknown),
            };
            (waiter.done)(Err(error.with_clause(Clause::O8)));
        }
    }

    /// Receives answers in this thread for at most `timeout_ns` (0 = without blocking), or waits until somebody else who
    /// is doing so has brought some. `false`: nobody waits for any.
    pub(crate) fn drive(&self, timeout_ns: i64) -> bool {
        self.flush();
        let waits = self.receive(timeout_ns);
        self.expire();
        waits
    }

    /// Leave to read. `None`: somebody else does, and has been waited for for a moment, or looks once more.
    fn reader(&self, timeout_ns: i64) -> Option<MutexGuard<'_, Reading>> {
        let try_lock = || match self.reading.try_lock() {
            Ok(frames) => Some(frames),
            Err(TryLockError::Poisoned(p)) => Some(p.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        };
        let seen = *lock(&self.rounds);
        if let Some(frames) = try_lock() {
            return Some(frames);
        }
        if timeout_ns <= 0 {
            self.missed.store(true, Ordering::SeqCst);
            // Who has let go meanwhile may not have seen that.
            return try_lock();
        }
        // Short: the reader may stop reading without having anything for us.
        let wait_ns = timeout_ns.min(1_000_000);
        if self.has_more_to_send() {
            // The reader may not know that there is something to send.
            socket::wait_for_room(&self.stream, wait_ns);
            return None;
        }
        let rounds = lock(&self.rounds);
        if *rounds == seen {
            let wait = Duration::from_nanos(wait_ns as u64);
            drop(self.dispatched.wait(rounds, wait));
        }
        None
    }

    fn receive(&self, mut timeout_ns: i64) -> bool {
        loop {
            let Some(mut reading) = self.reader(timeout_ns) else { return true };
            if lock(&self.waiting).is_empty() {
                return false;
            }
            self.receive_with(&mut reading, timeout_ns);
            reading.polling.rest();
            drop(reading);
            *lock(&self.rounds) += 1;
            self.dispatched.ring();
            if !self.missed.swap(false, Ordering::SeqCst) {
                return true;
            }
            timeout_ns = 0;
        }
    }

    /// Says that nobody looks into the ring any more. `true`: there may be something of which nobody will be told.
    fn stops_looking(&self) -> bool {
        let looked = self.stream.looks();
        self.stream.look(false);
        // Who looks leaves out the socket at times; a set of epoll has told of it already.
        looked && (self.stream.holds() || self.watched.get().is_some())
    }

    fn receive_with(&self, reading: &mut Reading, timeout_ns: i64) {
        let mut waited = timeout_ns == 0;
        let hurries = self.hurries.load(Ordering::Relaxed);
        // From the beginning: so the daemon need not wake anybody, whenever it answers.
        self.stream.look(!waited && hurries && reading.polling.pays());
        let _stops = Stops(&self.stream);
        loop {
            match self.take_frame(reading) {
                Ok(Some(())) => {
                    reading.polling.came();
                    waited = true;
                }
                Ok(None) if !waited && hurries && reading.polling.goes_on(&self.stream, || self.stream.stirs()) => {}
                Ok(None) if self.stops_looking() => {}
                Ok(None) if waited => return,
                Ok(None) => {
                    self.sleep(timeout_ns);
                    waited = true;
                }
                Err(e) => return self.fail(&e),
            }
        }
    }

    /// Takes what has arrived of the next frame; `None`: nothing.
    fn take_frame(&self, reading: &mut Reading) -> Result<Option<()>> {
        if let Some(landing) = reading.landing.take() {
            return self.land(reading, landing);
        }
        let Reading { frames, landing, .. } = reading;
        if frames.is_within() {
            return match frames.next(&self.stream, false)? {
                Some(frame) => self.dispatch(frame, frames).map(Some),
                None => Ok(None),
            };
        }
        let (header, body) = loop {
            match frames.head(&self.stream, false)? {
                Some((header, _)) if header.verb == Verb::Wake.number() && header.payload_len == 0 => {}
                Some(head) => break head,
                None => return Ok(None),
            }
        };
        let answer = (header.verb == Verb::ObjectAnswer.number()).then(|| header.body::<ObjectAnswer>(&body));
        let Some(Ok(answer)) = answer else {
            // One that cannot be read is told to whoever asked, behind its payload.
            frames.begin(header, body);
            return Ok(Some(()));
        };
        let bytes = answer.completions.iter().fold(0u64, |sum, c| sum.saturating_add(c.len));
        if bytes != header.payload_len {
            return Err(Error::corrupt("the daemon sent other bytes than it tells of"));
        }
        *landing = Some(Landing { request: header.request, answer, at: 0, done: 0 });
        Ok(Some(()))
    }

    fn dispatch(&self, frame: Frame, frames: &mut Frames) -> Result<()> {
        let request = frame.header.request;
        let reply = match frame.header.verb()? {
            Verb::GrantAnswer => match frame.header.body::<GrantAnswer>(&frame.body)? {
                GrantAnswer::Granted(granted) => {
                    let count = granted.window.as_ref().map_or(1, |window| window.passed.len());
                    Ok(Reply::Granted(granted, frames.take_fds(count)?))
                }
                GrantAnswer::Failed(e) => Err(e),
            },
            Verb::ObjectAnswer => {
                frame.header.check_body(&frame.body)?;
                match frame.header.body::<ObjectAnswer>(&frame.body) {
                    Ok(_) => Err(Error::internal("an answer was not read as it came")),
                    Err(e) => Err(e.with_outcome(Outcome::Applied)),
                }
            }
            Verb::Fault => Err(frame.header.body::<Fault>(&frame.body)?.error),
            _ => {
                frame.header.check_body(&frame.body)?;
                Ok(Reply::Frame(frame))
            }
        };
        match (request, reply) {
            (0, Err(fault)) => Err(fault),
            (0, Ok(_)) => Ok(()),
            (request, reply) => {
                self.answer(request, reply);
                Ok(())
            }
        }
    }

    fn answer(&self, request: u64, reply: Result<Reply>) {
        let waiter = lock(&self.waiting).remove(&request);
        match (waiter, reply) {
            (Some(waiter), reply) => {
                if waiter.lends {
                    // A daemon may answer what it has not read.
                    let withdrawn = lock(&self.out).withdraw(request);
                    if withdrawn == Withdrawn::Stuck {
                        self.stuck();
                    }
                }
                (waiter.done)(reply);
            }
            // An answer to a request that was given up is dropped, but not what it brought.
            (None, Ok(Reply::Granted(granted, _))) => self.tell(&GiveBack { grant: granted.grant }),
            (None, _) => {}
        }
    }
}
