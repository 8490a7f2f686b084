use std::{collections::BTreeSet, sync::Arc};

use iov_semantics::{resolve, stores, text};
use iov_store::{Backend, Heap, MemoryStore, seam};
use iov_types::{Controls, Effective, Kind, Uuid};

use super::*;

fn target(number: u32, storage: &str, capability: Capability, (capacity, free): (u64, u64)) -> Target {
    Target {
        number,
        uuid: Uuid::NIL,
        capability,
        storage: storage.into(),
        host: "node7".into(),
        domain: "rack1".into(),
        addresses: Vec::new(),
        capacity,
        free,
        reach: Reach::Online,
        health: Health::Good,
        local: String::new(),
    }
}

fn files(number: u32) -> Target {
    target(number, "files", stores::file(1), (1 << 40, 1 << 39))
}

fn memory(number: u32) -> Target {
    target(number, "shmem", stores::shmem(1), (1 << 30, 1 << 30))
}

fn map(store: &MemoryStore, targets: Vec<Target>) -> Map {
    let first: Arc<dyn Backend> = Arc::new(Heap::new(targets[0].capability.clone()));
    let spread = Spread::new(first.clone(), anywhere(&targets).unwrap());
    for target in &targets {
        spread.add_target(target.number, first.clone(), target.capability.clone());
    }
    Map::open(store, Fleet { spread, targets }).unwrap()
}

fn effective(map: &Map, asked: &str) -> Effective {
    let mut controls = Controls::default();
    text::parse(&mut controls, asked).unwrap();
    let all: Vec<Target> = map.targets.values().cloned().collect();
    resolve::create(&Controls::default(), &controls, &anywhere(&all).unwrap()).unwrap()
}

fn choose(map: &mut Map, store: &MemoryStore, asked: &str, layout: Layout) -> Result<Layout> {
    let effective = effective(map, asked);
    map.choose(store, &Wish { uuid: seam::new_uuid(), layout: &layout, effective: &effective, asked: true })
}

fn on(map: &Map, layout: &Layout) -> Vec<u32> {
    if layout.place.is_first() { vec![0] } else { map.patterns[&layout.place.pattern()].clone() }
}

fn over(targets: u32) -> Layout {
    Layout { targets, ..Layout::default() }
}

#[test]
fn the_level_and_the_kind_of_medium_choose() {
    let store = MemoryStore::new();
    let mut map = map(&store, vec![files(0), memory(1), memory(2), files(3)]);
    for _ in 0..30 {
        let fast = choose(&mut map, &store, "", Layout::default()).unwrap();
        assert!([vec![1], vec![2]].contains(&on(&map, &fast)));
        let safe = choose(&mut map, &store, "persistence=durable@close", over(2)).unwrap();
        let mut targets = on(&map, &safe);
        targets.sort_unstable();
        assert_eq!((targets, safe.targets, safe.chunk_size), (vec![0, 3], 2, 1 << 20));
    }
    assert!(map.patterns.len() <= 4, "few patterns serve many collections: {:?}", map.patterns);
}

#[test]
fn h2_requests_and_units_of_one_size_never_straddle_two_targets() {
    let store = MemoryStore::new();
    let mut map = map(&store, vec![files(0), files(1)]);
    let chunk = |map: &mut Map, asked: &str, size: u64| {
        choose(map, &store, asked, Layout { chunk_size: size, ..over(2) }).unwrap().chunk_size
    };
    assert_eq!(chunk(&mut map, "request_size=47008..47008", 0) % 47_008, 0);
    assert_eq!(chunk(&mut map, "request_size=47008..47008", 50_000), 2 * 47_008);
    assert_eq!(chunk(&mut map, "atomicity=unit(4K)", 5000), 8192);
    let both = chunk(&mut map, "atomicity=unit(4K),request_size=47008..47008", 0);
    assert_eq!((both % 4096, both % 47_008), (0, 0));
    assert_eq!(chunk(&mut map, "", 100), 4096, "no chunk is smaller");
    let e = choose(&mut map, &store, "", Layout { chunk_size: 1 << 50, ..over(2) }).unwrap_err();
    assert_eq!(e.kind(), Kind::Invalid);
}

