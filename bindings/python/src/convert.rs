//! Plain data between Python and the facade. The classes of results are in `ioverbs._results`.

use ioverbs::{
    Controls, Effective, EntryKind, Extent, ExtentKind, Limits, OnError, Range, Stat, State, catalog::Entry,
    catalog::LockSpec, text,
};
use pyo3::{intern, prelude::*, sync::PyOnceLock, types::PyDict};

use crate::{
    error::Raise,
    names::{name_out, uuid_out},
    value::{pairs_out, time_out},
};

static STAT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static EXTENT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static ENTRY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static RANGE_LOCK: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

fn class<'py>(py: Python<'py>, cell: &'static PyOnceLock<Py<PyAny>>, name: &str) -> PyResult<&'py Bound<'py, PyAny>> {
    let make = || Ok::<_, PyErr>(py.import("ioverbs._results")?.getattr(name)?.unbind());
    Ok(cell.get_or_try_init(py, make)?.bind(py))
}

/// Controls from text, each line over the one before; `None` is none.
pub(crate) fn controls(py: Python<'_>, asked: Option<&str>) -> PyResult<Controls> {
    let mut controls = Controls::default();
    for line in asked.into_iter().flat_map(str::lines) {
        text::parse(&mut controls, line).or_raise(py)?;
    }
    Ok(controls)
}

/// What holds, as keywords that ask for the same again, and as text.
pub(crate) fn effective_out<'py>(py: Python<'py>, e: &Effective) -> PyResult<(Bound<'py, PyDict>, String)> {
    // What a batch does after a failure belongs to the batch.
    let all = Controls { on_error: None, ..Controls::from(e) };
    let out = PyDict::new(py);
    let put = |key: &str, only: Controls| {
        let text = text::format(&only);
        out.set_item(key, text.split_once('=').map(|(_, value)| value))
    };
    let none = Controls::default;
    put("consistency", Controls { consistency: all.consistency, eventual_ns: all.eventual_ns, ..none() })?;
    put("concurrency", Controls { concurrency: all.concurrency, ..none() })?;
    put("mutability", Controls { mutability: all.mutability, ..none() })?;
    put("atomicity", Controls { atomicity: all.atomicity, atomic_unit: all.atomic_unit, ..none() })?;
    put("persistence", Controls { persistence: all.persistence, ..none() })?;
    put("point", Controls { point: all.point, ..none() })?;
    put("temporality", Controls { temporality: all.temporality, drain_ns: all.drain_ns, ..none() })?;
    let Controls { spatiality, stride, block, .. } = all;
    put("spatiality", Controls { spatiality, stride, block, ..none() })?;
    let limits = |l: Limits| (!l.is_unset()).then_some((l.min, l.max));
    out.set_item("request_size", limits(all.request_size))?;
    out.set_item("collection_size", limits(all.collection_size))?;
    Ok((out, text::format(&all)))
}

/// The policy of a batch.
pub(crate) fn on_error(py: Python<'_>, name: Option<&str>) -> PyResult<Option<OnError>> {
    let Some(name) = name else { return Ok(None) };
    let all = OnError::ALL.iter().map(|v| v.text()).collect::<Vec<_>>().join(", ");
    let wrong = || ioverbs::Error::invalid(format!("error={name:?} is none of {all}"));
    OnError::from_text(name).ok_or_else(wrong).or_raise(py).map(Some)
}

/// A range.
pub(crate) fn range(py: Python<'_>, offset: u64, len: u64) -> PyResult<Range> {
    Range::new(offset, len).or_raise(py)
}

pub(crate) fn kind_out(kind: EntryKind) -> &'static str {
    match kind {
        EntryKind::Workspace => "workspace",
        EntryKind::Group => "group",
        EntryKind::Collection => "collection",
    }
}

fn state_out(state: State) -> &'static str {
    match state {
        State::Staging => "staging",
        State::Open => "open",
        State::Sealed => "sealed",
    }
}

