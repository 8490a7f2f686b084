//! A metadata engine: transactions apply whole and in order, views stay as they were, ranges are exact.

use std::{
    collections::HashSet,
    sync::{Arc, atomic::Ordering},
};

use bytes::Bytes;
use iov_types::Kind;

use super::{
    MakeStore, StoreCheck, checks,
    kit::{Thread, pattern, together},
};
use crate::{Commit, Guard, KeyRange, MetadataStore, Record, Txn};

pub(super) fn checks() -> Vec<StoreCheck> {
    checks![StoreCheck:
        b3_an_empty_store_has_nothing,
        b3_a_transaction_applies_whole,
        b3_guards_hold_or_nothing_applies,
        b3_a_conflict_does_not_stop_others,
        b3_transactions_of_one_call_see_each_other,
        b3_a_later_write_of_a_key_wins,
        b3_revisions_grow,
        b3_racing_guards_have_one_winner,
        o5_a_scan_is_in_order_and_exact,
        o5_a_prefix_ends_where_it_should,
        o5_pages_are_complete,
        o5_a_view_does_not_change,
        o5_readers_see_whole_transactions,
        p7_large_values_come_back,
        p7_odd_keys_come_back,
        p3_persist_can_be_called_any_time,
    ]
}

/// A put.
pub(super) fn put(key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> (Vec<u8>, Option<Bytes>) {
    (key.as_ref().to_vec(), Some(Bytes::copy_from_slice(value.as_ref())))
}

fn delete(key: &str) -> (Vec<u8>, Option<Bytes>) {
    (key.into(), None)
}

/// Commits transactions that the log has to take.
pub(super) fn commit(store: &dyn MetadataStore, txns: Vec<Txn>) -> Vec<Commit> {
    let n = txns.len();
    let commits = store.commit(txns).expect("a commit");
    assert_eq!(commits.len(), n, "one answer for each transaction");
    commits
}

/// Commits writes without guards; the revision.
pub(super) fn apply(store: &dyn MetadataStore, writes: Vec<(Vec<u8>, Option<Bytes>)>) -> u64 {
    let mut commits = commit(store, vec![Txn { guards: vec![], writes }]);
    commits.remove(0).expect("no guards")
}

pub(super) fn get(store: &dyn MetadataStore, key: impl AsRef<[u8]>) -> Option<Record> {
    let mut found = store.get(&[key.as_ref()]).expect("a get");
    assert_eq!(found.len(), 1, "one answer for each key");
    found.remove(0)
}

fn value(store: &dyn MetadataStore, key: &str) -> Option<Vec<u8>> {
    get(store, key).map(|r| r.value.to_vec())
}

fn keys(found: Vec<(Bytes, Record)>) -> Vec<Vec<u8>> {
    found.into_iter().map(|(k, _)| k.to_vec()).collect()
}

fn everything() -> KeyRange {
    KeyRange { from: vec![], to: None }
}

fn b3_an_empty_store_has_nothing(make: MakeStore<'_>) {
    let store = make();
    assert_eq!(get(&*store, "a"), None);
    assert_eq!(store.get(&[]).expect("no keys"), []);
    assert_eq!(store.scan(&everything(), None, 10).expect("a scan"), []);
    assert_eq!(commit(&*store, vec![]), []);
    let view = store.snapshot().expect("a view");
    assert_eq!(view.scan(&everything(), None, 10).expect("a scan"), []);
}

fn b3_a_transaction_applies_whole(make: MakeStore<'_>) {
    let store = make();
    let first = apply(&*store, vec![put("a", "1"), put("b", "2")]);
    let second = apply(&*store, vec![delete("a"), put("c", "3"), delete("never there")]);
    let found = store.get(&[b"c", b"a", b"b", b"c"]).expect("a get");
    let found: Vec<_> = found.into_iter().map(|r| r.map(|r| (r.value, r.revision))).collect();
    let c = Some((Bytes::from("3"), second));
    assert_eq!(found, [c.clone(), None, Some((Bytes::from("2"), first)), c], "in the order of the keys asked for");
}

fn b3_guards_hold_or_nothing_applies(make: MakeStore<'_>) {
    let store = make();
    let a = apply(&*store, vec![put("a", "1")]);
    let b = apply(&*store, vec![put("b", "1")]);
    let holds = |guard: Guard| {
        let key = |g: &Guard| match g {
            Guard::Absent(k) | Guard::Present(k) | Guard::Revision(k, _) => k.clone(),
        };
        let (untouched, what) = (key(&guard), format!("{guard:?}"));
        let good = Guard::Present(b"b".to_vec());
        let txn = Txn { guards: vec![good, guard], writes: vec![put("mark", &what), put("mark2", &what)] };
        let before = get(&*store, &untouched);
        let result = commit(&*store, vec![txn]).remove(0);
        let applied =
            [value(&*store, "mark"), value(&*store, "mark2")] == [Some(what.clone().into()), Some(what.clone().into())];
        assert_eq!(applied, result.is_ok(), "{what}: applied exactly if it says so");
        assert_eq!(get(&*store, &untouched), before, "{what}: a guard changes nothing");
        if let Err(e) = &result {
            assert_eq!(e.kind(), Kind::Conflict, "{what}: {e:?}");
        }
        result.is_ok()
    };
    let key = |k: &str| k.as_bytes().to_vec();
    assert!(holds(Guard::Absent(key("x"))) && !holds(Guard::Absent(key("a"))), "absent");
    assert!(holds(Guard::Present(key("a"))) && !holds(Guard::Present(key("x"))), "present");
    assert!(holds(Guard::Revision(key("a"), a)) && holds(Guard::Revision(key("b"), b)), "revision");
    assert!(!holds(Guard::Revision(key("a"), b)) && !holds(Guard::Revision(key("b"), a)), "another revision");
    assert!(!holds(Guard::Revision(key("x"), a)) && !holds(Guard::Revision(key("x"), 0)), "revision of nothing");
    apply(&*store, vec![put("a", "1")]);
    assert!(!holds(Guard::Revision(key("a"), a)), "a put of the same value is a change");
    apply(&*store, vec![delete("a")]);
    assert!(holds(Guard::Absent(key("a"))) && !holds(Guard::Revision(key("a"), a)), "after a delete");
}

fn b3_a_conflict_does_not_stop_others(make: MakeStore<'_>) {
    let store = make();
    let txn = |key: &str| Txn { guards: vec![Guard::Absent(key.into())], writes: vec![put(key, "v")] };
    let ok: Vec<_> = commit(&*store, ["a", "a", "b", "b", "c"].map(txn).into()).iter().map(Result::is_ok).collect();
    assert_eq!(ok, [true, false, true, false, true]);
    assert_eq!(keys(store.scan(&everything(), None, 9).expect("a scan")), [b"a", b"b", b"c"]);
}

fn b3_transactions_of_one_call_see_each_other(make: MakeStore<'_>) {
    let store = make();
    apply(&*store, vec![put("old", "1")]);
    let txns = vec![
        Txn { guards: vec![Guard::Absent("k".into())], writes: vec![put("k", "1"), delete("old")] },
        Txn { guards: vec![Guard::Present("k".into()), Guard::Absent("old".into())], writes: vec![put("k", "2")] },
        Txn { guards: vec![Guard::Present("k".into())], writes: vec![delete("k"), put("l", "3")] },
        Txn { guards: vec![Guard::Absent("k".into()), Guard::Present("l".into())], writes: vec![put("k", "4")] },
    ];
    for (n, result) in commit(&*store, txns).into_iter().enumerate() {
        result.unwrap_or_else(|e| panic!("transaction {n} does not see the ones before it: {e:?}"));
    }
    assert_eq!((value(&*store, "k"), value(&*store, "l")), (Some(b"4".to_vec()), Some(b"3".to_vec())));
}

fn b3_a_later_write_of_a_key_wins(make: MakeStore<'_>) {
    let store = make();
    apply(&*store, vec![put("a", "1"), put("a", "2"), put("b", "1"), delete("b"), delete("c"), put("c", "1")]);
    let found = ["a", "b", "c"].map(|k| value(&*store, k));
    assert_eq!(found, [Some(b"2".to_vec()), None, Some(b"1".to_vec())]);
}

fn b3_revisions_grow(make: MakeStore<'_>) {
    let store = make();
    let mut last = 0;
    for i in 0..20 {
        let n = 1 + i % 3;
        let txns = (0..n).map(|j| Txn { guards: vec![], writes: vec![put(format!("{j}"), format!("{i}"))] }).collect();
        for (j, result) in commit(&*store, txns).into_iter().enumerate() {
            let revision = result.expect("no guards");
            assert!(revision > last, "revision {revision} after {last}");
            last = revision;
            assert_eq!(get(&*store, format!("{j}")).expect("a record").revision, revision, "the record carries it");
        }
    }
}

fn b3_racing_guards_have_one_winner(make: MakeStore<'_>) {
    let store = make();
    let to = store.clone();
    let won = together(4, move |thread| {
        let txn = |i: usize| Txn {
            guards: vec![Guard::Absent(format!("{i}").into())],
            writes: vec![put(format!("{i}"), format!("{thread}"))],
        };
        (0..100).filter(|i| commit(&*to, vec![txn(*i)]).remove(0).is_ok()).collect::<Vec<_>>()
    });
    for i in 0..100usize {
        let winners: Vec<_> = (0..4).filter(|t| won[*t].contains(&i)).collect();
        assert_eq!(winners.len(), 1, "T13: key {i} was made by {winners:?}");
        assert_eq!(value(&*store, &format!("{i}")), Some(format!("{}", winners[0]).into_bytes()));
    }
}

fn o5_a_scan_is_in_order_and_exact(make: MakeStore<'_>) {
    let store = make();
    let names = ["b", "a", "ab", "abc", "b\0", "c", "", "d"];
    let revision = apply(&*store, names.iter().map(|k| put(k, format!("<{k}>"))).collect());
    apply(&*store, vec![delete("d")]);
    let range = |from: &str, to: Option<&str>| KeyRange { from: from.into(), to: to.map(|t| t.into()) };
    let scan = |r: &KeyRange, after: Option<&str>, limit| {
        keys(store.scan(r, after.map(str::as_bytes), limit).expect("a scan"))
    };
    let expect = |list: &[&str]| list.iter().map(|k| k.as_bytes().to_vec()).collect::<Vec<_>>();
    assert_eq!(scan(&everything(), None, 99), expect(&["", "a", "ab", "abc", "b", "b\0", "c"]), "sorted as bytes");
    assert_eq!(scan(&range("ab", Some("b")), None, 99), expect(&["ab", "abc"]), "half open");
    assert_eq!(scan(&range("ab", Some("b\0")), None, 99), expect(&["ab", "abc", "b"]));
    assert_eq!(
        scan(&range("aa", None), None, 99),
        expect(&["ab", "abc", "b", "b\0", "c"]),
        "from a key that is not there"
    );
    assert_eq!(scan(&range("b", Some("b")), None, 99), expect(&[]), "an empty range");
    assert_eq!(scan(&range("c", Some("a")), None, 99), expect(&[]), "a range the wrong way round");
    assert_eq!(scan(&range("a", None), None, 2), expect(&["a", "ab"]), "at most as many as asked for");
    assert_eq!(scan(&range("a", None), None, 0), expect(&[]));
    assert_eq!(scan(&range("a", None), Some("ab"), 2), expect(&["abc", "b"]), "behind a key");
    assert_eq!(scan(&range("a", None), Some("aba"), 2), expect(&["abc", "b"]), "behind a key that is not there");
    assert_eq!(scan(&range("ab", Some("b")), Some("a"), 9), expect(&["ab", "abc"]), "behind a key before the range");
    assert_eq!(scan(&range("ab", Some("b")), Some("b"), 9), expect(&[]), "behind the end");
    let found = store.scan(&range("ab", Some("abc")), None, 9).expect("a scan");
    assert_eq!(
        found,
        [(Bytes::from("ab"), Record { value: Bytes::from("<ab>"), revision })],
        "with value and revision"
    );
}

fn o5_a_prefix_ends_where_it_should(make: MakeStore<'_>) {
    let store = make();
    let all: [&[u8]; 8] = [b"a", b"a\xff", b"a\xff\x01", b"a\xff\xff", b"b", b"\xff", b"\xff\xfe", b"\xff\xff\x01"];
    apply(&*store, all.iter().map(|k| put(k, "v")).collect());
    let cases: [(&[u8], usize); 6] =
        [(b"a", 4), (b"a\xff", 3), (b"a\xff\xff", 1), (b"\xff", 3), (b"\xff\xff", 1), (b"", 8)];
    for (prefix, n) in cases {
        let found = keys(store.scan(&KeyRange::prefix(prefix), None, 99).expect("a scan"));
        assert!(found.iter().all(|k| k.starts_with(prefix)), "{prefix:02x?}: {found:02x?}");
        assert_eq!(found.len(), n, "{prefix:02x?}: {found:02x?}");
    }
}

fn o5_pages_are_complete(make: MakeStore<'_>) {
    let store = make();
    apply(&*store, (0..1000).map(|i| put(format!("k{i:04}"), "v")).collect());
    let (mut after, mut all) = (None::<Vec<u8>>, Vec::new());
    loop {
        let page = keys(store.scan(&KeyRange::prefix(b"k"), after.as_deref(), 37).expect("a scan"));
        let Some(last) = page.last() else { break };
        after = Some(last.clone());
        all.extend(page);
        assert!(all.len() <= 1000, "paging comes to an end");
    }
    assert_eq!(all.len(), 1000);
    assert_eq!(all.into_iter().collect::<HashSet<_>>().len(), 1000, "each key once");
}

fn o5_a_view_does_not_change(make: MakeStore<'_>) {
    let store = make();
    let revision = apply(&*store, (0..100).map(|i| put(format!("{i:02}"), "old")).collect());
    let view = store.snapshot().expect("a view");
    apply(&*store, (0..100).filter(|i| i % 2 == 0).map(|i| put(format!("{i:02}"), "new")).collect());
    apply(&*store, vec![delete("01"), put("more", "x")]);
    let old = Record { value: Bytes::from("old"), revision };
    let found = view.scan(&everything(), None, 1000).expect("a scan");
    assert_eq!(found.len(), 100, "what came later does not show, what went later does");
    assert!(found.iter().all(|(_, r)| *r == old), "every record as it was");
    assert_eq!(view.get(&[b"00", b"01", b"more"]).expect("a get"), [Some(old.clone()), Some(old), None]);
    assert_eq!(value(&*store, "00"), Some(b"new".to_vec()), "the store itself has moved on");
    drop(store);
    assert_eq!(view.scan(&everything(), Some(b"98"), 9).expect("a view outlives its store").len(), 1);
}

fn o5_readers_see_whole_transactions(make: MakeStore<'_>) {
    let store: Arc<dyn MetadataStore> = make();
    let write = |i: u64| (0..20).map(|k| put(format!("{k}"), i.to_le_bytes())).collect();
    apply(&*store, write(0));
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let store = store.clone();
            Thread::start(move |stop| {
                let (mut last, names) = (0, (0..20).map(|k| format!("{k}")).collect::<Vec<_>>());
                let names: Vec<_> = names.iter().map(|k| k.as_bytes()).collect();
                while !stop.load(Ordering::Relaxed) {
                    let got = store.get(&names).expect("a get").into_iter().flatten().map(|r| r.value);
                    let scanned =
                        store.scan(&everything(), None, 99).expect("a scan").into_iter().map(|(_, r)| r.value);
                    for (what, values) in [("get", got.collect::<Vec<_>>()), ("scan", scanned.collect())] {
                        assert_eq!(values.len(), 20, "{what}");
                        assert!(values.iter().all(|v| *v == values[0]), "a {what} shows a part of a transaction");
                        let now = u64::from_le_bytes(values[0][..].try_into().expect("8 bytes"));
                        assert!(now >= last, "T2: {now} after {last}");
                        last = now;
                    }
                }
            })
        })
        .collect();
    for i in 1..200 {
        apply(&*store, write(i));
        let now = value(&*store, "7").map(|v| v.len());
        assert_eq!((now, get(&*store, "7").map(|r| r.value[..] == i.to_le_bytes())), (Some(8), Some(true)), "T1");
    }
    readers.into_iter().for_each(Thread::stop);
}

