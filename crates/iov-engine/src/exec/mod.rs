//! Runs one batch: asks the plan what comes next, sends it to catalog and targets, and turns answers into statuses.
//!
//! A state machine that never blocks: [`Exec::drive`] goes on as far as answers have arrived. Whoever waits drives it.

mod births;
mod bytes;
mod describe;
mod explain;
mod facts;
mod inbox;
mod inline;
mod late;
mod publish;
mod rollback;
mod sealed;
mod tail;
mod waves;

pub(crate) use explain::explain_ops;

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
};

use facts::Birth;
use inbox::{Arrived, Inbox};
use iov_semantics::{
    Contract,
    plan::{Plan, Wave},
};
use iov_store::{OpCx, Submitted};
use iov_types::{
    Clause, Controls, Counters, Demand, Error, ObjectId, OnError, Outcome, Persistence, Result, State, Uuid, Which,
    catalog::{CatalogOp, CatalogReply, Opened, Submission},
};

use crate::{Collection, Op, OpState, Session, Status, collection::CollectionInner, request::RequestInner};

/// Where the batch is.
#[derive(Debug)]
enum Phase {
    /// Handles that the catalog does not know of are being opened there; then it goes on where it was.
    Attach(Box<Phase>),
    /// Between waves.
    Next,
    /// The catalog is still to be asked for the present wave.
    Unasked,
    /// The catalog's answer to operations on bytes in records is under way.
    Inline,
    /// Operations on bytes of the present wave are still to be sent.
    Unsent,
    /// Syncs of the present wave are still to be sent.
    Unsynced,
    /// Evidence for the present wave is under way.
    Bytes,
    /// The catalog's answer for the present wave is under way.
    Facts,
    /// A publication of one handle.
    Publish(publish::Step, usize),
    /// A rollback batch.
    Rollback(rollback::Step),
    /// After the last wave: the syncs that the contracts demand at the end of the batch.
    Tail(tail::Step),
    /// Every operation has its status.
    Finished,
}

/// What was changed when syncs were sent: they cover that and nothing that came since.
#[derive(Default)]
struct Covers {
    /// Of a workspace.
    objects: Vec<ObjectId>,
    /// How many changes there had been in the workspace, and of the handle.
    in_workspace: u64,
    of_handle: u64,
}

impl Covers {
    fn of(c: &Collection) -> Covers {
        Covers { objects: Vec::new(), in_workspace: c.workspace().changes(), of_handle: c.changes() }
    }
}

/// A started batch.
pub(crate) struct Exec {
    session: Session,
    ops: Vec<Op>,
    status: Vec<Status>,
    controls: Option<Controls>,
    cx: OpCx,
    /// The id that the program gave, to be remembered for a retry.
    id: Option<Uuid>,
    births: HashMap<usize, Birth>,
    born_with: HashMap<usize, usize>,
    plan: Plan,
    queue: VecDeque<Wave>,
    phase: Phase,
    wave: Option<Wave>,
    inbox: Option<Arc<Inbox>>,
    /// What the submission that is under way may leave open.
    leaves: late::Leaves,
    /// The operation behind each thing sent; `None` for what the engine added itself.
    sent: Vec<Option<usize>>,
    /// What the syncs of an operation cover.
    syncing: HashMap<usize, Covers>,
    /// Operations that want the records persisted with the present submission (P7).
    persisting: Vec<usize>,
    /// Persists of which the present submission also asks whether the bytes are in the record, by where it asks.
    probes: HashMap<usize, usize>,
    /// Those of which they are not.
    beyond: HashSet<usize>,
    to_publish: VecDeque<usize>,
    /// Of a rollback batch: where everything is collected.
    stage: Option<Uuid>,
    /// Of a rollback batch: what its creates and lookups will have opened.
    tentative: HashMap<*const CollectionInner, (Opened, Arc<Contract>)>,
    touched: Vec<(Collection, usize)>,
    /// Handles of sealed collections that are being opened in the catalog, and those that could not be.
    attaching: Vec<Collection>,
    unattached: Vec<(Collection, Error)>,
    /// Nothing of the batch waits for the success of something else.
    apart: bool,
    /// What the catalog has answered to operations of a later wave, which went along with bytes in records.
    early: HashMap<usize, Result<CatalogReply>>,
    /// Those of them that are done and have to be done once more.
    repeats: HashSet<usize>,
    /// Bytes that a read of a sealed collection must find.
    expected: HashMap<usize, u64>,
    cancelled: bool,
}

