//! Changes that wait for their publication, and the one step in which they show (B3, M1).

use std::sync::{Mutex, atomic::Ordering};

use iov_store::{OpCx, seam};
use iov_types::{Clause, Error, Evidence, ObjectOp, ObjectVerb, Outcome, Result, Uuid};

use super::{
    Files, Which, appends,
    appends::Appends,
    change::is_durable,
    io,
    object::{Object, State},
    stage::{
        Stage,
        plan::{Base, Plan},
    },
    tree::FileName,
};
use crate::fail;

/// From so many bytes on, free space is looked at before they are staged.
const LARGE: usize = 1 << 20;

impl Files {
    /// Stages a change.
    pub(super) fn stage_change(
        &self,
        cx: &OpCx,
        object: &Object,
        id: Uuid,
        op: &ObjectOp,
        data: &[u8],
    ) -> Result<Evidence> {
        let (demand, verb, len) = (&op.demand, &op.verb, data.len() as u64);
        let key = demand.batch.filter(|_| matches!(verb, ObjectVerb::Append));
        loop {
            let state = object.read(self, cx, Some(id))?;
            state.check_epoch(demand)?;
            let mut staged = state.stage(Some(id))?;
            let base = state.size(self, object.id)?;
            let told = |offset, staged| {
                drop(staged); // evidence looks at the stage itself
                Ok(Evidence { bytes: len, offset, ..state.evidence(self, object.id, Some(id))? })
            };
            if let Some(key) = key {
                let before = staged.as_ref().and_then(|s| s.appended(&key));
                if let Some(offset) = before.or_else(|| state.appends.as_ref().and_then(|a| a.find(&key))) {
                    return told(offset, staged);
                }
                appends::check_age(key.0, seam::now_ns())?;
                state.appends.as_ref().map_or(Ok(()), |a| a.check_known(&key))?;
            }
            state.check_change(object, demand)?;
            let before = staged.as_ref().map_or(base, |s| s.size(base));
            State::check_room(self, verb, len, demand, before)?;
            let empty = match verb {
                ObjectVerb::Write { .. } | ObjectVerb::Append => len == 0,
                ObjectVerb::Punch(range) | ObjectVerb::Allocate { range, .. } => range.len == 0,
                _ => false,
            };
            if empty {
                // Nothing changes: not the length either, wherever it points.
                let offset = if let ObjectVerb::Write { offset } = verb { *offset } else { before };
                return told(offset, staged);
            }
            let Some(stage) = staged.as_mut() else {
                drop(staged);
                drop(state);
                let mut state = object.write(self, cx, Some(id))?;
                if !state.removed {
                    let base = state.size(self, object.id)?;
                    let fresh = || Stage::new(id, object.id, base).in_domain(object.domain());
                    state.stages.entry(id).or_insert_with(|| Ok(Mutex::new(fresh())));
                }
                continue;
            };
            self.check_free(data.len())?;
            let cost = Stage::cost_of_change(verb, data.len());
            self.budget.take(id, object.id, cost)?;
            let pushed = stage.push(&self.disk, base, verb, data, key, demand.max_size);
            let offset = pushed.inspect_err(|_| self.budget.give(id, object.id, cost))?;
            if is_durable(demand) {
                stage.sync(&self.disk)?;
            }
            // As on every medium: where a change lies; for one without an offset, the length before it.
            let offset = if matches!(verb, ObjectVerb::Write { .. } | ObjectVerb::Append) { offset } else { before };
            return told(offset, staged);
        }
    }

    /// Refuses to stage what the file system has no room for.
    fn check_free(&self, len: usize) -> Result<()> {
        if len < LARGE {
            return Ok(());
        }
        let free = rustix::fs::fstatvfs(&self.disk.tree.root).map_err(io::os("asking for free space"))?;
        if free.f_bavail.saturating_mul(free.f_frsize) < len as u64 {
            let why = format!("the file system of the store has no room to stage {len} bytes; free some space");
            return Err(Error::exhausted(why).with_clause(Clause::B4));
        }
        Ok(())
    }

