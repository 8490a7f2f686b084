//! Changes of bytes that show at once: write, append, truncate, punch, allocate.

use std::{os::fd::OwnedFd, sync::Arc, sync::atomic::Ordering};

use iov_store::{OpCx, seam};
use iov_types::{Demand, Error, Evidence, ObjectId, ObjectOp, ObjectVerb, Outcome, Persistence, Range, Result};

use super::{
    Files, Which,
    appends::{self, Appends},
    body::Body,
    io,
    journal::UnitChange,
    object::{Object, State},
    sidecar::{self, Facts},
    sums::Touch,
    tree::FileName,
};
use crate::fail;

/// Whether a demand wants power loss survived.
pub(super) fn is_durable(demand: &Demand) -> bool {
    demand.durability.is_some_and(|level| level >= Persistence::Durable)
}

fn is_empty(verb: &ObjectVerb, len: u64) -> bool {
    match verb {
        ObjectVerb::Write { .. } | ObjectVerb::Append => len == 0,
        ObjectVerb::Punch(range) | ObjectVerb::Allocate { range, .. } => range.len == 0,
        _ => false,
    }
}

impl Files {
    /// Carries out a change of bytes.
    pub(super) fn change(&self, cx: &OpCx, op: &ObjectOp, data: &[u8]) -> Result<Evidence> {
        let object = self.object(op.object);
        if let Some(stage) = op.demand.stage {
            return self.stage_change(cx, &object, stage, op, data);
        }
        if matches!(op.verb, ObjectVerb::Write { .. })
            && op.demand.unit == 0
            && let Some(evidence) = self.write_shared(cx, &object, op, data)?
        {
            return Ok(evidence);
        }
        let (demand, verb, len) = (&op.demand, &op.verb, data.len() as u64);
        let mut guard = object.write(self, cx, None)?;
        let state = &mut *guard;
        state.check_epoch(demand)?;
        let key = demand.batch.filter(|_| matches!(verb, ObjectVerb::Append));
        if let Some(key) = key {
            // Before the seal is looked at: this one has taken effect already, and a retry must hear so.
            if let Some(offset) = state.appends.as_ref().and_then(|a| a.find(&key)) {
                if is_durable(demand) {
                    self.quiesce(&object, state)?;
                }
                self.settle(&object, state, demand, None)?;
                return self.told(state, op, len, offset);
            }
            appends::check_age(key.0, seam::now_ns())?;
            state.appends.as_ref().map_or(Ok(()), |a| a.check_known(&key))?;
        }
        state.check_change(&object, demand)?;
        let appends = matches!(verb, ObjectVerb::Append);
        let begins = if appends { state.appends.is_none() } else { demand.unit > 0 && !state.unit };
        // In memory, bytes that are cut away lie where others will: who moves bytes has to know.
        let takes =
            matches!(verb, ObjectVerb::Truncate { .. } | ObjectVerb::Punch(_)) && self.disk.segments().is_some();
        if (begins || takes) && !is_empty(verb, len) {
            // Who looks past our lock does not know where appends end, and could see a part of a unit. Before the length
            // is looked at: writes under way may still change it.
            self.recall(&object, state, Which::All, None)?;
            state.unit |= begins && !appends;
        }
        let before = state.size(self, object.id)?;
        State::check_room(self, verb, len, demand, before)?;
        let offset = if let ObjectVerb::Write { offset } = verb { *offset } else { before };
        if is_empty(verb, len) {
            // Nothing changes: not the length either, wherever it points.
            return self.told(state, op, len, offset);
        }
        self.ensure(&object, state)?;
        let (touched, touch) = match verb {
            ObjectVerb::Truncate { size } => (Range { offset: *size, len: before.saturating_sub(*size) }, Touch::Clear),
            ObjectVerb::Punch(range) => (*range, Touch::Clear),
            // They hold zeros before and afterwards.
            ObjectVerb::Allocate { .. } => (Range::default(), Touch::Clear),
            _ => (Range { offset, len }, Touch::Write),
        };
        self.open_blocks(object.id, state, touched, before, touch)?;
        let changed = match verb {
            ObjectVerb::Append => self.append(&object, state, demand, data, before),
            ObjectVerb::Write { offset } => self.write_exclusive(&object, state, demand, *offset, data),
            ObjectVerb::Truncate { size } => self.truncate(&object, state, demand, before, *size),
            ObjectVerb::Punch(range) if demand.unit > 0 => {
                let body = state.data(&self.disk, object.id)?;
                self.journaled(&object, UnitChange::Punch(*range), demand, &body)
            }
            ObjectVerb::Punch(range) => state.data(&self.disk, object.id)?.punch(*range, self.leases.waits(object.id)),
            ObjectVerb::Allocate { range, keep_size } => {
                state.trim(self, object.id)?;
                let end = if *keep_size { before } else { before.max(range.end()) };
                state
                    .data(&self.disk, object.id)?
                    .allocate(*range, *keep_size)
                    .and_then(|()| self.commit_end(&object, state, end))
            }
            _ => Err(Error::internal("not a change")),
        };
        changed.inspect_err(|e| {
            if object.half_done.load(Ordering::SeqCst) {
                // Begun and not finished: until that is done again, nobody may see it.
                state.torn = Some(e.clone());
            }
        })?;
        if takes && let Some(shared) = state.data(&self.disk, object.id)?.shared().filter(|s| s.is_wasteful()) {
            // An index is written anew by moving nothing; nobody is granted anything now.
            self.relocate_shared(&object, state, shared, &[])?;
        }
        let quiet = if is_durable(demand) { self.quiesce(&object, state) } else { Ok(()) };
        quiet
            .and_then(|()| self.settle(&object, state, demand, Some(Range { offset, len })))
            .map_err(|e| e.with_outcome(Outcome::Unknown))?;
        self.told(state, op, len, offset)
    }

