use std::{collections::HashMap, sync::Mutex};

use iov_types::{Demand, Error, Evidence, Kind, ObjectOp, ObjectVerb, Outcome, Persistence, limits::MAX_UNIT};

use super::*;
use crate::{Bytes, Heap, Memory, conformance, run_all, run_one};

mod faults;

/// A heap with stages small enough to be filled.
fn heap() -> Arc<dyn Backend> {
    Arc::new(Heap::new(Capability {
        medium: Capability::HEAP,
        durability: Persistence::Volatile,
        max_unit: MAX_UNIT,
        staging: true,
        stage_bytes: 4 << 20,
        once: true,
        bursty: true,
        targets: 1,
        incarnation: 1,
    }))
}

fn spread(width: u32) -> Spread {
    let first = heap();
    let spread = Spread::new(first.clone(), first.capability().clone());
    (1..=width).for_each(|number| spread.add_target(number, heap(), first.capability().clone()));
    spread.add_pattern(1, (1..=width).rev().collect());
    spread
}

/// Publishes at all objects of a place, as a catalog would.
struct AtAll(Spread);

impl Publisher for AtAll {
    fn publish(&self, cx: &OpCx, stage: Uuid, staged: Staged, done: OnPublished) {
        let object = staged.place.whole(staged.collection);
        let ops = [ObjectVerb::Freeze { stage }, ObjectVerb::Publish { stage }]
            .map(|verb| (ObjectOp { object, verb, demand: Demand::default() }, Bytes::None));
        for op in ops {
            if let Some((Err(e), _)) = run_all(&self.0, cx, vec![op]).pop() {
                return done(Err(e));
            }
        }
        done(Ok(()));
    }
}

/// Every object of the target lies in a place.
struct Placed {
    spread: Spread,
    place: Place,
}

impl Placed {
    fn make(width: u32, chunk: u64) -> Arc<dyn Backend> {
        let spread = spread(width);
        spread.publish_by(Box::new(AtAll(spread.clone())));
        Arc::new(Placed { spread, place: Place::new(1, chunk).expect("a place") })
    }

    /// Objects of one collection become collections.
    fn whole(&self, object: ObjectId) -> ObjectId {
        let mut collection = object.collection;
        collection.0[0] ^= object.slot as u8;
        self.place.whole(collection)
    }
}

impl Backend for Placed {
    fn capability(&self) -> &Capability {
        self.spread.capability()
    }

    fn submit(&self, cx: &OpCx, ops: Vec<Submitted>, sink: Arc<dyn Sink>) {
        let ops = ops.into_iter().map(|(mut op, memory)| {
            op.object = self.whole(op.object);
            op.demand.domain = Some(Uuid([7; 16]));
            if let ObjectVerb::Copy { source, .. } = &mut op.verb {
                *source = self.whole(*source);
            }
            (op, memory)
        });
        self.spread.submit(cx, ops.collect(), sink);
    }
}

/// Checks that ask for more than several targets give.
const OF_ONE_TARGET: [&str; 15] = [
    // Listings are asked of each target.
    "o2_an_object_that_nobody_wrote_is_empty",
    "o2_create_makes_an_empty_object_once",
    "o2_list_pages_are_complete_and_in_order",
    "o10_removed_bytes_do_not_come_back",
    // What is removed is removed from one after the other: servers tell whoever finds nothing of it.
    "o10_removing_races_with_use",
    // The length behind a change is that of the objects that it was about: the collection is at least as long.
    "o6_punched_bytes_are_gone",
    "o6_zero_bytes_change_nothing",
    // What was under way when a fence came may be at one target and not at another; nothing comes behind it.
    "x1_nothing_of_a_fenced_writer_appears",
    "t11_a_write_is_before_the_seal_or_fails",
    // Chunks are a multiple of the units.
    "m1_too_large_a_unit_is_refused",
    // Fewer may be told than were asked for: more are known of one target than of others.
    "o6_extents_tell_data_from_holes",
    // The bound is each target's.
    "b4_stages_are_bounded",
    "b4_the_bound_is_of_the_stage_over_all_objects",
    // It freezes all objects first, which is the catalog's to do.
    "m1_a_publication_shows_in_one_step",
    "b1_one_failure_does_not_hide_another", // with appends
];

