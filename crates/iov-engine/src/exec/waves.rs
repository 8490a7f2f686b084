//! Waves of a `continue` or `stop` batch: bytes, facts, or bytes and then facts.

use std::{collections::HashSet, sync::Arc};

use iov_semantics::plan::{Class, Wave};
use iov_store::Answer;
use iov_types::{
    Clause, Error, Evidence, Kind, Outcome, Persistence, Point, Result,
    catalog::{CatalogOp, CatalogReply, Submission},
};

use super::{Covers, Exec, Phase, publish, sealed::deletes, tail};
use crate::{Op, OpState, Status, op::Output, records, request::RequestInner};

impl Exec {
    pub(super) fn next_wave(&mut self, request: &Arc<RequestInner>) {
        if let Some(op) = self.to_publish.pop_front() {
            self.phase = Phase::Publish(publish::Step::Sync, op);
            return;
        }
        if self.wave.take().is_some_and(|w| w.until_failure) && !self.queue.is_empty() && self.last_failed() {
            // Single operations of a `stop` wave that are still queued never start (B2).
            for wave in std::mem::take(&mut self.queue) {
                for i in wave.ops {
                    self.end(i, Status::skipped());
                }
            }
        }
        let Some(wave) = self.queue.pop_front().or_else(|| self.plan.next_wave()) else {
            for i in self.plan.skipped().collect::<Vec<_>>() {
                self.end_unplanned(i, Status::skipped());
            }
            self.phase = Phase::Tail(tail::Step::Sync);
            return;
        };
        if let Some(error) = self.give_up() {
            for &i in &wave.ops {
                if self.was_early(i) {
                    continue;
                }
                let error = error.clone();
                let done = self.repeats.contains(&i);
                self.end(i, Status::failed(if done { error.with_outcome(Outcome::Unknown) } else { error }));
            }
            return;
        }
        if wave.until_failure && wave.ops.len() > 1 && wave.class != Class::Catalog {
            // Targets run everything they are given, so that a `stop` wave goes to them one by one.
            self.queue = wave.ops.iter().map(|i| Wave { ops: vec![*i], ..wave.clone() }).collect();
            return;
        }
        let class = wave.class;
        self.wave = Some(wave);
        match class {
            Class::Data => self.phase = Phase::Unsent,
            Class::DataThenCatalog => self.send_syncs(request),
            Class::Catalog | Class::Alone => self.phase = Phase::Unasked,
        }
    }

    /// Skipped operations were never started, so that the plan does not wait for their end.
    fn end_unplanned(&mut self, i: usize, status: Status) {
        let error = status.error.clone().unwrap_or_else(|| Error::cancelled("skipped"));
        match &self.ops[i] {
            // Closing always ends the handle (rule 5); its open is given back when it is dropped.
            Op::Close { c } => drop(c.end()),
            Op::Create { out, .. } | Op::Open { out, .. } => drop(out.fulfil(Err(error))),
            Op::Search { out, .. } => out.fulfil(Err(error)),
            _ => {}
        }
        self.status[i] = status;
    }

    fn last_failed(&self) -> bool {
        self.status.iter().any(|s| !matches!(s.state, OpState::Ok | OpState::Pending))
    }

    /// Why nothing more is to be started, if so.
    pub(super) fn give_up(&self) -> Option<Error> {
        if self.cancelled {
            return Some(Error::cancelled("cancelled before it started"));
        }
        (self.cx.left_ns() == 0)
            .then(|| Error::timeout("the deadline passed before it started").with_clause(Clause::O8))
    }

    pub(super) fn wave_ops(&self) -> Vec<usize> {
        self.wave.as_ref().map_or(Vec::new(), |w| w.ops.clone())
    }

