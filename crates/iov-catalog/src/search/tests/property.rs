//! Whatever path a search takes, it finds what a plain look at every record finds, also while records change.

use std::collections::BTreeSet;

use iov_types::{
    EntryKind, Name, Uuid, Value,
    catalog::{Entry, SearchSpec},
};
use proptest::prelude::*;

use super::{super::source::Row, World, all_pages, find, name, uuid, world::Thing};
use crate::predicate::{Predicate, compare};

const GROUPS: u64 = 4;

/// Group 0 is the root; 1 and 2 are in it, 3 is in 1.
fn group(n: u64) -> Uuid {
    if n == 0 { Uuid::NIL } else { uuid(n) }
}

fn empty_world() -> World {
    let mut world = World::new(&["a", "b"]);
    for (n, parent) in [(1, 0), (2, 0), (3, 1)] {
        world.group(n, group(parent), &format!("group{n}"));
    }
    world
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        4 => (0i64..6).prop_map(Value::I64),
        2 => (0i64..12).prop_map(|n| Value::F64(n as f64 / 2.0)),
        2 => "[xy]{0,2}".prop_map(Value::Str),
        1 => (255usize..258, "[xy]").prop_map(|(n, end)| Value::Str("x".repeat(n) + &end)),
        1 => any::<bool>().prop_map(Value::Bool),
    ]
}

fn thing() -> impl Strategy<Value = Thing> {
    let metadata = proptest::collection::btree_map("[abc]", value(), 0..4);
    (100u64..130, metadata, proptest::collection::btree_set(0..GROUPS, 0..3)).prop_map(|(n, metadata, groups)| {
        let mut thing = Thing::new(uuid(n), EntryKind::Collection);
        metadata.into_iter().for_each(|(k, v)| thing.metadata.set(k, v).unwrap());
        // One or two names in a group, unique because they hold the number.
        for g in groups {
            thing.names.push((group(g), name(format!("m{n}"))));
            if n % 5 == 0 {
                thing.names.push((group(g), name(format!("k{n}"))));
            }
        }
        thing.size = n as i64;
        thing
    })
}

#[derive(Clone, Debug)]
enum Change {
    Put(Thing),
    Remove(u64),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![3 => thing().prop_map(Change::Put), 1 => (100u64..130).prop_map(Change::Remove)]
}

fn apply(world: &mut World, change: Change) {
    match change {
        Change::Put(thing) => world.put(thing),
        Change::Remove(n) => world.remove(uuid(n)),
    }
}

fn condition() -> impl Strategy<Value = String> {
    let literal = prop_oneof![
        (0i64..6).prop_map(|n| n.to_string()),
        (0i64..12).prop_map(|n| format!("{:?}", n as f64 / 2.0)),
        "[xy]{0,2}".prop_map(|s| format!("'{s}'")),
        "[xy]".prop_map(|s| format!("'{}{s}'", "x".repeat(256))),
        Just("true".to_owned()),
    ];
    let op = prop_oneof![Just("="), Just("!="), Just("<"), Just("<="), Just(">"), Just(">=")];
    let key = || prop_oneof![2 => Just("a"), 2 => Just("b"), 1 => Just("c")];
    prop_oneof![
        8 => (key(), op.clone(), literal.clone()).prop_map(|(k, op, v)| format!("{k} {op} {v}")),
        1 => (key(), literal.clone(), literal.clone()).prop_map(|(k, v, w)| format!("{k} in ({v}, {w}, 3)")),
        1 => (key(), 0..6, 0..6).prop_map(|(k, v, w)| format!("{k} in [{v}, {w})")),
        1 => (key(), "[xy]{0,2}").prop_map(|(k, p)| format!("{k} ^= '{p}'")),
        1 => (key(), "[xy]{0,2}").prop_map(|(k, p)| format!("{k} ~ '{p}*'")),
        1 => key().prop_map(|k| format!("exists({k})")),
        2 => (op, 100..130, "[km]").prop_map(|(op, n, c)| format!("iov.name {op} '{c}{n}'")),
        1 => (100..130).prop_map(|n| format!("iov.name ~ '?{n}'")),
        1 => (100u64..130).prop_map(|n| format!("iov.uuid <= {}", uuid(n))),
        1 => (0..GROUPS).prop_map(|g| format!("iov.group = {}", group(g))),
        1 => (100..130).prop_map(|n| format!("iov.size > {n}")),
    ]
}

