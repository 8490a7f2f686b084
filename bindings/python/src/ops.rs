//! How each operation is described: `Op.write(…)` and its likes.

use ioverbs::{
    Attr, Error, Op as O,
    catalog::{LockSpec, RenameMode, SearchSpec},
};
use pyo3::{
    prelude::*,
    types::{PyDict, PyList},
};

use crate::{
    buffer::{Fresh, Lent},
    collection::Handle,
    convert::{controls, range},
    cursor::Cursor,
    error::Raise,
    names::{name_in, which_in},
    op::Op,
    run::Holds,
    value::{metadata, texts, values},
    workspace::{Workspace, workspace_attr},
};

/// Pairs of an offset and memory.
type Chunks<'py> = Vec<(u64, Bound<'py, PyAny>)>;

fn on(c: &Bound<'_, Handle>, op: impl FnOnce(ioverbs::Collection) -> O) -> PyResult<Op> {
    let c = c.get().usable(c.py())?;
    Ok(Op::plain(c.session(), op(c.clone())))
}

fn on_bytes(c: &Bound<'_, Handle>, op: impl FnOnce(ioverbs::Collection) -> O) -> PyResult<Op> {
    let c = c.get().data(c.py())?;
    Ok(Op::plain(c.session(), op(c.clone())))
}

fn moving(c: &Bound<'_, Handle>, holds: Holds, op: impl FnOnce(ioverbs::Collection, &Holds) -> O) -> PyResult<Op> {
    let c = c.get().data(c.py())?;
    let op = op(c.clone(), &holds);
    Ok(Op::new(c.session(), op, holds))
}

fn of(w: &Bound<'_, Workspace>, op: impl FnOnce(ioverbs::Workspace) -> O) -> PyResult<Op> {
    let w = w.get().usable(w.py())?;
    Ok(Op::plain(w.session(), op(w.clone())))
}

fn lent(chunks: &Chunks<'_>, lend: fn(&Bound<'_, PyAny>) -> PyResult<Lent>) -> PyResult<Holds> {
    Ok(Holds { lent: chunks.iter().map(|(_, buffer)| lend(buffer)).collect::<PyResult<_>>()?, ..Holds::default() })
}

fn lock_spec(
    py: Python<'_>,
    offset: u64,
    length: u64,
    exclusive: bool,
    try_only: bool,
    owner: u64,
    lease_ns: i64,
) -> PyResult<LockSpec> {
    if lease_ns <= 0 {
        return Err(Error::invalid("a lease is a time from now on")).or_raise(py);
    }
    Ok(LockSpec { exclusive, try_only, range: range(py, offset, length)?, owner, lease_ns })
}

