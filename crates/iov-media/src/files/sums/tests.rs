//! The records of checksums, and which blocks a range touches.

use proptest::prelude::*;

use super::*;

fn blocks() -> impl Strategy<Value = Blocks> {
    prop::collection::vec(any::<bool>(), BLOCKS).prop_map(|bits| {
        let mut out = Blocks::default();
        bits.iter().enumerate().filter(|(_, bit)| **bit).for_each(|(i, _)| out.add(i));
        out
    })
}

proptest! {
    #[test]
    fn i1_a_record_is_read_as_it_was_written(present in blocks(), sums in prop::collection::vec(any::<u32>(), BLOCKS)) {
        let mut run = Run::default();
        (0..BLOCKS).filter(|i| present.has(*i)).for_each(|i| run.set(i, Some(sums[i])));
        let bytes = run.encode();
        prop_assert_eq!(Run::decode(&bytes).expect("a record"), run);
        prop_assert_eq!(Blocks::decode(&present.encode()).expect("a set"), present);
        for strange in [&bytes[..bytes.len() - 1], &[&bytes[..], &[0]].concat()] {
            prop_assert!(Run::decode(strange).is_err());
        }
    }

    #[test]
    fn i1_any_record_is_harmless(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        let _ = (Run::decode(&bytes), Blocks::decode(&bytes));
    }

    #[test]
    fn i1_a_range_touches_the_blocks_in_which_it_has_bytes(offset in 0..3 * RUN, len in 0..3 * RUN) {
        let touched: Vec<u64> = by_run(Range { offset, len })
            .flat_map(|(run, blocks)| (0..BLOCKS).filter(move |b| blocks.has(*b)).map(move |b| run * BLOCKS as u64 + b as u64))
            .collect();
        let expected: Vec<u64> = if len == 0 { vec![] } else { (offset / BLOCK..=(offset + len - 1) / BLOCK).collect() };
        prop_assert_eq!(touched, expected);
    }

    #[test]
    fn i1_zeros_behind_the_end_do_not_matter(mut bytes in prop::collection::vec(any::<u8>(), 0..4096)) {
        let sum = sum_of(&bytes);
        prop_assert_eq!(sum.is_none(), bytes.iter().all(|b| *b == 0));
        bytes.resize(BLOCK as usize, 0);
        prop_assert_eq!(sum_of(&bytes), sum);
    }
}
