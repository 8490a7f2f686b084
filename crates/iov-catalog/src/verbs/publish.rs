//! Publish: brings the record up to what a commit or persist has made visible (C7).

use iov_types::{Clause, EntryKind, Error, Right, State, Uuid, catalog::CatalogReply};

use super::{
    Reply, close,
    seal::{need_collection, not_for_groups},
};
use crate::exec::Exec;

pub(crate) fn publish(x: &mut Exec<'_>, ws: Uuid, uuid: Uuid) -> Reply {
    let at = x.workspace(ws, Right::Write)?;
    need_collection(uuid)?;
    let mut record = x.usable_record(at, uuid)?;
    if record.kind == EntryKind::Group {
        return Err(not_for_groups("published"));
    }
    x.may_change(ws, uuid, &record.names)?;
    if record.state == State::Sealed {
        return Err(Error::immutable(
            "the collection is sealed: what was written before is in it, nothing more can be",
        )
        .with_clause(Clause::M2));
    }
    close::publish_record(x, at, uuid, &mut record)?;
    Ok(CatalogReply::Done)
}
