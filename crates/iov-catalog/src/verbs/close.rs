//! Close: ends a handle (C3, M2, O10). It always ends, whatever the error says (rule 5 of the header).

use std::collections::HashSet;

use iov_store::seam;
use iov_types::{Clause, EntryKind, Error, Outcome, Place, Result, State, Uuid, catalog::CatalogReply};

use super::{Reply, seal};
use crate::{
    batch::is_away,
    exec::{Exec, groups::group_key, holds::fenced, parted::seals_at_close},
    record::Record,
    state::{Entry, Slot},
};

/// `written`: bytes were changed through the handle. What search is to see of them is asked from the target, which knows
/// better than the client.
pub(crate) fn close(x: &mut Exec<'_>, ws: Uuid, uuid: Uuid, written: bool) -> Reply {
    if x.sent_on.contains(&uuid) {
        return Err(Error::busy(
            "what came before it in this submission was not written, but is to be written at the target",
        )
        .with_clause(Clause::C3));
    }
    let key = group_key(ws, uuid);
    let session = x.cx.caller.session;
    let stale = || {
        Error::stale(format!("{uuid} is not open in this session: its lease has ended, or the server started anew"))
            .with_clause(Clause::O10)
    };
    let mut entry = x.entry(key).filter(|e| e.ws == ws).ok_or_else(stale)?;
    let slot = entry.slot(session).cloned().ok_or_else(stale)?;
    let mut failed = if slot.fenced {
        Err(fenced())
    } else if written && slot.writers > 0 && !entry.deleted {
        publish_at_close(x, ws, uuid)
    } else {
        Ok(())
    };
    let last = entry.close_one(session);
    if failed.as_ref().is_err_and(is_away) && x.core.map().is_elsewhere(entry.place) {
        // What was written is there and acknowledged; how long it is becomes known when its target is back. Until then it is as if
        // a session had it that is to be ended, so that whoever asks is told by the target.
        if !entry.slots().any(Slot::is_heirs) {
            entry.add_heir(new_heir(x), false);
        }
        failed = Ok(());
    }
    if last {
        x.after.closed.push(key);
    }
    x.forget_writer(uuid, &mut entry);
    let sealed = if last && !slot.fenced { release(x, ws, uuid, &mut entry, &slot.holder) } else { Ok(()) };
    let forgotten = forget_if_unused(x, ws, uuid, key, entry);
    if let Err(e) = failed.and(sealed).and(forgotten) {
        x.keep_effects();
        // It is closed: who waits for the target must not close it once more.
        return Err(if is_away(&e) { e.with_outcome(Outcome::Unknown) } else { e });
    }
    Ok(CatalogReply::Done)
}

fn publish_at_close(x: &mut Exec<'_>, ws: Uuid, uuid: Uuid) -> Result<()> {
    let at = x.workspace_of_handle(ws)?;
    let mut record = x.any_record(ws, uuid)?;
    // What was written before the seal is in it; what came later has failed at the target (M2).
    if record.state == State::Sealed {
        return Ok(());
    }
    publish_record(x, at, uuid, &mut record)
}

/// Brings a record up to what the target says.
pub(crate) fn publish_record(x: &mut Exec<'_>, at: usize, uuid: Uuid, record: &mut Record) -> Result<()> {
    let found = x.stat_bytes(uuid, record)?;
    let within_quota = x.record_bytes_of(at, record, &found);
    x.put_record(x.workspaces[at].uuid, uuid, record);
    within_quota
}

/// The last handle of a session is closed: its hold ends if no other session acts for the holder here. What is immutable
/// and exclusive is sealed by that (M2).
fn release(x: &mut Exec<'_>, ws: Uuid, uuid: Uuid, entry: &mut Entry, holder: &Uuid) -> Result<()> {
    let Some(hold) = entry.hold else { return Ok(()) };
    if hold.holder != *holder || entry.slots().any(|s| s.holder == *holder && !s.fenced) {
        return Ok(());
    }
    let may_seal = !entry.group && (entry.written || hold.to_seal) && !entry.deleted;
    let record =
        if may_seal { x.any_record(ws, uuid).map(|record| Some(record).filter(seals_at_close)) } else { Ok(None) };
    let seals = matches!(record, Ok(Some(_)));
    if !x.end_hold(group_key(ws, uuid), entry, seals) {
        return Ok(());
    }
    let Some(record) = record? else {
        // It has been sealed meanwhile, or removed.
        if hold.to_seal {
            x.not_to_seal(uuid);
        }
        return Ok(());
    };
    let at = x.workspace_of_handle(ws)?;
    let sealed = seal::seal_record(x, at, uuid, record, hold.epoch);
    match &sealed {
        Err(e) if is_away(e) && hold.to_seal => x.seal_later(group_key(ws, uuid), entry, hold),
        _ if hold.to_seal => x.not_to_seal(uuid),
        _ => {}
    }
    sealed
}

