//! Random transactions, views, reads and restarts against an ordered map, with buffers that are moved all the time.

use std::collections::BTreeMap;

use bytes::Bytes;
use iov_store::{Guard, KeyRange, MetadataStore, Record, Snapshot, Txn};

use super::kit::{Place, Rng, all, open, tiny};
use crate::{LocalStore, Options};

type Model = BTreeMap<Vec<u8>, Record>;

/// Keys of every family, few enough to meet, of every length.
fn key(rng: &mut Rng) -> Vec<u8> {
    let first = [b'R', b'N', b'I', b'A', b'M', b'Q', b'z', 0, 0xff][rng.below(9) as usize];
    let mut key = vec![first];
    match rng.below(3) {
        0 => key.extend_from_slice(&(rng.below(40) as u32).to_be_bytes()),
        1 => key.extend_from_slice(format!("name-{}", rng.below(60)).as_bytes()),
        _ => key.extend((0..rng.below(4)).map(|_| [0, 1, 0xfe, 0xff][rng.below(4) as usize])),
    }
    if rng.below(200) == 0 { Vec::new() } else { key }
}

fn txn(rng: &mut Rng, model: &Model) -> Txn {
    let guard = |rng: &mut Rng| {
        let key = key(rng);
        match (model.get(&key), rng.below(6)) {
            (_, 0) => Guard::Absent(key),
            (Some(record), 1..3) => Guard::Revision(key, record.revision),
            (Some(_), _) => Guard::Present(key),
            (None, _) => Guard::Absent(key),
        }
    };
    let guards = (0..rng.below(3)).map(|_| guard(rng)).collect();
    let writes = (0..rng.below(8)).map(|_| {
        let len = [0, 3, 40, 250, 5000][rng.below(5) as usize];
        let fill = rng.next() as u8;
        (key(rng), (rng.below(3) != 0).then(|| Bytes::from(vec![fill; len])))
    });
    Txn { guards, writes: writes.collect() }
}

fn apply(model: &mut Model, txn: &Txn, revision: u64) {
    for (key, value) in &txn.writes {
        match value {
            Some(value) => drop(model.insert(key.clone(), Record { value: value.clone(), revision })),
            None => drop(model.remove(key)),
        }
    }
}

fn holds(model: &Model, guard: &Guard) -> bool {
    match guard {
        Guard::Absent(key) => !model.contains_key(key),
        Guard::Present(key) => model.contains_key(key),
        Guard::Revision(key, revision) => model.get(key).is_some_and(|r| r.revision == *revision),
    }
}

fn compare(at: &str, rng: &mut Rng, model: &Model, view: &dyn Snapshot) {
    let range = match rng.below(4) {
        0 => KeyRange { from: vec![], to: None },
        1 => KeyRange::prefix(&key(rng)),
        2 => KeyRange { from: key(rng), to: None },
        _ => KeyRange { from: key(rng), to: Some(key(rng)) },
    };
    let (after, limit) = ((rng.below(2) == 0).then(|| key(rng)), [0, 1, 7, 100, 100_000][rng.below(5) as usize]);
    let found = view.scan(&range, after.as_deref(), limit).expect("a scan");
    let inside = model.iter().filter(|(k, _)| range.contains(k) && after.as_ref().is_none_or(|a| *k > a));
    let expected: Vec<_> = inside.take(limit).map(|(k, r)| (Bytes::copy_from_slice(k), r.clone())).collect();
    assert!(found == expected, "{at}: a scan of {range:02x?} behind {after:02x?}, {limit} at most");
    let keys: Vec<_> = (0..20).map(|_| key(rng)).collect();
    let found = view.get(&keys.iter().map(|k| &k[..]).collect::<Vec<_>>()).expect("a get");
    let expected: Vec<_> = keys.iter().map(|k| model.get(k).cloned()).collect();
    assert!(found == expected, "{at}: a get of {keys:02x?}");
}

/// The store itself, read like a view.
struct Now<'a>(&'a LocalStore);

