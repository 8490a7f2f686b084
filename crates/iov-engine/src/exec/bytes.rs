//! From operations to object operations, and from evidence to statuses.

use std::sync::Arc;

use iov_semantics::Contract;
use iov_store::{Memory, Submitted};
use iov_types::{
    Clause, Counters, Demand, EntryKind, Error, Evidence, Mutability, ObjectOp, ObjectVerb, Persistence, Point, Result,
};

use super::{Covers, Exec};
use crate::{
    Collection, Op,
    op::{Output, Status},
};

impl Exec {
    /// The contract that holds for a handle in this batch.
    pub(super) fn contract(&self, c: &Collection) -> Result<Arc<Contract>> {
        let ready = self.ready_contract(c)?;
        match &self.controls {
            None => Ok(ready),
            Some(asked) => {
                let capability = c.capability();
                let effective = iov_semantics::resolve::batch(&ready.effective, asked, &capability)
                    .and_then(|e| iov_semantics::admit(&e, None, &capability));
                effective.map(Arc::new).map_err(|refusal| {
                    Counters::add(&self.session.counters().refusals, 1);
                    refusal.error
                })
            }
        }
    }

    pub(super) fn data_handle(&self, c: &Collection, changes: bool) -> Result<Arc<Contract>> {
        self.check_handle(c)?;
        if c.kind() == EntryKind::Group {
            return Err(Error::invalid("a group holds names but no bytes").with_clause(Clause::O3));
        }
        let contract = self.contract(c)?;
        if changes {
            self.session.refuse_if_readonly()?;
            self.check_writes(c, &contract)?;
        }
        Ok(contract)
    }

    pub(super) fn may_overwrite(&self, contract: &Contract, i: usize) -> Result<()> {
        let append_only = contract.effective.mutability == Mutability::Append;
        if append_only && !matches!(self.ops[i], Op::Append { .. }) {
            return Err(Error::immutable("the collection is append only: use append, or another collection")
                .with_clause(Clause::M4));
        }
        Ok(())
    }

    fn demand(&self, c: &Collection, contract: &Contract, changes: bool) -> Result<Demand> {
        if changes && self.stage.is_none() {
            c.open_stage(contract);
        }
        let mut demand = self.handle_demand(c, contract, changes)?;
        if let Some(stage) = self.stage {
            if c.has_stage() {
                return Err(Error::busy(
                    "the handle holds unpublished changes of atomicity=publication: commit them before a rollback batch",
                )
                .with_clause(Clause::B3));
            }
            demand.stage = Some(stage);
            demand.durability = None;
        }
        Ok(demand)
    }

    /// The operations for targets, each with its memory, which moves out of the batch.
    pub(super) fn object_ops(&mut self, i: usize) -> Result<Vec<Submitted>> {
        let (c, changes) = match &self.ops[i] {
            Op::Read { c, .. } | Op::Extents { c, .. } => (c.clone(), false),
            Op::Write { c, .. }
            | Op::Append { c, .. }
            | Op::Truncate { c, .. }
            | Op::Punch { c, .. }
            | Op::Allocate { c, .. }
            | Op::Copy { dst: c, .. } => (c.clone(), true),
            _ => return Err(Error::internal("not an operation on bytes")),
        };
        let contract = self.data_handle(&c, changes)?;
        self.check_attached(i)?;
        self.expect_all(i, &c);
        if changes {
            self.may_overwrite(&contract, i)?;
        }
        let mut demand = self.demand(&c, &contract, changes)?;
        let object = c.object()?;
        let sequence = self.append_key(i);
        let one = |verb, demand: Demand, memory| (ObjectOp { object, verb, demand }, memory);
        Ok(match &mut self.ops[i] {
            Op::Write { chunks, .. } => chunks
                .drain(..)
                .map(|(offset, memory)| one(ObjectVerb::Write { offset }, demand.clone(), memory))
                .collect(),
            Op::Read { chunks, .. } => chunks
                .drain(..)
                .map(|(offset, memory)| one(ObjectVerb::Read { offset }, demand.clone(), memory))
                .collect(),
            Op::Append { memory, .. } => {
                demand.batch = sequence;
                vec![one(ObjectVerb::Append, demand, std::mem::take(memory))]
            }
            Op::Truncate { size, .. } => vec![one(ObjectVerb::Truncate { size: *size }, demand, Memory::default())],
            Op::Punch { range, .. } => vec![one(ObjectVerb::Punch(*range), demand, Memory::default())],
            Op::Allocate { range, keep_size, .. } => {
                let verb = ObjectVerb::Allocate { range: *range, keep_size: *keep_size };
                vec![one(verb, demand, Memory::default())]
            }
            Op::Extents { range, max, .. } => {
                vec![one(ObjectVerb::Extents { range: *range, max: *max }, demand, Memory::default())]
            }
            Op::Copy { src, src_offset, dst_offset, len, .. } => {
                let (src, source_offset, offset, len) = (src.clone(), *src_offset, *dst_offset, *len);
                self.data_handle(&src, false)?;
                // It may have been pending until just now.
                self.check_attached(i)?;
                let verb = ObjectVerb::Copy { source: src.object()?, source_offset, offset, len };
                vec![one(verb, demand, Memory::default())]
            }
            _ => return Err(Error::internal("not an operation on bytes")),
        })
    }

