//! A batch: operations that start and complete together (O7).

use iov_store::Memory;
use iov_types::{Clause, Controls, Error, OnError, Result, Uuid, limits};

use crate::{
    Collection, Op, OpState, Request, Session, Status,
    at_once::{self, Short},
    exec::{Exec, Start},
    request::Mode,
};

/// Who drives a batch when nobody waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum Drive {
    /// Small work at the start, large work in the background.
    #[default]
    Auto = 0,
    /// Only wait, test and poll.
    Caller = 1,
    /// The progress thread, from the start.
    Background = 2,
}

/// How a batch runs.
#[derive(Clone, Debug, Default)]
pub struct BatchAttr {
    /// After a failure; `None` = what the controls say, else continue.
    pub on_error: Option<OnError>,
    /// Who drives it.
    pub drive: Drive,
    /// A version 7 UUID; a retry with it applies once. `None` = no retry.
    pub id: Option<Uuid>,
    /// From its start, in nanoseconds; 0 = the session's.
    pub deadline_ns: i64,
    /// Hints and stronger promises for its operations.
    pub controls: Option<Controls>,
    /// Comes back with the completion.
    pub user_data: usize,
}

/// What `Drive::Auto` does at once: about as long as handing it to another thread would take.
const AT_ONCE_BYTES: u64 = 256 << 10;

/// A list of operations. One thread at a time.
pub struct Batch {
    session: Session,
    attr: BatchAttr,
    ops: Vec<Op>,
    count: usize,
    barriers: Vec<usize>,
    request: Option<Request>,
    id_used: bool,
}

impl Batch {
    /// An empty batch.
    pub fn new(session: &Session, attr: BatchAttr) -> Result<Batch> {
        session.check()?;
        if let Some(id) = attr.id
            && id.version() != 7
        {
            return Err(Error::invalid("a batch id is a UUID of version 7, from iov_uuid_new").with_clause(Clause::B3));
        }
        Ok(Batch::of(session, attr))
    }

    /// A batch of a session that may be closed: it lives on for what is still open in it (rule 5).
    fn of(session: &Session, attr: BatchAttr) -> Batch {
        let session = session.clone();
        Batch { session, attr, ops: Vec::new(), count: 0, barriers: Vec::new(), request: None, id_used: false }
    }

    /// The session.
    pub fn session(&self) -> &Session {
        &self.session
    }

    fn check_open(&self) -> Result<()> {
        self.session.0.check_fork()?;
        if self.request.is_some() {
            return Err(Error::busy("the batch was started: reset it once it has completed, or make another"));
        }
        Ok(())
    }

    /// Appends an operation and tells its index.
    pub fn push(&mut self, op: Op) -> Result<usize> {
        self.check_open()?;
        if self.ops.len() >= limits::BATCH_OPS {
            return Err(Error::too_big(format!("a batch holds at most {} operations: split it", limits::BATCH_OPS)));
        }
        let foreign =
            op.handle().or(op.out()).is_some_and(|c| !std::sync::Arc::ptr_eq(&c.session().0, &self.session.0));
        if foreign {
            return Err(Error::invalid("the handle belongs to another session than the batch"));
        }
        if let Op::Copy { src, .. } = &op
            && !src.session().shares_store(&self.session)
        {
            return Err(Error::unsupported(
                "the source lies in another store, which this one cannot copy from: read it there and write it here",
            ));
        }
        self.ops.push(op);
        self.count = self.ops.len();
        Ok(self.count - 1)
    }

    /// Orders everything so far before everything from now on.
    pub fn barrier(&mut self) -> Result<()> {
        self.check_open()?;
        if !self.ops.is_empty() && self.barriers.last() != Some(&self.ops.len()) {
            self.barriers.push(self.ops.len());
        }
        Ok(())
    }

    /// The number of operations; barriers do not count.
    pub fn count(&self) -> usize {
        self.count
    }

    fn policy(&self) -> OnError {
        let controls = self.attr.controls.as_ref().and_then(|c| c.on_error);
        self.attr.on_error.or(controls).unwrap_or(OnError::Continue)
    }

    fn take(&mut self) -> Start {
        Start {
            session: self.session.clone(),
            ops: std::mem::take(&mut self.ops),
            barriers: std::mem::take(&mut self.barriers),
            policy: self.policy(),
            controls: self.attr.controls.clone(),
            id: self.attr.id,
            deadline_ns: self.attr.deadline_ns,
        }
    }