fn predicate() -> impl Strategy<Value = String> {
    condition().prop_recursive(3, 8, 3, |inner| {
        prop_oneof![
            4 => proptest::collection::vec(inner.clone(), 2..4).prop_map(|p| format!("({})", p.join(" and "))),
            2 => proptest::collection::vec(inner.clone(), 2..4).prop_map(|p| format!("({})", p.join(" or "))),
            1 => inner.prop_map(|p| format!("not {p}")),
        ]
    })
}

fn spec() -> impl Strategy<Value = SearchSpec> {
    let order = prop_oneof![
        3 => Just(None),
        1 => Just(Some("a desc, iov.name")),
        1 => Just(Some("iov.name")),
        1 => Just(Some("iov.group, b")),
    ];
    let limit = prop_oneof![3 => Just(0u64), 1 => 1u64..8];
    let scope = proptest::option::of((0..GROUPS, any::<bool>()));
    (proptest::option::weighted(0.9, predicate()), scope, order, limit, any::<bool>(), 1usize..20).prop_map(
        |(predicate, scope, order, limit, names, page)| {
            let mut spec = find(predicate.as_deref().unwrap_or_default());
            spec.group = scope.map(|(g, _)| group(g));
            spec.deep = scope.is_some_and(|(_, deep)| deep);
            (spec.order, spec.limit, spec.names, spec.page) = (order.map(str::to_owned), limit, names, page);
            spec
        },
    )
}

type Place = Option<(Uuid, Name)>;

fn within(spec: &SearchSpec, place: &Place) -> bool {
    let Some((at, _)) = place else { return spec.group.is_none() && !spec.names };
    match spec.group {
        None => true,
        Some(g) if !spec.deep => *at == g,
        Some(g) => g.is_nil() || *at == g || g == group(1) && *at == group(3),
    }
}

/// Each record that matches, with all names under which it does.
fn expected(world: &World, spec: &SearchSpec) -> Vec<(Uuid, Vec<Place>)> {
    let predicate = spec.predicate.as_ref().map(|p| Predicate::parse(p, &[]).unwrap());
    let places = |thing: &Thing| -> Vec<Place> {
        let all: Vec<Place> =
            if thing.names.is_empty() { vec![None] } else { thing.names.iter().cloned().map(Some).collect() };
        let matches =
            |place: &Place| predicate.as_ref().is_none_or(|p| p.matches(&Row { found: thing, place: place.as_ref() }));
        all.into_iter().filter(|p| within(spec, p) && matches(p)).collect()
    };
    world.now.values().map(|t| (t.uuid, places(t))).filter(|(_, p)| !p.is_empty()).collect()
}

/// What has no name is last.
fn names_in_order(x: &Entry, y: &Entry) -> bool {
    y.name.is_none() || x.name.is_some() && x.name <= y.name
}

