//! A metadata engine against an ordered map: random transactions, reads and views from fixed seeds.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::{
    MakeStore, Rng, StoreCheck, checks,
    metadata::{commit, get},
};
use crate::{Guard, KeyRange, MetadataStore, Record, Snapshot, Txn};

pub(super) fn checks() -> Vec<StoreCheck> {
    checks![StoreCheck: b3_random_transactions_as_a_map_has_them]
}

const SEEDS: &[u64] = &[1, 2, 3, 0xfeed, 0x5eed_5eed, 1 << 40];
const STEPS: usize = 300;

type Model = BTreeMap<Vec<u8>, Record>;

/// Few and short keys, so that they meet; some with the bytes that order and prefixes depend on.
fn key(rng: &mut Rng) -> Vec<u8> {
    const LETTERS: &[u8] = &[0, 1, b'a', b'b', 0xfe, 0xff];
    (0..rng.below(4)).map(|_| LETTERS[rng.below(LETTERS.len() as u64) as usize]).collect()
}

fn txn(rng: &mut Rng, model: &Model) -> Txn {
    let guards = (0..rng.below(3)).map(|_| {
        let key = key(rng);
        let present = model.get(&key).map(|r| r.revision);
        match (rng.below(8), present) {
            // Mostly what holds, else all would conflict.
            (0, _) => Guard::Absent(key),
            (1, _) => Guard::Present(key),
            (2, _) => Guard::Revision(key, 1 + rng.below(40)),
            (n, Some(revision)) if n < 6 => Guard::Revision(key, revision),
            (_, Some(_)) => Guard::Present(key),
            (_, None) => Guard::Absent(key),
        }
    });
    let guards = guards.collect();
    let writes = (0..rng.below(5)).map(|_| {
        let len = if rng.below(20) == 0 { 5000 } else { rng.below(20) };
        let value = (rng.below(4) != 0).then(|| (0..len).map(|_| rng.next() as u8).collect::<Bytes>());
        (key(rng), value)
    });
    Txn { guards, writes: writes.collect() }
}

fn holds(model: &Model, guard: &Guard) -> bool {
    match guard {
        Guard::Absent(k) => !model.contains_key(k),
        Guard::Present(k) => model.contains_key(k),
        Guard::Revision(k, r) => model.get(k).is_some_and(|v| v.revision == *r),
    }
}

fn range(rng: &mut Rng) -> KeyRange {
    match rng.below(3) {
        0 => KeyRange::prefix(&key(rng)),
        1 => KeyRange { from: key(rng), to: None },
        _ => KeyRange { from: key(rng), to: Some(key(rng)) },
    }
}

fn scan(model: &Model, range: &KeyRange, after: Option<&[u8]>, limit: usize) -> Vec<(Bytes, Record)> {
    let inside = model.iter().filter(|(k, _)| range.contains(k) && after.is_none_or(|a| &k[..] > a));
    inside.take(limit).map(|(k, v)| (Bytes::copy_from_slice(k), v.clone())).collect()
}

fn compare(at: &str, rng: &mut Rng, model: &Model, view: &dyn Snapshot) {
    let (range, after, limit) = (range(rng), key(rng), rng.below(30) as usize);
    let after = (rng.below(2) == 0).then_some(&after[..]);
    let found = view.scan(&range, after, limit).expect("a scan");
    assert_eq!(found, scan(model, &range, after, limit), "{at}: scan of {range:?} behind {after:?}, {limit} at most");
    let keys: Vec<_> = (0..5).map(|_| key(rng)).collect();
    let found = view.get(&keys.iter().map(|k| &k[..]).collect::<Vec<_>>()).expect("a get");
    assert_eq!(found, keys.iter().map(|k| model.get(k).cloned()).collect::<Vec<_>>(), "{at}: get of {keys:?}");
}

/// The store itself, read like a view.
struct Now<'a>(&'a dyn MetadataStore);

impl Snapshot for Now<'_> {
    fn get(&self, keys: &[&[u8]]) -> iov_types::Result<Vec<Option<Record>>> {
        self.0.get(keys)
    }

    fn scan(&self, range: &KeyRange, after: Option<&[u8]>, limit: usize) -> iov_types::Result<Vec<(Bytes, Record)>> {
        self.0.scan(range, after, limit)
    }
}

fn b3_random_transactions_as_a_map_has_them(make: MakeStore<'_>) {
    for seed in SEEDS {
        let (store, mut rng, mut model) = (make(), Rng::new(*seed), Model::new());
        let mut views: Vec<(Box<dyn Snapshot>, Model)> = Vec::new();
        let (mut last, mut conflicts) = (0, 0);
        for step in 0..STEPS {
            let at = format!("seed {seed}, step {step}");
            let txns: Vec<_> = (0..rng.below(4)).map(|_| txn(&mut rng, &model)).collect();
            for (txn, result) in txns.iter().zip(commit(&*store, txns.clone())) {
                let expected = txn.guards.iter().all(|g| holds(&model, g));
                assert_eq!(result.is_ok(), expected, "{at}: {txn:?} ended with {result:?}");
                let Ok(revision) = result else {
                    conflicts += 1;
                    continue;
                };
                assert!(revision > last, "{at}: revision {revision} after {last}");
                last = revision;
                for (key, value) in &txn.writes {
                    match value {
                        Some(value) => drop(model.insert(key.clone(), Record { value: value.clone(), revision })),
                        None => drop(model.remove(key)),
                    }
                }
            }
            compare(&at, &mut rng, &model, &Now(&*store));
            if rng.below(10) == 0 {
                views.push((store.snapshot().expect("a view"), model.clone()));
            }
            if let Some((view, then)) = views.get(rng.below(views.len() as u64) as usize) {
                compare(&format!("{at}, a view"), &mut rng, then, &**view);
            }
        }
        assert!(conflicts > 10 && last > 200, "seed {seed} has tried little: {conflicts} conflicts, revision {last}");
        for (key, record) in &model {
            assert_eq!(get(&*store, key).as_ref(), Some(record), "seed {seed}, at the end");
        }
    }
}
