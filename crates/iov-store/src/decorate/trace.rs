//! Tells what a target was asked to do, and how it went.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use iov_types::{Capability, Kind, ObjectId, ObjectVerb, Outcome, Persistence, Uuid, VerbKind};

use super::tap;
use crate::{Backend, OpCx, Sink, backend::Submitted, seam};

/// One operation that has completed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TraceEvent {
    /// What was asked for.
    pub verb: VerbKind,
    /// Of which object.
    pub object: ObjectId,
    /// For whom; nil = for the store itself.
    pub session: Uuid,
    /// Whether it was collected for a publication, or read through what is.
    pub staged: bool,
    /// What it had to survive.
    pub durability: Option<Persistence>,
    /// First byte; of an append where it went; 0 where a verb has none.
    pub offset: u64,
    /// Bytes asked for: of the memory, or of the range.
    pub len: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// What went wrong.
    pub error: Option<Kind>,
    /// Whether it took effect.
    pub outcome: Outcome,
    /// When it was submitted, on the clock of [`seam::monotonic_ns`].
    pub started_ns: i64,
    /// From the submission to the evidence.
    pub duration_ns: i64,
}

/// Tells every operation to a callback when it completes, before its own sink hears of it.
pub struct Trace {
    inner: Arc<dyn Backend>,
    tell: Arc<dyn Fn(TraceEvent) + Send + Sync>,
}

impl Trace {
    /// Watches a target. The callback runs in whatever thread an operation completes in; it should be quick.
    pub fn new(inner: Arc<dyn Backend>, tell: impl Fn(TraceEvent) + Send + Sync + 'static) -> Trace {
        Trace { inner, tell: Arc::new(tell) }
    }

    /// Watches a target and keeps the last `capacity` events.
    pub fn ring(inner: Arc<dyn Backend>, capacity: usize) -> (Trace, Arc<TraceRing>) {
        let ring = Arc::new(TraceRing { capacity, state: Mutex::default() });
        let to = ring.clone();
        (Trace::new(inner, move |event| to.push(event)), ring)
    }
}

/// The last events of a trace.
pub struct TraceRing {
    capacity: usize,
    /// The events, and how many were told in all.
    state: Mutex<(VecDeque<TraceEvent>, u64)>,
}

impl TraceRing {
    fn push(&self, event: TraceEvent) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.0.len() == self.capacity {
            state.0.pop_front();
        }
        if self.capacity > 0 {
            state.0.push_back(event);
        }
        state.1 += 1;
    }

    /// The events still held, the oldest first.
    pub fn events(&self) -> Vec<TraceEvent> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).0.iter().cloned().collect()
    }

    /// How many there have been, held or not.
    pub fn total(&self) -> u64 {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).1
    }
}

/// Where a verb begins and how long it is, apart from its memory.
fn place(verb: &ObjectVerb, memory: u64) -> (u64, u64) {
    match verb {
        ObjectVerb::Write { offset } | ObjectVerb::Read { offset } => (*offset, memory),
        ObjectVerb::Punch(range) | ObjectVerb::Allocate { range, .. } | ObjectVerb::Extents { range, .. } => {
            (range.offset, range.len)
        }
        ObjectVerb::Copy { offset, len, .. } => (*offset, *len),
        ObjectVerb::Truncate { size } => (*size, 0),
        _ => (0, memory),
    }
}

impl Backend for Trace {
    fn capability(&self) -> &Capability {
        self.inner.capability()
    }

    fn submit(&self, cx: &OpCx, ops: Vec<Submitted>, sink: Arc<dyn Sink>) {
        let started_ns = seam::monotonic_ns();
        let session = cx.caller.session;
        let asked: Vec<TraceEvent> = ops
            .iter()
            .map(|(op, memory)| {
                let (offset, len) = place(&op.verb, memory.len() as u64);
                TraceEvent {
                    verb: op.verb.kind(),
                    object: op.object,
                    session,
                    staged: op.demand.stage.is_some(),
                    durability: op.demand.durability,
                    offset,
                    len,
                    bytes: 0,
                    error: None,
                    outcome: Outcome::Applied,
                    started_ns,
                    duration_ns: 0,
                }
            })
            .collect();
        let tell = self.tell.clone();
        let sink = tap(move |index, evidence| {
            let mut event = asked[index].clone();
            match &evidence {
                Ok(e) => {
                    event.bytes = e.bytes;
                    if event.verb == VerbKind::Append {
                        event.offset = e.offset;
                    }
                }
                Err(e) => (event.error, event.outcome) = (Some(e.kind()), e.outcome()),
            }
            event.duration_ns = seam::monotonic_ns() - started_ns;
            tell(event);
            sink.complete(index, evidence);
        });
        self.inner.submit(cx, ops, sink);
    }
}
