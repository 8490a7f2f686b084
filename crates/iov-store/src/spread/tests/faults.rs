//! What stays behind where a target fails half-way.

use super::*;
use crate::{Action, Fault, Faulty, When};
use iov_types::{Clause, VerbKind};

/// Two targets, the second of which may fail.
fn failing() -> (Spread, Arc<Faulty>, ObjectId) {
    let spread = spread(2);
    let faulty = Arc::new(Faulty::new(heap()));
    spread.add_target(2, faulty.clone(), heap().capability().clone());
    (spread, faulty, Place::new(1, 10).unwrap().whole(ONE))
}

fn fails_before(verb: VerbKind, nth: u64) -> Fault {
    Fault { verb: Some(verb), nth, action: Action::Fail(When::Before, Error::unavailable("away")) }
}

/// A target that was frozen for a seal, and away when it was to be let go, is passed by who repeats the seal (M2).
#[test]
fn m2_a_seal_that_was_cut_off_is_repeated_past_its_own_freeze() {
    let (spread, faulty, whole) = failing();
    write(&spread, whole, 0, &bytes(40)).unwrap();
    faulty.arm(fails_before(VerbKind::Seal, 1));
    faulty.arm(fails_before(VerbKind::Discard, 1));
    let soon = OpCx::own(500_000_000);
    run_one(&spread, &soon, op(whole, ObjectVerb::Seal), Memory::default()).unwrap_err();
    run_one(&spread, &soon, op(whole, ObjectVerb::Seal), Memory::default()).unwrap();
    assert_eq!(read(&spread, whole, 0, 100), bytes(40));
    assert_eq!(write(&spread, whole, 0, b"late").unwrap_err().kind(), Kind::Immutable);
    assert!(spread.0.cut_off.is_empty(), "all were let go");
}

/// Each seal that begins anew has a stage of its own: a target remembers those that have ended for good.
#[test]
fn m2_a_seal_uses_no_stage_that_has_ended() {
    let (spread, faulty, whole) = failing();
    write(&spread, whole, 0, &bytes(40)).unwrap();
    let stage = spread.0.cut_off.stage_of(ONE);
    assert_ne!(stage, spread.0.cut_off.stage_of(ONE));
    assert!(stage.unix_ms() > 1_600_000_000_000, "{stage} says when it was begun");
    faulty.arm(fails_before(VerbKind::Freeze, 1));
    run_one(&spread, &cx(), op(whole, ObjectVerb::Seal), Memory::default()).unwrap_err();
    assert!(spread.0.cut_off.is_empty(), "what was not frozen was let go");
    run_one(&spread, &cx(), op(whole, ObjectVerb::Seal), Memory::default()).unwrap();
    assert!(spread.0.cut_off.is_empty());
}

/// A cut that was shown is not told as one that was not carried out (O7).
#[test]
fn o7_a_cut_that_cannot_be_looked_at_behind_has_an_unknown_outcome() {
    let (spread, faulty, whole) = failing();
    spread.publish_by(Box::new(AtAll(spread.clone())));
    write(&spread, whole, 0, &bytes(100)).unwrap();
    faulty.arm(fails_before(VerbKind::Stat, 2));
    let mut cut = op(whole, ObjectVerb::Truncate { size: 3 });
    cut.demand.domain = Some(Uuid([7; 16]));
    let e = run_one(&spread, &cx(), cut, Memory::default()).unwrap_err();
    assert_eq!((e.kind(), e.outcome(), faulty.armed()), (Kind::Unavailable, Outcome::Unknown, 0), "{e}");
    assert_eq!(stat(&spread, whole).size, 3);
}

/// Units are whole where the source has a hole, also between targets (M1).
#[test]
fn m1_a_copy_that_breaks_off_behind_a_hole_tears_no_unit() {
    const MIB: u64 = 1 << 20;
    let (spread, faulty, _) = failing();
    spread.add_pattern(2, vec![2]);
    let (from, to) = (Place::FIRST.whole(Uuid([1; 16])), Place::new(2, 4096).unwrap().whole(Uuid([2; 16])));
    write(&spread, to, 0, &vec![0xaa; 2 << 20]).unwrap();
    write(&spread, from, MIB + 100, &[1; 1000]).unwrap();
    // Of the two writes one marks the end of the hole.
    faulty.arm(fails_before(VerbKind::Write, 2));
    let verb = ObjectVerb::Copy { source: from, source_offset: 0, offset: 0, len: MIB + 1100 };
    let mut copy = op(to, verb);
    copy.demand.unit = 4096;
    let e = run_one(&spread, &cx(), copy, Memory::default()).unwrap_err();
    assert_eq!((e.outcome(), faulty.armed()), (Outcome::Unknown, 0), "{e}");
    assert!(read(&spread, to, MIB, 4096) == vec![0xaa; 4096], "the unit in which the hole ends is as it was");
}

/// A part that is shown and could not be synced does not stand for one that was not reached (B3).
#[test]
fn b3_a_publication_of_which_a_part_is_missing_has_an_unknown_outcome() {
    let (spread, faulty, whole) = failing();
    let unsynced = Arc::new(Faulty::new(heap()));
    spread.add_target(1, unsynced.clone(), heap().capability().clone());
    let stage = Uuid([9; 16]);
    let mut staged = op(whole, ObjectVerb::Write { offset: 0 });
    staged.demand.stage = Some(stage);
    run_all(&spread, &cx(), vec![(staged, Bytes::From(&bytes(100)))]).remove(0).0.unwrap();
    run_one(&spread, &cx(), op(whole, ObjectVerb::Freeze { stage }), Memory::default()).unwrap();
    let lost = Error::corrupt("it could not be synced").with_clause(Clause::P8).with_outcome(Outcome::Applied);
    unsynced.arm(Fault { verb: Some(VerbKind::Publish), nth: 1, action: Action::Fail(When::After, lost) });
    faulty.arm(fails_before(VerbKind::Publish, 1));
    let publish = || run_one(&spread, &cx(), op(whole, ObjectVerb::Publish { stage }), Memory::default());
    let e = publish().unwrap_err();
    assert_eq!(e.outcome(), Outcome::Unknown, "{e}");
    assert_eq!((faulty.armed(), unsynced.armed()), (0, 0));
    publish().expect("the rest, when it is repeated");
    assert_eq!(read(&spread, whole, 0, 200), bytes(100));
}
