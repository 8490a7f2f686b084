//! Looking at a store that nobody serves: what a start would find is found, and nothing on the medium changes.

use std::{collections::BTreeMap, path::Path};

use iov_store::MetadataStore;
use iov_types::Kind;

use super::{
    kit::{Place, all, apply, open, put, tiny, unlocked, wait_applied, writes},
    torn::{as_killed, newest_segment},
};
use crate::{LocalStore, ReadOnly};

fn look(path: &Path) -> ReadOnly {
    unlocked(|| ReadOnly::open(path, tiny())).expect("a look").expect("a store")
}

/// Every file below a directory, with what is in it.
fn files(dir: &Path) -> BTreeMap<std::path::PathBuf, Vec<u8>> {
    let mut out = BTreeMap::new();
    for entry in std::fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        match path.is_dir() {
            true => out.extend(files(&path)),
            false => drop(out.insert(path.clone(), std::fs::read(&path).expect("a file"))),
        }
    }
    out
}

/// A store with tables and a log, as a kill leaves it, and what was in it.
fn killed(name: &str) -> (Place, Vec<(bytes::Bytes, iov_store::Record)>) {
    let (place, copied) = (Place::new(name), Place::new(&format!("{name}-copy")));
    let store = open(place.path(), &tiny());
    for i in 0..600 {
        let n = i % 200;
        apply(
            &store,
            vec![put(format!("R{n}"), [7; 200]), put(format!("N{n}"), format!("{i}")), (format!("M{i}").into(), None)],
        );
    }
    wait_applied(&store, 3);
    apply(&store, vec![("R7".into(), None), put("R8", "new")]);
    let found = all(&store);
    as_killed(&store, place.path(), copied.path());
    (copied, found)
}

#[test]
fn a_look_finds_all_and_changes_nothing() {
    let (place, found) = killed("look");
    // What a merge that was cut short leaves: the library would remove it.
    let tree = place.path().join("tables/records");
    let table = std::fs::read_dir(tree.join("tables")).expect("tables").next().expect("one").expect("one").path();
    std::fs::copy(&table, tree.join("tables/999999")).expect("a copy");
    std::fs::copy(tree.join("current"), tree.join("v999999")).expect("a copy");
    let before = files(place.path());
    let first = look(place.path());
    let second = look(place.path());
    assert!(all(&first) == found && all(&second) == found);
    let e = first.commit(vec![writes(vec![put("R", "v")])]).expect_err("it is for reading");
    assert_eq!(e.kind(), Kind::Denied);
    let view = first.snapshot().expect("a view");
    drop((first, second));
    assert!(view.get(&[b"R8"]).expect("a get")[0].as_ref().is_some_and(|r| &r.value[..] == b"new"));
    drop(view);
    assert!(files(place.path()) == before, "nothing is as it was");
    assert!(all(&open(place.path(), &tiny())) == found);
}

#[test]
fn nobody_writes_while_somebody_looks_and_nobody_looks_while_somebody_writes() {
    let (place, _) = killed("look-lock");
    let looking = look(place.path());
    assert_eq!(LocalStore::open(place.path(), tiny()).err().expect("it is refused").kind(), Kind::Busy);
    drop(looking);
    let store = open(place.path(), &tiny());
    assert_eq!(ReadOnly::open(place.path(), tiny()).err().expect("it is refused").kind(), Kind::Busy);
    drop(store);
    look(place.path());
}

#[test]
fn a_torn_log_is_read_up_to_its_end_and_a_damaged_one_is_an_error() {
    let (place, found) = killed("look-torn");
    let log = newest_segment(place.path());
    let good = std::fs::read(&log).expect("the log");
    std::fs::write(&log, [&good[..], b"IOVF and no more"].concat()).expect("a torn log");
    let before = files(place.path());
    assert!(all(&look(place.path())) == found);
    assert!(files(place.path()) == before);
    let mut bad = good.clone();
    bad[150] ^= 1;
    std::fs::write(&log, bad).expect("a damaged log");
    let e = unlocked(|| ReadOnly::open(place.path(), tiny())).err().expect("damage");
    assert_eq!(e.kind(), Kind::Corrupt);
}

#[test]
fn there_is_nothing_to_look_at_where_no_store_was_made() {
    let place = Place::new("look-none");
    assert!(ReadOnly::open(place.path(), tiny()).expect("no error").is_none());
    assert!(files(place.path()).is_empty());
}
