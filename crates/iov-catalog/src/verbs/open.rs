//! Open: a handle on a collection, group or root, and the exclusive hold that may go with it (X1, X2).

use iov_types::{
    Atomicity, Clause, Concurrency, Controls, Effective, EntryKind, Error, Kind, Layout, ObjectVerb, Persistence,
    Result, Right, State, Temporality, Uuid, Which,
    catalog::{CatalogReply, Opened, Told},
};

use super::{Reply, bytes::stored, stat};
use crate::{
    exec::{
        Exec, Mode,
        holds::busy,
        records::{FIRST_EPOCH, missing},
    },
    promise,
    record::Facts,
    state::{Entry, Hold},
    targets::op,
};

pub(crate) fn open(
    x: &mut Exec<'_>,
    ws: Uuid,
    parent: Uuid,
    which: &Which,
    kind: EntryKind,
    (asked, tell): (&Controls, Option<u64>),
) -> Reply {
    let at = x.workspace(ws, Right::Read)?;
    let uuid = match which {
        Which::Uuid(uuid) if uuid.is_nil() => return open_root(x, at, kind, asked),
        Which::Uuid(uuid) => *uuid,
        Which::Name(name) => {
            x.parent(ws, parent)?;
            let found = x.find_name(ws, parent, name)?;
            found.ok_or_else(|| missing(format_args!("{name:?} here")).with_clause(Clause::O3))?.0
        }
    };
    let mut record = x.usable_record(at, uuid)?;
    if record.kind != kind {
        let (is, call) = match record.kind {
            EntryKind::Group => ("group", "a group lookup"),
            _ => ("collection", "a collection lookup"),
        };
        return Err(Error::invalid(format!("{which} is a {is}: open it with {call}")));
    }
    let (effective, level_writes) =
        promise::at_open(&record.effective, asked, &x.core.capability_at(record.layout.place))?;
    let may_write = may_write(x, at, record.state);
    let writable = may_write && level_writes;
    let writer = writable && kind == EntryKind::Collection;

    // Sealed bytes cannot change: their control no longer keeps readers apart, only who asks for it is alone.
    let wants_hold = match record.state {
        State::Sealed => asked.concurrency == Some(Concurrency::Exclusive),
        _ => effective.concurrency == Concurrency::Exclusive,
    };
    if x.core.in_grace() {
        // Who held a group above it, or it, may still come back.
        let mut groups = x.above(ws, &record.names)?;
        groups.extend((kind == EntryKind::Group).then_some(uuid));
        x.may_return(ws, &groups)?;
    }
    let groups_are_held = x.shared().opens.may_cover();
    let covered = x.cover_of(ws, &record.names, true)?;
    if groups_are_held {
        // Taking over a group may have raised this record's epoch.
        record = x.usable_record(at, uuid)?;
    }
    let crashed = record.state != State::Sealed && x.core.has_crashed(record.opened_in);
    // Who loses it now may have written more than the record says.
    let ahead = x.entry(uuid).is_some_and(|entry| entry.may_be_ahead());
    let exclusive = wants_hold || (covered && record.state != State::Sealed);
    // Who knows something below it, and could open that without asking, has to ask from now on (X2).
    x.after.all_changes |= kind == EntryKind::Group && wants_hold;
    let lost = x.is_lost(&record);
    if lost && x.core.in_grace() && x.hold_on(uuid).is_none() {
        return Err(busy("it").context("its holder may still come back, as the server has just started anew"));
    }
    let grant = x.hold(ws, uuid, kind, record.epoch, exclusive, lost)?;

    if crashed && record.inline && record.epoch <= FIRST_EPOCH && grant.raised.is_none() {
        // A move that the crash cut off may have left an object, which nobody needs; if it stays, it takes space.
        x.core.targets().run(x.cx, vec![op(record.whole(uuid), ObjectVerb::Remove, 0)]);
    }

    // A promise that the collection does not give keeps at its target: whoever moves the bytes later would not know of it.
    let beyond = effective.persistence >= Persistence::Durable && record.effective.persistence < Persistence::Durable;
    let mut changed = false;
    if let Some(epoch) = grant.raised {
        record.epoch = epoch;
        changed = true;
    }
    // Nothing of it is recorded then: what was behind its target stays so.
    let unmarked = record.opened_in != x.core.incarnation_to_record() && x.mode != Mode::Dry && x.core.opens_unmarked();
    let passed_on = ahead && grant.raised.is_some();
    if passed_on && !crashed && x.mode != Mode::Dry {
        // Behind the fence: it writes no more.
        let found = x.stat_bytes(uuid, &record)?;
        // The quota has its say at a publish.
        let _ = x.record_bytes_of(at, &mut record, &found);
        changed = true;
    }
    if writer || (crashed && grant.raised.is_some()) {
        let mut lost = false;
        if crashed && !unmarked {
            // What was written when the catalog crashed is not in the record yet. The quota has its say at a publish.
            let found = x.stat_bytes(uuid, &record)?;
            let recorded = x.record_bytes_of(at, &mut record, &found);
            lost = recorded.is_err_and(|e| e.kind() == Kind::Lost);
        }
        let incarnation = x.core.incarnation_to_record();
        // That its bytes are lost is known by nothing else, where nobody knew how many there were.
        if record.opened_in != incarnation && !lost && !unmarked {
            record.opened_in = incarnation;
            changed = true;
        }
        if writer && record.abandoned_ns != 0 {
            x.not_abandoned(uuid, &mut record);
            changed = true;
        }
    }
    if changed {
        x.put_record(ws, uuid, &mut record);
    }
    // Before it is this session that may be ahead of the record.
    let told = match tell {
        Some(most) if kind == EntryKind::Collection => told(x, at, uuid, (&effective, beyond), most)?,
        _ => None,
    };
    let mut entry = x.entry(uuid).unwrap_or_else(|| Entry::new(ws, kind == EntryKind::Group));
    entry.add(x.cx.caller.session, x.holder, writer, grant.epoch);
    entry.inline = x.is_inline(uuid, &record);
    entry.place = record.layout.place;
    x.go_on(uuid, &mut entry);
    if writer {
        x.note_writer(ws, uuid, record.state, &mut entry);
    }
    if exclusive {
        entry.hold = Some(Hold::opened(entry.hold, x.holder, grant.epoch));
    }
    x.set_entry(uuid, entry);
    Ok(CatalogReply::Opened(Box::new(Opened {
        ws,
        uuid,
        kind,
        state: record.state,
        effective,
        layout: record.layout,
        epoch: grant.epoch,
        writable,
        inline: record.inline && !beyond,
        // Who knows it opens a sealed one without asking, which what goes by itself must hear of.
        size: (record.state == State::Sealed && record.lifetime.is_none()).then_some(record.size),
        told,
    })))
}