    /// Turns the evidence for an operation into its status, and remembers what a later close must do.
    pub(super) fn evidence(&mut self, i: usize, evidence: Vec<Result<Evidence>>) -> Status {
        let mut bytes = 0;
        let mut output = Output::None;
        let mut error = None;
        for e in evidence {
            match e {
                Ok(e) => {
                    bytes += e.bytes;
                    output = match &self.ops[i] {
                        Op::Append { .. } => Output::Offset(e.offset),
                        Op::Extents { .. } => Output::Extents(e.extents),
                        _ => Output::None,
                    };
                }
                Err(e) => error = error.or(Some(e)),
            }
        }
        let error = self.check_all(i, bytes, error);
        let counters = self.session.counters();
        match &self.ops[i] {
            Op::Read { .. } => Counters::add(&counters.bytes_read, bytes),
            Op::Extents { .. } => {}
            Op::Write { c, .. }
            | Op::Append { c, .. }
            | Op::Truncate { c, .. }
            | Op::Punch { c, .. }
            | Op::Allocate { c, .. }
            | Op::Copy { dst: c, .. } => {
                Counters::add(&counters.bytes_written, bytes);
                // What a rollback batch stages it publishes itself, and has it survive: then nothing is left to be told or synced
                // for it, and what was written besides still is.
                if self.stage.is_none() {
                    self.changed(c);
                    if bytes > 0 && self.contract(c).is_ok_and(|contract| !contract.staged) {
                        c.mark_written();
                    }
                }
                self.touched.push((c.clone(), i));
            }
            _ => {}
        }
        match error {
            None => Status::ok(bytes, output),
            Some(e) => {
                if let (Op::Write { c, .. } | Op::Append { c, .. }, Some(Clause::P8)) = (&self.ops[i], e.clause()) {
                    c.mark_broken(&e);
                }
                Status { bytes, ..Status::failed(e) }
            }
        }
    }

    /// Bytes were changed by a handle: the catalog is to be told, and where the contract wants it the target to sync them.
    pub(super) fn changed(&self, c: &Collection) {
        c.mark_changed();
        if self.contract(c).is_ok_and(|contract| contract.durability >= Persistence::Durable)
            && let Ok(object) = c.object()
        {
            c.workspace().note_unsynced(object);
        }
    }

    /// The syncs that commit, persist or close of a handle, or persist of a workspace, need before the catalog hears of it.
    pub(super) fn sync_ops(&self, i: usize) -> Result<(Vec<Submitted>, Covers)> {
        let sync = |object, demand| (ObjectOp { object, verb: ObjectVerb::Sync, demand }, Memory::default());
        if let Op::WorkspacePersist { w } = &self.ops[i] {
            w.check()?;
            let demand = Demand { durability: Some(Persistence::Durable), ..Demand::default() };
            let (objects, in_workspace) = w.unsynced();
            let ops = objects.iter().map(|object| sync(*object, demand.clone())).collect();
            return Ok((ops, Covers { objects, in_workspace, of_handle: 0 }));
        }
        let Some(c) = self.ops[i].handle() else { return Ok(Default::default()) };
        let covers = Covers::of(c);
        self.check_handle(c)?;
        c.broken()?;
        let contract = self.contract(c)?;
        let wanted = match &self.ops[i] {
            Op::Persist { .. } => true,
            Op::Close { .. } => contract.effective.point == Point::Close || c.has_stage(),
            // A publication becomes visible and persistent together (M1).
            Op::Commit { .. } | Op::Seal { .. } => c.has_stage(),
            _ => false,
        };
        // What is to be persisted may have been written by another handle, or by another process. Bytes beside a record go with that,
        // where the catalog says that they are there, and a group has none. A rollback batch does not ask the catalog for that: the
        // target finds nothing to do then.
        let in_record = c.is_inline() && self.stage.is_none() && !self.beyond.contains(&i) && self.may_probe();
        let by_others = matches!(self.ops[i], Op::Persist { .. }) && !in_record && !c.is_group();
        let may_be_unsynced = c.is_unsynced() || by_others;
        if !wanted || contract.durability < Persistence::Durable || !may_be_unsynced {
            return Ok(Default::default());
        }
        let demand = Demand { durability: Some(contract.durability), ..self.handle_demand(c, &contract, false)? };
        Ok((vec![sync(c.object()?, demand)], covers))
    }
}
