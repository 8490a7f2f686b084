//! A target whose objects are run by this process: epochs, seals, stages, freezes and repeated appends are looked after here,
//! bytes lie in a [`Medium`].

mod budget;
mod copy;
mod intervals;
mod medium;
mod object;
mod shape;
mod stage;
mod state;

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError, RwLock},
};

use budget::Budget;
use iov_types::{
    Capability, Clause, Demand, Error, Evidence, ObjectId, ObjectOp, ObjectVerb, Persistence, Range, Result, Uuid,
};
use object::Object;

pub(crate) use copy::whole_units;
pub use medium::{AppendKey, Body, Call, Medium, Space};
pub use shape::Shape;
pub use stage::{Change, Stage};
pub use state::{failed_before, seal_over_changes};

use crate::{Backend, Memory, OpCx, Sink, backend::Submitted};

/// Objects kept in memory while nobody uses them, where they could be found again.
const IDLE: usize = 65_536;

struct Table<B> {
    known: BTreeMap<ObjectId, Arc<Object<B>>>,
    /// When to look for idle ones again.
    sweep_at: usize,
    /// How often that was done.
    sweeps: u64,
}

/// Objects over a medium.
pub struct Objects<M: Medium> {
    capability: Capability,
    medium: M,
    table: RwLock<Table<M::Body>>,
    budget: Budget,
}

impl<M: Medium> Objects<M> {
    /// Objects over a medium, with this capability.
    pub fn over(capability: Capability, medium: M) -> Objects<M> {
        let budget = Budget::new(capability.stage_bytes);
        let table = RwLock::new(Table { known: BTreeMap::new(), sweep_at: IDLE, sweeps: 0 });
        Objects { capability, medium, table, budget }
    }

    /// Where the bytes lie.
    pub fn medium(&self) -> &M {
        &self.medium
    }

    /// Whether a stage holds anything.
    pub fn has_stage(&self, stage: Uuid) -> bool {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        table.known.values().any(|object| object.has_stage(stage))
    }

    /// Drops a stage whose owner is gone. Where it has frozen an object the catalog decides about it.
    pub fn abandon_stage(&self, cx: &OpCx, stage: Uuid) -> Result<()> {
        let objects: Vec<_> = {
            let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
            table.known.values().filter(|object| object.has_stage(stage)).cloned().collect()
        };
        let call = Call { cx, demand: &Demand::NONE };
        objects.iter().try_for_each(|object| object.abandon(call, stage, &self.budget))
    }

    /// Drops what a process before has prepared for publication, but for the stages to keep: nobody may change their objects until
    /// they are published. What could not be done.
    pub fn settle(&self, cx: &OpCx, keep: &[Uuid]) -> Vec<Error> {
        let mut failed = self.medium.settle(cx, keep);
        for (id, stage) in self.medium.prepared().into_iter().filter(|(_, stage)| keep.contains(stage)) {
            match self.find_or_create(cx, id) {
                Ok(object) => object.freeze_for(stage),
                Err(e) => failed.push(e),
            }
        }
        failed
    }

    /// Whether there is an object.
    pub fn has_object(&self, cx: &OpCx, id: ObjectId) -> Result<bool> {
        self.find(cx, id).map(|found| found.is_some())
    }

    /// One that is in use, and how often idle ones have been left out so far.
    fn known(&self, id: ObjectId) -> (Option<Arc<Object<M::Body>>>, u64) {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        (table.known.get(&id).cloned(), table.sweeps)
    }

    fn find(&self, cx: &OpCx, id: ObjectId) -> Result<Option<Arc<Object<M::Body>>>> {
        loop {
            let (known, sweeps) = self.known(id);
            if known.is_some() {
                return Ok(known);
            }
            let Some(body) = self.medium.find(cx, id)? else { return Ok(None) };
            if let Some(object) = self.enter(id, body, sweeps) {
                return Ok(Some(object));
            }
        }
    }

    fn find_or_create(&self, cx: &OpCx, id: ObjectId) -> Result<Arc<Object<M::Body>>> {
        loop {
            let (_, sweeps) = self.known(id);
            if let Some(object) = self.find(cx, id)? {
                return Ok(object);
            }
            if let Some(object) = self.enter(id, self.medium.create(id), sweeps) {
                return Ok(object);
            }
        }
    }

