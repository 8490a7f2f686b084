//! Stat: the facts (C1: never older than a completed write).

use iov_types::{EntryKind, Right, Stat, Uuid, catalog::CatalogReply};

use super::Reply;
use crate::exec::Exec;

pub(crate) fn stat(x: &mut Exec<'_>, ws: Uuid, uuid: Uuid) -> Reply {
    let at = x.workspace(ws, Right::Read)?;
    if uuid.is_nil() {
        return stat_root(x, at);
    }
    if let Some(hot) = x.hot() {
        let mut stat = hot.stat();
        if stat.kind == EntryKind::Group {
            stat.entries = x.members(ws, uuid)?;
        }
        return Ok(CatalogReply::Stat(Box::new(stat)));
    }
    let facts = x.usable_facts(at, uuid)?;
    x.learn(ws, uuid, &facts);
    let mut stat = Stat::new(facts.kind, uuid);
    stat.ctime_ns = facts.ctime_ns;
    stat.revision = facts.layout.revision;
    stat.mode = facts.mode;
    stat.links = facts.links;
    stat.uid = facts.uid;
    stat.gid = facts.gid;
    stat.lifetime = facts.lifetime;
    if facts.kind == EntryKind::Group {
        stat.mtime_ns = facts.mtime_ns;
        stat.entries = x.members(ws, uuid)?;
    } else {
        let live = x.live(ws, uuid, &facts)?;
        stat.state = Some(facts.state);
        stat.bytes = live.size;
        stat.allocated = live.allocated;
        stat.mtime_ns = live.mtime_ns;
        stat.version = live.version;
    }
    Ok(CatalogReply::Stat(Box::new(stat)))
}

fn stat_root(x: &mut Exec<'_>, at: usize) -> Reply {
    let ws = x.workspaces[at].uuid;
    let record = x.record(at).clone();
    let mut stat = Stat::new(EntryKind::Group, Uuid::NIL);
    stat.entries = x.members(ws, Uuid::NIL)?;
    stat.ctime_ns = record.ctime_ns;
    stat.mtime_ns = record.mtime_ns;
    stat.mode = record.mode;
    stat.links = 1;
    stat.uid = record.owner;
    stat.gid = record.gid;
    Ok(CatalogReply::Stat(Box::new(stat)))
}
