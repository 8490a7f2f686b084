//! Set: controls or layout of a collection or group, by its exclusive holder; a new layout revision (section 2).

use iov_types::{Clause, Controls, EntryKind, Error, Layout, Mutability, Result, State, Uuid, catalog::CatalogReply};

use super::{Reply, workspace_create::check_layout};
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
    if record.kind == EntryKind::Group {
        check_layout(x, layout.as_ref())?;
    }
    let revision = record.layout.revision + 1;
    let before = record.layout.clone();
    let asked = layout.is_some();
    record.layout = Layout { revision, place: before.place, ..layout.unwrap_or_else(|| before.clone()) };
    let mut defaults = x.record(at).controls.clone();
    if record.kind == EntryKind::Group {
        defaults.concurrency = None;
    }
    // A collection stays where it is, also while no target has anything of it: handles know where that is.
    if record.kind == EntryKind::Collection && !x.core.map().is_one() {
        record.layout = stay(&record.layout, &before, asked)?;
    }
    let is_group = record.kind == EntryKind::Group;
    let capability = if is_group { x.core.capability_anywhere() } else { x.core.capability_at(before.place) };
    let as_asked = if asked { record.layout.clone() } else { Layout::default() };
    record.effective = promise::at_create(&defaults, &record.asked, &as_asked, &capability)?;
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
    x.change_record(ws, uuid, &mut record);
    Ok(CatalogReply::Done)
}

/// The layout that it has from now on, without another place.
fn stay(layout: &Layout, before: &Layout, asked: bool) -> Result<Layout> {
    let other = |new: u64, old: u64| new != 0 && new != old;
    let moves = other(u64::from(layout.targets), u64::from(before.targets.max(1)))
        || (!before.place.is_first() && other(layout.chunk_size, before.chunk_size))
        || (layout.backend.is_some() && layout.backend != before.backend)
        || (layout.policy.is_some() && layout.policy != before.policy);
    if asked && moves {
        return Err(Error::unsupported(
            "layout: a collection stays where it was made: ask for the layout in the batch that creates it, or make a new one \
             with that layout, and copy its bytes (iov cp)",
        ));
    }
    Ok(Layout { revision: layout.revision, ..before.clone() })
}