    pub(super) fn send_bytes(&mut self, request: &Arc<RequestInner>) {
        let unanswered = self.read_kept(self.unanswered(self.wave_ops()));
        if self.send_inline(&unanswered, request) {
            return;
        }
        let unanswered = self.unanswered(unanswered);
        if self.attach_first(&unanswered, request) {
            return;
        }
        let mut ops = Vec::new();
        self.sent.clear();
        for i in unanswered {
            match self.object_ops(i) {
                Ok(more) if more.is_empty() => self.end(i, Status::ok(0, Output::None)),
                Ok(more) => {
                    self.sent.extend(more.iter().map(|_| Some(i)));
                    ops.extend(more);
                }
                Err(e) => self.end(i, Status::failed(e)),
            }
        }
        self.phase = Phase::Bytes;
        if !ops.is_empty() {
            self.submit_bytes(ops, request);
        }
    }

    pub(super) fn send_syncs(&mut self, request: &Arc<RequestInner>) {
        let mut ops = Vec::new();
        self.sent.clear();
        // Stages that are still to be published have been synced already, if the syncs go a second time.
        let to_sync = self.unanswered(self.wave_ops()).into_iter().filter(|i| !self.to_publish.contains(i));
        for i in to_sync.collect::<Vec<_>>() {
            match self.sync_ops(i) {
                Ok((more, covers)) => {
                    self.syncing.insert(i, covers);
                    self.sent.extend(more.iter().map(|_| Some(i)));
                    ops.extend(more);
                }
                Err(e) => self.end(i, Status::failed(e)),
            }
        }
        self.phase = Phase::Bytes;
        if !ops.is_empty() {
            self.submit_bytes(ops, request);
        }
    }

    pub(super) fn bytes_arrived(&mut self, evidence: Vec<Result<Evidence>>) {
        let class = self.wave.as_ref().map_or(Class::Data, |w| w.class);
        let mut by_op: Vec<(usize, Vec<Result<Evidence>>)> = Vec::new();
        for (op, e) in std::mem::take(&mut self.sent).into_iter().zip(evidence) {
            let Some(op) = op else { continue };
            match by_op.last_mut() {
                Some((last, list)) if *last == op => list.push(e),
                _ => by_op.push((op, vec![e])),
            }
        }
        if class == Class::Data {
            for (op, evidence) in by_op {
                let status = self.evidence(op, evidence);
                self.end(op, status);
            }
            self.phase = Phase::Next;
            return;
        }
        for (op, evidence) in by_op {
            let synced = evidence.into_iter().collect::<Result<Vec<_>>>();
            let synced = synced.and_then(|e| self.verify_sync(op, &e));
            if let Err(e) = synced {
                let error = self.sync_failed(op, e);
                self.end(op, Status::failed(error));
            }
        }
        self.phase = Phase::Facts;
    }

    /// A sync that a target calls done must have reached the level (P5).
    pub(super) fn verify_sync(&self, op: usize, evidence: &[Evidence]) -> Result<()> {
        // What was changed meanwhile is a later persist's.
        let none = Covers::default();
        let Covers { objects, in_workspace, of_handle } = self.syncing.get(&op).unwrap_or(&none);
        if let Op::WorkspacePersist { w } = &self.ops[op] {
            // The evidence of each has arrived without error.
            objects.iter().for_each(|object| w.note_synced(*object, *in_workspace));
        }
        let Some(c) = self.ops[op].handle() else { return Ok(()) };
        iov_semantics::verify(&*self.contract(c)?, evidence)?;
        if c.was_written() && evidence.iter().any(Evidence::shows_nothing) {
            // A target that finds nothing has nothing to sync, and does not know that it should have.
            return Err(Error::lost(
                "a target had taken bytes of the collection, and has nothing of it any more: write them to a new one",
            ));
        }
        c.mark_synced(*of_handle);
        c.workspace().note_synced(c.object()?, *in_workspace);
        Ok(())
    }

    /// After a failed sync the bytes are lost for good, whatever a later sync says (P8).
    pub(super) fn sync_failed(&self, op: usize, error: Error) -> Error {
        let error = match error.kind() {
            Kind::Timeout | Kind::Unavailable => error,
            _ => error.with_clause(Clause::P8),
        };
        // Of a sync that has not been heard of, the target knows how it ended, and says so at the next one.
        let known = !matches!(error.kind(), Kind::Timeout | Kind::Unavailable);
        if let Some(c) = self.ops[op].handle().filter(|_| known) {
            c.mark_broken(&error);
        }
        error
    }

