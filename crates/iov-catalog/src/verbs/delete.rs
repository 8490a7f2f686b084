//! Delete: a name, or by UUID all names; with the last one the collection or empty group (O10).

use iov_types::{Clause, EntryKind, Error, Name, Result, Right, Uuid, Which, catalog::CatalogReply};

use super::Reply;
use crate::{
    exec::{Exec, records::missing},
    record::Record,
};

pub(crate) fn delete(x: &mut Exec<'_>, ws: Uuid, parent: Uuid, which: &Which) -> Reply {
    let at = x.workspace(ws, Right::Write)?;
    let (uuid, only) = match which {
        Which::Uuid(uuid) if uuid.is_nil() => {
            return Err(Error::invalid("the root goes with its workspace: delete that"));
        }
        Which::Uuid(uuid) => (*uuid, None),
        Which::Name(name) => {
            x.parent(ws, parent)?;
            let found = x.find_name(ws, parent, name)?;
            let (uuid, _) = found.ok_or_else(|| missing(format_args!("{name:?} here")).with_clause(Clause::O3))?;
            (uuid, Some((parent, name)))
        }
    };
    let record = x.usable_record(at, uuid)?;
    if record.deleted {
        return Err(missing(uuid).with_clause(Clause::O10));
    }
    check_removal(x, ws, uuid, &record, only)?;
    x.unname(at, uuid, record, only)?;
    Ok(CatalogReply::Done)
}

/// Fails where a name may not be taken from a record: it is held, or a group that is not empty would go with it.
pub(crate) fn check_removal(
    x: &mut Exec<'_>,
    ws: Uuid,
    uuid: Uuid,
    record: &Record,
    only: Option<(Uuid, &Name)>,
) -> Result<()> {
    x.may_change(ws, uuid, &record.names)?;
    let goes = only.is_none() || record.names.len() <= 1;
    if goes && record.kind == EntryKind::Group && !x.is_empty_group(ws, uuid)? {
        return Err(Error::not_empty("the group still has members: delete or move them first").with_clause(Clause::O3));
    }
    Ok(())
}
