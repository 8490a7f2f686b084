//! What fits is told to fit, and everything else is left to the daemon.

use std::{fs::File, os::unix::fs::FileExt, sync::atomic::AtomicUsize, sync::atomic::Ordering};

use iov_store::block_sums::{BLOCKS, sum_of};
use iov_types::Uuid;
use proptest::prelude::*;

use super::*;

const OBJECT: ObjectId = ObjectId { collection: Uuid([7; 16]), slot: 0 };

/// Checksums of a file of these bytes.
fn sums_of(data: &[u8], first: u64, runs: u64) -> Vec<BlockSum> {
    (0..runs as usize * BLOCKS)
        .map(|i| {
            let begin = (first * RUN) as usize + i * BLOCK as usize;
            let block = data.get(begin..data.len().min(begin + BLOCK as usize)).unwrap_or_default();
            sum_of(block).map_or(BlockSum::Zeros, BlockSum::Sum)
        })
        .collect()
}

fn file(data: &[u8]) -> File {
    let file = tempfile::tempfile().expect("a file");
    file.write_all_at(data, 0).expect("its bytes");
    file
}

/// Compares as a reader does: what is not there is asked for.
fn compare(
    cache: &SumCache,
    fd: &OwnedFd,
    offset: u64,
    bytes: &[u8],
    ask: impl Fn(u64, u64) -> Option<Vec<BlockSum>>,
) -> bool {
    let mut pieces = cache.pieces(OBJECT, offset, bytes.len() as u64);
    for first in pieces.missing().collect::<Vec<_>>() {
        let Some(sums) = ask(first, RUNS) else { continue };
        pieces.fill(first, cache.keep(OBJECT, first, sums, seam::monotonic_ns()));
    }
    cache.compare(OBJECT, fd, offset, bytes, &pieces)
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i / 5) as u8 ^ (i / 4096) as u8).collect()
}

proptest! {
    #[test]
    fn i1_bytes_fit_and_a_flipped_bit_does_not(
        (len, offset, want) in (1usize..100_000).prop_flat_map(|len| (Just(len), 0..len, 1usize..120_000)),
        spot in any::<prop::sample::Index>(),
    ) {
        let data = pattern(len);
        let fd = file(&data);
        let cache = SumCache::default();
        let got = &data[offset..len.min(offset + want)];
        let ask = |first, runs| Some(sums_of(&data, first, runs));
        let owned = OwnedFd::from(fd.try_clone().expect("a descriptor"));
        prop_assert!(compare(&cache, &owned, offset as u64, got, ask));
        let at = spot.index(got.len());
        fd.write_all_at(&[got[at] ^ 4], (offset + at) as u64).expect("damage");
        let mut damaged = got.to_vec();
        damaged[at] ^= 4;
        prop_assert!(!compare(&cache, &owned, offset as u64, &damaged, ask));
    }
}

#[test]
fn i1_pieces_are_asked_for_once_and_again_when_something_does_not_fit() {
    let data = pattern(40 << 20);
    let fd = OwnedFd::from(file(&data));
    let (cache, asked) = (SumCache::default(), AtomicUsize::new(0));
    let ask = |first, runs| {
        asked.fetch_add(1, Ordering::Relaxed);
        Some(sums_of(&data, first, runs))
    };
    let all = |bytes: &[u8]| compare(&cache, &fd, 0, bytes, ask);
    assert!(all(&data) && all(&data));
    assert_eq!(asked.load(Ordering::Relaxed), 3, "40 MiB are three pieces");
    let mut other = data.clone();
    other[20 << 20] ^= 1;
    seam::sleep(2 * AGE_NS as u64);
    assert!(!all(&other));
    assert!(all(&data));
    assert_eq!(asked.load(Ordering::Relaxed), 4, "the piece in which something did not fit");
}

#[test]
fn i1_what_is_open_or_not_told_is_left_to_the_daemon() {
    let data = pattern(10_000);
    let fd = OwnedFd::from(file(&data));
    let open = |first, runs| {
        let mut sums = sums_of(&data, first, runs);
        sums[1] = BlockSum::Open;
        Some(sums)
    };
    assert!(compare(&SumCache::default(), &fd, 0, &data[..4096], open));
    assert!(!compare(&SumCache::default(), &fd, 0, &data, open));
    assert!(!compare(&SumCache::default(), &fd, 0, &data, |_, _| None));
    assert!(!compare(&SumCache::default(), &fd, 0, &data, |_, _| Some(Vec::new())), "fewer than were asked for");
}
