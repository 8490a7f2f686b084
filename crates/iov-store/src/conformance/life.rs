//! The life of objects: made, listed, removed, absent; what their bytes survive; when others see them.

use std::sync::mpsc;

use iov_types::{Clause, Kind, ObjectVerb, Persistence};

use super::{
    BackendCheck, MakeBackend, Probe, checks,
    kit::{Thread, fails, pattern, uuid},
};
use crate::seam;

pub(super) fn checks() -> Vec<BackendCheck> {
    checks![BackendCheck:
        o2_an_object_that_nobody_wrote_is_empty,
        o2_create_makes_an_empty_object_once,
        o2_stat_follows_the_bytes,
        o10_removed_bytes_do_not_come_back,
        o10_removing_races_with_use,
        o2_list_pages_are_complete_and_in_order,
        p5_evidence_tells_what_the_bytes_survive,
        m1_too_large_a_unit_is_refused,
        c1_a_completed_write_is_seen_by_everybody,
    ]
}

fn list(object: &Probe, after: Option<iov_types::ObjectId>, max: usize) -> Vec<iov_types::ObjectId> {
    object.call(ObjectVerb::List { after, max }).expect("a list").objects
}

fn o2_an_object_that_nobody_wrote_is_empty(make: MakeBackend<'_>) {
    let target = make();
    let object = Probe::new(&target, 1);
    assert_eq!(object.read(0, 10).expect("a read"), []);
    assert_eq!(object.staged(1).read(5, 10).expect("a staged read"), []);
    let e = object.stat();
    assert_eq!((e.size, e.allocated, e.version, e.epoch, e.mtime_ns), (0, 0, 0, 0, 0));
    assert_eq!(object.extents(0, 1 << 40, 10), []);
    for verb in [ObjectVerb::Publish { stage: uuid(1) }, ObjectVerb::Discard { stage: uuid(1) }, ObjectVerb::Sync] {
        let what = format!("{verb:?}");
        object.call(verb).unwrap_or_else(|e| panic!("{what}: {e:?}"));
    }
    assert_eq!(list(&object, None, 10), [], "looking at an object does not make it");
    object.call(ObjectVerb::Remove).expect("removing nothing");
}

fn o2_create_makes_an_empty_object_once(make: MakeBackend<'_>) {
    let target = make();
    let object = Probe::new(&target, 1);
    object.call(ObjectVerb::Create).expect("a create");
    assert_eq!((object.stat().size, list(&object, None, 10)), (0, vec![object.id]));
    object.write(0, b"kept").expect("a write");
    object.call(ObjectVerb::Create).expect("a second create");
    assert_eq!(object.all(), b"kept", "making it again is harmless");
}

fn o2_stat_follows_the_bytes(make: MakeBackend<'_>) {
    let object = Probe::new(&make(), 1);
    let first = object.write(0, &pattern(1, 100_000)).expect("a write");
    assert!(first.mtime_ns > 0, "a write has a time");
    let stat = object.stat();
    assert_eq!((stat.size, stat.mtime_ns), (100_000, first.mtime_ns), "stat tells what the write told");
    assert!(stat.allocated >= 100_000, "{} bytes hold 100,000", stat.allocated);
    object.read(0, 10).expect("a read");
    assert_eq!(object.stat().mtime_ns, stat.mtime_ns, "a read changes no time");
    object.truncate(5).expect("a cut");
    let cut = object.stat();
    assert!(cut.size == 5 && cut.mtime_ns >= stat.mtime_ns, "{cut:?} after {stat:?}");
    object.write(0, &pattern(1, 8 << 20)).expect("a large write");
    object.punch(0, 8 << 20).expect("a punch of everything");
    let punched = object.stat().allocated;
    assert!(punched < 4 << 20, "{punched} bytes are still taken after all 8 MiB were punched");
}

fn o10_removed_bytes_do_not_come_back(make: MakeBackend<'_>) {
    let target = make();
    let object = Probe::new(&target, 1);
    object.write(0, &pattern(1, 50_000)).expect("a write");
    object.staged(3).write(0, b"staged").expect("a staged write");
    object.call(ObjectVerb::Remove).expect("a remove");
    object.call(ObjectVerb::Remove).expect("a second remove");
    assert_eq!((object.stat().size, list(&object, None, 10)), (0, vec![]));
    object.publish(3).expect("publishing what was removed with its object");
    assert_eq!(object.all(), [], "a stage goes with its object");
    object.write(1000, b"new").expect("a write");
    let mut expected = vec![0; 1000];
    expected.extend(b"new");
    assert_eq!(object.all(), expected, "T21: a new object has none of the old bytes");
}

fn o10_removing_races_with_use(make: MakeBackend<'_>) {
    let target = make();
    let object = Probe::new(&target, 1);
    let data = pattern(1, 3000);
    let user = {
        let (object, data) = (object.clone(), data.clone());
        Thread::start(move |_| {
            for _ in 0..200 {
                let written = object.write(0, &data).map(|_| Vec::new());
                seam::sleep(1_000); // a remove shall come in between now and then
                for result in [written, object.read(0, 4000)] {
                    match result {
                        Ok(bytes) => assert!(bytes.is_empty() || bytes == data, "a read in a race with remove"),
                        Err(e) => assert_eq!(e.kind(), Kind::NotFound, "{e:?}"),
                    }
                }
            }
        })
    };
    while !user.is_done() {
        object.call(ObjectVerb::Remove).expect("a remove");
    }
    user.join();
    object.call(ObjectVerb::Remove).expect("a remove");
    object.write(0, b"x").expect("a write after the race");
    assert_eq!(object.all(), b"x");
}