/// The facts of a collection that is being opened, and its bytes if they are here and no more than `most`; none: its target would have to be
/// asked.
fn told(
    x: &mut Exec<'_>,
    at: usize,
    uuid: Uuid,
    (effective, beyond): (&Effective, bool),
    most: u64,
) -> Result<Option<Box<Told>>> {
    let Some((facts, stat)) = stat::at_hand(x, at, uuid)? else { return Ok(None) };
    let bytes = if beyond { None } else { bytes_along(x, at, (uuid, &facts), effective, most) };
    let may_keep = may_keep(x, (uuid, &facts), effective);
    Ok(Some(Box::new(Told { stat, bytes, group: None, may_keep })))
}

/// The bytes of a collection, where they are here, and reading some leaves no trace and is done at no target.
fn bytes_along(
    x: &mut Exec<'_>,
    at: usize,
    (uuid, facts): (Uuid, &Facts),
    effective: &Effective,
    most: u64,
) -> Option<Vec<u8>> {
    let reads = facts.inline
        && facts.size <= most
        && effective.temporality != Temporality::Once
        && effective.atomicity != Atomicity::Publication
        && facts.size <= x.room_along(usize::MAX) as u64;
    let ws = x.workspaces[at].uuid;
    // What is wrong with them is for who reads them.
    let bytes = if reads { stored(x, ws, uuid, facts.size).ok() } else { None }?;
    x.goes_along(bytes.len());
    Some(bytes.to_vec())
}

