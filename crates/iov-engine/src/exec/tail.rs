//! The end of a batch: what `durable@batch` has postponed until here, once per target and for the records (P5, P7).

use std::{collections::HashSet, sync::Arc};

use iov_store::Memory;
use iov_types::{
    Clause, Demand, ObjectOp, ObjectVerb, Outcome, Persistence, Point, Uuid,
    catalog::{CatalogOp, Submission},
};

use super::{Covers, Exec, Phase, inbox::Arrived};
use crate::{OpState, Status, request::RequestInner};

#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// Bytes.
    Sync,
    /// Records.
    Persist,
}

impl Exec {
    /// Whether an operation's effect must survive power loss before the batch completes.
    fn at_batch(&self, i: usize) -> Option<Uuid> {
        // Most operations end here, before anything of their handle is looked at.
        if self.ops[i].only_looks() || self.status[i].state != OpState::Ok {
            return None;
        }
        let c = self.ops[i].handle().or(self.ops[i].out())?;
        let contract = self.contract(c).ok()?;
        let now = matches!(contract.effective.point, Point::Batch | Point::Request);
        (now && contract.durability >= Persistence::Durable).then(|| c.workspace().uuid())
    }

    pub(super) fn tail_step(&mut self, step: Step, request: &Arc<RequestInner>) {
        match step {
            Step::Sync => {
                let mut seen = HashSet::new();
                let mut ops = Vec::new();
                self.sent.clear();
                for (c, i) in self.touched.clone() {
                    let (Ok(contract), Ok(object)) = (self.contract(&c), c.object()) else { continue };
                    let now = contract.effective.point == Point::Batch && contract.durability >= Persistence::Durable;
                    if now && !contract.staged && c.is_unsynced() && seen.insert(object) {
                        self.syncing.insert(i, Covers::of(&c));
                        let demand = Demand { durability: Some(contract.durability), ..Demand::default() };
                        ops.push((ObjectOp { object, verb: ObjectVerb::Sync, demand }, Memory::default()));
                        self.sent.push(Some(i));
                    }
                }
                if ops.is_empty() {
                    self.phase = Phase::Tail(Step::Persist);
                } else {
                    self.submit_bytes(ops, request);
                }
            }
            Step::Persist => match (0..self.ops.len()).find_map(|i| self.at_batch(i)) {
                Some(ws) => {
                    self.submit_facts(
                        vec![CatalogOp::WorkspacePersist { ws, durable: true }],
                        Submission::Each,
                        request,
                    );
                }
                None => self.phase = Phase::Finished,
            },
        }
    }

    pub(super) fn tail_arrived(&mut self, step: Step, arrived: Arrived) {
        match (step, arrived) {
            (Step::Sync, Arrived::Evidence(evidence)) => {
                for (i, e) in std::mem::take(&mut self.sent).into_iter().zip(evidence) {
                    let Some(i) = i else { continue };
                    let Err(e) = e.and_then(|e| self.verify_sync(i, &[e])) else { continue };
                    let error = self.sync_failed(i, e).with_outcome(Outcome::Unknown);
                    let object = self.ops[i].handle().and_then(|c| c.object().ok());
                    // Every change of that object in this batch shares its fate.
                    for (c, other) in self.touched.clone() {
                        if c.object().ok() == object {
                            self.status[other] = Status::failed(error.clone());
                        }
                    }
                }
                self.phase = Phase::Tail(Step::Persist);
            }
            (_, Arrived::Answer(answer)) => {
                let failed = match answer {
                    Err(e) => Some(e),
                    Ok(replies) => replies.into_iter().find_map(Result::err),
                };
                if let Some(e) = failed {
                    let e = e.with_clause(Clause::P7).with_outcome(Outcome::Unknown);
                    for i in 0..self.ops.len() {
                        if self.at_batch(i).is_some() {
                            self.status[i] = Status::failed(e.clone());
                        }
                    }
                }
                self.phase = Phase::Finished;
            }
            _ => self.phase = Phase::Finished,
        }
    }
}
