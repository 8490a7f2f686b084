//! A started batch, from outside: wait, test, cancel. Whoever waits drives it.

use std::{
    sync::{
        Arc, Mutex, TryLockError,
        atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering},
    },
    time::Duration,
};

use iov_store::{Bell, seam};
use iov_types::{Counters, Error, Outcome, Result};

use crate::{Session, Status, exec::Exec, session::lock};

/// Nobody drives it.
const IDLE: u8 = 0;
/// A thread does.
const DRIVEN: u8 = 1;
/// A thread does, and something has arrived since it looked.
const AGAIN: u8 = 2;

pub(crate) struct RequestInner {
    exec: Mutex<Exec>,
    session: Session,
    done: AtomicBool,
    told: AtomicBool,
    /// It is to be given up; whoever drives it next sees that.
    cancelled: AtomicBool,
    /// Whether somebody drives it, and has to look again.
    driven: AtomicU8,
    /// Answers that arrived since somebody last looked; under it nobody misses one.
    signals: Mutex<u64>,
    signal: Bell,
    background: bool,
    /// When it gives up, on the monotonic clock.
    deadline_ns: i64,
    /// Threads that wait for it, each of which drives it.
    waiting: AtomicU32,
    /// All that it can do before an answer comes was done when it was started, so that nobody needs to hurry.
    sent: bool,
    /// The progress thread has left whoever started it some time to wait for it.
    left_alone: AtomicBool,
    /// Comes back with the completion.
    pub(crate) user_data: usize,
}

/// A request in flight or completed. One thread at a time.
#[derive(Clone)]
pub struct Request(pub(crate) Arc<RequestInner>);

impl RequestInner {
    /// Goes on as far as answers have arrived; does nothing if somebody else is just doing so.
    pub(crate) fn drive(self: &Arc<Self>) -> bool {
        if self.done.load(Ordering::Acquire) {
            return true;
        }
        loop {
            let mut exec = match self.exec.try_lock() {
                Ok(exec) => exec,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => return false,
            };
            if exec.finished() {
                // Whoever finished it is about to say so, and wakes us then.
                return false;
            }
            if self.cancelled.load(Ordering::Relaxed) {
                exec.cancel();
            }
            self.driven.store(DRIVEN, Ordering::SeqCst);
            if exec.drive(self) {
                self.driven.store(IDLE, Ordering::SeqCst);
                break;
            }
            drop(exec);
            // What arrived since we looked is ours to look at: nobody else was woken for it.
            if self.driven.compare_exchange(DRIVEN, IDLE, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
                return false;
            }
        }
        if !self.done.swap(true, Ordering::AcqRel) {
            self.session.0.completed(self);
            self.wake();
        }
        true
    }

    /// The same for a thread that does not wait for it: those that do are told that it is theirs again.
    pub(crate) fn drive_in_passing(self: &Arc<Self>) -> bool {
        let done = self.drive();
        if !done && self.has_waiter() {
            *lock(&self.signals) += 1;
            self.signal.ring();
        }
        done
    }

    /// As [`RequestInner::drive`], for who must not wait: bytes that may take long are left to the progress thread.
    pub(crate) fn drive_lightly(self: &Arc<Self>) -> bool {
        if self.is_left_to_thread() { self.is_done() } else { self.drive() }
    }

    /// Whether the progress thread goes on with it; behind its deadline anybody may end it.
    fn is_left_to_thread(&self) -> bool {
        let may_take_long = self.background && !self.sent && self.session.0.sides.backend.may_wait();
        may_take_long && self.session.0.progress.runs() && seam::monotonic_ns() < self.deadline_ns
    }