#[test]
fn where_room_is_short_others_come_first() {
    let store = MemoryStore::new();
    let full = Target { free: 1 << 20, ..memory(0) };
    let mut map = map(&store, vec![full, memory(1), files(2)]);
    for _ in 0..30 {
        let layout = choose(&mut map, &store, "", Layout::default()).unwrap();
        assert_eq!(on(&map, &layout), [1]);
    }
    map.note(1, Reach::Online, Some((1 << 30, 1 << 20)));
    let layout = choose(&mut map, &store, "", Layout::default()).unwrap();
    assert_eq!(on(&map, &layout), [2], "memory is short");
    map.note(2, Reach::Offline, None);
    let layout = choose(&mut map, &store, "", Layout::default()).unwrap();
    assert!([vec![0], vec![1]].contains(&on(&map, &layout)), "short is better than none");
    map.note(0, Reach::Offline, None);
    map.note(1, Reach::ProbablyOffline, None);
    assert_eq!(choose(&mut map, &store, "", Layout::default()).unwrap_err().kind(), Kind::Unavailable);
}

#[test]
fn a_large_disk_is_used_up_to_its_last_part() {
    let store = MemoryStore::new();
    // Some per cent of a memory are little, and the same of a disk are much.
    let full = Target { free: 1 << 20, capacity: 16 << 20, ..memory(0) };
    let disk = Target { free: 20 << 30, capacity: 1 << 40, ..files(1) };
    let mut map = map(&store, vec![full, disk]);
    let on_what = |map: &mut Map| {
        let layout = choose(map, &store, "", Layout::default()).unwrap();
        on(map, &layout)
    };
    assert_eq!(on_what(&mut map), [1]);
    map.note(1, Reach::Online, Some((1 << 40, 10 << 30)));
    assert_eq!(on_what(&mut map), [0], "both are short, and memory is faster");
    map.note(1, Reach::Online, Some((1 << 40, 1 << 30)));
    map.note(0, Reach::Online, Some((16 << 20, 1 << 10)));
    assert_eq!(on_what(&mut map), [0], "both are nearly full");
}

#[test]
fn much_room_is_taken_more_often_and_turns_are_taken_in_turn() {
    let store = MemoryStore::new();
    let mut map = map(&store, vec![Target { free: 1 << 38, ..files(0) }, Target { free: 7 << 38, ..files(1) }]);
    let mut count = [0; 2];
    for _ in 0..2000 {
        let layout = choose(&mut map, &store, "", Layout::default()).unwrap();
        count[on(&map, &layout)[0] as usize] += 1;
    }
    assert!((150..400).contains(&count[0]), "an eighth of 2000: {count:?}");
    let turns = Layout { policy: Some("round-robin".into()), ..Layout::default() };
    let order: Vec<u32> = (0..6)
        .map(|_| {
            let layout = choose(&mut map, &store, "", turns.clone()).unwrap();
            on(&map, &layout)[0]
        })
        .collect();
    assert!(order.windows(2).all(|pair| pair[0] != pair[1]), "{order:?}");
}

#[test]
fn patterns_and_targets_are_those_of_before() {
    let store = MemoryStore::new();
    let mut first = map(&store, vec![files(0), files(1), files(2)]);
    let named = |list: &str| Layout { policy: Some(format!("targets:{list}")), ..over(2) };
    let lists = ["0,1", "2,0", "1,2", "0,1"];
    let places: Vec<Place> =
        lists.iter().map(|list| choose(&mut first, &store, "", named(list)).unwrap().place).collect();
    assert_eq!(places[0], places[3]);
    assert_eq!(places.iter().collect::<BTreeSet<_>>().len(), 3);
    let uuids: Vec<Uuid> = first.targets.values().map(|target| target.uuid).collect();
    assert!(uuids.iter().all(|uuid| !uuid.is_nil()));
    drop(first);
    // One of them is not there this time.
    let second = map(&store, vec![files(0), files(1)]);
    assert_eq!(second.targets.values().map(|target| target.uuid).collect::<Vec<_>>(), uuids);
    assert_eq!(second.targets[&2].reach, Reach::Offline);
    for (list, place) in lists.iter().zip(places) {
        let targets: Vec<u32> = list.split(',').map(|n| n.parse().unwrap()).collect();
        assert_eq!(second.patterns[&place.pattern()], targets);
        second.check(place).unwrap();
        assert!(second.has(place, Place::part(Uuid([1; 16]), 1), targets[1]));
        assert!(!second.has(place, Place::part(Uuid([1; 16]), 1), targets[0]));
        assert!(!second.has(place, Place::FIRST.whole(Uuid([1; 16])), 0));
    }
    assert_eq!(second.check(Place::new(99, 4096).unwrap()).unwrap_err().kind(), Kind::Invalid);
    let other = Target { uuid: Uuid([9; 16]), ..files(1) };
    let mut third = map(&store, vec![files(0)]);
    assert_eq!(third.put(&store, other).unwrap_err().kind(), Kind::Conflict);
}