    /// Whether the present wave has operations that the catalog has not been asked for.
    pub(super) fn facts_wanted(&self) -> bool {
        self.wave.as_ref().is_some_and(|w| {
            w.class == Class::DataThenCatalog && w.ops.iter().any(|i| self.status[*i].state == OpState::Pending)
        })
    }

    /// Whether the catalog has answered an operation before its wave; then it ends here.
    fn was_early(&mut self, i: usize) -> bool {
        let Some(reply) = self.early.remove(&i) else { return false };
        let status = self.reply(i, reply);
        self.end(i, status);
        true
    }

    pub(super) fn send_facts(&mut self, request: &Arc<RequestInner>) {
        let mut wave = self.unanswered(self.wave_ops());
        wave.retain(|i| !self.was_early(*i));
        if self.attach_first(&wave, request) {
            return;
        }
        let mut ops = Vec::new();
        self.sent.clear();
        self.persisting.clear();
        self.probes.clear();
        let (mut persist, mut probes) = (None, Vec::new());
        // What comes before an open in its wave might change what it finds, or keep it from starting; what comes behind it
        // might delete that.
        let mut alone = !self.wave.as_ref().is_some_and(|w| w.until_failure) || wave.len() == 1;
        alone &= !wave.iter().any(|i| deletes(&self.ops[*i]).is_some());
        for i in wave {
            if self.ops[i].handle().is_some_and(|c| c.has_stage()) && self.publishes(i) {
                if !self.to_publish.contains(&i) {
                    self.to_publish.push_back(i);
                }
                continue;
            }
            probes.extend(self.probe(i).map(|probe| (i, probe)));
            let op = self.catalog_op(i);
            let wants = self.wants_records_persisted(i);
            match (op, wants) {
                (Err(e), _) => self.end(i, Status::failed(e)),
                (Ok(Some(op)), _) if alone && self.open_from_record(i, &op) => {}
                (Ok(Some(op)), wants) => {
                    alone &= records::change(&op).is_none();
                    self.telling_catalog(i);
                    self.sent.push(Some(i));
                    ops.push(op);
                    persist = persist.or(wants);
                    if wants.is_some() {
                        self.persisting.push(i);
                    }
                }
                (Ok(None), Some(ws)) => {
                    // Nothing but the records to persist: the added operation carries its status.
                    self.sent.push(Some(i));
                    ops.push(CatalogOp::WorkspacePersist { ws, durable: true });
                }
                (Ok(None), None) => {
                    let status = self.follow_birth(i);
                    self.end(i, status);
                }
            }
        }
        if let Some(ws) = persist {
            self.sent.push(None);
            ops.push(CatalogOp::WorkspacePersist { ws, durable: true });
        }
        if ops.is_empty() {
            self.phase = Phase::Next;
            return;
        }
        // Last: what fails of these keeps nothing else from being done.
        for (i, probe) in probes {
            self.probes.insert(ops.len(), i);
            self.sent.push(None);
            ops.push(probe);
        }
        self.phase = Phase::Facts;
        let until_failure = self.wave.as_ref().is_some_and(|w| w.until_failure);
        let how = if until_failure { Submission::UntilFailure } else { Submission::Each };
        self.submit_facts(ops, how, request);
    }

    /// What asks, along with a persist through a handle that takes the bytes for bytes in the record, whether they still are there:
    /// others may have written so much that they moved, and then the target is to sync them (P5). Small files are persisted often, so
    /// that no request is made for that.
    fn probe(&self, i: usize) -> Option<CatalogOp> {
        let Op::Persist { c } = &self.ops[i] else { return None };
        let in_record = c.is_inline() && !c.is_detached() && !self.beyond.contains(&i) && self.may_probe();
        let durable = || self.contract(c).is_ok_and(|contract| contract.durability >= Persistence::Durable);
        (in_record && durable()).then_some(())?;
        Some(CatalogOp::Read { ws: c.workspace().uuid(), uuid: c.uuid().ok()?, offset: 0, len: 0 })
    }

