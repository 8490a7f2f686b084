//! Stored bytes shown in place: an object with a read-only buffer that pins them.

use std::ffi::{c_int, c_void};

use ioverbs::{Collection, Viewed};
use pyo3::{exceptions::PyBufferError, ffi, prelude::*, types::PyMemoryView};

use crate::error::Raise;

/// Pinned bytes of a collection; what :meth:`Collection.view` makes a memoryview of.
#[pyclass(frozen, module = "ioverbs._ioverbs")]
pub(crate) struct View(Viewed);

#[pymethods]
impl View {
    /// # Safety
    /// Called by the interpreter with a buffer to be filled.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, buffer: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        if buffer.is_null() {
            return Err(PyBufferError::new_err("there is no buffer to be filled"));
        }
        let (address, len) = (slf.get().0.as_ptr(), slf.get().0.len() as ffi::Py_ssize_t);
        // SAFETY: the buffer is the interpreter's to be filled; the bytes stay for as long as the object that it refers to, and
        // are declared read-only.
        let filled =
            unsafe { ffi::PyBuffer_FillInfo(buffer, slf.as_ptr(), address.cast_mut().cast::<c_void>(), len, 1, flags) };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}

/// A read-only memoryview of stored bytes.
pub(crate) fn show<'py>(py: Python<'py>, c: &Collection, offset: u64, n: u64) -> PyResult<Bound<'py, PyMemoryView>> {
    let viewed = py.detach(|| c.view(offset, n)).or_raise(py)?;
    PyMemoryView::from(Bound::new(py, View(viewed))?.as_any())
}
