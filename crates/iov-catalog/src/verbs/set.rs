//! Set: controls or layout of a collection or group, by its exclusive holder; a new layout revision (section 2).

use iov_types::{Clause, Controls, EntryKind, Error, Layout, Mutability, State, Uuid, catalog::CatalogReply};

use super::Reply;
use crate::{exec::Exec, keys, promise};

pub(crate) fn set(
    x: &mut Exec<'_>,
    ws: Uuid,
    uuid: Uuid,
    controls: Option<&Controls>,
    layout: Option<Layout>,
) -> Reply {
    let at = x.writable(ws)?;
    if uuid.is_nil() {
        return Err(Error::invalid("the root has the workspace's controls and layout: set those"));
    }
    let mut record = x.usable_record(at, uuid)?;
    x.need_hold(uuid)?;
    x.may_change(ws, uuid, &record.names)?;
    if record.state == State::Sealed {
        return Err(
            Error::immutable("the collection is sealed: its controls and layout are fixed").with_clause(Clause::M2)
        );
    }
    if let Some(more) = controls {
        promise::overlay(&mut record.asked, more);
    }
    let revision = record.layout.revision + 1;
    record.layout = Layout { revision, ..layout.unwrap_or_else(|| record.layout.clone()) };
    let mut defaults = x.record(at).controls.clone();
    if record.kind == EntryKind::Group {
        defaults.concurrency = None;
    }
    let capability = &x.core.capability().targets;
    record.effective = promise::at_create(&defaults, &record.asked, &record.layout, capability)?;
    if record.kind == EntryKind::Collection {
        let immutable = record.effective.mutability == Mutability::Immutable;
        record.state = if immutable { State::Staging } else { State::Open };
        if let Some(mut entry) = x.entry(uuid) {
            if immutable && entry.has_writers() {
                x.note_writer(ws, uuid, record.state, &mut entry);
            } else if entry.staging {
                entry.staging = false;
                x.delete(keys::in_staging(uuid));
            }
            x.set_entry(uuid, entry);
        }
    }
    x.put_record(ws, uuid, &mut record);
    Ok(CatalogReply::Done)
}
