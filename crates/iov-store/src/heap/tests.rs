use iov_types::{Extent, ExtentKind, Kind, Range};
use proptest::prelude::*;

use super::{
    body::{Body, PAGE},
    budget::Budget,
    intervals::Intervals,
    stage::{Change, Stage},
};

fn range(offset: u64, len: u64) -> Range {
    Range { offset, len }
}

proptest! {
    /// The set against one bit per byte.
    #[test]
    fn intervals_are_a_set_of_bytes(ops in prop::collection::vec((any::<bool>(), 0u64..60, 0u64..12), 1..60)) {
        let (mut set, mut bits) = (Intervals::default(), [false; 80]);
        for (insert, offset, len) in ops {
            if insert { set.insert(range(offset, len)) } else { set.remove(range(offset, len)) }
            bits[offset as usize..(offset + len) as usize].fill(insert);
            let all: Vec<_> = set.within(range(0, 80)).collect();
            let mut there = [false; 80];
            for r in &all {
                prop_assert!(r.len > 0);
                there[r.offset as usize..r.end() as usize].fill(true);
            }
            prop_assert_eq!(there, bits);
            prop_assert!(all.windows(2).all(|w| w[0].end() < w[1].offset), "disjoint, neighbours merged: {all:?}");
            let part: Vec<_> = set.within(range(offset, len)).collect();
            let expected: Vec<_> = all.iter().filter_map(|r| r.intersect(&range(offset, len))).collect();
            prop_assert_eq!(part, expected);
        }
    }

    /// The length that a stage foretells without its base is the one that it then has.
    #[test]
    fn a_stage_knows_the_length_to_come(
        base in 0u64..50,
        ops in prop::collection::vec((0..5, 0u64..60, 1u64..20), 0..12),
    ) {
        let mut body = Body::default();
        body.write(0, &vec![1; base as usize]).unwrap();
        let mut stage = Stage::default();
        for (kind, offset, len) in ops {
            let data = vec![2; len as usize];
            let change = match kind {
                0 => Change::Write { offset, data },
                1 => Change::Append { data, key: None },
                2 => Change::Truncate { size: offset },
                3 => Change::Punch(range(offset, len)),
                _ => Change::Allocate { range: range(offset, len), keep_size: len % 2 == 0 },
            };
            stage.push(change, 0, 0);
            let mut out = [9; 400];
            let read = stage.read(&body, 0, &mut out) as u64;
            prop_assert_eq!(stage.size(base), read);
            prop_assert_eq!(stage.shape(body.shape()).size, read);
        }
        let (foretold, mut before) = (stage.size(base), [9; 400]);
        let read = stage.read(&body, 0, &mut before);
        stage.prepare(&mut body).unwrap();
        prop_assert_eq!(body.size(), base, "making room changes no length");
        stage.apply(&mut body, &mut Default::default()).unwrap();
        let mut after = [9; 400];
        prop_assert_eq!((body.size(), body.read(0, &mut after)), (foretold, read));
        prop_assert_eq!(before, after);
    }
}

#[test]
fn space_is_accounted_as_it_comes_and_goes() {
    let mut body = Body::default();
    body.write(0, &[1; 1000]).unwrap();
    assert!((1000..2100).contains(&body.allocated()), "{}", body.allocated());
    body.write(3 * PAGE - 10, &[1; 20]).unwrap();
    let with_far_pages = body.allocated();
    assert!(with_far_pages >= PAGE, "{with_far_pages}");
    body.truncate(2 * PAGE).unwrap();
    assert!(body.allocated() < 2100, "cut pages are given back: {}", body.allocated());
    body.write(0, &vec![1; 4 * PAGE as usize]).unwrap();
    body.punch(range(10, 4 * PAGE));
    assert!((10..=PAGE).contains(&body.allocated()), "whole pages are given back: {}", body.allocated());
    body.punch(range(0, 5 * PAGE));
    assert_eq!(body.allocated(), 0);
    body.allocate(range(5, 2 * PAGE), true).unwrap();
    assert!(body.allocated() >= 2 * PAGE, "reserved space counts: {}", body.allocated());
    body.truncate(0).unwrap();
    body.punch(range(0, 9 * PAGE));
    assert_eq!(body.allocated(), 0);
    for n in 0..5000 {
        body.write(body.size(), &[n as u8; 100]).unwrap();
    }
    assert!(body.allocated() <= 2 * 500_000, "appends take at most twice their bytes: {}", body.allocated());
}

#[test]
fn space_that_no_machine_has_is_refused_without_a_trace() {
    let mut body = Body::default();
    body.write(0, b"abc").unwrap();
    let before = body.allocated();
    let e = body.allocate(range(1, 1 << 62), false).unwrap_err();
    assert_eq!((e.kind(), body.size(), body.allocated()), (Kind::Exhausted, 3, before), "{e}");
}

#[test]
fn o6_extents_are_exact_to_the_byte() {
    let mut body = Body::default();
    body.write(10, &[1; 20]).unwrap();
    body.allocate(range(20, 30), false).unwrap();
    body.write(40, &[1; 2]).unwrap();
    body.truncate(100).unwrap();
    body.punch(range(15, 2));
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

#[test]
fn b4_a_budget_is_given_back_in_full() {
    let (budget, a, b) = (Budget::new(100), iov_types::Uuid([1; 16]), iov_types::Uuid([2; 16]));
    budget.take(a, 60).unwrap();
    budget.take(b, 100).unwrap();
    assert_eq!(budget.take(a, 41).unwrap_err().kind(), Kind::TooBig);
    assert_eq!(budget.take(a, u64::MAX).unwrap_err().kind(), Kind::TooBig);
    budget.take(a, 40).unwrap();
    budget.give(a, 100);
    budget.give(a, 5); // of a stage that is unknown: harmless
    budget.take(a, 100).unwrap();
}