/// Puts the entry back; a deleted collection that nobody has open any more is removed (O10).
pub(crate) fn forget_if_unused(x: &mut Exec<'_>, ws: Uuid, uuid: Uuid, key: Uuid, entry: Entry) -> Result<()> {
    let remove = entry.deleted && entry.is_unused();
    x.set_entry(key, entry);
    if !remove {
        return Ok(());
    }
    let at = x.workspace_of_handle(ws)?;
    let record = x.any_record(ws, uuid)?;
    x.remove_record(at, uuid, &record);
    Ok(())
}

/// The end of a session: all its handles, whether it closed them or not. What it may have written is recorded; what it
/// left unsealed is kept for its owner (M2). What a target cannot be asked for waits for that, and for nothing else.
pub(crate) fn close_all(x: &mut Exec<'_>) -> Result<()> {
    close_all_but(x, &HashSet::new())
}

/// The same, but for some.
pub(crate) fn close_all_but(x: &mut Exec<'_>, keep: &HashSet<Uuid>) -> Result<()> {
    let session = x.cx.caller.session;
    if !x.shared().opens.has_open(session) {
        return Ok(());
    }
    let open: Vec<Uuid> =
        x.shared().opens.iter().filter(|(_, e)| e.slot(session).is_some()).map(|(uuid, _)| uuid).collect();
    // Who stands for it where a target is away, which is asked once.
    let mut away: Vec<(Place, Uuid)> = Vec::new();
    for key in open.into_iter().filter(|key| !keep.contains(key)) {
        let Some(mut entry) = x.entry(key) else { continue };
        let Some(slot) = entry.slot(session).cloned() else { continue };
        let ws = entry.ws;
        entry.remove(session);
        // Who closed it has used it to then, and not to the end of what waits for a target.
        if !slot.is_heirs() {
            x.after.left.push(key);
        }
        let goes_on = entry.slots().any(|s| s.holder == slot.holder && !s.fenced);
        if entry.hold.is_some_and(|h| h.holder == slot.holder) && !goes_on {
            match slot.writers {
                0 => x.end_hold_of_reader(key, &mut entry),
                _ => drop(x.end_hold(key, &mut entry, false)),
            }
        }
        if slot.writers > 0 && !slot.fenced && !entry.deleted {
            let has_died = slot.died || !slot.is_heirs();
            let known = away.iter().find(|(place, _)| !entry.inline && *place == entry.place).map(|(_, heir)| *heir);
            let settled = if known.is_some() { Ok(()) } else { settle(x, ws, key, (&entry, has_died)) };
            match settled {
                // It waits on.
                Err(e) if slot.is_heirs() && is_away(&e) => return Err(e),
                Err(e) => {
                    let heir = new_heir(x);
                    away.extend(is_away(&e).then_some((entry.place, heir)));
                    entry.add_heir(heir, has_died);
                }
                Ok(()) => known.into_iter().for_each(|heir| entry.add_heir(heir, has_died)),
            }
        }
        let uuid = if key == ws { Uuid::NIL } else { key };
        forget_if_unused(x, ws, uuid, key, entry)?;
    }
    Ok(())
}

/// A session that stands for who has no more open what a target could not be asked for.
fn new_heir(x: &mut Exec<'_>) -> Uuid {
    let heir = seam::new_uuid();
    x.after.heirs.push(heir);
    heir
}

fn settle(x: &mut Exec<'_>, ws: Uuid, uuid: Uuid, (entry, has_died): (&Entry, bool)) -> Result<()> {
    let at = x.workspace_of_handle(ws)?;
    let mut record = x.any_record(ws, uuid)?;
    if record.state == State::Sealed || record.kind != EntryKind::Collection {
        return Ok(());
    }
    let found = x.stat_bytes(uuid, &record)?;
    let mut changed = found.size != record.size || (found.mtime_ns != 0 && found.mtime_ns != record.mtime_base_ns);
    if changed {
        // Beyond the quota or not: the bytes are there.
        let _ = x.record_bytes_of(at, &mut record, &found);
    }
    if has_died && record.state == State::Staging && !entry.has_writers() && record.abandoned_ns == 0 {
        x.abandon(ws, uuid, &mut record);
        x.not_to_seal(uuid);
        changed = true;
    }
    if changed {
        x.put_record(ws, uuid, &mut record);
    }
    Ok(())
}
