//! Exclusive holds: who has one, what it covers, and how it passes on (X1, X2).
//!
//! A holder whose lease has ended loses to the next open. Then the epoch rises, targets are told before that open
//! completes, and everything the old holder still has open is fenced.

use iov_types::{Clause, EntryKind, Error, Result, State, Uuid};

use super::{Exec, Mode, facts::check_there, records::FIRST_EPOCH};
use crate::{
    record::{Facts, NameIn, Record},
    state::{Entry, Hold, Slot},
};

/// What an open was granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Grant {
    /// The epoch under which it writes; 0 = it holds nothing.
    pub(crate) epoch: u64,
    /// The epoch that the record must have from now on.
    pub(crate) raised: Option<u64>,
}

pub(crate) fn fenced() -> Error {
    Error::fenced("the exclusive hold has passed on to another holder; nothing from here applies: close, then reopen")
        .with_clause(Clause::X1)
}

pub(crate) fn busy(what: &str) -> Error {
    Error::busy(format!("{what} is held exclusively: wait until it is closed or its holder's lease ends"))
        .with_clause(Clause::X1)
}

impl Exec<'_> {
    pub(crate) fn is_mine(&self, holder: Uuid) -> bool {
        holder == self.holder || holder == self.cx.caller.session
    }

    /// Whether nobody else may take a hold over yet.
    fn is_live(&self, hold: &Hold) -> bool {
        self.may_have_others(hold) || self.core.sessions().is_live(hold.holder, self.monotonic_ns)
    }

    /// Whether it has been closed for good, and is about to be sealed by that: nobody writes it before.
    fn is_to_be_sealed(&self, key: Uuid) -> bool {
        self.entry(key).is_none_or(|entry| entry.hold.is_none()) && self.parted(key).is_some()
    }

    /// The error for who has to wait for what somebody holds.
    fn held(&self, key: Uuid) -> Error {
        if self.core.in_grace() || !self.is_to_be_sealed(key) {
            return busy("it");
        }
        Error::busy(
            "it is closed and about to be sealed: repeat; where its target is away (iov targets), once that is back",
        )
        .with_clause(Clause::X1)
    }

    /// Whether a group may be held: while none is, nothing can be covered by one.
    fn may_cover(&self) -> bool {
        let may_cover = self.shared().opens.may_cover();
        may_cover || self.may_be_parted()
    }

    pub(crate) fn is_other(&self, slot: &Slot) -> bool {
        !slot.fenced && !slot.is_heirs() && slot.session != self.cx.caller.session && !self.is_mine(slot.holder)
    }

    /// Whether the caller has lost the hold by which it has something open.
    fn is_fenced(&self, key: Uuid) -> bool {
        self.entry(key).is_some_and(|e| e.slot(self.cx.caller.session).is_some_and(|s| s.fenced))
    }

    /// Whether a hold of the caller on one of these groups covers what is below them. Somebody else's is an error, or is
    /// taken over where its lease has ended and `take` says so.
    fn cover(&mut self, ws: Uuid, groups: &[Uuid], take: bool) -> Result<bool> {
        let mut mine = false;
        for group in groups {
            if self.is_fenced(*group) {
                return Err(fenced());
            }
            match self.hold_on(*group) {
                None => {}
                Some(hold) if self.is_mine(hold.holder) => mine = true,
                Some(hold) if self.is_live(&hold) => {
                    return Err(busy("the group or workspace").with_clause(Clause::X2));
                }
                Some(_) if take => self.take_over_group(ws, *group)?,
                Some(_) => {}
            }
        }
        Ok(mine)
    }

    /// As [`Exec::cover`], for something that is put into a group.
    pub(crate) fn cover_in(&mut self, ws: Uuid, group: Uuid, take: bool) -> Result<bool> {
        if !self.may_cover() && !self.core.in_grace() {
            return Ok(false);
        }
        let groups = self.way_up(ws, group)?;
        self.may_return(ws, &groups)?;
        self.cover(ws, &groups, take)
    }

    /// As [`Exec::cover`], for something with these names.
    pub(crate) fn cover_of(&mut self, ws: Uuid, names: &[NameIn], take: bool) -> Result<bool> {
        if !self.may_cover() {
            return Ok(false);
        }
        let groups = self.above(ws, names)?;
        self.cover(ws, &groups, take)
    }

    /// Fails where a group may be held by a session of the catalog before, which has not come back yet. Nothing says
    /// whether the last hold had ended, so that it is taken for alive until nobody can come back any more.
    pub(crate) fn may_return(&mut self, ws: Uuid, groups: &[Uuid]) -> Result<()> {
        if !self.core.in_grace() {
            return Ok(());
        }
        for group in groups {
            if self.entry(*group).is_some_and(|e| e.hold.is_some()) || self.has_ended(*group) {
                continue;
            }
            let epoch = if *group == ws {
                let at = self.workspace(ws, iov_types::Right::Read)?;
                self.record(at).epoch
            } else {
                self.any_record(ws, *group)?.epoch
            };
            if epoch > 0 {
                return Err(busy("the group or workspace")
                    .context("its holder may still come back, as the server has just started anew")
                    .with_clause(Clause::X2));
            }
        }
        Ok(())
    }

    /// Fails where somebody else's hold, or the loss of the caller's own, forbids a change of an object.
    pub(crate) fn may_change(&mut self, ws: Uuid, key: Uuid, names: &[NameIn]) -> Result<()> {
        if self.is_fenced(key) {
            return Err(fenced());
        }
        if self.hold_on(key).is_some_and(|h| !self.is_mine(h.holder) && self.is_live(&h)) {
            return Err(self.held(key));
        }
        if self.core.in_grace() {
            let groups = self.above(ws, names)?;
            self.may_return(ws, &groups)?;
            self.may_be_held(ws, key)?;
        }
        self.cover_of(ws, names, false).map(drop)
    }

    /// Whether somebody may have held a collection when the catalog crashed, who wrote it.
    pub(crate) fn is_lost(&self, record: &Record) -> bool {
        record.epoch > 0 && record.state != State::Sealed && self.core.has_crashed(record.opened_in)
    }

    /// Fails where an object may be held by a session of the catalog before, as an open of it does.
    fn may_be_held(&mut self, ws: Uuid, key: Uuid) -> Result<()> {
        if key == ws || self.hold_on(key).is_some() {
            return Ok(());
        }
        let Ok(record) = self.any_record(ws, key) else { return Ok(()) };
        match record.kind {
            EntryKind::Collection if self.is_lost(&record) => {
                Err(busy("it").context("its holder may still come back, as the server has just started anew"))
            }
            EntryKind::Group => self.may_return(ws, &[key]),
            _ => Ok(()),
        }
    }

    /// Fails unless the caller holds an object exclusively.
    pub(crate) fn need_hold(&mut self, key: Uuid) -> Result<()> {
        if self.is_fenced(key) {
            return Err(fenced());
        }
        if self.entry(key).and_then(|e| e.hold).is_some_and(|h| self.is_mine(h.holder)) {
            return Ok(());
        }
        Err(Error::busy("this needs an exclusive hold: open it with concurrency=exclusive").with_clause(Clause::X1))
    }

    /// Decides on an open of an object (`key`: the workspace for its root) whose record has an epoch. `lost`: a holder
    /// that this catalog knows nothing of may still be writing.
    pub(crate) fn hold(
        &mut self,
        ws: Uuid,
        key: Uuid,
        kind: EntryKind,
        epoch: u64,
        exclusive: bool,
        lost: bool,
    ) -> Result<Grant> {
        let mut passed_on = lost;
        if self.is_fenced(key) {
            return Err(fenced());
        }
        match self.hold_on(key) {
            Some(hold) if self.is_mine(hold.holder) => return Ok(Grant { epoch: hold.epoch, raised: None }),
            Some(hold) if self.is_live(&hold) || self.is_to_be_sealed(key) => return Err(self.held(key)),
            Some(hold) => {
                self.pass_on(ws, key, kind, hold.holder)?;
                passed_on = true;
            }
            None => {}
        }
        if exclusive && self.entry(key).is_some_and(|e| e.slots().any(|s| self.is_other(s))) {
            return Err(Error::busy("somebody else has it open: an exclusive hold needs it alone; wait, then repeat")
                .with_clause(Clause::X1));
        }
        if exclusive && kind == EntryKind::Group && self.others_below(ws, key)? {
            return Err(
                Error::busy("somebody else has something below it open: wait, then repeat").with_clause(Clause::X2)
            );
        }
        if !exclusive && !passed_on {
            return Ok(Grant { epoch: 0, raised: None });
        }
        // The first epoch is a creator's, of which no target has heard.
        let raised = epoch.max(FIRST_EPOCH) + 1;
        if kind == EntryKind::Collection {
            self.fence(ws, key, raised)?;
        }
        Ok(Grant { epoch: if exclusive { raised } else { 0 }, raised: Some(raised) })
    }

    /// Tells the target, which makes the object if nobody has: a late writer must not be the first to.
    fn fence(&mut self, ws: Uuid, uuid: Uuid, epoch: u64) -> Result<()> {
        if self.mode == Mode::Dry {
            return Ok(());
        }
        let facts = Facts::parse(&self.record_bytes(ws, uuid)?)?;
        let object = facts.layout.place.whole(uuid);
        // In place of an object that is gone there must be no empty one; nobody writes to it.
        let may_be_gone = facts.size > 0 || self.core.has_crashed(facts.opened_in);
        if !facts.inline && may_be_gone && check_there(self.core, &(&facts).into(), &self.target_stat(object)?).is_err()
        {
            return Ok(());
        }
        self.core.targets().fence(self.cx, ws, object, epoch)
    }

    /// Takes an object from a holder: its handles are fenced, and of a group all it holds below.
    fn pass_on(&mut self, ws: Uuid, key: Uuid, kind: EntryKind, from: Uuid) -> Result<()> {
        self.no_more_to_seal(key);
        self.change_entry(key, |entry| {
            entry.hold = None;
            entry.slots_mut().filter(|s| s.holder == from).for_each(|s| s.fenced = true);
        });
        if kind != EntryKind::Group {
            return Ok(());
        }
        let held = |e: &Entry| e.ws == ws && e.hold.is_some_and(|h| h.holder == from);
        let held: Vec<Uuid> = self.shared().opens.iter().filter(|(_, e)| held(e)).map(|(uuid, _)| uuid).collect();
        for uuid in held {
            let mut record = self.any_record(ws, uuid)?;
            if self.above(ws, &record.names)?.contains(&key) {
                self.pass_on_one(ws, uuid, &mut record, from)?;
            }
        }
        Ok(())
    }

    fn pass_on_one(&mut self, ws: Uuid, uuid: Uuid, record: &mut Record, from: Uuid) -> Result<()> {
        self.no_more_to_seal(uuid);
        self.change_entry(uuid, |entry| {
            entry.hold = None;
            entry.slots_mut().filter(|s| s.holder == from).for_each(|s| s.fenced = true);
        });
        record.epoch += 1;
        if record.kind == EntryKind::Collection {
            self.fence(ws, uuid, record.epoch)?;
            // What was written before that.
            if self.entry(uuid).is_some_and(|entry| entry.may_be_ahead()) && self.mode != Mode::Dry {
                let (at, found) = (self.workspace(ws, iov_types::Right::Read)?, self.stat_bytes(uuid, record)?);
                // The quota has its say at a publish, and what is lost is told to who opens it.
                let _ = self.record_bytes_of(at, record, &found);
            }
        }
        self.put_record(ws, uuid, record);
        Ok(())
    }

    /// Takes a group or root from a holder whose lease has ended.
    fn take_over_group(&mut self, ws: Uuid, group: Uuid) -> Result<()> {
        let Some(hold) = self.entry(group).and_then(|e| e.hold) else { return Ok(()) };
        self.pass_on(ws, group, EntryKind::Group, hold.holder)?;
        if group == ws {
            return self.raise_root(ws, hold.epoch + 1);
        }
        let mut record = self.any_record(ws, group)?;
        record.epoch += 1;
        self.put_record(ws, group, &mut record);
        Ok(())
    }

    /// Sets the epoch of a root.
    pub(crate) fn raise_root(&mut self, ws: Uuid, epoch: u64) -> Result<()> {
        let at = self.workspace(ws, iov_types::Right::Read)?;
        let mut record = (**self.record(at)).clone();
        record.epoch = epoch;
        record.revision += 1;
        self.set_workspace(ws, Some(record));
        Ok(())
    }

    /// Whether somebody else has anything below a group open.
    fn others_below(&mut self, ws: Uuid, group: Uuid) -> Result<bool> {
        let open: Vec<(Uuid, bool)> = self
            .shared()
            .opens
            .iter()
            .filter(|(uuid, e)| *uuid != group && e.ws == ws && e.slots().any(|s| self.is_other(s)))
            .map(|(uuid, e)| (uuid, e.deleted))
            .collect();
        for (uuid, deleted) in open {
            if deleted || uuid == ws {
                continue; // no name leads there from the group
            }
            let record = self.any_record(ws, uuid)?;
            if self.above(ws, &record.names)?.contains(&group) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