    pub(crate) fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }

    /// Receives answers for its session in this thread; `false`: they come from other threads.
    pub(crate) fn receive(&self, timeout_ns: i64) -> bool {
        self.session.0.sides.catalog.drive(timeout_ns)
    }

    /// An answer has arrived, or the request is done.
    pub(crate) fn wake(self: &Arc<Self>) {
        // Targets and catalogs of this process answer within `drive`: no other thread has to hear of that.
        if self.driven.load(Ordering::SeqCst) != IDLE
            && self.driven.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |d| (d != IDLE).then_some(AGAIN)).is_ok()
        {
            return;
        }
        *lock(&self.signals) += 1;
        self.signal.ring();
        // Those who poll have been told of a completion by `completed`.
        if self.done.load(Ordering::Acquire) {
            return;
        }
        self.session.0.answered();
        if self.background && !self.has_waiter() {
            self.session.0.progress.push(self);
        }
    }

    /// The same for a thread that has so much time: without any it never moves bytes, with some it does if nobody else will.
    pub(crate) fn drive_while(self: &Arc<Self>, timeout_ns: i64) {
        let others_will = timeout_ns == 0 || !self.session.0.progress.is_busy_with_another(self);
        if timeout_ns < 0 || !self.is_left_to_thread() || !others_will {
            self.drive_in_passing();
        }
    }

    /// Whether somebody waits for it, and so drives it.
    pub(crate) fn has_waiter(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0
    }

    /// Whether whoever has just started it should be left some time to wait for it; once.
    pub(crate) fn leave_alone(&self) -> bool {
        self.sent && !self.left_alone.swap(true, Ordering::Relaxed)
    }

    /// Whether the caller is the first to be told of the completion.
    pub(crate) fn tell(&self) -> bool {
        !self.told.swap(true, Ordering::Relaxed)
    }

    /// Whether somebody has been told of it, or nobody is to be.
    pub(crate) fn is_told(&self) -> bool {
        self.told.load(Ordering::Relaxed)
    }

    fn signals(&self) -> u64 {
        *lock(&self.signals)
    }

    fn wait_for_signal(&self, seen: u64, ns: i64) {
        let signals = lock(&self.signals);
        if *signals == seen {
            let wait = Duration::from_nanos(ns.max(0) as u64);
            drop(self.signal.wait(signals, wait));
        }
    }
}

fn goes_on() -> Error {
    Error::timeout("the request goes on; its buffers are in use: wait again").with_outcome(Outcome::Pending)
}

/// How a request begins.
pub(crate) struct Mode {
    /// The progress thread may go on with it.
    pub(crate) background: bool,
    /// Drive it as far as it goes before anybody waits.
    pub(crate) at_once: bool,
    /// Nobody is to be told of it but the thread that waits.
    pub(crate) told: bool,
}

impl Request {
    pub(crate) fn start(session: &Session, exec: Exec, mode: Mode, user_data: usize) -> Request {
        let Mode { background, at_once, told } = mode;
        let inner = Arc::new(RequestInner {
            deadline_ns: exec.deadline_ns(),
            exec: Mutex::new(exec),
            session: session.clone(),
            done: AtomicBool::new(false),
            driven: AtomicU8::new(IDLE),
            told: AtomicBool::new(told),
            cancelled: AtomicBool::new(false),
            signals: Mutex::new(0),
            signal: Bell::default(),
            background,
            waiting: AtomicU32::new(0),
            sent: at_once,
            left_alone: AtomicBool::new(false),
            user_data,
        });
        Counters::add(&session.counters().batches, 1);
        Counters::add(&session.counters().in_flight, 1);
        lock(&session.0.in_flight).push(inner.clone());
        let done = at_once && inner.drive();
        if background && !done {
            session.0.progress.push_soon(&inner);
        } else if !done {
            session.0.answered();
        }
        Request(inner)
    }

    /// Whether it has completed.
    pub fn is_done(&self) -> bool {
        self.0.done.load(Ordering::Acquire)
    }