// SAFETY: the raw pointers are only map keys, never followed; everything else is Send.
unsafe impl Send for Exec {}

/// Everything a batch needs to start.
pub(crate) struct Start {
    pub(crate) session: Session,
    pub(crate) ops: Vec<Op>,
    pub(crate) barriers: Vec<usize>,
    pub(crate) policy: OnError,
    pub(crate) controls: Option<Controls>,
    pub(crate) id: Option<Uuid>,
    pub(crate) deadline_ns: i64,
}

impl Exec {
    pub(crate) fn new(start: Start) -> Exec {
        let Start { session, ops, barriers, policy, controls, id, deadline_ns } = start;
        let rollback = policy == OnError::Rollback;
        for (i, op) in ops.iter().enumerate() {
            match op {
                Op::Create { out, .. } => drop(out.choose_uuid(births::uuid_for(id, i))),
                Op::Open { out, which: Which::Uuid(uuid), .. } => drop(out.choose_uuid(*uuid)),
                _ => {}
            }
            if !op.only_looks()
                && let Some(c) = op.handle().or(op.out())
            {
                c.mark_used();
            }
        }
        let (births, born_with) = births::collect(&ops);
        let mut cx = session.cx(deadline_ns);
        cx.batch = id.unwrap_or(Uuid::NIL);
        let apart = policy == OnError::Continue && barriers.is_empty();
        let plan = Plan::new(describe::describe(&ops, policy, controls.is_some()), &barriers, policy);
        let first = if rollback { Phase::Rollback(rollback::Step::DryRun) } else { Phase::Next };
        Exec {
            status: ops.iter().map(|_| Status::default()).collect(),
            plan,
            queue: VecDeque::new(),
            phase: first,
            wave: None,
            inbox: None,
            leaves: Default::default(),
            sent: Vec::new(),
            syncing: HashMap::new(),
            persisting: Vec::new(),
            probes: HashMap::new(),
            beyond: HashSet::new(),
            to_publish: VecDeque::new(),
            stage: rollback.then(|| id.unwrap_or_else(iov_store::seam::new_uuid)),
            tentative: HashMap::new(),
            touched: Vec::new(),
            attaching: Vec::new(),
            unattached: Vec::new(),
            apart,
            early: HashMap::new(),
            repeats: HashSet::new(),
            expected: HashMap::new(),
            cancelled: false,
            session,
            ops,
            controls,
            cx,
            id,
            births,
            born_with,
        }
    }

    pub(crate) fn status(&self, i: usize) -> Option<&Status> {
        self.status.get(i)
    }

    pub(crate) fn finished(&self) -> bool {
        matches!(self.phase, Phase::Finished)
    }

    /// What `iov_wait` returns once it is finished.
    pub(crate) fn result(&self) -> Result<()> {
        let failed = self.status.iter().filter(|s| s.state != OpState::Ok).count();
        if failed == 0 {
            return Ok(());
        }
        let first = self.status.iter().enumerate().find(|(_, s)| s.state == OpState::Failed);
        let (i, first) = match first {
            Some((i, s)) => (i, s.error.clone()),
            None => {
                let told = self.status.iter().enumerate().find_map(|(i, s)| Some((i, s.error.clone()?)));
                told.map_or((0, None), |(i, e)| (i, Some(e)))
            }
        };
        let why = first.map_or(String::new(), |e| format!("; operation {i} ({}): {e}", self.ops[i].verb()));
        let why = format!("{failed} of {} operations are not ok{why}", self.ops.len());
        Err(Error::new(iov_types::Kind::Partial, why).with_outcome(Outcome::Unknown))
    }