    /// `Freeze`: from here on publishing cannot fail for lack of anything, and nobody gets in.
    pub(super) fn freeze(&self, cx: &OpCx, op: &ObjectOp, stage: Uuid) -> Result<Evidence> {
        let object = self.object(op.object);
        let mut state = object.write(self, cx, Some(stage))?;
        state.check_change(&object, &op.demand)?;
        fail::point("freeze.0.begin")?;
        // First of all: what clients write themselves must be in before the base is measured.
        self.recall(&object, &mut state, Which::All, None)?;
        self.prepare(&object, &state, stage, false)?;
        fail::point("freeze.1.planned")?;
        object.freeze(&mut state, stage);
        self.behind.freezes(stage, object.id);
        let staged = state.stage(Some(stage))?.is_some_and(|s| !s.is_empty());
        let next = state.facts.version + u64::from(staged);
        fail::point("freeze.2.revoked")?;
        Ok(Evidence { version: next, ..state.evidence(self, object.id, Some(stage))? })
    }

    fn prepare(&self, object: &Object, state: &State, stage: Uuid, admitted: bool) -> Result<()> {
        let Some(mut staged) = state.stage(Some(stage))?.filter(|s| !s.is_empty()) else { return Ok(()) };
        if staged.decided && staged.plan.is_some() {
            return Ok(()); // it is under way, and the file may have any length
        }
        let size = state.size(self, object.id)?;
        state.trim(self, object.id)?;
        let (version, frozen) = (state.facts.version, state.frozen == Some(stage));
        let base = Base { exists: state.exists, size, version, appends: state.appends.as_ref(), frozen, admitted };
        staged.note_domain(object.domain());
        staged.prepare(&self.disk, &base, &self.leases.waits(object.id))?;
        if !admitted && let Some(plan) = staged.plan.clone().filter(|plan| state.kept.is_kept() && !plan.rename) {
            // Now it can still be refused to mix new bytes with damaged ones.
            let checked = staged.touched(&self.disk, &plan).and_then(|touched| {
                touched.into_iter().try_for_each(|(range, _)| self.check_edges(object.id, state, range, size))
            });
            checked.or_else(|e| staged.cancel_plan(&self.disk, self.leases.waits(object.id)).and(Err(e)))?;
        }
        let keyed = staged.plan.as_ref().map_or(0, |plan| plan.keyed);
        let room = self.make_room_for_facts(object, state, keyed);
        room.or_else(|e| staged.cancel_plan(&self.disk, self.leases.waits(object.id)).and(Err(e)))
    }

    /// Makes sure that the sidecar can take the new version and the places of appends.
    fn make_room_for_facts(&self, object: &Object, state: &State, keyed: u64) -> Result<()> {
        let name = FileName::Side(object.id);
        if !state.exists {
            // What an object of that name, removed earlier, may have left behind.
            self.disk.remove(name)?;
        }
        let side = self.side(object, state)?;
        appends::room(state.appends.as_ref(), keyed).into_iter().try_for_each(|range| io::make_room(&side, range))
    }

    /// `Publish`: shows what is staged, in one step. Repeating it is fine.
    pub(super) fn publish(&self, cx: &OpCx, op: &ObjectOp, stage: Uuid) -> Result<Evidence> {
        let object = self.object(op.object);
        let mut guard = object.write_now(self)?;
        let others = guard.frozen.is_some_and(|frozen| frozen != stage);
        let had_frozen = |state: &State| matches!(state.stage(Some(stage)), Ok(Some(staged)) if staged.froze);
        if others && !self.settled.load(Ordering::SeqCst) && had_frozen(&guard) {
            // At a start several may say that they have frozen it: the freezes of the others had been lifted by the start
            // before, as they never reached their point P. This one's stands.
            guard.frozen = Some(stage);
        } else if others && guard.stages.contains_key(&stage) {
            drop(guard);
            guard = object.write(self, cx, Some(stage))?;
        }
        // Else it was published before the other batch froze the object, which at a start nobody can thaw before this is
        // answered.
        let state = &mut *guard;
        if state.stages.contains_key(&stage) {
            if state.frozen != Some(stage) {
                // Nobody has frozen it, so these were not checked yet; behind a freeze they hold.
                state.check_change(&object, &op.demand)?;
                self.recall(&object, state, Which::All, None)?;
            }
            if let Some(why) = &state.torn {
                return Err(why.clone());
            }
            fail::point("publish.0.begin")?;
            self.prepare(&object, state, stage, state.frozen == Some(stage))?;
            let finished = self.finish(&object, state, stage, is_durable(&op.demand));
            if !state.stages.contains_key(&stage) {
                object.end_freeze(state, stage);
            }
            finished?;
        }
        object.end_freeze(state, stage);
        let mut evidence = state.evidence(self, object.id, None)?;
        if is_durable(&op.demand) {
            self.quiesce(&object, state)?;
            // What failed for good stays so; shown it is.
            let shown = |e: Error| if e.clause() == Some(Clause::P8) { e.with_outcome(Outcome::Applied) } else { e };
            self.sync_object(&object, state).map_err(shown)?;
            evidence.durability = op.demand.durability;
        }
        Ok(evidence)
    }