fn check(world: &World, spec: &SearchSpec) -> Result<(), TestCaseError> {
    let expected = expected(world, spec);
    let total = if spec.names { expected.iter().map(|(_, p)| p.len()).sum() } else { expected.len() };
    let mut cursor = world.cursor(spec).unwrap();
    let why = cursor.explain();
    let mut counting = spec.clone();
    counting.count = true;
    let count = world.cursor(&counting).unwrap().next(1, u64::MAX).unwrap().count.unwrap();
    let mut entries = Vec::new();
    loop {
        let results = cursor.next(spec.page, 7).unwrap();
        entries.extend(results.entries);
        if results.done {
            break;
        }
    }
    let limited = if spec.limit == 0 { total } else { total.min(spec.limit as usize) };
    prop_assert_eq!(count as usize, limited, "count: {}", why);
    prop_assert_eq!(entries.len(), limited, "{}", why);
    let distinct: BTreeSet<_> =
        entries.iter().map(|e| (e.uuid, spec.names.then(|| (e.group, e.name.clone())))).collect();
    prop_assert_eq!(distinct.len(), entries.len(), "each once: {}", why);
    for e in &entries {
        let place: Place = e.name.clone().map(|n| (e.group, n));
        let known = expected.iter().any(|(uuid, places)| *uuid == e.uuid && places.contains(&place));
        prop_assert!(known, "{:?} {:?}: {}", e.uuid, place, why);
    }
    let thing = |uuid: Uuid| &world.now[&uuid];
    for pair in entries.windows(2) {
        let (x, y) = (&pair[0], &pair[1]);
        match spec.order.as_deref() {
            Some("a desc, iov.name") => {
                let (a, b) = (thing(x.uuid).metadata.get("a"), thing(y.uuid).metadata.get("a"));
                prop_assert!(a.is_some() || b.is_none(), "missing last: {}", why);
                if let (Some(a), Some(b)) = (a, b)
                    && let Some(order) = compare(a, b)
                {
                    prop_assert!(order.is_gt() || order.is_eq() && names_in_order(x, y), "{}", why);
                }
            }
            Some("iov.name") => prop_assert!(names_in_order(x, y), "{}", why),
            Some(_) => prop_assert!(y.name.is_none() || x.name.is_some() && x.group <= y.group, "{}", why),
            None if spec.names && spec.group.is_some() && !spec.deep => prop_assert!(x.name < y.name, "{}", why),
            None => {}
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn o5_every_path_finds_the_same(
        first in proptest::collection::vec(change(), 0..60),
        spec in spec(),
    ) {
        let mut world = empty_world();
        first.into_iter().for_each(|c| apply(&mut world, c));
        check(&world, &spec)?;
    }

    #[test]
    fn o5_what_matched_throughout_comes_exactly_once(
        first in proptest::collection::vec(change(), 10..60),
        during in proptest::collection::vec(change(), 20..60),
        mut spec in spec(),
    ) {
        spec.limit = 0;
        let mut world = empty_world();
        first.into_iter().for_each(|c| apply(&mut world, c));
        let before = expected(&world, &spec);
        let mut throughout: BTreeSet<Uuid> = before.iter().map(|(uuid, _)| *uuid).collect();
        let mut cursor = world.cursor(&spec).unwrap();
        let mut during = during.into_iter();
        let mut found = Vec::new();
        loop {
            let results = cursor.next(spec.page.min(3), 5).unwrap();
            found.extend(results.entries.into_iter().map(|e| (e.uuid, spec.names.then_some((e.group, e.name)))));
            if results.done {
                break;
            }
            for change in during.by_ref().take(2) {
                apply(&mut world, change);
                let now: BTreeSet<Uuid> = expected(&world, &spec).into_iter().map(|(uuid, _)| uuid).collect();
                throughout.retain(|uuid| now.contains(uuid));
            }
        }
        let distinct: BTreeSet<_> = found.iter().collect();
        prop_assert_eq!(distinct.len(), found.len(), "nothing twice");
        for uuid in throughout {
            prop_assert!(found.iter().any(|(u, _)| *u == uuid), "{:?} matched throughout", uuid);
        }
        // And a search that starts now sees all changes.
        let after: BTreeSet<Uuid> = all_pages(world.cursor(&spec).unwrap(), 5).unwrap().0.iter().map(|e| e.uuid).collect();
        prop_assert_eq!(after, expected(&world, &spec).into_iter().map(|(uuid, _)| uuid).collect::<BTreeSet<_>>());
    }
}
