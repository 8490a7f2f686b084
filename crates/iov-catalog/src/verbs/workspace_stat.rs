//! WorkspaceStat: usage, quota, expiry (O1).

use iov_types::{EntryKind, Right, Stat, Uuid, catalog::CatalogReply};

use super::Reply;
use crate::exec::Exec;

pub(crate) fn stat(x: &mut Exec<'_>, ws: Uuid) -> Reply {
    let at = x.workspace(ws, Right::Read)?;
    let (record, usage) = (x.record(at), x.workspaces[at].usage);
    let mut stat = Stat::new(EntryKind::Workspace, ws);
    stat.bytes = usage.bytes;
    stat.entries = usage.collections;
    stat.ctime_ns = record.ctime_ns;
    stat.mtime_ns = record.mtime_ns;
    stat.revision = record.revision;
    stat.mode = record.mode;
    stat.links = 1;
    stat.uid = record.owner;
    stat.gid = record.gid;
    stat.quota_bytes = record.quota_bytes;
    stat.quota_collections = record.quota_collections;
    stat.expires_ns = record.expires_ns;
    Ok(CatalogReply::Stat(Box::new(stat)))
}
