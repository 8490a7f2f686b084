//! Which way a search goes, and that it touches nothing beside it.

use iov_types::{EntryKind, Uuid, Value, limits};

use super::{World, all_pages, find, numbers, pairs, search, sorted, str, uuid, world::Thing};

const MANY: u64 = 3000;

/// Records 0.. with `n` = number, `kind` = number mod 10, a long text; 100 of them in a group.
fn world() -> (World, Uuid) {
    let mut world = World::new(&["n", "kind", "text"]);
    let group = world.group(1_000_000, Uuid::NIL, "group");
    for i in 0..MANY {
        let metadata = pairs(&[
            ("n", if i % 2 == 0 { Value::I64(i as i64) } else { Value::F64(i as f64) }),
            ("kind", Value::I64(i as i64 % 10)),
            ("text", str(&format!("{}{}", "x".repeat(300), i % 3))),
            ("plain", Value::I64(i as i64)),
        ]);
        world.member(i, if i < 100 { group } else { Uuid::NIL }, &format!("run_{i:05}"), metadata);
    }
    (world, group)
}

#[test]
fn o5_indexed_search_costs_as_much_as_it_finds() {
    let (world, _) = world();
    for (predicate, matches) in [
        ("n = 17", 1),
        ("n > 17 and n <= 20.5", 3),
        ("n in (5, 5.0, 7, 99999)", 2),
        ("n in [100, 140)", 40),
        ("n = 1 or n = 2 or n > 2997", 4),
        ("n < 0", 0),
        ("n > 5 and n < 5", 0),
        ("kind = 3 and n < 100", 10),
    ] {
        let cursor = world.cursor(&find(predicate)).unwrap();
        assert!(cursor.explain().starts_with("index n: "), "{predicate}: {}", cursor.explain());
        let (entries, stats) = all_pages(cursor, 100).unwrap();
        assert_eq!(entries.len() as u64, matches, "{predicate}");
        let touched = if predicate.contains("kind") { 100 } else { matches };
        assert_eq!((stats.index_entries, stats.records, stats.names), (touched, touched, 0), "{predicate}");
        assert_eq!(stats.matches, matches);
        // The choice between the index and all records, or also a worse index, costs no more than the search itself.
        let choice = if predicate.contains("kind") { 3 * 128 } else { 2 * matches };
        assert!(stats.probed <= choice, "{predicate}: {}", stats.probed);
    }
}

#[test]
fn o5_first_match_reads_one_small_batch() {
    let (world, _) = world();
    let mut cursor = world.cursor(&find("kind = 3")).unwrap();
    let results = cursor.next(1, u64::MAX).unwrap();
    assert_eq!((results.entries.len(), results.done), (1, false));
    assert!(cursor.stats().index_entries <= 16, "{:?}", cursor.stats());
    let mut spec = find("n >= 0");
    spec.limit = 5;
    let (entries, stats) = all_pages(world.cursor(&spec).unwrap(), 100).unwrap();
    assert_eq!((entries.len(), stats.index_entries), (5, 16));
}

#[test]
fn o5_long_values_are_told_apart_by_their_records() {
    let (world, _) = world();
    let x = "x".repeat(300);
    let count = |predicate: String| search(&world, &find(&predicate)).len();
    assert_eq!(count(format!("text = '{x}1'")), 1000);
    assert_eq!(count(format!("text > '{x}0' and text < '{x}2'")), 1000);
    assert_eq!(count(format!("text >= '{x}1'")), 2000);
    assert_eq!(count(format!("text < '{x}1' and text ^= '{x}'")), 1000);
    assert_eq!(count(format!("text ~ '{x}[02]'")), 2000);
    assert_eq!(count(format!("text ^= '{x}3'")), 0);
}

#[test]
fn o5_each_way_is_taken_where_it_is_the_shortest() {
    let (world, group) = world();
    let explain = |predicate: &str, group: Option<Uuid>, deep: bool| {
        let mut spec = find(predicate);
        (spec.group, spec.deep) = (group, deep);
        world.cursor(&spec).unwrap().explain()
    };
    let id = uuid(7);
    for (predicate, scope, deep, expected) in [
        ("", None, false, "records: all".to_owned()),
        ("plain = 1", None, false, "records: all; check plain = 1".to_owned()),
        ("not n = 1", None, false, "records: all; check not n = 1".to_owned()),
        ("n = 1 or plain = 2", None, false, "records: all; check n = 1 or plain = 2".to_owned()),
        (&format!("iov.uuid = {id}"), None, false, format!("records: look up one; check iov.uuid = \"{id}\"")),
        ("n = 1 and kind = 1", None, false, "index n: one value (1 key); check n = 1 and kind = 1".to_owned()),
        (
            "n > 1 and kind = 1",
            None,
            false,
            "index kind: one value (128 keys or more); check n > 1 and kind = 1".to_owned(),
        ),
        ("kind in (1, 2)", None, false, "index kind: 2 values (128 keys or more); check kind in (1, 2)".to_owned()),
        (
            "exists(n) and text ^= 'x'",
            None,
            false,
            "index text: one range (128 keys or more); check exists(n) and text ^= \"x\"".to_owned(),
        ),
        ("exists(n)", None, false, "records: all (128 keys or more); check exists(n)".to_owned()),
        ("", Some(group), false, format!("names in group {group}: all")),
        (
            "iov.name = 'run_00005'",
            Some(group),
            false,
            format!("names in group {group}: look up one; check iov.name = \"run_00005\""),
        ),
        (
            "iov.name ~ 'run_0000*'",
            Some(group),
            false,
            format!("names in group {group}: one range; check iov.name ~ \"run_0000*\""),
        ),
        ("kind = 3", Some(group), false, format!("names in group {group}: all (100 keys); check kind = 3")),
        ("n = 3", Some(group), false, format!("index n: one value (1 key); only those in group {group}; check n = 3")),
        ("", Some(group), true, format!("names in group {group} and below it: all")),
        (
            "n = 3",
            Some(group),
            true,
            format!("index n: one value (1 key); only those below group {group}; check n = 3"),
        ),
        ("", Some(Uuid::NIL), true, "records: all; only those below the root".to_owned()),
        ("", Some(Uuid::NIL), false, "names in the root: all".to_owned()),
        (
            &format!("iov.group = {group}"),
            None,
            false,
            format!("names in group {group}: all; check iov.group = \"{group}\""),
        ),
    ] {
        assert_eq!(explain(predicate, scope, deep), expected);
    }
}

