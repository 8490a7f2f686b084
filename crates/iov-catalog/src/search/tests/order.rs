//! Sorted results.

use iov_types::{Clause, Kind, Uuid, Value};

use super::{World, find, names, numbers, pairs, search, str};

fn ordered(world: &World, order: &str, limit: u64) -> Vec<u64> {
    let mut spec = find("");
    (spec.order, spec.limit, spec.page) = (Some(order.to_owned()), limit, 3);
    numbers(&search(world, &spec))
}

#[test]
fn o5_order_of_values_directions_and_ties() {
    let mut world = World::new(&[]);
    for (n, name, t) in [
        (1, "e", Some(Value::I64(3))),
        (2, "d", Some(Value::F64(2.5))),
        (3, "c", None),
        (4, "b", Some(Value::I64(3))),
        (5, "a", Some(str("x"))),
        (6, "f", Some(Value::F64(f64::NAN))),
        (7, "g", Some(Value::Bool(true))),
        (8, "h", Some(str("xx"))),
    ] {
        let metadata = t.map_or_else(iov_types::Metadata::new, |t| pairs(&[("t", t)]));
        world.collection(n, name, metadata);
    }
    assert_eq!(ordered(&world, "t", 0), [7, 2, 1, 4, 6, 5, 8, 3]);
    assert_eq!(ordered(&world, "t desc", 0), [8, 5, 6, 1, 4, 2, 7, 3], "what has no value is last either way");
    assert_eq!(ordered(&world, "t asc, iov.name", 0), [7, 2, 4, 1, 6, 5, 8, 3]);
    assert_eq!(ordered(&world, "t desc,iov.name DESC", 4), [8, 5, 6, 1]);
    assert_eq!(ordered(&world, "iov.name", 3), [5, 4, 3]);
    assert_eq!(ordered(&world, "iov.uuid desc", 2), [8, 7]);
    assert_eq!(ordered(&world, "`t`", 1), [7]);
}

#[test]
fn o5_order_is_of_whole_values() {
    let mut world = World::new(&["t"]);
    for n in 0..10u64 {
        world.collection(n, &format!("n{n}"), pairs(&[("t", str(&format!("{}{}", "x".repeat(400), (n * 7) % 10)))]));
    }
    assert_eq!(ordered(&world, "t", 0), [0, 3, 6, 9, 2, 5, 8, 1, 4, 7]);
}

#[test]
fn o5_names_in_a_group_need_no_sorting() {
    let mut world = World::new(&[]);
    for n in 0..10 {
        world.collection(n, &format!("n{}", 9 - n), pairs(&[]));
    }
    let mut spec = find("");
    (spec.group, spec.order) = (Some(Uuid::NIL), Some("iov.name, x".to_owned()));
    let mut cursor = world.cursor(&spec).unwrap();
    assert!(cursor.explain().ends_with("already sorted by iov.name, x"), "{}", cursor.explain());
    assert_eq!(names(&cursor.next(2, 2).unwrap().entries), ["n0", "n1"]);
    spec.order = Some("iov.name desc".to_owned());
    assert!(world.cursor(&spec).unwrap().explain().ends_with("; sort by iov.name desc"));
    assert_eq!(names(&search(&world, &spec))[..2], ["n9", "n8"]);
}

#[test]
fn o5_mistakes_in_an_order_have_a_place() {
    let world = World::new(&[]);
    for (order, expected) in [
        ("", "the order of a search: column 1: expected a key, as in \"temperature desc, iov.name\", found the end"),
        ("a,", "the order of a search: column 3: expected a key, as in \"temperature desc, iov.name\", found the end"),
        ("a up", "the order of a search: column 3: expected 'asc', 'desc', ',' or the end, found the word 'up'"),
        ("a desc asc", "the order of a search: column 8: expected 'asc', 'desc', ',' or the end, found the word 'asc'"),
        ("'a'", "the order of a search: column 1: expected a key, as in \"temperature desc, iov.name\", found \"a\""),
        ("a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q", "the order of a search: column 33: more than 16 keys to sort by"),
    ] {
        let mut spec = find("");
        spec.order = Some(order.to_owned());
        let e = world.cursor(&spec).map(|_| ()).unwrap_err();
        assert_eq!((e.kind(), e.clause()), (Kind::Invalid, Some(Clause::O5)));
        assert_eq!(e.detail().lines().next().unwrap(), expected);
    }
    let mut spec = find("");
    spec.order = Some("a, iov.nme".to_owned());
    let e = world.cursor(&spec).map(|_| ()).unwrap_err();
    assert!(e.detail().contains("column 4: there is no system key \"iov.nme\""), "{e}");
}

#[test]
fn o5_too_much_to_sort_is_refused_with_advice() {
    use super::super::collect::{Collected, Match};
    let big = |n: u8| Match { sort_key: vec![n; 300 << 10], uuid: super::uuid(u64::from(n)), place: None };
    let mut collected = Collected::bounded(1 << 20);
    for n in [3, 1, 2, 9] {
        collected.push(big(n), 2).unwrap(); // a limit keeps it small
    }
    assert_eq!(collected.into_reversed().iter().map(|m| m.sort_key[0]).collect::<Vec<_>>(), [2, 1]);
    let mut collected = Collected::bounded(1 << 20);
    let e = (0..4).find_map(|n| collected.push(big(n), u64::MAX).err()).unwrap();
    assert_eq!((e.kind(), e.clause()), (Kind::TooBig, Some(Clause::O5)));
    assert!(e.detail().contains("give a limit"), "{e}");
}
