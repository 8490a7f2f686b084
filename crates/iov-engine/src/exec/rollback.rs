//! A rollback batch: all or nothing (B3).
//!
//! 1. The catalog runs every operation on facts without applying it, so that errors show and handles are known. What needs a
//!    handle that is opened by a name is run once more with those before it, when that is known. Bytes beside the records of what is opened here move to targets, which alone have stages.
//! 2. Bytes go into the batch's stage on the targets; its reads see them.
//! 3. What must survive power loss is synced there: what is staged, and what was written before where an operation has that survive.
//! 4. One submission applies everything at one point P; the catalog freezes the objects before and publishes them after.
//!
//! A failure before step 4 drops the stage: nobody has seen anything.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use iov_store::{Answer, Memory, Submitted};
use iov_types::{
    Clause, Consistency, Demand, Error, Evidence, Kind, ObjectOp, ObjectVerb, Outcome, Persistence, Result, Uuid,
    catalog::{CatalogOp, CatalogReply, Staged, Submission},
};

use super::{Exec, Phase, inbox::Arrived};
use crate::{Collection, Op, OpState, Status, op::Output, request::RequestInner};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Step {
    /// 1.
    DryRun,
    /// Bytes in records go to targets.
    Move,
    /// 2.
    Stage,
    /// 3.
    Sync,
    /// 4.
    Commit,
    /// Give back what was staged after a failure.
    Discard,
}

impl Exec {
    pub(super) fn rollback_step(&mut self, step: Step, request: &Arc<RequestInner>) {
        match step {
            Step::DryRun => {
                if let Some(error) = self.give_up() {
                    return self.undo(None, error);
                }
                let all: Vec<usize> = (0..self.ops.len()).collect();
                if self.attach_first(&all, request) {
                    return;
                }
                match self.rollback_facts(self.first_unknown()) {
                    Err((i, e)) => self.undo(Some(i), e),
                    Ok(ops) if ops.is_empty() => self.phase = Phase::Rollback(Step::Stage),
                    Ok(ops) => self.submit_facts(ops, Submission::DryRun, request),
                }
            }
            Step::Move => {
                let ops = self.moves();
                match ops.is_empty() {
                    true => self.phase = Phase::Rollback(Step::Stage),
                    false => self.submit_facts(ops, Submission::Each, request),
                }
            }
            Step::Stage => {
                if let Some(error) = self.give_up() {
                    return self.undo(None, error);
                }
                let Some(i) = (0..self.ops.len()).find(|i| self.is_data(*i) && self.is_pending(*i)) else {
                    self.phase = Phase::Rollback(Step::Sync);
                    return;
                };
                // In batch order, operation by operation where it copies between objects, else up to the next copy.
                let copies = |op: &Op| matches!(op, Op::Copy { .. });
                let mut ops: Vec<Submitted> = Vec::new();
                self.sent.clear();
                for j in i..self.ops.len() {
                    if !self.is_data(j) || !self.is_pending(j) {
                        continue;
                    }
                    if j > i && (copies(&self.ops[j]) || copies(&self.ops[i])) {
                        break;
                    }
                    match self.staged_ops(j) {
                        Ok(more) if more.is_empty() => self.status[j] = Status::ok(0, Output::None),
                        Ok(more) => {
                            self.sent.extend(more.iter().map(|_| Some(j)));
                            ops.extend(more);
                        }
                        Err(e) => return self.undo(Some(j), e),
                    }
                }
                if !ops.is_empty() {
                    self.submit_bytes(ops, request);
                }
            }
            Step::Sync => {
                let mut ops = self.stage_syncs();
                if let Err((i, e)) = self.plain_syncs(&mut ops) {
                    return self.undo(Some(i), e);
                }
                if ops.is_empty() {
                    self.phase = Phase::Rollback(Step::Commit);
                } else {
                    self.submit_bytes(ops, request);
                }
            }
            Step::Commit => {
                let mut ops = match self.rollback_facts(self.ops.len()) {
                    Ok(ops) => ops,
                    Err((i, e)) => return self.undo(Some(i), e),
                };
                let durable = (0..self.ops.len()).find_map(|i| self.durable_effect(i));
                ops.extend(durable.map(|ws| CatalogOp::WorkspacePersist { ws, durable: true }));
                let staged = self.staged_handles().into_iter().map(|(c, _)| self.staged_of(&c)).collect::<Result<_>>();
                let staged = match staged {
                    Ok(staged) => staged,
                    Err(e) => return self.undo(None, e),
                };
                let batch = self.stage.unwrap_or_default();
                self.submit_facts(ops, Submission::All { batch, remember: self.id.is_some(), staged }, request);
            }
            Step::Discard => {
                let stage = self.stage.unwrap_or_default();
                let ops: Vec<Submitted> = self
                    .staged_handles()
                    .into_iter()
                    .filter_map(|(c, _)| Some((Exec::discard_op(c.object().ok()?, stage), Memory::default())))
                    .collect();
                if ops.is_empty() {
                    self.phase = Phase::Finished;
                } else {
                    self.submit_bytes(ops, request);
                }
            }
        }
    }

