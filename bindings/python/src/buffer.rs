//! Memory of Python objects, lent to operations without a copy.

use std::ffi::{CStr, c_int};

use ioverbs::{Error, Memory};
use pyo3::{
    exceptions::{PyMemoryError, PyOverflowError, PyTypeError},
    ffi,
    prelude::*,
    types::{PyByteArray, PyBytes},
};

use crate::error::raise;

/// The memory behind an object with a contiguous buffer. The object lives, and its memory stays in place, until this is
/// dropped: Python refuses to resize what is lent.
pub(crate) struct Lent(Box<ffi::Py_buffer>);

// SAFETY: the struct is only read, but for its release, which attaches to the interpreter first.
unsafe impl Send for Lent {}
// SAFETY: as above.
unsafe impl Sync for Lent {}

fn view(obj: &Bound<'_, PyAny>, flags: c_int) -> PyResult<Lent> {
    let mut view = Box::new(ffi::Py_buffer::new());
    // SAFETY: both pointers are live; the view is released exactly if this call succeeds.
    if unsafe { ffi::PyObject_GetBuffer(obj.as_ptr(), &mut *view, flags) } != 0 {
        return Err(PyErr::fetch(obj.py()));
    }
    Ok(Lent(view))
}

/// Whether items of a format (that of the buffer protocol) hold references; names of fields stand between colons.
fn has_references(format: &str) -> bool {
    format.split(':').step_by(2).any(|types| types.contains('O'))
}

/// Refuses arrays of Python objects: their memory holds addresses, which mean nothing in a store, and would be taken for
/// objects when they are read back.
fn check_items(obj: &Bound<'_, PyAny>) -> PyResult<()> {
    // These have bytes only.
    if obj.is_instance_of::<PyBytes>() || obj.is_instance_of::<PyByteArray>() {
        return Ok(());
    }
    // What cannot tell its format (dates of NumPy) holds no references.
    let Ok(shown) = view(obj, ffi::PyBUF_FULL_RO) else { return Ok(()) };
    if shown.0.format.is_null() {
        return Ok(());
    }
    // SAFETY: a C string of the exporter, which lives as long as the view.
    let format = unsafe { CStr::from_ptr(shown.0.format) }.to_string_lossy();
    if has_references(&format) {
        return Err(PyTypeError::new_err(
            "an array of Python objects cannot be stored as bytes: convert it first, as in array.astype(float), or pickle it",
        ));
    }
    Ok(())
}

impl Lent {
    /// Lends what is to be stored.
    pub(crate) fn readable(obj: &Bound<'_, PyAny>) -> PyResult<Lent> {
        check_items(obj)?;
        view(obj, ffi::PyBUF_SIMPLE).map_err(|e| explain(obj, e, false))
    }

    /// Lends what is to be filled.
    pub(crate) fn writable(obj: &Bound<'_, PyAny>) -> PyResult<Lent> {
        check_items(obj)?;
        view(obj, ffi::PyBUF_WRITABLE).map_err(|e| explain(obj, e, true))
    }

    /// How many bytes it has.
    pub(crate) fn len(&self) -> usize {
        self.0.len as usize
    }

    pub(crate) fn to_store(&self) -> Memory {
        // SAFETY: the buffer protocol keeps the memory in place until `self` is dropped, which whoever runs the operation
        // does after its end. Python code that changes it meanwhile is what a program may do with a lent buffer (rule 1).
        unsafe { Memory::readable(self.0.buf.cast(), self.0.len as usize) }
    }

    pub(crate) fn to_fill(&self) -> Memory {
        // SAFETY: as above; it was lent for writing.
        unsafe { Memory::writable(self.0.buf.cast(), self.0.len as usize) }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // Without an interpreter nobody is left who could use the memory.
        let _ = Python::try_attach(|_| {
            // SAFETY: it was filled by PyObject_GetBuffer, at this address, and is released once.
            unsafe { ffi::PyBuffer_Release(&mut *self.0) }
        });
    }
}

/// Why an object's memory cannot be lent, and what to do.
fn explain(obj: &Bound<'_, PyAny>, why: PyErr, writable: bool) -> PyErr {
    let py = obj.py();
    let kind = obj.get_type().name().map_or_else(|_| "object".into(), |n| n.to_string());
    // SAFETY: the object is live.
    if unsafe { ffi::PyObject_CheckBuffer(obj.as_ptr()) } == 0 {
        let hint = if kind == "str" { ": encode text first, as in text.encode()" } else { "" };
        return PyTypeError::new_err(format!(
            "an object with a buffer is needed (bytes, bytearray, memoryview, array, numpy array), not {kind}{hint}"
        ));
    }
    // Any way it shows its memory tells more about what stands in the way.
    let Ok(shown) = view(obj, ffi::PyBUF_FULL_RO) else { return why };
    if writable && shown.0.readonly != 0 {
        return PyTypeError::new_err(format!(
            "the memory of this {kind} is read-only: reading needs one that can be filled"
        ));
    }
    // SAFETY: the view is live; 'A' asks for contiguous in either order.
    let either = unsafe { ffi::PyBuffer_IsContiguous(&*shown.0, b'A' as _) } != 0;
    let hint = if either {
        "its order is Fortran's: pass its transpose (a.T), or numpy.ascontiguousarray(a)"
    } else {
        "pass a contiguous copy, such as bytes(view) or numpy.ascontiguousarray(a), or its pieces to writev or readv"
    };
    let error = raise(py, Error::invalid(format!("the memory of this {kind} is not contiguous: {hint}")));
    error.set_cause(py, Some(why));
    error
}

/// A bytes object that nobody has seen yet, to be filled by a read.
pub(crate) struct Fresh {
    object: Py<PyBytes>,
    start: *mut u8,
    len: usize,
}

// SAFETY: the pointer leads into the object beside it.
unsafe impl Send for Fresh {}

impl Fresh {
    /// Room for `len` bytes, not set to anything.
    pub(crate) fn new(py: Python<'_>, len: u64) -> PyResult<Fresh> {
        let size = isize::try_from(len)
            .map_err(|_| PyOverflowError::new_err(format!("{len} bytes are more than one bytes object can hold")))?;
        // SAFETY: with NULL the bytes are left for the caller to set; the result is a new reference or NULL.
        let object =
            unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyBytes_FromStringAndSize(std::ptr::null(), size)) };
        let object =
            object.map_err(|_| PyMemoryError::new_err(format!("no memory for {len} bytes: read less at a time")))?;
        let object = object.cast_into::<PyBytes>()?;
        // SAFETY: the object is live bytes.
        let start = unsafe { ffi::PyBytes_AsString(object.as_ptr()) }.cast();
        Ok(Fresh { object: object.unbind(), start, len: len as usize })
    }

    /// For how many bytes it has room.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn to_fill(&self) -> Memory {
        // SAFETY: nobody else has the object, and whoever runs the operation keeps it until the end of that.
        unsafe { Memory::writable(self.start, self.len) }
    }

    /// The object, cut to what was read: the rest of it was never set and is shown to nobody. The stable ABI cannot
    /// shorten bytes in place, so that only a read past the end costs a copy.
    pub(crate) fn finish(self, py: Python<'_>, got: u64) -> PyResult<Bound<'_, PyBytes>> {
        let object = self.object.into_bound(py);
        match usize::try_from(got) {
            Ok(got) if got < self.len => {
                // SAFETY: the first `got` bytes were set by the read, which has ended.
                Ok(PyBytes::new(py, unsafe { std::slice::from_raw_parts(self.start, got) }))
            }
            _ => Ok(object),
        }
    }
}