/// `ioverbs.Stat`
pub(crate) fn stat_out<'py>(py: Python<'py>, s: &Stat) -> PyResult<Bound<'py, PyAny>> {
    let time = |ns: i64| if ns == 0 || ns == i64::MAX { Ok(None) } else { time_out(py, ns).map(Some) };
    let quota = |n: u64| (n != 0 && n != u64::MAX).then_some(n);
    let fields = PyDict::new(py);
    let put = |key, value: Bound<'py, PyAny>| fields.set_item(key, value);
    put(intern!(py, "kind"), kind_out(s.kind).into_pyobject(py)?.into_any())?;
    put(intern!(py, "state"), s.state.map(state_out).into_pyobject(py)?.into_any())?;
    put(intern!(py, "uuid"), uuid_out(py, s.uuid)?)?;
    put(intern!(py, "ctime"), time(s.ctime_ns)?.into_pyobject(py)?.into_any())?;
    put(intern!(py, "mtime"), time(s.mtime_ns)?.into_pyobject(py)?.into_any())?;
    put(intern!(py, "expires"), time(s.expires_ns)?.into_pyobject(py)?.into_any())?;
    let lifetime = s.lifetime.map(text::format_lifetime);
    put(intern!(py, "lifetime"), lifetime.into_pyobject(py)?.into_any())?;
    put(intern!(py, "staleness"), (s.staleness_ns as f64 / 1e9).into_pyobject(py)?.into_any())?;
    put(intern!(py, "quota_bytes"), quota(s.quota_bytes).into_pyobject(py)?.into_any())?;
    put(intern!(py, "quota_collections"), quota(s.quota_collections).into_pyobject(py)?.into_any())?;
    for (key, n) in [
        ("size", s.bytes),
        ("allocated", s.allocated),
        ("entries", s.entries),
        ("abandoned", s.abandoned),
        ("revision", s.revision),
        ("version", s.version),
        // Permission bits, as they can be set.
        ("mode", (s.mode & 0o7777).into()),
        ("filetype", (s.mode & 0o170000).into()),
        ("links", s.links.into()),
        ("uid", s.uid.into()),
        ("gid", s.gid.into()),
    ] {
        fields.set_item(key, n)?;
    }
    class(py, &STAT, "Stat")?.call((), Some(&fields))
}

/// `ioverbs.Extent`
pub(crate) fn extent_out<'py>(py: Python<'py>, e: &Extent) -> PyResult<Bound<'py, PyAny>> {
    let kind = match e.kind {
        ExtentKind::Data => "data",
        ExtentKind::Hole => "hole",
        ExtentKind::Allocated => "allocated",
        ExtentKind::Abandoned => "abandoned",
    };
    class(py, &EXTENT, "Extent")?.call1((e.range.offset, e.range.len, kind, e.target))
}

/// `ioverbs.RangeLock`
pub(crate) fn lock_out<'py>(py: Python<'py>, l: &LockSpec) -> PyResult<Bound<'py, PyAny>> {
    let length = (l.range.len != 0).then_some(l.range.len);
    class(py, &RANGE_LOCK, "RangeLock")?.call1((l.range.offset, length, l.exclusive, l.owner))
}

/// `ioverbs.Entry`
pub(crate) fn entry_out<'py>(py: Python<'py>, e: &Entry) -> PyResult<Bound<'py, PyAny>> {
    let name = e.name.as_ref().map(|n| name_out(py, n)).transpose()?;
    let group = if e.group.is_nil() { None } else { Some(uuid_out(py, e.group)?) };
    let pairs = e.metadata.iter().flatten().map(|(k, v)| (k.as_str(), v));
    class(py, &ENTRY, "Entry")?.call1((uuid_out(py, e.uuid)?, name, kind_out(e.kind), group, pairs_out(py, pairs)?))
}