    fn told(&self, state: &State, op: &ObjectOp, bytes: u64, offset: u64) -> Result<Evidence> {
        let mut evidence = state.evidence(self, op.object, op.demand.stage)?;
        if is_durable(&op.demand) {
            evidence.durability = op.demand.durability;
        }
        Ok(Evidence { bytes, offset, ..evidence })
    }

    /// A write that keeps no other out; `None` if it has to.
    fn write_shared(&self, cx: &OpCx, object: &Object, op: &ObjectOp, data: &[u8]) -> Result<Option<Evidence>> {
        let ObjectVerb::Write { offset } = op.verb else { return Ok(None) };
        let state = object.read(self, cx, None)?;
        let summed = state.kept.is_guarded() || (is_durable(&op.demand) && self.sums.is_kept());
        if summed || !state.exists || state.appends.is_some() {
            return Ok(None);
        }
        let len = data.len() as u64;
        state.check_change(object, &op.demand)?;
        State::check_room(self, &op.verb, len, &op.demand, state.size(self, object.id)?)?;
        if len > 0 {
            state.data(&self.disk, object.id)?.write_all(data, offset)?;
            let settled = self.settle(object, &state, &op.demand, Some(Range { offset, len }));
            settled.map_err(|e| e.with_outcome(Outcome::Unknown))?;
        }
        self.told(&state, op, len, offset).map(Some)
    }