    /// Another one may have been quicker: then it is that one's. `None`: idle ones were left out since `sweeps` were counted,
    /// and this one may have been among them, with changes that the body does not know of.
    fn enter(&self, id: ObjectId, body: M::Body, sweeps: u64) -> Option<Arc<Object<M::Body>>> {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(object) = table.known.get(&id) {
            return Some(object.clone());
        }
        if table.sweeps != sweeps {
            return None;
        }
        if self.medium.keeps() && table.known.len() >= table.sweep_at {
            // Nobody can get hold of one that only this table has while the table is locked.
            table.known.retain(|_, object| Arc::strong_count(object) > 1 || !object.is_idle());
            table.sweep_at = table.known.len().saturating_mul(2).max(IDLE);
            table.sweeps += 1;
        }
        Some(table.known.entry(id).or_insert_with(|| Arc::new(Object::new(body))).clone())
    }

    fn list(&self, cx: &OpCx, after: Option<ObjectId>, max: usize) -> Result<Vec<ObjectId>> {
        use std::ops::Bound::{Excluded, Unbounded};
        if let Some(objects) = self.medium.list(cx, after, max)? {
            return Ok(objects);
        }
        let from = after.map_or(Unbounded, Excluded);
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        Ok(table.known.range((from, Unbounded)).map(|(id, _)| *id).take(max).collect())
    }

    fn check(&self, op: &ObjectOp) -> Result<()> {
        if op.demand.unit > self.capability.max_unit {
            return Err(Error::refused(
                Clause::M1,
                format!("units of {} bytes; offer: atomicity=unit({})", op.demand.unit, self.capability.max_unit),
            ));
        }
        let (best, place) = self.medium.survives();
        let Some(level) = op.demand.durability.filter(|level| *level > best) else { return Ok(()) };
        let clause = match level {
            Persistence::Volatile | Persistence::Process => Clause::P2,
            Persistence::Durable => Clause::P3,
            Persistence::Replicated => Clause::P4,
        };
        let why = format!("{place} cannot be {}; offer: persistence={}", level.text(), best.text());
        Err(Error::refused(clause, why))
    }

    fn run(&self, cx: &OpCx, op: &ObjectOp, memory: &mut Memory) -> Result<Evidence> {
        self.check(op)?;
        match &op.verb {
            ObjectVerb::Remove => {
                let Some(object) = self.find(cx, op.object)? else { return Ok(Evidence::default()) };
                let evidence = object.run(cx, &op.verb, &op.demand, memory, &self.budget)?;
                let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
                if table.known.get(&op.object).is_some_and(|now| Arc::ptr_eq(now, &object)) {
                    table.known.remove(&op.object);
                }
                Ok(evidence)
            }
            ObjectVerb::List { after, max } => {
                self.list(cx, *after, *max).map(|objects| Evidence { objects, ..Evidence::default() })
            }
            ObjectVerb::Copy { source, source_offset, offset, len } => {
                self.copy(cx, op, (*source, Range::new(*source_offset, *len)?), Range::new(*offset, *len)?)
            }
            // A collection that nobody wrote has no object: it is empty, and there is nothing to show or drop.
            ObjectVerb::Read { .. }
            | ObjectVerb::Stat
            | ObjectVerb::Extents { .. }
            | ObjectVerb::Publish { .. }
            | ObjectVerb::Discard { .. }
            | ObjectVerb::Thaw { .. }
            | ObjectVerb::Sync => match self.find(cx, op.object)? {
                Some(object) => {
                    let mut evidence = object.run(cx, &op.verb, &op.demand, memory, &self.budget)?;
                    if op.verb == ObjectVerb::Sync {
                        // Who has written it must be able to tell it from one that is gone, also where it is empty by now and the medium
                        // tells neither versions nor times: it was changed at some time.
                        evidence.mtime_ns = evidence.mtime_ns.max(1);
                    }
                    Ok(evidence)
                }
                // Nothing survives whatever there is, so that whoever persists before the first write has what was asked for.
                None if op.verb == ObjectVerb::Sync => {
                    let durability = op.demand.durability.max(Some(Persistence::Volatile));
                    Ok(Evidence { durability, ..Evidence::default() })
                }
                None => Ok(Evidence::default()),
            },
            _ => self.find_or_create(cx, op.object)?.run(cx, &op.verb, &op.demand, memory, &self.budget),
        }
    }
}

impl<M: Medium> Backend for Objects<M> {
    fn capability(&self) -> &Capability {
        &self.capability
    }

    fn submit(&self, cx: &OpCx, ops: Vec<Submitted>, sink: Arc<dyn Sink>) {
        for (index, (op, mut memory)) in ops.into_iter().enumerate() {
            let evidence = self.run(cx, &op, &mut memory);
            sink.complete(index, evidence);
        }
    }
}
