use super::*;

/// What a program keeps that computes.
const SLICE: i64 = 4 * LOST_NS;

/// One look after the other, each of which loses a slice, until it is tried whether to sleep; when that was.
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

/// Something comes so often while it is slept, and while it is looked, until it is known what is better; when that was.
fn tried(crowd: &Crowd, mut at_ns: i64, sleeping_ns: i64, looking_ns: i64) -> i64 {
    for _ in 0..1_000_000 {
        if !crowd.is_tried() {
            return at_ns;
        }
        at_ns += if crowd.is_there(at_ns) { sleeping_ns } else { looking_ns };
        crowd.came(at_ns);
    }
    panic!("it is tried for ever");
}

/// When one no longer sleeps as it was better: it is tried once more.
fn slept(crowd: &Crowd, mut at_ns: i64) -> i64 {
    loop {
        assert!(crowd.is_there(at_ns));
        if crowd.is_tried() {
            return at_ns;
        }
        at_ns += FIRST_NS / 10;
    }
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
    assert!(!crowd.is_tried());
}

#[test]
fn by_what_more_comes_one_goes_on_for_longer_each_time() {
    let crowd = Crowd::new();
    let mut at = found(&crowd, 1);
    let mut pauses = Vec::new();
    for _ in 0..6 {
        let begun = tried(&crowd, at, 80_000, 120_000);
        assert!(crowd.is_there(begun));
        at = slept(&crowd, begun);
        pauses.push(at - begun);
    }
    assert_eq!(pauses, [1, 2, 4, 8, 8, 8].map(|n| n * FIRST_NS));
    assert_eq!(pauses[5], LAST_NS, "it is tried once more whether they have gone");
    // They have.
    at = tried(&crowd, at, 80_000, 20_000);
    assert!(!crowd.is_there(at));
    assert!(!crowd.is_there(at + LAST_NS), "who looks goes on until he loses something");
}

/// Where the other side sleeps too, for one, looking may be better although much is lost by it.
#[test]
fn who_loses_more_by_sleeping_looks() {
    let crowd = Crowd::new();
    let begun = tried(&crowd, found(&crowd, 1), 60_000, 50_000);
    for at in (begun..begun + FIRST_NS - SLICE).step_by(SLICE as usize) {
        crowd.passed(at, at + SLICE, 1);
        assert!(!crowd.is_there(at + SLICE), "it has just been tried");
    }
    found(&crowd, begun + FIRST_NS);
}

#[test]
fn what_is_clear_is_not_tried_for_long() {
    let begun = |sleeping_ns, looking_ns| {
        let crowd = Crowd::new();
        let at = found(&crowd, 1);
        tried(&crowd, at, sleeping_ns, looking_ns) - at
    };
    let once = 2 * TRY_NS..3 * TRY_NS;
    assert!(once.contains(&begun(50_000, 2_000_000)));
    assert!(once.contains(&begun(2_000_000, 50_000)));
    let all = 2 * i64::from(TRIES) * TRY_NS;
    assert!((all..all + TRY_NS).contains(&begun(50_000, 60_000)));
}

#[test]
fn who_serves_sleeps_where_that_is_little_worse() {
    let better = |serves, sleeping_ns, looking_ns| {
        let crowd = Crowd::new();
        if serves {
            crowd.serves();
        }
        let at = tried(&crowd, found(&crowd, 1), sleeping_ns, looking_ns);
        crowd.is_there(at)
    };
    assert!(better(true, 70_000, 50_000));
    assert!(!better(false, 70_000, 50_000));
    assert!(!better(true, 80_000, 50_000));
    assert!(better(true, 50_000, 60_000));
}

/// A program that computes for long between its questions.
#[test]
fn what_nobody_waits_for_counts_little() {
    let crowd = Crowd::new();
    let mut at = found(&crowd, 1);
    for n in 0..100_000 {
        if !crowd.is_tried() {
            break;
        }
        let sleeps = crowd.is_there(at);
        // Both take the same, and what is computed is the more where it is slept.
        at +=
            50_000 + if n % 400 == 0 { AT_ONCE_NS * if sleeps { 20 } else { 1 } } else { i64::from(!sleeps) * 10_000 };
        crowd.came(at);
    }
    assert!(!crowd.is_tried());
    assert!(crowd.is_there(at));
}

#[test]
fn who_has_nothing_to_wait_for_tries_nothing() {
    let crowd = Crowd::new();
    let at = found(&crowd, 1);
    crowd.came(at + 1);
    assert!(crowd.is_there(at + PATIENCE_NS - 1));
    assert!(!crowd.is_there(at + PATIENCE_NS));
    assert!(!crowd.is_tried());
}

#[test]
fn what_several_find_at_once_counts_once() {
    let crowd = Crowd::new();
    let at = found(&crowd, 1);
    crowd.passed(at - SLICE, at + 1, 1);
    tried(&crowd, at, 80_000, 120_000);
    assert_eq!(crowd.pause_ns.load(Ordering::Relaxed), FIRST_NS);
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
