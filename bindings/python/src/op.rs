//! An operation on its way: described once, then run at once, or in a batch.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

use ioverbs::{Error, Output, Session, Status};
use pyo3::{prelude::*, types::PyList};

use crate::{
    convert::{extent_out, lock_out, stat_out},
    error::Raise,
    run::{Holds, blocking, lock},
    value::{pairs_out, value_out},
};

/// One operation that has not been started.
#[pyclass(frozen, module = "ioverbs._ioverbs")]
pub(crate) struct Op {
    session: Session,
    pub(crate) verb: &'static str,
    inner: Mutex<Option<(ioverbs::Op, Slot)>>,
}

/// What is needed to turn an operation's status into its result.
#[derive(Default)]
pub(crate) struct Slot {
    pub(crate) holds: Holds,
    /// Whether the number of bytes is the result.
    counts: bool,
    /// Told when the operation, a close, has completed.
    ends: Option<Arc<AtomicBool>>,
    /// The result, once it was asked for.
    result: Option<Py<PyAny>>,
}

impl Slot {
    /// The operation has completed: lets go of the buffers that it moved. A close ends its handle however it ends.
    pub(crate) fn completed(&mut self) {
        self.holds.lent.clear();
        if let Some(ends) = self.ends.take() {
            ends.store(true, Ordering::Relaxed);
        }
    }

    /// The result of an operation that is ok.
    pub(crate) fn result<'py>(&mut self, py: Python<'py>, status: &Status) -> PyResult<Bound<'py, PyAny>> {
        if let Some(result) = &self.result {
            return Ok(result.bind(py).clone());
        }
        let result = match (&status.output, self.holds.fresh.take()) {
            (_, Some(fresh)) => fresh.finish(py, status.bytes)?.into_any(),
            (Output::Offset(n), _) => n.into_pyobject(py)?.into_any(),
            (Output::Stat(stat), _) => stat_out(py, stat)?,
            // Nothing in Python asks for what follows.
            (Output::Looked(_) | Output::Removed(_), _) => py.None().into_bound(py),
            (Output::Value(v), _) => value_out(py, v)?,
            (Output::Metadata(md), _) => pairs_out(py, md.iter())?.into_any(),
            (Output::Extents(extents), _) => {
                let extents: Vec<_> = extents.iter().map(|e| extent_out(py, e)).collect::<PyResult<_>>()?;
                PyList::new(py, extents)?.into_any()
            }
            (Output::Lock(l), _) => lock_out(py, l)?,
            (Output::None, _) if self.counts => status.bytes.into_pyobject(py)?.into_any(),
            (Output::None, _) => py.None().into_bound(py),
        };
        self.result = Some(result.clone().unbind());
        Ok(result)
    }
}

impl Op {
    pub(crate) fn new(session: &Session, op: ioverbs::Op, holds: Holds) -> Op {
        use ioverbs::Op as O;
        let counts = matches!(op, O::Write { .. } | O::Read { .. } | O::Copy { .. });
        let slot = Slot { holds, counts, ..Slot::default() };
        Op { session: session.clone(), verb: op.verb(), inner: Mutex::new(Some((op, slot))) }
    }

    /// Without buffers.
    pub(crate) fn plain(session: &Session, op: ioverbs::Op) -> Op {
        Op::new(session, op, Holds::default())
    }

    /// A close, which tells when it has completed.
    pub(crate) fn ending(session: &Session, op: ioverbs::Op, ended: &Arc<AtomicBool>) -> Op {
        let slot = Slot { ends: Some(ended.clone()), ..Slot::default() };
        Op { session: session.clone(), verb: op.verb(), inner: Mutex::new(Some((op, slot))) }
    }

    /// Takes what it does; each operation is used once.
    pub(crate) fn take(&self, py: Python<'_>) -> PyResult<(ioverbs::Op, Slot)> {
        let used = || Error::invalid("the operation was used already: describe it anew");
        lock(&self.inner).take().ok_or_else(used).or_raise(py)
    }
}

/// Runs an operation at once and returns its result.
#[pyfunction]
pub(crate) fn run<'py>(py: Python<'py>, op: &Bound<'py, Op>) -> PyResult<Bound<'py, PyAny>> {
    let (what, mut slot) = op.get().take(py)?;
    let (status, holds) = blocking(py, &op.get().session, what, std::mem::take(&mut slot.holds))?;
    slot.holds = holds;
    slot.completed();
    slot.result(py, &status)
}
