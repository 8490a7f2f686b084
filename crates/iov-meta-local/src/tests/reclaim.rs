//! A medium that was full of small records works again once they have been deleted: the room that deletes and merges need is not taken by what can wait.

use iov_store::{MetadataStore, Room};
use iov_types::Kind;

use super::kit::{Small, all, open, put, wait_until, writes};
use crate::{LocalStore, Options};

/// Writes records of so many bytes until there is no room; how many.
fn fill(store: &LocalStore, bytes: usize) -> u32 {
    for n in 0.. {
        match store.commit(vec![writes(vec![put(key(n), vec![n as u8; bytes])])]) {
            Ok(_) => {}
            Err(e) => {
                assert_eq!(e.kind(), Kind::Exhausted, "{e}");
                return n;
            }
        }
    }
    unreachable!()
}

fn key(n: u32) -> Vec<u8> {
    [&b"R"[..], &n.to_be_bytes()].concat()
}

#[test]
fn p7_everything_can_be_deleted_from_a_full_medium_and_it_can_be_filled_again() {
    for (size, bytes) in [("24m", 3000), ("48m", 3000), ("24m", 300)] {
        let Some(small) = Small::mount(size) else { return };
        let store = open(&small.path().join("store"), &Options::default());
        assert!(size != "24m" || store.is_scarce());
        let mut first = 0;
        for round in 0..3 {
            let n = fill(&store, bytes);
            assert!(n > first * 2 / 3, "{size}: {n} went in in round {round}, {first} in the first one");
            assert!(n * bytes as u32 > (3 << 20), "{size}: {n} went in");
            first = first.max(n);
            for i in 0..n {
                store
                    .commit_with(vec![writes(vec![(key(i), None), put("R-size", i.to_be_bytes())])], Room::Freeing)
                    .unwrap_or_else(|e| panic!("{size}: deleting {i} of {n} in round {round}: {e}"));
            }
            assert_eq!(all(&store).len(), 1);
        }
        // Also when it is opened anew with all of it.
        let n = fill(&store, bytes);
        drop(store);
        let store = open(&small.path().join("store"), &Options::default());
        assert_eq!(all(&store).len(), n as usize + 1);
        for i in 0..n {
            store.commit_with(vec![writes(vec![(key(i), None)])], Room::Freeing).expect("a delete");
        }
        wait_until("room", || store.commit(vec![writes(vec![put("R-size", [0; 100])])]).is_ok());
        assert!(fill(&store, bytes) > first * 2 / 3, "{size}: opened anew");
    }
}
