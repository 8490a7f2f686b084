//! WorkspaceDelete: only an empty workspace that nobody holds (O11).

use iov_store::KeyRange;
use iov_types::{Clause, Error, Result, Right, Uuid, Which, catalog::CatalogReply};
use iov_wire::Wire;

use super::{Reply, close::forget_if_unused};
use crate::{exec::Exec, keys, record::RemovedRecord};

/// Keys read at a time.
const PAGE: usize = 1024;

pub(crate) fn delete(x: &mut Exec<'_>, which: &Which) -> Reply {
    let ws = x.find_workspace(which)?;
    let at = x.workspace(ws, Right::Admin)?;
    x.may_change(ws, ws, &[])?;
    let left = x.workspaces[at].usage.collections;
    if left > 0 {
        return Err(Error::not_empty(format!(
            "the workspace {:?} still holds {left} collections and groups: delete them first",
            x.record(at).name
        ))
        .with_clause(Clause::O11));
    }
    if x.shared().opens.iter().any(|(uuid, e)| e.ws == ws && uuid != ws && e.is_in_use()) {
        return Err(Error::busy("deleted collections of the workspace are still open: wait until they are closed")
            .with_clause(Clause::O10));
    }
    if x.core.in_grace() && anything_removed(x, ws)? {
        return Err(Error::busy("deleted collections of the workspace may still be open, as the server has just started anew: wait until those who had them could come back")
            .with_clause(Clause::O10));
    }
    end_heirs(x, ws)?;
    let name = x.record(at).name.clone();
    x.delete(keys::workspace_name(&name));
    x.delete(keys::usage(ws));
    x.set_workspace(ws, None);
    Ok(CatalogReply::Done)
}

/// Removes what was deleted, and is kept only for what stands for those who closed it while its target was away: nobody asks how
/// long it is any more.
fn end_heirs(x: &mut Exec<'_>, ws: Uuid) -> Result<()> {
    let kept: Vec<Uuid> = x
        .shared()
        .opens
        .iter()
        .filter(|(uuid, e)| e.ws == ws && *uuid != ws && e.deleted)
        .map(|(uuid, _)| uuid)
        .collect();
    for uuid in kept {
        let Some(mut entry) = x.entry(uuid) else { continue };
        let heirs: Vec<Uuid> = entry.slots().filter(|s| s.is_heirs()).map(|s| s.session).collect();
        heirs.into_iter().for_each(|heir| entry.remove(heir));
        forget_if_unused(x, ws, uuid, uuid, entry)?;
    }
    Ok(())
}

/// Whether something of a workspace was deleted and is kept for those who may have it open.
fn anything_removed(x: &mut Exec<'_>, ws: Uuid) -> Result<bool> {
    let mut after: Option<Vec<u8>> = None;
    loop {
        let page = x.scan(&KeyRange::prefix(keys::REMOVED), after.as_deref(), PAGE)?;
        let Some((last, _)) = page.last() else { return Ok(false) };
        after = Some(last.to_vec());
        for (_, value) in &page {
            if RemovedRecord::decode(&value.value)?.ws == ws {
                return Ok(true);
            }
        }
    }
}
