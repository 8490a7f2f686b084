use std::sync::Arc;

use iov_types::{Capability, Extent, ExtentKind, Kind, ObjectVerb, Outcome, Persistence, Range};

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

fn limited(bytes: u64) -> Arc<dyn Backend> {
    let capability = Capability {
        medium: "heap",
        durability: Persistence::Volatile,
        max_unit: 1 << 20,
        staging: true,
        stage_bytes: 1 << 30,
        once: true,
        bursty: true,
        targets: 1,
        incarnation: 1,
    };
    Arc::new(Heap::limited(capability, bytes))
}

/// What a publication has freed is for the rest of it, not for pages that could grow ahead (B3).
#[test]
fn b3_a_publication_takes_no_more_than_it_needs() {
    const KIB: usize = 1 << 10;
    let object = Probe::new(&limited(850 * KIB as u64), 1);
    object.write(0, &vec![1; 600 * KIB]).unwrap();
    object.write(5 << 20, &vec![1; 100 * KIB]).unwrap();
    let staged = object.staged(1);
    staged.truncate(0).unwrap();
    staged.write(0, &vec![2; 400 * KIB]).unwrap();
    staged.write(400 * KIB as u64, &vec![3; KIB]).unwrap();
    staged.write(5 << 20, &vec![4; 100 * KIB]).unwrap();
    object.freeze(1).unwrap();
    object.publish(1).unwrap();
    assert_eq!(object.stat().size, (5 << 20) + 100 * KIB as u64);
    assert!(object.read(400 * KIB as u64, KIB).unwrap() == vec![3; KIB], "the small write");
    assert!(object.read(5 << 20, 100 * KIB).unwrap() == vec![4; 100 * KIB], "the last write");
}

/// Dropping another stage gives away nothing of what a frozen one needs (B3).
#[test]
fn b3_the_room_of_a_frozen_stage_is_its_own() {
    const MIB: usize = 1 << 20;
    let target = limited(4 * MIB as u64);
    let (object, other) = (Probe::new(&target, 1), Probe::new(&target, 2));
    object.staged(2).write(0, &vec![2; 2 * MIB]).unwrap();
    object.freeze(2).unwrap();
    object.discard(1).unwrap();
    assert_eq!(other.write(0, &vec![3; 3 * MIB]).unwrap_err().kind(), Kind::Exhausted);
    object.publish(2).unwrap();
    assert!(object.all() == vec![2; 2 * MIB], "what was committed");
    object.staged(2).write(0, &vec![4; MIB]).unwrap();
    object.freeze(2).unwrap();
    object.discard(2).unwrap();
    other.write(0, &vec![3; 2 * MIB]).unwrap();
}

/// A copy of which a part is there does not say that it has not been carried out (O7).
#[test]
fn o7_a_copy_that_fails_behind_a_hole_has_an_unknown_outcome() {
    const MIB: u64 = 1 << 20;
    let target = limited(3 * MIB + (MIB / 4));
    let (from, to) = (Probe::new(&target, 1), Probe::new(&target, 2));
    from.write(0, &vec![1; MIB as usize]).unwrap();
    from.write(3 * MIB, &vec![1; MIB as usize]).unwrap();
    let e = to.copy(&from, 0, 0, 4 * MIB).unwrap_err();
    assert_eq!((e.kind(), e.outcome()), (Kind::Exhausted, Outcome::Unknown), "{e}");
    assert_eq!(to.stat().size, MIB, "the first piece is there");
    // The hole was made, and its end could not be marked.
    let (hole, there) = (Probe::new(&target, 3), Probe::new(&target, 4));
    hole.truncate(2 * MIB).unwrap();
    there.write(0, &[7; 4096]).unwrap();
    let e = there.copy(&hole, 0, 0, 2 * MIB).unwrap_err();
    assert_eq!((e.kind(), e.outcome()), (Kind::Exhausted, Outcome::Unknown), "{e}");
    assert_eq!(there.read(0, 4).unwrap(), [0; 4]);
}

/// Where the source has a hole, units of the target are changed whole all the same (M1).
#[test]
fn m1_a_hole_that_ends_within_a_unit_tears_none() {
    const MIB: u64 = 1 << 20;
    let target = limited(3 * MIB);
    let (from, to) = (Probe::new(&target, 1), Probe::new(&target, 2));
    to.write(0, &vec![0xaa; 2 * MIB as usize]).unwrap();
    from.truncate(MIB + 100).unwrap();
    from.write(MIB + 100, &[1; 1000]).unwrap();
    // Copies of the hole, and then something does not go on: the deadline is over.
    let late = to.with(|d| d.unit = 4096).patient(0);
    let copied = late.copy(&from, 0, 0, MIB + 1100);
    assert!(copied.is_err(), "{copied:?}");
    let unit = to.read(MIB, 4096).unwrap();
    let new = [vec![0; 100], vec![1; 1000], vec![0xaa; 2996]].concat();
    assert!(unit == vec![0xaa; 4096] || unit == new, "old or new: {:?}", &unit[90..110]);
    to.with(|d| d.unit = 4096).copy(&from, 0, 0, MIB + 1100).unwrap();
    assert!(to.read(MIB, 4096).unwrap() == new);
}
