mod journal;
mod null;

use std::sync::{Arc, Mutex};

use iov_types::{
    Caller, Capability, Kind, Outcome, Persistence,
    catalog::{CatalogOp, Submission},
    limits::MAX_UNIT,
};

use super::*;

/// What `mem:` can do, with stages small enough to be filled.
fn capability() -> Capability {
    Capability {
        medium: "heap",
        durability: Persistence::Volatile,
        max_unit: MAX_UNIT,
        staging: true,
        stage_bytes: 4 << 20,
        once: true,
        bursty: true,
        targets: 1,
        incarnation: 1,
    }
}

pub(crate) fn heap() -> Arc<dyn Backend> {
    Arc::new(Heap::new(capability()))
}

fn cx(timeout_ns: i64) -> OpCx {
    let nobody = Caller { uid: 0, gid: 0, groups: vec![], session: Default::default(), holder: Default::default() };
    OpCx::new(nobody, timeout_ns)
}

#[test]
fn the_heap_passes_the_backend_suite() {
    conformance::backend(&heap);
}

#[test]
fn the_memory_store_passes_the_metadata_suite() {
    conformance::metadata(&|| Arc::new(MemoryStore::new()));
}

#[test]
#[should_panic(expected = "m2_a_sealed_object_refuses_every_change: ")]
fn a_failed_check_tells_its_name() {
    let dead = || {
        let target = Faulty::new(heap());
        target.die();
        Arc::new(target) as Arc<dyn Backend>
    };
    conformance::backend_check("m2_a_sealed_object_refuses_every_change", &dead);
}

#[test]
fn names_of_checks_are_distinct() {
    let mut names: Vec<_> = conformance::backend_checks().iter().map(|c| c.name).collect();
    names.extend(conformance::metadata_checks().iter().map(|c| c.name));
    let n = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), n);
}

#[test]
fn p7_a_journal_passes_the_reopen_suite_and_its_mutants_do_not() {
    let scratch = journal::Scratch::new();
    let suite = |flaw, name: &str| {
        let make = |at: &std::path::Path| Arc::new(journal::Journal::open(at, flaw)) as Arc<dyn MetadataStore>;
        let folder = scratch.path().join(name);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| conformance::reopen(&make, &folder)));
        outcome.err().map(|payload| payload.downcast_ref::<String>().cloned().unwrap_or_default())
    };
    assert_eq!(suite(journal::Flaw::None, "none"), None);
    let found = |flaw, name, check: &str| {
        let text = suite(flaw, name).unwrap_or_else(|| panic!("no check noticed that the store {name}"));
        assert!(text.contains(check), "{text}");
    };
    found(journal::Flaw::LosesTheLastCommit, "loses", "p7_everything_committed_is_there_again");
    found(journal::Flaw::BeginsRevisionsAnew, "begins anew", "p7_revisions_go_on_growing");
    found(journal::Flaw::LogsConflicts, "logs conflicts", "p7_what_did_not_apply_does_not_appear");
}

#[test]
fn o8_contexts_know_how_long_is_left() {
    assert_eq!(cx(0).left_ns(), 0);
    assert_eq!(cx(-5).left_ns(), 0);
    let left = cx(1_000_000_000).left_ns();
    assert!((1..=1_000_000_000).contains(&left), "{left}");
    assert!(cx(i64::MAX).left_ns() > i64::MAX / 2, "never is far away");
}

#[test]
fn memory_parts_stay_inside() {
    let bytes = [1, 2, 3, 4];
    // SAFETY: the array outlives the loan.
    let memory = unsafe { Memory::readable(bytes.as_ptr(), 4) };
    assert_eq!(memory.part(1, 2).bytes(), [2, 3]);
    assert!(memory.part(4, 0).is_empty());
    for (from, len) in [(1, 4), (5, 0), (usize::MAX, 2)] {
        let outside = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| memory.part(from, len).len()));
        assert!(outside.is_err(), "{from}+{len}");
    }
}

#[test]
fn a_read_into_memory_for_reading_is_an_error() {
    let target = heap();
    conformance::Probe::new(&target, 1).write(0, b"abc").unwrap();
    let op = conformance::Probe::new(&target, 1).op(iov_types::ObjectVerb::Read { offset: 0 });
    let bytes = [7; 3];
    // SAFETY: the array outlives the operation.
    let memory = unsafe { Memory::readable(bytes.as_ptr(), 3) };
    let result = run_one(&*target, &cx(1_000_000_000), op, memory);
    assert_eq!((result.unwrap_err().kind(), bytes), (Kind::Invalid, [7; 3]));
}

