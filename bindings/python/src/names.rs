//! Names, UUIDs and "a name or a UUID" as Python has them.

use ioverbs::{Name, Uuid, Which};
use pyo3::{
    exceptions::PyTypeError,
    intern,
    prelude::*,
    sync::PyOnceLock,
    types::{PyBytes, PyDict, PyString, PyType},
};

use crate::error::raise;

static UUID: PyOnceLock<Py<PyType>> = PyOnceLock::new();

fn uuid_class(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    UUID.import(py, "uuid", "UUID")
}

/// A `uuid.UUID`.
pub(crate) fn uuid_out(py: Python<'_>, uuid: Uuid) -> PyResult<Bound<'_, PyAny>> {
    let arguments = PyDict::new(py);
    arguments.set_item(intern!(py, "bytes"), PyBytes::new(py, &uuid.0))?;
    uuid_class(py)?.call((), Some(&arguments))
}

/// From a `uuid.UUID`; `None` for anything else.
pub(crate) fn uuid_in(obj: &Bound<'_, PyAny>) -> PyResult<Option<Uuid>> {
    if !obj.is_instance(uuid_class(obj.py())?)? {
        return Ok(None);
    }
    Ok(Some(Uuid(obj.getattr(intern!(obj.py(), "bytes"))?.extract()?)))
}

/// The bytes of a name: text is UTF-8, with the escapes that Python uses for names which are not.
fn bytes(obj: &Bound<'_, PyAny>, what: &str) -> PyResult<Vec<u8>> {
    if let Ok(text) = obj.cast::<PyString>() {
        if let Ok(text) = text.to_cow() {
            return Ok(text.as_bytes().to_vec());
        }
        let escaped = text.call_method1(intern!(obj.py(), "encode"), ("utf-8", "surrogateescape"))?;
        return Ok(escaped.cast::<PyBytes>()?.as_bytes().to_vec());
    }
    if let Ok(bytes) = obj.cast::<PyBytes>() {
        return Ok(bytes.as_bytes().to_vec());
    }
    Err(PyTypeError::new_err(format!("{what} is str or bytes, not {}", obj.get_type().name()?)))
}

/// A name.
pub(crate) fn name_in(obj: &Bound<'_, PyAny>) -> PyResult<Name> {
    Name::new(bytes(obj, "a name")?).map_err(|e| raise(obj.py(), e))
}

/// A name as `str`.
pub(crate) fn name_out<'py>(py: Python<'py>, name: &Name) -> PyResult<Bound<'py, PyAny>> {
    match std::str::from_utf8(name.as_bytes()) {
        Ok(text) => Ok(PyString::new(py, text).into_any()),
        Err(_) => PyBytes::new(py, name.as_bytes()).call_method1(intern!(py, "decode"), ("utf-8", "surrogateescape")),
    }
}

/// A `uuid.UUID`, the text `uuid:…`, or a name.
pub(crate) fn which_in(obj: &Bound<'_, PyAny>) -> PyResult<Which> {
    if let Some(uuid) = uuid_in(obj)? {
        return Ok(Which::Uuid(uuid));
    }
    Which::parse(bytes(obj, "what is named by a name or a UUID")?).map_err(|e| raise(obj.py(), e))
}
