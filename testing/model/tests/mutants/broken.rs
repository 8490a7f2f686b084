//! A target that obeys a rule of its own for each operation.

use std::sync::Arc;

use iov_store::{Backend, Heap, Memory, OpCx, Sink, Submitted, conformance::Probe, run_one, seam};
use iov_types::{Capability, Evidence, ObjectOp, ObjectVerb, Persistence, Result, limits::MAX_UNIT};

/// A sound heap whose stages hold this much.
pub(crate) fn heap(stage_bytes: u64) -> Arc<dyn Backend> {
    Arc::new(Heap::new(Capability {
        medium: "heap",
        durability: Persistence::Volatile,
        max_unit: MAX_UNIT,
        staging: true,
        stage_bytes,
        once: true,
        bursty: true,
        targets: 1,
        incarnation: 1,
    }))
}

/// What a rule may use: the sound target, and the context of the operation.
pub(crate) struct Target {
    pub(crate) inner: Arc<dyn Backend>,
    pub(crate) cx: OpCx,
}

impl Target {
    /// Does an operation as it should be done.
    pub(crate) fn run(&self, op: ObjectOp, memory: Memory) -> Result<Evidence> {
        run_one(&*self.inner, &self.cx, op, memory)
    }

    /// Does another thing to the object of an operation, with its demands.
    pub(crate) fn call(&self, like: &ObjectOp, verb: ObjectVerb) -> Result<Evidence> {
        self.run(ObjectOp { verb, ..like.clone() }, Memory::default())
    }

    /// The object of an operation, with its demands.
    pub(crate) fn probe(&self, like: &ObjectOp) -> Probe {
        let mut probe = Probe::new(&self.inner, 0).with(|d| *d = like.demand.clone());
        probe.id = like.object;
        probe.patient(self.cx.left_ns())
    }
}

/// How a mutant does an operation.
pub(crate) type Rule = Box<dyn Fn(&Target, ObjectOp, Memory) -> Result<Evidence> + Send + Sync>;

struct Broken {
    inner: Arc<dyn Backend>,
    capability: Capability,
    rule: Rule,
}

impl Backend for Broken {
    fn capability(&self) -> &Capability {
        &self.capability
    }

    fn submit(&self, cx: &OpCx, ops: Vec<Submitted>, sink: Arc<dyn Sink>) {
        let target = Target { inner: self.inner.clone(), cx: cx.clone() };
        for (index, (op, memory)) in ops.into_iter().enumerate() {
            sink.complete(index, (self.rule)(&target, op, memory));
        }
    }
}

/// A target with a rule. It claims stages of 4 MiB, whatever it has.
pub(crate) fn wrap(inner: Arc<dyn Backend>, rule: Rule) -> Arc<dyn Backend> {
    let capability = Capability { stage_bytes: 4 << 20, ..inner.capability().clone() };
    Arc::new(Broken { inner, capability, rule })
}

/// A broken target and the check that must notice.
pub(crate) struct Mutant {
    pub(crate) check: &'static str,
    /// What it does, as the end of the sentence "a target that".
    pub(crate) what: &'static str,
    pub(crate) make: Box<dyn Fn() -> Arc<dyn Backend>>,
}

/// A mutant whose rule remembers nothing.
pub(crate) fn mutant(
    check: &'static str,
    what: &'static str,
    rule: fn(&Target, ObjectOp, Memory) -> Result<Evidence>,
) -> Mutant {
    Mutant { check, what, make: Box::new(move || wrap(heap(4 << 20), Box::new(rule))) }
}

/// A mutant whose rule remembers something; each target gets a rule of its own.
pub(crate) fn remembering(check: &'static str, what: &'static str, rule: fn() -> Rule) -> Mutant {
    Mutant { check, what, make: Box::new(move || wrap(heap(4 << 20), rule())) }
}

/// Time for others to look in between.
pub(crate) fn pause() {
    seam::sleep(200_000);
}

/// A write in two steps, with a look in between.
pub(crate) fn in_halves(target: &Target, op: ObjectOp, memory: Memory) -> Result<Evidence> {
    let ObjectVerb::Write { offset } = op.verb else { return target.run(op, memory) };
    let half = memory.len() / 2;
    target.run(op.clone(), memory.part(0, half))?;
    pause();
    let rest = ObjectOp { verb: ObjectVerb::Write { offset: offset + half as u64 }, ..op };
    let evidence = target.run(rest, memory.part(half, memory.len() - half))?;
    Ok(Evidence { bytes: memory.len() as u64, offset, ..evidence })
}