    /// Drives the request until it completes, at most for `timeout_ns` (negative = until its deadline). The error is
    /// `Timeout` if it goes on, `Partial` if not every operation is ok.
    pub fn wait(&self, timeout_ns: i64) -> Result<()> {
        self.0.session.0.check_fork()?;
        let until = if timeout_ns < 0 { i64::MAX } else { seam::monotonic_ns().saturating_add(timeout_ns) };
        // Who does not wait until the deadline must not begin to move bytes, which may take longer.
        if until < self.0.deadline_ns
            && let Some(watched) = self.watch_until(until)
        {
            return watched;
        }
        self.0.waiting.fetch_add(1, Ordering::SeqCst);
        let waited = self.drive_until_done(until);
        // Answers that come from now on are the progress thread's again, if nobody else waits.
        if self.0.waiting.fetch_sub(1, Ordering::SeqCst) == 1 && self.0.background && !self.is_done() {
            self.0.session.0.progress.push(&self.0);
        }
        waited
    }

    /// Waits for what the progress thread does; `None`: it has something else to do.
    fn watch_until(&self, until: i64) -> Option<Result<()>> {
        let progress = &self.0.session.0.progress;
        loop {
            let seen = self.0.signals();
            if self.is_done() {
                return Some(self.tell());
            }
            if !self.0.is_left_to_thread() || progress.is_busy_with_another(&self.0) {
                return None;
            }
            let left = until.saturating_sub(seam::monotonic_ns());
            if left <= 0 {
                return Some(Err(goes_on()));
            }
            self.0.wait_for_signal(seen, left.min(50_000_000));
        }
    }

    fn drive_until_done(&self, until: i64) -> Result<()> {
        loop {
            let seen = self.0.signals();
            if self.0.drive() || self.is_done() {
                return self.tell();
            }
            let now = seam::monotonic_ns();
            if now >= until {
                return Err(goes_on());
            }
            // The batch's own deadline ends it, and nobody else announces that.
            let pause = (until.min(self.0.deadline_ns.max(now + 100_000)) - now).min(100_000_000);
            if self.0.driven.load(Ordering::SeqCst) != IDLE {
                // Another thread is moving its bytes, and says when it has: there may be no answer to receive.
                self.0.wait_for_signal(seen, pause.min(1_000_000));
            } else if !self.0.session.0.sides.catalog.drive(pause) {
                self.0.wait_for_signal(seen, pause);
            }
        }
    }

    /// `None`: not yet. Never blocks.
    pub fn test(&self) -> Option<Result<()>> {
        if let Err(e) = self.0.session.0.check_fork() {
            return Some(Err(e));
        }
        self.0.session.0.sides.catalog.drive(0);
        (self.0.drive_lightly() || self.is_done()).then(|| self.tell())
    }

    fn tell(&self) -> Result<()> {
        self.0.tell();
        self.result()
    }

    /// What `wait` returns, once it is done.
    pub fn result(&self) -> Result<()> {
        if !self.is_done() {
            return Err(Error::busy("the request has not completed"));
        }
        lock(&self.0.exec).result()
    }

    /// Asks to give up what has not taken effect; the request completes as ever. Never blocks: another thread may be
    /// moving its bytes for long.
    pub fn cancel(&self) -> Result<()> {
        self.0.session.0.check_fork()?;
        self.0.cancelled.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// How operation `i` ended; `Busy` before completion.
    pub fn status(&self, i: usize) -> Result<Status> {
        if !self.is_done() {
            return Err(Error::busy("the request has not completed"));
        }
        let exec = lock(&self.0.exec);
        exec.status(i).cloned().ok_or_else(|| Error::invalid(format!("the batch has no operation {i}")))
    }

    /// What was given at the start, to tell requests apart.
    pub fn user_data(&self) -> usize {
        self.0.user_data
    }

    /// Whether two are the same request.
    pub fn is(&self, other: &Request) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Session {
    /// Drives the session and takes up to `max` completed requests, each once and only if no wait or test told of it.
    /// `timeout_ns` 0 = do not wait, negative = for ever. Empty: none yet.
    pub fn poll_completed(&self, max: usize, timeout_ns: i64) -> Result<Vec<Request>> {
        Ok(self.poll(max, timeout_ns)?.into_iter().map(Request).collect())
    }
}
