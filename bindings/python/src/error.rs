//! Errors as Python exceptions: the classes are in `ioverbs._errors`.

use ioverbs::{Clause, Error};
use pyo3::{prelude::*, sync::PyOnceLock};

static MAKE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// The exception for an error.
pub(crate) fn exception<'py>(py: Python<'py>, e: &Error) -> PyResult<Bound<'py, PyAny>> {
    let make = MAKE.get_or_try_init(py, || Ok::<_, PyErr>(py.import("ioverbs._errors")?.getattr("make")?.unbind()))?;
    make.bind(py).call1((e.kind().code(), e.outcome() as u8, e.clause().map(Clause::id), e.detail()))
}

/// The same, to be raised.
pub(crate) fn raise(py: Python<'_>, e: Error) -> PyErr {
    match exception(py, &e) {
        Ok(exception) => PyErr::from_value(exception),
        Err(e) => e,
    }
}

/// Results of the facade as results of Python.
pub(crate) trait Raise<T> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> Raise<T> for ioverbs::Result<T> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|e| raise(py, e))
    }
}
