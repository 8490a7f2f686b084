//! Link: gives a collection one more name, or its first (O3).

use iov_types::{Clause, EntryKind, Error, Name, Uuid, catalog::CatalogReply};

use super::{Reply, seal::need_collection};
use crate::{exec::Exec, exec::records::missing, keys, record::NameIn};

/// Most names of one collection: they lie in its record.
const MAX_NAMES: usize = 4096;

pub(crate) fn link(x: &mut Exec<'_>, ws: Uuid, uuid: Uuid, parent: Uuid, name: Name) -> Reply {
    let at = x.writable(ws)?;
    need_collection(uuid)?;
    let mut record = x.usable_record(at, uuid)?;
    if record.deleted {
        return Err(missing(uuid).with_clause(Clause::O10));
    }
    if record.kind == EntryKind::Group {
        return Err(Error::invalid("a group has one name: two would make it a member of itself, or of two parents")
            .with_clause(Clause::O3));
    }
    if record.names.len() >= MAX_NAMES {
        return Err(Error::too_big(format!("a collection has at most {MAX_NAMES} names")).with_clause(Clause::O3));
    }
    x.parent(ws, parent)?;
    x.may_change(ws, uuid, &record.names)?;
    x.cover_in(ws, parent, true)?;
    if x.get(&keys::name(ws, parent, &name))?.is_some() {
        return Err(
            Error::exists(format!("{name:?} is taken: look it up, or choose another name")).with_clause(Clause::O3)
        );
    }
    x.set_name(ws, parent, &name, Some((uuid, record.kind)));
    record.names.push(NameIn { parent, name });
    x.change_record(ws, uuid, &mut record);
    Ok(CatalogReply::Done)
}