fn p7_large_values_come_back(make: MakeStore<'_>) {
    let store = make();
    let (large, larger) = (pattern(1, 1 << 20), pattern(2, 4 << 20));
    apply(&*store, vec![put("large", &large), put("empty", ""), put("larger", &larger)]);
    assert_eq!(value(&*store, "empty"), Some(vec![]), "an empty value is a value");
    assert!(value(&*store, "large") == Some(large) && value(&*store, "larger") == Some(larger));
    assert!(store.bytes() >= 1 << 20, "{} bytes", store.bytes());
}

fn p7_odd_keys_come_back(make: MakeStore<'_>) {
    let store = make();
    let mut odd: Vec<Vec<u8>> = (0..=255u8).map(|b| vec![b]).collect();
    odd.extend([vec![], vec![0; 300], vec![0xff; 300], b"a\0b".to_vec(), b"a".to_vec().repeat(1000)]);
    for (i, key) in odd.iter().enumerate() {
        apply(&*store, vec![put(key, format!("{i}"))]);
    }
    for (i, key) in odd.iter().enumerate() {
        assert_eq!(get(&*store, key).map(|r| r.value), Some(format!("{i}").into()), "{key:02x?}");
    }
    assert_eq!(store.scan(&everything(), None, 9999).expect("a scan").len(), odd.len());
}

fn p3_persist_can_be_called_any_time(make: MakeStore<'_>) {
    let store = make();
    store.persist().expect("an empty store");
    apply(&*store, vec![put("a", "1")]);
    store.persist().expect("after a commit");
    store.persist().expect("twice");
    let to = store.clone();
    together(2, move |i| match i {
        0 => (0..20).for_each(|n| assert!(apply(&*to, vec![put("a", format!("{n}"))]) > 0)),
        _ => (0..20).for_each(|_| to.persist().expect("beside commits")),
    });
    assert_eq!(value(&*store, "a"), Some(b"19".to_vec()));
}
