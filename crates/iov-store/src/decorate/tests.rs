use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use bytes::Bytes;
use iov_types::{Error, Kind, ObjectVerb, Outcome, VerbKind};

use super::*;
use crate::{
    Backend, MemoryStore, MetadataStore, Txn,
    backend::Submitted,
    conformance::{self, Probe, run_many},
    seam,
    tests::heap,
};

const LONG_NS: i64 = 20_000_000_000;

#[test]
fn decorators_pass_the_backend_suite() {
    conformance::backend(&|| Arc::new(Trace::ring(heap(), 10).0));
    conformance::backend(&|| Arc::new(Faulty::new(heap())));
    conformance::backend(&|| Arc::new(Limit::new(heap(), 2, 50_000)));
    conformance::metadata(&|| Arc::new(FaultyStore::new(Arc::new(MemoryStore::new()))));
}

#[test]
fn trace_tells_every_operation() {
    let (trace, ring) = Trace::ring(heap(), 4);
    let target: Arc<dyn Backend> = Arc::new(trace);
    let object = Probe::new(&target, 7);
    object.write(10, b"abc").unwrap();
    object.append(b"de").unwrap();
    object.read(12, 100).unwrap();
    object.call(ObjectVerb::Seal).unwrap();
    object.punch(1, 2).unwrap_err();
    assert_eq!(ring.total(), 5);
    let told: Vec<_> =
        ring.events().into_iter().map(|e| (e.verb, e.offset, e.len, e.bytes, e.error, e.outcome)).collect();
    let expected = [
        (VerbKind::Append, 13, 2, 2, None, Outcome::Applied),
        (VerbKind::Read, 12, 100, 3, None, Outcome::Applied),
        (VerbKind::Seal, 0, 0, 0, None, Outcome::Applied),
        (VerbKind::Punch, 1, 2, 0, Some(Kind::Immutable), Outcome::NotApplied),
    ];
    assert_eq!(told, expected, "the last four, the oldest first");
    let events = ring.events();
    assert!(events.iter().all(|e| e.object == object.id && e.duration_ns >= 0 && e.started_ns > 0), "{events:?}");
    assert!(events.windows(2).all(|w| w[0].started_ns <= w[1].started_ns));
}

#[test]
fn trace_measures_the_time_until_the_evidence() {
    let slow = Arc::new(Faulty::new(heap()));
    slow.arm(Fault { verb: None, nth: 1, action: Action::Delay(3_000_000) });
    let (trace, ring) = Trace::ring(slow, 4);
    let target: Arc<dyn Backend> = Arc::new(trace);
    Probe::new(&target, 1).write(0, b"x").unwrap();
    assert!(ring.events()[0].duration_ns >= 3_000_000);
}

fn faulty() -> (Arc<Faulty>, Arc<dyn Backend>) {
    let faulty = Arc::new(Faulty::new(heap()));
    (faulty.clone(), faulty)
}

#[test]
fn a_fault_strikes_the_nth_of_its_verb_before_or_after() {
    let (faulty, target) = faulty();
    let object = Probe::new(&target, 1);
    let before = Error::exhausted("no space");
    let after = Error::unavailable("connection lost").with_outcome(Outcome::Unknown);
    faulty.arm(Fault { verb: Some(VerbKind::Append), nth: 2, action: Action::Fail(When::Before, before.clone()) });
    faulty.arm(Fault { verb: Some(VerbKind::Append), nth: 3, action: Action::Fail(When::After, after.clone()) });
    object.append(b"1").unwrap();
    object.write(0, b"!").unwrap();
    assert_eq!(object.append(b"2").unwrap_err(), before);
    assert_eq!(object.all(), b"!", "before: without effect");
    assert_eq!(object.append(b"3").unwrap_err(), after);
    assert_eq!(object.all(), b"!3", "after: with its effect");
    object.append(b"4").unwrap();
    assert_eq!(object.all(), b"!34", "each fault strikes once");
    faulty.arm(Fault { verb: None, nth: 1, action: Action::Fail(When::Before, before) });
    faulty.disarm();
    object.append(b"5").unwrap();
}

#[test]
fn faults_strike_inside_a_submission_and_leave_the_rest() {
    let (faulty, target) = faulty();
    let object = Probe::new(&target, 1);
    let fail = |when| Action::Fail(when, Error::exhausted("no space"));
    faulty.arm(Fault { verb: None, nth: 2, action: fail(When::Before) });
    faulty.arm(Fault { verb: None, nth: 3, action: fail(When::After) });
    let ops = (0..5u8).map(|i| (object.op(ObjectVerb::Append), vec![i])).collect();
    let answers = run_many(&*target, LONG_NS, ops);
    let ok: Vec<_> = answers.iter().map(|a| (a.times, a.evidence.is_ok())).collect();
    assert_eq!(ok, [(1, true), (1, false), (1, false), (1, true), (1, true)]);
    assert_eq!(object.all(), [0, 2, 3, 4], "in order");
}

