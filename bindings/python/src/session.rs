//! Sessions, and the daemons behind `file:` stores.

use std::{
    os::fd::BorrowedFd,
    sync::atomic::{AtomicBool, Ordering},
};

use ioverbs::{Error, Priority, SessionAttr, Which, catalog::SearchSpec};
use pyo3::{
    prelude::*,
    types::{PyBytes, PyDict, PyList},
};

use crate::{
    convert::{controls, effective_out},
    cursor::Cursor,
    error::Raise,
    names::{name_in, which_in},
    run::{Detached, unpark},
    value::{texts, values},
    workspace::{Workspace, workspace_attr},
};

/// One connection to one store.
#[pyclass(frozen, module = "ioverbs._ioverbs")]
pub(crate) struct Session(Detached<ioverbs::Session>, AtomicBool);

impl Session {
    pub(crate) fn session(&self) -> &ioverbs::Session {
        &self.0
    }
}

fn load(session: &ioverbs::Session, which: Which) -> ioverbs::Result<Workspace> {
    session.load_workspace(which).map(Workspace::new)
}

#[pymethods]
impl Session {
    #[new]
    #[allow(clippy::too_many_arguments)] // each is a field of the attributes
    #[pyo3(signature = (url, readonly, nodirect, nocache, nostart, deadline_ns, program, background))]
    fn new(
        py: Python<'_>,
        url: Option<&str>,
        readonly: bool,
        nodirect: bool,
        nocache: bool,
        nostart: bool,
        deadline_ns: i64,
        program: Option<String>,
        background: bool,
    ) -> PyResult<Session> {
        let priority = if background { Priority::Background } else { Priority::Foreground };
        let attr = SessionAttr { readonly, nodirect, nocache, nostart, deadline_ns, cache_bytes: 0, priority, program };
        let session = py.detach(|| ioverbs::open(url, attr)).or_raise(py)?;
        Ok(Session(Detached::new(session), AtomicBool::new(false)))
    }

    #[getter]
    fn url(&self) -> &str {
        self.0.url()
    }

    fn check(&self, py: Python<'_>) -> PyResult<()> {
        self.0.check().or_raise(py)
    }

