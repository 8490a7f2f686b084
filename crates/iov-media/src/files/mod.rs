//! A target that keeps each object in a file of one directory: `file:DIR`.
//!
//! An object has no file until it is first changed; an absent one is empty. Facts that the file itself cannot hold lie
//! in a sidecar, which only objects that need one have. Operations run on the thread that submits them. What is promised
//! and by which means is told in `docs/adr/0006-file-target.md`.

mod appends;
mod body;
mod change;
mod control;
mod copy;
mod disk;
mod earlier;
mod grants;
mod io;
mod journal;
mod leases;
mod lent;
mod listing;
mod look;
mod object;
mod options;
mod process;
mod read;
mod recover;
mod sidecar;
mod stage;
mod staged;
mod sums;
mod sync;
mod tree;
mod way;

#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

pub use grants::{Granted, Lent, Peer, Which};
pub use leases::void_grants;
pub use options::Options;
pub use sums::OpenSums;
pub use way::Way;

use disk::Disk;
use earlier::Behind;
use iov_store::{Backend, Memory, OpCx, Sink, Submitted};
use iov_types::{
    Capability, Clause, Error, Evidence, Kind, ObjectId, ObjectOp, ObjectVerb, Outcome, Persistence, Range, Result,
};
use journal::Journal;
use leases::Leases;
use listing::Listing;
use object::Object;
use stage::budget::Budget;
use sums::SumStore;
use tree::FileName;

/// Objects in use.
#[derive(Default)]
struct Objects {
    known: HashMap<ObjectId, Arc<Object>>,
    /// When to look for idle ones again.
    sweep_at: usize,
}

/// Objects as files.
pub struct Files {
    disk: Disk,
    capability: Capability,
    objects: Mutex<Objects>,
    object_limit: usize,
    budget: Budget,
    journal: Journal,
    leases: Leases,
    sums: SumStore,
    listing: Listing,
    /// It is known what becomes of the stages of an earlier daemon.
    settled: AtomicBool,
    behind: Behind,
    /// Objects that got a file.
    births: AtomicU64,
    /// Temporary files that got a name.
    temporary: AtomicU64,
    /// The largest length of a file here.
    max_file: u64,
    /// What recovery could not bring to its end.
    troubles: Vec<Error>,
}

impl Files {
    fn object(&self, id: ObjectId) -> Arc<Object> {
        let mut objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(object) = objects.known.get(&id) {
            return object.clone();
        }
        if objects.known.len() >= objects.sweep_at.max(self.object_limit) {
            // Nobody can get hold of one that only this table has while the table is locked.
            objects.known.retain(|_, object| Arc::strong_count(object) > 1 || !object.is_idle());
            objects.sweep_at = objects.known.len() * 2;
        }
        let object = Arc::new(Object::new(id));
        objects.known.insert(id, object.clone());
        object
    }

    /// Every object in use.
    fn known(&self) -> Vec<Arc<Object>> {
        let objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        objects.known.values().cloned().collect()
    }

    fn temp(&self) -> FileName {
        FileName::Temp(self.temporary.fetch_add(1, Ordering::SeqCst))
    }

    fn check_demand(&self, op: &ObjectOp) -> Result<()> {
        if op.demand.unit > self.capability.max_unit {
            return Err(Error::refused(
                Clause::M1,
                format!("units of {} bytes; offer: atomicity=unit({})", op.demand.unit, self.capability.max_unit),
            ));
        }
        let offer = self.capability.durability;
        if let Some(level) = op.demand.durability.filter(|level| *level > offer) {
            let clause = if level == Persistence::Replicated { Clause::P4 } else { Clause::P3 };
            let why = if offer < Persistence::Durable { "its directory lies in memory" } else { "it is one copy" };
            return Err(Error::refused(
                clause,
                format!("a file store cannot be {}, as {why}; offer: persistence={}", level.text(), offer.text()),
            ));
        }
        Ok(())
    }

    fn run(&self, cx: &OpCx, op: &ObjectOp, memory: &mut Memory) -> Result<Evidence> {
        self.check_look(&op.verb)?;
        self.check_demand(op)?;
        if let Some(domain) = op.demand.domain.filter(|_| self.disk.segments().is_some()) {
            self.object(op.object).note_domain(domain);
        }
        let mut result = self.carry_out(cx, op, memory);
        let lacks_space = |e: &Error| e.kind() == Kind::Exhausted && e.outcome() == Outcome::NotApplied;
        if result.as_ref().is_err_and(lacks_space) && self.find_space() {
            result = self.carry_out(cx, op, memory);
        }
        if result.as_ref().is_err_and(|e| e.clause() == Some(Clause::P8)) {
            self.record_failure(&self.object(op.object));
        }
        result
    }

    fn carry_out(&self, cx: &OpCx, op: &ObjectOp, memory: &mut Memory) -> Result<Evidence> {
        match &op.verb {
            ObjectVerb::Create => self.create(op),
            ObjectVerb::Read { offset } => self.read(cx, op, *offset, memory),
            ObjectVerb::Stat => self.stat(cx, op),
            ObjectVerb::Extents { range, max } => self.extents(cx, op, *range, *max),
            ObjectVerb::List { after, max } => self.list(*after, *max),
            ObjectVerb::Copy { source, source_offset, offset, len } => {
                self.copy(cx, op, (*source, Range::new(*source_offset, *len)?), Range::new(*offset, *len)?)
            }
            ObjectVerb::Sync => self.sync(cx, op),
            ObjectVerb::Seal => self.seal(cx, op),
            ObjectVerb::Fence { epoch } => self.fence(cx, op, *epoch),
            ObjectVerb::Freeze { stage } => self.freeze(cx, op, *stage),
            ObjectVerb::Publish { stage } => self.publish(cx, op, *stage),
            ObjectVerb::Discard { stage } => self.discard(op, *stage),
            ObjectVerb::Thaw { stage } => self.thaw(op, *stage),
            ObjectVerb::Remove => self.remove(op),
            ObjectVerb::Write { .. }
            | ObjectVerb::Append
            | ObjectVerb::Truncate { .. }
            | ObjectVerb::Punch(_)
            | ObjectVerb::Allocate { .. } => self.change(cx, op, memory.bytes()),
        }
    }
}

impl Backend for Files {
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
