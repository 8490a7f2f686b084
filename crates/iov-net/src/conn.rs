//! A client's connection: requests go out under one lock, and whoever waits reads the answers of all.

use std::{
    collections::HashMap,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError, TryLockError,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use iov_store::seam;
use iov_types::{Clause, Error, Kind, Outcome, Result};
use iov_wire::{
    Body, Header, Verb,
    frame::{self, NO_DEADLINE},
    messages::{Fault, GrantAnswer, Granted, Hello, Welcome},
};

use crate::{
    frames::{Frame, Frames},
    outbox::Outbox,
    socket,
};

/// What answers a request.
pub(crate) enum Reply {
    Frame(Frame),
    /// Without a descriptor where this process has no room for one.
    Granted(Granted, Option<OwnedFd>),
}

type OnReply = Box<dyn FnOnce(Result<Reply>) + Send>;

/// Who waits for an answer.
struct Waiter {
    done: OnReply,
    /// When it gives up; for ever if whoever asked does so by himself.
    until_ns: i64,
}

/// How long after its deadline a request is answered here: a daemon that lives says better how it ended.
const GRACE_NS: i64 = 200_000_000;
/// How long whoever waits for the socket sleeps before it looks again.
const PAUSE: Duration = Duration::from_millis(50);

/// A connection to a daemon.
pub(crate) struct Connection {
    fd: OwnedFd,
    out: Mutex<Outbox>,
    /// Nobody is sending any more.
    freed: Condvar,
    reading: Mutex<Frames>,
    waiting: Mutex<HashMap<u64, Waiter>>,
    /// Not later than the first of those who wait gives up.
    first_until: AtomicI64,
    /// Grows with each round of dispatching, so that those who do not read themselves know when to look again.
    rounds: Mutex<u64>,
    dispatched: Condvar,
    next: AtomicU64,
    /// The request that is being sent: its memory is in use until that has ended, whatever happens meanwhile; 0 = none.
    sending: AtomicU64,
    broken: AtomicBool,
    version: u16,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn broken() -> Error {
    Error::unavailable("the connection to the store's daemon is broken")
}

/// A deadline that passed before all was sent.
fn late(why: &str) -> Error {
    Error::timeout(format!("the deadline has passed: {why}")).with_clause(Clause::O8)
}

impl Connection {
    /// Shakes hands over a connected socket; the descriptor is the session's lease page.
    pub(crate) fn open(fd: OwnedFd, hello: &Hello, timeout_ns: i64) -> Result<(Connection, Welcome, OwnedFd)> {
        let mut out = Vec::new();
        frame::append(Header { deadline_left_ns: timeout_ns as u64, ..Header::new(Verb::Hello, 0) }, hello, &mut out)?;
        let until = seam::monotonic_ns().saturating_add(timeout_ns);
        socket::send(&fd, &[&out], &[], || seam::monotonic_ns() < until)?;
        let mut frames = Frames::default();
        let welcome = loop {
            if let Some(frame) = frames.next(&fd, false)? {
                break frame;
            }
            if !socket::wait_readable(&fd, (until - seam::monotonic_ns()).max(0)) && seam::monotonic_ns() >= until {
                return Err(Error::timeout("the store's daemon does not answer; see its log, or end it and try again"));
            }
        };
        if welcome.header.verb == Verb::Fault.number() {
            return Err(welcome.header.body::<Fault>(&welcome.body)?.error);
        }
        let welcome: Welcome = welcome.header.body(&welcome.body)?;
        let page = frames.take_fd()?.ok_or_else(|| socket::no_descriptor("the session's lease page"))?;
        let connection = Connection {
            fd,
            out: Mutex::default(),
            freed: Condvar::new(),
            reading: Mutex::new(frames),
            waiting: Mutex::default(),
            first_until: AtomicI64::new(i64::MAX),
            rounds: Mutex::default(),
            dispatched: Condvar::new(),
            next: AtomicU64::new(1),
            sending: AtomicU64::new(0),
            broken: AtomicBool::new(false),
            version: welcome.version,
        };
        Ok((connection, welcome, page))
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::SeqCst)
    }

    /// Sends a request; `done` is called once, from whatever thread reads the answer, or here if it cannot be sent.
    pub(crate) fn request<B: Body>(&self, body: &B, payload: &[&[u8]], left_ns: i64, done: OnReply) {
        self.send(body, payload, left_ns, Waiter { done, until_ns: i64::MAX });
    }

    /// The same; `done` hears of the deadline as well if no answer comes by then (O8). Memory that is lent to the request
    /// is not touched after that.
    pub(crate) fn request_in_time<B: Body>(&self, body: &B, payload: &[&[u8]], left_ns: i64, done: OnReply) {
        let until_ns = seam::monotonic_ns().saturating_add(left_ns).saturating_add(GRACE_NS);
        self.send(body, payload, left_ns, Waiter { done, until_ns });
    }

    fn send<B: Body>(&self, body: &B, payload: &[&[u8]], left_ns: i64, waiter: Waiter) {
        let request = self.next.fetch_add(1, Ordering::Relaxed);
        let payload_len = payload.iter().map(|p| p.len() as u64).sum();
        let deadline_left_ns = if left_ns == i64::MAX { NO_DEADLINE } else { left_ns.max(0) as u64 };
        let header = Header { version: self.version, payload_len, deadline_left_ns, ..Header::new(B::VERB, request) };
        let waiter = match payload_len {
            0 => match self.post(header, body, Some(waiter)) {
                None => return self.flush(),
                Some(waiter) => waiter,
            },
            _ => waiter,
        };
        let mut out = Vec::new();
        if let Err(e) = frame::append(header, body, &mut out) {
            return (waiter.done)(Err(e));
        }
        let until = seam::monotonic_ns().saturating_add(left_ns);
        if let Err(e) = self.take_turn(until) {
            return (waiter.done)(Err(e));
        }
        self.sending.store(request, Ordering::SeqCst);
        self.expect(request, waiter);
        let mut parts: Vec<&[u8]> = vec![&out];
        parts.extend(payload);
        let whole: usize = parts.iter().map(|part| part.len()).sum();
        let sent = if self.is_broken() {
            Err(broken())
        } else {
            socket::send(&self.fd, &parts, &[], || self.drive_until(until))
        };
        let failed = match sent {
            Ok(sent) if sent == whole && self.is_broken() => Some(broken().with_outcome(Outcome::Unknown)),
            Ok(sent) if sent == whole => None,
            Ok(0) => Some(late("the daemon takes nothing")),
            // A frame that was begun has to be ended, without the caller's memory.
            Ok(sent) if lock(&self.out).push_rest(request, &parts, sent) => {
                Some(late("the daemon takes nothing more").with_outcome(Outcome::Unknown))
            }
            Ok(_) => Some(broken()),
            Err(e) => Some(e),
        };
        if failed.as_ref().is_some_and(|e| e.kind() != Kind::Timeout) {
            // Before others send: behind a part of a frame.
            self.broken.store(true, Ordering::SeqCst);
        }
        drop(parts);
        self.sending.store(0, Ordering::SeqCst);
        self.end_turn();
        self.flush();
        let Some(failed) = failed else { return };
        let waiter = lock(&self.waiting).remove(&request);
        if failed.kind() != Kind::Timeout {
            self.fail(&failed);
        }
        if let Some(waiter) = waiter {
            (waiter.done)(Err(failed));
        }
    }

    /// Sends a frame that has no answer; failures show at the next request.
    pub(crate) fn tell<B: Body>(&self, body: &B) {
        let header = Header { version: self.version, ..Header::new(B::VERB, 0) };
        self.post(header, body, None);
        self.flush();
    }

    fn expect(&self, request: u64, waiter: Waiter) {
        let mut waiting = lock(&self.waiting);
        self.first_until.fetch_min(waiter.until_ns, Ordering::SeqCst);
        waiting.insert(request, waiter);
    }

    /// Puts a frame without payload behind what the socket has not taken yet; gives the waiter back if that is too much.
    fn post<B: Body>(&self, header: Header, body: &B, waiter: Option<Waiter>) -> Option<Waiter> {
        let mut out = lock(&self.out);
        if !out.has_room() {
            return waiter;
        }
        let posted = if self.is_broken() { Err(broken()) } else { out.push(header, body) };
        match (posted, waiter) {
            (Ok(()), Some(waiter)) => self.expect(header.request, waiter),
            (Err(e), Some(waiter)) => {
                drop(out);
                (waiter.done)(Err(e));
            }
            (_, None) => {}
        }
        None
    }

    /// Sends what the socket takes now.
    fn flush(&self) {
        let mut out = lock(&self.out);
        while !out.busy && !out.is_empty() && !self.is_broken() {
            match socket::send_some(&self.fd, out.rest()) {
                Ok(Some(n)) => out.took(n),
                Ok(None) => return,
                Err(e) => {
                    drop(out);
                    return self.fail(&e);
                }
            }
        }
    }

    /// Waits until nothing is left to be sent.
    pub(crate) fn send_rest(&self, until_ns: i64) {
        // Who cannot be told finds the connection gone.
        if self.take_turn(until_ns).is_ok() {
            self.end_turn();
        }
    }

    /// Waits until nothing is left to be sent, and keeps others from sending.
    fn take_turn(&self, until_ns: i64) -> Result<()> {
        loop {
            self.flush();
            let mut out = lock(&self.out);
            if self.is_broken() {
                return Err(broken());
            }
            if !out.busy && out.is_empty() {
                out.busy = true;
                return Ok(());
            }
            if seam::monotonic_ns() >= until_ns {
                return Err(late("the daemon takes no more requests"));
            }
            let busy = out.busy;
            if busy {
                drop(self.freed.wait_timeout(out, PAUSE).unwrap_or_else(PoisonError::into_inner));
            } else {
                drop(out);
                self.drive(0);
                socket::wait_for_room(&self.fd, PAUSE.as_nanos() as i64);
            }
        }
    }

    fn end_turn(&self) {
        lock(&self.out).busy = false;
        self.freed.notify_all();
    }

    /// Receives what there is; `false` once a time has passed.
    fn drive_until(&self, until_ns: i64) -> bool {
        self.receive(0);
        self.expire();
        seam::monotonic_ns() < until_ns
    }

    /// Tells those whose time is up.
    fn expire(&self) {
        let now = seam::monotonic_ns();
        if now < self.first_until.load(Ordering::SeqCst) {
            return;
        }
        let late: Vec<Waiter> = {
            let mut all = lock(&self.waiting);
            let sending = self.sending.load(Ordering::SeqCst);
            let is_late = |request: &u64, waiter: &mut Waiter| waiter.until_ns <= now && *request != sending;
            let late = all.extract_if(is_late).map(|(_, waiter)| waiter).collect();
            let next = all.values().map(|waiter| waiter.until_ns).min();
            // While nobody can ask for more.
            self.first_until.store(next.unwrap_or(i64::MAX), Ordering::SeqCst);
            late
        };
        for waiter in late {
            let why = "the daemon did not answer by the deadline; it may have taken effect";
            (waiter.done)(Err(Error::timeout(why).with_clause(Clause::O8).with_outcome(Outcome::Unknown)));
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

    fn receive(&self, timeout_ns: i64) -> bool {
        let seen = *lock(&self.rounds);
        let mut frames = match self.reading.try_lock() {
            Ok(frames) => frames,
            Err(TryLockError::Poisoned(p)) => p.into_inner(),
            Err(TryLockError::WouldBlock) => {
                if timeout_ns > 0 {
                    let rounds = lock(&self.rounds);
                    if *rounds == seen {
                        // Short: the reader may stop reading without having anything for us.
                        let wait = Duration::from_nanos(timeout_ns.min(1_000_000) as u64);
                        drop(self.dispatched.wait_timeout(rounds, wait).unwrap_or_else(PoisonError::into_inner));
                    }
                }
                return true;
            }
        };
        if lock(&self.waiting).is_empty() {
            return false;
        }
        let mut waited = timeout_ns == 0;
        loop {
            match frames.next(self.as_fd(), false) {
                Ok(Some(frame)) => {
                    waited = true;
                    if let Err(e) = self.dispatch(frame, &mut frames) {
                        self.fail(&e);
                        break;
                    }
                }
                Ok(None) if waited => break,
                Ok(None) => {
                    let out = lock(&self.out);
                    let posted = !out.busy && !out.is_empty();
                    drop(out);
                    if posted {
                        // What the socket takes meanwhile is sent with the next look.
                        socket::wait_for_room(&self.fd, timeout_ns);
                    } else {
                        socket::wait_readable(self.as_fd(), timeout_ns);
                    }
                    waited = true;
                }
                Err(e) => {
                    self.fail(&e);
                    break;
                }
            }
        }
        drop(frames);
        *lock(&self.rounds) += 1;
        self.dispatched.notify_all();
        true
    }

    fn dispatch(&self, frame: Frame, frames: &mut Frames) -> Result<()> {
        let request = frame.header.request;
        let reply = match frame.header.verb()? {
            Verb::GrantAnswer => match frame.header.body::<GrantAnswer>(&frame.body)? {
                GrantAnswer::Granted(granted) => Ok(Reply::Granted(granted, frames.take_fd()?)),
                GrantAnswer::Failed(e) => Err(e),
            },
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
        // An answer to a request that was given up is dropped.
        let waiter = lock(&self.waiting).remove(&request);
        if let Some(waiter) = waiter {
            (waiter.done)(reply);
        }
    }

    /// The connection is of no more use: everybody who waits hears of it.
    pub(crate) fn fail(&self, error: &Error) {
        self.broken.store(true, Ordering::SeqCst);
        // The daemon hears of it although somebody may still hold the connection: until then it keeps the session for it.
        let _ = rustix::net::shutdown(&self.fd, rustix::net::Shutdown::Both);
        let mut unsent = lock(&self.out).give_up();
        unsent.sort_unstable();
        let mut waiting: Vec<(u64, Waiter)> = {
            let mut all = lock(&self.waiting);
            let sending = self.sending.load(Ordering::SeqCst);
            // Whoever is sending finds the connection broken.
            all.extract_if(|request, _| *request != sending).collect()
        };
        // In the order in which they were sent: some are sent again.
        waiting.sort_unstable_by_key(|(request, _)| *request);
        for (request, waiter) in waiting {
            let outcome = if unsent.binary_search(&request).is_ok() { Outcome::NotApplied } else { Outcome::Unknown };
            (waiter.done)(Err(error.clone().with_outcome(outcome)));
        }
    }
}
