use std::collections::{BTreeMap, BTreeSet};

use iov_types::{Error, Kind, Range, Result, Uuid};
use proptest::prelude::*;

use super::{Body, Call, Change, Stage, budget::Budget, intervals::Intervals, shape::Shape};
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

/// Bytes that cannot be changed any more after so many changes.
struct Tired<B>(B, usize);

impl<B> Tired<B> {
    fn tire(&mut self) -> Result<()> {
        self.1 = self.1.checked_sub(1).ok_or_else(|| Error::exhausted("no memory"))?;
        Ok(())
    }
}

impl<B: Body> Body for Tired<B> {
    fn size(&self) -> u64 {
        self.0.size()
    }

    fn allocated(&self) -> u64 {
        self.0.allocated()
    }

    fn shape(&self) -> Shape {
        self.0.shape()
    }

    fn read(&self, call: Call<'_>, offset: u64, out: &mut [u8]) -> Result<usize> {
        self.0.read(call, offset, out)
    }

    fn write(&mut self, call: Call<'_>, offset: u64, data: &[u8]) -> Result<()> {
        self.tire().and_then(|()| self.0.write(call, offset, data))
    }

    fn truncate(&mut self, call: Call<'_>, size: u64) -> Result<()> {
        self.tire().and_then(|()| self.0.truncate(call, size))
    }

    fn punch(&mut self, call: Call<'_>, range: Range) -> Result<()> {
        self.tire().and_then(|()| self.0.punch(call, range))
    }

    fn allocate(&mut self, call: Call<'_>, range: Range, keep_size: bool) -> Result<()> {
        self.tire().and_then(|()| self.0.allocate(call, range, keep_size))
    }

    fn remove(&mut self, call: Call<'_>) -> Result<()> {
        self.0.remove(call)
    }
}

proptest! {
    /// A publication that breaks off goes on where it was, and reads the same in between (B3); it remembers its appends (M4).
    #[test]
    fn a_stage_that_is_shown_in_part_goes_on(
        base in 0u64..50,
        fails_after in 0..12usize,
        ops in prop::collection::vec((0..5, 0u64..60, 1u64..20), 1..12),
        repeated in any::<prop::sample::Index>(),
    ) {
        let cx = cx();
        let mut tired = Tired(body(), usize::MAX);
        tired.write(call(&cx), 0, &vec![1; base as usize]).unwrap();
        let (mut stage, mut keys) = (Stage::default(), Vec::new());
        for (n, (kind, offset, len)) in ops.into_iter().enumerate() {
            let data = vec![2 + n as u8; len as usize];
            let key = (Uuid([5; 16]), n as u64);
            keys.extend((kind == 1).then_some(key));
            let change = match kind {
                0 => Change::Write { offset, data },
                1 => Change::Append { data, key: Some(key) },
                2 => Change::Truncate { size: offset },
                3 => Change::Punch(range(offset, len)),
                _ => Change::Allocate { range: range(offset, len), keep_size: len % 2 == 0 },
            };
            stage.push(change, 0, 0);
        }
        let (size, mut before) = (stage.size(base), [9; 400]);
        let read = stage.read(&tired, call(&cx), 0, &mut before).unwrap();
        tired.1 = fails_after;
        let mut shown = stage.replay(&mut tired, call(&cx));
        if shown.is_err() {
            let mut between = [9; 400];
            prop_assert_eq!(stage.size(tired.size()), size);
            prop_assert_eq!(stage.read(&tired, call(&cx), 0, &mut between).unwrap(), read);
            prop_assert_eq!(between, before);
            prop_assert!(keys.iter().all(|key| stage.appended(key).is_some()));
            if !keys.is_empty() {
                // Another stage has appended one of those that are not shown yet: then that is left out.
                let key = *repeated.get(&keys);
                let elsewhere = BTreeMap::from([(key, 0)]);
                stage.drop_repeated(&elsewhere);
            }
            tired.1 = usize::MAX;
            shown = stage.replay(&mut tired, call(&cx));
        } else {
            let mut after = [9; 400];
            prop_assert_eq!((tired.size(), tired.read(call(&cx), 0, &mut after).unwrap()), (size, read));
            prop_assert_eq!(before, after);
        }
        let shown: BTreeSet<_> = shown.unwrap().into_iter().map(|(key, _)| key).collect();
        prop_assert!(keys.len() - shown.len() <= 1, "{keys:?}, shown {shown:?}");
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