fn o2_list_pages_are_complete_and_in_order(make: MakeBackend<'_>) {
    let target = make();
    let objects: Vec<Probe> = (0..25).map(|n| Probe::new(&target, n * n)).collect();
    for object in objects.iter().rev() {
        object.write(0, b"x").expect("a write");
    }
    let expected: Vec<_> = objects.iter().map(|o| o.id).collect();
    assert_eq!(list(&objects[0], None, 1000), expected, "all at once, in order");
    let (mut paged, mut after) = (Vec::new(), None);
    loop {
        let page = list(&objects[0], after, 7);
        assert!(page.len() <= 7, "at most as many as asked for");
        let Some(last) = page.last() else { break };
        after = Some(*last);
        paged.extend(page);
        assert!(paged.len() <= 25, "paging comes to an end");
    }
    assert_eq!(paged, expected, "page by page, each object once");
    let between = iov_types::ObjectId { slot: 5, ..expected[0] };
    assert_eq!(list(&objects[0], Some(between), 1), [expected[3]], "from behind one that is not there");
    assert_eq!(list(&objects[0], None, 0), []);
}

fn p5_evidence_tells_what_the_bytes_survive(make: MakeBackend<'_>) {
    let target = make();
    let strongest = target.capability().durability;
    for level in Persistence::ALL.iter().filter(|level| **level <= strongest) {
        // Who persists what nobody wrote is not told that it failed.
        let unwritten = Probe::new(&target, 2).with(|d| d.durability = Some(*level));
        let synced = unwritten.call(ObjectVerb::Sync).expect("a sync of what nobody wrote");
        let survives = synced.durability;
        assert!(survives >= Some(*level), "nothing, synced at {level:?}, survives {survives:?}");
        assert!(synced.shows_nothing(), "who has written it is to see that it is gone: {synced:?}");
        let emptied = Probe::new(&target, 3).with(|d| d.durability = Some(*level));
        emptied.write(0, b"x").expect("a write");
        emptied.call(ObjectVerb::Truncate { size: 0 }).expect("a truncate");
        let synced = emptied.call(ObjectVerb::Sync).expect("a sync of what is empty by now");
        assert!(!synced.shows_nothing(), "what is empty is there: {synced:?}");
    }
    for level in Persistence::ALL {
        let object = Probe::new(&target, 1).with(|d| d.durability = Some(*level));
        for (what, verb, data) in
            [("a write", ObjectVerb::Write { offset: 0 }, &b"x"[..]), ("sync", ObjectVerb::Sync, b"")]
        {
            let result = object.send(verb, data);
            if *level <= strongest {
                let survives = result.unwrap_or_else(|e| panic!("{what} at {level:?}: {e:?}")).durability;
                assert!(survives >= Some(*level), "{what} at {level:?} survives {survives:?}");
                assert!(survives <= Some(strongest), "{what} survives {survives:?}, the target gives {strongest:?}");
            } else {
                let e = fails(what, Kind::Refused, result);
                let clauses = [Clause::P2, Clause::P3, Clause::P4];
                assert!(e.clause().is_some_and(|c| clauses.contains(&c)), "the refusal names its clause: {e:?}");
            }
        }
    }
}

fn m1_too_large_a_unit_is_refused(make: MakeBackend<'_>) {
    let target = make();
    let max = target.capability().max_unit;
    let object = Probe::new(&target, 1);
    let e = fails("too large a unit", Kind::Refused, object.with(|d| d.unit = max + 1).write(0, b"x"));
    assert_eq!((e.clause(), object.stat().size), (Some(Clause::M1), 0));
    object.with(|d| d.unit = max).write(0, b"x").expect("the largest unit");
}

fn c1_a_completed_write_is_seen_by_everybody(make: MakeBackend<'_>) {
    let target = make();
    let (object, (send, receive)) = (Probe::new(&target, 1), mpsc::channel::<u64>());
    let (answer, answered) = mpsc::channel::<(Vec<u8>, u64)>();
    let reader = {
        let object = object.clone();
        Thread::start(move |_| {
            while let Ok(n) = receive.recv() {
                let seen = (object.read(0, 8).expect("a read"), object.stat().size);
                if seen != (n.to_le_bytes().to_vec(), 8 + n) || answer.send(seen.clone()).is_err() {
                    panic!("T5: write {n} has completed, a later read got {seen:?}");
                }
            }
        })
    };
    for n in 1..=300u64 {
        object.write(0, &n.to_le_bytes()).expect("a write");
        object.write(7 + n, b"x").expect("a write that grows it");
        object.write(0, &n.to_le_bytes()).expect("a write");
        if send.send(n).is_err() || answered.recv().is_err() {
            break; // the reader says why
        }
    }
    drop(send);
    reader.join();
}
