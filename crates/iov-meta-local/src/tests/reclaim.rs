//! A medium that was full of small records works again once they have been deleted: the room that deletes and merges need is not taken by what can wait.

use iov_store::{MetadataStore, Room};
use iov_types::Kind;

use super::{
    kit::{Place, Small, all, apply, open, put, wait_until, writes},
    room::{give_back, take_all},
};
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

/// As much goes in as before, at once or when the background has come so far; all of it is deleted again.
fn fill_again(store: &LocalStore, bytes: usize, least: u32) {
    wait_until("as much room as before", || {
        let n = fill(store, bytes);
        delete(store, n);
        n >= least
    });
}

#[test]
fn p7_everything_can_be_deleted_from_a_full_medium_and_it_can_be_filled_again() {
    for (size, bytes) in [("24m", 3000), ("48m", 3000), ("24m", 300)] {
        let Some(small) = Small::mount(size) else { return };
        let dir = small.path().join("store");
        let store = open(&dir, &Options::default());
        let n = fill(&store, bytes);
        assert!(store.is_scarce() && n * bytes as u32 > (3 << 20), "{size}: {n} went in");
        for i in 0..n {
            let list = vec![(key(i), None), put("R-size", i.to_be_bytes())];
            let deleted = store.commit_with(vec![writes(list)], Room::Freeing);
            deleted.unwrap_or_else(|e| panic!("{size}: deleting {i} of {n}: {e}"));
        }
        assert_eq!(all(&store).len(), 1);
        for _ in 0..2 {
            fill_again(&store, bytes, n * 2 / 3);
        }
        // Also when it is opened anew with all of it.
        let n = fill(&store, bytes);
        drop(store);
        let store = open(&dir, &Options::default());
        assert_eq!(all(&store).len(), n as usize + 1);
        delete(&store, n);
        fill_again(&store, bytes, n * 2 / 3);
    }
}

/// Deletes that many; now and then somebody tries to write, and is told that there is no room, or does it.
fn delete(store: &LocalStore, n: u32) {
    for i in 0..n {
        store.commit_with(vec![writes(vec![(key(i), None)])], Room::Freeing).unwrap_or_else(|e| panic!("{i}: {e}"));
        if i % 400 == 0 {
            let _ = store.commit(vec![writes(vec![put("R-size", [0; 100])])]);
        }
    }
}

#[test]
fn p7_a_reader_keeps_what_it_reads_and_the_space_comes_back_when_it_is_done() {
    let Some(small) = Small::mount("24m") else { return };
    let store = open(&small.path().join("store"), &Options::default());
    let n = fill(&store, 2000);
    let view = store.snapshot().expect("a view");
    delete(&store, n);
    // Whatever was merged meanwhile, and whatever of that ran out of room.
    let _ = fill(&store, 2000);
    for i in 0..n {
        let found = view.get(&[&key(i)]).expect("a get").remove(0).expect("a record");
        assert_eq!(found.value[..], vec![i as u8; 2000][..], "{i} of {n}");
    }
    drop(view);
    delete(&store, n);
    fill_again(&store, 2000, n * 2 / 3);
}

#[test]
fn p7_a_log_larger_than_a_buffer_of_the_file_system_takes_what_makes_room() {
    let Some(small) = Small::mount("24m") else { return };
    let place = Place::new("larger");
    let dir = small.path().join("store");
    let store = open(place.path(), &Options::default());
    for n in 0..2000 {
        apply(&store, vec![put(key(n), [n as u8; 3000])]);
    }
    drop(store);
    let copied = std::process::Command::new("cp").arg("-r").arg(place.path()).arg(&dir).status().expect("cp");
    assert!(copied.success());
    // As much room as is kept, and no more.
    let ballast = std::fs::File::create(small.path().join("some")).expect("a file");
    let free = rustix::fs::statvfs(small.path()).map(|stat| stat.f_bavail * stat.f_frsize).expect("a file system");
    rustix::fs::fallocate(&ballast, rustix::fs::FallocateFlags::empty(), 0, free - (2 << 20)).expect("room");
    let store = open(&dir, &Options::default());
    take_all(small.path());
    for i in 0..200 {
        store.commit_with(vec![writes(vec![(key(i), None)])], Room::Freeing).unwrap_or_else(|e| panic!("{i}: {e}"));
    }
    drop(store);
    let store = open(&dir, &Options::default());
    assert_eq!(all(&store).len(), 1800);
    give_back(small.path());
    drop(ballast);
    std::fs::remove_file(small.path().join("some")).expect("the ballast");
    wait_until("room", || store.commit(vec![writes(vec![put("R-size", [0; 100])])]).is_ok());
}

#[test]
fn p7_many_can_be_deleted_though_somebody_else_has_taken_all_that_was_free() {
    let Some(small) = Small::mount("48m") else { return };
    let store = open(&small.path().join("store"), &Options::default());
    let many = 20_000;
    for n in 0..many {
        apply(&store, vec![put(key(n), [n as u8; 200])]);
    }
    store.keep_room();
    take_all(small.path());
    for i in 0..many {
        let deleted = store.commit_with(vec![writes(vec![(key(i), None)])], Room::Freeing);
        deleted.unwrap_or_else(|e| panic!("deleting {i} of {many}: {e}"));
    }
    assert!(all(&store).is_empty());
    give_back(small.path());
    wait_until("room", || store.commit(vec![writes(vec![put("R-size", [0; 100])])]).is_ok());
}
