//! Batches and requests.

use std::sync::{Mutex, MutexGuard, PoisonError};

use ioverbs::{BatchAttr, Drive, Error, OpState, Uuid};
use pyo3::{prelude::*, types::PyTuple};

use crate::{
    convert::{controls, on_error},
    error::{Raise, exception},
    op::{Op, Slot},
    run::{alone, park, unpark, wait},
    session::Session,
};

/// A list of operations that start and complete together.
#[pyclass(frozen, module = "ioverbs._ioverbs")]
pub(crate) struct Batch(Mutex<Inner>);

struct Inner {
    engine: ioverbs::Batch,
    slots: Vec<Slot>,
}

impl Batch {
    fn inner(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, Inner>> {
        alone(py, &self.0, "batch")
    }
}

#[pymethods]
impl Batch {
    #[new]
    #[pyo3(signature = (session, policy, drive, id, deadline_ns, asked))]
    fn new(
        session: &Bound<'_, Session>,
        policy: Option<&str>,
        drive: &str,
        id: Option<[u8; 16]>,
        deadline_ns: i64,
        asked: Option<&str>,
    ) -> PyResult<Batch> {
        let py = session.py();
        let drive = match drive {
            "auto" => Drive::Auto,
            "caller" => Drive::Caller,
            "background" => Drive::Background,
            other => {
                let why = format!("progress={other:?} is none of auto, caller, background");
                return Err(Error::invalid(why)).or_raise(py);
            }
        };
        let attr = BatchAttr {
            on_error: on_error(py, policy)?,
            drive,
            id: id.map(Uuid),
            deadline_ns,
            controls: asked.map(|text| controls(py, Some(text))).transpose()?,
            ..BatchAttr::default()
        };
        let engine = ioverbs::Batch::new(session.get().session(), attr).or_raise(py)?;
        Ok(Batch(Mutex::new(Inner { engine, slots: Vec::new() })))
    }

    /// Appends an operation and tells its index.
    fn push(&self, op: &Bound<'_, Op>) -> PyResult<usize> {
        let py = op.py();
        let mut inner = self.inner(py)?;
        let (what, slot) = op.get().take(py)?;
        let index = inner.engine.push(what).or_raise(py)?;
        inner.slots.push(slot);
        Ok(index)
    }

    fn barrier(&self, py: Python<'_>) -> PyResult<()> {
        self.inner(py)?.engine.barrier().or_raise(py)
    }

    fn count(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.inner(py)?.engine.count())
    }

    /// The plan as JSON, before it runs.
    fn explain(&self, py: Python<'_>) -> PyResult<String> {
        self.inner(py)?.engine.explain().or_raise(py)
    }

    /// Starts it. An error means that nothing was started.
    fn start(&self, py: Python<'_>) -> PyResult<Request> {
        unpark();
        let mut inner = self.inner(py)?;
        let engine = &mut inner.engine;
        let request = py.detach(|| engine.start()).or_raise(py)?;
        let slots = std::mem::take(&mut inner.slots);
        let bytes = slots.iter().map(|slot| slot.holds.bytes()).sum();
        Ok(Request { request, bytes, run: Mutex::new(Run { slots, completed: false }) })
    }

    /// Empties a completed batch for another start.
    fn reset(&self, py: Python<'_>) -> PyResult<()> {
        let mut inner = self.inner(py)?;
        inner.engine.reset().or_raise(py)?;
        inner.slots.clear();
        Ok(())
    }
}

/// A started batch.
#[pyclass(frozen, module = "ioverbs._ioverbs")]
pub(crate) struct Request {
    request: ioverbs::Request,
    /// How many it moves.
    bytes: u64,
    run: Mutex<Run>,
}

struct Run {
    slots: Vec<Slot>,
    /// Whether the slots know that their operations have completed.
    completed: bool,
}

impl Request {
    fn run(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, Run>> {
        alone(py, &self.run, "request")
    }

    /// Lets go of the buffers, if the request has completed.
    fn completed(&self, py: Python<'_>) -> PyResult<bool> {
        if !self.request.is_done() {
            return Ok(false);
        }
        let mut run = self.run(py)?;
        if !run.completed {
            run.completed = true;
            run.slots.iter_mut().for_each(Slot::completed);
        }
        Ok(true)
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if self.request.is_done() {
            return;
        }
        let run = self.run.get_mut().unwrap_or_else(PoisonError::into_inner);
        for (i, slot) in run.slots.drain(..).enumerate() {
            park(self.request.clone(), i, slot.holds);
        }
    }
}

#[pymethods]
impl Request {
    /// Waits; `false`: the time is up, and the request goes on. A negative time is its deadline.
    fn wait(&self, py: Python<'_>, timeout_ns: i64) -> PyResult<bool> {
        wait(py, &self.request, self.bytes, timeout_ns)?;
        self.completed(py)
    }

    /// Whether it has completed. Never blocks.
    fn test(&self, py: Python<'_>) -> PyResult<bool> {
        if let Some(Err(e)) = py.detach(|| self.request.test())
            && e.kind() != ioverbs::Kind::Partial
        {
            return Err(e).or_raise(py);
        }
        self.completed(py)
    }

    #[getter]
    fn done(&self) -> bool {
        self.request.is_done()
    }

    /// Cancels it, and nobody will ask how it ended: a lock that it takes all the same is given back.
    fn abandon(&self, py: Python<'_>) -> PyResult<()> {
        self.cancel(py)?;
        if self.completed(py)? {
            for (i, slot) in self.run(py)?.slots.iter().enumerate() {
                slot.holds.unheard(self.request.status(i).or_raise(py)?.state);
            }
        }
        Ok(())
    }

    fn cancel(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.request.cancel()).or_raise(py)
    }

    fn count(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.run(py)?.slots.len())
    }

    /// How operation `i` ended: state, outcome, exception, bytes, result.
    fn status<'py>(&self, py: Python<'py>, i: usize) -> PyResult<Bound<'py, PyTuple>> {
        self.completed(py)?;
        let status = self.request.status(i).or_raise(py)?;
        let error = status.error.as_ref().map(|e| exception(py, e)).transpose()?;
        let result = match (status.state, self.run(py)?.slots.get_mut(i)) {
            (OpState::Ok, Some(slot)) => Some(slot.result(py, &status)?),
            _ => None,
        };
        let state = match status.state {
            OpState::Pending => "pending",
            OpState::Ok => "ok",
            OpState::Failed => "failed",
            OpState::Skipped => "skipped",
            OpState::Undone => "undone",
            OpState::Cancelled => "cancelled",
        };
        let outcome = status.outcome.text();
        (state, outcome, error, status.bytes, result).into_pyobject(py)
    }
}