#[test]
fn death_stops_everything_behind_it() {
    for (when, there) in [(When::Before, &[0u8][..]), (When::After, &[0, 1])] {
        let (faulty, target) = faulty();
        let object = Probe::new(&target, 1);
        faulty.arm(Fault { verb: Some(VerbKind::Append), nth: 2, action: Action::Die(when) });
        let ops = (0..4u8).map(|i| (object.op(ObjectVerb::Append), vec![i])).collect();
        let ends: Vec<_> = run_many(&*target, LONG_NS, ops)
            .into_iter()
            .map(|a| a.evidence.map(|_| ()).map_err(|e| (e.kind(), e.outcome())))
            .collect();
        let gone = |outcome| Err((Kind::Unavailable, outcome));
        assert_eq!(ends, [Ok(()), gone(Outcome::Unknown), gone(Outcome::NotApplied), gone(Outcome::NotApplied)]);
        assert!(faulty.is_dead());
        assert_eq!(object.read(0, 9).unwrap_err().kind(), Kind::Unavailable, "reads as well");
        faulty.revive();
        assert_eq!(object.all(), there, "{when:?}");
        faulty.die();
        object.append(b"x").unwrap_err();
        faulty.revive();
        assert_eq!(object.all(), there, "nothing of later operations");
    }
}

#[test]
fn who_is_delayed_into_death_has_no_effect() {
    let (faulty, target) = faulty();
    let object = Probe::new(&target, 1);
    faulty.arm(Fault { verb: None, nth: 1, action: Action::Delay(100_000_000) });
    let slow = {
        let object = object.clone();
        seam::spawn("slow", move || drop(object.append(b"x").unwrap_err())).unwrap()
    };
    while faulty.armed() > 0 {
        seam::sleep(10_000);
    }
    faulty.die();
    slow.join().unwrap();
    faulty.revive();
    assert_eq!(object.stat().size, 0);
}

/// A submission and its sink.
type Held = (Vec<Submitted>, Arc<dyn Sink>);

/// Holds every operation until it is told to let go; counts what is inside.
struct Gated {
    inner: Arc<dyn Backend>,
    held: Mutex<Vec<Held>>,
    inside: AtomicUsize,
}

impl Backend for Gated {
    fn capability(&self) -> &iov_types::Capability {
        self.inner.capability()
    }

    fn submit(&self, _: &crate::OpCx, ops: Vec<Submitted>, sink: Arc<dyn Sink>) {
        self.inside.fetch_add(ops.len(), Ordering::SeqCst);
        self.held.lock().unwrap().push((ops, sink));
    }
}

impl Gated {
    fn let_go(&self) {
        for (ops, sink) in std::mem::take(&mut *self.held.lock().unwrap()) {
            self.inside.fetch_sub(ops.len(), Ordering::SeqCst);
            let cx = crate::OpCx::new(
                iov_types::Caller {
                    uid: 0,
                    gid: 0,
                    groups: vec![],
                    session: Default::default(),
                    holder: Default::default(),
                },
                LONG_NS,
            );
            self.inner.submit(&cx, ops, sink);
        }
    }
}

fn wait_for(what: impl Fn() -> bool) {
    let end = seam::monotonic_ns() + LONG_NS;
    while !what() {
        assert!(seam::monotonic_ns() < end, "it never came");
        seam::sleep(50_000);
    }
}

#[test]
fn limit_holds_back_what_has_no_room() {
    let gated = Arc::new(Gated { inner: heap(), held: Mutex::default(), inside: AtomicUsize::new(0) });
    let limit = Arc::new(Limit::new(gated.clone(), 3, 1000));
    let target: Arc<dyn Backend> = limit.clone();
    let object = Probe::new(&target, 1);
    let (op, to) = (object.op(ObjectVerb::Append), target.clone());
    let all = seam::spawn("writer", move || {
        let ops = (0..8u8).map(|i| (op.clone(), vec![i; 10])).collect();
        for (i, answer) in run_many(&*to, LONG_NS, ops).into_iter().enumerate() {
            assert_eq!((answer.times, answer.evidence.unwrap().offset), (1, i as u64 * 10), "in order");
        }
    })
    .unwrap();
    wait_for(|| gated.inside.load(Ordering::SeqCst) == 3);
    assert_eq!(limit.in_flight(), (3, 30), "three of eight are inside");
    let late = object.patient(2_000_000).append(b"late").unwrap_err();
    assert_eq!(
        (late.kind(), late.outcome(), late.clause()),
        (Kind::Timeout, Outcome::NotApplied, Some(iov_types::Clause::O8))
    );
    wait_for(|| {
        assert!(gated.inside.load(Ordering::SeqCst) <= 3);
        gated.let_go();
        all.is_finished()
    });
    all.join().unwrap();
    assert_eq!(limit.in_flight(), (0, 0), "all room is back");
}

