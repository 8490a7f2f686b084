//! Holds that have ended here behind a crash, while others that joined their holder may still come back (X1). Nothing says whether they will, so
//! that such a hold goes on until nobody can any more: for all who act for its holder.

use std::ops::Bound;

use bytes::Bytes;
use iov_store::OpCx;
use iov_types::{Concurrency, Kind, Mutability, Result, State, Uuid};
use iov_wire::Wire;

use super::{Exec, Mode};
use crate::{
    Service,
    batch::{self, is_away},
    core::Core,
    keys,
    patience::{Failing, PATIENCE_NS},
    record::{Record, ToSealRecord},
    recovery, redo,
    service::Writer,
    state::{Ended, Entry, Hold, Slot},
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
        let hold = entry.hold;
        if self.end_hold(key, entry, false)
            && let Some(hold) = hold.filter(|hold| hold.to_seal)
        {
            self.seal_later(key, entry, hold);
        }
    }

    /// What a hold was to seal at its end is sealed by and by, and others are kept out of it until then.
    pub(crate) fn seal_later(&mut self, key: Uuid, entry: &Entry, hold: Hold) {
        self.after.ended_holds.push((key, Some(Ended::Here(entry.ws, hold))));
    }

    /// That it is to be sealed is known behind the next crash, too. A medium that forgets everything with the catalog has nothing to seal then.
    fn note_to_seal(&mut self, ws: Uuid, uuid: Uuid, hold: &Hold) {
        if self.core.incarnation_to_record() != 0 {
            let record = ToSealRecord { ws, holder: hold.holder, epoch: hold.epoch };
            self.put(keys::to_seal(uuid), Bytes::from(record.to_bytes()));
        }
    }

    /// Its last writer has died.
    pub(crate) fn not_to_seal(&mut self, uuid: Uuid) {
        self.delete(keys::to_seal(uuid));
    }

    /// It is sealed, or goes, or passes on to another holder: of what was closed nothing is left to be sealed.
    pub(crate) fn no_more_to_seal(&mut self, uuid: Uuid) {
        let is_held = self.entry(uuid).and_then(|entry| entry.hold).is_some_and(|hold| hold.to_seal);
        let is_parted = self.parted(uuid).is_some_and(|hold| hold.to_seal);
        if is_held {
            self.change_entry(uuid, |entry| entry.hold.iter_mut().for_each(|hold| hold.to_seal = false));
        }
        if is_parted {
            self.after.ended_holds.push((uuid, None));
        }
        if is_held || is_parted {
            self.not_to_seal(uuid);
        }
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

    /// Seals what the end of a hold seals, as nobody has come back to it. Who holds it meanwhile, or writes it for the same holder, does so at its close.
    fn seal_parted(&mut self, ws: Uuid, uuid: Uuid, hold: &Hold) -> Result<()> {
        let entry = self.entry(uuid);
        let writes = |slot: &Slot| slot.holder == hold.holder && slot.writers > 0 && !slot.fenced;
        if entry.as_ref().is_some_and(|entry| entry.hold.is_some() || entry.slots().any(writes)) {
            let goes_on = |entry: &mut Entry| entry.hold = Some(Hold { to_seal: true, ..entry.hold.unwrap_or(*hold) });
            self.change_entry(uuid, goes_on);
            self.after.ended_holds.push((uuid, None));
            return Ok(());
        }
        // Who came back to it last has died writing it, and its target could not be asked yet how much of that is there.
        if entry.is_some_and(|entry| entry.has_died()) {
            self.give_up_sealing(uuid);
            return Ok(());
        }
        if let Some(record) = self.left_to_seal(ws, uuid, hold.epoch)? {
            let at = self.workspace_of_handle(ws)?;
            let sealed = seal_record(self, at, uuid, record, hold.epoch);
            // Beyond the quota, too: the bytes are there.
            if self.any_record(ws, uuid)?.state != State::Sealed {
                return sealed;
            }
        }
        self.give_up_sealing(uuid);
        Ok(())
    }

    /// The record of what was closed under an epoch and is still to be sealed; none: it was sealed or removed, it is another holder's, or who has come back to it
    /// behind an earlier crash has died writing it.
    fn left_to_seal(&mut self, ws: Uuid, uuid: Uuid, epoch: u64) -> Result<Option<Record>> {
        let found = match self.workspace_of_handle(ws) {
            Ok(_) => self.any_record(ws, uuid),
            Err(e) => Err(e),
        };
        match found {
            Ok(record) => {
                let is_left = !record.deleted && record.abandoned_ns == 0 && record.epoch == epoch;
                Ok(Some(record).filter(|record| is_left && seals_at_close(record)))
            }
            Err(e) if e.kind() == Kind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Nobody is kept out of it any more.
    fn give_up_sealing(&mut self, uuid: Uuid) {
        self.not_to_seal(uuid);
        self.after.ended_holds.push((uuid, None));
    }

    /// The targets of other daemons at which the bytes of something lie.
    fn targets_elsewhere(&mut self, ws: Uuid, uuid: Uuid) -> Vec<u32> {
        let record = self.any_record(ws, uuid).ok().filter(|record| !record.inline);
        record.map_or_else(Vec::new, |record| self.core.map().elsewhere(record.layout.place).collect())
    }
}

/// Whether what is not sealed yet is by the end of its hold (M2).
pub(crate) fn seals_at_close(record: &Record) -> bool {
    record.state == State::Staging
        && record.effective.mutability == Mutability::Immutable
        && record.effective.concurrency == Concurrency::Exclusive
}

/// Most that is sealed at a time, and for how long, in nanoseconds: others write in between.
const PORTION: usize = 64;
const PORTION_NS: i64 = 100_000_000;
/// For how long one portion follows the other where somebody waits for that, and where nobody else may be let in.
const IN_TURN_NS: i64 = 1_000_000_000;
const AT_ONCE_NS: i64 = 5_000_000_000;

/// How long it takes until what could not be sealed is tried again, at first and at most: who asks a target that hangs keeps others waiting.
const AGAIN_NS: (i64, i64) = (2_000_000_000, 60_000_000_000);

/// What is to be sealed that was closed behind a crash, and when that is tried again.
#[derive(Default)]
pub(crate) struct Sealing {
    /// What was tried last, of a round.
    last: Option<Uuid>,
    /// Something could not be sealed in it; and at which targets that was so, and how often.
    waits: bool,
    failed: Failing,
    /// How often there was no answer in time.
    late: i64,
    /// Not before this time, on the monotonic clock, and how long after the next round.
    again_ns: i64,
    pause_ns: i64,
}

impl Sealing {
    /// Begins a round.
    fn begin(&mut self) {
        (self.last, self.waits, self.again_ns, self.late) = (None, false, 0, 0);
        self.failed.clear();
    }

    /// A round is over.
    fn end(&mut self, now_ns: i64) {
        self.pause_ns = if self.waits { (2 * self.pause_ns).clamp(AGAIN_NS.0, AGAIN_NS.1) } else { 0 };
        self.begin();
        self.again_ns = now_ns.saturating_add(self.pause_ns);
    }

    /// Others are let in for a while before it goes on, for longer each time.
    fn rests(&mut self, now_ns: i64) {
        (self.waits, self.late) = (true, self.late.saturating_add(1));
        self.again_ns = now_ns.saturating_add(self.late.saturating_mul(AGAIN_NS.0).min(AGAIN_NS.1));
    }

    /// Something could not be sealed there; `late`: there was no answer in time.
    fn fails_at(&mut self, targets: &[u32], late: bool) {
        self.waits = true;
        self.failed.at(targets, late);
    }
}

/// Holds whose end is to seal something, a portion of them, behind the one that came last.
fn to_seal(core: &Core, after: Option<Uuid>) -> Vec<(Uuid, Uuid, Hold)> {
    let from = after.map_or(Bound::Unbounded, Bound::Excluded);
    let of_one = |(uuid, ended): (&Uuid, &Ended)| match ended {
        Ended::Here(ws, hold) if hold.to_seal => Some((*uuid, *ws, *hold)),
        _ => None,
    };
    core.shared().ended.range((from, Bound::Unbounded)).filter_map(of_one).take(PORTION).collect()
}

impl Service {
    /// Takes up again what the catalog before was still to seal.
    pub(crate) fn load_to_seal(&self, writer: &mut Writer) -> Result<()> {
        let mut found = Vec::new();
        recovery::for_each(self, keys::TO_SEAL, |key, value| {
            found.push((keys::uuid_at(key, 1)?, ToSealRecord::decode(value)?));
            Ok(())
        })?;
        if found.is_empty() {
            return Ok(());
        }
        let cx = self.own_cx(Uuid::NIL);
        let mut x = self.start(writer, &cx, Uuid::NIL, Mode::Each);
        let mut left = Vec::new();
        for (uuid, ToSealRecord { ws, holder, epoch }) in found {
            // One who has come back to it may have been writing it when the catalog crashed: its owner takes it up again, or has died.
            let is_over = match x.any_record(ws, uuid) {
                Ok(record) => record.deleted || record.epoch != epoch || !seals_at_close(&record),
                Err(e) => e.kind() == Kind::NotFound,
            };
            if is_over {
                x.not_to_seal(uuid);
            } else {
                let hold = Hold { holder, epoch, granted: false, to_seal: true };
                left.push((uuid, Some(Ended::Here(ws, hold))));
            }
        }
        // Whether there is room to forget the others or not.
        self.core.shared_mut().end_holds(left.into_iter());
        self.commit_own(writer, &cx, x)
    }

    /// Nobody comes back any more: what holds have left to be sealed is. What is at a target that is away waits for the next time, and so does what cannot be
    /// written down, and what takes long. Others write in between.
    pub(crate) fn seal_all_parted(&self) -> Result<()> {
        let until_ns = self.core.monotonic_ns().saturating_add(IN_TURN_NS);
        self.core.writer().sealing.begin();
        loop {
            let mut writer = self.core.writer();
            self.may_write(&writer)?;
            let goes_on = self.seal_parted(&mut writer)?;
            let now_ns = self.core.monotonic_ns();
            if !goes_on || now_ns > until_ns || now_ns < writer.sealing.again_ns {
                return Ok(());
            }
        }
    }

    /// The same of a portion, where it is time to try that again.
    pub(crate) fn seal_parted_again(&self, writer: &mut Writer, now_ns: i64) {
        if !self.core.in_grace() && now_ns >= writer.sealing.again_ns && !self.core.shared().ended.is_empty() {
            // What fails is the next time.
            let _ = self.seal_parted(writer);
        }
    }

    /// The same of all with nobody in between, as the catalog begins or ends. What takes long is done later.
    pub(crate) fn seal_parted_at_once(&self, writer: &mut Writer) {
        let until_ns = self.core.monotonic_ns().saturating_add(AT_ONCE_NS);
        writer.sealing.begin();
        while !self.core.in_grace()
            && self.seal_parted(writer).is_ok_and(|more| more)
            && self.core.monotonic_ns() <= until_ns
        {}
    }

    /// A portion; whether there is more to be tried in this round.
    fn seal_parted(&self, writer: &mut Writer) -> Result<bool> {
        let left = to_seal(&self.core, writer.sealing.last);
        let begun_ns = self.core.monotonic_ns();
        if left.is_empty() {
            writer.sealing.end(begun_ns);
            return Ok(false);
        }
        // What is asked of a target that hangs takes long.
        let mut sealing = std::mem::take(&mut writer.sealing);
        let asking = OpCx::new(self.own_cx(Uuid::NIL).caller, PATIENCE_NS);
        let mut x = self.start(writer, &asking, Uuid::NIL, Mode::Each);
        let mut late = false;
        for (uuid, ws, hold) in &left {
            sealing.last = Some(*uuid);
            let targets = x.targets_elsewhere(*ws, *uuid);
            if sealing.failed.is_away(&targets) || writer.hung.rests(&targets, self.core.monotonic_ns()) {
                sealing.waits = true;
                continue;
            }
            match x.attempt(|x| x.seal_parted(*ws, *uuid, hold)) {
                Ok(()) => {}
                Err(e) if is_away(&e) || e.kind() == Kind::Exhausted => {
                    late = e.kind() == Kind::Timeout && !targets.is_empty();
                    sealing.fails_at(&targets, late);
                }
                // Whoever asks for it hears of that.
                Err(_) => x.give_up_sealing(*uuid),
            }
            if late || self.core.monotonic_ns().saturating_sub(begun_ns) > PORTION_NS {
                break;
            }
        }
        let seals = batch::to_seal(&mut x);
        let committed = self.commit_own(writer, &asking, x);
        if late || committed.is_err() {
            sealing.rests(self.core.monotonic_ns());
        }
        writer.sealing = sealing;
        committed?;
        if let Some((redo, _)) = seals {
            let batch = redo.batch;
            writer.redo.push(redo);
            // One that hangs, and then others. What is left is done by and by whoever writes next; but no more is put there before that.
            let cx = OpCx::new(asking.caller, 2 * PATIENCE_NS);
            let mut failed = redo::finish(self, writer, &cx, Some(batch));
            failed.retain(|(_, e)| is_away(e));
            failed.iter().for_each(|(targets, _)| writer.sealing.fails_at(targets, true));
            if !failed.is_empty() {
                writer.sealing.rests(self.core.monotonic_ns());
            }
        }
        Ok(true)
    }
}
