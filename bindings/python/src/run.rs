//! Runs operations: one now, or a batch of them, without the interpreter's lock and with an ear for Ctrl-C.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError, TryLockError,
        atomic::{AtomicBool, Ordering},
        mpsc::{RecvTimeoutError, sync_channel},
    },
    time::Duration,
};

use ioverbs::{Batch, BatchAttr, Collection, Drive, Error, Kind, OpState, Request, Session, Status};
use pyo3::prelude::*;

use crate::{
    buffer::{Fresh, Lent},
    error::Raise,
};

/// What an operation holds on to until it has completed.
#[derive(Default)]
pub(crate) struct Holds {
    /// Buffers it moves.
    pub(crate) lent: Vec<Lent>,
    /// The bytes object it fills.
    pub(crate) fresh: Option<Fresh>,
    /// The lock that it takes, by collection and owner: to be given back if nobody waited for the end.
    pub(crate) takes: Option<(Collection, u64)>,
}

impl From<Lent> for Holds {
    fn from(lent: Lent) -> Holds {
        Holds { lent: vec![lent], ..Holds::default() }
    }
}

impl From<Fresh> for Holds {
    fn from(fresh: Fresh) -> Holds {
        Holds { fresh: Some(fresh), ..Holds::default() }
    }
}

impl Holds {
    fn has_memory(&self) -> bool {
        !self.lent.is_empty() || self.fresh.is_some()
    }

    /// How many bytes it moves.
    pub(crate) fn bytes(&self) -> u64 {
        let lent: usize = self.lent.iter().map(Lent::len).sum();
        (lent + self.fresh.as_ref().map_or(0, Fresh::len)) as u64
    }

    /// The operation has completed, and nobody was there to hear of it.
    pub(crate) fn unheard(&self, state: OpState) {
        if let (Some((c, owner)), OpState::Ok) = (&self.takes, state) {
            c.release_locks(*owner);
        }
    }
}

/// Signals are looked for this often: soon enough for a person who presses Ctrl-C.
const EAR_NS: i64 = 100_000_000;
/// Requests that move as many bytes are driven by another thread, where signals are heard: whoever drives one moves its
/// bytes, and has no ear until they have moved. For fewer bytes that is soon, and a thread costs more.
const LARGE: u64 = 16 << 20;
/// What an interrupted operation gets to stop in.
const STOP_NS: i64 = 1_000_000_000;

/// For moments in which no Python code runs.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// For what one thread uses at a time. It waits for nobody: the other thread may wait for the interpreter's lock, and a
/// forked child has no other threads.
pub(crate) fn alone<'a, T>(py: Python<'_>, mutex: &'a Mutex<T>, what: &str) -> PyResult<MutexGuard<'a, T>> {
    match mutex.try_lock() {
        Ok(inner) => Ok(inner),
        Err(TryLockError::Poisoned(inner)) => Ok(inner.into_inner()),
        Err(TryLockError::WouldBlock) => {
            Err(Error::busy(format!("another thread is just using the {what}: give each thread its own"))).or_raise(py)
        }
    }
}

/// An operation of a request that was let go of before it had completed.
struct Parked {
    request: Request,
    index: usize,
    holds: Holds,
}

static PARKED: Mutex<Vec<Parked>> = Mutex::new(Vec::new());
static ANY_PARKED: AtomicBool = AtomicBool::new(false);

/// Keeps what an operation holds until it has completed.
pub(crate) fn park(request: Request, index: usize, holds: Holds) {
    lock(&PARKED).push(Parked { request, index, holds });
    ANY_PARKED.store(true, Ordering::Relaxed);
}

/// Lets go of what parked operations hold that have completed.
pub(crate) fn unpark() {
    if !ANY_PARKED.load(Ordering::Relaxed) {
        return;
    }
    let done: Vec<_> = {
        let mut parked = lock(&PARKED);
        // Nobody else may drive them; in a forked child there is nothing to drive, and they stay.
        let done = parked.extract_if(.., |p| p.request.test().is_some() && p.request.is_done()).collect();
        ANY_PARKED.store(!parked.is_empty(), Ordering::Relaxed);
        done
    };
    // Outside the lock: giving back a buffer may run any code.
    for parked in done {
        if let Ok(status) = parked.request.status(parked.index) {
            parked.holds.unheard(status.state);
        }
    }
}

/// Whether signal handlers run in this thread: those of Python run in the main thread alone.
fn hears_signals() -> bool {
    rustix::thread::gettid() == rustix::process::getpid()
}

