//! The native half of the Python package `ioverbs`: handles, operations, batches, and the buffers they move.
//!
//! Python code around it (`python/ioverbs`) gives these the shapes that programs see. Here stands what has to be native:
//! memory that is lent without a copy, waiting without the interpreter's lock, and conversions of every value.

mod batch;
mod buffer;
mod collection;
mod convert;
mod cursor;
mod error;
mod names;
mod op;
mod ops;
mod run;
mod segments;
mod session;
mod value;
mod view;
mod workspace;

use pyo3::prelude::*;

/// `ioverbs._ioverbs`
#[pymodule]
mod _ioverbs {
    use pyo3::{prelude::*, types::PyList};

    #[pymodule_export]
    use crate::{
        batch::{Batch, Request},
        collection::{BlockingHandle, Handle},
        cursor::Cursor,
        op::{Op, run},
        segments::Segments,
        session::{Session, daemon_shutdown, daemon_status, default_url},
        workspace::Workspace,
    };

    /// Every error kind: name in C, number, errno, and what it means.
    #[pyfunction]
    fn error_kinds(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
        PyList::new(py, ioverbs::Kind::ALL.iter().map(|k| (k.c_name(), k.code(), k.errno(), k.text())))
    }

    /// A new version 7 UUID, as 16 bytes.
    #[pyfunction]
    fn new_uuid() -> [u8; 16] {
        ioverbs::seam::new_uuid().0
    }

    /// The names of all profiles.
    #[pyfunction]
    fn profiles() -> Vec<&'static str> {
        ioverbs::profile::NAMES.to_vec()
    }

    /// Reads controls and writes them again in their usual form.
    #[pyfunction]
    fn normal_controls(py: Python<'_>, text: &str) -> PyResult<String> {
        Ok(ioverbs::text::format(&crate::convert::controls(py, Some(text))?))
    }

    /// Fails if the predicate cannot be read.
    #[pyfunction]
    fn check_predicate(py: Python<'_>, text: Option<&str>, params: Vec<Bound<'_, PyAny>>) -> PyResult<()> {
        let params = crate::value::values(&params)?;
        ioverbs::check_predicate(text, &params).map_err(|e| crate::error::raise(py, e))
    }

    #[pymodule_init]
    fn init(m: &Bound<'_, PyModule>) -> PyResult<()> {
        // The number of forks is counted from here on, so that a handle knows whose it is.
        ioverbs::seam::fork_generation();
        m.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
