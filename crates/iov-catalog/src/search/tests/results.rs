//! What comes back: metadata, counts, limits, pages, errors.

use bytes::Bytes;
use iov_store::{MetadataStore, Txn};
use iov_types::{EntryKind, Kind, Metadata, Uuid, Value, limits};

use super::{World, all_pages, find, name, names, pairs, search, sorted, str, uuid, world::Thing};

#[test]
fn o4_metadata_asked_for() {
    let mut world = World::new(&[]);
    let mut thing = Thing::new(uuid(1), EntryKind::Collection);
    thing.metadata = pairs(&[("b", Value::I64(2)), ("a", str("x")), ("c", Value::Bool(true))]);
    thing.names = vec![(Uuid::NIL, name(b"\xfe"))];
    thing.size = 7;
    world.put(thing);
    let with = |keys: &[&str]| {
        let mut spec = find("");
        spec.keys = keys.iter().map(|k| (*k).to_owned()).collect();
        search(&world, &spec).remove(0).metadata
    };
    let owned =
        |pairs: &[(&str, Value)]| Some(pairs.iter().map(|(k, v)| ((*k).to_owned(), v.clone())).collect::<Vec<_>>());
    assert_eq!(with(&[]), None);
    assert_eq!(with(&["c", "missing", "a", "c"]), owned(&[("c", Value::Bool(true)), ("a", str("x"))]));
    let all = [("a", str("x")), ("b", Value::I64(2)), ("c", Value::Bool(true))];
    assert_eq!(with(&["*", "a"]), owned(&all));
    let system = [
        ("iov.size", Value::I64(7)),
        ("iov.name", Value::Bytes(vec![0xfe])),
        ("iov.group", str(&Uuid::NIL.to_string())),
    ];
    assert_eq!(with(&["iov.size", "iov.name", "iov.group", "iov.mtime"]), owned(&system));
    let mut spec = find("");
    spec.keys = vec!["iov.nme".to_owned()];
    let e = world.cursor(&spec).map(|_| ()).unwrap_err();
    assert_eq!(e.kind(), Kind::Invalid);
    assert!(e.detail().starts_with("metadata to return: there is no system key"), "{e}");
}

#[test]
fn o5_counting_and_limits() {
    let mut world = World::new(&["n"]);
    for i in 0..50 {
        world.collection(i, &format!("n{i:02}"), pairs(&[("n", Value::I64(i as i64))]));
    }
    let count = |predicate: &str, limit| {
        let mut spec = find(predicate);
        (spec.count, spec.limit, spec.order) = (true, limit, Some("n".to_owned()));
        let mut cursor = world.cursor(&spec).unwrap();
        let results = cursor.next(1, u64::MAX).unwrap();
        assert!(results.done && results.entries.is_empty());
        results.count
    };
    assert_eq!(count("", 0), Some(50));
    assert_eq!(count("n >= 45", 0), Some(5));
    assert_eq!(count("n < 0", 0), Some(0));
    assert_eq!(count("", 20), Some(20));
    let mut spec = find("");
    (spec.limit, spec.page) = (7, 3);
    assert_eq!(search(&world, &spec).len(), 7);
    let mut listing = find("");
    (listing.names, listing.group, listing.count) = (true, Some(Uuid::NIL), true);
    assert_eq!(world.cursor(&listing).unwrap().next(1, u64::MAX).unwrap().count, Some(50));
}

#[test]
fn o5_budget_bounds_one_call_and_not_the_search() {
    let mut world = World::new(&[]);
    for i in 0..2000 {
        world.collection(i, &format!("n{i}"), pairs(&[("n", Value::I64(i as i64))]));
    }
    let mut cursor = world.cursor(&find("n = 1999")).unwrap();
    let (mut calls, mut found) = (0, 0);
    loop {
        let before = cursor.stats().records;
        let results = cursor.next(10, 100).unwrap();
        assert!(cursor.stats().records - before <= 100 + 256, "one batch over at most");
        calls += 1;
        found += results.entries.len();
        if results.done {
            break;
        }
    }
    assert!(found == 1 && calls > 5, "{found} in {calls}");
    assert!(world.cursor(&find("")).unwrap().next(1, 0).unwrap().entries.len() == 1, "every call gets further");
}

#[test]
fn o5_pages_are_bounded_in_bytes() {
    let mut world = World::new(&[]);
    for i in 0..40 {
        world.collection(i, &format!("n{i}"), pairs(&[("blob", Value::Bytes(vec![0; limits::VALUE_BYTES]))]));
    }
    let mut spec = find("");
    spec.keys = vec!["*".to_owned()];
    let mut cursor = world.cursor(&spec).unwrap();
    let first = cursor.next(100, u64::MAX).unwrap();
    assert!(!first.done && first.entries.len() == limits::PAGE_BYTES / limits::VALUE_BYTES, "{}", first.entries.len());
    assert_eq!(search(&world, &spec).len(), 40);
}

