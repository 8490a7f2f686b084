//! A target without bytes does all that one with bytes does.

use std::sync::{Arc, Mutex, PoisonError};

use iov_types::{Capability, Evidence, Kind, ObjectOp, Result, VerbKind};

use super::capability;
use crate::{
    Backend, Heap, Memory, Null, OpCx, Sink, Submitted,
    conformance::{self, Probe},
    run_one, seam,
};

/// Two targets that are asked the same in the same order. Evidence is the first one's, bytes are the other's.
struct Beside {
    null: Null,
    heap: Heap,
    turn: Mutex<()>,
}

impl Beside {
    /// `None`: it has to wait for a freeze to end, which it must not do while it is its turn.
    fn try_both(&self, cx: &OpCx, op: &ObjectOp, memory: &Memory) -> Option<Result<Evidence>> {
        let whole = || memory.part(0, memory.len());
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        // A copy looks at its deadline also on its way.
        let deadline_ns = if op.verb.kind() == VerbKind::Copy { cx.deadline_ns } else { seam::monotonic_ns() };
        let now = OpCx { deadline_ns, ..cx.clone() };
        let evidence = run_one(&self.null, &now, op.clone(), whole());
        if evidence.as_ref().is_err_and(|e| e.kind() == Kind::Timeout) && cx.left_ns() > 0 {
            return None;
        }
        let other = run_one(&self.heap, &now, op.clone(), whole());
        Some(match (evidence, other) {
            (Ok(one), Ok(other)) => {
                let of = |e: &Evidence| {
                    (e.bytes, e.offset, e.size, e.version, e.epoch, e.extents.clone(), e.objects.clone())
                };
                assert_eq!(of(&one), of(&other), "{op:?}");
                // Space for bytes has who has bytes.
                Ok(Evidence { allocated: other.allocated, ..one })
            }
            (Err(one), Err(other)) => {
                assert_eq!(one.kind(), other.kind(), "{op:?}");
                Err(one)
            }
            (one, other) => panic!("{op:?}: {one:?} without bytes, {other:?} with them"),
        })
    }
}

impl Backend for Beside {
    fn capability(&self) -> &Capability {
        self.null.capability()
    }

    fn submit(&self, cx: &OpCx, ops: Vec<Submitted>, sink: Arc<dyn Sink>) {
        for (index, (op, memory)) in ops.into_iter().enumerate() {
            let evidence = loop {
                match self.try_both(cx, &op, &memory) {
                    Some(evidence) => break evidence,
                    None => seam::sleep(100_000),
                }
            };
            sink.complete(index, evidence);
        }
    }
}

#[test]
fn null_passes_the_backend_suite_but_for_its_bytes() {
    conformance::backend(&|| {
        Arc::new(Beside {
            null: Null::new(Capability { medium: "null", ..capability() }),
            heap: Heap::new(capability()),
            turn: Mutex::new(()),
        })
    });
}

#[test]
fn null_keeps_lengths_and_no_bytes() {
    let target: Arc<dyn Backend> = Arc::new(Null::new(capability()));
    let object = Probe::new(&target, 1);
    object.write(1 << 40, &[7; 100]).unwrap();
    let facts = object.stat();
    assert_eq!((facts.size, facts.allocated), ((1 << 40) + 100, 0));
    assert_eq!(object.read(1 << 40, 200).unwrap(), [0; 100]);
}
