//! What is known of one object, and the checks that every change must pass.

use std::collections::{BTreeMap, HashMap};

use iov_types::{
    Clause, Demand, Error, Evidence, Kind, ObjectVerb, Persistence, Range, Result, Uuid, limits::BATCH_MEMORY_NS,
};

use super::{AppendKey, Body, Call, stage::Stage};
use crate::seam;

/// What is known of an object, under its lock.
pub(super) struct State<B> {
    pub(super) body: B,
    pub(super) version: u64,
    pub(super) epoch: u64,
    pub(super) sealed: bool,
    pub(super) removed: bool,
    pub(super) mtime_ns: i64,
    pub(super) stages: HashMap<Uuid, Stage>,
    pub(super) frozen: Option<Uuid>,
    /// A sync has failed: what it was for is not taken for safe any more (P8).
    pub(super) sync_failed: bool,
    /// Where published appends went, by batch and sequence number (M4). Version 7 ids sort by time, the oldest first.
    pub(super) appended: BTreeMap<AppendKey, u64>,
}

/// Whether a batch id is older than what is remembered; ids of other versions than 7 tell no time.
fn is_old(batch: Uuid, now_ns: i64) -> bool {
    batch.version() == 7 && batch.unix_ms() < now_ns.saturating_sub(BATCH_MEMORY_NS).max(0) as u64 / 1_000_000
}

/// What was to be durable may be lost, and nothing takes it for safe any more (P8).
pub fn failed_before() -> Error {
    Error::corrupt(
        "a sync of this collection has failed: what was written before it may be lost; read what is there, and write it to a \
         new collection",
    )
    .with_clause(Clause::P8)
}

pub(super) fn check_age(batch: Uuid) -> Result<()> {
    if is_old(batch, seam::now_ns()) {
        let why = "the batch id is older than 24 hours: whether it was carried out is no longer known; look, then use a new one";
        return Err(Error::stale(why).with_clause(Clause::B3));
    }
    Ok(())
}

impl<B: Body> State<B> {
    /// As the medium has it.
    pub(super) fn new(body: B) -> State<B> {
        let Evidence { version, epoch, mtime_ns, .. } = body.earlier();
        State {
            body,
            version,
            epoch,
            sealed: false,
            removed: false,
            mtime_ns,
            stages: HashMap::new(),
            frozen: None,
            sync_failed: false,
            appended: BTreeMap::new(),
        }
    }

    pub(super) fn check_epoch(&self, demand: &Demand) -> Result<()> {
        if self.removed {
            return Err(Error::not_found("the collection was deleted").with_clause(Clause::O10));
        }
        if demand.epoch != 0 && demand.epoch < self.epoch {
            return Err(Error::fenced("another holder has opened it since; close, then reopen").with_clause(Clause::X1));
        }
        Ok(())
    }

    pub(super) fn check_change(&self, demand: &Demand) -> Result<()> {
        self.check_epoch(demand)?;
        if self.sealed {
            return Err(Error::immutable("the collection is sealed; write to a new one").with_clause(Clause::M2));
        }
        Ok(())
    }

    /// Where an append went, if it came before.
    pub(super) fn find_append(&self, key: &AppendKey, stage: Option<Uuid>) -> Option<u64> {
        let staged = stage.and_then(|s| self.stages.get(&s)).and_then(|s| s.appended(key));
        staged.or_else(|| self.appended.get(key).copied())
    }

    pub(super) fn forget_old_appends(&mut self) {
        while let Some(oldest) = self.appended.first_entry() {
            if !is_old(oldest.key().0, self.mtime_ns) {
                break;
            }
            oldest.remove();
        }
    }

    /// Checks a change of `len` bytes of memory against the largest offset and `max_size`; the length before it.
    pub(super) fn check_room(&self, verb: &ObjectVerb, len: u64, demand: &Demand) -> Result<u64> {
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
    pub(super) fn prepare(&mut self, call: Call<'_>, stage: Uuid) -> Result<()> {
        let Some(staged) = self.stages.get_mut(&stage) else { return Ok(()) };
        staged.drop_repeated(&self.appended);
        staged.check_size(self.body.size())?;
        let demand = staged.demand(call.demand);
        if self.sync_failed && demand.durability >= Some(Persistence::Durable) {
            return Err(failed_before());
        }
        self.body.prepare(Call { demand: &demand, ..call }, stage, staged).inspect_err(|_| {
            // What was made ready in vain; the error to tell is the first one.
            let _ = self.body.unprepare(call, stage);
        })
    }

    /// What the medium says of the object, after it has ended a stage by itself.
    pub(super) fn take_earlier(&mut self) {
        let Evidence { version, mtime_ns, .. } = self.body.earlier();
        self.version = self.version.max(version);
        self.mtime_ns = self.mtime_ns.max(mtime_ns);
    }

    /// Refuses what would take failed bytes for good ones (P8).
    pub(super) fn check_sync(&self, demand: &Demand) -> Result<()> {
        if self.sync_failed && demand.durability >= Some(Persistence::Durable) { Err(failed_before()) } else { Ok(()) }
    }

    /// Remembers that what was to survive may not (P8): the medium may take it for clean from now on.
    pub(super) fn judge<T>(&mut self, demand: &Demand, done: Result<T>) -> Result<T> {
        let durable = demand.durability >= Some(Persistence::Durable);
        done.map_err(|e| match durable && !matches!(e.kind(), Kind::Immutable | Kind::Fenced | Kind::Exhausted) {
            true => {
                self.sync_failed = true;
                e.with_clause(Clause::P8)
            }
            false => e,
        })
    }

    pub(super) fn staged_size(&self, stage: Uuid) -> u64 {
        self.stages.get(&stage).map_or(self.body.size(), |s| s.size(self.body.size()))
    }

    /// Of an operation that was to survive something; the medium has seen to it.
    pub(super) fn survives(&self, demand: &Demand, stage: Option<Uuid>) -> Evidence {
        let asked = demand.durability.unwrap_or(Persistence::Volatile);
        Evidence { durability: Some(asked.max(Persistence::Volatile)), ..self.evidence(stage) }
    }

    pub(super) fn evidence(&self, stage: Option<Uuid>) -> Evidence {
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

/// A seal through a stage that has changes: to show them later would change what is sealed (M2).
pub fn seal_over_changes() -> Error {
    Error::invalid("a seal over changes of its own stage; publish or discard them first").with_clause(Clause::M2)
}
