//! Holds that have ended here behind a crash, while others that joined their holder may still come back (X1). Nothing says whether they will, so
//! that such a hold goes on until nobody can any more: for all who act for its holder.

use iov_types::{Concurrency, Mutability, Result, State, Uuid};

use super::{Exec, Mode};
use crate::{
    Service,
    batch::{self, is_away},
    core::Core,
    record::Record,
    service::Writer,
    state::{Ended, Entry, Hold},
    verbs::seal::seal_record,
};

impl Exec<'_> {
    /// Whether others that act by a hold may be still to come back.
    pub(super) fn may_have_others(&self, hold: &Hold) -> bool {
        !hold.granted && self.core.in_grace() && !self.core.were_alone()
    }

    /// Whether any hold may have ended that others may come back to.
    pub(super) fn may_be_parted(&self) -> bool {
        self.core.in_grace() && !(self.after.ended_holds.is_empty() && self.shared().ended.is_empty())
    }

    /// How the last hold of something has ended, if that matters still.
    fn ended(&self, key: Uuid) -> Option<Ended> {
        if !self.may_be_parted() {
            return None;
        }
        let of_this = self.after.ended_holds.iter().rev().find(|(of, _)| *of == key);
        of_this.map_or_else(|| self.shared().ended.get(&key).copied(), |(_, ended)| *ended)
    }

    /// The hold that is on something, or that others may come back to.
    pub(crate) fn hold_on(&self, key: Uuid) -> Option<Hold> {
        self.entry(key).and_then(|entry| entry.hold).or_else(|| self.parted(key))
    }

    fn parted(&self, key: Uuid) -> Option<Hold> {
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
            self.after.ended_holds.push((key, Some(Ended::Here(entry.ws, hold))));
        } else if entry.group && self.core.in_grace() {
            self.after.ended_holds.push((key, Some(Ended::ForGood)));
        }
        !goes_on
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
        let at = self.workspace_of_handle(ws)?;
        let record = self.any_record(ws, uuid)?;
        if record.deleted || !seals_at_close(&record) {
            Ok(())
        } else {
            seal_record(self, at, uuid, record, hold.epoch)
        }
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
