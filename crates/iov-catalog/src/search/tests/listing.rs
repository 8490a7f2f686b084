//! Listings: one result per name, in byte order.

use iov_types::{EntryKind, Uuid, Value};

use super::{World, all_pages, find, name, names, pairs, search, uuid, world::Thing};

fn list(group: Uuid, predicate: &str) -> iov_types::catalog::SearchSpec {
    let mut spec = find(predicate);
    (spec.group, spec.names, spec.page) = (Some(group), true, 2);
    spec
}

fn world() -> (World, Uuid) {
    let mut world = World::new(&["n"]);
    let group = world.group(1, Uuid::NIL, "g");
    for (i, member) in ["b", "a", "c", "aa"].iter().enumerate() {
        world.member(10 + i as u64, group, member, pairs(&[("n", Value::I64(10 - i as i64))]));
    }
    let mut twice = Thing::new(uuid(20), EntryKind::Collection);
    twice.names = vec![(group, name("z")), (group, name(b"\xff")), (Uuid::NIL, name("r"))];
    twice.metadata = pairs(&[("n", Value::I64(5))]);
    world.put(twice);
    world.group(2, group, "sub");
    (world, group)
}

#[test]
fn o3_listing_has_each_name_in_byte_order() {
    let (world, group) = world();
    let (entries, stats) = all_pages(world.cursor(&list(group, "")).unwrap(), 2).unwrap();
    assert_eq!(names(&entries), ["a", "aa", "b", "c", "sub", "z", "\u{fffd}"]);
    assert_eq!(entries[4].kind, EntryKind::Group);
    assert_eq!(entries[5].uuid, entries[6].uuid);
    assert!(entries.iter().all(|e| e.group == group && e.metadata.is_none()));
    assert_eq!((stats.records, stats.names), (0, 7), "names alone are enough");
    assert_eq!(names(&search(&world, &list(Uuid::NIL, ""))), ["g", "r"]);
}

#[test]
fn m2_listing_leaves_out_what_is_hidden() {
    let (mut world, group) = world();
    let mut thing = Thing::new(uuid(30), EntryKind::Collection);
    (thing.names, thing.hidden) = (vec![(group, name("bb"))], true);
    world.put(thing);
    world.hides_names = true;
    let (entries, stats) = all_pages(world.cursor(&list(group, "")).unwrap(), 2).unwrap();
    assert_eq!(names(&entries), ["a", "aa", "b", "c", "sub", "z", "\u{fffd}"]);
    assert_eq!((stats.records, stats.names), (8, 8));
}

#[test]
fn o3_listing_with_a_predicate_sees_one_name_at_a_time() {
    let (world, group) = world();
    assert_eq!(names(&search(&world, &list(group, "iov.name ^= 'a'"))), ["a", "aa"]);
    assert_eq!(names(&search(&world, &list(group, "iov.name = 'z'"))), ["z"]);
    assert_eq!(names(&search(&world, &list(group, "not iov.name = 'z' and n = 5"))), ["\u{fffd}"]);
    assert_eq!(names(&search(&world, &list(group, "iov.kind = 'group'"))), ["sub"]);
}

#[test]
fn o3_listing_stays_in_byte_order_along_an_index() {
    let (mut world, group) = world();
    for i in 0..200 {
        world.member(1000 + i, group, &format!("y{i:03}"), pairs(&[]));
    }
    let cursor = world.cursor(&list(group, "n >= 5")).unwrap();
    assert!(cursor.explain().starts_with("index n: one range (5 keys)"), "{}", cursor.explain());
    assert_eq!(names(&all_pages(cursor, 2).unwrap().0), ["a", "aa", "b", "c", "z", "\u{fffd}"]);
    let mut first = list(group, "n >= 5");
    first.limit = 3;
    assert_eq!(names(&search(&world, &first)), ["a", "aa", "b"]);
}

#[test]
fn o5_search_of_a_group_returns_a_record_once() {
    let (world, group) = world();
    let mut spec = find("n = 5");
    spec.group = Some(group);
    let entries = search(&world, &spec);
    assert_eq!(names(&entries), ["z"]);
    // The name that matches is the one that is told.
    let mut spec = find("iov.name = x'ff'");
    spec.group = Some(group);
    assert_eq!(search(&world, &spec)[0].name, Some(name(b"\xff")));
    let entries = search(&world, &find("iov.name = 'r' and n = 5"));
    assert_eq!((names(&entries), entries[0].group), (vec!["r".to_owned()], Uuid::NIL));
    // Conditions on group and name are about the same name.
    assert!(search(&world, &find(&format!("iov.group = {group} and iov.name = 'r'"))).is_empty());
}

#[test]
fn o5_names_of_a_whole_workspace() {
    let (mut world, _) = world();
    world.put(Thing::new(uuid(50), EntryKind::Collection));
    let mut spec = find("n = 5");
    spec.names = true;
    assert_eq!(search(&world, &spec).len(), 3);
    spec.predicate = None;
    assert_eq!(search(&world, &spec).len(), 9, "one without a name has no entry");
    spec.names = false;
    assert_eq!(search(&world, &spec).len(), 8);
}
