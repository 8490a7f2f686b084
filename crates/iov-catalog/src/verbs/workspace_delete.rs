//! WorkspaceDelete: only an empty workspace that nobody holds (O11).

use iov_types::{Clause, Error, Right, Which, catalog::CatalogReply};

use super::Reply;
use crate::{exec::Exec, keys};

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
    if x.shared().opens.iter().any(|(uuid, e)| e.ws == ws && uuid != ws && !e.is_unused()) {
        return Err(Error::busy("deleted collections of the workspace are still open: wait until they are closed")
            .with_clause(Clause::O10));
    }
    let name = x.record(at).name.clone();
    x.delete(keys::workspace_name(&name));
    x.delete(keys::usage(ws));
    x.set_workspace(ws, None);
    Ok(CatalogReply::Done)
}
