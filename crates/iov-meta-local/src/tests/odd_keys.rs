//! Keys at the edges of families, and the one without bytes: in the log, in buffers, in tables, merged and after a start.

use bytes::Bytes;
use iov_store::{Guard, KeyRange, MetadataStore, Txn};

use super::kit::{Place, all, apply, open, put, tiny, value, wait_applied, writes};
use crate::LocalStore;

fn odd() -> Vec<Vec<u8>> {
    let mut keys: Vec<Vec<u8>> =
        ["", "\0", "\0\0", "H", "I", "I\0", "J", "M", "N", "N\0", "O", "Q", "R", "R\0", "S", "k", "k\0", "kk", "l"]
            .iter()
            .map(|key| key.as_bytes().to_vec())
            .collect();
    keys.extend([
        vec![0xff],
        vec![0xff; 300],
        [b"H".as_slice(), &[0xff; 40]].concat(),
        [b"Q".as_slice(), &[0xff; 40]].concat(),
    ]);
    keys.sort();
    keys
}

/// Enough of other things that what was written before moves into tables.
fn push_down(store: &LocalStore) {
    let n = store.stats().applied;
    let filler = vec![7; 8 << 10];
    for i in 0..4u8 {
        apply(store, vec![put([b'z', i], &filler)]);
    }
    wait_applied(store, n + 1);
    apply(store, (0..4u8).map(|i| ([b'z', i].to_vec(), None)).collect());
}

fn range(from: &[u8], to: Option<&[u8]>) -> KeyRange {
    KeyRange { from: from.to_vec(), to: to.map(<[u8]>::to_vec) }
}

/// Every way of reading gives what the list says, which is in order.
fn check(store: &LocalStore, expected: &[(Vec<u8>, String)]) {
    let found: Vec<_> = all(store).into_iter().map(|(k, r)| (k.to_vec(), r.value)).collect();
    let expected: Vec<_> = expected.iter().map(|(k, v)| (k.clone(), Bytes::from(v.clone()))).collect();
    assert_eq!(found, expected);
    for key in odd() {
        let at = expected.iter().find(|(k, _)| *k == key).map(|(_, v)| v.clone());
        assert_eq!(value(store, &key), at, "{key:02x?}");
        for to in odd().iter().map(|to| Some(&to[..])).chain([None]) {
            for after in [None, Some(&key[..]), Some(&b""[..]), Some(&b"Q"[..])] {
                let from = range(&key, to);
                let found: Vec<_> =
                    store.scan(&from, after, 3).unwrap().into_iter().map(|(k, r)| (k.to_vec(), r.value)).collect();
                let within =
                    |k: &[u8]| k >= &key[..] && to.is_none_or(|to| k < to) && after.is_none_or(|after| k > after);
                let wanted: Vec<_> = expected.iter().filter(|(k, _)| within(k)).take(3).cloned().collect();
                assert_eq!(found, wanted, "from {key:02x?} to {to:02x?} behind {after:02x?}");
            }
        }
    }
}

#[test]
fn p7_odd_keys_come_back_from_everywhere() {
    let place = Place::new("odd");
    let mut store = open(place.path(), &tiny());
    let mut model: Vec<(Vec<u8>, String)> = odd().into_iter().map(|key| (key, "first".to_owned())).collect();
    apply(&store, model.iter().map(|(k, v)| put(k, v)).collect());
    check(&store, &model);
    push_down(&store);
    check(&store, &model);
    drop(store);
    store = open(place.path(), &tiny());
    check(&store, &model);
    // Half of them change, some go; with the rest in tables.
    for round in 0..6 {
        let mut list = Vec::new();
        for (i, (key, text)) in model.iter_mut().enumerate() {
            if (i + round) % 2 == 0 {
                *text = format!("round {round}");
                list.push(put(&*key, &*text));
            }
        }
        apply(&store, list);
        check(&store, &model);
        push_down(&store);
        check(&store, &model);
    }
    apply(&store, model.iter().map(|(key, _)| (key.clone(), None)).collect());
    check(&store, &[]);
    push_down(&store);
    check(&store, &[]);
    drop(store);
    check(&open(place.path(), &tiny()), &[]);
}

#[test]
fn a_guard_on_the_key_without_bytes_holds() {
    let place = Place::new("odd-guard");
    let store = open(place.path(), &tiny());
    let guarded = |guard: Guard| Txn { guards: vec![guard], ..writes(vec![put("", "1")]) };
    let commits = store.commit(vec![guarded(Guard::Absent(vec![])), guarded(Guard::Absent(vec![]))]).unwrap();
    assert!(commits[0].is_ok() && commits[1].is_err());
    push_down(&store);
    let revision = *commits[0].as_ref().unwrap();
    assert!(store.commit(vec![guarded(Guard::Revision(vec![], revision))]).unwrap()[0].is_ok());
    assert!(store.commit(vec![guarded(Guard::Present(vec![]))]).unwrap()[0].is_ok());
    assert!(store.commit(vec![guarded(Guard::Revision(vec![], revision))]).unwrap()[0].is_err());
}
