//! WorkspaceCreate (O1).

use bytes::Bytes;
use iov_types::{AccessList, Clause, Controls, Error, Layout, Name, Result, Uuid, WorkspaceAttr, posix};

use super::{Reply, meta, workspace_load};
use crate::{access, exec::Exec, index, keys, promise, record::WorkspaceRecord};

/// Permission bits of a root.
const MODE: u32 = 0o750;

pub(crate) fn create(x: &mut Exec<'_>, uuid: Uuid, name: Name, attr: WorkspaceAttr) -> Reply {
    if uuid.is_nil() {
        return Err(Error::invalid("a workspace's UUID is not nil"));
    }
    check_name(x, &name)?;
    let all: Vec<Uuid> = x.shared().workspaces.uuids().collect();
    let mut taken = x.is_workspace(uuid);
    for ws in all {
        // Names in a root lie under the workspace's UUID, those in a group under the group's.
        taken |= x.get(&keys::record(ws, uuid))?.is_some();
    }
    if taken {
        return Err(
            Error::exists(format!("{uuid} is in use: every workspace needs a UUID of its own")).with_clause(Clause::O1)
        );
    }
    let caller = &x.cx.caller;
    let asked_indexes = attr.asked_indexes();
    let record = WorkspaceRecord {
        name: name.clone(),
        owner: attr.owner.unwrap_or(caller.uid),
        gid: caller.gid,
        mode: posix::marked(MODE, &attr.metadata),
        access: attr.access.unwrap_or_default(),
        metadata: attr.metadata,
        controls: attr.controls.unwrap_or_default(),
        layout: attr.layout,
        indexes: asked_indexes.unwrap_or_default(),
        quota_bytes: attr.quota_bytes.unwrap_or(u64::MAX),
        quota_collections: attr.quota_collections.unwrap_or(u64::MAX),
        expires_ns: attr.expires_ns.unwrap_or(i64::MAX),
        ctime_ns: x.now_ns,
        mtime_ns: x.now_ns,
        revision: 1,
        epoch: 0,
        pending: Uuid::NIL,
        changed_ns: 0,
    };
    check(x, &record)?;
    check_layout(x, record.layout.as_ref())?;
    x.set_workspace(uuid, Some(record));
    x.put(keys::workspace_name(&name), Bytes::copy_from_slice(&uuid.0));
    workspace_load::opened(x, uuid)
}

/// Fails if a default layout names what the store has not got.
pub(crate) fn check_layout(x: &Exec<'_>, layout: Option<&Layout>) -> Result<()> {
    match layout {
        // Of one target it is looked at with the promises.
        Some(layout) if !x.core.map().is_one() => x.core.map().check_default(layout),
        _ => Ok(()),
    }
}

/// Fails if the name is taken, or means something else wherever workspaces appear as directories.
pub(crate) fn check_name(x: &mut Exec<'_>, name: &Name) -> Result<()> {
    if matches!(name.as_bytes(), b"." | b"..") {
        return Err(
            Error::invalid(format!("{name:?} is no name for a workspace: choose another one")).with_clause(Clause::O1)
        );
    }
    if x.workspace_named(name).is_some() {
        return Err(Error::exists(format!("there is a workspace {name:?} already: load it, or choose another name"))
            .with_clause(Clause::O1));
    }
    Ok(())
}

/// What every record of a workspace must fulfil.
pub(crate) fn check(x: &Exec<'_>, record: &WorkspaceRecord) -> Result<()> {
    if x.core.is_single_user() {
        access::check_single_user(x.core.uid(), record.owner, &record.access)?;
    }
    check_access(&record.access)?;
    index::check_declared(&record.indexes)?;
    meta::check_size(&record.metadata)?;
    let layout = record.layout.clone().unwrap_or_default();
    promise::at_create(&record.controls, &Controls::default(), &layout, &x.core.capability_anywhere()).map(drop)
}

/// Most entries of an access list: it is looked through for every caller.
const ACCESS_ENTRIES: usize = 1024;

fn check_access(access: &AccessList) -> Result<()> {
    if access.entries.len() > ACCESS_ENTRIES {
        return Err(Error::too_big(format!("an access list has at most {ACCESS_ENTRIES} entries: use groups"))
            .with_clause(Clause::A1));
    }
    Ok(())
}
