//! One object on the heap: its state under one lock, and the freeze that keeps everybody out around point P.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Condvar, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
    time::Duration,
};

use iov_types::{
    Clause, Demand, Error, Evidence, ObjectVerb, Outcome, Persistence, Range, Result, Uuid, limits::BATCH_MEMORY_NS,
};

use super::{
    body::Body,
    budget::Budget,
    stage::{Change, Key, Stage},
};
use crate::{Memory, OpCx, seam};

#[derive(Default)]
pub(super) struct State {
    body: Body,
    version: u64,
    epoch: u64,
    sealed: bool,
    removed: bool,
    mtime_ns: i64,
    stages: HashMap<Uuid, Stage>,
    frozen: Option<Uuid>,
    /// Where published appends went, by batch and sequence number (M4). Version 7 ids sort by time, the oldest first.
    appended: BTreeMap<Key, u64>,
}

#[derive(Default)]
pub(super) struct Object {
    state: RwLock<State>,
    thaw: (Mutex<bool>, Condvar),
}

/// The stage that may pass a freeze: its own.
fn passes(state: &State, stage: Option<Uuid>) -> bool {
    state.frozen.is_none() || state.frozen == stage
}

impl Object {
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

    fn read(&self, cx: &OpCx, stage: Option<Uuid>) -> Result<RwLockReadGuard<'_, State>> {
        loop {
            let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
            if passes(&state, stage) {
                return Ok(state);
            }
            drop(state);
            self.wait_for_thaw(cx)?;
        }
    }

    fn write(&self, cx: &OpCx, stage: Option<Uuid>) -> Result<RwLockWriteGuard<'_, State>> {
        loop {
            let state = self.state.write().unwrap_or_else(PoisonError::into_inner);
            if passes(&state, stage) {
                return Ok(state);
            }
            drop(state);
            self.wait_for_thaw(cx)?;
        }
    }

    /// Carries out any verb but `Create`, `Copy` and `List`, which concern the whole heap.
    pub(super) fn run(
        &self,
        cx: &OpCx,
        verb: &ObjectVerb,
        demand: &Demand,
        memory: &mut Memory,
        budget: &Budget,
    ) -> Result<Evidence> {
        match verb {
            ObjectVerb::Read { offset } => {
                let state = self.read(cx, demand.stage)?;
                state.check_epoch(demand)?;
                if memory.bytes_mut().len() < memory.len() {
                    return Err(Error::invalid("a read into memory that was lent for reading only"));
                }
                let bytes = match demand.stage.and_then(|s| state.stages.get(&s)) {
                    Some(stage) => stage.read(&state.body, *offset, memory.bytes_mut()),
                    None => state.body.read(*offset, memory.bytes_mut()),
                };
                Ok(Evidence { bytes: bytes as u64, offset: *offset, ..state.evidence(demand.stage) })
            }
            ObjectVerb::Stat | ObjectVerb::Sync => {
                let state = self.read(cx, demand.stage)?;
                state.check_epoch(demand)?;
                Ok(state.evidence(demand.stage))
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
                state.prepare(*stage)?;
                // In this order: whoever sees the mark must find something to wait for.
                self.set_frozen(true);
                state.frozen = Some(*stage);
                let version = state.version + u64::from(state.stages.contains_key(stage));
                Ok(Evidence { version, ..state.evidence(Some(*stage)) })
            }
            ObjectVerb::Publish { stage } => {
                let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
                if !state.stages.contains_key(stage) && state.frozen != Some(*stage) {
                    // Nothing of it is left to be shown: no other batch's freeze is in its way.
                    return Ok(state.evidence(None));
                }
                drop(state);
                self.publish(cx, *stage, demand, budget)
            }
            ObjectVerb::Discard { stage } => {
                // Not held up by another stage's freeze: nobody sees what is dropped.
                let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
                if let Some(staged) = state.stages.remove(stage) {
                    budget.give(*stage, staged.cost());
                }
                self.end_freeze(&mut state, *stage);
                Ok(state.evidence(None))
            }
            ObjectVerb::Seal => {
                let mut state = self.write(cx, None)?;
                state.check_epoch(demand)?;
                state.sealed = true;
                Ok(state.evidence(None))
            }
            ObjectVerb::Fence { epoch } => {
                let mut state = self.write(cx, None)?;
                state.check_epoch(demand)?;
                if *epoch < state.epoch {
                    return Err(Error::conflict(format!("epoch {epoch} is behind the object's {}", state.epoch)));
                }
                state.epoch = *epoch;
                Ok(state.evidence(None))
            }
            ObjectVerb::Remove => {
                // Not held up by a freeze: its batch has no say in whether the object lives on, and may be dead.
                let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
                if !state.removed {
                    state.check_epoch(demand)?;
                    for (id, staged) in state.stages.drain() {
                        budget.give(id, staged.cost());
                    }
                    *state = State { removed: true, ..State::default() };
                    self.set_frozen(false);
                }
                Ok(Evidence::default())
            }
            ObjectVerb::Write { .. }
            | ObjectVerb::Append
            | ObjectVerb::Truncate { .. }
            | ObjectVerb::Punch(_)
            | ObjectVerb::Allocate { .. } => self.change(cx, verb, demand, memory, budget),
            ObjectVerb::Create | ObjectVerb::Copy { .. } | ObjectVerb::List { .. } => {
                Err(Error::internal("not an operation on one object"))
            }
        }
    }

    fn end_freeze(&self, state: &mut State, stage: Uuid) {
        if state.frozen == Some(stage) {
            state.frozen = None;
            self.set_frozen(false);
        }
    }

    fn publish(&self, cx: &OpCx, stage: Uuid, demand: &Demand, budget: &Budget) -> Result<Evidence> {
        let mut guard = self.write(cx, Some(stage))?;
        let state = &mut *guard;
        if state.frozen != Some(stage) && state.stages.contains_key(&stage) {
            // Nobody has frozen it, so these were not checked yet; behind a freeze they hold.
            state.check_change(demand)?;
            state.prepare(stage)?;
        }
        let mut result = Ok(());
        if let Some(staged) = state.stages.remove(&stage) {
            budget.give(stage, staged.cost());
            state.version += 1;
            if !staged.is_empty() {
                state.mtime_ns = seam::now_ns();
            }
            result = staged.apply(&mut state.body, &mut state.appended);
            state.forget_old_appends();
        }
        self.end_freeze(state, stage);
        result.map_err(|e| e.with_outcome(Outcome::Unknown))?;
        Ok(state.evidence(None))
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
        let offset = match verb {
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
            state.stages.entry(id).or_default().push(change, offset, demand.max_size);
        } else {
            match verb {
                ObjectVerb::Write { offset } => state.body.write(*offset, memory.bytes())?,
                ObjectVerb::Append => state.body.write(before, memory.bytes())?,
                ObjectVerb::Truncate { size } => state.body.truncate(*size)?,
                ObjectVerb::Punch(range) => state.body.punch(*range),
                ObjectVerb::Allocate { range, keep_size } => state.body.allocate(*range, *keep_size)?,
                _ => return Err(Error::internal("not a change")),
            }
            state.mtime_ns = seam::now_ns();
            if let Some(key) = key {
                state.appended.insert(key, offset);
                state.forget_old_appends();
            }
        }
        Ok(Evidence { bytes: len, offset, ..state.evidence(demand.stage) })
    }
}