    /// Ends it. Ending it again does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        unpark();
        if self.1.load(Ordering::Relaxed) {
            return Ok(());
        }
        py.detach(|| self.0.close()).or_raise(py)?;
        self.1.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn counters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let out = PyDict::new(py);
        for (name, value) in ioverbs::Counters::NAMES.iter().zip(self.0.counters().snapshot()) {
            out.set_item(name, value)?;
        }
        Ok(out)
    }

    fn create_workspace(&self, name: &Bound<'_, PyAny>, attr: &Bound<'_, PyDict>) -> PyResult<Workspace> {
        let py = name.py();
        let (name, attr) = (name_in(name)?, workspace_attr(attr)?);
        py.detach(|| self.0.create_workspace(name, attr).map(Workspace::new)).or_raise(py)
    }

    fn load_workspace(&self, which: &Bound<'_, PyAny>) -> PyResult<Workspace> {
        let (py, which) = (which.py(), which_in(which)?);
        py.detach(|| load(&self.0, which)).or_raise(py)
    }

    /// Opens it, or makes it if it is not there, whoever else is just doing the same. Tells also whether it was made.
    fn obtain_workspace(&self, name: &Bound<'_, PyAny>, attr: &Bound<'_, PyDict>) -> PyResult<(Workspace, bool)> {
        let py = name.py();
        let which = which_in(name)?;
        let there = |which| load(&self.0, which).map(|ws| (ws, false));
        let Which::Name(name) = which.clone() else { return py.detach(|| there(which)).or_raise(py) };
        let attr = workspace_attr(attr)?;
        let obtain = || match there(which.clone()) {
            Err(e) if e.kind() == ioverbs::Kind::NotFound => match self.0.create_workspace(name, attr) {
                Err(e) if e.kind() == ioverbs::Kind::Exists => there(which),
                made => made.map(|ws| (Workspace::new(ws), true)),
            },
            loaded => loaded,
        };
        py.detach(obtain).or_raise(py)
    }

    fn delete_workspace(&self, which: &Bound<'_, PyAny>) -> PyResult<()> {
        let (py, which) = (which.py(), which_in(which)?);
        py.detach(|| self.0.delete_workspace(which)).or_raise(py)
    }

    #[pyo3(signature = (predicate, params, order, limit, keys))]
    fn search_workspaces(
        &self,
        py: Python<'_>,
        predicate: Option<String>,
        params: Vec<Bound<'_, PyAny>>,
        order: Option<String>,
        limit: u64,
        keys: Option<&Bound<'_, PyList>>,
    ) -> PyResult<Cursor> {
        let params = values(&params)?;
        ioverbs::check_predicate(predicate.as_deref(), &params).or_raise(py)?;
        let keys = texts(keys)?;
        let spec = SearchSpec {
            predicate,
            params,
            group: None,
            deep: false,
            order,
            limit,
            keys,
            count: false,
            names: false,
            page: 0,
        };
        py.detach(|| self.0.search_workspaces(spec).map(|found| Cursor::new(&self.0, found))).or_raise(py)
    }

    /// What a create would get, as keywords and as text.
    #[pyo3(signature = (workspace, asked))]
    fn check_controls<'py>(
        &self,
        py: Python<'py>,
        workspace: Option<&Bound<'py, Workspace>>,
        asked: &str,
    ) -> PyResult<(Bound<'py, PyDict>, String)> {
        self.check(py)?;
        let workspace = workspace.map(|w| w.get().usable(py)).transpose()?;
        let granted = self.0.check_controls(workspace, &controls(py, Some(asked))?);
        effective_out(py, &granted.map_err(Error::from).or_raise(py)?)
    }

    /// A descriptor that is readable when a request may have completed.
    fn event_fd(&self, py: Python<'_>) -> PyResult<i32> {
        self.0.event_fd().or_raise(py)
    }

    /// Makes that descriptor unreadable until the next completion. A poll of the session would do so too, but it would
    /// also move the bytes of requests in flight, in the event loop's thread.
    fn clear_event(&self, py: Python<'_>) -> PyResult<()> {
        let fd = self.0.event_fd().or_raise(py)?;
        // SAFETY: the session keeps the descriptor open as long as it lives.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        // It does not block; nothing to read means that it is clear already.
        let _ = rustix::io::read(fd, &mut [0_u8; 8]);
        // It may have been raised by a request that everybody has let go of: others may wait for what that took.
        unpark();
        Ok(())
    }

    fn export_token<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let token = py.detach(|| self.0.export_token()).or_raise(py)?;
        Ok(PyBytes::new(py, &token))
    }

    fn join(&self, py: Python<'_>, token: Vec<u8>) -> PyResult<()> {
        py.detach(|| self.0.join(token)).or_raise(py)
    }
}

/// The URL that is opened when none is given.
#[pyfunction]
pub(crate) fn default_url(py: Python<'_>) -> PyResult<String> {
    ioverbs::default_url().or_raise(py)
}

/// How a store's daemon is; `None`: none runs.
#[pyfunction]
pub(crate) fn daemon_status<'py>(py: Python<'py>, url: &str) -> PyResult<Option<Bound<'py, PyDict>>> {
    let Some(status) = py.detach(|| ioverbs::daemon_status(url)).or_raise(py)? else { return Ok(None) };
    let out = PyDict::new(py);
    for (name, value) in status {
        out.set_item(name, value)?;
    }
    Ok(Some(out))
}

/// Ends a store's daemon and waits until it has ended; `False`: none runs.
#[pyfunction]
pub(crate) fn daemon_shutdown(py: Python<'_>, url: &str) -> PyResult<bool> {
    py.detach(|| ioverbs::daemon_shutdown(url)).or_raise(py)
}
