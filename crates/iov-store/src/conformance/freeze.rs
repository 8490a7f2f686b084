//! The moment before point P: everybody waits, then sees all of it, or gives up in time.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use iov_types::{Clause, Kind, ObjectVerb, Outcome, Range};

use super::{
    BackendCheck, MakeBackend, Probe, checks,
    kit::{Thread, fails, soon},
};
use crate::seam;

pub(super) fn checks() -> Vec<BackendCheck> {
    checks![BackendCheck:
        b3_whoever_meets_a_freeze_waits_and_sees_all if |c| c.staging,
        b3_a_discard_ends_a_freeze_without_a_trace if |c| c.staging,
        b3_a_thaw_ends_a_freeze_and_keeps_what_is_staged if |c| c.staging,
        b3_a_freeze_lets_only_its_own_stage_pass if |c| c.staging,
        b3_a_freeze_can_be_repeated if |c| c.staging,
        b3_another_freeze_waits_its_turn if |c| c.staging,
        o8_deadlines_hold_while_frozen if |c| c.staging,
        o10_a_frozen_object_can_be_removed if |c| c.staging,
        t15_observers_never_go_back if |c| c.staging,
    ]
}

const SHORT_NS: i64 = 3_000_000;

/// Long enough for a thread that does not wait to come through.
fn give_others_time() {
    seam::sleep(5_000_000);
}

fn b3_whoever_meets_a_freeze_waits_and_sees_all(make: MakeBackend<'_>) {
    let object = Probe::new(&make(), 1);
    object.write(0, b"old").expect("a write");
    object.staged(1).write(0, b"new").expect("a staged write");
    object.staged(1).append(b"!").expect("a staged append");
    object.freeze(1).expect("a freeze");
    let reader = Thread::start({
        let object = object.clone();
        move |_| object.read(0, 10).expect("a read")
    });
    let stat = Thread::start({
        let object = object.clone();
        move |_| object.stat().size
    });
    let appender = Thread::start({
        let object = object.clone();
        move |_| object.append(b"later").expect("an append").offset
    });
    give_others_time();
    assert!(!reader.is_done() && !stat.is_done() && !appender.is_done(), "a freeze keeps everybody out");
    object.publish(1).expect("a publication");
    let read = reader.join();
    assert!(read.starts_with(b"new!"), "a reader that waited sees all of it: {read:?}");
    assert!(stat.join() >= 4, "so does stat");
    assert_eq!(appender.join(), 4, "a writer that waited comes behind it");
    assert_eq!(object.all(), b"new!later");
}

fn b3_a_discard_ends_a_freeze_without_a_trace(make: MakeBackend<'_>) {
    let object = Probe::new(&make(), 1);
    object.write(0, b"old").expect("a write");
    let version = object.stat().version;
    object.staged(1).write(0, b"new!").expect("a staged write");
    object.freeze(1).expect("a freeze");
    let reader = Thread::start({
        let object = object.clone();
        move |_| object.read(0, 10).expect("a read")
    });
    give_others_time();
    assert!(!reader.is_done(), "a freeze keeps everybody out");
    object.discard(1).expect("a discard");
    assert_eq!(reader.join(), b"old", "a reader that waited sees none of it");
    assert_eq!(object.stat().version, version);
    object.write(0, b"now").expect("a write");
}

fn b3_a_thaw_ends_a_freeze_and_keeps_what_is_staged(make: MakeBackend<'_>) {
    let object = Probe::new(&make(), 1);
    object.write(0, b"old").expect("a write");
    object.staged(1).write(0, b"new!").expect("a staged write");
    object.freeze(1).expect("a freeze");
    object.thaw(2).expect("a thaw of another stage");
    fails("a read", Kind::Timeout, object.patient(SHORT_NS).read(0, 9));
    for _ in 0..2 {
        object.thaw(1).expect("a thaw, and once more");
        assert_eq!(object.patient(SHORT_NS).read(0, 9).expect("a read"), b"old", "nothing of it is to be seen");
    }
    // What was written since is under what is published.
    object.write(0, b"older").expect("everybody passes");
    object.freeze(1).expect("another try");
    object.publish(1).expect("a publication");
    assert_eq!(object.all(), b"new!r");
    object.thaw(1).expect("there is nothing to thaw");
    assert_eq!(object.all(), b"new!r");
}

