//! Handles of collections and groups, with the calls that have to be fast.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use ioverbs::{Collection, EntryKind, Error, Op, Output};
use pyo3::{
    PyClassInitializer,
    prelude::*,
    types::{PyBytes, PyDict, PyMemoryView},
};

use crate::{
    buffer::{Fresh, Lent},
    convert::{effective_out, kind_out},
    error::Raise,
    names::{uuid_in, uuid_out},
    run::{Detached, Holds, blocking},
    workspace::Workspace,
};

/// A handle of a collection or group: pending until an operation has opened it.
#[pyclass(frozen, subclass, weakref, module = "ioverbs._ioverbs")]
pub(crate) struct Handle {
    inner: Detached<Collection>,
    /// Set when a close has completed.
    pub(crate) ended: Arc<AtomicBool>,
}

impl Handle {
    /// The handle, if it can be used: of this process, not closed, not of a failed operation.
    pub(crate) fn usable(&self, py: Python<'_>) -> PyResult<&Collection> {
        self.inner.check().or_raise(py)?;
        Ok(&self.inner)
    }

    pub(crate) fn collection(&self) -> &Collection {
        &self.inner
    }

    /// The handle, for operations on bytes.
    pub(crate) fn data(&self, py: Python<'_>) -> PyResult<&Collection> {
        if self.inner.is_group() {
            let e = Error::invalid("a group holds names but no bytes").with_clause(ioverbs::Clause::O3);
            return Err(e).or_raise(py);
        }
        self.usable(py)
    }

    /// The handle as a parent.
    pub(crate) fn parent(group: Option<&Bound<'_, Handle>>) -> PyResult<ioverbs::Parent> {
        let Some(group) = group else { return Ok(None) };
        let handle = group.get();
        if !handle.inner.is_group() {
            let e = Error::invalid("the parent is a collection; a group was expected").with_clause(ioverbs::Clause::O3);
            return Err(e).or_raise(group.py());
        }
        handle.usable(group.py()).cloned().map(Some)
    }
}

#[pymethods]
impl Handle {
    /// With a UUID it names what is there without opening it.
    #[new]
    #[pyo3(signature = (workspace, group, unopened = None))]
    fn new(workspace: &Bound<'_, Workspace>, group: bool, unopened: Option<&Bound<'_, PyAny>>) -> PyResult<Handle> {
        let kind = if group { EntryKind::Group } else { EntryKind::Collection };
        let ws = workspace.get().usable(workspace.py())?;
        let inner = match unopened.map(uuid_in).transpose()?.flatten() {
            Some(uuid) => ws.unopened(kind, uuid),
            None => ws.pending(kind),
        };
        Ok(Handle { inner: Detached::new(inner), ended: Arc::default() })
    }

    /// Whether it was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// Whether the operation that opens it has not completed.
    #[getter]
    fn pending(&self) -> bool {
        self.inner.is_pending()
    }

    /// ``"collection"`` or ``"group"``.
    #[getter]
    fn kind(&self) -> &'static str {
        kind_out(self.inner.kind())
    }

    /// Its identity. :class:`Busy` while it is pending; of what a batch creates it is known from the batch's start on.
    #[getter]
    fn uuid<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        uuid_out(py, self.inner.uuid().or_raise(py)?)
    }

    /// What was granted, as keywords and as text.
    fn effective<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyDict>, String)> {
        effective_out(py, &self.inner.effective().or_raise(py)?)
    }

    /// Fails if the handle cannot be used: of another process, closed, or of a failed operation.
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        self.usable(py).map(drop)
    }

    /// Gives back every lock of an owner, without waiting for the answer.
    fn release_locks(&self, py: Python<'_>, owner: u64) {
        py.detach(|| self.inner.release_locks(owner));
    }

    /// Whether a close has something to do; an error where it cannot.
    fn closable(&self, py: Python<'_>) -> PyResult<bool> {
        match self.inner.check() {
            _ if self.ended.load(Ordering::Relaxed) => Ok(false),
            Err(e) if e.kind() == ioverbs::Kind::Forked => Err(e).or_raise(py),
            // Nothing was opened.
            Err(_) => Ok(false),
            Ok(()) if self.inner.is_pending() => {
                let why = "the handle is pending: close it in its batch, or once that has completed";
                Err(Error::busy(why)).or_raise(py)
            }
            Ok(()) => Ok(true),
        }
    }
}

/// A handle with blocking calls.
#[pyclass(frozen, subclass, extends = Handle, module = "ioverbs._ioverbs")]
pub(crate) struct BlockingHandle;

