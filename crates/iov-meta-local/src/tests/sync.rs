//! Power loss: what `persist` costs, who shares it, and what happens when it fails.

use std::sync::{Arc, Barrier};

use iov_store::MetadataStore;
use iov_types::{Clause, Outcome};

use super::kit::{Place, all, apply, open, put, tiny, value, wait_until, writes};
use crate::{Options, hooks::Point};

#[test]
fn p3_persist_syncs_once_and_only_if_something_was_committed() {
    let place = Place::new("syncs");
    let store = open(place.path(), &Options::default());
    store.persist().expect("nothing to do");
    assert_eq!(store.stats().log_syncs, 0, "nothing was committed");
    for i in 0..1000 {
        apply(&store, vec![put(format!("R{i}"), "v")]);
    }
    store.persist().expect("a sync");
    assert_eq!(store.stats().log_syncs, 1, "one for all of them");
    store.persist().expect("nothing to do");
    store.commit(vec![]).expect("nothing");
    store.persist().expect("nothing to do");
    assert_eq!(store.stats().log_syncs, 1);
}

#[test]
fn p3_callers_that_come_together_share_a_sync() {
    const CALLERS: usize = 8;
    let place = Place::new("group");
    let store = Arc::new(open(place.path(), &Options::default()));
    store.engine().hooks.delay(Point::Sync, 20_000_000);
    let barrier = Barrier::new(CALLERS);
    std::thread::scope(|scope| {
        for caller in 0..CALLERS {
            let (store, barrier) = (&store, &barrier);
            scope.spawn(move || {
                for round in 0..5 {
                    barrier.wait();
                    apply(store, vec![put(format!("R{caller}-{round}"), "v")]);
                    store.persist().expect("a sync");
                }
            });
        }
    });
    let syncs = store.stats().log_syncs;
    assert!((5..=3 * 5).contains(&syncs), "{syncs} syncs for {} calls", CALLERS * 5);
}

#[test]
fn p3_persist_covers_segments_that_wait_to_be_moved() {
    let place = Place::new("segments");
    let store = open(place.path(), &tiny());
    // The thread that would sync them fails before it can.
    let hooks = store.engine().hooks.clone();
    hooks.fail(Point::Ingest, 5);
    let mut n = 0;
    while store.engine().parts().sealed.len() < 2 {
        apply(&store, vec![put(format!("R{n}"), [1; 500])]);
        n += 1;
    }
    apply(&store, vec![put("R", "in the third")]);
    store.persist().expect("a sync");
    assert!(store.stats().log_syncs >= 3, "each of the three segments is synced");
    let engine = store.engine();
    assert!(crate::engine::lock(&engine.syncing).segments.iter().all(|s| !s.is_dirty()));
}

#[test]
fn p8_after_a_failed_sync_nothing_is_committed_and_nothing_taken_for_clean() {
    let place = Place::new("failed");
    let options = Options::default();
    let store = open(place.path(), &options);
    apply(&store, vec![put("R1", "synced")]);
    store.persist().expect("a sync");
    apply(&store, vec![put("R2", "not synced")]);
    let hooks = store.engine().hooks.clone();
    hooks.fail(Point::Sync, 5);
    let e = store.persist().expect_err("a failed sync");
    assert_eq!((e.clause(), e.outcome()), (Some(Clause::P8), Outcome::Unknown), "{e:?}");
    hooks.heal();
    for _ in 0..2 {
        let e = store.persist().expect_err("a second sync would pass without having done anything");
        assert_eq!(e.clause(), Some(Clause::P8));
        let e = store.commit(vec![writes(vec![put("R3", "x")])]).expect_err("refused");
        assert_eq!((e.clause(), e.outcome()), (Some(Clause::P8), Outcome::NotApplied), "{e:?}");
    }
    assert_eq!(value(&store, "R2").as_deref(), Some(&b"not synced"[..]), "it can be read");
    drop(store);
    assert!(place.path().join("unsynced").exists(), "the next start knows");
    let inode = |path: &std::path::Path| std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(path).expect("a file"));
    let log = super::torn::newest_segment(place.path());
    let before = inode(&log);
    let store = open(place.path(), &options);
    assert_ne!(inode(&log), before, "the log was written anew, to pages that are not taken for clean");
    assert!(!place.path().join("unsynced").exists());
    assert_eq!(all(&store).len(), 2);
    apply(&store, vec![put("R4", "goes on")]);
    store.persist().expect("a sync");
}

#[test]
fn p8_a_failed_sync_in_the_background_is_for_good_too() {
    let place = Place::new("failed-background");
    let store = open(place.path(), &tiny());
    store.engine().hooks.fail(Point::Sync, 5);
    let mut n = 0;
    wait_until("a refusal", || {
        n += 1;
        store.commit(vec![writes(vec![put(format!("R{n}"), [1; 500])])]).is_err()
    });
    let e = store.commit(vec![writes(vec![put("R", "x")])]).expect_err("refused");
    assert_eq!(e.clause(), Some(Clause::P8), "{e:?}");
    assert_eq!(store.stats().applied, 0, "what is not synced does not go into tables");
    assert_eq!(all(&store).len(), n - 1);
}

/// The system reports what it could not write to one of those who sync a file at once.
#[test]
fn p8_a_sync_that_fails_beside_another_is_a_failure_for_both() {
    for round in 0..20 {
        let place = Place::new("failed-beside");
        let store = open(place.path(), &Options::default());
        apply(&store, vec![put("R1", "x")]);
        let (engine, hooks) = (store.engine(), store.engine().hooks.clone());
        hooks.delay(Point::Sync, 10_000_000);
        hooks.fail_once(Point::Sync, 5);
        // The thread that moves it into tables syncs it first.
        engine.seal(&mut engine.log.lock().expect("the log")).expect("a new segment");
        let e = store.persist().expect_err("the first sync failed, and the second had nothing to write");
        assert_eq!(e.clause(), Some(Clause::P8), "round {round}: {e:?}");
        assert!(engine.check().is_err());
    }
}
