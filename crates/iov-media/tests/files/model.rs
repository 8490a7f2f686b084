//! Random operations on files and on the reference model side by side, also across restarts of the daemon.

use std::{
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use iov_media::{Files, Options};
use iov_store::{Backend, Heap, Memory, OpCx, Sink, Submitted, run_one};
use iov_types::{
    Capability, Evidence, Extent, ExtentKind, Kind, ObjectOp, ObjectVerb, Range, Result, limits::MAX_UNIT,
};
use proptest::prelude::*;

use crate::kit::{memory, scratch, segments};

/// Files beside a heap. Files know holes only by pages; of them it is checked that no data lies in a hole, and the
/// answer is the heap's, which is exact. Now and then the target is closed and opened again in between.
struct Beside {
    path: PathBuf,
    files: Mutex<(Option<Files>, u64)>,
    heap: Heap,
    reopen_every: u64,
}

fn options() -> Options {
    Options { descriptors: 12, objects: 1, ..Options::default() }
}

fn open(path: &Path) -> Files {
    crate::kit::open_with(path, options()).expect("a target")
}

impl Beside {
    fn run(&self, cx: &OpCx, op: ObjectOp, memory: Memory) -> Result<Evidence> {
        let mut slot = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        slot.1 += 1;
        if self.reopen_every > 0 && slot.1.is_multiple_of(self.reopen_every) {
            slot.0 = None; // gives the lock back
            slot.0 = Some(open(&self.path));
        }
        let files = slot.0.as_ref().expect("an open target");
        let read = matches!(op.verb, ObjectVerb::Read { .. });
        let mut copy = if read { vec![0; memory.len()] } else { memory.bytes().to_vec() };
        // SAFETY: `run_one` waits for the evidence, and `copy` lives longer.
        let beside = unsafe { Memory::writable(copy.as_mut_ptr(), copy.len()) };
        let expected = run_one(&self.heap, cx, op.clone(), beside);
        let extents = matches!(op.verb, ObjectVerb::Extents { .. });
        let result = if extents {
            let all = ObjectVerb::Extents { range: range_of(&op.verb), max: usize::MAX };
            run_one(files, cx, ObjectOp { verb: all, ..op.clone() }, memory)
        } else {
            run_one(files, cx, op.clone(), memory)
        };
        match (extents, expected, result) {
            (true, Ok(expected), Ok(got)) => {
                let all = ObjectVerb::Extents { range: range_of(&op.verb), max: usize::MAX };
                // SAFETY: no memory.
                let exact = run_one(&self.heap, cx, ObjectOp { verb: all, ..op.clone() }, Memory::default())?;
                check_extents(&exact.extents, &got.extents, |range| {
                    let mut bytes = vec![1; range.len as usize];
                    // SAFETY: `run_one` waits for the evidence, and `bytes` lives longer.
                    let into = unsafe { Memory::writable(bytes.as_mut_ptr(), bytes.len()) };
                    let read = ObjectOp { verb: ObjectVerb::Read { offset: range.offset }, ..op.clone() };
                    run_one(&self.heap, cx, read, into).is_ok() && bytes.iter().all(|b| *b == 0)
                });
                Ok(Evidence { extents: expected.extents, ..got })
            }
            (_, _, result) => result,
        }
    }
}

fn range_of(verb: &ObjectVerb) -> iov_types::Range {
    match verb {
        ObjectVerb::Extents { range, .. } => *range,
        _ => iov_types::Range::default(),
    }
}

/// A copy of a hole may be a hole, where the heap has written zeros.
fn check_extents(exact: &[Extent], got: &[Extent], is_zero: impl Fn(Range) -> bool) {
    let end = |list: &[Extent]| list.last().map(|e| e.range.end());
    assert_eq!(end(exact), end(got), "extents end where the object does: {got:?}");
    assert!(got.windows(2).all(|w| w[0].range.end() == w[1].range.offset && w[0].kind != w[1].kind), "{got:?}");
    for hole in got.iter().filter(|e| e.kind != ExtentKind::Data) {
        for data in exact.iter().filter(|e| e.kind == ExtentKind::Data && e.range.overlaps(&hole.range)) {
            let offset = data.range.offset.max(hole.range.offset);
            let both = Range { offset, len: data.range.end().min(hole.range.end()) - offset };
            assert!(is_zero(both), "the data {data:?} lie in the hole {hole:?}");
        }
    }
}

impl Backend for Beside {
    fn capability(&self) -> &Capability {
        self.heap.capability()
    }

    fn submit(&self, cx: &OpCx, ops: Vec<Submitted>, sink: Arc<dyn Sink>) {
        for (index, (op, memory)) in ops.into_iter().enumerate() {
            sink.complete(index, self.run(cx, op, memory));
        }
    }
}

fn compare(
    steps: &[testing_model::Step],
    directory: &tempfile::TempDir,
    reopen_every: u64,
) -> std::result::Result<(), String> {
    let path = directory.path().to_owned();
    let capability = iov_semantics::stores::mem(1);
    let target: Arc<dyn Backend> = Arc::new(Beside {
        files: Mutex::new((Some(open(&path)), 0)),
        path,
        heap: Heap::new(Capability { stage_bytes: 1 << 34, max_unit: MAX_UNIT, ..capability }),
        reopen_every,
    });
    testing_model::compare(&target, steps)
}

fn in_memory() -> tempfile::TempDir {
    tempfile::tempdir_in(memory().unwrap_or(scratch())).expect("a directory")
}

/// As many as the environment says, else few enough for every run of the tests.
fn config() -> ProptestConfig {
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { config.cases } else { 60 };
    ProptestConfig { cases, ..config }
}

/// What is in memory alone until a stage is frozen, and nothing depends on, the model cannot lose: a freeze for which
/// nothing was staged; and, after a publication that was refused, which staged appends had been done beside the stage (the
/// next attempt finds that out again).
fn without_what_a_restart_forgets(steps: Vec<testing_model::Step>) -> Vec<testing_model::Step> {
    let mut steps: Vec<_> = steps.into_iter().filter(|(op, _)| !matches!(op.verb, ObjectVerb::Freeze { .. })).collect();
    for (op, _) in &mut steps {
        if op.demand.stage.is_some() {
            op.demand.batch = None;
        }
    }
    steps
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn o6_files_do_what_the_model_does(steps in testing_model::steps(120)) {
        if let Err(difference) = compare(&steps, &in_memory(), 0) {
            prop_assert!(false, "{difference}");
        }
    }

    #[test]
    fn o6_segments_do_what_the_model_does(steps in testing_model::steps(120)) {
        if let Err(difference) = compare(&steps, &segments(), 0) {
            prop_assert!(false, "{difference}");
        }
    }

    #[test]
    fn p2_segments_do_what_the_model_does_across_restarts(steps in testing_model::steps(120), every in 3u64..20) {
        if let Err(difference) = compare(&without_what_a_restart_forgets(steps), &segments(), every) {
            prop_assert!(false, "{difference}");
        }
    }

    #[test]
    fn p2_files_do_what_the_model_does_across_restarts(steps in testing_model::steps(120), every in 3u64..20) {
        if let Err(difference) = compare(&without_what_a_restart_forgets(steps), &in_memory(), every) {
            prop_assert!(false, "{difference}");
        }
    }
}

#[test]
fn b1_a_second_daemon_is_refused() {
    let directory = tempfile::tempdir_in(scratch()).expect("a directory");
    let _first = open(directory.path());
    let again: OwnedFd = std::fs::File::open(directory.path()).expect("the directory").into();
    assert_eq!(Files::open(again, options()).err().map(|e| e.kind()), Some(Kind::Busy));
}