    fn is_pending(&self, i: usize) -> bool {
        self.status[i].state == OpState::Pending
    }

    fn is_data(&self, i: usize) -> bool {
        self.ops[i].is_data()
    }

    /// The first operation on facts of a collection that the batch opens, and of which is not known yet which one it is; their number, if there is none.
    fn first_unknown(&self) -> usize {
        let mut opened = HashSet::new();
        let unknown = |(i, op): (usize, &Op)| {
            if let Op::Open { out, .. } = op {
                opened.insert(Arc::as_ptr(&out.0));
            }
            let waits = |c: &Collection| opened.contains(&Arc::as_ptr(&c.0)) && c.uuid().is_err();
            (!op.is_data() && op.handle().into_iter().chain(op.parents()).any(waits)).then_some(i)
        };
        self.ops.iter().enumerate().find_map(unknown).unwrap_or(self.ops.len())
    }

    /// Has the bytes of collections that the batch opens at their targets, if it does anything with them. What nobody has open no server moves
    /// by itself. That stays so whatever becomes of the batch, and nobody sees a difference.
    fn moves(&mut self) -> Vec<CatalogOp> {
        self.sent.clear();
        let used = self.ops.iter().filter(|op| op.is_data()).flat_map(|op| {
            let source = if let Op::Copy { src, .. } = op { Some(src) } else { None };
            op.handle().into_iter().chain(source).map(|c| Arc::as_ptr(&c.0))
        });
        let used: HashSet<_> = used.collect();
        let mut ops = Vec::new();
        for (i, op) in self.ops.iter().enumerate() {
            let Op::Open { out, .. } = op else { continue };
            let Some((opened, contract)) = self.tentative.get(&Arc::as_ptr(&out.0)) else { continue };
            // Who asks for more persistence than the record has is not told that it has the bytes.
            let may_be_inline = opened.inline || contract.durability >= Persistence::Durable;
            if may_be_inline && used.contains(&Arc::as_ptr(&out.0)) {
                self.sent.push(Some(i));
                ops.push(CatalogOp::MoveOut { ws: opened.ws, uuid: opened.uuid });
            }
        }
        ops
    }

    fn moves_arrived(&mut self, answer: Answer) {
        let sent = std::mem::take(&mut self.sent);
        let replies = answer.unwrap_or_else(|e| vec![Err(e); sent.len()]);
        for (reply, i) in replies.into_iter().zip(sent) {
            match reply {
                // The batch makes it first.
                Err(e) if e.kind() == Kind::NotFound => {}
                Err(e) => return self.undo(i, e.with_outcome(Outcome::NotApplied)),
                Ok(_) => {}
            }
        }
        self.phase = Phase::Rollback(Step::Stage);
    }

