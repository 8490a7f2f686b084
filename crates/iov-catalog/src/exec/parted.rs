//! Holds that have ended here behind a crash, while others that joined their holder may still come back (X1). Nothing says whether they will, so
//! that such a hold goes on until nobody can any more: for all who act for its holder.

use bytes::Bytes;
use iov_types::{Concurrency, Mutability, Result, State, Uuid};
use iov_wire::Wire;

use super::{Exec, Mode};
use crate::{
    Service,
    batch::{self, is_away},
    core::Core,
    keys,
    record::{Record, ToSealRecord},
    recovery,
    service::Writer,
    state::{Ended, Entry, Hold},
    verbs::seal::seal_record,
};

impl Exec<'_> {
    /// Whether others that act by a hold may be still to come back.
    pub(super) fn may_have_others(&self, hold: &Hold) -> bool {
        !hold.granted && self.core.in_grace() && !self.core.were_alone()
    }

    /// Whether any hold may have ended that others may come back to, or that is still to seal what it covers.
    pub(super) fn may_be_parted(&self) -> bool {
        !(self.after.ended_holds.is_empty() && self.shared().ended.is_empty())
    }

    /// How the last hold of something has ended, if that matters still.
    fn ended(&self, key: Uuid) -> Option<Ended> {
        if !self.may_be_parted() {
            return None;
        }
        let of_this = self.after.ended_holds.iter().rev().find(|(of, _)| *of == key);
        let ended = of_this.map_or_else(|| self.shared().ended.get(&key).copied(), |(_, ended)| *ended);
        // Nobody comes back any more: others are kept out of what is about to be sealed alone.
        ended.filter(|ended| self.core.in_grace() || matches!(ended, Ended::Here(_, hold) if hold.to_seal))
    }

    /// The hold that is on something, or that others may come back to.
    pub(crate) fn hold_on(&self, key: Uuid) -> Option<Hold> {
        self.entry(key).and_then(|entry| entry.hold).or_else(|| self.parted(key))
    }

    pub(super) fn parted(&self, key: Uuid) -> Option<Hold> {
        match self.ended(key) {
            Some(Ended::Here(_, hold)) => Some(hold),
            _ => None,
        }
    }

    /// Whether the hold of a group keeps the caller out no more, as others of its holder might come back to it.
    pub(super) fn has_ended(&self, group: Uuid) -> bool {
        match self.ended(group) {
            Some(Ended::ForGood) => true,
            Some(Ended::Here(_, hold)) => self.is_mine(hold.holder),
            None => false,
        }
    }

    /// The hold of who acts for its holder last has ended; whether for good. `seals`: that is to seal what it covers.
    pub(crate) fn end_hold(&mut self, key: Uuid, entry: &mut Entry, seals: bool) -> bool {
        let Some(hold) = entry.hold.take() else { return true };
        let goes_on = self.may_have_others(&hold);
        if goes_on {
            let hold = Hold { to_seal: hold.to_seal || seals, ..hold };
            if hold.to_seal {
                self.note_to_seal(entry.ws, key, &hold);
            }
            self.after.ended_holds.push((key, Some(Ended::Here(entry.ws, hold))));
        } else if entry.group && self.core.in_grace() {
            self.after.ended_holds.push((key, Some(Ended::ForGood)));
        }
        !goes_on
    }

    /// The last that had it has died, and had nothing to write: what others have closed is sealed all the same.
    pub(crate) fn end_hold_of_reader(&mut self, key: Uuid, entry: &mut Entry) {
        let (ws, hold) = (entry.ws, entry.hold);
        if self.end_hold(key, entry, false)
            && let Some(hold) = hold.filter(|hold| hold.to_seal)
        {
            self.after.ended_holds.push((key, Some(Ended::Here(ws, hold))));
        }
    }

    /// That it is to be sealed is known behind the next crash, too. A medium that forgets everything with the catalog has nothing to seal then.
    fn note_to_seal(&mut self, ws: Uuid, uuid: Uuid, hold: &Hold) {
        if self.core.incarnation_to_record() != 0 {
            let record = ToSealRecord { ws, holder: hold.holder, epoch: hold.epoch };
            self.put(keys::to_seal(uuid), Bytes::from(record.to_bytes()));
        }
    }

    /// It is sealed, or its last writer has died: nothing of it is left to be done.
    pub(crate) fn not_to_seal(&mut self, uuid: Uuid) {
        self.delete(keys::to_seal(uuid));
    }

    /// Who acts for its holder goes on with a hold that has ended here.
    pub(crate) fn go_on(&mut self, key: Uuid, entry: &mut Entry) {
        if entry.hold.is_none()
            && let Some(hold) = self.parted(key).filter(|hold| self.is_mine(hold.holder))
        {
            entry.hold = Some(hold);
            self.after.ended_holds.push((key, None));
        }
    }

    /// Seals what the end of a hold seals, as nobody has come back to it. Who holds it meanwhile does so at its close.
    fn seal_parted(&mut self, ws: Uuid, uuid: Uuid, hold: &Hold) -> Result<()> {
        if self.entry(uuid).is_some_and(|entry| entry.is_in_use()) {
            self.change_entry(uuid, |entry| entry.hold.iter_mut().for_each(|hold| hold.to_seal = true));
            return Ok(());
        }
        // It may have been removed meanwhile, and its workspace.
        if let Ok(at) = self.workspace_of_handle(ws)
            && let Ok(record) = self.any_record(ws, uuid)
        {
            // Who came back to it behind an earlier crash may have died writing it.
            let is_left = !record.deleted && record.abandoned_ns == 0 && seals_at_close(&record);
            if is_left {
                seal_record(self, at, uuid, record, hold.epoch)?;
            }
        }
        self.not_to_seal(uuid);
        Ok(())
    }
}

