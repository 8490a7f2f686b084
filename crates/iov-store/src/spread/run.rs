//! A submission on its way: what takes one step goes to all targets at once, what takes several goes by itself.

use std::{
    collections::{BTreeMap, HashSet, VecDeque},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use iov_types::{Error, Evidence, ObjectId, ObjectOp, ObjectVerb, Place, Result};

use super::{
    Inner,
    chain::Chain,
    copy, cut,
    gather::{Asked, Gather, Route, Routes},
    grow, seal, split,
};
use crate::{Backend, Memory, OpCx, Sink, Submitted};

/// A submission of which something is left to be done.
pub(super) struct Run {
    inner: Arc<Inner>,
    cx: OpCx,
    sink: Arc<dyn Sink>,
    queue: Mutex<VecDeque<(usize, Submitted)>>,
    chain: Chain,
}

/// What comes next.
enum Next {
    Nothing,
    /// These, in one step.
    Together(Vec<(usize, Submitted)>),
    /// This, in several.
    Alone(usize, Submitted, Steps),
}

/// What has to be done in several steps.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Steps {
    Copy,
    Cut,
    /// A change that may reach beyond the collection's limit.
    Limit,
    /// A write over several targets that may reach beyond the end.
    Grow,
    /// A seal of several objects.
    Seal,
}

/// What comes after a step.
pub(super) type Then = Box<dyn FnOnce() + Send>;

/// Tells when all operations of a step have been answered.
struct Counted {
    sink: Arc<dyn Sink>,
    left: AtomicUsize,
    then: Mutex<Option<Then>>,
}

impl Counted {
    fn one_less(&self) {
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            let then = self.then.lock().unwrap_or_else(PoisonError::into_inner).take();
            then.into_iter().for_each(|then| then());
        }
    }
}

impl Sink for Counted {
    fn complete(&self, index: usize, evidence: Result<Evidence>) {
        self.sink.complete(index, evidence);
        self.one_less();
    }

    fn go_on(&self, work: Box<dyn FnOnce() + Send>) {
        self.sink.go_on(work);
    }
}

/// Takes one answer.
struct Once<F> {
    then: Mutex<Option<F>>,
    sink: Arc<dyn Sink>,
}

impl<F: FnOnce(Result<Evidence>) + Send> Sink for Once<F> {
    fn complete(&self, _: usize, evidence: Result<Evidence>) {
        let then = self.then.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(then) = then {
            then(evidence);
        }
    }

    fn go_on(&self, work: Box<dyn FnOnce() + Send>) {
        self.sink.go_on(work);
    }
}

impl Run {
    pub(super) fn start(inner: &Arc<Inner>, cx: &OpCx, ops: Vec<Submitted>, sink: Arc<dyn Sink>) {
        let queue = Mutex::new(ops.into_iter().enumerate().collect());
        Arc::new(Run { inner: inner.clone(), cx: cx.clone(), sink, queue, chain: Chain::default() }).go_on();
    }

    fn go_on(self: &Arc<Run>) {
        self.chain.kick(|| self.step());
    }

    fn step(self: &Arc<Run>) {
        let run = self.clone();
        let then: Then = Box::new(move || run.go_on());
        match self.next() {
            Next::Nothing => {}
            Next::Together(ops) => together(&self.inner, &self.cx, ops, self.sink.clone(), Some(then)),
            Next::Alone(index, (op, memory), steps) => {
                let (sink, to) = (self.sink.clone(), self.sink.clone());
                let done = move |evidence: Result<Evidence>| {
                    to.complete(index, evidence);
                    then();
                };
                let step = Step { inner: self.inner.clone(), cx: self.cx.clone(), sink };
                step.take(steps, op, memory, Box::new(done));
            }
        }
    }

