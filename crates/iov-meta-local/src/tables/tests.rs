//! The tables against an ordered map, written only as we write them: whole runs, merges, restarts. Releases of the
//! library before the pinned one hid what had been put in so from states held after a restart.

use std::{collections::BTreeMap, ops::Bound, path::Path};

use super::*;
use crate::tests::{
    kit::{Place, unlocked},
    torn::copy,
};

type Model = BTreeMap<Vec<u8>, (Vec<u8>, u64)>;

fn open(path: &Path, make: bool) -> Arc<Tables> {
    let home = unlocked(|| Home::open(path)).expect("a directory");
    Tables::open(home, 1 << 20, make).expect("tables")
}

fn key(family: Family, n: u32) -> Vec<u8> {
    let tag = [b'R', b'N', b'I', b'x'][family as usize];
    [&[tag][..], &n.to_be_bytes()].concat()
}

fn check(tables: &Tables, pin: &Pin, family: Family, model: &Model, when: &str) {
    let (tree, at) = (tables.tree(family), pin.at(family));
    for n in 0..800 {
        let key = key(family, n);
        let found = tree.get(&key, at).expect("a get").map(|item| (item.value().to_vec(), item.revision()));
        assert_eq!(found.as_ref(), model.get(&key), "{when}: {family:?} {n}");
    }
    let mut range = tree.range(Bound::Unbounded, Bound::Unbounded, at).expect("a range");
    let mut found = Vec::new();
    while let Some(item) = tree.next(&mut range).expect("an item") {
        found.push((item.key().to_vec(), (item.value().to_vec(), item.revision())));
    }
    assert!(found.iter().map(|(k, v)| (k, v)).eq(model), "{when}: all of {family:?}");
}

#[test]
fn tables_hold_what_was_put_in_through_merges_and_restarts() {
    let place = Place::new("tables");
    let mut seed = 88172645463325252u64;
    let mut next = move |n: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % n
    };
    let (mut models, mut revision, mut merges) = (vec![Model::new(); FAMILIES.len()], 0u64, 0);
    for round in 0..25 {
        let tables = open(place.path(), round == 0);
        let pin = Pin::new(&tables, 0);
        FAMILIES.iter().for_each(|f| check(&tables, &pin, *f, &models[*f as usize], &format!("round {round}, opened")));
        drop(pin);
        let mut held: Vec<(Pin, Vec<Model>)> = Vec::new();
        for run in 0..3 {
            for family in FAMILIES {
                let mut changes = BTreeMap::new();
                for _ in 0..300 {
                    revision += 1;
                    let value = (next(4) != 0).then(|| revision.to_le_bytes().repeat(1 + next(3) as usize));
                    changes.insert(key(family, next(800) as u32), (value, revision));
                }
                let items = changes.iter().map(|(k, (v, r))| (&k[..], v.as_deref(), *r));
                tables.tree(family).ingest(items).expect("a run");
                for (key, (value, revision)) in changes {
                    match value {
                        Some(value) => drop(models[family as usize].insert(key, (value, revision))),
                        None => drop(models[family as usize].remove(&key)),
                    }
                }
                while next(2) == 0 && tables.tree(family).merge(64 << 20).expect("a merge") {
                    merges += 1;
                }
            }
            if next(2) == 0 {
                held.push((Pin::new(&tables, run), models.clone()));
            }
        }
        for family in FAMILIES {
            while tables.tree(family).merge(64 << 20).expect("a merge") {
                merges += 1;
            }
            let pin = Pin::new(&tables, 0);
            check(&tables, &pin, family, &models[family as usize], &format!("round {round}, merged"));
            for (pin, models) in &held {
                check(&tables, pin, family, &models[family as usize], &format!("round {round}, a held state"));
            }
        }
    }
    assert!(merges > 50, "{merges} merges");
}

#[test]
fn a_state_is_merged_away_only_when_nobody_holds_it() {
    let place = Place::new("held");
    let tables = open(place.path(), true);
    let tree = tables.tree(Family::Records);
    let put = |value: u8| {
        let keys: Vec<_> = (0..1000).map(|n| key(Family::Records, n)).collect();
        let value = [value; 100];
        tree.ingest(keys.iter().map(|k| (&k[..], Some(&value[..]), 1))).expect("a run");
    };
    put(0);
    let (first, second) = (Pin::new(&tables, 0), Pin::new(&tables, 0));
    assert_eq!(first.at(Family::Records), second.at(Family::Records));
    drop(second);
    for round in 1..12 {
        put(round);
        while tree.merge(64 << 20).expect("a merge") {}
        let old = tree.get(&key(Family::Records, 7), first.at(Family::Records)).expect("a get").expect("a value");
        assert_eq!(old.value(), [0; 100]);
    }
    let held = tree.bytes();
    drop(first);
    for round in 12..24 {
        put(round);
        while tree.merge(64 << 20).expect("a merge") {}
    }
    assert!(tree.bytes() <= held, "{} bytes, {held} while it was held: overwritten values go", tree.bytes());
}

