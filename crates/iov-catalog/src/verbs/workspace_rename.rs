//! WorkspaceRename (O1).

use bytes::Bytes;
use iov_types::{Name, Right, Uuid, catalog::CatalogReply};

use super::{Reply, workspace_create::check_name};
use crate::{exec::Exec, keys};

pub(crate) fn rename(x: &mut Exec<'_>, ws: Uuid, name: Name) -> Reply {
    let at = x.workspace(ws, Right::Admin)?;
    x.may_change(ws, ws, &[])?;
    let mut record = (**x.record(at)).clone();
    if record.name == name {
        return Ok(CatalogReply::Done);
    }
    check_name(x, &name)?;
    x.delete(keys::workspace_name(&record.name));
    x.put(keys::workspace_name(&name), Bytes::copy_from_slice(&ws.0));
    record.name = name;
    record.revision += 1;
    record.mtime_ns = x.now_ns;
    x.set_workspace(ws, Some(record));
    Ok(CatalogReply::Done)
}
