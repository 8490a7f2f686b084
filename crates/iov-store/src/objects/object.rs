//! One object: its state under one lock, and the freeze that keeps everybody out around point P.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Condvar, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
    time::Duration,
};

use iov_types::{
    Clause, Demand, Error, Evidence, ObjectVerb, Outcome, Persistence, Range, Result, Uuid, limits::BATCH_MEMORY_NS,
};

use super::{
    AppendKey, Body, Call,
    budget::Budget,
    stage::{Change, Stage},
};
use crate::{Memory, OpCx, seam};

struct State<B> {
    body: B,
    version: u64,
    epoch: u64,
    sealed: bool,
    removed: bool,
    mtime_ns: i64,
    stages: HashMap<Uuid, Stage>,
    frozen: Option<Uuid>,
    /// Where published appends went, by batch and sequence number (M4). Version 7 ids sort by time, the oldest first.
    appended: BTreeMap<AppendKey, u64>,
}

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
        let Evidence { version, epoch, mtime_ns, .. } = body.earlier();
        let state = State {
            body,
            version,
            epoch,
            sealed: false,
            removed: false,
            mtime_ns,
            stages: HashMap::new(),
            frozen: None,
            appended: BTreeMap::new(),
        };
        Object { state: RwLock::new(state), thaw: Default::default() }
    }

    /// Whether nothing is known of it that the medium does not know.
    pub(super) fn is_idle(&self) -> bool {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        state.stages.is_empty() && state.frozen.is_none() && state.appended.is_empty()
    }

    pub(super) fn has_stage(&self, stage: Uuid) -> bool {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        state.stages.contains_key(&stage) || state.frozen == Some(stage)
    }

    /// Drops a stage that has not frozen it.
    pub(super) fn abandon(&self, stage: Uuid, budget: &Budget) {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        if state.frozen != Some(stage)
            && let Some(staged) = state.stages.remove(&stage)
        {
            budget.give(stage, staged.cost());
        }
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
                state.body.sync(call)?;
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
                    false => self.settle(call, *stage, true),
                }
            }
            ObjectVerb::Discard { stage } => {
                // Not held up by another stage's freeze: nobody sees what is dropped.
                let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
                let frozen = state.frozen == Some(*stage);
                let Some(staged) = state.stages.remove(stage) else {
                    self.end_freeze(&mut state, *stage);
                    drop(state);
                    return if frozen { self.look() } else { self.settle(call, *stage, false) };
                };
                budget.give(*stage, staged.cost());
                self.end_freeze(&mut state, *stage);
                if frozen {
                    state.body.unprepare(call, *stage)?;
                }
                Ok(state.evidence(None))
            }
            ObjectVerb::Seal => {
                let mut state = self.write(cx, None)?;
                state.check_epoch(demand)?;
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

    /// As everybody sees it.
    fn look(&self) -> Result<Evidence> {
        Ok(self.state.read().unwrap_or_else(PoisonError::into_inner).evidence(None))
    }

    /// Ends a stage of which nothing is known here.
    fn settle(&self, call: Call<'_>, stage: Uuid, publish: bool) -> Result<Evidence> {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        if !state.removed && state.body.settle(call, stage, publish)? {
            let Evidence { version, mtime_ns, .. } = state.body.earlier();
            state.version = state.version.max(version);
            state.mtime_ns = state.mtime_ns.max(mtime_ns);
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
        let mut result = Ok(());
        if let Some(staged) = state.stages.remove(&stage) {
            budget.give(stage, staged.cost());
            state.version += 1;
            if !staged.is_empty() {
                state.mtime_ns = seam::now_ns();
            }
            result = state.body.publish(call, stage, staged).map(|appended| state.appended.extend(appended));
            state.forget_old_appends();
        }
        self.end_freeze(state, stage);
        result.map_err(|e| e.with_outcome(Outcome::Unknown))?;
        Ok(state.survives(call.demand, None))
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
            state.stages.entry(id).or_default().push(change, offset, demand.max_size);
        } else {
            match verb {
                ObjectVerb::Write { offset } => state.body.write(call, *offset, memory.bytes())?,
                ObjectVerb::Append => offset = state.body.append(call, memory.bytes(), key)?,
                ObjectVerb::Truncate { size } => state.body.truncate(call, *size)?,
                ObjectVerb::Punch(range) => state.body.punch(call, *range)?,
                ObjectVerb::Allocate { range, keep_size } => state.body.allocate(call, *range, *keep_size)?,
                _ => return Err(Error::internal("not a change")),
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

impl<B: Body> State<B> {
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
    fn find_append(&self, key: &AppendKey, stage: Option<Uuid>) -> Option<u64> {
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
    fn prepare(&mut self, call: Call<'_>, stage: Uuid) -> Result<()> {
        let Some(staged) = self.stages.get_mut(&stage) else { return Ok(()) };
        staged.drop_repeated(&self.appended);
        staged.check_size(self.body.size())?;
        self.body.prepare(call, stage, staged).inspect_err(|_| {
            // What was made ready in vain; the error to tell is the first one.
            let _ = self.body.unprepare(call, stage);
        })
    }

    fn staged_size(&self, stage: Uuid) -> u64 {
        self.stages.get(&stage).map_or(self.body.size(), |s| s.size(self.body.size()))
    }

    /// Of an operation that was to survive something; the medium has seen to it.
    fn survives(&self, demand: &Demand, stage: Option<Uuid>) -> Evidence {
        let asked = demand.durability.unwrap_or(Persistence::Volatile);
        Evidence { durability: Some(asked.max(Persistence::Volatile)), ..self.evidence(stage) }
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