/// Whether what is not sealed yet is by the end of its hold (M2).
pub(crate) fn seals_at_close(record: &Record) -> bool {
    record.state == State::Staging
        && record.effective.mutability == Mutability::Immutable
        && record.effective.concurrency == Concurrency::Exclusive
}

/// Most that is sealed at a time: others write in between.
const PORTION: usize = 64;

/// Takes out holds that nobody has come back to and whose end is to seal something.
fn to_seal(core: &Core) -> Vec<(Uuid, Uuid, Hold)> {
    let mut shared = core.shared_mut();
    shared.ended.retain(|_, ended| matches!(ended, Ended::Here(_, hold) if hold.to_seal));
    let of_one = |(uuid, ended): (&Uuid, &Ended)| match ended {
        Ended::Here(ws, hold) => Some((*uuid, *ws, *hold)),
        Ended::ForGood => None,
    };
    let left: Vec<_> = shared.ended.iter().filter_map(of_one).take(PORTION).collect();
    for (uuid, ..) in &left {
        shared.ended.remove(uuid);
    }
    left
}

impl Service {
    /// Takes up again what the catalog before was still to seal.
    pub(crate) fn load_to_seal(&self) -> Result<()> {
        let mut ended = Vec::new();
        recovery::for_each(self, keys::TO_SEAL, |key, value| {
            let ToSealRecord { ws, holder, epoch } = ToSealRecord::decode(value)?;
            let hold = Hold { holder, epoch, granted: false, to_seal: true };
            ended.push((keys::uuid_at(key, 1)?, Some(Ended::Here(ws, hold))));
            Ok(())
        })?;
        self.core.shared_mut().end_holds(ended.into_iter());
        Ok(())
    }

    /// Nobody comes back any more: what holds have left to be sealed is, or a portion of it; whether there is more. What is at a target that is away waits for
    /// the next time, and so does what cannot be written down.
    pub(crate) fn seal_parted(&self, writer: &mut Writer) -> Result<bool> {
        let left = to_seal(&self.core);
        if left.is_empty() {
            return Ok(false);
        }
        let cx = self.own_cx(Uuid::NIL);
        let mut x = self.start(writer, &cx, Uuid::NIL, Mode::Each);
        // What is asked of a target that is away takes long.
        let mut is_any_away = false;
        let mut waits = Vec::new();
        for (uuid, ws, hold) in &left {
            if is_any_away || x.attempt(|x| x.seal_parted(*ws, *uuid, hold)).is_err_and(|e| is_away(&e)) {
                is_any_away = true;
                waits.push((*uuid, Ended::Here(*ws, *hold)));
            }
        }
        let seals = batch::to_seal(&mut x);
        let committed = self.commit_own(writer, &cx, x);
        if committed.is_err() {
            waits = left.into_iter().map(|(uuid, ws, hold)| (uuid, Ended::Here(ws, hold))).collect();
        }
        self.core.shared_mut().ended.extend(waits);
        committed?;
        if let Some((redo, _)) = seals {
            writer.redo.push(redo);
            batch::finish(self, writer, &cx);
        }
        Ok(!is_any_away && !self.core.shared().ended.is_empty())
    }
}