    fn next(&self) -> Next {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let mut ops: Vec<(usize, Submitted)> = Vec::new();
        let mut looked_at: HashSet<ObjectId> = HashSet::new();
        while let Some((_, (op, memory))) = queue.front() {
            let steps = self.inner.steps(op, memory);
            // A read may have to look at lengths behind its bytes: what comes after it must not have changed those.
            if !ops.is_empty() && (steps.is_some() || (op.verb.changes_bytes() && looked_at.contains(&op.object))) {
                break;
            }
            if matches!(op.verb, ObjectVerb::Read { .. }) && Place::of(op.object).is_some() {
                looked_at.insert(op.object);
            }
            let Some((index, submitted)) = queue.pop_front() else { break };
            match steps {
                Some(steps) => return Next::Alone(index, submitted, steps),
                None => ops.push((index, submitted)),
            }
        }
        if ops.is_empty() { Next::Nothing } else { Next::Together(ops) }
    }
}

/// What a step needs.
pub(super) struct Step {
    pub(super) inner: Arc<Inner>,
    pub(super) cx: OpCx,
    pub(super) sink: Arc<dyn Sink>,
}

impl Step {
    /// The same step, to ask for more than one thing.
    pub(super) fn share(&self) -> Step {
        Step { inner: self.inner.clone(), cx: self.cx.clone(), sink: self.sink.clone() }
    }

    /// Takes several steps.
    fn take(self, steps: Steps, op: ObjectOp, memory: Memory, done: cut::Done) {
        match steps {
            Steps::Copy => copy::start(self, op, done),
            Steps::Cut => cut::start(self, op, done),
            Steps::Limit => cut::within_limit(self, op, memory, done),
            Steps::Seal => seal::start(self, op, done),
            Steps::Grow => grow::start(self, op, memory, done),
        }
    }

    /// Has one operation done, in as many steps as it takes.
    pub(super) fn perform(self, op: ObjectOp, memory: Memory, done: cut::Done) {
        match self.inner.steps(&op, &memory) {
            Some(steps) => self.take(steps, op, memory, done),
            None => self.ask(op, memory, done),
        }
    }

    /// Whether the catalog can have something shown that is staged for this collection.
    pub(super) fn can_publish(&self, op: &ObjectOp) -> bool {
        op.demand.stage.is_none() && op.demand.domain.is_some() && self.inner.publisher.get().is_some()
    }

    /// Has one operation done that takes one step.
    pub(super) fn ask(&self, op: ObjectOp, memory: Memory, then: impl FnOnce(Result<Evidence>) + Send + 'static) {
        let sink = Arc::new(Once { then: Mutex::new(Some(then)), sink: self.sink.clone() });
        together(&self.inner, &self.cx, vec![(0, (op, memory))], sink, None);
    }
}

impl Inner {
    /// The steps of an operation that takes several.
    fn steps(&self, op: &ObjectOp, memory: &Memory) -> Option<Steps> {
        if let ObjectVerb::Copy { source, .. } = &op.verb {
            let apart = !split::is_at_first(op) && !self.is_together(op.object, *source);
            return apart.then_some(Steps::Copy);
        }
        let place = Place::of(op.object)?;
        let width = self.table.line(place.pattern()).ok()?.backends.len();
        if width == 1 {
            return None;
        }
        if matches!(op.verb, ObjectVerb::Seal) {
            return Some(Steps::Seal);
        }
        let cuts = matches!(op.verb, ObjectVerb::Truncate { .. }) && op.demand.stage.is_none();
        if cuts && op.demand.domain.is_some() && self.publisher.get().is_some() {
            return Some(Steps::Cut);
        }
        let end = match op.verb {
            ObjectVerb::Truncate { size } => size,
            ObjectVerb::Write { .. } | ObjectVerb::Allocate { keep_size: false, .. } => {
                split::range_of(&op.verb, memory.len() as u64).ok()??.end()
            }
            _ => 0,
        };
        if op.demand.max_size != 0 && end > op.demand.max_size {
            return Some(Steps::Limit);
        }
        // Who holds it alone has nobody to see how it grows.
        let shared = op.demand.epoch == 0 && op.demand.stage.is_none();
        let writes = matches!(op.verb, ObjectVerb::Write { .. });
        (writes && shared && memory.len() as u64 > place.chunk() - split::within(op, place.chunk()))
            .then_some(Steps::Grow)
    }

