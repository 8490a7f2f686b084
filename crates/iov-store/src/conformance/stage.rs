//! Stages: nothing shows before point P, all of it in one step after, nothing of anybody else is lost.

use std::sync::atomic::Ordering;

use iov_types::{Clause, ExtentKind, Kind, ObjectVerb};

use super::{
    BackendCheck, MakeBackend, Probe, checks,
    kit::{Thread, fails, pattern},
};

pub(super) fn checks() -> Vec<BackendCheck> {
    checks![BackendCheck:
        b3_staged_changes_show_only_when_published if |c| c.staging,
        b3_every_kind_of_change_can_be_staged if |c| c.staging,
        b3_a_stage_reads_what_it_has_staged if |c| c.staging,
        b3_appends_get_their_place_at_publication if |c| c.staging,
        b3_publishing_and_dropping_again_is_harmless if |c| c.staging,
        b3_stages_of_one_object_are_apart if |c| c.staging,
        x3_a_publication_loses_nothing_of_others if |c| c.staging,
        b4_stages_are_bounded if |c| c.staging,
        b4_the_bound_is_of_the_stage_over_all_objects if |c| c.staging,
        m1_a_publication_shows_in_one_step if |c| c.staging,
    ]
}

fn b3_staged_changes_show_only_when_published(make: MakeBackend<'_>) {
    let object = Probe::new(&make(), 1);
    let (old, new) = (pattern(1, 10_000), pattern(2, 20_000));
    object.write(0, &old).expect("a write");
    let before = object.stat();
    let e = object.staged(1).write(0, &new).expect("a staged write");
    assert_eq!((e.bytes, e.size), (20_000, 20_000), "the stage sees its own length");
    assert_eq!(object.staged(1).append(b"end").expect("a staged append").offset, 20_000);
    assert!(object.all() == old, "others see the base");
    let now = object.stat();
    assert_eq!((now.size, now.version, now.mtime_ns), (before.size, before.version, before.mtime_ns), "stat as well");
    assert_eq!(object.extents(0, 1 << 20, 9).last().map(|e| e.range.end()), Some(10_000), "extents as well");
    object.freeze(1).expect("a freeze");
    assert_eq!(object.publish(1).expect("a publication").size, 20_003);
    assert!(object.all() == [&new[..], b"end"].concat(), "then everything shows");
    let now = object.stat();
    assert!(now.version > before.version, "the version grows with each publication");
    assert!(now.mtime_ns >= before.mtime_ns && now.mtime_ns > 0);
    object.staged(2).write(5, b"x").expect("a staged write");
    object.publish(2).expect("a publication without a freeze");
    assert_eq!(object.read(5, 1).expect("a read"), b"x");
    assert!(object.stat().version > now.version, "the version grows with each publication");
}

fn b3_every_kind_of_change_can_be_staged(make: MakeBackend<'_>) {
    let target = make();
    let (object, other) = (Probe::new(&target, 1), Probe::new(&target, 2));
    object.write(0, &[1; 300]).expect("a write");
    other.write(0, &[5; 10]).expect("a write");
    let stage = object.staged(1);
    stage.punch(10, 10).expect("a punch");
    stage.truncate(200).expect("a cut");
    stage.allocate(250, 50, false).expect("space");
    stage.copy(&other, 0, 30, 10).expect("a copy");
    stage.write(400, &[2; 4]).expect("a write");
    stage.append(&[3; 2]).expect("an append");
    assert_eq!(object.all(), [1; 300], "nothing shows");
    let mut expected = [vec![1; 200], vec![0; 200], vec![2; 4], vec![3; 2]].concat();
    expected[10..20].fill(0);
    expected[30..40].fill(5);
    assert_eq!(stage.read(0, 1000).expect("a read"), expected, "through the stage");
    object.publish(1).expect("a publication");
    assert_eq!(object.all(), expected, "published");
}