/// Whether a batch id is older than what is remembered; ids of other versions than 7 tell no time.
fn is_old(batch: Uuid, now_ns: i64) -> bool {
    batch.version() == 7 && batch.unix_ms() < now_ns.saturating_sub(BATCH_MEMORY_NS).max(0) as u64 / 1_000_000
}

fn check_age(batch: Uuid) -> Result<()> {
    if is_old(batch, seam::now_ns()) {
        let why = "the batch id is older than 24 hours: whether it was carried out is no longer known; look, then use a new one";
        return Err(Error::stale(why).with_clause(Clause::B3));
    }
    Ok(())
}

impl State {
    fn check_epoch(&self, demand: &Demand) -> Result<()> {
        if self.removed {
            return Err(Error::not_found("the collection was deleted").with_clause(Clause::O10));
        }
        if demand.epoch != 0 && demand.epoch < self.epoch {
            return Err(Error::fenced("another holder has opened it since; close, then reopen").with_clause(Clause::X1));
        }
        Ok(())
    }

    fn check_change(&self, demand: &Demand) -> Result<()> {
        self.check_epoch(demand)?;
        if self.sealed {
            return Err(Error::immutable("the collection is sealed; write to a new one").with_clause(Clause::M2));
        }
        Ok(())
    }

    /// Where an append went, if it came before.
    fn find_append(&self, key: &Key, stage: Option<Uuid>) -> Option<u64> {
        let staged = stage.and_then(|s| self.stages.get(&s)).and_then(|s| s.appended(key));
        staged.or_else(|| self.appended.get(key).copied())
    }

    fn forget_old_appends(&mut self) {
        while let Some(oldest) = self.appended.first_entry() {
            if !is_old(oldest.key().0, self.mtime_ns) {
                break;
            }
            oldest.remove();
        }
    }

    /// Checks a change of `len` bytes of memory against the largest offset and `max_size`; the length before it.
    fn check_room(&self, verb: &ObjectVerb, len: u64, demand: &Demand) -> Result<u64> {
        let before = demand.stage.map_or(self.body.size(), |s| self.staged_size(s));
        let end = match verb {
            ObjectVerb::Write { offset } => {
                Range::new(*offset, len).map(|r| if len == 0 { before } else { r.end() })?
            }
            ObjectVerb::Append => Range::new(before, len)?.end(),
            ObjectVerb::Truncate { size } => Range::new(*size, 0)?.end(),
            ObjectVerb::Punch(range) => Range::new(range.offset, range.len).map(|_| before)?,
            ObjectVerb::Allocate { range, keep_size } => {
                let end = Range::new(range.offset, range.len)?.end();
                if *keep_size || range.len == 0 { before } else { end }
            }
            _ => before,
        };
        if demand.max_size != 0 && end > demand.max_size && end > before {
            return Err(Error::file_too_big(format!(
                "byte {end} is beyond collection_size.max = {}; use a collection with a larger limit",
                demand.max_size
            ))
            .with_clause(Clause::H1));
        }
        Ok(before)
    }

    /// Makes sure that publishing this stage now cannot fail.
    fn prepare(&mut self, stage: Uuid) -> Result<()> {
        let Some(staged) = self.stages.get_mut(&stage) else { return Ok(()) };
        staged.drop_repeated(&self.appended);
        staged.prepare(&mut self.body)
    }

    fn staged_size(&self, stage: Uuid) -> u64 {
        self.stages.get(&stage).map_or(self.body.size(), |s| s.size(self.body.size()))
    }

    fn evidence(&self, stage: Option<Uuid>) -> Evidence {
        Evidence {
            size: stage.map_or(self.body.size(), |s| self.staged_size(s)),
            allocated: self.body.allocated(),
            version: self.version,
            epoch: self.epoch,
            mtime_ns: if stage.is_some_and(|s| self.stages.contains_key(&s)) { seam::now_ns() } else { self.mtime_ns },
            durability: Some(Persistence::Volatile),
            ..Evidence::default()
        }
    }
}
