//! Results of a search.

use pyo3::{prelude::*, types::PyList};

use crate::{convert::entry_out, error::Raise, run::Detached, session::Session};

/// A stream of results; pending until its search has completed.
#[pyclass(frozen, module = "ioverbs._ioverbs")]
pub(crate) struct Cursor {
    inner: Detached<ioverbs::Cursor>,
    session: ioverbs::Session,
}

impl Cursor {
    pub(crate) fn new(session: &ioverbs::Session, inner: ioverbs::Cursor) -> Cursor {
        Cursor { inner: Detached::new(inner), session: session.clone() }
    }

    pub(crate) fn cursor(&self) -> &ioverbs::Cursor {
        &self.inner
    }
}

#[pymethods]
impl Cursor {
    #[new]
    fn pending(session: &Bound<'_, Session>) -> Cursor {
        Cursor::new(session.get().session(), ioverbs::Cursor::pending(session.get().session()))
    }

    /// Up to `max` results; none at the end.
    fn next<'py>(&self, py: Python<'py>, max: usize) -> PyResult<Bound<'py, PyList>> {
        let entries = py.detach(|| self.inner.next(max, 0)).or_raise(py)?;
        let entries: Vec<_> = entries.iter().map(|e| entry_out(py, e)).collect::<PyResult<_>>()?;
        PyList::new(py, entries)
    }

    /// The number of matches of a search that only counts.
    fn count(&self, py: Python<'_>) -> PyResult<u64> {
        self.inner.count().or_raise(py)
    }

    fn close(&self, py: Python<'_>) {
        // A forked child has no part in it.
        if self.session.check().is_ok() {
            py.detach(|| self.inner.close());
        }
    }
}
