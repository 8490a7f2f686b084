//! WorkspacePersist: makes the records survive what the level says (P5, P7). A commit survives the process by itself;
//! power loss needs the log on the medium, which is one sync for everything before it.

use iov_types::{Right, Uuid, catalog::CatalogReply};

use super::Reply;
use crate::exec::Exec;

pub(crate) fn persist(x: &mut Exec<'_>, ws: Uuid, durable: bool) -> Reply {
    x.workspace(ws, Right::Read)?;
    if durable {
        let op = x.index();
        x.after.persist.push(op);
    }
    Ok(CatalogReply::Done)
}
