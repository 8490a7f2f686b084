//! Changes and syncs that fail on the way, and what must follow (P8, M1). In processes of their own: a fail point is armed
//! for a whole process.

use std::path::Path;

use iov_media::{Files, Lent, Peer as Client, fail};
use iov_store::{ClientPage, LeaseAccess, Segment};
use iov_types::{Clause, Demand, Kind, ObjectVerb, Persistence, Range, Result};

use crate::kit::{Peer, all, bytes, call, cx, directory, object, open, segments, send, staged, try_all, uuid, write};

fn durable(demand: Demand) -> Demand {
    Demand { durability: Some(Persistence::Durable), ..demand }
}

fn sync(files: &Files, demand: Demand) -> Result<()> {
    send(files, object(1), ObjectVerb::Sync, durable(demand), &[]).map(drop)
}

fn p8<T: std::fmt::Debug>(result: Result<T>) {
    let e = result.expect_err("it had to fail");
    assert_eq!((e.kind(), e.clause()), (Kind::Corrupt, Some(Clause::P8)), "{e:?}");
}

#[test]
fn p8_what_a_sync_has_failed_for_is_failed_for_good() {
    let directory = directory();
    assert_eq!(Peer::start("failing syncs", directory.path(), &[]).end(), None);
}

pub(crate) fn failing_syncs(root: &Path) {
    let files = open(root);
    write(&*files, object(2), 0, b"other").expect("a write");
    write(&*files, object(1), 0, b"bytes").expect("a write");
    fail::arm("sync.data:1").expect("a fail point");
    let e = sync(&files, Demand::default()).expect_err("the sync fails");
    assert_eq!(e.clause(), Some(Clause::P8), "{e:?}");
    // The next fsync of the kernel would succeed; it must not be believed.
    p8(sync(&files, Demand::default()));
    p8(write(&*files, object(1), 0, b"again"));
    p8(send(&*files, object(1), ObjectVerb::Append, durable(Demand::default()), b"again"));
    p8(call(&*files, object(1), ObjectVerb::Truncate { size: 0 }));
    assert_eq!(all(&*files, object(1)), b"bytes", "what is there can be read");
    send(&*files, object(2), ObjectVerb::Write { offset: 0 }, durable(Demand::default()), b"fine")
        .expect("another object");
    drop(files);
    let files = open(root);
    p8(write(&*files, object(1), 0, b"again"));
    p8(sync(&files, Demand::default()));
    call(&*files, object(1), ObjectVerb::Remove).expect("a remove");
    write(&*files, object(1), 0, b"a new one").expect("a write");
    sync(&files, Demand::default()).expect("a sync of the new one");

    // A durable append whose sync fails is not there, now or later.
    send(&*files, object(1), ObjectVerb::Append, Demand::default(), b"+").expect("an append");
    fail::arm("sync.data:1").expect("a fail point");
    let late = send(&*files, object(1), ObjectVerb::Append, durable(Demand::default()), b"late");
    assert_eq!(late.expect_err("the sync fails").clause(), Some(Clause::P8));
    assert_eq!(all(&*files, object(1)), b"a new one+");
    call(&*files, object(1), ObjectVerb::Remove).expect("a remove");

    // A stage whose sync fails can only be dropped.
    write(&*files, object(1), 0, b"base").expect("a write");
    send(&*files, object(1), ObjectVerb::Write { offset: 0 }, staged(uuid(5)), b"new!").expect("a staged write");
    fail::arm("sync.stage:1").expect("a fail point");
    let e = sync(&files, staged(uuid(5))).expect_err("the sync fails");
    assert_eq!(e.clause(), Some(Clause::P8));
    p8(send(&*files, object(1), ObjectVerb::Write { offset: 0 }, staged(uuid(5)), b"more"));
    p8(call(&*files, object(1), ObjectVerb::Freeze { stage: uuid(5) }));
    p8(call(&*files, object(1), ObjectVerb::Publish { stage: uuid(5) }));
    assert_eq!(all(&*files, object(1)), b"base");
    call(&*files, object(1), ObjectVerb::Discard { stage: uuid(5) }).expect("a discard");
    write(&*files, object(1), 0, b"BASE").expect("the object itself is fine");
    drop(files);
    let files = open(root);
    write(&*files, object(1), 0, b"Base").expect("also for the next daemon");

    // A sync that fails when publishing has been decided: nothing was applied, and nothing will be.
    send(&*files, object(3), ObjectVerb::Write { offset: 0 }, staged(uuid(6)), b"new!").expect("a staged write");
    sync(&files, Demand::default()).expect("a sync");
    send(&*files, object(3), ObjectVerb::Sync, durable(staged(uuid(6))), &[]).expect("a sync of the stage");
    send(&*files, object(3), ObjectVerb::Write { offset: 9 }, staged(uuid(6)), b"more").expect("a staged write");
    fail::arm("sync.stage:1").expect("a fail point");
    let e = call(&*files, object(3), ObjectVerb::Publish { stage: uuid(6) }).expect_err("the sync fails");
    assert_eq!(e.clause(), Some(Clause::P8), "{e:?}");
    assert_eq!(all(&*files, object(3)), b"");
    drop(files);
    let files = open(root);
    files.drop_stages(&[]).expect("the end of recovery");
    assert_eq!(all(&*files, object(3)), b"");
}

