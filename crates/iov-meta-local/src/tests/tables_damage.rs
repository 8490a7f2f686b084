//! Flipped bits, short and missing files in the tables: an error that says so, or the right answer.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use iov_store::{KeyRange, MetadataStore, Record};
use iov_types::Kind;

use super::{
    kit::{Place, Rng, all, apply, open, put, scattered, tiny, try_open, unlocked, wait_until},
    torn::copy,
};
use crate::{Options, ReadOnly};

fn files(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() { files(&path, out) } else { out.push(path) }
    }
}

/// A store whose tables hold all it has.
fn filled(name: &str) -> (Place, Vec<(Bytes, Record)>) {
    let place = Place::new(name);
    let store = open(place.path(), &Options { write_buffer: 8 << 10, ..tiny() });
    for i in 0..300u32 {
        let key = |tag: u8| [&[tag][..], b"common-prefix-", &i.to_be_bytes()].concat();
        apply(
            &store,
            b"RNIM"
                .iter()
                .map(|tag| put(key(*tag), format!("value of {i}, {}", "x".repeat(i as usize % 90))))
                .collect(),
        );
    }
    wait_until("tables", || store.engine().parts().sealed.is_empty());
    let everything = all(&store);
    drop(store);
    // Opening removes files that are of no use any more.
    drop(open(place.path(), &tiny()));
    (place, everything)
}

/// Opens and reads everything in every way; whether damage was reported. Panics if something is wrong without a report.
fn noticed(store: &Path, expected: &[(Bytes, Record)], at: &str) -> bool {
    // Without the caches of values, and with one for blocks that holds nothing for long.
    let options = Options { record_cache: 0, table_cache: 1 << 10, ..tiny() };
    let store = match try_open(store, &options) {
        Ok(store) => store,
        Err(e) => {
            assert!(matches!(e.kind(), Kind::Corrupt | Kind::Version), "{at}: {e:?}");
            return true;
        }
    };
    let mut noticed = false;
    let mut check = |what: &str, wrong: bool, error: Option<iov_types::Error>| match error {
        Some(e) => {
            assert_eq!(e.kind(), Kind::Corrupt, "{at}, {what}: {e:?}");
            noticed = true;
        }
        None => assert!(!wrong, "{at}: {what} is wrong without a word"),
    };
    for (key, record) in expected {
        match store.get(&[&key[..]]) {
            Ok(found) => check("a get", found[0].as_ref() != Some(record), None),
            Err(e) => check("a get", false, Some(e)),
        }
    }
    for tag in [b"R", b"N", b"I", b"M"] {
        let range = KeyRange::prefix(tag);
        match store.scan(&range, None, usize::MAX) {
            Ok(found) => {
                let inside = expected.iter().filter(|(k, _)| range.contains(k));
                check("a scan", !found.iter().eq(inside), None);
            }
            Err(e) => check("a scan", false, Some(e)),
        }
    }
    noticed
}

#[test]
fn i1_damage_in_tables_is_an_error_or_harmless() {
    let (place, expected) = filled("tables");
    let copied = Place::new("tables-copy");
    let mut names = Vec::new();
    files(&place.path().join("tables"), &mut names);
    assert!(names.len() > 12, "tables of every family");
    let (mut rng, mut seen, mut tries) = (Rng(5), 0, 0);
    for name in &names {
        let relative = name.strip_prefix(place.path()).expect("inside");
        let whole = std::fs::read(name).expect("a file");
        let target = copied.path().join(relative);
        let mut damage = |what: String, bytes: Option<&[u8]>| {
            copy(place.path(), copied.path());
            match bytes {
                Some(bytes) => std::fs::write(&target, bytes).expect("a damaged file"),
                None => std::fs::remove_file(&target).expect("a file"),
            }
            tries += 1;
            seen += usize::from(noticed(copied.path(), &expected, &format!("{}, {what}", relative.display())));
        };
        for n in 0..4 {
            let at = if n == 0 { 0 } else { rng.below(whole.len() as u64) as usize };
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << rng.below(8);
            damage(format!("a bit at {at} of {}", whole.len()), Some(&bytes));
        }
        damage("half of it".into(), Some(&whole[..whole.len() / 2]));
        damage("nothing in it".into(), Some(&[]));
        damage("not there".into(), None);
    }
    assert!(seen * 2 > tries, "{seen} of {tries} were noticed");
    println!("{seen} of {tries} damages were reported, the others harmless");
}

