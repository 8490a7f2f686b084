use super::*;

/// What a program keeps that computes.
const SLICE: i64 = 4 * LOST_NS;

/// One look after the other, each of which loses a slice, until nobody looks; when that was found.
fn found(crowd: &Crowd, mut at_ns: i64) -> i64 {
    for _ in 0..10 {
        crowd.passed(at_ns, at_ns + SLICE, 1);
        at_ns += SLICE;
        if crowd.is_there(at_ns) {
            return at_ns;
        }
    }
    panic!("nobody is found");
}

#[test]
fn others_who_let_pass_or_come_seldom_are_no_crowd() {
    let crowd = Crowd::new();
    let short = LOST_NS / 2;
    for at in (1..1_000).map(|n| n * short) {
        crowd.passed(at, at + short, 1);
        assert!(!crowd.is_there(at + short));
    }
    for at in (1_000..1_100).map(|n| n * FORGOTTEN * SLICE) {
        crowd.passed(at, at + SLICE, 1);
        assert!(!crowd.is_there(at + SLICE));
    }
}

#[test]
fn who_computes_is_slept_for_longer_each_time() {
    let (crowd, mut at) = (Crowd::new(), 1);
    let mut pauses = Vec::new();
    for _ in 0..12 {
        let begun = found(&crowd, at);
        at = begun;
        while crowd.is_there(at) {
            at += FIRST_NS / 10;
        }
        pauses.push(at - begun);
    }
    assert_eq!(pauses[..4], [1, 2, 4, 8].map(|n| n * FIRST_NS));
    assert_eq!(pauses[11], LAST_NS, "somebody looks once more whether they have gone");
    // They have, for as long.
    let begun = found(&crowd, at + PATIENCE * LAST_NS + 1);
    assert!(crowd.is_there(begun + FIRST_NS - 1));
    assert!(!crowd.is_there(begun + FIRST_NS), "it begins anew");
}

#[test]
fn what_several_find_at_once_counts_once() {
    let crowd = Crowd::new();
    let begun = found(&crowd, 1);
    crowd.passed(begun - SLICE, begun + 1, 1);
    assert!(!crowd.is_there(begun + FIRST_NS));
}

/// One program that computes moves from one processor to the next, where many look.
#[test]
fn what_one_of_many_loses_is_no_crowd() {
    let crowd = Crowd::new();
    for at in (1..1_000).map(|n| n * SLICE) {
        crowd.passed(at, at + SLICE, 16);
        assert!(!crowd.is_there(at + SLICE));
    }
}
