//! Set: controls or layout of a collection or group, by its exclusive holder; a new layout revision (section 2).

use iov_types::{Clause, Controls, EntryKind, Error, Layout, Mutability, Result, State, Uuid, catalog::CatalogReply};

use super::Reply;
use crate::{exec::Exec, keys, map::Wish, promise, record::Record};

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
    let before = record.layout.clone();
    let asked = layout.is_some();
    record.layout = Layout { revision, place: before.place, ..layout.unwrap_or_else(|| before.clone()) };
    // As long as no target has anything of it.
    let may_move = record.inline || record.kind == EntryKind::Group;
    let mut defaults = x.record(at).controls.clone();
    if record.kind == EntryKind::Group {
        defaults.concurrency = None;
    }
    let capability = if may_move { x.core.capability().targets.clone() } else { x.core.capability_at(before.place) };
    let as_asked = if asked { record.layout.clone() } else { Layout::default() };
    record.effective = promise::at_create(&defaults, &record.asked, &as_asked, &capability)?;
    if record.kind == EntryKind::Collection && !x.core.map().is_one() {
        record.layout = place(x, &record, &before, asked, may_move)?;
    }
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

/// Where it lies from now on: bytes that are at targets stay there.
fn place(x: &mut Exec<'_>, record: &Record, before: &Layout, asked: bool, may_move: bool) -> Result<Layout> {
    let layout = &record.layout;
    if may_move {
        let core = x.core;
        let chosen = core.map().choose(core.store(), &Wish { layout, effective: &record.effective, asked })?;
        return Ok(Layout { revision: layout.revision, ..chosen });
    }
    let other = |new: u64, old: u64| new != 0 && new != old;
    let moves = other(u64::from(layout.targets), u64::from(before.targets.max(1)))
        || (!before.place.is_first() && other(layout.chunk_size, before.chunk_size))
        || (layout.backend.is_some() && layout.backend != before.backend)
        || (layout.policy.is_some() && layout.policy != before.policy);
    if asked && moves {
        return Err(Error::unsupported(
            "layout: the collection has bytes at its targets, where they stay: make a new one with that layout, and copy \
             them (iov cp)",
        ));
    }
    Ok(Layout { revision: layout.revision, ..before.clone() })
}