/// Runs the suite but for some checks, and those that turn out to append, whose offsets only one target can give.
fn suite(width: u32, chunk: u64, left_out: &[&str]) -> usize {
    let (mut failed, mut passed) = (Vec::new(), 0);
    for check in conformance::backend_checks().iter().filter(|check| !left_out.contains(&check.name)) {
        let run = || conformance::backend_check(check.name, &|| Placed::make(width, chunk));
        match std::panic::catch_unwind(run) {
            Ok(()) => passed += 1,
            Err(why) if why.downcast_ref::<String>().is_some_and(|why| why.contains("spread over several")) => {}
            Err(_) => failed.push(check.name),
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
    passed
}

#[test]
fn one_target_of_several_passes_the_suite() {
    let passed = suite(1, 1 << 20, &OF_ONE_TARGET[1..4]);
    assert_eq!(passed, conformance::backend_checks().len() - 3);
}

#[test]
fn three_targets_pass_the_suite_but_for_appends() {
    // So that units of 4 KiB and of 47,008 bytes fit.
    let passed = suite(3, 4096 * 1469, &OF_ONE_TARGET);
    assert!(passed > 20, "{passed}");
}

#[test]
fn small_chunks_pass_the_suite_but_for_units() {
    let units = conformance::backend_checks().into_iter().map(|check| check.name).filter(|name| name.contains("unit"));
    let left_out: Vec<&str> = OF_ONE_TARGET.into_iter().chain(units).collect();
    // Less than any piece, and no divisor of one.
    let passed = suite(3, 61, &left_out);
    assert!(passed > 20, "{passed}");
}

fn cx() -> OpCx {
    OpCx::own(10_000_000_000)
}

fn op(object: ObjectId, verb: ObjectVerb) -> ObjectOp {
    ObjectOp { object, verb, demand: Demand::default() }
}

fn write(to: &dyn Backend, object: ObjectId, offset: u64, bytes: &[u8]) -> Result<Evidence> {
    run_all(to, &cx(), vec![(op(object, ObjectVerb::Write { offset }), Bytes::From(bytes))]).pop().expect("an answer").0
}

fn read(from: &dyn Backend, object: ObjectId, offset: u64, len: usize) -> Vec<u8> {
    let (found, bytes) = run_all(from, &cx(), vec![(op(object, ObjectVerb::Read { offset }), Bytes::Into(len))])
        .pop()
        .expect("an answer");
    bytes[..found.expect("a read").bytes as usize].to_vec()
}

fn stat(of: &dyn Backend, object: ObjectId) -> Evidence {
    run_one(of, &cx(), op(object, ObjectVerb::Stat), Memory::default()).expect("a stat")
}

const ONE: Uuid = Uuid([1; 16]);

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
}

#[test]
fn bytes_lie_where_the_pattern_says() {
    let spread = spread(3);
    let whole = Place::new(1, 10).unwrap().whole(ONE);
    write(&spread, whole, 0, &bytes(65)).unwrap();
    // The pattern is 3, 2, 1.
    for (index, (number, len)) in [(3, 25), (2, 20), (1, 20)].into_iter().enumerate() {
        let target = spread.target(number).unwrap();
        assert_eq!(stat(&*target, Place::part(ONE, index)).size, len, "target {number}");
        assert_eq!(read(&*target, Place::part(ONE, index), 0, 10), bytes(65)[index * 10..][..10]);
    }
    assert_eq!(stat(&*spread.target(0).unwrap(), whole).size, 0, "the first target is none of them");
    assert_eq!(read(&spread, whole, 3, 100), bytes(65)[3..]);
}

#[test]
fn o6_holes_are_zeros_and_the_end_is_short() {
    let spread = spread(4);
    let whole = Place::new(1, 10).unwrap().whole(ONE);
    write(&spread, whole, 25, b"abc").unwrap();
    let mut expected = vec![0; 28];
    expected[25..].copy_from_slice(b"abc");
    assert_eq!(read(&spread, whole, 0, 100), expected);
    // None of what lies here has been written, and another target knows that it goes on.
    assert_eq!(read(&spread, whole, 3, 4), [0; 4]);
    assert_eq!(read(&spread, whole, 28, 4), [0; 0]);
    assert_eq!(stat(&spread, whole).size, 28);
}

#[test]
fn o9_a_read_does_not_see_what_comes_behind_it() {
    let spread = spread(4);
    let whole = Place::new(1, 10).unwrap().whole(ONE);
    let ops = vec![
        (op(whole, ObjectVerb::Read { offset: 0 }), Bytes::Into(5)),
        (op(whole, ObjectVerb::Write { offset: 30 }), Bytes::From(b"behind")),
        (op(whole, ObjectVerb::Read { offset: 0 }), Bytes::Into(5)),
    ];
    let found: Vec<u64> = run_all(&spread, &cx(), ops).into_iter().map(|(e, _)| e.unwrap().bytes).collect();
    assert_eq!(found, [0, 6, 5]);
}

#[test]
fn a_copy_goes_between_targets_and_places() {
    let spread = spread(3);
    spread.add_pattern(2, vec![2]);
    let names = [
        Place::FIRST.whole(Uuid([1; 16])),
        Place::new(1, 1000).unwrap().whole(Uuid([2; 16])),
        Place::new(2, 4096).unwrap().whole(Uuid([3; 16])),
        Place::new(1, 77).unwrap().whole(Uuid([4; 16])),
    ];
    let all = bytes(9_000_000);
    write(&spread, names[0], 0, &all).unwrap();
    for pair in names.windows(2) {
        let verb = ObjectVerb::Copy { source: pair[0], source_offset: 1, offset: 1, len: u64::MAX >> 2 };
        let copied = run_one(&spread, &cx(), op(pair[1], verb), Memory::default()).unwrap();
        assert_eq!((copied.bytes, copied.offset), (all.len() as u64 - 1, 1));
        assert_eq!(read(&spread, pair[1], 1, all.len()), all[1..], "{pair:?}");
    }
}

/// A target at which an object is published anew, so long, before a read.
struct Republished {
    inner: Arc<dyn Backend>,
    len: usize,
    at: u32,
    reads: Mutex<u32>,
}

impl Backend for Republished {
    fn capability(&self) -> &Capability {
        self.inner.capability()
    }

    fn submit(&self, cx: &OpCx, ops: Vec<Submitted>, sink: Arc<dyn Sink>) {
        let reads = |verb: &ObjectVerb| matches!(verb, ObjectVerb::Read { .. });
        if let Some((read, _)) = ops.iter().find(|(op, _)| reads(&op.verb)) {
            let mut seen = self.reads.lock().unwrap();
            *seen += 1;
            if *seen == self.at {
                let stage = Uuid([9; 16]);
                let staged = |verb| ObjectOp {
                    object: read.object,
                    verb,
                    demand: Demand { stage: Some(stage), ..Demand::default() },
                };
                let new = vec![0xaa; self.len];
                let write = (staged(ObjectVerb::Write { offset: 0 }), Bytes::From(&new));
                let cut = (staged(ObjectVerb::Truncate { size: self.len as u64 }), Bytes::None);
                let publish = [ObjectVerb::Freeze { stage }, ObjectVerb::Publish { stage }];
                let publish = publish.map(|verb| (op(read.object, verb), Bytes::None));
                for op in [cut, write].into_iter().chain(publish) {
                    run_all(&*self.inner, cx, vec![op]).remove(0).0.unwrap();
                }
            }
        }
        self.inner.submit(cx, ops, sink);
    }
}

#[test]
fn m1_a_copy_between_targets_is_of_one_publication() {
    let cases = [(2, 9_000_000, 9_500_000), (2, 9_000_000, 5_000_000), (2, 9_000_000, 3_000_000), (1, 1000, 2000)];
    for (at, before, len) in cases {
        let whole = len != 3_000_000;
        let spread = spread(2);
        let capability = Capability { stage_bytes: 64 << 20, ..heap().capability().clone() };
        let inner: Arc<dyn Backend> = Arc::new(Heap::new(capability.clone()));
        spread.add_target(2, Arc::new(Republished { inner, len, at, reads: Mutex::default() }), capability);
        spread.add_pattern(2, vec![2]);
        let (from, to) = (Place::new(2, 4096).unwrap().whole(ONE), Place::FIRST.whole(Uuid([2; 16])));
        write(&spread, from, 0, &bytes(before)).unwrap();
        let verb = ObjectVerb::Copy { source: from, source_offset: 0, offset: 0, len: u64::MAX >> 2 };
        let copied = run_one(&spread, &cx(), op(to, verb), Memory::default());
        if whole {
            assert_eq!(copied.unwrap().bytes, len as u64);
            assert!(read(&spread, to, 0, 10_000_000) == vec![0xaa; len], "all of the new one");
        } else {
            let e = copied.unwrap_err();
            assert_eq!((e.kind(), e.outcome()), (Kind::Conflict, Outcome::Unknown), "{e}");
        }
    }
}

#[test]
fn holes_stay_holes_in_copies() {
    let spread = spread(2);
    let (from, to) = (Place::new(1, 1 << 20).unwrap().whole(Uuid([1; 16])), Place::FIRST.whole(Uuid([2; 16])));
    write(&spread, from, 100 << 20, b"end").unwrap();
    write(&spread, from, 0, b"begin").unwrap();
    let verb = ObjectVerb::Copy { source: from, source_offset: 0, offset: 0, len: 200 << 20 };
    run_one(&spread, &cx(), op(to, verb), Memory::default()).unwrap();
    let copied = stat(&spread, to);
    assert_eq!(copied.size, (100 << 20) + 3);
    assert!(copied.allocated < 20 << 20, "{}", copied.allocated);
    assert_eq!(read(&spread, to, 100 << 20, 10), b"end");
}

#[test]
fn m4_an_append_over_several_targets_is_refused() {
    let spread = spread(2);
    let whole = Place::new(1, 10).unwrap().whole(ONE);
    let (refused, _) = run_all(&spread, &cx(), vec![(op(whole, ObjectVerb::Append), Bytes::From(b"a"))]).remove(0);
    assert_eq!(refused.unwrap_err().kind(), Kind::Refused);
}

#[test]
fn what_is_not_known_is_an_error_and_not_another_object() {
    let spread = spread(2);
    spread.add_pattern(5, vec![1, 9]);
    for pattern in [4, 5] {
        let whole = Place::new(pattern, 10).unwrap().whole(ONE);
        let e = write(&spread, whole, 0, b"x").unwrap_err();
        assert_eq!((e.kind(), e.outcome()), (Kind::Unavailable, Outcome::NotApplied));
    }
    spread.add_target(9, heap(), heap().capability().clone());
    write(&spread, Place::new(5, 10).unwrap().whole(ONE), 0, b"x").unwrap();
}

/// A target that fails for writes.
struct Full(Arc<dyn Backend>);

impl Backend for Full {
    fn capability(&self) -> &Capability {
        self.0.capability()
    }

    fn submit(&self, cx: &OpCx, ops: Vec<Submitted>, sink: Arc<dyn Sink>) {
        if ops.iter().any(|(op, _)| op.verb.changes_bytes()) {
            ops.iter().enumerate().for_each(|(i, _)| sink.complete(i, Err(iov_types::Error::exhausted("full"))));
        } else {
            self.0.submit(cx, ops, sink);
        }
    }
}

#[test]
fn a_change_that_one_of_several_refuses_may_have_taken_effect() {
    let spread = spread(2);
    spread.add_target(2, Arc::new(Full(heap())), heap().capability().clone());
    let whole = Place::new(1, 10).unwrap().whole(ONE);
    let e = write(&spread, whole, 10, &bytes(20)).unwrap_err();
    assert_eq!((e.kind(), e.outcome()), (Kind::Exhausted, Outcome::Unknown), "the second half");
    let e = write(&spread, whole, 0, &bytes(10)).unwrap_err();
    assert_eq!((e.kind(), e.outcome()), (Kind::Exhausted, Outcome::NotApplied), "it alone was asked");
}

#[test]
fn h1_a_limit_is_one_of_the_collection() {
    let spread = spread(3);
    let whole = Place::new(1, 10).unwrap().whole(ONE);
    let within = |verb: ObjectVerb, bytes: &'static [u8]| {
        let demand = Demand { max_size: 25, ..Demand::default() };
        let op = ObjectOp { object: whole, verb, demand };
        run_all(&spread, &cx(), vec![(op, Bytes::From(bytes))]).remove(0).0.map(|e| e.size)
    };
    assert!(within(ObjectVerb::Write { offset: 20 }, b"12345").is_ok());
    assert_eq!(within(ObjectVerb::Write { offset: 20 }, b"123456").unwrap_err().kind(), Kind::FileTooBig);
    assert_eq!(within(ObjectVerb::Truncate { size: 26 }, b"").unwrap_err().kind(), Kind::FileTooBig);
    write(&spread, whole, 30, b"longer than that").unwrap();
    assert!(within(ObjectVerb::Write { offset: 30 }, b"no longer").is_ok(), "it does not grow by that");
    let from = Place::FIRST.whole(Uuid([2; 16]));
    write(&spread, from, 0, &bytes(50)).unwrap();
    let copy = |len: u64| ObjectVerb::Copy { source: from, source_offset: 0, offset: 20, len };
    assert!(within(copy(26), b"").is_ok());
    let other = Place::new(1, 10).unwrap().whole(Uuid([3; 16]));
    let demand = Demand { max_size: 25, ..Demand::default() };
    let copied = run_one(&spread, &cx(), ObjectOp { object: other, verb: copy(6), demand }, Memory::default());
    assert_eq!(copied.unwrap_err().kind(), Kind::FileTooBig, "each of its objects would have room");
}

