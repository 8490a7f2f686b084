//! Resume: a session that the catalog does not know any more says what it has open (X1, O10). Everything else about it the
//! catalog still knows: the epoch tells whether an exclusive hold has passed on meanwhile.

use iov_types::{Clause, EntryKind, Error, Kind, ObjectVerb, Result, Right, State, Uuid, catalog::Presented};

use crate::{
    exec::{
        Exec,
        groups::group_key,
        holds::fenced,
        records::{FIRST_EPOCH, missing},
    },
    record::Record,
    state::{Entry, Hold, Slot},
    targets::op,
};

pub(crate) fn resume(x: &mut Exec<'_>, p: &Presented) -> Result<()> {
    let at = x.workspace(p.ws, Right::Read)?;
    let (key, session) = (group_key(p.ws, p.uuid), x.cx.caller.session);
    let mut entry = x.entry(key).unwrap_or_else(|| Entry::new(p.ws, p.kind == EntryKind::Group));
    if let Some(slot) = entry.slot(session) {
        if slot.fenced {
            return Err(fenced());
        }
        // An open or a close took effect, and its answer never came: the session knows what it has, and asks again.
        let handles = p.handles.max(1);
        let (count, writers) = (slot.count, slot.writers);
        if let Some(slot) = entry.slots_mut().find(|s| s.session == session) {
            (slot.count, slot.writers) = (handles, p.writers.min(handles));
        }
        if (count, writers) != (handles, p.writers.min(handles)) {
            x.set_entry(key, entry);
        }
        return Ok(());
    }
    let record = record(x, at, p)?;
    let epoch = record.as_ref().map_or_else(|| x.record(at).epoch, |r| r.epoch);
    let names = record.as_ref().map_or(&[][..], |r| &r.names[..]);
    let elsewhere = x.hold_on(key).is_some_and(|h| !x.is_mine(h.holder))
        || (p.epoch != 0 && (p.epoch != epoch || entry.slots().any(|s| x.is_other(s))))
        || x.cover_of(p.ws, names, false).is_err();
    let handles = p.handles.max(1);
    let slot = Slot {
        session,
        holder: x.holder,
        count: handles,
        writers: p.writers.min(handles),
        epoch: p.epoch,
        fenced: elsewhere,
        died: false,
    };
    if elsewhere {
        // The session has it open all the same, so that each use says what has become of it.
        entry.restore(slot);
        x.set_entry(key, entry);
        x.keep_effects();
        return Err(fenced());
    }
    entry.restore(slot);
    x.go_on(key, &mut entry);
    if p.epoch != 0 {
        let (holder, to_seal) = entry.hold.map_or((x.holder, false), |h| (h.holder, h.to_seal));
        entry.hold = Some(Hold { holder, epoch: p.epoch, granted: false, to_seal });
    }
    if let Some(record) = record {
        entry.deleted = record.deleted;
        entry.inline = x.is_inline(p.uuid, &record);
        entry.place = record.layout.place;
        take_up(x, at, p, record, &mut entry)?;
    }
    x.set_entry(key, entry);
    Ok(())
}

/// The record of what is presented; of a root there is none.
fn record(x: &mut Exec<'_>, at: usize, p: &Presented) -> Result<Option<Record>> {
    if p.uuid.is_nil() {
        return Ok(None);
    }
    let record = x.any_record(p.ws, p.uuid);
    let gone = match &record {
        Ok(record) => record.deleted && !x.core.in_grace(),
        Err(e) => e.kind() == Kind::NotFound,
    };
    if gone {
        return Err(missing(p.uuid).context("it was deleted while the server was away").with_clause(Clause::O10));
    }
    let record = record?;
    x.check_usable(at, p.uuid, false, record.abandoned_ns, record.uid)?;
    if record.kind != p.kind {
        return Err(Error::invalid(format!("{} is not of the kind that the session says", p.uuid)));
    }
    Ok(Some(record))
}

/// Notes in the record what an open for writing notes.
pub(crate) fn take_up(x: &mut Exec<'_>, at: usize, p: &Presented, mut record: Record, entry: &mut Entry) -> Result<()> {
    if record.state == State::Sealed || (p.writers == 0 && p.epoch == 0) {
        return Ok(());
    }
    let mut changed = false;
    let mut unsure = false;
    if record.kind == EntryKind::Collection && x.core.has_crashed(record.opened_in) {
        if record.inline && record.epoch <= FIRST_EPOCH {
            // What a move that the crash cut off may have left; if it stays, it takes space.
            x.core.targets().run(x.cx, vec![op(record.whole(p.uuid), ObjectVerb::Remove, 0)]);
        }
        match x.stat_bytes(p.uuid, &record) {
            // The daemon of its target has not said yet that it is there. Until somebody has asked that, the record stays behind the crash.
            Err(e) if matches!(e.kind(), Kind::Unavailable | Kind::Timeout) => unsure = true,
            found => {
                // The quota has its say at a publish.
                unsure = x.record_bytes_of(at, &mut record, &found?).is_err_and(|e| e.kind() == Kind::Lost);
                changed = true;
            }
        }
    }
    if !unsure {
        let incarnation = x.core.incarnation_to_record();
        changed |= record.opened_in != incarnation;
        record.opened_in = incarnation;
    }
    if p.writers > 0 && !record.deleted {
        changed |= record.abandoned_ns != 0;
        x.not_abandoned(p.uuid, &mut record);
        x.note_writer(p.ws, p.uuid, record.state, entry);
    }
    if changed {
        x.put_record(p.ws, p.uuid, &mut record);
    }
    Ok(())
}

/// What comes first: a hold of a group covers what is below it.
pub(crate) fn order(p: &Presented) -> (bool, Uuid) {
    (p.kind == EntryKind::Collection, p.uuid)
}