fn b3_a_freeze_lets_only_its_own_stage_pass(make: MakeBackend<'_>) {
    let object = Probe::new(&make(), 1);
    object.write(0, b"old").expect("a write");
    object.staged(1).write(0, b"new").expect("a staged write");
    object.staged(2).write(0, b"two").expect("another staged write");
    object.freeze(1).expect("a freeze");
    assert_eq!(object.staged(1).read(0, 9).expect("a read of the stage"), b"new");
    object.staged(1).call(ObjectVerb::Sync).expect("a sync of the stage");
    let short = object.patient(SHORT_NS);
    fails("a read through another stage", Kind::Timeout, short.staged(2).read(0, 9));
    fails("a write through another stage", Kind::Timeout, short.staged(2).write(0, b"x"));
    fails("a publication of another stage", Kind::Timeout, short.publish(2));
    short.discard(3).expect("a discard of another stage");
    fails("a read after a foreign discard", Kind::Timeout, short.read(0, 9));
    let version = object.publish(1).expect("a publication").version;
    assert_eq!(object.all(), b"new");
    assert!(object.publish(2).expect("the other publication").version > version);
    assert_eq!(object.all(), b"two");
}

fn b3_a_freeze_can_be_repeated(make: MakeBackend<'_>) {
    let object = Probe::new(&make(), 1);
    object.staged(1).write(0, b"new").expect("a staged write");
    let first = object.freeze(1).expect("a freeze");
    let again = object.freeze(1).expect("the same again");
    assert_eq!(first.version, again.version);
    let published = object.publish(1).expect("a publication");
    assert_eq!(published.version, first.version, "a freeze tells the version that the publication has");
    assert_eq!(object.patient(SHORT_NS).read(0, 9).expect("one publication ends it"), b"new");
    // A batch may freeze what it has not changed, and nobody may ever have written it.
    let other = object.with(|_| ());
    other.freeze(7).expect("a freeze of an empty stage");
    fails("a read", Kind::Timeout, other.patient(SHORT_NS).read(0, 9));
    other.publish(7).expect("a publication of nothing");
    assert_eq!(other.patient(SHORT_NS).read(0, 9).expect("a read"), b"new");
}

fn b3_another_freeze_waits_its_turn(make: MakeBackend<'_>) {
    let object = Probe::new(&make(), 1);
    object.staged(1).append(b"1").expect("a staged append");
    object.staged(2).append(b"2").expect("a staged append");
    object.freeze(1).expect("a freeze");
    fails("a second freeze", Kind::Timeout, object.patient(SHORT_NS).freeze(2));
    let second = Thread::start({
        let object = object.clone();
        move |_| {
            object.freeze(2).expect("a freeze");
            object.publish(2).expect("a publication");
        }
    });
    give_others_time();
    assert!(!second.is_done(), "one batch at a time");
    object.publish(1).expect("a publication");
    second.join();
    assert_eq!(object.patient(SHORT_NS).read(0, 9).expect("a read"), b"12");
}