    /// The operations on facts before one of them, in order; `sent` remembers whose they are.
    fn rollback_facts(&mut self, before: usize) -> std::result::Result<Vec<CatalogOp>, (usize, Error)> {
        self.sent.clear();
        let mut ops = Vec::new();
        for i in 0..before {
            if self.is_data(i) {
                continue;
            }
            if let Op::Lock { .. } | Op::Unlock { .. } = self.ops[i] {
                let e = "a lock cannot be part of a rollback batch; offer: error=continue, or lock before it";
                return Err((i, Error::refused(Clause::B3, e)));
            }
            if let Some(c) = self.ops[i].handle() {
                self.allows_rollback(c).map_err(|e| (i, e))?;
            }
            match self.ops[i] {
                // The batch itself publishes, and persists what its contracts demand.
                Op::Commit { .. } | Op::Persist { .. } => {}
                _ => {
                    if let Some(op) = self.catalog_op(i).map_err(|e| (i, e))? {
                        self.sent.push(Some(i));
                        ops.push(op);
                    }
                }
            }
        }
        Ok(ops)
    }

    fn allows_rollback(&self, c: &Collection) -> Result<()> {
        match self.contract(c) {
            Ok(contract) if contract.effective.consistency == Consistency::Eventual => Err(Error::refused(
                Clause::B3,
                "a rollback batch on a collection of consistency=eventual; offer: consistency=session",
            )),
            // A handle that this batch makes is not known before the dry run; then it is asked again.
            _ => Ok(()),
        }
    }

    fn staged_ops(&mut self, i: usize) -> Result<Vec<Submitted>> {
        if let Some(c) = self.ops[i].handle() {
            let c = c.clone();
            self.allows_rollback(&c)?;
        }
        self.object_ops(i)
    }

    /// Handles with staged changes, once per collection, and an operation that made one.
    fn staged_handles(&self) -> Vec<(Collection, usize)> {
        let mut seen = HashSet::new();
        self.touched.iter().filter(|(c, _)| c.uuid().is_ok_and(|u| seen.insert(u))).cloned().collect()
    }

    /// The syncs of what is staged and must survive, as the strongest of the handles asks that change or persist it; `sent` remembers
    /// whose they are.
    fn stage_syncs(&mut self) -> Vec<Submitted> {
        self.sent.clear();
        let persisted = self.ops.iter().filter_map(|op| if let Op::Persist { c } = op { Some(c) } else { None });
        let mut levels: HashMap<Uuid, Persistence> = HashMap::new();
        for c in self.touched.iter().map(|(c, _)| c).chain(persisted) {
            let (Ok(contract), Ok(uuid)) = (self.contract(c), c.uuid()) else { continue };
            let level = levels.entry(uuid).or_insert(contract.durability);
            *level = contract.durability.max(*level);
        }
        let mut ops = Vec::new();
        for (c, i) in self.staged_handles() {
            let durability = c.uuid().ok().and_then(|uuid| levels.get(&uuid).copied());
            if let (true, Ok(object)) = (durability >= Some(Persistence::Durable), c.object()) {
                let demand = Demand { stage: self.stage, durability, ..Demand::default() };
                ops.push((ObjectOp { object, verb: ObjectVerb::Sync, demand }, Memory::default()));
                self.sent.push(Some(i));
            }
        }
        ops
    }

    /// The syncs of what was written before the batch, for those of its operations that have it survive. What the batch makes nobody
    /// has written before.
    fn plain_syncs(&mut self, ops: &mut Vec<Submitted>) -> std::result::Result<(), (usize, Error)> {
        let made = |op: &Op| if let Op::Create { out, .. } = op { out.uuid().ok() } else { None };
        let made: HashSet<_> = self.ops.iter().filter_map(made).collect();
        for i in 0..self.ops.len() {
            let is_made = |c: &Collection| c.uuid().is_ok_and(|uuid| made.contains(&uuid));
            if !self.ops[i].may_sync() || self.ops[i].handle().is_some_and(is_made) {
                continue;
            }
            let (more, covers) = self.sync_ops(i).map_err(|e| (i, e))?;
            if !more.is_empty() {
                self.syncing.insert(i, covers);
                self.sent.extend(more.iter().map(|_| Some(i)));
                ops.extend(more);
            }
        }
        Ok(())
    }