    /// Whether both have all of their bytes on one target, so that this can copy.
    fn is_together(&self, one: ObjectId, other: ObjectId) -> bool {
        let target = |object: ObjectId| match Place::of(object) {
            None => Some(0),
            Some(place) => match &self.table.line(place.pattern()).ok()?.numbers[..] {
                [only] => Some(*only),
                _ => None,
            },
        };
        matches!((target(one), target(other)), (Some(one), Some(other)) if one == other)
    }

    /// The name of an object on the one target that it lies on.
    fn on_target(&self, object: ObjectId) -> ObjectId {
        Place::of(object).map_or(object, |_| Place::part(object.collection, 0))
    }
}

/// What one target is asked, and where its answers go.
type ForOne = (Vec<Submitted>, Vec<Route>);

/// Sends operations that take one step to their targets, each target's in one submission. `then` is called once all have been
/// answered.
pub(super) fn together(
    inner: &Arc<Inner>,
    cx: &OpCx,
    ops: Vec<(usize, Submitted)>,
    sink: Arc<dyn Sink>,
    then: Option<Then>,
) {
    let sink: Arc<dyn Sink> = match then {
        None => sink,
        Some(then) => Arc::new(Counted { sink, left: AtomicUsize::new(ops.len()), then: Mutex::new(Some(then)) }),
    };
    let mut by_target: BTreeMap<u32, (Arc<dyn Backend>, ForOne)> = BTreeMap::new();
    for (index, (mut op, memory)) in ops {
        let mut go = |number: u32, backend: &Arc<dyn Backend>, submitted: Submitted, route: Route| {
            let (_, (all, routes)) = by_target.entry(number).or_insert_with(|| (backend.clone(), Default::default()));
            all.push(submitted);
            routes.push(route);
        };
        if let ObjectVerb::Copy { source, .. } = &mut op.verb
            && Place::of(op.object).or(Place::of(*source)).is_some()
        {
            // Both are on one target.
            let place = Place::of(op.object).or(Place::of(*source)).unwrap_or_default();
            *source = inner.on_target(*source);
            op.object = inner.on_target(op.object);
            match inner.lined(place) {
                Ok((lined, _)) => {
                    go(lined.numbers[0], &lined.backends[0], (op, memory), Route::All(index, sink.clone()));
                }
                Err(e) => sink.complete(index, Err(e)),
            }
            continue;
        }
        let Some(place) = Place::of(op.object) else {
            go(0, &inner.first, (op, memory), Route::All(index, sink.clone()));
            continue;
        };
        let (lined, stripes) = match inner.lined(place) {
            Ok(known) => known,
            Err(e) => {
                sink.complete(index, Err(e));
                continue;
            }
        };
        let (cx, sink) = (cx.clone(), sink.clone());
        let inner = inner.clone();
        let asked = Asked { cx, op, lined: lined.clone(), stripes, memory, inner, attempt: 0, index, sink };
        for (position, submitted, route) in Gather::begin(asked) {
            go(lined.numbers[position], &lined.backends[position], submitted, route);
        }
    }
    for (_, (backend, (ops, routes))) in by_target {
        backend.submit(cx, ops, Arc::new(Routes(routes)));
    }
}

/// Reads once more from several targets.
pub(super) fn read_again(
    inner: &Arc<Inner>,
    cx: &OpCx,
    (index, (op, memory)): (usize, Submitted),
    sink: Arc<dyn Sink>,
    attempt: u32,
) {
    let place = Place::of(op.object).unwrap_or_default();
    let (lined, stripes) = match inner.lined(place) {
        Ok(known) => known,
        Err(e) => return sink.complete(index, Err(e)),
    };
    let asked =
        Asked { cx: cx.clone(), op, lined: lined.clone(), stripes, memory, inner: inner.clone(), attempt, index, sink };
    let mut by_target: BTreeMap<usize, ForOne> = BTreeMap::new();
    for (position, submitted, route) in Gather::begin(asked) {
        let (all, routes) = by_target.entry(position).or_default();
        all.push(submitted);
        routes.push(route);
    }
    for (position, (ops, routes)) in by_target {
        lined.backends[position].submit(cx, ops, Arc::new(Routes(routes)));
    }
}

/// The error for a store that cannot do it in one step.
pub(super) fn no_place() -> Error {
    Error::internal("an operation on a collection without a place takes one step")
}