/// Cannot publish.
#[derive(Default)]
struct Refuses(Arc<Mutex<Uuid>>);

impl Publisher for Refuses {
    fn publish(&self, _: &OpCx, stage: Uuid, _: Staged, done: OnPublished) {
        *self.0.lock().unwrap() = stage;
        done(Err(Error::unavailable("not now")));
    }
}

#[test]
fn b4_nothing_stays_staged_of_a_cut_that_is_not_published() {
    let spread = spread(3);
    let asked = Arc::default();
    spread.publish_by(Box::new(Refuses(Arc::clone(&asked))));
    let whole = Place::new(1, 10).unwrap().whole(ONE);
    write(&spread, whole, 0, &[9; 100]).unwrap();
    let mut cut = op(whole, ObjectVerb::Truncate { size: 3 });
    cut.demand.domain = Some(Uuid([7; 16]));
    let e = run_one(&spread, &cx(), cut, Memory::default()).unwrap_err();
    assert_eq!((e.kind(), e.outcome()), (Kind::Unavailable, Outcome::NotApplied));
    let mut staged = op(whole, ObjectVerb::Stat);
    staged.demand.stage = Some(*asked.lock().unwrap());
    assert_eq!(run_one(&spread, &cx(), staged, Memory::default()).unwrap().size, 100);
}