    /// Before point P nothing of the batch is applied, however a sync ends.
    fn syncs_arrived(&mut self, evidence: Vec<Result<Evidence>>) {
        let mut plain: BTreeMap<usize, Vec<Result<Evidence>>> = BTreeMap::new();
        let mut failed = None;
        for (i, e) in std::mem::take(&mut self.sent).into_iter().zip(evidence) {
            match (i.filter(|i| self.syncing.contains_key(i)), e) {
                (Some(i), e) => plain.entry(i).or_default().push(e),
                (None, Err(e)) => failed = failed.or(Some((i, e.with_clause(Clause::P8)))),
                (None, Ok(_)) => {}
            }
        }
        for (i, evidence) in plain {
            let synced = evidence.into_iter().collect::<Result<Vec<_>>>().and_then(|e| self.verify_sync(i, &e));
            if let Err(e) = synced {
                let e = self.sync_failed(i, e);
                failed = failed.or(Some((Some(i), e)));
            }
        }
        match failed {
            Some((i, e)) => self.undo(i, e.with_outcome(Outcome::NotApplied)),
            None => self.phase = Phase::Rollback(Step::Commit),
        }
    }

    fn staged_of(&self, c: &Collection) -> Result<Staged> {
        let opened = match self.tentative.get(&Arc::as_ptr(&c.0)) {
            Some((opened, _)) => opened,
            None => &c.ready()?.opened,
        };
        let place = opened.layout.place;
        Ok(Staged { workspace: opened.ws, collection: opened.uuid, epoch: opened.epoch, place })
    }

    fn durable_effect(&self, i: usize) -> Option<Uuid> {
        let c = self.ops[i].handle().or(self.ops[i].out())?;
        let contract = self.contract(c).ok()?;
        (contract.durability >= Persistence::Durable).then(|| c.workspace().uuid())
    }

    pub(super) fn rollback_arrived(&mut self, step: Step, arrived: Arrived) {
        match (step, arrived) {
            (Step::DryRun, Arrived::Answer(answer)) => self.dry_run_arrived(answer),
            (Step::Move, Arrived::Answer(answer)) => self.moves_arrived(answer),
            (Step::Stage, Arrived::Evidence(evidence)) => self.stage_arrived(evidence),
            (Step::Sync, Arrived::Evidence(evidence)) => self.syncs_arrived(evidence),
            (Step::Commit, Arrived::Answer(answer)) => self.commit_arrived(answer),
            _ => self.phase = Phase::Finished,
        }
    }

    fn dry_run_arrived(&mut self, answer: Answer) {
        let known = self.first_unknown();
        let sent = std::mem::take(&mut self.sent);
        let replies = match answer {
            Ok(replies) => replies,
            Err(e) => return self.undo(None, e),
        };
        for (reply, i) in replies.into_iter().zip(sent) {
            let Some(i) = i else { continue };
            match (reply, &self.ops[i]) {
                (Err(e), _) => return self.undo(Some(i), e),
                (Ok(CatalogReply::Opened(opened)), Op::Create { out, .. } | Op::Open { out, .. }) => {
                    out.choose_place(opened.layout.place);
                    match iov_semantics::admit(&opened.effective, None, &out.capability()) {
                        Err(refusal) => return self.undo(Some(i), refusal.error),
                        Ok(contract) => {
                            if out.choose_uuid(opened.uuid) != opened.uuid {
                                // Between two of these; what comes behind it is of the one that had the name first.
                                let why = "a name that the batch opens stands for something else by now: repeat it";
                                return self.undo(Some(i), Error::conflict(why).with_outcome(Outcome::NotApplied));
                            }
                            let known = (*opened, Arc::new(contract));
                            self.tentative.insert(Arc::as_ptr(&out.0), known);
                        }
                    }
                }
                _ => {}
            }
        }
        // More is known by now: what could not be asked is, behind the same once more, as nothing of it is applied.
        let all_asked = known == self.ops.len();
        if !all_asked && self.first_unknown() == known {
            return self.undo(Some(known), Error::internal("the catalog did not tell what an open has opened"));
        }
        self.phase = Phase::Rollback(if all_asked { Step::Move } else { Step::DryRun });
    }