#[test]
fn uuids_are_of_now_and_all_different() {
    let ids: std::collections::HashSet<_> = (0..10_000).map(|_| seam::new_uuid()).collect();
    let now_ms = seam::now_ns() as u64 / 1_000_000;
    assert_eq!(ids.len(), 10_000);
    assert!(ids.iter().all(|id| id.version() == 7 && id.unix_ms() <= now_ms && id.unix_ms() + 60_000 > now_ms));
}

#[test]
fn what_serves_others_runs_where_all_may() {
    let count = || std::thread::available_parallelism().unwrap().get();
    let (mine, all) = (count(), seam::for_others(count));
    assert!(all >= mine && count() == mine);
    // In a thread of their own each: they stay bound.
    let run = |bind: fn(usize) -> bool| {
        let (tell, told) = std::sync::mpsc::channel();
        let bound = move || {
            assert!((0..1024).any(bind) && count() == 1);
            tell.send((seam::unbound(count), seam::for_others(count), count())).unwrap();
        };
        seam::spawn("bound", bound).unwrap();
        told.recv().unwrap()
    };
    assert_eq!(run(seam::bind), (mine, all, 1), "a thread of ours");
    assert_eq!(run(bind_as_a_launcher), (1, all, 1), "a program");
}

/// As if the program had been started so: nobody here knows.
fn bind_as_a_launcher(processor: usize) -> bool {
    // SAFETY: a set of zeros is an empty one, which has room for the number, and its size is told; 0 is the calling thread.
    unsafe {
        let mut one = std::mem::zeroed();
        libc::CPU_SET(processor, &mut one);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &one) == 0
    }
}

#[test]
fn a_thread_apart_does_its_work_also_where_it_cannot_be_apart() {
    let works = || {
        let (tell, told) = std::sync::mpsc::channel();
        seam::spawn_apart("apart", move || tell.send(()).unwrap()).unwrap().join().unwrap();
        told.recv().is_ok()
    };
    assert!(works());
    // Of that thread and those that it starts.
    let (tell, told) = std::sync::mpsc::channel();
    let refused = move || tell.send(!refuses(libc::SYS_close_range) || works()).unwrap();
    seam::spawn("refused", refused).unwrap();
    assert!(told.recv().unwrap());
}

/// As a container does whose filter does not know a call yet; `false`: it cannot be had.
fn refuses(call: libc::c_long) -> bool {
    let one = |code: u32, (jt, jf): (u8, u8), k: u32| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut filter = [
        one(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, (0, 0), 0),
        one(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, (0, 1), call as u32),
        one(libc::BPF_RET | libc::BPF_K, (0, 0), libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        one(libc::BPF_RET | libc::BPF_K, (0, 0), libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the program and its length are live; the kernel copies it.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
    }
}

/// A catalog that answers from another thread, or never.
struct Slow {
    capability: CatalogCapability,
    answers: bool,
    kept: Mutex<Vec<OnAnswer>>,
}

impl Catalog for Slow {
    fn capability(&self) -> &CatalogCapability {
        &self.capability
    }

    fn submit(&self, _: &OpCx, _: Vec<CatalogOp>, _: Submission, done: OnAnswer) {
        if self.answers {
            let answer = move || {
                seam::sleep(1_000_000);
                done(Ok(vec![]));
            };
            seam::spawn("answer", answer).unwrap();
        } else {
            self.kept.lock().unwrap().push(done);
        }
    }
}

#[test]
fn o8_asking_a_catalog_ends_with_the_answer_or_the_deadline() {
    let targets = heap().capability().clone();
    let capability = CatalogCapability { targets, max_ops: 1, single_user: true, inline_bytes: 0, lease_ns: i64::MAX };
    let slow = |answers| Slow { capability: capability.clone(), answers, kept: Mutex::default() };
    assert_eq!(ask(&slow(true), &cx(20_000_000_000), vec![], Submission::Each), Ok(vec![]));
    let deaf = slow(false);
    let e = ask(&deaf, &cx(2_000_000), vec![], Submission::Each).unwrap_err();
    assert_eq!((e.kind(), e.outcome()), (Kind::Timeout, Outcome::Unknown));
    // An answer that comes too late finds nobody, and does no harm.
    deaf.kept.lock().unwrap().pop().unwrap()(Ok(vec![]));
}
