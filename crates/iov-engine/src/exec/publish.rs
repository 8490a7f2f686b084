//! One handle's publication (`atomicity=publication`): sync what is staged if it must survive, publish it at one point
//! together with the record, then do the rest of the operation.

use std::sync::Arc;

use iov_types::{
    Clause, Counters, Demand, Error, Kind, ObjectOp, ObjectVerb, Outcome, Persistence, Uuid,
    catalog::{CatalogOp, Staged, Submission},
};

use super::{Exec, Phase, inbox::Arrived};
use crate::{Op, Status, op::Output, request::RequestInner};

#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// Make the staged bytes survive, if the level demands it.
    Sync,
    /// Point P.
    Publish,
    /// The answer to that, with what was to be published.
    Published(Uuid),
    /// What remains of close, persist or seal.
    Rest,
}

/// Whether the stage may still be there undecided: it is neither known to be committed, nor was it refused and dropped.
fn may_repeat(e: &Error) -> bool {
    match e.outcome() {
        Outcome::Unknown => true,
        Outcome::NotApplied => matches!(e.kind(), Kind::Unavailable | Kind::Timeout),
        _ => false,
    }
}

impl Exec {
    pub(super) fn publish_step(&mut self, step: Step, i: usize, request: &Arc<RequestInner>) {
        let Some(c) = self.ops[i].handle().cloned() else {
            self.phase = Phase::Next;
            return;
        };
        match step {
            // `send_syncs` has synced the stage along with the wave.
            Step::Sync => self.phase = Phase::Publish(Step::Publish, i),
            Step::Publish => {
                let contract = self.contract(&c);
                let ready = c.ready().map(|r| (r.opened.ws, r.opened.uuid, r.opened.epoch, r.opened.layout.place));
                let stage = c.take_stage();
                let (contract, (ws, collection, epoch, place), stage) = match (contract, ready, stage) {
                    (Ok(contract), Ok(ids), Some(stage)) => (contract, ids, stage),
                    (Err(e), ..) | (_, Err(e), _) => return self.end_publication(i, Status::failed(e)),
                    (.., None) => {
                        self.phase = Phase::Publish(Step::Rest, i);
                        return;
                    }
                };
                let mut ops = Vec::new();
                if contract.durability >= Persistence::Durable {
                    ops.push(CatalogOp::WorkspacePersist { ws, durable: true });
                }
                Counters::add(&self.session.counters().publications, 1);
                let staged = vec![Staged { workspace: ws, collection, epoch, place }];
                self.submit_facts(ops, Submission::All { batch: stage, remember: false, staged }, request);
                self.phase = Phase::Publish(Step::Published(stage), i);
            }
            Step::Published(_) => self.end_publication(i, Status::failed(Error::internal("no answer to wait for"))),
            Step::Rest => {
                self.telling_catalog(i);
                let ws = c.workspace().uuid();
                let rest = match (&self.ops[i], c.uuid()) {
                    (_, Err(e)) => return self.end_publication(i, Status::failed(e)),
                    (Op::Close { .. }, Ok(uuid)) => CatalogOp::Close { ws, uuid, published: Some(Default::default()) },
                    (Op::Seal { .. }, Ok(uuid)) => CatalogOp::Seal { ws, uuid, published: Default::default() },
                    _ => return self.end_publication(i, Status::ok(0, Output::None)),
                };
                self.submit_facts(vec![rest], Submission::Each, request);
                self.phase = Phase::Publish(Step::Rest, i);
            }
        }
    }

    pub(super) fn publish_arrived(&mut self, step: Step, i: usize, arrived: Arrived) {
        let Arrived::Answer(answer) = arrived else {
            return self.end_publication(i, Status::failed(Error::internal("a publication has no evidence")));
        };
        let failed = match answer {
            Err(e) => Some(e),
            Ok(replies) => replies.into_iter().find_map(Result::err),
        };
        if let (Some(e), Step::Published(stage)) = (&failed, step)
            && may_repeat(e)
            && !matches!(self.ops[i], Op::Close { .. })
            && let Some(c) = self.ops[i].handle()
        {
            // The next commit publishes it; what was published after all, that one does not find any more.
            c.put_stage_back(stage);
        }
        match (failed, step) {
            (Some(e), Step::Published(_)) if matches!(self.ops[i], Op::Close { .. }) => {
                // Closing always ends the handle (rule 5); the error says that nothing of it was published.
                let c = self.ops[i].handle().cloned();
                if let Some(c) = c {
                    self.give_back(&c);
                }
                let e = e.context("what was written since the last commit is not published");
                self.end_publication(i, Status::failed(e.with_clause(Clause::M1)));
            }
            (Some(e), _) => self.end_publication(i, Status::failed(e)),
            (None, Step::Rest) => self.end_publication(i, Status::ok(0, Output::None)),
            (None, _) => self.phase = Phase::Publish(Step::Rest, i),
        }
    }

    fn end_publication(&mut self, i: usize, status: Status) {
        self.end(i, status);
        self.phase = Phase::Next;
    }

    /// Gives back the open of a handle whose close failed half way; nobody waits for it.
    fn give_back(&self, c: &crate::Collection) {
        c.mark_returned();
        self.close_open(c);
    }

    /// Ends one open of a collection; nobody waits for it.
    pub(super) fn close_open(&self, c: &crate::Collection) {
        if let Ok(ready) = c.ready() {
            let close = CatalogOp::Close { ws: ready.opened.ws, uuid: ready.opened.uuid, published: None };
            self.session.0.sides.catalog.submit(&self.cx, vec![close], Submission::Each, Box::new(|_| {}));
        }
    }

    /// Drops what a stage holds on a target.
    pub(super) fn discard_op(object: iov_types::ObjectId, stage: Uuid) -> ObjectOp {
        ObjectOp { object, verb: ObjectVerb::Discard { stage }, demand: Demand::default() }
    }
}
