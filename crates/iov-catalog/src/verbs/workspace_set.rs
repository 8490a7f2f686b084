//! WorkspaceSet: what is given replaces what was, the rest stays; metadata are added (O1).

use iov_store::KeyRange;
use iov_types::{Result, Right, Uuid, WorkspaceAttr};

use super::{Reply, workspace_create::check, workspace_create::check_layout, workspace_load};
use crate::{
    exec::Exec,
    index, keys,
    record::{Facts, pairs_of},
};

/// Records read at a time while an index is made.
const PAGE: usize = 1024;

pub(crate) fn set(x: &mut Exec<'_>, ws: Uuid, attr: WorkspaceAttr) -> Reply {
    let at = x.workspace(ws, Right::Admin)?;
    x.may_change(ws, ws, &[])?;
    let before = x.record(at).clone();
    let mut record = (*before).clone();
    let asked_indexes = attr.asked_indexes();
    check_layout(x, attr.layout.as_ref())?;
    record.controls = attr.controls.unwrap_or(record.controls);
    record.layout = attr.layout.or(record.layout);
    record.metadata.merge(&attr.metadata);
    record.owner = attr.owner.unwrap_or(record.owner);
    record.access = attr.access.unwrap_or(record.access);
    record.quota_bytes = attr.quota_bytes.unwrap_or(record.quota_bytes);
    record.quota_collections = attr.quota_collections.unwrap_or(record.quota_collections);
    record.expires_ns = attr.expires_ns.unwrap_or(record.expires_ns);
    record.indexes = asked_indexes.unwrap_or(record.indexes);
    check(x, &record)?;
    record.revision += 1;
    record.mtime_ns = x.now_ns;
    if record.indexes != before.indexes {
        rebuild(x, ws, &before.indexes, &record.indexes)?;
    }
    x.resolved = None;
    x.set_workspace(ws, Some(record));
    workspace_load::opened(x, ws)
}

/// Brings the index entries of all records to a new declaration, in the transaction that declares it (O5).
fn rebuild(x: &mut Exec<'_>, ws: Uuid, old: &[String], new: &[String]) -> Result<()> {
    let gone: Vec<String> = old.iter().filter(|key| !new.contains(key)).cloned().collect();
    let added: Vec<String> = new.iter().filter(|key| !old.contains(key)).cloned().collect();
    for key in &gone {
        clear(x, &KeyRange::prefix(&index::prefix(ws, key)))?;
    }
    if added.is_empty() {
        return Ok(());
    }
    let range = KeyRange::prefix(&keys::records(ws));
    let mut after: Option<Vec<u8>> = None;
    loop {
        let page = x.scan(&range, after.as_deref(), PAGE)?;
        let Some((last, _)) = page.last() else { return Ok(()) };
        after = Some(last.to_vec());
        for (key, record) in page {
            if Facts::parse(&record.value)?.deleted {
                continue;
            }
            let uuid = keys::uuid_at(&key, 17)?;
            for entry in index::keys(ws, &added, uuid, &pairs_of(&record.value)?) {
                x.put(entry, Default::default());
            }
        }
    }
}

fn clear(x: &mut Exec<'_>, range: &KeyRange) -> Result<()> {
    let mut after: Option<Vec<u8>> = None;
    loop {
        let page = x.scan(range, after.as_deref(), PAGE)?;
        let Some((last, _)) = page.last() else { return Ok(()) };
        after = Some(last.to_vec());
        for (key, _) in page {
            x.delete(key.to_vec());
        }
    }
}