    fn stage_arrived(&mut self, evidence: Vec<Result<Evidence>>) {
        let mut by_op: Vec<(usize, Vec<Result<Evidence>>)> = Vec::new();
        for (i, e) in std::mem::take(&mut self.sent).into_iter().zip(evidence) {
            match (i, by_op.last_mut()) {
                (Some(i), Some((last, list))) if *last == i => list.push(e),
                (Some(i), _) => by_op.push((i, vec![e])),
                (None, _) => {}
            }
        }
        let mut failed = None;
        for (i, list) in by_op {
            let status = self.evidence(i, list);
            if failed.is_none() && status.state != OpState::Ok {
                failed = Some((i, status.error.clone().unwrap_or_else(|| Error::internal("staging failed"))));
            }
            self.status[i] = status;
        }
        match failed {
            Some((i, e)) => self.undo(Some(i), e),
            None => self.phase = Phase::Rollback(Step::Stage),
        }
    }

    fn commit_arrived(&mut self, answer: Answer) {
        let sent = std::mem::take(&mut self.sent);
        let replies = match answer {
            Ok(replies) => replies,
            Err(e) => return self.undo(None, e),
        };
        if let Some(n) = replies.iter().position(Result::is_err) {
            let e = replies.into_iter().nth(n).and_then(Result::err);
            let i = sent.get(n).copied().flatten();
            return self.undo(i, e.unwrap_or_else(|| Error::internal("an error vanished")));
        }
        let mut replies = replies.into_iter();
        self.tentative.clear();
        for i in sent.into_iter().flatten() {
            let reply = replies.next().unwrap_or_else(|| Err(Error::internal("the catalog left out a reply")));
            self.telling_catalog(i);
            let status = self.reply(i, reply);
            self.end(i, status);
        }
        for i in 0..self.ops.len() {
            if self.is_pending(i) {
                self.end(i, Status::ok(0, Output::None));
            }
        }
        // Behind the replies: the facts of each staged collection as published, from which appends know their place.
        let stats: Vec<_> = replies
            .filter_map(|r| match r {
                Ok(CatalogReply::Stat(stat)) => Some((stat.uuid, stat.bytes)),
                _ => None,
            })
            .collect();
        for (uuid, size) in stats {
            self.place_appends(uuid, size);
        }
        self.phase = Phase::Finished;
    }

    /// Appends got their offset at point P: counted back from the end.
    fn place_appends(&mut self, uuid: Uuid, size: u64) {
        let mut end = size;
        for i in (0..self.ops.len()).rev() {
            match &self.ops[i] {
                Op::Append { c, .. } if c.uuid() == Ok(uuid) => {
                    end = end.saturating_sub(self.status[i].bytes);
                    self.status[i].output = Output::Offset(end);
                }
                // Behind a write or truncate of the same batch the place is not a matter of appends alone.
                Op::Write { c, .. } | Op::Truncate { c, .. } | Op::Allocate { c, .. } if c.uuid() == Ok(uuid) => return,
                _ => {}
            }
        }
    }

    /// Nothing of the batch takes effect: the one that failed says why, the others are undone.
    fn undo(&mut self, culprit: Option<usize>, error: Error) {
        self.tentative.clear();
        let unknown = error.outcome() != Outcome::NotApplied;
        for i in 0..self.ops.len() {
            let status = match culprit {
                _ if unknown || error.kind() == Kind::Cancelled => Status::failed(error.clone()),
                Some(c) if c == i => Status::failed(error.clone()),
                Some(_) => Status::undone(),
                None => Status::failed(error.clone()),
            };
            self.end(i, status);
        }
        if unknown {
            // What may have been changed is looked at once more by the handle's next commit or close.
            self.touched.iter().for_each(|(c, _)| self.changed(c));
        }
        // What the catalog has committed, or may have, is not this one's to drop: the stage is the recovery's then.
        self.phase = if unknown { Phase::Finished } else { Phase::Rollback(Step::Discard) };
    }
}