    pub(crate) fn cancel(&mut self) {
        self.cancelled = true;
    }

    /// When the batch gives up, on the monotonic clock.
    pub(crate) fn deadline_ns(&self) -> i64 {
        self.cx.deadline_ns
    }

    /// Goes on as far as answers have arrived; `true` once every operation has its status.
    pub(crate) fn drive(&mut self, request: &Arc<RequestInner>) -> bool {
        loop {
            if let Some(inbox) = &self.inbox {
                inbox.work();
                match inbox.take() {
                    Some(arrived) => {
                        self.inbox = None;
                        self.arrived(arrived);
                    }
                    // Lent memory must stay lent until its evidence is there; targets keep the deadline themselves.
                    None if self.cx.left_ns() == 0 && !inbox.lends_memory() => {
                        let came = inbox.abandon(std::mem::take(&mut self.leaves).close_late(
                            &self.session,
                            &self.cx,
                            self.id.is_some(),
                        ));
                        self.inbox = None;
                        if let Some(answer) = came {
                            self.arrived(Arrived::Answer(answer));
                            continue;
                        }
                        let late =
                            Error::timeout("the deadline passed before the answer came; it may have taken effect")
                                .with_clause(Clause::O8)
                                .with_outcome(Outcome::Unknown);
                        self.arrived(Arrived::Answer(Err(late)));
                    }
                    None => return false,
                }
                continue;
            }
            match self.phase {
                Phase::Finished => return true,
                // Nothing was sent, so nothing will arrive: take it as an empty answer.
                Phase::Attach(_) => self.arrived(Arrived::Answer(Ok(Vec::new()))),
                Phase::Next => self.next_wave(request),
                Phase::Unasked => self.send_facts(request),
                Phase::Unsent => self.send_bytes(request),
                Phase::Unsynced => self.send_syncs(request),
                Phase::Inline => self.phase = Phase::Unsent,
                Phase::Rollback(step) => self.rollback_step(step, request),
                Phase::Publish(step, op) => self.publish_step(step, op, request),
                Phase::Tail(step) => self.tail_step(step, request),
                // The bytes are where they must be; now the catalog hears of it.
                Phase::Facts if self.facts_wanted() => self.send_facts(request),
                Phase::Bytes => self.arrived(Arrived::Evidence(Vec::new())),
                Phase::Facts => self.arrived(Arrived::Answer(Ok(Vec::new()))),
            }
        }
    }

    fn arrived(&mut self, arrived: Arrived) {
        match (std::mem::replace(&mut self.phase, Phase::Next), arrived) {
            (Phase::Attach(then), Arrived::Answer(answer)) => self.attach_arrived(*then, answer),
            (Phase::Inline, Arrived::Answer(answer)) => self.inline_arrived(answer),
            (Phase::Bytes, Arrived::Evidence(evidence)) => self.bytes_arrived(evidence),
            (Phase::Facts, Arrived::Answer(answer)) => self.facts_arrived(answer),
            (Phase::Publish(step, op), arrived) => self.publish_arrived(step, op, arrived),
            (Phase::Rollback(step), arrived) => self.rollback_arrived(step, arrived),
            (Phase::Tail(step), arrived) => self.tail_arrived(step, arrived),
            (phase, _) => self.phase = phase,
        }
    }

    /// Ends an operation.
    fn end(&mut self, i: usize, status: Status) {
        let ok = status.state == OpState::Ok;
        if status.error.as_ref().is_some_and(|e| e.kind() == iov_types::Kind::Refused) {
            Counters::add(&self.session.counters().refusals, 1);
        }
        if !ok {
            // A handle that will never be opened says why at each use.
            let error = status.error.clone();
            match (&self.ops[i], error) {
                (Op::Create { out, .. } | Op::Open { out, .. }, Some(e)) if out.is_pending() => {
                    let _ = out.fulfil(Err(e));
                }
                (Op::Search { out, .. }, Some(e)) => out.fulfil(Err(e)),
                _ => {}
            }
        }
        if let Op::Close { c } = &self.ops[i] {
            c.end();
        }
        self.status[i] = status;
        if self.stage.is_none() {
            self.plan.ended(i, ok);
        }
    }