    /// Whether there is room for that in one submission.
    pub(super) fn may_probe(&self) -> bool {
        let most = self.session.0.sides.catalog.capability().max_ops;
        self.wave.as_ref().is_none_or(|wave| wave.ops.len() < most / 2)
    }

    /// What came of that. What is not known counts as moved: a sync too many costs time.
    fn probed(&mut self, i: usize, reply: Option<Result<CatalogReply>>) {
        if matches!(reply, Some(Ok(CatalogReply::Bytes(_)))) {
            return;
        }
        if let (Some(Ok(CatalogReply::Moved)), Op::Persist { c }) = (reply, &self.ops[i]) {
            c.mark_moved();
        }
        self.beyond.insert(i);
    }

    /// Whether the operation publishes what its handle has staged.
    fn publishes(&self, i: usize) -> bool {
        matches!(self.ops[i], Op::Commit { .. } | Op::Persist { .. } | Op::Close { .. } | Op::Seal { .. })
    }

    /// The workspace whose records must survive power loss before this operation completes (P7).
    pub(super) fn wants_records_persisted(&self, i: usize) -> Option<iov_types::Uuid> {
        let at_close = match self.ops[i] {
            Op::Persist { .. } => false,
            Op::Close { .. } => true,
            _ => return None,
        };
        let c = self.ops[i].handle()?;
        let contract = self.contract(c).ok()?;
        // Whoever has only looked leaves nothing that would have to survive.
        let wanted = !at_close || (contract.effective.point == Point::Close && c.was_used());
        (wanted && contract.durability >= Persistence::Durable).then(|| c.workspace().uuid())
    }

    /// The status of a `set` or `setattr` that went into a create: the create's.
    fn follow_birth(&self, i: usize) -> Status {
        match self.born_with.get(&i).map(|create| &self.status[*create]) {
            Some(create) if create.state != OpState::Pending => Status { output: Output::None, ..create.clone() },
            _ => Status::ok(0, Output::None),
        }
    }

    pub(super) fn facts_arrived(&mut self, answer: Answer) {
        let sent = std::mem::take(&mut self.sent);
        let mut replies = match answer {
            Ok(replies) => replies.into_iter(),
            Err(e) => {
                for i in sent.into_iter().flatten() {
                    self.not_taken(i, &e);
                    let status = self.reply(i, Err(e.clone()));
                    self.end(i, status);
                }
                return;
            }
        };
        let mut persisted = Ok(());
        let mut failed = false;
        let mut ended = Vec::new();
        for (at, i) in sent.into_iter().enumerate() {
            if let Some(&of) = self.probes.get(&at) {
                self.probed(of, replies.next());
                continue;
            }
            let status = match (replies.next(), i) {
                (Some(Err(e)), None) => {
                    persisted = Err(e);
                    continue;
                }
                (_, None) => continue,
                (Some(reply), Some(i)) => self.reply(i, reply),
                (None, Some(i)) if failed => {
                    self.not_started(i);
                    Status::skipped()
                }
                (None, Some(_)) => {
                    Status::failed(Error::internal("the catalog left out a reply").with_outcome(Outcome::Unknown))
                }
            };
            failed |= status.state != OpState::Ok;
            ended.extend(i.map(|i| (i, status)));
        }
        let probed: HashSet<usize> = std::mem::take(&mut self.probes).into_values().collect();
        for (i, status) in ended {
            if probed.contains(&i) && self.beyond.contains(&i) && status.state == OpState::Ok && persisted.is_ok() {
                // What has moved is still to be synced, and then the catalog is to hear of it once more.
                self.phase = Phase::Unsynced;
                continue;
            }
            let status = match &persisted {
                Err(e) if status.state == OpState::Ok && self.persisting.contains(&i) => {
                    Status { outcome: Outcome::Unknown, ..Status::failed(self.sync_failed(i, e.clone())) }
                }
                _ => status,
            };
            self.end(i, status);
        }
        // Operations that ride on a create of this wave have waited for its status.
        for i in self.wave_ops() {
            let waits = self.to_publish.contains(&i) || self.beyond.contains(&i);
            if self.status[i].state == OpState::Pending && !waits {
                let status = self.follow_birth(i);
                self.end(i, status);
            }
        }
    }
}
