use iov_store::{MemoryStore, Txn};
use proptest::prelude::*;

use super::*;

fn filled(keys: &[(Vec<u8>, u8)]) -> MemoryStore {
    let store = MemoryStore::new();
    let writes = keys.iter().map(|(k, v)| (k.clone(), Some(Bytes::copy_from_slice(&[*v])))).collect();
    store.commit(vec![Txn { guards: Vec::new(), writes }]).unwrap();
    store
}

fn keys() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(0u8..4, 0..4)
}

proptest! {
    /// The view before a commit is the store after it, whatever is read and however it is paged.
    #[test]
    fn o9_the_view_is_the_store_after_the_commit(
        base in prop::collection::vec((keys(), any::<u8>()), 0..40),
        writes in prop::collection::vec((keys(), prop::option::of(any::<u8>())), 0..40),
        undone in prop::collection::vec((keys(), prop::option::of(any::<u8>())), 0..10),
        prefix in prop::collection::vec(0u8..4, 0..2),
        limit in 1usize..50,
        scan_first in any::<bool>(),
    ) {
        let store = filled(&base);
        let mut pending = Pending::default();
        let value = |v: &Option<u8>| v.map(|v| Bytes::copy_from_slice(&[v]));
        for (key, v) in &writes {
            pending.put(key.clone(), value(v));
        }
        let range = KeyRange::prefix(&prefix);
        if scan_first {
            pending.scan(&store, &range, None, 3).unwrap();
        }
        let mark = pending.mark();
        for (key, v) in &undone {
            pending.put(key.clone(), value(v));
        }
        pending.rollback(mark);

        let snapshot = pending.snapshot(&store).unwrap();
        let mut paged = Vec::new();
        loop {
            let after = paged.last().map(|(key, _): &(Bytes, Record)| key.clone());
            let page = pending.scan(&store, &range, after.as_deref(), limit).unwrap();
            prop_assert_eq!(&page, &snapshot.scan(&range, after.as_deref(), limit).unwrap());
            let end = page.len() < limit;
            paged.extend(page);
            if end {
                break;
            }
        }
        let probes: Vec<Vec<u8>> = base.iter().map(|(k, _)| k.clone()).chain(writes.iter().map(|(k, _)| k.clone())).collect();
        let seen: Vec<_> = probes
            .iter()
            .map(|k| match pending.get(k) {
                Some(pending) => pending.clone(),
                None => store.get(&[k]).unwrap().remove(0).map(|r| r.value),
            })
            .collect();
        let from_snapshot = snapshot.get(&probes.iter().map(|k| &k[..]).collect::<Vec<_>>()).unwrap();

        store.commit(vec![Txn { guards: Vec::new(), writes: pending.take() }]).unwrap();
        let after: Vec<_> = store.scan(&range, None, usize::MAX).unwrap();
        let strip = |v: &[(Bytes, Record)]| v.iter().map(|(k, r)| (k.clone(), r.value.clone())).collect::<Vec<_>>();
        prop_assert_eq!(strip(&paged), strip(&after));
        for ((key, seen), snapped) in probes.iter().zip(seen).zip(from_snapshot) {
            let now = store.get(&[key]).unwrap().remove(0).map(|r| r.value);
            prop_assert_eq!(&seen, &now);
            prop_assert_eq!(&snapped.map(|r| r.value), &now);
        }
    }
}

#[test]
fn keys_of_one_hash_are_told_apart() {
    let mut pending = Pending::default();
    for n in 0..1000u32 {
        pending.put(n.to_be_bytes().to_vec(), Some(Bytes::copy_from_slice(&n.to_be_bytes())));
    }
    // Force a collision: the chain is walked by key.
    let hash = pending.log[5].hash;
    pending.log[900].hash = hash;
    pending.log[900].before = 6;
    pending.newest.insert(hash, 901);
    assert_eq!(pending.get(&5u32.to_be_bytes()).unwrap().as_ref().unwrap()[..], 5u32.to_be_bytes());
    assert_eq!(pending.get(&901u32.to_be_bytes()).unwrap().as_ref().unwrap()[..], 901u32.to_be_bytes());
    assert!(pending.get(&1000u32.to_be_bytes()).is_none());
}