/// Whether nobody has to hear of it when it is opened once more: nobody keeps others away (X1, X2), nor does it go a time after it was last open.
fn may_keep(x: &Exec<'_>, (uuid, facts): (Uuid, &Facts), effective: &Effective) -> bool {
    facts.lifetime.is_none_or(|lifetime| !lifetime.is_temporary())
        && effective.concurrency == Concurrency::Shared
        && x.shared().opens.get(uuid).is_none_or(|entry| entry.hold.is_none())
        && !x.shared().opens.may_cover()
        && !x.core.in_grace()
}

/// As for who opens it, the bytes of what is only looked at, if they may be kept, and whether they could be written.
pub(super) fn kept(x: &mut Exec<'_>, at: usize, uuid: Uuid, facts: &Facts, most: u64) -> Option<(Vec<u8>, bool)> {
    if !facts.inline || facts.size > most {
        return None;
    }
    let record = x.usable_record(at, uuid).ok()?;
    let effective = record.effective;
    if !may_keep(x, (uuid, facts), &effective) {
        return None;
    }
    let bytes = bytes_along(x, at, (uuid, facts), &effective, most)?;
    let capability = x.core.capability_at(record.layout.place);
    let (_, level_writes) = promise::at_open(&effective, &Controls::default(), &capability).ok()?;
    Some((bytes, level_writes && may_write(x, at, record.state)))
}

/// Whether the caller may write what is in this state.
fn may_write(x: &Exec<'_>, at: usize, state: State) -> bool {
    x.has_right(at, Right::Write) && !x.is_expired(at) && state != State::Sealed
}

/// The root has the workspace's record, and its controls.
fn open_root(x: &mut Exec<'_>, at: usize, kind: EntryKind, asked: &Controls) -> Reply {
    if kind != EntryKind::Group {
        return Err(Error::invalid("the nil UUID is the root of the workspace, which is a group: open it as one"));
    }
    let ws = x.workspaces[at].uuid;
    let record = x.record(at).clone();
    let defaults = Controls { concurrency: None, ..record.controls.clone() };
    let none = Layout::default();
    let effective = promise::at_create(&defaults, asked, &none, &x.core.capability_anywhere())?;
    let exclusive = effective.concurrency == Concurrency::Exclusive;
    // Also for who shares it: beside that one its holder could not come back.
    x.may_return(ws, &[ws])?;
    let grant = x.hold(ws, ws, EntryKind::Group, record.epoch, exclusive, false)?;
    x.after.all_changes |= exclusive;
    if let Some(epoch) = grant.raised {
        x.raise_root(ws, epoch)?;
    }
    let mut entry = x.entry(ws).unwrap_or_else(|| Entry::new(ws, true));
    entry.add(x.cx.caller.session, x.holder, false, grant.epoch);
    x.go_on(ws, &mut entry);
    if exclusive {
        entry.hold = Some(Hold::opened(entry.hold, x.holder, grant.epoch));
    }
    x.set_entry(ws, entry);
    Ok(CatalogReply::Opened(Box::new(Opened {
        ws,
        uuid: Uuid::NIL,
        kind: EntryKind::Group,
        state: State::Open,
        effective,
        layout: record.layout.clone().unwrap_or_default(),
        epoch: grant.epoch,
        writable: x.has_right(at, Right::Write) && !x.is_expired(at),
        inline: false,
        size: None,
        told: None,
    })))
}