fn b3_a_stage_reads_what_it_has_staged(make: MakeBackend<'_>) {
    let target = make();
    let (object, copy) = (Probe::new(&target, 1), Probe::new(&target, 2));
    object.write(0, b"0123456789").expect("a write");
    let stage = object.staged(1);
    assert_eq!(stage.read(2, 3).expect("a read"), b"234", "the base, before anything is staged");
    stage.write(3, b"ab").expect("a write");
    stage.append(b"XY").expect("an append");
    assert_eq!(stage.read(0, 99).expect("a read"), b"012ab56789XY");
    assert_eq!(stage.read(4, 7).expect("a part"), b"b56789X");
    assert_eq!(stage.read(12, 5).expect("behind the end"), []);
    stage.truncate(4).expect("a cut");
    stage.truncate(8).expect("an extension");
    assert_eq!(stage.read(0, 99).expect("a read"), b"012a\0\0\0\0", "cut bytes do not come back");
    stage.write(6, b"!").expect("a write");
    assert_eq!(stage.read(0, 99).expect("a read"), b"012a\0\0!\0");
    assert_eq!(stage.call(ObjectVerb::Stat).expect("stat").size, 8);
    let through_base = object.extents(0, 100, 9);
    assert_eq!(through_base.last().map(|e| (e.range.end(), e.kind)), Some((10, ExtentKind::Data)), "{through_base:?}");
    assert_eq!(stage.extents(0, 100, 9).last().map(|e| e.range.end()), Some(8), "the extents of the stage");
    copy.staged(1).copy(&object, 0, 0, 5).expect("a copy within the stage");
    assert_eq!(copy.staged(1).read(0, 9).expect("a read"), b"012a\0", "a staged copy reads staged bytes");
    assert_eq!((object.all(), copy.all()), (b"0123456789".to_vec(), vec![]), "others see none of it");
    object.write(0, b"Z").expect("a write of somebody else");
    assert_eq!(stage.read(0, 2).expect("a read"), b"Z1", "below the stage the base shows through");
}

fn b3_appends_get_their_place_at_publication(make: MakeBackend<'_>) {
    let object = Probe::new(&make(), 1);
    object.append(b"aa").expect("an append");
    object.staged(1).append(b"11").expect("a staged append");
    object.staged(2).append(b"2").expect("a staged append");
    object.append(b"bbb").expect("an append of somebody else");
    object.staged(1).append(b"1").expect("a second staged append");
    object.publish(2).expect("a publication");
    object.freeze(1).expect("a freeze");
    object.publish(1).expect("a publication");
    assert_eq!(object.all(), b"aabbb2111", "assigned at point P, whole, and nothing is lost");
}

fn b3_publishing_and_dropping_again_is_harmless(make: MakeBackend<'_>) {
    let object = Probe::new(&make(), 1);
    object.staged(1).append(b"one").expect("a staged append");
    object.publish(1).expect("a publication");
    let once = object.stat();
    object.publish(1).expect("the same again");
    object.discard(1).expect("a late discard");
    let again = object.stat();
    assert_eq!((again.size, again.version, again.mtime_ns), (once.size, once.version, once.mtime_ns));
    object.staged(2).append(b"two").expect("a staged append");
    object.freeze(2).expect("a freeze");
    object.discard(2).expect("a discard");
    object.discard(2).expect("the same again");
    object.publish(2).expect("a late publication");
    assert_eq!((object.all(), object.stat().version), (b"one".to_vec(), once.version), "what was dropped is gone");
    object.discard(99).expect("a discard of a stage that never was");
    object.publish(99).expect("a publication of a stage that never was");
    assert_eq!((object.all(), object.stat().version), (b"one".to_vec(), once.version));
}

fn b3_stages_of_one_object_are_apart(make: MakeBackend<'_>) {
    let object = Probe::new(&make(), 1);
    object.write(0, &[0; 8]).expect("a write");
    object.staged(1).write(0, &[1; 4]).expect("a staged write");
    object.staged(2).write(2, &[2; 4]).expect("a staged write");
    assert_eq!(object.staged(1).read(0, 9).expect("a read"), [1, 1, 1, 1, 0, 0, 0, 0]);
    assert_eq!(object.staged(2).read(0, 9).expect("a read"), [0, 0, 2, 2, 2, 2, 0, 0]);
    object.discard(1).expect("a discard");
    object.publish(2).expect("a publication");
    assert_eq!(object.all(), [0, 0, 2, 2, 2, 2, 0, 0]);
}

