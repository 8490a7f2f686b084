#![allow(clippy::disallowed_methods)] // threads are what is tested

use std::{collections::HashSet, sync::Arc};

use super::{
    chunks::{CHUNKS, FIRST, place},
    *,
};
use crate::{
    metadata::MetadataObject,
    object::{self, Kind as _, MetadataHandle},
};

const KIND: u8 = MetadataObject::KIND;

fn object() -> MetadataObject {
    MetadataObject::owned(ioverbs::Metadata::new())
}

fn new() -> MetadataHandle {
    object::register(object()).unwrap()
}

#[test]
fn a_handle_is_found_until_it_is_removed() {
    let h = new();
    assert!(h.get().is_ok());
    let (a, b) = (h.get().unwrap(), h.end().unwrap());
    assert!(h.get().is_err() && h.end().is_err());
    // The object stays for those who have it.
    drop(b);
    assert_eq!(a.count(), 0);
}

#[test]
fn handles_are_never_addresses_and_never_come_back() {
    let mut seen = HashSet::new();
    for _ in 0..10_000 {
        let h = new();
        assert!(h.bits() >> 60 == KIND as u64);
        assert!(seen.insert(h.bits()), "a handle came back");
        h.end().unwrap();
    }
    assert!(seen.iter().all(|bits| MetadataHandle::from_bits(*bits).get().is_err()));
    // The slots did.
    let slots: HashSet<u32> = seen.iter().map(|bits| *bits as u32).collect();
    assert!(slots.len() < 5000, "{} slots for one handle at a time", slots.len());
}

#[test]
fn a_worn_out_slot_is_not_used_again() {
    let mut place = reserve(KIND).unwrap();
    let (index, slot) = (place.index, place.slot);
    let last = GENERATIONS - 1;
    slot.state.store((last - 1) << 32 | CLOSING, Ordering::Relaxed);
    place.handle = ((KIND as u64) << 28 | last) << 32 | index as u64;
    let handle = place.fill(object().wrap());
    drop(remove(handle, KIND, "metadata object").unwrap());
    assert!(get(handle, KIND, "metadata object").is_err());
    let later: Vec<_> = (0..1000).map(|_| reserve(KIND).unwrap()).collect();
    assert!(later.iter().all(|r| r.index != index));
}

#[test]
fn an_unfilled_place_is_no_handle() {
    let place = reserve(KIND).unwrap();
    let handle = place.handle();
    assert!(get(handle, KIND, "metadata object").is_err());
    drop(place);
    assert!(get(handle, KIND, "metadata object").is_err());
}

#[test]
fn messages_tell_what_was_passed() {
    let h = new();
    let says = |bits: u64, what: &str| {
        let error = get(bits, 3, "collection or group").err().unwrap();
        assert!(error.detail().contains(what), "{error}");
    };
    says(0, "is NULL");
    says(h.bits(), "is a metadata object");
    says(0x7fff_1234_5678, "no handle");
    says(0x3000_0001_0000_0000 | u32::MAX as u64, "closed, or never was one");
    h.end().unwrap();
}

#[test]
fn of_all_who_remove_a_handle_one_does() {
    for _ in 0..300 {
        let h = new();
        let start = Arc::new(std::sync::Barrier::new(4));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let start = start.clone();
                std::thread::spawn(move || {
                    start.wait();
                    let pins: Vec<_> = (0..20).filter_map(|_| h.get().ok()).collect();
                    let removed = h.end().is_ok();
                    drop(pins);
                    removed as u32
                })
            })
            .collect();
        assert_eq!(threads.into_iter().map(|t| t.join().unwrap()).sum::<u32>(), 1);
        assert!(h.get().is_err());
    }
}

#[test]
fn many_threads_make_and_end_handles() {
    let threads: Vec<_> = (0..4)
        .map(|_| {
            std::thread::spawn(|| {
                let mut mine = Vec::new();
                for i in 0..20_000u32 {
                    mine.push(new());
                    if i % 3 != 0 {
                        let h: MetadataHandle = mine.swap_remove(i as usize % mine.len());
                        h.end().unwrap();
                        assert!(h.get().is_err());
                    }
                }
                mine
            })
        })
        .collect();
    let left: Vec<_> = threads.into_iter().flat_map(|t| t.join().unwrap()).collect();
    let different: HashSet<u64> = left.iter().map(|h| h.bits()).collect();
    assert_eq!(different.len(), left.len());
    left.iter().for_each(|h| drop(h.end().unwrap()));
}

#[test]
fn every_index_has_one_place() {
    assert_eq!(place(0), (0, 0));
    assert_eq!(place(63), (0, 63));
    assert_eq!(place(64), (1, 0));
    assert_eq!(place(u32::MAX).0, CHUNKS - 1);
    let mut expected = (0, 0);
    for index in 0..10_000 {
        assert_eq!(place(index), expected);
        expected = if expected.1 + 1 == (FIRST << expected.0) as usize {
            (expected.0 + 1, 0)
        } else {
            (expected.0, expected.1 + 1)
        };
    }
}