#[test]
fn m1_a_unit_that_is_not_finished_shows_to_nobody() {
    let directory = directory();
    assert_eq!(Peer::start("a failing unit", directory.path(), &[]).end(), None);
}

pub(crate) fn failing_unit(root: &Path) {
    let files = open(root);
    let unit = Demand { unit: 4096, ..Demand::default() };
    let put = |files: &Files, slot, value| {
        send(files, object(slot), ObjectVerb::Write { offset: 0 }, unit.clone(), &[value; 4096])
    };
    for slot in [1, 2, 17] {
        put(&files, slot, 1).expect("a unit");
    }
    fail::arm("unit.3.half_applied:1").expect("a fail point");
    put(&files, 1, 2).expect_err("it fails half-way");
    for result in [try_all(&*files, object(1)).map(drop), put(&files, 1, 3).map(drop)] {
        assert_eq!(result.expect_err("neither old nor new").clause(), Some(Clause::M1));
    }
    put(&files, 2, 4).expect("others are served");
    let beside = put(&files, 17, 4).expect_err("this one would need the same journal file");
    assert_eq!(beside.kind(), Kind::Unavailable, "{beside:?}");
    assert_eq!(all(&*files, object(17)), [1; 4096], "but it is whole");
    drop(files);
    let files = open(root);
    assert_eq!(all(&*files, object(1)), [2; 4096], "brought to its end");
    put(&files, 17, 4).expect("a unit");
}

#[test]
fn b3_a_publication_that_fails_on_the_way_can_be_finished() {
    let directory = directory();
    assert_eq!(Peer::start("a failing publication", directory.path(), &[]).end(), None);
}

pub(crate) fn failing_publication(root: &Path) {
    let files = open(root);
    for (slot, point) in
        fail::POINTS.iter().filter(|p| p.starts_with("publish.") || p.starts_with("freeze.")).enumerate()
    {
        let (id, stage) = (object(slot as u64), uuid(7));
        write(&*files, id, 0, &bytes(1, 30_000)).expect("a write");
        for offset in [100, 9000] {
            let verb = ObjectVerb::Write { offset };
            send(&*files, id, verb, staged(stage), &bytes(2, 1000)).expect("a staged write");
        }
        fail::arm(&format!("{point}:1")).expect("a fail point");
        let failed = [ObjectVerb::Freeze { stage }, ObjectVerb::Publish { stage }]
            .into_iter()
            .find_map(|verb| call(&*files, id, verb).err());
        assert!(failed.is_some(), "{point} was not passed");
        fail::arm("").expect("nothing is armed");
        call(&*files, id, ObjectVerb::Publish { stage }).expect("the publication, again");
        let mut expected = bytes(1, 30_000);
        for offset in [100, 9000] {
            expected[offset..offset + 1000].copy_from_slice(&bytes(2, 1000));
        }
        assert!(all(&*files, id) == expected, "{point}");
        assert_eq!(call(&*files, id, ObjectVerb::Stat).expect("stat").version, 1, "{point}");
        write(&*files, id, 0, b"later").expect("nobody is kept out");
    }
    assert_eq!(files.stages(), []);
}

