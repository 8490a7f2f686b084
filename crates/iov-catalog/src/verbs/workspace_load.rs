//! WorkspaceLoad: opens a workspace.

use iov_types::{
    Result, Right, Uuid, Which,
    catalog::{CatalogReply, OpenedWorkspace},
};

use super::Reply;
use crate::exec::Exec;

pub(crate) fn load(x: &mut Exec<'_>, which: &Which) -> Reply {
    let ws = x.find_workspace(which)?;
    opened(x, ws)
}

/// A workspace as a handle needs it.
pub(crate) fn opened(x: &mut Exec<'_>, ws: Uuid) -> Reply {
    Ok(CatalogReply::Workspace(Box::new(handle(x, ws)?)))
}

fn handle(x: &mut Exec<'_>, ws: Uuid) -> Result<OpenedWorkspace> {
    let at = x.workspace(ws, Right::Read)?;
    let record = x.record(at);
    Ok(OpenedWorkspace {
        uuid: ws,
        name: record.name.clone(),
        controls: record.controls.clone(),
        layout: record.layout.clone(),
        writable: x.has_right(at, Right::Write) && !x.is_expired(at),
        indexes: record.indexes.clone(),
    })
}