fn o8_deadlines_hold_while_frozen(make: MakeBackend<'_>) {
    let target = make();
    let (object, other) = (Probe::new(&target, 1), Probe::new(&target, 2));
    object.write(0, b"old").expect("a write");
    object.staged(1).write(0, b"new").expect("a staged write");
    object.freeze(1).expect("a freeze");
    let short = object.patient(SHORT_NS);
    let range = Range { offset: 0, len: 1 };
    let mut waiting = vec![
        ObjectVerb::Write { offset: 1 },
        ObjectVerb::Append,
        ObjectVerb::Truncate { size: 1 },
        ObjectVerb::Punch(range),
        ObjectVerb::Allocate { range: Range { offset: 0, len: 100 }, keep_size: false },
        ObjectVerb::Copy { source: other.id, source_offset: 0, offset: 0, len: 1 },
        ObjectVerb::Seal,
        ObjectVerb::Fence { epoch: 9 },
        ObjectVerb::Stat,
        ObjectVerb::Sync,
        ObjectVerb::Extents { range, max: 9 },
    ];
    let thread = Thread::start(move |_| {
        for verb in waiting.drain(..) {
            let what = format!("{verb:?}");
            let data: &[u8] = if matches!(verb, ObjectVerb::Write { .. } | ObjectVerb::Append) { b"x" } else { b"" };
            let e = fails(&what, Kind::Timeout, short.send(verb, data));
            assert_eq!((e.outcome(), e.clause()), (Outcome::NotApplied, Some(Clause::B3)), "{what}: {e:?}");
        }
        fails("a read", Kind::Timeout, short.read(0, 9));
    });
    let in_time = soon(|| thread.is_done());
    object.publish(1).expect("a publication");
    thread.join();
    assert!(in_time, "operations outlive their deadline while the object is frozen");
    assert_eq!(object.all(), b"new", "what timed out has no effect, later either");
    object.with(|d| d.epoch = 1).write(0, b"N").expect("it was neither fenced nor sealed");
}

fn o10_a_frozen_object_can_be_removed(make: MakeBackend<'_>) {
    let object = Probe::new(&make(), 1);
    object.write(0, b"old").expect("a write");
    object.staged(1).write(0, b"new").expect("a staged write");
    object.freeze(1).expect("a freeze");
    let reader = Thread::start({
        let object = object.clone();
        move |_| object.read(0, 10)
    });
    give_others_time();
    let removed = object.patient(SHORT_NS).call(ObjectVerb::Remove);
    if removed.is_err() {
        object.discard(1).expect("a discard"); // let the reader go before we complain
    }
    removed.expect("a remove");
    match reader.join() {
        Ok(bytes) => assert_eq!(bytes, [], "a reader that waited finds it empty"),
        Err(e) => assert_eq!(e.kind(), Kind::NotFound, "or gone: {e:?}"),
    }
    object.publish(1).expect("a late publication");
    assert_eq!(object.patient(SHORT_NS).read(0, 9).expect("a read"), [], "nothing comes back");
}

fn t15_observers_never_go_back(make: MakeBackend<'_>) {
    let target = make();
    let objects: Vec<_> = (0..4).map(|n| Probe::new(&target, n)).collect();
    for object in &objects {
        object.write(0, &0u64.to_le_bytes()).expect("a write");
    }
    let seen: Arc<[AtomicU64; 2]> = Arc::default();
    let observers: Vec<_> = (0..2)
        .map(|i| {
            let (mut objects, seen) = (objects.clone(), seen.clone());
            if i == 1 {
                objects.reverse();
            }
            Thread::start(move |stop| {
                let mut newest = 0;
                while !stop.load(Ordering::Relaxed) {
                    for object in &objects {
                        let bytes = object.read(0, 8).expect("a read");
                        let value = u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
                        assert!(value >= newest, "T15: {value} of object {} after {newest}", object.id.slot);
                        seen[i].fetch_add(u64::from(value > newest), Ordering::Relaxed);
                        newest = value;
                    }
                }
            })
        })
        .collect();
    let mut last = 0;
    let enough = || seen.iter().all(|n| n.load(Ordering::Relaxed) >= 30);
    for value in (1..=40_000u64).take_while(|v| *v <= 400 || !enough()) {
        // Staged and frozen in one order, published in another; each fourth batch is dropped at the last moment.
        for object in &objects {
            object.staged(value).write(0, &value.to_le_bytes()).expect("a staged write");
        }
        for object in &objects {
            object.freeze(value).expect("a freeze");
        }
        for object in objects.iter().rev() {
            let end = if value % 4 == 0 { object.discard(value) } else { object.publish(value) };
            end.expect("the end of a batch");
        }
        last = if value % 4 == 0 { last } else { value };
        if observers.iter().any(Thread::is_done) {
            break; // one has found an error
        }
    }
    observers.into_iter().for_each(Thread::stop);
    assert!(enough(), "the observers saw hardly any batch: the check has checked nothing");
    for object in &objects {
        assert_eq!(object.all(), last.to_le_bytes());
    }
}