#[test]
#[allow(clippy::disallowed_methods)] // a thread of a test
fn c5_a_cut_is_one_step_for_readers() {
    let spread = spread(3);
    spread.publish_by(Box::new(AtAll(spread.clone())));
    let whole = Place::new(1, 10).unwrap().whole(ONE);
    let seen: Arc<Mutex<HashMap<Vec<u8>, usize>>> = Arc::default();
    write(&spread, whole, 0, &[9; 100]).unwrap();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            for _ in 0..2000 {
                let mut found = read(&spread, whole, 0, 100);
                found.dedup();
                *seen.lock().unwrap().entry(found).or_default() += 1;
            }
        });
        while !reader.is_finished() {
            for size in [3, 100] {
                let mut cut = op(whole, ObjectVerb::Truncate { size });
                cut.demand.domain = Some(Uuid([7; 16]));
                run_one(&spread, &cx(), cut, Memory::default()).unwrap();
                if size == 100 {
                    // What was cut away is zeros now: written anew from the end on, so that no zero is before a nine.
                    write(&spread, whole, 0, &[9; 100]).unwrap();
                }
            }
        }
    });
    for found in seen.lock().unwrap().keys() {
        assert!(matches!(&found[..], [9] | [9, 0] | [9, 0, 9, ..]), "{found:?}");
    }
}

#[test]
fn what_a_place_can_do_is_what_all_of_its_targets_can() {
    let spread = spread(2);
    let weak = Capability { medium: Capability::NULL, max_unit: 0, staging: false, ..heap().capability().clone() };
    spread.add_target(2, Arc::new(Heap::new(weak.clone())), weak);
    let there = spread.capability_of(Place::new(1, 10).unwrap().whole(ONE));
    assert_eq!((there.medium, there.max_unit, there.staging, there.targets), (Capability::SEVERAL, 0, false, 2));
}

#[test]
fn bytes_are_moved_at_once_where_all_pieces_can_be() {
    let spread = spread(2);
    let whole = Place::new(1, 10).unwrap().whole(ONE);
    // A heap moves none.
    assert!(matches!(spread.at_once(whole, 0, 0, Now::Write(b"abc")), AtOnce::No));
}
