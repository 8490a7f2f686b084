//! Metadata values between Python and the facade.

use ioverbs::{Metadata, Value};
use pyo3::{
    exceptions::PyTypeError,
    prelude::*,
    sync::PyOnceLock,
    types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyMapping, PyString},
};

use crate::error::{Raise, raise};

static NORMAL: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static FROM_NS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

fn text(obj: &Bound<'_, PyString>) -> PyResult<String> {
    obj.to_cow().map(|s| s.into_owned()).map_err(|_| {
        let detail = "text in metadata must be UTF-8: this has lone surrogates; store it as bytes";
        raise(obj.py(), ioverbs::Error::invalid(detail).with_clause(ioverbs::Clause::O4))
    })
}

fn whole(obj: &Bound<'_, PyAny>) -> PyResult<i64> {
    obj.extract().map_err(|_| {
        let detail = "integers in metadata have 64 bits: this one does not fit; store it as text or float";
        raise(obj.py(), ioverbs::Error::invalid(detail).with_clause(ioverbs::Clause::O4))
    })
}

/// A value of the types that Python has for it; `None`: it is of another one.
fn plain(obj: &Bound<'_, PyAny>) -> PyResult<Option<Value>> {
    // In this order: a bool is an int.
    Ok(Some(if let Ok(b) = obj.cast::<PyBool>() {
        Value::Bool(b.is_true())
    } else if let Ok(s) = obj.cast::<PyString>() {
        Value::Str(text(s)?)
    } else if obj.is_instance_of::<PyInt>() {
        Value::I64(whole(obj)?)
    } else if let Ok(x) = obj.cast::<PyFloat>() {
        Value::F64(x.value())
    } else if let Ok(b) = obj.cast::<PyBytes>() {
        Value::Bytes(b.as_bytes().to_vec())
    } else {
        return Ok(None);
    }))
}

/// A value that can be stored.
pub(crate) fn value(obj: &Bound<'_, PyAny>) -> PyResult<Value> {
    if let Some(value) = plain(obj)? {
        return Ok(value);
    }
    let py = obj.py();
    let normal =
        NORMAL.get_or_try_init(py, || Ok::<_, PyErr>(py.import("ioverbs._values")?.getattr("normal")?.unbind()))?;
    let (is_time, made): (bool, Bound<'_, PyAny>) = normal.bind(py).call1((obj,))?.extract()?;
    if is_time {
        return whole(&made).map(Value::Time);
    }
    // Once only: what is no plainer by now may never be.
    plain(&made)?.ok_or_else(|| {
        let kind = obj.get_type().name().map_or_else(|_| "this".to_owned(), |name| name.to_string());
        PyTypeError::new_err(format!("metadata hold str, int, float, bool, bytes and aware datetimes, not {kind}"))
    })
}

/// Several.
pub(crate) fn values(objs: &[Bound<'_, PyAny>]) -> PyResult<Vec<Value>> {
    objs.iter().map(value).collect()
}

/// A value as Python has it.
pub(crate) fn value_out<'py>(py: Python<'py>, v: &Value) -> PyResult<Bound<'py, PyAny>> {
    Ok(match v {
        Value::Str(s) => PyString::new(py, s).into_any(),
        Value::I64(n) => n.into_pyobject(py)?.into_any(),
        Value::F64(x) => PyFloat::new(py, *x).into_any(),
        Value::Bool(b) => PyBool::new(py, *b).to_owned().into_any(),
        Value::Bytes(b) => PyBytes::new(py, b).into_any(),
        Value::Time(ns) => time_out(py, *ns)?,
    })
}

/// An `ioverbs.Timestamp`.
pub(crate) fn time_out(py: Python<'_>, ns: i64) -> PyResult<Bound<'_, PyAny>> {
    let from_ns = FROM_NS.get_or_try_init(py, || {
        Ok::<_, PyErr>(py.import("ioverbs._values")?.getattr("Timestamp")?.getattr("from_ns")?.unbind())
    })?;
    from_ns.bind(py).call1((ns,))
}

/// Pairs from a mapping, or from an iterable of pairs; `None` is none.
pub(crate) fn metadata(obj: Option<&Bound<'_, PyAny>>) -> PyResult<Metadata> {
    let mut out = Metadata::new();
    let Some(obj) = obj else { return Ok(out) };
    let mut put = |key: &Bound<'_, PyAny>, v: &Bound<'_, PyAny>| {
        let key = key.cast::<PyString>().map_err(|_| PyTypeError::new_err("metadata keys are str"))?;
        out.set(text(key)?, value(v)?).or_raise(obj.py())
    };
    if let Ok(dict) = obj.cast::<PyDict>() {
        for (key, v) in dict.iter() {
            put(&key, &v)?;
        }
        return Ok(out);
    }
    let pairs: Bound<'_, PyAny> = match obj.cast::<PyMapping>() {
        Ok(mapping) => mapping.items()?.into_any(),
        Err(_) => obj.clone(),
    };
    for pair in pairs.try_iter()? {
        let (key, v): (Bound<'_, PyAny>, Bound<'_, PyAny>) = pair?.extract()?;
        put(&key, &v)?;
    }
    Ok(out)
}

/// Pairs as a dict.
pub(crate) fn pairs_out<'py, 'a>(
    py: Python<'py>,
    pairs: impl Iterator<Item = (&'a str, &'a Value)>,
) -> PyResult<Bound<'py, PyDict>> {
    let out = PyDict::new(py);
    for (key, v) in pairs {
        out.set_item(key, value_out(py, v)?)?;
    }
    Ok(out)
}

/// A list of texts.
pub(crate) fn texts(obj: Option<&Bound<'_, PyList>>) -> PyResult<Vec<String>> {
    obj.map_or_else(|| Ok(Vec::new()), |list| list.extract())
}