/// Closing two stores of one process at once once removed tables of one from the other: what the library removes when a
/// tree is dropped it finds by the descriptor of the directory, whose number the next store gets.
#[test]
fn merged_tables_go_while_the_directory_is_still_held() {
    let place = Place::new("closed");
    let files = || std::fs::read_dir(place.path().join("tables/records/tables")).expect("its tables").count();
    let tables = open(place.path(), true);
    let tree = tables.tree(Family::Records);
    let held = Pin::new(&tables, 0);
    for round in 0..8u8 {
        let keys: Vec<_> = (0..100).map(|n| key(Family::Records, n)).collect();
        let value = [round];
        tree.ingest(keys.iter().map(|k| (&k[..], Some(&value[..]), 1))).expect("a run");
        while tree.merge(64 << 20).expect("a merge") {}
    }
    let (live, there) = (tree.tables(), files());
    assert!(there > live, "{there} files: merged tables stay while a state is held");
    drop(held);
    drop(tables);
    assert_eq!(files(), live, "files after closing");
}

#[test]
fn families_and_spans_cover_all_keys_in_order() {
    assert!(SPANS.windows(2).all(|pair| pair[0].to == Some(pair[1].from)));
    assert_eq!((SPANS[0].from, SPANS[6].to), (&b""[..], None));
    for first in 0..=255u8 {
        let key = [first, 7];
        let span = SPANS.iter().find(|s| s.from <= &key[..] && s.to.is_none_or(|to| &key[..] < to)).expect("a span");
        assert_eq!(span.family, Family::of(&key), "{first}");
    }
    assert_eq!(Family::of(b""), Family::Other);
}

/// Writing a manifest can fail when `current` names it already: the library stays where it was, and the medium is ahead.
#[test]
fn a_manifest_that_failed_at_its_end_does_not_count() {
    let (place, ahead) = (Place::new("manifest"), Place::new("manifest-ahead"));
    let (folder, other) = (place.path().join("tables/records"), ahead.path().join("tables/records"));
    let put = |tables: &Tables, value: u8| {
        let keys: Vec<_> = (0..100).map(|n| key(Family::Records, n)).collect();
        let value = [value; 100];
        tables.tree(Family::Records).ingest(keys.iter().map(|k| (&k[..], Some(&value[..]), 1)))
    };
    let read = |tables: &Arc<Tables>| {
        let at = Pin::new(tables, 0).at(Family::Records);
        let item = tables.tree(Family::Records).get(&key(Family::Records, 7), at).expect("a get").expect("a value");
        item.value()[0]
    };
    let tables = open(place.path(), true);
    put(&tables, 1).expect("a run");
    copy(place.path(), ahead.path());
    let newest = |folder: &Path| {
        let tables = std::fs::read_dir(folder.join("tables")).expect("tables");
        let number = |name: std::ffi::OsString| name.to_str().and_then(|name| name.parse::<u64>().ok());
        tables.filter_map(|table| number(table.expect("a table").file_name())).max().expect("one")
    };
    let first = newest(&folder) + 1;
    let fail = || {
        let before = std::fs::read(folder.join("current")).expect("current");
        let further = open(ahead.path(), false);
        put(&further, 2).expect("a run");
        drop(further);
        let table = format!("tables/{}", newest(&other));
        let current = std::fs::read(other.join("current")).expect("current");
        let manifest = format!("v{}", crate::files::u64_at(&current, 0));
        for name in [&*manifest, "current", &table] {
            std::fs::copy(other.join(name), folder.join(name)).expect("a copy");
        }
        assert_ne!(before, current);
        (before, current, folder.join(table))
    };
    let current = || std::fs::read(folder.join("current")).expect("current");
    let (before, further, table) = fail();
    tables.tree(Family::Records).sweep(first).expect("nothing is in the way");
    assert!(current() == before && !table.exists(), "the table goes behind what names it");
    // Where that cannot be done, everything stays, and nothing is written.
    std::fs::copy(other.join("current"), folder.join("current")).expect("a copy");
    std::fs::copy(other.join(table.strip_prefix(&folder).expect("inside")), &table).expect("a copy");
    std::fs::create_dir(folder.join("current.new")).expect("something in the way");
    tables.tree(Family::Records).sweep(first).expect_err("something is in the way");
    put(&tables, 3).expect_err("it would empty the manifest that is named");
    tables.tree(Family::Records).merge(64 << 20).expect_err("as this would");
    assert!(current() == further && table.exists());
    copy(place.path(), ahead.path());
    assert_eq!(read(&open(ahead.path(), false)), 2, "it can be opened");
    std::fs::remove_dir(folder.join("current.new")).expect("out of the way");
    put(&tables, 3).expect("a run");
    assert!(!table.exists() || current() != further);
    assert_eq!(read(&tables), 3);
    drop(tables);
    assert_eq!(read(&open(place.path(), false)), 3);
}
