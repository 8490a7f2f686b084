use iov_types::{Kind, Range};
use proptest::prelude::*;

use super::{Body, Change, Stage, budget::Budget, intervals::Intervals};
use crate::heap::fixture::{body, call, cx};

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
        let cx = cx();
        let mut body = body();
        body.write(call(&cx), 0, &vec![1; base as usize]).unwrap();
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
            let read = stage.read(&body, call(&cx), 0, &mut out).unwrap() as u64;
            prop_assert_eq!(stage.size(base), read);
            prop_assert_eq!(stage.shape(body.shape()).size, read);
        }
        let (foretold, mut before) = (stage.size(base), [9; 400]);
        let read = stage.read(&body, call(&cx), 0, &mut before).unwrap();
        stage.make_room(&mut body).unwrap();
        prop_assert_eq!(body.size(), base, "making room changes no length");
        stage.replay(&mut body, call(&cx)).unwrap();
        let mut after = [9; 400];
        prop_assert_eq!((body.size(), body.read(call(&cx), 0, &mut after).unwrap()), (foretold, read));
        prop_assert_eq!(before, after);
    }
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