impl Snapshot for Now<'_> {
    fn get(&self, keys: &[&[u8]]) -> iov_types::Result<Vec<Option<Record>>> {
        self.0.get(keys)
    }

    fn scan(&self, range: &KeyRange, after: Option<&[u8]>, limit: usize) -> iov_types::Result<Vec<(Bytes, Record)>> {
        self.0.scan(range, after, limit)
    }
}

/// What a run went through, so that it cannot pass by doing nothing.
#[derive(Default)]
struct Seen {
    applied: u64,
    conflicts: u64,
    cache_hits: u64,
    views: u64,
}

fn run(seed: u64, steps: u64, options: &Options) -> Seen {
    let place = Place::new("model");
    let (mut rng, mut model, mut last, mut seen) = (Rng(seed), Model::new(), 0, Seen::default());
    let mut store = open(place.path(), options);
    let mut views: Vec<(Box<dyn Snapshot>, Model)> = Vec::new();
    for step in 0..steps {
        let at = format!("seed {seed}, step {step}");
        let txns: Vec<_> = (0..=rng.below(4)).map(|_| txn(&mut rng, &model)).collect();
        let commits = store.commit(txns.clone()).expect("a commit");
        for (txn, commit) in txns.iter().zip(commits) {
            assert_eq!(commit.is_ok(), txn.guards.iter().all(|g| holds(&model, g)), "{at}: {txn:02x?}");
            match commit {
                Ok(revision) => {
                    assert!(revision > last, "{at}: revision {revision} after {last}");
                    last = revision;
                    apply(&mut model, txn, revision);
                }
                Err(_) => seen.conflicts += 1,
            }
        }
        compare(&at, &mut rng, &model, &Now(&store));
        match rng.below(40) {
            0..4 => views.push((store.snapshot().expect("a view"), model.clone())),
            4..8 if !views.is_empty() => drop(views.swap_remove(rng.below(views.len() as u64) as usize)),
            8 => store.persist().expect("a sync"),
            9 => {
                views.clear();
                seen.applied += store.stats().applied;
                seen.cache_hits += store.stats().cache_hits;
                drop(store);
                store = open(place.path(), options);
                compare(&format!("{at}, opened again"), &mut rng, &model, &Now(&store));
            }
            _ => {}
        }
        for (n, (view, model)) in views.iter().enumerate() {
            seen.views += 1;
            compare(&format!("{at}, view {n}"), &mut rng, model, &**view);
        }
    }
    seen.applied += store.stats().applied;
    seen.cache_hits += store.stats().cache_hits;
    drop((views, store));
    let expected: Vec<_> = model.into_iter().map(|(k, r)| (Bytes::from(k), r)).collect();
    assert!(all(&open(place.path(), options)) == expected, "seed {seed}: everything at the end");
    seen
}

#[test]
fn o5_the_store_reads_like_a_map_through_moves_and_restarts() {
    for seed in [1, 2, 3, 0xfeed] {
        let seen = run(seed, 400, &tiny());
        let Seen { applied, conflicts, cache_hits, views } = seen;
        let worked = applied > 20 && conflicts > 20 && cache_hits > 100 && views > 200;
        assert!(worked, "{applied} moved, {conflicts} conflicts, {cache_hits} hits, {views} reads of views");
    }
}

#[test]
fn o5_the_store_reads_like_a_map_with_a_buffer_for_each_commit() {
    let seen = run(7, 250, &Options { write_buffer: 1, ..tiny() });
    assert!(seen.applied > 200, "{} buffers were moved", seen.applied);
}

#[test]
fn o5_the_store_reads_like_a_map_from_memory() {
    let seen = run(11, 400, &Options::default());
    assert_eq!(seen.applied, 0);
}

#[test]
#[ignore = "takes a minute"]
fn o5_the_store_reads_like_a_map_for_long() {
    for seed in 100..120 {
        run(seed, 1500, &Options { write_buffer: 1 << (10 + seed % 7), ..tiny() });
    }
}
