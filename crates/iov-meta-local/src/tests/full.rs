//! Media without room, and media that fail: clear errors, nothing lost, and it goes on when it can.

use iov_store::MetadataStore;
use iov_types::{Kind, Outcome};

use super::kit::{Place, Small, all, apply, open, put, scattered, tiny, value, wait_applied, wait_until, writes};
use crate::{LocalStore, Options, hooks::Point};

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

#[test]
fn b3_a_full_disk_refuses_a_commit_and_the_store_goes_on() {
    let place = Place::new("full");
    let store = open(place.path(), &Options::default());
    apply(&store, vec![put("R1", "before")]);
    let hooks = store.engine().hooks.clone();
    hooks.fail(Point::Write, ENOSPC);
    for _ in 0..3 {
        let e = store.commit(vec![writes(vec![put("R2", "no room for this one")])]).expect_err("no room");
        assert_eq!((e.kind(), e.outcome()), (Kind::Exhausted, Outcome::NotApplied));
        assert!(e.detail().contains("free some space"), "{e}");
    }
    assert_eq!(value(&store, "R2"), None);
    hooks.heal();
    let revision = apply(&store, vec![put("R3", "after")]);
    assert_eq!(revision, 2, "what was refused took no revision");
    let expected = all(&store);
    assert_eq!(expected.len(), 2);
    drop(store);
    assert!(all(&open(place.path(), &Options::default())) == expected);
}

#[test]
fn p8_a_log_that_cannot_be_cut_takes_no_more_commits() {
    for (first, second) in [(ENOSPC, Some(EIO)), (EIO, None)] {
        let place = Place::new("broken");
        let store = open(place.path(), &Options::default());
        apply(&store, vec![put("R1", "before")]);
        let hooks = store.engine().hooks.clone();
        hooks.fail(Point::Write, first);
        if let Some(errno) = second {
            hooks.fail(Point::Cut, errno);
        }
        let e = store.commit(vec![writes(vec![put("R2", "x")])]).expect_err("a failure");
        assert_eq!((e.outcome(), e.clause()), (Outcome::Unknown, Some(iov_types::Clause::P8)), "{e:?}");
        hooks.heal();
        let e = store.commit(vec![writes(vec![put("R3", "x")])]).expect_err("for good");
        assert_eq!((e.outcome(), e.clause()), (Outcome::NotApplied, Some(iov_types::Clause::P8)), "{e:?}");
        store.persist().expect_err("neither does it sync");
        assert_eq!(value(&store, "R1").as_deref(), Some(&b"before"[..]), "it can be read all the same");
        drop(store);
        let store = open(place.path(), &Options::default());
        assert_eq!((value(&store, "R1").is_some(), value(&store, "R3")), (true, None));
        apply(&store, vec![put("R4", "goes on")]);
    }
}

#[test]
fn b3_tables_without_room_hold_commits_back_and_lose_nothing() {
    for (errno, kind) in [(ENOSPC, Kind::Exhausted), (EIO, Kind::Unavailable)] {
        let place = Place::new("hold");
        let store = open(place.path(), &tiny());
        let hooks = store.engine().hooks.clone();
        hooks.fail(Point::Ingest, errno);
        let (mut n, mut refused) = (0u32, None);
        while refused.is_none() {
            let key = [&b"R"[..], &n.to_be_bytes()].concat();
            match store.commit(vec![writes(vec![put(key, [1; 200])])]) {
                Ok(_) => n += 1,
                Err(e) => refused = Some(e),
            }
            assert!(n < 10_000, "memory is bounded");
        }
        let e = refused.expect("a refusal");
        assert_eq!((e.kind(), e.outcome()), (kind, Outcome::NotApplied), "{e:?}");
        assert!(e.detail().contains("wait for the log to be moved into tables"), "{e}");
        assert_eq!(all(&store).len(), n as usize);
        store.persist().expect("what is there can be synced");
        hooks.heal();
        wait_until("the store to go on", || store.commit(vec![writes(vec![put("Rx", "after")])]).is_ok());
        wait_applied(&store, 2);
        assert_eq!(all(&store).len(), n as usize + 1);
        drop(store);
        assert_eq!(all(&open(place.path(), &tiny())).len(), n as usize + 1);
    }
}