#[test]
fn a_default_gives_what_can_be_had_and_a_wish_is_refused() {
    let store = MemoryStore::new();
    let mut map = map(&store, vec![files(0), files(1)]);
    let wish = |map: &mut Map, asked: bool, controls: &str, layout: Layout| {
        let effective = effective(map, controls);
        map.choose(&store, &Wish { uuid: seam::new_uuid(), layout: &layout, effective: &effective, asked })
    };
    assert_eq!(wish(&mut map, true, "", over(3)).unwrap_err().clause(), Some(iov_types::Clause::O2));
    assert_eq!(wish(&mut map, false, "", over(3)).unwrap().targets, 2);
    assert_eq!(wish(&mut map, true, "mutability=append", over(2)).unwrap_err().clause(), Some(iov_types::Clause::M4));
    let log = wish(&mut map, false, "mutability=append", over(2)).unwrap();
    assert_eq!(on(&map, &log).len(), 1);
}

#[test]
fn media_that_do_not_go_together_are_not_mixed() {
    let store = MemoryStore::new();
    let heap = |number| target(number, "heap", Capability { medium: Capability::HEAP, ..stores::shmem(1) }, (0, 0));
    let mut map = map(&store, vec![files(0), heap(1), files(2), memory(3)]);
    for _ in 0..30 {
        let three = choose(&mut map, &store, "", over(3)).unwrap();
        let mut targets = on(&map, &three);
        targets.sort_unstable();
        assert_eq!(targets, [0, 2, 3]);
    }
    let mixed = Layout { policy: Some("targets:1,3".into()), ..over(2) };
    assert_eq!(choose(&mut map, &store, "", mixed).unwrap_err().clause(), Some(iov_types::Clause::O2));
    assert_eq!(choose(&mut map, &store, "", over(4)).unwrap_err().clause(), Some(iov_types::Clause::O2));
}

#[test]
fn o9_the_same_creation_finds_the_same_targets() {
    let store = MemoryStore::new();
    let mut map = map(&store, vec![files(0), files(1), files(2), files(3)]);
    let effective = effective(&map, "");
    for _ in 0..50 {
        let layout = over(2);
        let wish = Wish { uuid: seam::new_uuid(), layout: &layout, effective: &effective, asked: true };
        let first = map.choose(&store, &wish).unwrap();
        assert_eq!(map.choose(&store, &wish).unwrap().place, first.place);
    }
}

#[test]
fn a_default_names_only_what_the_store_has() {
    let store = MemoryStore::new();
    let map = map(&store, vec![memory(0), files(1)]);
    let with = |storage: Option<&str>, policy: Option<&str>| Layout {
        backend: storage.map(str::to_owned),
        policy: policy.map(str::to_owned),
        ..over(9)
    };
    let check = |storage, policy| map.check_default(&with(storage, policy)).map_err(|e| e.kind());
    assert_eq!(check(Some("files"), Some("round-robin")), Ok(()));
    assert_eq!(check(None, Some("targets:1,0")), Ok(()));
    assert_eq!(check(Some("disk"), None), Err(Kind::Unsupported));
    assert_eq!(check(None, Some("targets:9")), Err(Kind::NotFound));
    assert_eq!(check(Some("shmem"), Some("targets:1")), Err(Kind::Unsupported));
    for wrong in ["bogus", "targets:", "targets:a"] {
        assert_eq!(check(None, Some(wrong)), Err(Kind::Unsupported), "{wrong}");
    }
}
