//! Delete: a name, or by UUID all names; with the last one the collection or empty group (O10). Unlink: the name of one of the two. Discard: what has no name.

use iov_types::{
    Clause, EntryKind, Error, Name, Result, Right, Uuid, Which,
    catalog::{CatalogReply, Removed},
};

use super::{Reply, stat};
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
        Which::Name(name) => (named(x, ws, parent, name)?.0, Some((parent, name))),
    };
    let record = there(x, at, uuid)?;
    check_removal(x, ws, uuid, &record, only)?;
    x.unname(at, uuid, record, only)?;
    Ok(CatalogReply::Done)
}

pub(crate) fn unlink(x: &mut Exec<'_>, ws: Uuid, parent: Uuid, (name, group): (&Name, bool)) -> Reply {
    let at = x.workspace(ws, Right::Write)?;
    let (uuid, kind) = named(x, ws, parent, name)?;
    if (kind == EntryKind::Group) != group {
        let is = if group { "no group: remove it as a collection" } else { "a group: remove it as one" };
        return Err(Error::invalid(format!("{name:?} is {is}")).with_clause(Clause::O10));
    }
    let record = there(x, at, uuid)?;
    let only = Some((parent, name));
    check_removal(x, ws, uuid, &record, only)?;
    let (mode, links) = (record.mode, record.names.len().saturating_sub(1) as u32);
    x.unname(at, uuid, record, only)?;
    // It has gone, whatever is wrong with that.
    let group = stat::of_group(x, at, parent).ok().flatten();
    Ok(CatalogReply::Removed(Box::new(Removed { uuid, mode, links, group })))
}

pub(crate) fn discard(x: &mut Exec<'_>, ws: Uuid, uuid: Uuid) -> Reply {
    let at = x.workspace(ws, Right::Write)?;
    if uuid.is_nil() {
        return Err(Error::invalid("the root goes with its workspace: delete that"));
    }
    let record = there(x, at, uuid)?;
    if !record.names.is_empty() {
        return Err(Error::invalid(format!("{uuid} has a name: remove that")).with_clause(Clause::O10));
    }
    check_removal(x, ws, uuid, &record, None)?;
    x.unname(at, uuid, record, None)?;
    Ok(CatalogReply::Done)
}

/// What has a name.
fn named(x: &mut Exec<'_>, ws: Uuid, parent: Uuid, name: &Name) -> Result<(Uuid, EntryKind)> {
    x.parent(ws, parent)?;
    let found = x.find_name(ws, parent, name)?;
    found.ok_or_else(|| missing(format_args!("{name:?} here")).with_clause(Clause::O3))
}

/// The record of something that has not been deleted.
fn there(x: &mut Exec<'_>, at: usize, uuid: Uuid) -> Result<Record> {
    let record = x.usable_record(at, uuid)?;
    if record.deleted {
        return Err(missing(uuid).with_clause(Clause::O10));
    }
    Ok(record)
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
