//! One object: its state under one lock, and the freeze that keeps everybody out around point P.

use std::{
    sync::{Condvar, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
    time::Duration,
};

use iov_types::{Clause, Demand, Error, Evidence, ObjectVerb, Outcome, Result, Uuid};

use super::{
    Body, Call,
    budget::Budget,
    stage::Change,
    state::{State, check_age, seal_over_changes},
};
use crate::{Memory, OpCx, seam};

pub(super) struct Object<B> {
    state: RwLock<State<B>>,
    thaw: (Mutex<bool>, Condvar),
}

/// The stage that may pass a freeze: its own.
fn passes<B>(state: &State<B>, stage: Option<Uuid>) -> bool {
    state.frozen.is_none() || state.frozen == stage
}

impl<B: Body> Object<B> {
    pub(super) fn new(body: B) -> Object<B> {
        Object { state: RwLock::new(State::new(body)), thaw: Default::default() }
    }

    /// Whether nothing is known of it that the medium does not know.
    pub(super) fn is_idle(&self) -> bool {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        state.stages.is_empty() && state.frozen.is_none() && state.appended.is_empty() && !state.sync_failed
    }

    pub(super) fn has_stage(&self, stage: Uuid) -> bool {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        state.stages.contains_key(&stage) || state.frozen == Some(stage)
    }

    /// Nobody comes before a stage that the catalog has decided for (B3).
    pub(super) fn freeze_for(&self, stage: Uuid) {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        self.set_frozen(true);
        state.frozen = Some(stage);
    }

    /// Drops a stage that has not frozen it.
    pub(super) fn abandon(&self, call: Call<'_>, stage: Uuid, budget: &Budget) -> Result<()> {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        if state.frozen == Some(stage) { Ok(()) } else { self.drop_stage(&mut state, call, stage, budget) }
    }

    fn wait_for_thaw(&self, cx: &OpCx) -> Result<()> {
        let mut frozen = self.thaw.0.lock().unwrap_or_else(PoisonError::into_inner);
        while *frozen {
            let left = cx.left_ns();
            if left == 0 {
                return Err(Error::timeout("the object is being published by another batch").with_clause(Clause::B3));
            }
            let wait = Duration::from_nanos(left as u64);
            frozen = self.thaw.1.wait_timeout(frozen, wait).unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(())
    }

    fn set_frozen(&self, frozen: bool) {
        *self.thaw.0.lock().unwrap_or_else(PoisonError::into_inner) = frozen;
        self.thaw.1.notify_all();
    }

    fn read(&self, cx: &OpCx, stage: Option<Uuid>) -> Result<RwLockReadGuard<'_, State<B>>> {
        loop {
            let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
            if passes(&state, stage) {
                return Ok(state);
            }
            drop(state);
            self.wait_for_thaw(cx)?;
        }
    }

    fn write(&self, cx: &OpCx, stage: Option<Uuid>) -> Result<RwLockWriteGuard<'_, State<B>>> {
        loop {
            let state = self.state.write().unwrap_or_else(PoisonError::into_inner);
            if passes(&state, stage) {
                return Ok(state);
            }
            drop(state);
            self.wait_for_thaw(cx)?;
        }
    }

    /// Carries out any verb but `Copy` and `List`, which concern the whole target.
    pub(super) fn run(
        &self,
        cx: &OpCx,
        verb: &ObjectVerb,
        demand: &Demand,
        memory: &mut Memory,
        budget: &Budget,
    ) -> Result<Evidence> {
        let call = Call { cx, demand };
        match verb {
            ObjectVerb::Create => {
                let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
                // One that is just being removed does not come back (O10).
                if !state.removed {
                    state.body.create(call)?;
                }
                Ok(Evidence::default())
            }
            ObjectVerb::Read { offset } => {
                let state = self.read(cx, demand.stage)?;
                state.check_epoch(demand)?;
                if memory.bytes_mut().len() < memory.len() {
                    return Err(Error::invalid("a read into memory that was lent for reading only"));
                }
                let bytes = match demand.stage.and_then(|s| state.stages.get(&s)) {
                    Some(stage) => stage.read(&state.body, call, *offset, memory.bytes_mut())?,
                    None => state.body.read(call, *offset, memory.bytes_mut())?,
                };
                Ok(Evidence { bytes: bytes as u64, offset: *offset, ..state.evidence(demand.stage) })
            }
            ObjectVerb::Stat => {
                let state = self.read(cx, demand.stage)?;
                state.check_epoch(demand)?;
                Ok(state.evidence(demand.stage))
            }
            ObjectVerb::Sync => {
                let mut state = self.write(cx, demand.stage)?;
                state.check_epoch(demand)?;
                if let Some(staged) = demand.stage.and_then(|stage| state.stages.get_mut(&stage)) {
                    // It is in memory yet: with its publication it must survive that.
                    staged.must_survive(demand.durability);
                    return Ok(state.survives(demand, demand.stage));
                }
                state.check_sync(demand)?;
                let synced = state.body.sync(call);
                state.judge(demand, synced)?;
                Ok(state.survives(demand, demand.stage))
            }
            ObjectVerb::Extents { range, max } => {
                let state = self.read(cx, demand.stage)?;
                state.check_epoch(demand)?;
                let extents = match demand.stage.and_then(|s| state.stages.get(&s)) {
                    Some(stage) => stage.shape(state.body.shape()).extents(*range, *max),
                    None => state.body.extents(*range, *max),
                };
                Ok(Evidence { extents, ..state.evidence(demand.stage) })
            }
            ObjectVerb::Freeze { stage } => {
                let mut state = self.write(cx, Some(*stage))?;
                state.check_change(demand)?;
                state.prepare(call, *stage)?;
                // In this order: whoever sees the mark must find something to wait for.
                self.set_frozen(true);
                state.frozen = Some(*stage);
                let version = state.version + u64::from(state.stages.contains_key(stage));
                Ok(Evidence { version, ..state.evidence(Some(*stage)) })
            }
            ObjectVerb::Publish { stage } => {
                let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
                let known = state.stages.contains_key(stage) || state.frozen == Some(*stage);
                drop(state);
                match known {
                    true => self.publish(call, *stage, budget),
                    // Nothing of it is left to be shown here: no other batch's freeze is in its way.
                    false => self.settle(call, *stage),
                }
            }
            ObjectVerb::Discard { stage } => {
                // Not held up by another stage's freeze: nobody sees what is dropped.
                let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
                self.drop_stage(&mut state, call, *stage, budget)?;
                Ok(state.evidence(None))
            }
            ObjectVerb::Thaw { stage } => {
                let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
                if state.frozen == Some(*stage) {
                    state.body.unprepare(call, *stage)?;
                    self.end_freeze(&mut state, *stage);
                }
                Ok(state.evidence(None))
            }
            ObjectVerb::Seal => {
                // Whoever seals several objects at once has frozen them before.
                let mut state = self.write(cx, demand.stage)?;
                state.check_epoch(demand)?;
                if demand.stage.is_some_and(|stage| state.stages.contains_key(&stage)) {
                    return Err(seal_over_changes());
                }
                state.body.seal(call)?;
                state.sealed = true;
                Ok(state.survives(demand, None))
            }
            ObjectVerb::Fence { epoch } => {
                let mut state = self.write(cx, None)?;
                state.check_epoch(demand)?;
                if *epoch < state.epoch {
                    return Err(Error::conflict(format!("epoch {epoch} is behind the object's {}", state.epoch)));
                }
                state.body.fence(call, *epoch)?;
                state.epoch = *epoch;
                Ok(state.survives(demand, None))
            }
            ObjectVerb::Remove => {
                // Not held up by a freeze: its batch has no say in whether the object lives on, and may be dead.
                let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
                if !state.removed {
                    state.check_epoch(demand)?;
                    state.body.remove(call)?;
                    for (id, staged) in state.stages.drain() {
                        budget.give(id, staged.cost());
                    }
                    (state.removed, state.sealed, state.frozen) = (true, false, None);
                    (state.version, state.epoch, state.mtime_ns) = (0, 0, 0);
                    state.appended.clear();
                    self.set_frozen(false);
                }
                Ok(Evidence::default())
            }
            ObjectVerb::Write { .. }
            | ObjectVerb::Append
            | ObjectVerb::Truncate { .. }
            | ObjectVerb::Punch(_)
            | ObjectVerb::Allocate { .. } => self.change(cx, verb, demand, memory, budget),
            ObjectVerb::Copy { .. } | ObjectVerb::List { .. } => Err(Error::internal("not an operation on one object")),
        }
    }

    fn end_freeze(&self, state: &mut State<B>, stage: Uuid) {
        if state.frozen == Some(stage) {
            state.frozen = None;
            self.set_frozen(false);
        }
    }

    /// Drops a stage, here and wherever it was prepared. One that is dropped again is tried again there.
    fn drop_stage(&self, state: &mut State<B>, call: Call<'_>, stage: Uuid, budget: &Budget) -> Result<()> {
        if let Some(staged) = state.stages.remove(&stage) {
            budget.give(stage, staged.cost());
        }
        self.end_freeze(state, stage);
        if state.removed { Ok(()) } else { state.body.unprepare(call, stage) }
    }

    /// Publishes a stage of which nothing is known here.
    fn settle(&self, call: Call<'_>, stage: Uuid) -> Result<Evidence> {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        if !state.removed && state.body.settle(call, stage)? {
            state.take_earlier();
        }
        Ok(state.evidence(None))
    }

    fn publish(&self, call: Call<'_>, stage: Uuid, budget: &Budget) -> Result<Evidence> {
        let mut guard = self.write(call.cx, Some(stage))?;
        let state = &mut *guard;
        if state.frozen != Some(stage) && state.stages.contains_key(&stage) {
            // Nobody has frozen it, so these were not checked yet; behind a freeze they hold.
            state.check_change(call.demand)?;
            state.prepare(call, stage)?;
        }
        let Some(mut staged) = state.stages.remove(&stage) else {
            // Frozen for what a process before has prepared, or for nothing.
            if state.body.settle(call, stage)? {
                state.take_earlier();
            }
            self.end_freeze(state, stage);
            return Ok(state.evidence(None));
        };
        let (cost, is_empty) = (staged.cost(), staged.is_empty());
        let demand = staged.demand(call.demand);
        let published = state.body.publish(Call { demand: &demand, ..call }, stage, &mut staged);
        if let Err(e) = published {
            if !staged.is_empty() {
                // Behind point P it must be shown, and nobody may come before it: it is tried again (B3).
                state.stages.insert(stage, staged);
            } else {
                budget.give(stage, cost);
                self.end_freeze(state, stage);
            }
            return Err(e.with_outcome(Outcome::Unknown));
        }
        budget.give(stage, cost);
        state.version += 1;
        if !is_empty {
            state.mtime_ns = seam::now_ns();
        }
        state.appended.extend(published?);
        state.forget_old_appends();
        self.end_freeze(state, stage);
        Ok(state.survives(&demand, None))
    }

    /// Whether a write of `len` bytes at `offset` would be admitted now.
    pub(super) fn may_write(&self, cx: &OpCx, demand: &Demand, offset: u64, len: u64) -> Result<()> {
        let state = self.read(cx, demand.stage)?;
        state.check_change(demand)?;
        state.check_room(&ObjectVerb::Write { offset }, len, demand).map(|_| ())
    }

    fn change(
        &self,
        cx: &OpCx,
        verb: &ObjectVerb,
        demand: &Demand,
        memory: &Memory,
        budget: &Budget,
    ) -> Result<Evidence> {
        let call = Call { cx, demand };
        let mut guard = self.write(cx, demand.stage)?;
        let state = &mut *guard;
        state.check_epoch(demand)?;
        let len = memory.len() as u64;
        let key = demand.batch.filter(|_| matches!(verb, ObjectVerb::Append));
        if let Some(key) = key {
            // Before the seal is looked at: this one has taken effect already, and a retry must hear so.
            if let Some(offset) = state.find_append(&key, demand.stage) {
                return Ok(Evidence { bytes: len, offset, ..state.evidence(demand.stage) });
            }
            check_age(key.0)?;
        }
        state.check_change(demand)?;
        let before = state.check_room(verb, len, demand)?;
        let mut offset = match verb {
            ObjectVerb::Write { offset } => *offset,
            _ => before,
        };
        let empty = match verb {
            ObjectVerb::Write { .. } | ObjectVerb::Append => len == 0,
            ObjectVerb::Punch(range) | ObjectVerb::Allocate { range, .. } => range.len == 0,
            _ => false,
        };
        if empty {
            // Nothing changes: not the length either, wherever it points.
        } else if let Some(id) = demand.stage {
            let change = match verb {
                ObjectVerb::Write { offset } => Change::Write { offset: *offset, data: memory.bytes().to_vec() },
                ObjectVerb::Append => Change::Append { data: memory.bytes().to_vec(), key },
                ObjectVerb::Truncate { size } => Change::Truncate { size: *size },
                ObjectVerb::Punch(range) => Change::Punch(*range),
                ObjectVerb::Allocate { range, keep_size } => Change::Allocate { range: *range, keep_size: *keep_size },
                _ => return Err(Error::internal("not a change")),
            };
            budget.take(id, change.cost())?;
            let staged = state.stages.entry(id).or_default();
            staged.push(change, offset, demand.max_size);
            staged.must_survive(demand.durability);
        } else {
            state.check_sync(demand)?;
            let done = match verb {
                ObjectVerb::Write { offset } => state.body.write(call, *offset, memory.bytes()),
                ObjectVerb::Append => state.body.append(call, memory.bytes(), key).map(|appended| offset = appended),
                ObjectVerb::Truncate { size } => state.body.truncate(call, *size),
                ObjectVerb::Punch(range) => state.body.punch(call, *range),
                ObjectVerb::Allocate { range, keep_size } => state.body.allocate(call, *range, *keep_size),
                _ => return Err(Error::internal("not a change")),
            };
            match done {
                // Nothing of it was written, so that nothing is in doubt (O7).
                Err(e) if e.outcome() == Outcome::NotApplied => return Err(e),
                done => state.judge(demand, done)?,
            }
            state.mtime_ns = seam::now_ns();
            if let Some(key) = key {
                state.appended.insert(key, offset);
                state.forget_old_appends();
            }
        }
        Ok(Evidence { bytes: len, offset, ..state.survives(demand, demand.stage) })
    }
}