#[pymethods]
impl BlockingHandle {
    #[new]
    #[pyo3(signature = (workspace, group, unopened = None))]
    fn new(
        workspace: &Bound<'_, Workspace>,
        group: bool,
        unopened: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<PyClassInitializer<BlockingHandle>> {
        Ok(PyClassInitializer::from(Handle::new(workspace, group, unopened)?).add_subclass(BlockingHandle))
    }

    /// Writes all of `data` at `offset` and returns the number of bytes. It may extend the collection; what is left out
    /// before is a hole, which reads as zeros.
    ///
    /// :raises Immutable: It is sealed, or append only. :raises Fenced: The exclusive hold has passed on.
    /// :raises FileTooBig: Beyond the largest ``collection_size``. :raises Exhausted: Quota or space.
    fn write(slf: &Bound<'_, Self>, offset: u64, data: &Bound<'_, PyAny>) -> PyResult<u64> {
        let py = slf.py();
        let c = slf.as_super().get().data(py)?;
        let lent = Lent::readable(data)?;
        let op = Op::Write { c: c.clone(), chunks: vec![(offset, lent.to_store())] };
        blocking(py, c.session(), op, lent.into()).map(|(status, _)| status.bytes)
    }

    /// Fills `buffer` with the bytes from `offset` on and returns how many; less only at the end. Holes are zeros.
    ///
    /// :raises Corrupt: They are not the bytes that were written. :raises Lost: Gone with their medium.
    fn readinto(slf: &Bound<'_, Self>, offset: u64, buffer: &Bound<'_, PyAny>) -> PyResult<u64> {
        let py = slf.py();
        let c = slf.as_super().get().data(py)?;
        let lent = Lent::writable(buffer)?;
        let op = Op::Read { c: c.clone(), chunks: vec![(offset, lent.to_fill())] };
        blocking(py, c.session(), op, lent.into()).map(|(status, _)| status.bytes)
    }

    /// Reads up to `n` bytes (``None``: all) from `offset` on; less only at the end. Holes are zeros. Where speed
    /// matters, :meth:`readinto` needs no new memory.
    ///
    /// :raises Corrupt: They are not the bytes that were written. :raises Lost: Gone with their medium.
    #[pyo3(signature = (offset=0, n=None))]
    fn read<'py>(slf: &Bound<'py, Self>, offset: u64, n: Option<u64>) -> PyResult<Bound<'py, PyBytes>> {
        let py = slf.py();
        let c = slf.as_super().get().data(py)?;
        let n = match n {
            Some(n) => n,
            None => BlockingHandle::length(slf)?.saturating_sub(offset),
        };
        let fresh = Fresh::new(py, n)?;
        let op = Op::Read { c: c.clone(), chunks: vec![(offset, fresh.to_fill())] };
        let (status, mut holds) = blocking(py, c.session(), op, fresh.into())?;
        match holds.fresh.take() {
            Some(fresh) => fresh.finish(py, status.bytes),
            None => Err(Error::internal("a read lost its bytes")).or_raise(py),
        }
    }

    /// Adds `data` as one record at the end, where the system decides, and returns its offset (M4).
    ///
    /// Raises as :meth:`write`.
    fn append(slf: &Bound<'_, Self>, data: &Bound<'_, PyAny>) -> PyResult<u64> {
        let py = slf.py();
        let c = slf.as_super().get().data(py)?;
        let lent = Lent::readable(data)?;
        let op = Op::Append { c: c.clone(), memory: lent.to_store() };
        let (status, _) = blocking(py, c.session(), op, lent.into())?;
        match status.output {
            Output::Offset(offset) => Ok(offset),
            _ => Err(Error::internal("an append returned no offset")).or_raise(py),
        }
    }

    /// Its present length in bytes.
    fn length(slf: &Bound<'_, Self>) -> PyResult<u64> {
        let py = slf.py();
        let c = slf.as_super().get().data(py)?;
        match blocking(py, c.session(), Op::Stat { c: c.clone() }, Holds::default())?.0.output {
            Output::Stat(stat) => Ok(stat.bytes),
            _ => Err(Error::internal("a stat returned no facts")).or_raise(py),
        }
    }

    /// Shows stored bytes in place: a read-only memoryview of at most `n` from `offset` on, fewer where they do not lie
    /// together, none behind the end. It pins them; those of a collection that is not sealed may change meanwhile.
    ///
    /// :raises Unsupported: Out of reach, as in a store that is not in shared memory: read them.
    fn view<'py>(slf: &Bound<'py, Self>, offset: u64, n: u64) -> PyResult<Bound<'py, PyMemoryView>> {
        let py = slf.py();
        let c = slf.as_super().get().data(py)?;
        crate::view::show(py, c, offset, n)
    }

    /// Commits, persists as the point says, and ends the handle. Ending it again does nothing.
    fn close(slf: &Bound<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        let handle = slf.as_super().get();
        if !handle.closable(py)? {
            return Ok(());
        }
        handle.ended.store(true, Ordering::Relaxed);
        let c = handle.collection();
        blocking(py, c.session(), Op::Close { c: c.clone() }, Holds::default()).map(drop)
    }
}