    fn submit_bytes(&mut self, ops: Vec<Submitted>, request: &Arc<RequestInner>) {
        let counters = self.session.counters();
        Counters::add(&counters.data_requests, ops.len() as u64);
        let syncs = ops.iter().filter(|(op, _)| op.demand.durability >= Some(Persistence::Durable)).count();
        Counters::add(&counters.syncs, syncs as u64);
        let inbox = Arc::new(Inbox::for_evidence(ops.len(), Arc::downgrade(request)));
        self.inbox = Some(inbox.clone());
        self.session.0.sides.backend.submit(&self.cx, ops, inbox);
    }

    fn submit_facts(&mut self, ops: Vec<CatalogOp>, how: Submission, request: &Arc<RequestInner>) {
        let counters = self.session.counters();
        Counters::add(&counters.metadata_requests, 1);
        for op in &ops {
            match op {
                CatalogOp::Lock { .. } | CatalogOp::Unlock { .. } => Counters::add(&counters.lock_messages, 1),
                CatalogOp::Publish { .. } | CatalogOp::Close { published: Some(_), .. } => {
                    Counters::add(&counters.publications, 1);
                }
                CatalogOp::WorkspacePersist { durable: true, .. } => Counters::add(&counters.syncs, 1),
                _ => {}
            }
        }
        self.leaves = late::Leaves::of(&ops, &how, &self.sent, &self.ops);
        let inbox = Arc::new(Inbox::for_answer(Arc::downgrade(request)));
        self.inbox = Some(inbox.clone());
        let done = Box::new(move |answer| inbox.answer(answer));
        self.session.0.sides.catalog.submit(&self.cx, ops, how, done);
    }

    fn check_handle(&self, c: &Collection) -> Result<()> {
        if self.tentative.contains_key(&Arc::as_ptr(&c.0)) {
            return Ok(());
        }
        c.check()
    }

    fn ready_contract(&self, c: &Collection) -> Result<Arc<Contract>> {
        match self.tentative.get(&Arc::as_ptr(&c.0)) {
            Some((_, contract)) => Ok(contract.clone()),
            None => Ok(c.ready()?.contract.clone()),
        }
    }

    fn check_writes(&self, c: &Collection, contract: &Contract) -> Result<()> {
        let opened = match self.tentative.get(&Arc::as_ptr(&c.0)) {
            Some((opened, _)) => opened,
            None => &c.ready()?.opened,
        };
        if opened.state == State::Sealed {
            return Err(Error::immutable("the collection is sealed: write to a new one").with_clause(Clause::M2));
        }
        iov_semantics::resolve::writes_allowed(&opened.effective, &contract.effective)?;
        if !opened.writable {
            let why = "this handle only reads: it was opened with a weaker consistency than the collection's, or the \
                       workspace has expired, or lets this identity read only";
            return Err(Error::denied(why).with_clause(Clause::A1));
        }
        Ok(())
    }

    fn handle_demand(&self, c: &Collection, contract: &Contract, changes: bool) -> Result<Demand> {
        match self.tentative.get(&Arc::as_ptr(&c.0)) {
            Some((opened, _)) => c.demand_for(opened, contract, changes),
            None => c.demand_for(&c.ready()?.opened, contract, changes),
        }
    }

    fn store_is_durable(&self) -> bool {
        self.session.capability().durability >= Persistence::Durable
    }

    /// What makes a repeated append of the same batch apply once (M4).
    fn append_key(&self, i: usize) -> Option<(Uuid, u64)> {
        self.id.map(|id| (id, i as u64))
    }
}