#[test]
fn limit_counts_bytes_and_lets_a_large_one_run_alone() {
    let gated = Arc::new(Gated { inner: heap(), held: Mutex::default(), inside: AtomicUsize::new(0) });
    let target: Arc<dyn Backend> = Arc::new(Limit::new(gated.clone(), 100, 1000));
    let writers: Vec<_> = [600, 600, 5000]
        .into_iter()
        .enumerate()
        .map(|(n, len)| {
            let object = Probe::new(&target, n as u64);
            seam::spawn("writer", move || drop(object.write(0, &vec![1; len]).unwrap())).unwrap()
        })
        .collect();
    wait_for(|| gated.inside.load(Ordering::SeqCst) == 1);
    wait_for(|| {
        seam::sleep(1_000_000);
        assert!(gated.inside.load(Ordering::SeqCst) <= 1, "no two of these fit together");
        gated.let_go();
        writers.iter().all(|w| w.is_finished())
    });
    writers.into_iter().for_each(|w| w.join().unwrap());
}

#[test]
fn b3_limit_does_not_keep_out_what_ends_a_freeze() {
    let target: Arc<dyn Backend> = Arc::new(Limit::new(heap(), 2, 1 << 20));
    let (a, b) = (Probe::new(&target, 1), Probe::new(&target, 2));
    for object in [&a, &b] {
        object.staged(1).write(0, b"new").unwrap();
    }
    a.freeze(1).unwrap();
    // More readers than there is room for, all of them waiting for the frozen object.
    let readers: Vec<_> = (0..4)
        .map(|_| {
            let a = a.clone();
            seam::spawn("reader", move || assert_eq!(a.read(0, 9).unwrap(), b"new")).unwrap()
        })
        .collect();
    seam::sleep(3_000_000);
    let quick = |o: &Probe| o.patient(2_000_000_000);
    quick(&b).freeze(1).unwrap();
    quick(&b.staged(1)).call(ObjectVerb::Sync).unwrap();
    quick(&a).publish(1).unwrap();
    quick(&b).publish(1).unwrap();
    readers.into_iter().for_each(|r| r.join().unwrap());
}

fn put(key: &str) -> Vec<Txn> {
    vec![Txn { guards: vec![], writes: vec![(key.into(), Some(Bytes::from("v")))] }]
}

#[test]
fn p8_a_failed_commit_is_the_last_until_the_store_is_opened_anew() {
    let store = FaultyStore::new(Arc::new(MemoryStore::new()));
    store.arm(2, Action::Fail(When::Before, Error::exhausted("no space").with_outcome(Outcome::Unknown)));
    store.commit(put("a")).unwrap();
    assert_eq!(store.commit(put("b")).unwrap_err().kind(), Kind::Exhausted);
    assert_eq!(store.commit(put("c")).unwrap_err().clause(), Some(iov_types::Clause::P8));
    let there = |store: &FaultyStore| {
        store.get(&[b"a", b"b", b"c", b"d"]).unwrap().iter().map(Option::is_some).collect::<Vec<_>>()
    };
    assert_eq!(there(&store), [true, false, false, false], "reads go on");
    store.revive();
    store.arm(1, Action::Fail(When::After, Error::unavailable("gone").with_outcome(Outcome::Unknown)));
    assert_eq!(store.commit(put("d")).unwrap_err().outcome(), Outcome::Unknown);
    assert_eq!(there(&store), [true, false, false, true], "applied, though nobody was told");
}

#[test]
fn a_dead_store_answers_nothing() {
    for (when, there) in [(When::Before, false), (When::After, true)] {
        let store = FaultyStore::new(Arc::new(MemoryStore::new()));
        store.arm(1, Action::Die(when));
        assert_eq!(store.commit(put("a")).unwrap_err().outcome(), Outcome::Unknown);
        assert!(store.is_dead());
        assert_eq!(store.get(&[b"a"]).unwrap_err().kind(), Kind::Unavailable);
        assert_eq!(store.commit(put("b")).unwrap_err().outcome(), Outcome::NotApplied);
        assert!(store.persist().is_err() && store.snapshot().is_err());
        store.revive();
        assert_eq!(store.get(&[b"a", b"b"]).unwrap().iter().map(Option::is_some).collect::<Vec<_>>(), [there, false]);
    }
}