#[test]
fn b3_merging_that_fails_is_tried_again() {
    let place = Place::new("merge");
    let store = open(place.path(), &Options { write_buffer: 2 << 10, ..tiny() });
    let hooks = store.engine().hooks.clone();
    hooks.fail(Point::Compact, ENOSPC);
    let runs = |store: &LocalStore| store.engine().tables.trees().iter().map(|t| t.runs()).max().unwrap_or(0);
    let (mut n, mut refused) = (0u32, None);
    while refused.is_none() {
        match store.commit(vec![writes(vec![put(scattered(b'R', n), [1; 200])])]) {
            Ok(_) => n += 1,
            Err(e) => refused = Some(e),
        }
        assert!(n < 10_000, "runs are bounded");
    }
    assert_eq!(refused.map(|e| e.kind()), Some(Kind::Exhausted));
    assert!(runs(&store) >= crate::tables::MAX_RUNS);
    hooks.heal();
    wait_until("the store to go on", || store.commit(vec![writes(vec![put("Rx", "after")])]).is_ok());
    wait_until("few runs", || runs(&store) < 5);
    assert_eq!(all(&store).len(), n as usize + 1);
}

#[test]
fn b3_a_disk_that_fills_up_loses_nothing_and_works_again_when_there_is_room() {
    let Some(small) = Small::mount("12m") else { return };
    let options = Options { write_buffer: 512 << 10, ..tiny() };
    let dir = small.path().join("store");
    let ballast = small.path().join("ballast");
    std::fs::write(&ballast, vec![1; 4 << 20]).expect("room for the ballast");
    let store = open(&dir, &options);
    let key = |n: u32| [&b"R"[..], &n.to_be_bytes()].concat();
    let fill = |store: &LocalStore, n: &mut u32, most: u32| -> Option<iov_types::Error> {
        for _ in 0..most {
            let list = (0..10).map(|i| put(key(*n + i), [(*n % 251) as u8; 500])).collect();
            match store.commit(vec![writes(list)]) {
                Ok(_) => *n += 10,
                Err(e) => return Some(e),
            }
        }
        None
    };
    let check = |store: &LocalStore, n: u32, when: &str| {
        let found = all(store);
        assert_eq!(found.len(), n as usize, "{when}: batches are whole, and all acknowledged ones are there");
        assert!(found.iter().zip(0u32..).all(|((k, _), i)| k[..] == key(i)[..]), "{when}");
    };
    let mut n = 0;
    let e = fill(&store, &mut n, 100_000).expect("the disk fills up");
    assert_eq!((e.kind(), e.outcome()), (Kind::Exhausted, Outcome::NotApplied), "{e:?}");
    assert!(n > 2500, "{n} records went in before");
    check(&store, n, "full");
    let e = fill(&store, &mut n, 100_000).expect("it stays full");
    assert_eq!(e.kind(), Kind::Exhausted, "{e:?}");
    check(&store, n, "still full");
    // Some room: it goes on by itself, in the same process.
    std::fs::remove_file(&ballast).expect("the ballast");
    for _ in 0..100 {
        // Also those that wait for a buffer: moving it is tried again every few seconds.
        wait_until("the store to go on", || fill(&store, &mut n, 1).is_none());
    }
    check(&store, n, "room again");
    store.persist().expect("a sync");
    drop(store);
    let store = open(&dir, &options);
    check(&store, n, "opened again");
    // And a store that was full when its process was killed opens.
    let e = fill(&store, &mut n, 100_000).expect("full again");
    assert_eq!(e.kind(), Kind::Exhausted, "{e:?}");
    drop(store);
    check(&open(&dir, &options), n, "opened while full");
}

#[test]
fn b3_a_buffer_leaves_no_files_in_trees_that_it_has_nothing_for() {
    let place = Place::new("families");
    let store = open(place.path(), &tiny());
    let mut n = 0;
    while store.stats().applied < 5 {
        apply(&store, vec![put(format!("R{n}"), [1; 200])]);
        n += 1;
    }
    for family in ["names", "index", "other"] {
        let tables = place.path().join("tables").join(family).join("tables");
        assert_eq!(std::fs::read_dir(tables).expect("its tables").count(), 0, "{family}: each takes an inode");
    }
    assert_eq!(all(&store).len(), n);
}