    /// Starts it. An error means that nothing was started.
    pub fn start(&mut self) -> Result<Request> {
        self.check_open()?;
        self.session.0.check_fork()?;
        if self.attr.id.is_some() && self.id_used {
            return Err(Error::stale("the batch id was used by the last start; give the batch a new id")
                .with_clause(Clause::B3));
        }
        let background = self.attr.drive != Drive::Caller;
        let bytes: u64 = self.ops.iter().map(Op::payload).sum();
        let at_once = match self.attr.drive {
            // Starting never waits for a server: where bytes may have to, the progress thread does it.
            Drive::Auto => {
                let bytes_wait = self.session.0.sides.backend.may_wait() && self.ops.iter().any(Op::is_data);
                bytes <= AT_ONCE_BYTES && !bytes_wait
            }
            Drive::Caller | Drive::Background => false,
        };
        iov_types::Counters::add(&self.session.counters().operations, self.ops.len() as u64);
        let user_data = self.attr.user_data;
        let start = self.take();
        let exec = Exec::new(start);
        let mode = Mode { background, at_once, told: false };
        let request = Request::start(&self.session, exec, mode, user_data);
        self.request = Some(request.clone());
        self.id_used = true;
        Ok(request)
    }

    /// The request of the present start.
    pub fn request(&self) -> Option<&Request> {
        self.request.as_ref()
    }

    /// How operation `i` ended; `Busy` before completion.
    pub fn status(&self, i: usize) -> Result<Status> {
        match &self.request {
            Some(request) => request.status(i),
            None if i < self.count => Ok(Status { state: OpState::Pending, ..Status::default() }),
            None => Err(Error::invalid(format!("the batch has no operation {i}"))),
        }
    }

    /// Handles that this batch was to make and now will not: each use says so.
    fn disappoint(&self) {
        for op in &self.ops {
            let why =
                || Error::cancelled("the batch that was to open the handle was freed or emptied without being started");
            match op {
                Op::Create { out, .. } | Op::Open { out, .. } if out.is_pending() => drop(out.fulfil(Err(why()))),
                Op::Search { out, .. } => out.fulfil(Err(why())),
                _ => {}
            }
        }
    }

    /// Empties a completed batch for another start.
    pub fn reset(&mut self) -> Result<()> {
        self.check_idle()?;
        self.disappoint();
        self.ops.clear();
        self.barriers.clear();
        self.count = 0;
        self.request = None;
        Ok(())
    }

    /// Fails while it is in flight.
    pub fn check_idle(&self) -> Result<()> {
        self.session.0.check_fork()?;
        match &self.request {
            Some(r) if !r.is_done() => Err(Error::busy("the batch is in flight: wait for its request")),
            _ => Ok(()),
        }
    }

    /// The plan as JSON, before it runs.
    pub fn explain(&mut self) -> Result<String> {
        self.check_open()?;
        let policy = self.policy();
        Ok(crate::exec::explain_ops(&self.session, &self.ops, &self.barriers, policy, self.attr.controls.as_ref()))
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        if self.session.0.check_fork().is_ok() {
            self.disappoint();
        }
    }
}

/// Runs one operation now, in this thread, until it is done or the deadline has passed.
pub fn run(session: &Session, mut op: Op) -> Result<Status> {
    session.0.check_fork()?;
    match at_once::attempt(session, &mut op) {
        Short::Done(status) => status.result().map(|()| status),
        Short::No { perhaps } => run_as_batch(session, op, perhaps),
    }
}

/// As [`run`], one write of `memory` at `offset`, or one read into it: what can be done at once makes no operation.
pub fn run_bytes(c: &Collection, offset: u64, mut memory: Memory, write: bool) -> Result<Status> {
    let session = c.session();
    session.0.check_fork()?;
    match at_once::one(session, c, offset, &mut memory, write) {
        Short::Done(status) => status.result().map(|()| status),
        Short::No { perhaps } => {
            let (c, chunks) = (c.clone(), vec![(offset, memory)]);
            run_as_batch(session, if write { Op::Write { c, chunks } } else { Op::Read { c, chunks } }, perhaps)
        }
    }
}

/// `perhaps`: bytes of it may have been written already.
fn run_as_batch(session: &Session, op: Op, perhaps: bool) -> Result<Status> {
    let mut batch = Batch::of(session, BatchAttr { drive: Drive::Caller, ..BatchAttr::default() });
    batch.push(op)?;
    iov_types::Counters::add(&session.counters().operations, 1);
    let exec = Exec::new(batch.take());
    // The completion is told here and nowhere else.
    let request = Request::start(session, exec, Mode { background: false, at_once: true, told: true }, 0);
    let waited = request.wait(-1);
    let status = at_once::behind(perhaps, request.status(0)?);
    match waited {
        Err(e) if e.kind() != iov_types::Kind::Partial => Err(e),
        _ => status.result().map(|()| status),
    }
}