#[test]
fn o5_lookups_read_one_key() {
    let (world, group) = world();
    let mut spec = find("iov.name = 'run_00005' and kind = 5");
    spec.group = Some(group);
    let (entries, stats) = all_pages(world.cursor(&spec).unwrap(), 100).unwrap();
    assert_eq!((numbers(&entries), stats.names, stats.records), (vec![5], 1, 1));
    let spec = find(&format!("iov.uuid in ({}, {})", uuid(7), uuid(1 << 40)));
    let (entries, stats) = all_pages(world.cursor(&spec).unwrap(), 100).unwrap();
    assert_eq!((numbers(&entries), stats.records), (vec![7], 1));
    // In the order of creation, as UUIDs of version 7 are.
    let spec = find(&format!("iov.uuid >= {} and iov.uuid < {}", uuid(20), uuid(23)));
    let (entries, stats) = all_pages(world.cursor(&spec).unwrap(), 100).unwrap();
    assert_eq!((numbers(&entries), stats.records), (vec![20, 21, 22], 3));
}

#[test]
fn o5_deep_search_goes_down_without_recursion() {
    let mut world = World::new(&["n"]);
    let top = world.group(1, Uuid::NIL, "g1");
    let mut group = top;
    for depth in 2..limits::GROUP_DEPTH as u64 {
        group = world.group(depth, group, &format!("g{depth}"));
    }
    world.member(5000, group, "leaf", pairs(&[("n", Value::I64(1))]));
    world.member(5001, Uuid::NIL, "outside", pairs(&[("n", Value::I64(1))]));
    let spec = |predicate: &str| {
        let mut spec = find(predicate);
        (spec.group, spec.deep) = (Some(top), true);
        spec
    };
    assert_eq!(search(&world, &spec("")).len(), limits::GROUP_DEPTH - 2 + 1);
    assert_eq!(numbers(&search(&world, &spec("iov.name = 'leaf'"))), [5000]);
    let cursor = world.cursor(&spec("n = 1")).unwrap();
    assert!(cursor.explain().starts_with("index n"));
    assert_eq!(numbers(&all_pages(cursor, 10).unwrap().0), [5000]);
    // Two deeper is too deep for either way.
    for depth in 6000..6003 {
        group = world.group(depth, group, "deeper");
    }
    world.member(5002, group, "leaf", pairs(&[("n", Value::I64(2))]));
    for predicate in ["", "n = 2"] {
        let e = all_pages(world.cursor(&spec(predicate)).unwrap(), 10).unwrap_err();
        assert_eq!(e.kind(), iov_types::Kind::TooBig, "{predicate}");
    }
}

#[test]
fn o5_deep_search_returns_the_whole_tree_and_no_more() {
    let mut world = World::new(&[]);
    let a = world.group(1, Uuid::NIL, "a");
    let b = world.group(2, a, "b");
    let empty = world.group(3, a, "c");
    let other = world.group(4, Uuid::NIL, "other");
    for i in 0..1000 {
        world.member(10 + i, [a, b, other][i as usize % 3], &format!("m{i}"), pairs(&[]));
    }
    let mut twice = Thing::new(uuid(9), EntryKind::Collection);
    twice.names = vec![(a, super::name("x")), (b, super::name("y")), (other, super::name("z"))];
    world.put(twice);
    world.put(Thing::new(uuid(8), EntryKind::Collection)); // without a name
    let below = |group| {
        let mut spec = find("");
        (spec.group, spec.deep, spec.page) = (Some(group), true, 7);
        sorted(&search(&world, &spec))
    };
    let mut expected: Vec<u64> = (0..1000).filter(|i| i % 3 != 2).map(|i| 10 + i).collect();
    expected.extend([2, 3, 9]);
    expected.sort_unstable();
    assert_eq!(below(a), expected);
    assert_eq!(below(empty), Vec::<u64>::new());
    assert_eq!(below(Uuid::NIL).len(), 1000 + 4 + 1, "everything with a name, once");
}
