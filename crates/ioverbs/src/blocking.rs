//! The common operations as plain blocking calls.

use iov_engine::{Collection, Cursor, Op, Output, Parent, Status, Workspace, run, run_bytes};
use iov_store::Memory;
use iov_types::{Controls, EntryKind, Error, Metadata, Name, Result, Stat, Which, catalog::SearchSpec};

fn name_of(name: Option<&str>) -> Result<Option<Name>> {
    name.map(Name::new).transpose()
}

fn make(
    ws: &Workspace,
    kind: EntryKind,
    parent: Parent,
    name: Option<&str>,
    metadata: Metadata,
    controls: Controls,
) -> Result<Collection> {
    let out = ws.pending(kind);
    let name = name_of(name)?;
    run(ws.session(), Op::Create { out: out.clone(), parent, name, metadata, controls })?;
    Ok(out)
}

/// Makes and opens a collection.
pub fn create(
    ws: &Workspace,
    parent: Parent,
    name: Option<&str>,
    metadata: Metadata,
    controls: Controls,
) -> Result<Collection> {
    make(ws, EntryKind::Collection, parent, name, metadata, controls)
}

/// Makes and opens a group.
pub fn create_group(ws: &Workspace, parent: Parent, name: &str) -> Result<Collection> {
    make(ws, EntryKind::Group, parent, Some(name), Metadata::new(), Controls::default())
}

/// Opens a collection by name or `uuid:…`.
pub fn lookup(ws: &Workspace, parent: Parent, name: &str, controls: Controls) -> Result<Collection> {
    let out = ws.pending(EntryKind::Collection);
    run(ws.session(), Op::Open { out: out.clone(), parent, which: Which::parse(name)?, controls })?;
    Ok(out)
}

/// Writes all of `data` at `offset`.
pub fn write_at(c: &Collection, offset: u64, data: &[u8]) -> Result<()> {
    // SAFETY: `data` is borrowed until `run` has returned, and `run` returns after the operation has completed.
    let memory = unsafe { Memory::readable(data.as_ptr(), data.len()) };
    run_bytes(c, offset, memory, true).map(drop)
}

/// Reads into `buf`; short only at the end.
pub fn read_at(c: &Collection, offset: u64, buf: &mut [u8]) -> Result<usize> {
    // SAFETY: as in `write_at`, with a unique borrow.
    let memory = unsafe { Memory::writable(buf.as_mut_ptr(), buf.len()) };
    let status: Status = run_bytes(c, offset, memory, false)?;
    Ok(status.bytes as usize)
}

/// Adds a record at the end and tells where.
pub fn append(c: &Collection, data: &[u8]) -> Result<u64> {
    // SAFETY: as in `write_at`.
    let memory = unsafe { Memory::readable(data.as_ptr(), data.len()) };
    match run(c.session(), Op::Append { c: c.clone(), memory })?.output {
        Output::Offset(offset) => Ok(offset),
        _ => Err(Error::internal("an append returned no offset")),
    }
}

/// Publishes what was written.
pub fn commit(c: &Collection) -> Result<()> {
    run(c.session(), Op::Commit { c: c.clone() }).map(drop)
}

/// Commits, persists as the point says, ends the handle.
pub fn close(c: &Collection) -> Result<()> {
    run(c.session(), Op::Close { c: c.clone() }).map(drop)
}

/// The facts.
pub fn stat(c: &Collection) -> Result<Stat> {
    match run(c.session(), Op::Stat { c: c.clone() })?.output {
        Output::Stat(stat) => Ok(*stat),
        _ => Err(Error::internal("a stat returned no facts")),
    }
}

/// Searches a workspace.
pub fn find(ws: &Workspace, spec: SearchSpec) -> Result<Cursor> {
    let out = Cursor::pending(ws.session());
    run(ws.session(), Op::Search { w: ws.clone(), group: None, spec, out: out.clone() })?;
    Ok(out)
}