#[test]
fn b3_a_publication_that_is_done_does_not_wait_for_another_batch() {
    let directory = directory();
    let files = open(directory.path());
    write(&*files, object(1), 0, b"base").expect("a write");
    for (stage, bytes) in [(uuid(1), b"one!"), (uuid(2), b"two!")] {
        send(&*files, object(1), ObjectVerb::Write { offset: 0 }, staged(stage), bytes).expect("a write");
        call(&*files, object(1), ObjectVerb::Freeze { stage }).expect("a freeze");
        if stage == uuid(1) {
            call(&*files, object(1), ObjectVerb::Publish { stage }).expect("a publication");
        }
    }
    // As at a start: the first batch is still to be finished, the second was never committed.
    drop(files);
    let files = open(directory.path());
    call(&*files, object(1), ObjectVerb::Publish { stage: uuid(1) }).expect("it is done");
    files.drop_stages(&[]).expect("the other goes");
    assert_eq!(all(&*files, object(1)), b"one!");
}

/// A batch had frozen an object when its daemon died; its session goes on with something else, and ends. What it gives back then
/// must not be what others were granted meanwhile.
#[test]
fn g1_a_stage_that_is_dropped_takes_nothing_from_those_who_write_meanwhile() {
    let directory = segments();
    let stage = uuid(9);
    {
        let files = open(directory.path());
        write(&*files, object(1), 0, &bytes(1, 100_000)).expect("a write");
        send(&*files, object(1), ObjectVerb::Write { offset: 10 }, staged(stage), &bytes(2, 50_000)).expect("a stage");
        call(&*files, object(1), ObjectVerb::Freeze { stage }).expect("a freeze");
    }
    let files = open(directory.path());
    files.thaw_stages(&[]).expect("everybody may go on");
    let pid = std::process::id();
    let page = files.open_session(uuid(1), Client { pid, uid: rustix::process::geteuid().as_raw() }).expect("a page");
    let wanted = Range { offset: 100_000, len: 300_000 };
    let granted = files.grant(&cx(), uuid(1), object(1), LeaseAccess::Write, wanted, 0).expect("a grant");
    let Lent::Memory(window) = &granted.lent else { panic!("a grant of a file") };
    let slot = ClientPage::map(&page).expect("a page").slot(granted.slot, granted.generation).expect("a slot");
    files.abandon_stage(stage).expect("the stage goes");
    // Others take what is free.
    while write(&*files, object(2), call(&*files, object(2), ObjectVerb::Stat).map_or(0, |s| s.size), &[0xee; 1 << 20])
        .is_ok()
    {}
    if let Some(guard) = slot.begin_write() {
        // It still has leave: so what it writes is there, and nowhere else.
        let map = |number| Segment::map(files.segment(number, true).expect("a segment")).expect("a mapping");
        let (at, piece) = window.stretches.iter().find(|(at, p)| at + p.len > 100_000).expect("a place");
        map(piece.segment).copy_in(piece.at + (100_000 - at), &[7; 4000]);
        map(window.head.segment).head(window.head.at).written(104_000);
        assert!(guard.finish());
        assert!(all(&*files, object(1))[100_000..] == [7; 4000], "its bytes are there");
    }
    assert!(all(&*files, object(2)).iter().all(|b| *b == 0xee), "and nobody else's are damaged");
    assert!(all(&*files, object(1))[..100_000] == bytes(1, 100_000));
}

/// Who asks is not bound to what any object can have.
#[test]
fn g1_a_grant_beyond_what_any_object_can_have_is_refused() {
    for directory in [segments(), directory()] {
        let files = open(directory.path());
        write(&*files, object(1), 0, &bytes(1, 100_000)).expect("a write");
        let client = Client { pid: std::process::id(), uid: rustix::process::geteuid().as_raw() };
        files.open_session(uuid(1), client).expect("a page");
        let most = i64::MAX as u64;
        for access in [LeaseAccess::Read, LeaseAccess::Write] {
            for (offset, len) in [(u64::MAX, 0), (u64::MAX, u64::MAX), (most + 1, 0), (most, 1), (0, u64::MAX)] {
                let granted = files.grant(&cx(), uuid(1), object(1), access, Range { offset, len }, 0);
                assert_eq!(granted.expect_err("it is refused").kind(), Kind::Invalid, "{offset} {len}");
            }
            let _ = files.grant(&cx(), uuid(1), object(1), access, Range { offset: most, len: 0 }, 0);
        }
    }
}
