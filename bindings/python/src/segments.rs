//! Segments of a workspace: bytes with an id instead of a name.

use ioverbs::{Memory, Uuid};
use pyo3::{
    exceptions::PyTypeError,
    prelude::*,
    types::{PyBytes, PyList, PyTuple},
};

use crate::{
    buffer::{Fresh, Lent},
    convert::controls,
    error::Raise,
    names::{uuid_in, uuid_out},
    run::Detached,
    workspace::Workspace,
};

/// The segments of a workspace.
#[pyclass(frozen, module = "ioverbs._ioverbs")]
pub(crate) struct Segments(Detached<ioverbs::Segments>);

fn id(obj: &Bound<'_, PyAny>) -> PyResult<Uuid> {
    uuid_in(obj)?.ok_or_else(|| PyTypeError::new_err("the id of a segment is a uuid.UUID"))
}

impl Segments {
    /// New bytes, filled one way or the other.
    fn fetch<'py>(
        &self,
        py: Python<'py>,
        which: &Bound<'py, PyAny>,
        n: u64,
        how: impl FnOnce(&ioverbs::Segments, Uuid, &mut [u8]) -> ioverbs::Result<()> + Send,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let (id, fresh) = (id(which)?, Fresh::new(py, n)?);
        let mut memory = fresh.to_fill();
        py.detach(|| how(&self.0, id, memory.bytes_mut())).or_raise(py)?;
        fresh.finish(py, n)
    }
}

#[pymethods]
impl Segments {
    #[new]
    fn new(py: Python<'_>, workspace: &Workspace) -> PyResult<Segments> {
        let ws = workspace.usable(py)?.clone();
        let segments = py.detach(|| ioverbs::Segments::of(&ws)).or_raise(py)?;
        Ok(Segments(Detached::new(segments)))
    }

    fn create<'py>(&self, py: Python<'py>, size: u64, asked: Option<&str>) -> PyResult<Bound<'py, PyAny>> {
        let controls = controls(py, asked)?;
        let made = py.detach(|| self.0.create(size, &controls)).or_raise(py)?;
        uuid_out(py, made)
    }

    fn remove(&self, py: Python<'_>, which: &Bound<'_, PyAny>) -> PyResult<()> {
        let id = id(which)?;
        py.detach(|| self.0.remove(id)).or_raise(py)
    }

    fn put(&self, py: Python<'_>, which: &Bound<'_, PyAny>, offset: u64, data: &Bound<'_, PyAny>) -> PyResult<()> {
        let (id, data) = (id(which)?, Lent::readable(data)?);
        py.detach(|| self.0.put(id, offset, data.to_store().bytes())).or_raise(py)
    }

    fn write(&self, py: Python<'_>, which: &Bound<'_, PyAny>, offset: u64, data: &Bound<'_, PyAny>) -> PyResult<()> {
        let (id, data) = (id(which)?, Lent::readable(data)?);
        py.detach(|| self.0.write(id, offset, data.to_store().bytes())).or_raise(py)
    }

    fn get<'py>(
        &self,
        py: Python<'py>,
        which: &Bound<'py, PyAny>,
        offset: u64,
        n: u64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        self.fetch(py, which, n, |segments, id, out| segments.get(id, offset, out).map(drop))
    }

    fn read<'py>(
        &self,
        py: Python<'py>,
        which: &Bound<'py, PyAny>,
        offset: u64,
        n: u64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        self.fetch(py, which, n, |segments, id, out| segments.read(id, offset, out).map(drop))
    }

    /// Fills a buffer.
    fn get_into(&self, py: Python<'_>, which: &Bound<'_, PyAny>, offset: u64, into: &Bound<'_, PyAny>) -> PyResult<()> {
        let (id, lent) = (id(which)?, Lent::writable(into)?);
        let mut memory: Memory = lent.to_fill();
        py.detach(|| self.0.get(id, offset, memory.bytes_mut())).or_raise(py)
    }

    fn size(&self, py: Python<'_>, which: &Bound<'_, PyAny>) -> PyResult<u64> {
        let id = id(which)?;
        py.detach(|| self.0.size(id)).or_raise(py)
    }

    fn list<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let all = py.detach(|| self.0.list()).or_raise(py)?;
        let pair = |(id, size): (Uuid, u64)| PyTuple::new(py, [uuid_out(py, id)?, size.into_pyobject(py)?.into_any()]);
        PyList::new(py, all.into_iter().map(pair).collect::<PyResult<Vec<_>>>()?)
    }
}