    /// Makes the file of an object that has none.
    pub(super) fn ensure(&self, object: &Object, state: &mut State) -> Result<()> {
        if state.exists {
            return Ok(());
        }
        // What an object of that name, removed earlier, may have left behind.
        self.disk.remove(FileName::Side(object.id))?;
        self.disk.create_body(FileName::Data(object.id), object.domain())?;
        object.folder_unsynced.store(true, Ordering::SeqCst);
        state.exists = true;
        self.births.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    /// The sidecar of an object, made if it is not there.
    pub(super) fn side(&self, object: &Object, state: &State) -> Result<Arc<OwnedFd>> {
        let name = FileName::Side(object.id);
        if let Some(file) = self.disk.get(name, true)? {
            return Ok(file);
        }
        let file = self.disk.create(name)?;
        object.folder_unsynced.store(true, Ordering::SeqCst);
        object.side_unsynced.store(true, Ordering::SeqCst);
        let mut facts = state.facts;
        sidecar::store(&file, &mut facts, object.id, false)?;
        Ok(file)
    }

    /// Changes facts in the sidecar, then in memory.
    pub(super) fn update(
        &self,
        object: &Object,
        state: &mut State,
        durable: bool,
        change: impl FnOnce(&mut Facts),
    ) -> Result<()> {
        let mut facts = state.facts;
        change(&mut facts);
        let file = self.side(object, state)?;
        object.side_unsynced.store(true, Ordering::SeqCst);
        sidecar::store(&file, &mut facts, object.id, durable)?;
        state.facts = facts;
        Ok(())
    }

    fn append(&self, object: &Object, state: &mut State, demand: &Demand, data: &[u8], end: u64) -> Result<()> {
        fail::point("append.0.begin")?;
        let side = self.side(object, state)?;
        if state.appends.is_none() {
            // From now on the end is where the log says.
            state.appends = Some(Appends::begin(&side, end)?);
        }
        let body = state.data(&self.disk, object.id)?;
        if fail::is_armed("append.1.half_written") {
            body.write_all(&data[..data.len() / 2], end)?;
            fail::point("append.1.half_written")?;
        }
        let durable = is_durable(demand);
        let committed = body
            .write_all(data, end)
            .and_then(|()| fail::point("append.2.written"))
            // The bytes before the record that counts them.
            .and_then(|()| if durable { self.sync_file(object, &body) } else { Ok(()) })
            .and_then(|()| match &mut state.appends {
                Some(log) => log.commit(&side, demand.batch, end, end + data.len() as u64),
                None => Err(Error::internal("an object lost its log of appends")),
            });
        if let Err(e) = committed {
            // What was written lies behind the end, where nobody sees it; the space is given back as far as possible.
            let _ = body.truncate(end, self.leases.waits(object.id));
            return Err(e.with_outcome(Outcome::NotApplied));
        }
        object.side_unsynced.store(true, Ordering::SeqCst);
        fail::point("append.3.committed")
    }

    /// Tells the log of appends that the object ends elsewhere now, if there is a log.
    pub(super) fn commit_end(&self, object: &Object, state: &mut State, end: u64) -> Result<()> {
        if state.appends.is_none() {
            return Ok(());
        }
        let side = self.side(object, state)?;
        object.side_unsynced.store(true, Ordering::SeqCst);
        match &mut state.appends {
            Some(log) if log.end() != end => log.commit(&side, None, 0, end),
            _ => Ok(()),
        }
    }

    fn write_exclusive(
        &self,
        object: &Object,
        state: &mut State,
        demand: &Demand,
        offset: u64,
        data: &[u8],
    ) -> Result<()> {
        let end = offset + data.len() as u64;
        let grows = end > state.size(self, object.id)?;
        if grows {
            state.trim(self, object.id)?;
        }
        let body = state.data(&self.disk, object.id)?;
        if demand.unit == 0 {
            body.write_all(data, offset)?;
        } else {
            self.write_units(object, demand, &body, offset, data)?;
        }
        // The bytes are there by now.
        let counted = if grows { self.commit_end(object, state, end) } else { Ok(()) };
        counted.map_err(|e| e.with_outcome(Outcome::Unknown))
    }

    /// Writes whole units at a time through the journal.
    fn write_units(&self, object: &Object, demand: &Demand, body: &Body, offset: u64, data: &[u8]) -> Result<()> {
        let unit = demand.unit;
        let piece = (io::PIECE as u64).max(unit);
        // So that nothing is lacking in the middle of it.
        body.make_room(Range { offset, len: data.len() as u64 })?;
        let mut at = offset;
        while at < offset + data.len() as u64 {
            let next = ((at + piece) / unit * unit).min(offset + data.len() as u64);
            let bytes = &data[(at - offset) as usize..(next - offset) as usize];
            let change = UnitChange::Write { offset: at, data: bytes };
            let written = fail::point("unit.0.begin").and_then(|()| self.journaled(object, change, demand, body));
            written.map_err(|e| if at > offset { e.with_outcome(Outcome::Unknown) } else { e })?;
            at = next;
        }
        Ok(())
    }

    fn journaled(&self, object: &Object, change: UnitChange<'_>, demand: &Demand, body: &Body) -> Result<()> {
        object.journal_unsynced.store(true, Ordering::SeqCst);
        let durable = is_durable(demand);
        let apply = || {
            if let UnitChange::Write { offset, data } = change
                && fail::is_armed("unit.3.half_applied")
            {
                body.write_all(&data[..data.len() / 2], offset)?;
                fail::point("unit.3.half_applied")?;
            }
            self.apply_unit(object.id, body, change)?;
            if durable { self.sync_file(object, body) } else { Ok(()) }
        };
        self.journal.run(&self.disk, object.id, change, durable, || {
            apply().inspect_err(|_| object.half_done.store(true, Ordering::SeqCst))
        })
    }

    fn truncate(&self, object: &Object, state: &mut State, demand: &Demand, before: u64, size: u64) -> Result<()> {
        if size < before && state.appends.is_some() {
            // Readers were told an end that appends may cross again, half-written.
            self.recall(object, state, Which::All, None)?;
            self.commit_end(object, state, size)?;
        }
        state.trim(self, object.id)?;
        let body = state.data(&self.disk, object.id)?;
        if demand.unit > 0 {
            self.journaled(object, UnitChange::Truncate { size }, demand, &body)?;
        } else {
            body.truncate(size, self.leases.waits(object.id))?;
        }
        self.commit_end(object, state, size)
    }

    /// Makes a unit in its object what the journal says.
    pub(super) fn redo(&self, id: ObjectId, body: &Body, change: UnitChange<'_>) -> Result<()> {
        self.apply_unit(id, body, change).map_err(|e| e.context(format!("finishing a change of {id:?}")))
    }

    fn apply_unit(&self, id: ObjectId, body: &Body, change: UnitChange<'_>) -> Result<()> {
        match change {
            UnitChange::Write { offset, data } => body.write_all(data, offset),
            UnitChange::Truncate { size } => body.truncate(size, self.leases.waits(id)),
            UnitChange::Punch(range) => body.punch(range, self.leases.waits(id)),
        }
    }
}