#[test]
fn i1_a_damaged_table_does_not_lose_commits() {
    let (place, expected) = filled("tables-commit");
    let mut names = Vec::new();
    files(&place.path().join("tables/records/tables"), &mut names);
    for name in names {
        let mut bytes = std::fs::read(&name).expect("a table");
        // In the first block of data.
        bytes[60] ^= 1;
        std::fs::write(&name, bytes).expect("a damaged table");
    }
    let store = open(place.path(), &Options { write_buffer: 8 << 10, ..tiny() });
    // Blind writes need no table. Merging fails, and at some point commits are refused; all acknowledged ones are there.
    let mut acknowledged = Vec::new();
    let mut refused = None;
    for i in 0..20_000u32 {
        let key = [&b"Rcommon-prefix"[..], &scattered(b'-', i), b"new"].concat();
        match store.commit(vec![super::kit::writes(vec![put(&key, [3; 300])])]) {
            Ok(_) => acknowledged.push(key),
            Err(e) => {
                refused = Some(e);
                break;
            }
        }
    }
    let e = refused.expect("merging cannot go on for ever");
    assert!(e.kind() == Kind::Corrupt && e.detail().contains("tables/records"), "{e:?}");
    for key in &acknowledged {
        assert!(store.get(&[key]).expect("a get")[0].is_some(), "{key:02x?}");
    }
    assert!(acknowledged.len() > 100 && !expected.is_empty());
}

#[test]
fn p2_a_table_that_no_manifest_names_does_no_harm() {
    let (place, expected) = filled("tables-left");
    let tables = place.path().join("tables/records/tables");
    let one = std::fs::read_dir(&tables).expect("tables").next().expect("one").expect("one").path();
    let mut bytes = std::fs::read(one).expect("a table");
    // The end of its list of sections, and all of that: a loss of power leaves its length, and not what is in it.
    let list = bytes.len() - 38;
    bytes[list - 100..list].fill(0);
    let left = tables.join("999999");
    std::fs::write(&left, bytes).expect("another table");
    let look = unlocked(|| ReadOnly::open(place.path(), tiny())).expect("a look").expect("a store");
    assert!(all(&look) == expected && left.exists());
    drop(look);
    let store = open(place.path(), &tiny());
    assert!(all(&store) == expected && !left.exists());
}

#[test]
#[ignore = "takes minutes"]
fn i1_damage_of_any_byte_in_tables_is_an_error_or_harmless() {
    let (place, expected) = filled("tables-every");
    let mut names = Vec::new();
    files(&place.path().join("tables"), &mut names);
    // Tables of one tree are alike: three of each directory.
    names.sort();
    let mut before = std::collections::HashMap::new();
    names.retain(|name| {
        let n = before.entry(name.parent().map(Path::to_owned)).or_insert(0);
        *n += 1;
        *n <= 3
    });
    let (mut seen, mut tries) = (0, 0);
    for name in &names {
        let whole = std::fs::read(name).expect("a file");
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << (at % 8);
            std::fs::write(name, &bytes).expect("a damaged file");
            tries += 1;
            let relative = name.strip_prefix(place.path()).expect("inside").display();
            seen += usize::from(noticed(place.path(), &expected, &format!("{relative}, {at} of {}", whole.len())));
            std::fs::write(name, &whole).expect("the file as it was");
        }
    }
    println!("{seen} of {tries} damages were reported, the others harmless");
}