#[pymethods]
impl Op {
    #[getter]
    fn verb(&self) -> &'static str {
        self.verb
    }

    #[staticmethod]
    fn write(c: &Bound<'_, Handle>, offset: u64, data: &Bound<'_, PyAny>) -> PyResult<Op> {
        moving(c, Lent::readable(data)?.into(), |c, holds| O::Write {
            c,
            chunks: vec![(offset, holds.lent[0].to_store())],
        })
    }

    #[staticmethod]
    fn writev(c: &Bound<'_, Handle>, chunks: Chunks<'_>) -> PyResult<Op> {
        moving(c, lent(&chunks, Lent::readable)?, |c, holds| {
            let memory = holds.lent.iter().map(Lent::to_store);
            O::Write { c, chunks: chunks.iter().map(|(offset, _)| *offset).zip(memory).collect() }
        })
    }

    #[staticmethod]
    fn read(c: &Bound<'_, Handle>, offset: u64, n: u64) -> PyResult<Op> {
        let fresh = Fresh::new(c.py(), n)?;
        let memory = fresh.to_fill();
        moving(c, fresh.into(), |c, _| O::Read { c, chunks: vec![(offset, memory)] })
    }

    #[staticmethod]
    fn readinto(c: &Bound<'_, Handle>, offset: u64, buffer: &Bound<'_, PyAny>) -> PyResult<Op> {
        moving(c, Lent::writable(buffer)?.into(), |c, holds| O::Read {
            c,
            chunks: vec![(offset, holds.lent[0].to_fill())],
        })
    }

    #[staticmethod]
    fn readv(c: &Bound<'_, Handle>, chunks: Chunks<'_>) -> PyResult<Op> {
        moving(c, lent(&chunks, Lent::writable)?, |c, holds| {
            let memory = holds.lent.iter().map(Lent::to_fill);
            O::Read { c, chunks: chunks.iter().map(|(offset, _)| *offset).zip(memory).collect() }
        })
    }

    #[staticmethod]
    fn append(c: &Bound<'_, Handle>, data: &Bound<'_, PyAny>) -> PyResult<Op> {
        moving(c, Lent::readable(data)?.into(), |c, holds| O::Append { c, memory: holds.lent[0].to_store() })
    }

    #[staticmethod]
    fn truncate(c: &Bound<'_, Handle>, size: u64) -> PyResult<Op> {
        on_bytes(c, |c| O::Truncate { c, size })
    }

    #[staticmethod]
    fn punch(c: &Bound<'_, Handle>, offset: u64, length: u64) -> PyResult<Op> {
        let range = range(c.py(), offset, length)?;
        on_bytes(c, |c| O::Punch { c, range })
    }

    #[staticmethod]
    fn allocate(c: &Bound<'_, Handle>, offset: u64, length: u64, keep_size: bool) -> PyResult<Op> {
        let range = range(c.py(), offset, length)?;
        on_bytes(c, |c| O::Allocate { c, range, keep_size })
    }

    #[staticmethod]
    fn extents(c: &Bound<'_, Handle>, offset: u64, length: u64, max: usize) -> PyResult<Op> {
        let range = range(c.py(), offset, length)?;
        on_bytes(c, |c| O::Extents { c, range, max })
    }

    #[staticmethod]
    fn copy(
        src: &Bound<'_, Handle>,
        src_offset: u64,
        dst: &Bound<'_, Handle>,
        dst_offset: u64,
        length: u64,
    ) -> PyResult<Op> {
        let src = src.get().data(src.py())?.clone();
        on_bytes(dst, |dst| O::Copy { src, src_offset, dst, dst_offset, len: length })
    }

    #[staticmethod]
    fn commit(c: &Bound<'_, Handle>) -> PyResult<Op> {
        on(c, |c| O::Commit { c })
    }

    #[staticmethod]
    fn persist(c: &Bound<'_, Handle>) -> PyResult<Op> {
        on(c, |c| O::Persist { c })
    }

    #[staticmethod]
    fn seal(c: &Bound<'_, Handle>) -> PyResult<Op> {
        on_bytes(c, |c| O::Seal { c })
    }

    #[staticmethod]
    fn close(c: &Bound<'_, Handle>) -> PyResult<Op> {
        let handle = c.get();
        let inner = handle.usable(c.py())?;
        Ok(Op::ending(inner.session(), O::Close { c: inner.clone() }, &handle.ended))
    }

    #[staticmethod]
    #[pyo3(signature = (out, parent, name, pairs, asked))]
    fn create(
        out: &Bound<'_, Handle>,
        parent: Option<&Bound<'_, Handle>>,
        name: Option<&Bound<'_, PyAny>>,
        pairs: Option<&Bound<'_, PyAny>>,
        asked: Option<&str>,
    ) -> PyResult<Op> {
        let parent = Handle::parent(parent)?;
        let name = name.map(name_in).transpose()?;
        let (metadata, controls) = (metadata(pairs)?, controls(out.py(), asked)?);
        on(out, |out| O::Create { out, parent, name, metadata, controls })
    }

    #[staticmethod]
    #[pyo3(signature = (out, parent, which, asked))]
    fn open(
        out: &Bound<'_, Handle>,
        parent: Option<&Bound<'_, Handle>>,
        which: Option<&Bound<'_, PyAny>>,
        asked: Option<&str>,
    ) -> PyResult<Op> {
        let parent = Handle::parent(parent)?;
        let controls = controls(out.py(), asked)?;
        let which = match which {
            Some(which) => which_in(which)?,
            // The root.
            None => ioverbs::Which::Uuid(ioverbs::Uuid::NIL),
        };
        on(out, |out| O::Open { out, parent, which, controls })
    }

    #[staticmethod]
    #[allow(clippy::too_many_arguments)] // each is a field of the search
    #[pyo3(signature = (w, out, group, names, predicate, params, deep, order, limit, keys, count))]
    fn search(
        w: &Bound<'_, Workspace>,
        out: &Bound<'_, Cursor>,
        group: Option<&Bound<'_, Handle>>,
        names: bool,
        predicate: Option<String>,
        params: Vec<Bound<'_, PyAny>>,
        deep: bool,
        order: Option<String>,
        limit: u64,
        keys: Option<&Bound<'_, PyList>>,
        count: bool,
    ) -> PyResult<Op> {
        let params = values(&params)?;
        ioverbs::check_predicate(predicate.as_deref(), &params).or_raise(w.py())?;
        let keys = texts(keys)?;
        let group = Handle::parent(group)?;
        let root = names.then_some(ioverbs::Uuid::NIL);
        let spec = SearchSpec { predicate, params, group: root, deep, order, limit, keys, count, names, page: 0 };
        let out = out.get().cursor().clone();
        of(w, |w| O::Search { w, group, spec, out })
    }

    #[staticmethod]
    #[pyo3(signature = (w, parent, which))]
    fn delete(w: &Bound<'_, Workspace>, parent: Option<&Bound<'_, Handle>>, which: &Bound<'_, PyAny>) -> PyResult<Op> {
        let (parent, which) = (Handle::parent(parent)?, which_in(which)?);
        of(w, |w| O::Delete { w, parent, which })
    }

    #[staticmethod]
    #[pyo3(signature = (w, parent, which))]
    fn look(w: &Bound<'_, Workspace>, parent: Option<&Bound<'_, Handle>>, which: &Bound<'_, PyAny>) -> PyResult<Op> {
        let (parent, which) = (Handle::parent(parent)?, which_in(which)?);
        of(w, |w| O::Look { w, parent, which, ahead: 0, tell: 0 })
    }

    #[staticmethod]
    fn stat(c: &Bound<'_, Handle>) -> PyResult<Op> {
        on(c, |c| O::Stat { c })
    }

    #[staticmethod]
    fn set(c: &Bound<'_, Handle>, asked: &str) -> PyResult<Op> {
        let controls = controls(c.py(), Some(asked))?;
        on(c, |c| O::Set { c, controls: Some(controls), layout: None })
    }

    #[staticmethod]
    #[pyo3(signature = (c, mode, uid, gid, mtime_ns, lifetime=None))]
    fn setattr(
        c: &Bound<'_, Handle>,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        mtime_ns: Option<i64>,
        lifetime: Option<&str>,
    ) -> PyResult<Op> {
        let lifetime = lifetime.map(ioverbs::text::parse_lifetime).transpose().or_raise(c.py())?;
        if mode.is_some_and(|mode| mode > 0o7777) {
            return Err(Error::invalid("permission bits go up to 0o7777")).or_raise(c.py());
        }
        on(c, |c| O::SetAttr { c, attr: Attr { mode, uid, gid, mtime_ns, atime_ns: None, lifetime } })
    }

    #[staticmethod]
    #[pyo3(signature = (w, from_parent, from_name, to_parent, to_name, replace, exchange))]
    fn rename(
        w: &Bound<'_, Workspace>,
        from_parent: Option<&Bound<'_, Handle>>,
        from_name: &Bound<'_, PyAny>,
        to_parent: Option<&Bound<'_, Handle>>,
        to_name: &Bound<'_, PyAny>,
        replace: bool,
        exchange: bool,
    ) -> PyResult<Op> {
        let (from_parent, to_parent) = (Handle::parent(from_parent)?, Handle::parent(to_parent)?);
        let (from, to) = (name_in(from_name)?, name_in(to_name)?);
        let mode = match (replace, exchange) {
            (_, true) => RenameMode::Exchange,
            (true, false) => RenameMode::Replace,
            (false, false) => RenameMode::NoReplace,
        };
        of(w, |w| O::Rename { w, from_parent, from, to_parent, to, mode })
    }

    #[staticmethod]
    #[pyo3(signature = (c, parent, name))]
    fn link(c: &Bound<'_, Handle>, parent: Option<&Bound<'_, Handle>>, name: &Bound<'_, PyAny>) -> PyResult<Op> {
        let (parent, name) = (Handle::parent(parent)?, name_in(name)?);
        on(c, |c| O::Link { c, parent, name })
    }

    #[staticmethod]
    fn metadata_get(c: &Bound<'_, Handle>, key: String) -> PyResult<Op> {
        on(c, |c| O::MetaGet { c, key })
    }

    #[staticmethod]
    fn metadata_put(c: &Bound<'_, Handle>, pairs: &Bound<'_, PyAny>) -> PyResult<Op> {
        let pairs = metadata(Some(pairs))?;
        on(c, |c| O::MetaPut { c, pairs })
    }

    #[staticmethod]
    fn metadata_remove(c: &Bound<'_, Handle>, key: String) -> PyResult<Op> {
        on(c, |c| O::MetaRemove { c, key })
    }

    #[staticmethod]
    fn metadata_list(c: &Bound<'_, Handle>) -> PyResult<Op> {
        on(c, |c| O::MetaList { c })
    }

    #[staticmethod]
    fn lock(
        c: &Bound<'_, Handle>,
        offset: u64,
        length: u64,
        exclusive: bool,
        try_only: bool,
        owner: u64,
        lease_ns: i64,
    ) -> PyResult<Op> {
        let lock = lock_spec(c.py(), offset, length, exclusive, try_only, owner, lease_ns)?;
        let handle = c.get().usable(c.py())?.clone();
        let holds = Holds { takes: Some((handle.clone(), owner)), ..Holds::default() };
        Ok(Op::new(&handle.session().clone(), O::Lock { c: handle, lock }, holds))
    }

    #[staticmethod]
    fn unlock(c: &Bound<'_, Handle>, offset: u64, length: u64, owner: u64) -> PyResult<Op> {
        let lock = lock_spec(c.py(), offset, length, true, false, owner, ioverbs::limits::LEASE_NS)?;
        on(c, |c| O::Unlock { c, lock })
    }

    #[staticmethod]
    fn lock_query(c: &Bound<'_, Handle>, offset: u64, length: u64, exclusive: bool, owner: u64) -> PyResult<Op> {
        let lock = lock_spec(c.py(), offset, length, exclusive, true, owner, ioverbs::limits::LEASE_NS)?;
        on(c, |c| O::LockQuery { c, lock })
    }

    #[staticmethod]
    fn workspace_stat(w: &Bound<'_, Workspace>) -> PyResult<Op> {
        of(w, |w| O::WorkspaceStat { w })
    }

    #[staticmethod]
    fn workspace_set(w: &Bound<'_, Workspace>, attr: &Bound<'_, PyDict>) -> PyResult<Op> {
        let attr = workspace_attr(attr)?;
        of(w, |w| O::WorkspaceSet { w, attr })
    }

    #[staticmethod]
    fn workspace_rename(w: &Bound<'_, Workspace>, name: &Bound<'_, PyAny>) -> PyResult<Op> {
        let name = name_in(name)?;
        of(w, |w| O::WorkspaceRename { w, name })
    }

    #[staticmethod]
    fn workspace_commit(w: &Bound<'_, Workspace>) -> PyResult<Op> {
        of(w, |w| O::WorkspaceCommit { w })
    }

    #[staticmethod]
    fn workspace_persist(w: &Bound<'_, Workspace>) -> PyResult<Op> {
        of(w, |w| O::WorkspacePersist { w })
    }
}