#[test]
fn o10_what_is_hidden_is_not_found() {
    let mut world = World::new(&["n"]);
    for i in 0..4 {
        let mut thing = Thing::new(uuid(i), EntryKind::Collection);
        (thing.hidden, thing.metadata) = (i % 2 == 0, pairs(&[("n", Value::I64(1))]));
        world.put(thing);
    }
    for predicate in ["", "n = 1", "exists(n)"] {
        assert_eq!(sorted(&search(&world, &find(predicate))), [1, 3], "{predicate}");
    }
}

#[test]
fn o1_workspaces_are_searched_the_same_way() {
    let mut world = World::of_workspaces();
    for i in 0..5 {
        let mut thing = Thing::new(uuid(i), EntryKind::Workspace);
        thing.names = vec![(Uuid::NIL, name(format!("ws{i}")))];
        thing.metadata = pairs(&[("project", str(if i < 3 { "cfd" } else { "weather" }))]);
        thing.hidden = i == 1;
        world.put(thing);
    }
    let mut spec = find("project = 'cfd' and iov.name ^= 'ws' and iov.kind = 'workspace'");
    spec.order = Some("iov.name desc".to_owned());
    let entries = search(&world, &spec);
    assert_eq!(names(&entries), ["ws2", "ws0"]);
    assert!(entries.iter().all(|e| e.kind == EntryKind::Workspace));
}

#[test]
fn o5_bad_requests() {
    let mut world = World::new(&[]);
    world.collection(1, "c", Metadata::new());
    let start = |group, predicate: &str, params: Vec<Value>| {
        let mut spec = find(predicate);
        (spec.group, spec.params) = (group, params);
        world.cursor(&spec).map(|_| ()).unwrap_err()
    };
    assert_eq!(start(Some(uuid(9)), "", vec![]).kind(), Kind::NotFound);
    let e = start(Some(uuid(1)), "", vec![]);
    assert!(e.kind() == Kind::Invalid && e.detail().contains("is no group"), "{e}");
    assert!(start(None, "a >", vec![]).detail().starts_with("column 4"));
    assert!(start(None, "", vec![Value::I64(1)]).detail().starts_with("parameters are given"));
    assert!(start(None, "a = ?", vec![]).detail().contains("parameter 1"));
}

#[test]
fn o5_damaged_entries_are_reported_and_stay_so() {
    let damage = |key: Vec<u8>, value: &'static [u8], group: Option<Uuid>, predicate: &str| {
        let mut world = World::new(&["n"]);
        world.collection(1, "c", pairs(&[("n", Value::I64(1))]));
        (2..9).for_each(|n| world.put(Thing::new(uuid(n), EntryKind::Collection)));
        let writes = vec![(key, Some(Bytes::from_static(value)))];
        world.store.commit(vec![Txn { guards: vec![], writes }]).unwrap().remove(0).unwrap();
        let mut spec = find(predicate);
        spec.group = group;
        let mut cursor = world.cursor(&spec).unwrap();
        let e = cursor.next(10, u64::MAX).unwrap_err();
        assert_eq!(cursor.next(10, u64::MAX).unwrap_err(), e);
        e.kind()
    };
    let ws = super::world::WS.0;
    let name_key = |name: &[u8]| [b"N", &ws[..], name].concat();
    let root = Some(Uuid::NIL);
    let dangling = b"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x63\x04";
    assert_eq!(damage(name_key(b"d"), b"short", root, ""), Kind::Corrupt);
    assert_eq!(damage(name_key(b"d"), b"0123456789abcdef\x09", root, ""), Kind::Corrupt);
    assert_eq!(damage(name_key(b"d/e"), dangling, root, ""), Kind::Corrupt);
    assert_eq!(damage(name_key(b"d"), dangling, root, ""), Kind::Corrupt);
    assert_eq!(damage([b"R", &ws[..], b"short"].concat(), b"", None, ""), Kind::Corrupt);
    let mut entry = crate::index::prefix(super::world::WS, "n");
    entry.extend(crate::index::encode_value(&Value::I64(1)));
    entry.extend(uuid(99).0);
    assert_eq!(damage(entry, b"", None, "n = 1"), Kind::Corrupt);
}

#[test]
fn c7_facts_of_the_source_are_what_a_search_sees() {
    // The source puts fresher sizes in; the record format knows nothing of it.
    let mut world = World::new(&[]);
    let mut thing = Thing::new(uuid(1), EntryKind::Collection);
    thing.size = 1 << 20;
    world.put(thing);
    assert_eq!(search(&world, &find("iov.size >= 1MiB")).len(), 1);
    assert_eq!(search(&world, &find("iov.size > 1MiB")).len(), 0);
    let (entries, _) = all_pages(world.cursor(&find("not exists(iov.name)")).unwrap(), 1).unwrap();
    assert_eq!(names(&entries), ["-"]);
}