fn x3_a_publication_loses_nothing_of_others(make: MakeBackend<'_>) {
    let object = Probe::new(&make(), 1);
    object.write(0, &[0; 100]).expect("a write");
    object.staged(1).write(10, &[1; 10]).expect("a staged write");
    object.staged(2).write(30, &[2; 10]).expect("a staged write");
    object.write(50, &[3; 10]).expect("a write of somebody else");
    object.write(200, &[4; 10]).expect("a write behind the end");
    object.publish(1).expect("a publication");
    object.write(70, &[5; 10]).expect("a write of somebody else");
    object.publish(2).expect("a publication");
    let mut expected = vec![0; 210];
    for (at, value) in [(10, 1), (30, 2), (50, 3), (70, 5), (200, 4)] {
        expected[at..at + 10].fill(value);
    }
    assert_eq!(object.all(), expected, "writers of disjoint ranges lose nothing");
}

/// The bound, if it is within reach of a test.
fn bound(target: &dyn crate::Backend) -> usize {
    let bytes = target.capability().stage_bytes;
    assert!(bytes <= 16 << 20, "stages of {bytes} bytes: give the suite a target with stage_bytes <= 16 MiB");
    bytes as usize
}

fn b4_stages_are_bounded(make: MakeBackend<'_>) {
    let target = make();
    let half = bound(&*target) / 2;
    let object = Probe::new(&target, 1);
    object.write(0, b"base").expect("a write");
    let stage = object.staged(1);
    stage.write(4, &vec![1; half]).expect("half of the bound");
    for (what, result) in
        [("a write", stage.write(0, &vec![9; half + 1])), ("an append", stage.append(&vec![9; half + 1]))]
    {
        let e = fails(what, Kind::TooBig, result);
        assert_eq!(e.clause(), Some(Clause::B4), "the error names its clause: {e:?}");
    }
    assert_eq!(stage.call(ObjectVerb::Stat).expect("stat").size as usize, 4 + half, "what was refused has no effect");
    assert_eq!(object.all(), b"base");
    object.staged(2).write(0, &vec![2; half + 1]).expect("the bound is of each stage");
    object.discard(2).expect("a discard");
    object.publish(1).expect("what was admitted is published");
    assert!(object.all() == [&b"base"[..], &vec![1; half]].concat());
    for _ in 0..4 {
        stage.write(0, &vec![3; half]).expect("room comes back with a publication or discard");
        object.discard(1).expect("a discard");
    }
}

fn b4_the_bound_is_of_the_stage_over_all_objects(make: MakeBackend<'_>) {
    let target = make();
    let part = bound(&*target) / 4;
    let objects: Vec<_> = (0..8).map(|n| Probe::new(&target, n)).collect();
    let held = objects.iter().filter(|o| o.staged(1).write(0, &vec![1; part]).is_ok()).count();
    assert!((2..=4).contains(&held), "a stage held {held} quarters of its bound");
    objects[0].discard(1).expect("a discard on one object");
    objects[7].staged(1).write(0, &vec![1; part]).expect("the room of one object goes to another");
    objects[7].call(ObjectVerb::Remove).expect("a remove");
    objects[6].staged(1).write(0, &vec![1; part]).expect("the room of a removed object comes back");
}

fn m1_a_publication_shows_in_one_step(make: MakeBackend<'_>) {
    let object = Probe::new(&make(), 1);
    const LEN: usize = 100_000;
    object.write(0, &[0; LEN]).expect("a write");
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let object = object.clone();
            Thread::start(move |stop| {
                let mut last = 0;
                while !stop.load(Ordering::Relaxed) {
                    let bytes = object.read(0, LEN).expect("a read");
                    let value = bytes[0];
                    assert!(bytes.iter().all(|b| *b == value), "T24: a read shows a part of a publication");
                    assert!(value >= last, "T24: {value} after {last}");
                    last = value;
                }
            })
        })
        .collect();
    for value in 1..100u8 {
        // In pieces and out of order, so that whoever publishes piece by piece is caught.
        for piece in [3, 0, 2, 4, 1] {
            object.staged(1).write(piece * LEN as u64 / 5, &[value; LEN / 5]).expect("a staged write");
        }
        object.publish(1).expect("a publication");
    }
    readers.into_iter().for_each(Thread::stop);
}