/// Waits until the request, which moves so many bytes, has completed, `timeout_ns` has passed (`false`; negative: its
/// deadline) or a signal handler has raised.
pub(crate) fn wait(py: Python<'_>, request: &Request, bytes: u64, timeout_ns: i64) -> PyResult<bool> {
    if bytes >= LARGE
        && hears_signals()
        && !request.is_done()
        && let Some(done) = wait_elsewhere(py, request, timeout_ns)?
    {
        return Ok(done);
    }
    let until = if timeout_ns < 0 { i64::MAX } else { ioverbs::seam::monotonic_ns().saturating_add(timeout_ns) };
    loop {
        let (waited, left) = py.detach(|| {
            let left = until.saturating_sub(ioverbs::seam::monotonic_ns()).max(0);
            (request.wait(left.min(EAR_NS)), left)
        });
        match waited {
            Ok(()) => return Ok(true),
            Err(e) if e.kind() == Kind::Partial => return Ok(true),
            Err(e) if e.kind() == Kind::Timeout && !request.is_done() => {
                if left <= EAR_NS {
                    return Ok(false);
                }
                py.check_signals()?;
                // What this waits for may be what an operation has taken that everybody has let go of.
                unpark();
            }
            Err(e) => return Err(e).or_raise(py),
        }
    }
}

/// The same in another thread, while this one listens; `None`: there is no other thread to be had. After a signal it goes
/// on there: what the request holds must be kept until it has completed.
fn wait_elsewhere(py: Python<'_>, request: &Request, timeout_ns: i64) -> PyResult<Option<bool>> {
    let (ends, ended) = sync_channel(1);
    let there = request.clone();
    let body = move || {
        let waited = there.wait(timeout_ns);
        drop(there);
        // After a signal nobody is there to hear of it.
        let _ = ends.send(waited);
    };
    if ioverbs::seam::spawn("iov-python", body).is_err() {
        return Ok(None);
    }
    // Only this thread uses it; the lock makes it one that a closure may borrow.
    let ended = Mutex::new(ended);
    loop {
        match py.detach(|| lock(&ended).recv_timeout(Duration::from_nanos(EAR_NS as u64))) {
            Ok(Ok(())) => return Ok(Some(true)),
            Ok(Err(e)) if e.kind() == Kind::Partial => return Ok(Some(true)),
            Ok(Err(e)) if e.kind() == Kind::Timeout && !request.is_done() => return Ok(Some(false)),
            Ok(Err(e)) => return Err(e).or_raise(py),
            Err(RecvTimeoutError::Timeout) => {
                py.check_signals()?;
                unpark();
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Error::internal("a request was waited for, and nobody said how that ended")).or_raise(py);
            }
        }
    }
}

/// Runs one operation in this thread until it has completed. `holds` comes back for what a read filled.
pub(crate) fn blocking(py: Python<'_>, session: &Session, op: ioverbs::Op, holds: Holds) -> PyResult<(Status, Holds)> {
    unpark();
    let bytes = holds.bytes();
    let elsewhere = bytes >= LARGE && hears_signals();
    let started = py.detach(|| {
        let mut batch = Batch::new(session, BatchAttr { drive: Drive::Caller, ..BatchAttr::default() })?;
        batch.push(op)?;
        let request = batch.start()?;
        let waited = if elsewhere { Ok(()) } else { request.wait(EAR_NS) };
        Ok::<_, Error>((request, waited))
    });
    let (request, waited) = started.or_raise(py)?;
    if !request.is_done() {
        let waited = match waited {
            // A handler may have to run before the next wait.
            Err(e) if e.kind() == Kind::Timeout => {
                py.check_signals().and_then(|()| wait(py, &request, bytes, -1).map(drop))
            }
            Ok(()) => wait(py, &request, bytes, -1).map(drop),
            other => other.or_raise(py),
        };
        if let Err(e) = waited {
            return Err(stop(py, request, holds, e));
        }
    }
    let status = request.status(0).or_raise(py)?;
    status.result().or_raise(py)?;
    Ok((status, holds))
}

/// A signal handler has raised: gives the operation up, and keeps its buffers for as long as it uses them.
fn stop(py: Python<'_>, request: Request, holds: Holds, why: PyErr) -> PyErr {
    let has_memory = holds.has_memory();
    py.detach(|| {
        let _ = request.cancel();
        if has_memory {
            let _ = request.wait(STOP_NS);
        }
    });
    match request.status(0) {
        Ok(status) => holds.unheard(status.state),
        Err(_) => park(request, 0, holds),
    }
    why
}

/// Drops something that may have to tell a server, without the interpreter's lock.
pub(crate) struct Detached<T: Send>(Option<T>);

impl<T: Send> Detached<T> {
    pub(crate) fn new(inner: T) -> Self {
        Detached(Some(inner))
    }
}

impl<T: Send> std::ops::Deref for Detached<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("it is taken only when it is dropped")
    }
}

impl<T: Send> Drop for Detached<T> {
    fn drop(&mut self) {
        let inner = self.0.take();
        // At the end of the interpreter nobody attaches any more, and nobody waits for its lock either.
        let mut inner = Some(inner);
        let _ = Python::try_attach(|py| py.detach(|| drop(inner.take())));
    }
}
