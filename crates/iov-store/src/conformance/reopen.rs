//! A metadata engine on a medium: what was committed is there after it was closed and opened again (P2, P7).

use std::path::Path;

use iov_types::Kind;

use super::{
    MakeStoreAt, ReopenCheck, checks,
    kit::pattern,
    metadata::{apply, commit, get, put},
};
use crate::{Guard, KeyRange, MetadataStore, Txn};

pub(super) fn checks() -> Vec<ReopenCheck> {
    checks![ReopenCheck:
        p7_everything_committed_is_there_again,
        p7_revisions_go_on_growing,
        p7_what_did_not_apply_does_not_appear,
        p7_a_persisted_store_opens_again_and_again,
    ]
}

/// An empty folder for a store.
fn folder(at: &Path) -> &Path {
    std::fs::create_dir_all(at).unwrap_or_else(|e| panic!("no folder {}: {e}", at.display()));
    at
}

fn everything(store: &dyn MetadataStore) -> Vec<(bytes::Bytes, crate::Record)> {
    store.scan(&KeyRange { from: vec![], to: None }, None, usize::MAX).expect("a scan")
}

fn p7_everything_committed_is_there_again(make: MakeStoreAt<'_>, at: &Path) {
    let store = make(folder(at));
    for i in 0..200 {
        let key = |n: usize| format!("{:03}", (i * 7 + n) % 300);
        let mut writes: Vec<_> = (0..5).map(|n| put(key(n), pattern(i as u64, 1 + i * 13))).collect();
        writes.push((key(100).into(), None));
        apply(&*store, writes);
    }
    apply(&*store, vec![put("large", pattern(1, 3 << 20)), put("empty", ""), put([0xff; 40], "odd")]);
    let before = everything(&*store);
    assert!(before.len() > 100, "{} records", before.len());
    drop(store);
    let store = make(at);
    assert!(everything(&*store) == before, "without a persist: every record with its revision, in order");
    store.persist().expect("persist");
    drop(store);
    assert!(everything(&*make(at)) == before, "and with one");
}

fn p7_revisions_go_on_growing(make: MakeStoreAt<'_>, at: &Path) {
    folder(at);
    let mut last = 0;
    for round in 0..4 {
        let store = make(at);
        if round > 0 {
            // A guard on a revision from before holds afterwards.
            assert_eq!(get(&*store, "k").expect("a record").revision, last);
            let guards = vec![Guard::Revision("k".into(), last)];
            let txn = Txn { guards, writes: vec![put("k", "again")] };
            let revision = commit(&*store, vec![txn]).remove(0).expect("a guard from before");
            assert!(revision > last, "round {round}: revision {revision} after {last}");
            last = revision;
        }
        for _ in 0..3 {
            let revision = apply(&*store, vec![put("k", format!("{round}"))]);
            assert!(revision > last, "round {round}: revision {revision} after {last}");
            last = revision;
        }
        // The newest revision may be of a record that is gone.
        let deleted = apply(&*store, vec![put("gone", "x")]).max(apply(&*store, vec![("gone".into(), None)]));
        drop(store);
        let store = make(at);
        let revision = apply(&*store, vec![put("k", "next")]);
        assert!(revision > deleted, "revision {revision} after a delete at {deleted}");
        last = revision;
    }
}

fn p7_what_did_not_apply_does_not_appear(make: MakeStoreAt<'_>, at: &Path) {
    let store = make(folder(at));
    let txns = vec![
        Txn { guards: vec![], writes: vec![put("a", "1")] },
        Txn { guards: vec![Guard::Absent("a".into())], writes: vec![put("b", "1"), ("a".into(), None)] },
        Txn { guards: vec![Guard::Present("a".into())], writes: vec![put("c", "1")] },
    ];
    let results = commit(&*store, txns);
    assert_eq!(results[1].as_ref().map_err(|e| e.kind()), Err(Kind::Conflict));
    drop(store);
    let names: Vec<_> = everything(&*make(at)).into_iter().map(|(k, _)| k).collect();
    assert_eq!(names, ["a", "c"]);
}

fn p7_a_persisted_store_opens_again_and_again(make: MakeStoreAt<'_>, at: &Path) {
    folder(at);
    for n in 0..6usize {
        let store = make(at);
        assert_eq!(everything(&*store).len(), n, "opening {n}");
        apply(&*store, vec![put(format!("{n}"), "v")]);
        if n % 2 == 0 {
            store.persist().expect("persist");
        }
    }
}
