use std::sync::Arc;

use iov_types::{Capability, Extent, ExtentKind, Kind, ObjectVerb, Persistence, Range};

use super::{
    Heap,
    body::PAGE,
    fixture::{body, call, cx},
};
use crate::{
    Backend,
    conformance::Probe,
    objects::{Body, Change, Medium, Stage},
};

fn range(offset: u64, len: u64) -> Range {
    Range { offset, len }
}

#[test]
fn space_is_accounted_as_it_comes_and_goes() {
    let cx = cx();
    let mut body = body();
    body.write(call(&cx), 0, &[1; 1000]).unwrap();
    assert!((1000..2100).contains(&body.allocated()), "{}", body.allocated());
    body.write(call(&cx), 3 * PAGE - 10, &[1; 20]).unwrap();
    let with_far_pages = body.allocated();
    assert!(with_far_pages >= PAGE, "{with_far_pages}");
    body.truncate(call(&cx), 2 * PAGE).unwrap();
    assert!(body.allocated() < 2100, "cut pages are given back: {}", body.allocated());
    body.write(call(&cx), 0, &vec![1; 4 * PAGE as usize]).unwrap();
    body.punch(call(&cx), range(10, 4 * PAGE)).unwrap();
    assert!((10..=PAGE).contains(&body.allocated()), "whole pages are given back: {}", body.allocated());
    body.punch(call(&cx), range(0, 5 * PAGE)).unwrap();
    assert_eq!(body.allocated(), 0);
    body.allocate(call(&cx), range(5, 2 * PAGE), true).unwrap();
    assert!(body.allocated() >= 2 * PAGE, "reserved space counts: {}", body.allocated());
    body.truncate(call(&cx), 0).unwrap();
    body.punch(call(&cx), range(0, 9 * PAGE)).unwrap();
    assert_eq!(body.allocated(), 0);
    for n in 0..5000 {
        body.write(call(&cx), body.size(), &[n as u8; 100]).unwrap();
    }
    assert!(body.allocated() <= 2 * 500_000, "appends take at most twice their bytes: {}", body.allocated());
}

#[test]
fn space_that_no_machine_has_is_refused_without_a_trace() {
    let cx = cx();
    let mut body = body();
    body.write(call(&cx), 0, b"abc").unwrap();
    let before = body.allocated();
    let e = body.allocate(call(&cx), range(1, 1 << 62), false).unwrap_err();
    assert_eq!((e.kind(), body.size(), body.allocated()), (Kind::Exhausted, 3, before), "{e}");
}

#[test]
fn o6_extents_are_exact_to_the_byte() {
    let cx = cx();
    let mut body = body();
    body.write(call(&cx), 10, &[1; 20]).unwrap();
    body.allocate(call(&cx), range(20, 30), false).unwrap();
    body.write(call(&cx), 40, &[1; 2]).unwrap();
    body.truncate(call(&cx), 100).unwrap();
    body.punch(call(&cx), range(15, 2)).unwrap();
    let kinds = [
        (0, 10, ExtentKind::Hole),
        (10, 5, ExtentKind::Data),
        (15, 2, ExtentKind::Hole),
        (17, 13, ExtentKind::Data),
        (30, 10, ExtentKind::Allocated),
        (40, 2, ExtentKind::Data),
        (42, 8, ExtentKind::Allocated),
        (50, 50, ExtentKind::Hole),
    ];
    let all = kinds.map(|(offset, len, kind)| Extent { range: range(offset, len), kind, target: 0 });
    assert_eq!(body.extents(range(0, u64::MAX), 99), all);
    for max in 0..9 {
        assert_eq!(body.extents(range(0, 100), max), all[..max.min(8)], "{max} at most");
    }
    assert_eq!(body.extents(range(32, 3), 9), [Extent { range: range(32, 3), kind: ExtentKind::Allocated, target: 0 }]);
}

/// What a publication frees it needs again: nobody gets it before the end (B3).
#[test]
fn b3_a_publication_that_cuts_first_keeps_its_room() {
    let cx = cx();
    let room = std::sync::Arc::new(super::Room { bytes: 10 << 20, taken: Default::default() });
    let mut body = super::body::HeapBody::new(room.clone());
    body.write(call(&cx), 0, &vec![1; 9 << 20]).unwrap();
    let mut stage = Stage::default();
    stage.push(Change::Truncate { size: 0 }, 0, 0);
    stage.push(Change::Write { offset: 0, data: vec![2; 9 << 20] }, 0, 0);
    body.prepare(call(&cx), Default::default(), &stage).unwrap();
    let (stop, greedy) = (std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false)), room.clone());
    let flag = stop.clone();
    // Another client takes whatever becomes free.
    let other = crate::seam::spawn("greedy", move || {
        while !flag.load(std::sync::atomic::Ordering::Relaxed) {
            let _ = greedy.take(4096);
        }
    });
    let published = body.publish(call(&cx), Default::default(), &mut stage);
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    other.unwrap().join().unwrap();
    published.unwrap();
    assert_eq!(body.size(), 9 << 20);
}

#[test]
fn what_cannot_have_room_takes_none_from_others() {
    const MIB: usize = 1 << 20;
    let capability = Capability {
        medium: "heap",
        durability: Persistence::Volatile,
        max_unit: 0,
        staging: true,
        stage_bytes: 1 << 30,
        once: true,
        bursty: true,
        targets: 1,
        incarnation: 1,
    };
    let heap = Arc::new(Heap::limited(capability, 10 * MIB as u64));
    let target: Arc<dyn Backend> = heap.clone();
    let taken = || heap.medium().space().unwrap().taken;
    let (one, other) = (Probe::new(&target, 1), Probe::new(&target, 2));
    let e = one.write(0, &vec![1; 11 * MIB]).unwrap_err();
    assert!(e.kind() == Kind::Exhausted && e.detail().contains("iov df"), "{e}");
    assert_eq!((one.stat().size, taken()), (0, 0), "nothing of it stays");
    one.write(0, &vec![1; 8 * MIB]).unwrap();
    one.staged(1).write(0, &vec![2; 9 * MIB]).unwrap();
    one.freeze(1).unwrap();
    assert_eq!(
        other.write(0, &vec![3; 2 * MIB]).unwrap_err().kind(),
        Kind::Exhausted,
        "a publication has room for sure"
    );
    one.discard(1).unwrap();
    other.write(0, &vec![3; 2 * MIB]).unwrap();
    assert_eq!(one.append(b"x").unwrap_err().kind(), Kind::Exhausted);
    assert!(one.all() == vec![1; 8 * MIB] && other.all() == vec![3; 2 * MIB], "what is there is there");
    other.call(ObjectVerb::Remove).unwrap();
    assert!(taken() <= 8 * MIB as u64 + 4096, "{:?}", taken());
    one.append(b"x").unwrap();
}
