//! At most so much in flight at a target; the rest waits outside.

use std::{
    sync::{Arc, Condvar, Mutex, PoisonError},
    time::Duration,
};

use iov_types::{Capability, Clause, Error, ObjectOp, VerbKind};

use super::tap;
use crate::{Backend, OpCx, Sink, backend::Submitted};

#[derive(Default)]
struct Load {
    ops: usize,
    bytes: u64,
}

#[derive(Default)]
struct Gate {
    load: Mutex<Load>,
    freed: Condvar,
}

/// A target with at most `ops` operations and `bytes` bytes in flight. Who finds no room waits until his deadline.
///
/// What point P needs passes without counting: freezes, syncs and the ends of stages. Else those who wait for a frozen
/// object could fill the target, and keep out the very operation that ends their waiting.
pub struct Limit {
    inner: Arc<dyn Backend>,
    ops: usize,
    bytes: u64,
    gate: Arc<Gate>,
}

/// Whether an operation counts.
fn counts(op: &ObjectOp) -> bool {
    !matches!(op.verb.kind(), VerbKind::Freeze | VerbKind::Publish | VerbKind::Discard | VerbKind::Sync)
}

impl Limit {
    /// Limits a target. An operation of more than `bytes` runs when it is alone.
    pub fn new(inner: Arc<dyn Backend>, ops: usize, bytes: u64) -> Limit {
        Limit { inner, ops: ops.max(1), bytes, gate: Arc::default() }
    }

    /// Operations and bytes in flight that count.
    pub fn in_flight(&self) -> (usize, u64) {
        let load = self.gate.load.lock().unwrap_or_else(PoisonError::into_inner);
        (load.ops, load.bytes)
    }

    fn fits(&self, load: &Load, bytes: u64) -> bool {
        load.ops == 0 || (load.ops < self.ops && load.bytes.saturating_add(bytes) <= self.bytes)
    }

    /// Takes room if there is some, without waiting.
    fn try_enter(&self, bytes: u64) -> bool {
        let mut load = self.gate.load.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = self.fits(&load, bytes);
        if fits {
            load.ops += 1;
            load.bytes += bytes;
        }
        fits
    }

    /// Waits for room, or for the deadline.
    fn enter(&self, cx: &OpCx, bytes: u64) -> bool {
        let mut load = self.gate.load.lock().unwrap_or_else(PoisonError::into_inner);
        while !self.fits(&load, bytes) {
            let left = cx.left_ns();
            if left == 0 {
                return false;
            }
            let wait = Duration::from_nanos(left as u64);
            load = self.gate.freed.wait_timeout(load, wait).unwrap_or_else(PoisonError::into_inner).0;
        }
        load.ops += 1;
        load.bytes += bytes;
        true
    }
}

impl Gate {
    fn leave(&self, bytes: u64) {
        let mut load = self.load.lock().unwrap_or_else(PoisonError::into_inner);
        load.ops -= 1;
        load.bytes -= bytes;
        self.freed.notify_all();
    }
}

/// Operations of one submission that go on together, and how many of them are still under way.
struct Group {
    left: Mutex<usize>,
    done: Condvar,
}

impl Limit {
    /// Passes operations on; the group tells when all of them have completed.
    fn pass(&self, cx: &OpCx, ops: Vec<(usize, Submitted)>, sink: &Arc<dyn Sink>) -> Arc<Group> {
        let group = Arc::new(Group { left: Mutex::new(ops.len()), done: Condvar::new() });
        let cost = |(op, memory): &Submitted| counts(op).then_some(memory.len() as u64);
        let (ends, ops): (Vec<_>, Vec<_>) = ops.into_iter().map(|(index, op)| ((index, cost(&op)), op)).unzip();
        let (gate, to, of) = (self.gate.clone(), sink.clone(), group.clone());
        let tap = tap(move |at, evidence| {
            let (index, cost) = ends[at];
            if let Some(bytes) = cost {
                gate.leave(bytes);
            }
            to.complete(index, evidence);
            *of.left.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
            of.done.notify_all();
        });
        if !ops.is_empty() {
            self.inner.submit(cx, ops, tap);
        }
        group
    }
}

impl Group {
    /// Waits for its end, or for the deadline.
    fn wait(&self, cx: &OpCx) -> bool {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        while *left > 0 {
            let ns = cx.left_ns();
            if ns == 0 {
                return false;
            }
            left =
                self.done.wait_timeout(left, Duration::from_nanos(ns as u64)).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

impl Backend for Limit {
    fn capability(&self) -> &Capability {
        self.inner.capability()
    }

    fn submit(&self, cx: &OpCx, ops: Vec<Submitted>, sink: Arc<dyn Sink>) {
        let (mut group, mut late) = (Vec::new(), false);
        for (index, (op, memory)) in ops.into_iter().enumerate() {
            let bytes = memory.len() as u64;
            if counts(&op) && (late || !self.try_enter(bytes)) {
                // What has room goes ahead. What comes behind it on the same object must not overtake it, so it has to
                // be over before the next group goes on.
                late = late || !self.pass(cx, std::mem::take(&mut group), &sink).wait(cx) || !self.enter(cx, bytes);
                if late {
                    let why =
                        format!("{} operations or {} bytes are in flight already; repeat later", self.ops, self.bytes);
                    sink.complete(index, Err(Error::timeout(why).with_clause(Clause::O8)));
                    continue;
                }
            }
            group.push((index, (op, memory)));
        }
        self.pass(cx, group, &sink);
    }
}