    /// Brings the publication of a prepared stage to its end. If that fails on the way, the object stays frozen: what it
    /// holds is neither old nor new until somebody publishes again.
    pub(super) fn finish(&self, object: &Object, state: &mut State, id: Uuid, durable: bool) -> Result<()> {
        let Some(mut staged) = state.stage(Some(id))? else { return Ok(()) };
        if staged.is_empty() {
            drop(staged);
            state.stages.remove(&id);
            return Ok(());
        }
        let plan = staged.plan.clone().ok_or_else(|| Error::internal("a stage without a plan"))?;
        let applied = staged.decide(&self.disk, durable).and_then(|()| {
            fail::point("publish.1.decided")?;
            // The version is raised last: where it is, all else is done.
            if state.facts.version >= plan.version {
                return Ok(None);
            }
            if state.kept.is_kept() {
                for (range, touch) in staged.touched(&self.disk, &plan)? {
                    // Edges were compared when the plan was made: now it can only go on.
                    self.open_blocks(object.id, state, range, 0, touch)?;
                }
            }
            staged.apply(&self.disk, &plan, self.leases.waits(object.id)).map(Some)
        });
        let (decided, durable) = (staged.decided, staged.durable);
        drop(staged);
        let finished = match applied {
            Ok(Some(appended)) => {
                if !state.exists {
                    state.exists = true;
                    self.births.fetch_add(1, Ordering::SeqCst);
                }
                self.disk.forget(FileName::Data(object.id));
                object.folder_unsynced.store(true, Ordering::SeqCst);
                self.record(object, state, &plan, appended, durable)
            }
            Ok(None) => Ok(()),
            Err(e) => Err(e),
        };
        if let Err(e) = finished {
            if decided {
                // What is in memory may be ahead of the disk, or behind it.
                object.reload(state);
                return Err(e.with_outcome(Outcome::Unknown));
            }
            return Err(e);
        }
        // Before the stage goes: what finds the bytes, and tells that they are published, must be there (P7).
        let synced = if durable { self.sync_object(object, state) } else { Ok(()) };
        match &synced {
            // They are shown. Once it is written down that they may be lost, nobody waits for more.
            Err(e) if e.clause() == Some(Clause::P8) => {
                if let Err(why) = self.update(object, state, false, |facts| facts.failed = true) {
                    return Err(why.with_outcome(Outcome::Unknown));
                }
            }
            other => other.clone()?,
        }
        self.budget.give_all(id, object.id);
        if let Some(Ok(staged)) = state.stages.remove(&id) {
            staged.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner).remove(&self.disk)?;
        }
        fail::point("publish.8.removed")?;
        synced.map_err(|e| e.with_outcome(Outcome::Applied))
    }

    /// Writes down where appends went, and the new version.
    fn record(
        &self,
        object: &Object,
        state: &mut State,
        plan: &Plan,
        appended: Vec<(appends::Key, u64)>,
        durable: bool,
    ) -> Result<()> {
        if state.appends.is_some() || !appended.is_empty() {
            let side = self.side(object, state)?;
            object.side_unsynced.store(true, Ordering::SeqCst);
            let log = match &mut state.appends {
                Some(log) => log,
                None => state.appends.insert(Appends::begin(&side, plan.size)?),
            };
            // Those that an earlier attempt has written down are not new.
            let new: Vec<_> = appended.into_iter().filter(|(key, _)| log.find(key).is_none()).collect();
            log.commit_all(&side, &new, plan.size)?;
        }
        fail::point("publish.5.recorded")?;
        self.update(object, state, durable, |facts| facts.version = plan.version)?;
        fail::point("publish.6.version")
    }

    /// `Discard`: drops what is staged and ends a freeze. Repeating it is fine.
    pub(super) fn discard(&self, op: &ObjectOp, stage: Uuid) -> Result<Evidence> {
        let object = self.object(op.object);
        // Not held up by another stage's freeze: nobody sees what is dropped.
        let mut state = match object.write_now(self) {
            Err(e) => return self.drop_unread(&object, stage, e),
            Ok(state) => state,
        };
        self.drop_stage(&object, &mut state, stage)?;
        state.evidence(self, object.id, None)
    }

    /// Removes a stage of an object that cannot be read, for `why`, unless its publication has begun, or may have. What the
    /// object has of it, such as room, stays there.
    pub(super) fn drop_unread(&self, object: &Object, stage: Uuid, why: Error) -> Result<Evidence> {
        let mut state = object.write_to_remove(self)?;
        if state.loaded {
            self.drop_stage(object, &mut state, stage)?;
            return state.evidence(self, object.id, None);
        }
        let evidence = state.evidence(self, object.id, None);
        object.reload(&mut state);
        if self.budget.has(stage, object.id) {
            if Stage::was_decided(&self.disk, stage, object.id)? {
                return Err(why);
            }
            Stage::new(stage, object.id, 0).remove(&self.disk)?;
            self.budget.give_all(stage, object.id);
        }
        evidence
    }

    /// `Thaw`: ends a freeze, and leaves what is staged for another try. Repeating it is fine.
    pub(super) fn thaw(&self, op: &ObjectOp, stage: Uuid) -> Result<Evidence> {
        let object = self.object(op.object);
        let mut guard = object.write_now(self)?;
        let state = &mut *guard;
        if state.frozen == Some(stage) {
            if let Some(mut staged) = state.stage(Some(stage))? {
                if staged.decided {
                    return Err(Error::conflict("the batch is being published; publish it again to finish that")
                        .with_clause(Clause::B3));
                }
                // Frozen: nobody has leave to move bytes of what it would have changed.
                staged.cancel_plan(&self.disk, self.leases.waits(object.id))?;
                staged.froze = false;
            }
            object.end_freeze(state, stage);
        }
        state.evidence(self, object.id, None)
    }

    /// Removes a stage of an object, unless its publication has begun.
    pub(super) fn drop_stage(&self, object: &Object, state: &mut State, stage: Uuid) -> Result<()> {
        let planned = |staged: &Result<Mutex<Stage>>| {
            let staged = staged.as_ref().map(|s| s.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
            staged.is_ok_and(|s| s.plan.is_some() && !s.decided)
        };
        if state.stages.get(&stage).is_some_and(planned) {
            // Since the plan was made, others may have been granted what it gives back.
            self.recall(object, state, Which::All, None)?;
        }
        match state.stages.get(&stage) {
            Some(Ok(staged)) => {
                let staged = staged.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                if staged.decided {
                    return Err(Error::conflict("the batch is being published; publish it again to finish that")
                        .with_clause(Clause::B3));
                }
                if let Some(plan) = &staged.plan {
                    staged.give_room_back(&self.disk, plan, self.leases.waits(object.id))?;
                }
                staged.remove(&self.disk)?;
            }
            Some(Err(e)) if state.torn.is_some() => return Err(e.clone()),
            Some(Err(_)) => Stage::new(stage, object.id, 0).remove(&self.disk)?,
            None => {}
        }
        if !state.exists && !state.removed {
            // Made when the stage was prepared.
            self.disk.remove(FileName::Side(object.id))?;
        }
        state.stages.remove(&stage);
        self.budget.give_all(stage, object.id);
        object.end_freeze(state, stage);
        Ok(())
    }
}
