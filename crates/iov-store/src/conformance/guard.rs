//! What a target refuses, whatever the client says: sealed objects, old epochs, lengths beyond the limit.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use iov_types::{Clause, Kind, ObjectVerb, Range};

use super::{
    BackendCheck, MakeBackend, Probe, checks,
    kit::{Thread, fails, pattern, soon, together, uuid},
};
use crate::seam;

pub(super) fn checks() -> Vec<BackendCheck> {
    checks![BackendCheck:
        m2_a_sealed_object_refuses_every_change,
        m2_a_seal_holds_against_stages if |c| c.staging,
        m2_a_seal_waits_for_what_is_to_be_shown if |c| c.staging,
        t11_a_write_is_before_the_seal_or_fails,
        x1_an_older_epoch_is_fenced,
        x1_an_older_epoch_publishes_nothing if |c| c.staging,
        x1_epochs_only_rise,
        x1_nothing_of_a_fenced_writer_appears,
        h1_no_change_grows_beyond_the_limit,
        h1_the_limit_holds_at_publication if |c| c.staging,
    ]
}

/// Every verb that changes bytes or length, on an object of 4096 bytes, with the memory it takes.
fn changes(source: &Probe) -> Vec<(ObjectVerb, Vec<u8>)> {
    let range = Range { offset: 100, len: 50 };
    vec![
        (ObjectVerb::Write { offset: 0 }, b"x".to_vec()),
        (ObjectVerb::Write { offset: 5000 }, b"x".to_vec()),
        (ObjectVerb::Append, b"x".to_vec()),
        (ObjectVerb::Truncate { size: 10 }, vec![]),
        (ObjectVerb::Truncate { size: 10_000 }, vec![]),
        (ObjectVerb::Punch(range), vec![]),
        (ObjectVerb::Allocate { range: Range { offset: 4000, len: 5000 }, keep_size: false }, vec![]),
        (ObjectVerb::Copy { source: source.id, source_offset: 0, offset: 0, len: 10 }, vec![]),
    ]
}

fn m2_a_sealed_object_refuses_every_change(make: MakeBackend<'_>) {
    let target = make();
    let (object, other) = (Probe::new(&target, 1), Probe::new(&target, 2));
    let data = pattern(1, 4096);
    object.write(0, &data).expect("a write");
    other.write(0, &data[..100]).expect("a write");
    let before = object.stat();
    object.call(ObjectVerb::Seal).expect("a seal");
    object.call(ObjectVerb::Seal).expect("a second seal");
    for (verb, memory) in changes(&other) {
        let e = fails(&format!("{verb:?}"), Kind::Immutable, object.send(verb, &memory));
        assert_eq!(e.clause(), Some(Clause::M2), "the error names its clause: {e:?}");
    }
    let after = object.stat();
    assert_eq!((after.size, after.mtime_ns), (before.size, before.mtime_ns), "nothing has changed");
    assert!(object.all() == data);
    other.copy(&object, 0, 0, 4096).expect("a sealed object can be copied");
    object.call(ObjectVerb::Sync).expect("sync");
    object.call(ObjectVerb::Remove).expect("a sealed object can be removed");
}

fn m2_a_seal_holds_against_stages(make: MakeBackend<'_>) {
    let object = Probe::new(&make(), 1);
    object.write(0, b"before").expect("a write");
    object.staged(1).write(0, b"staged").expect("a staged write");
    object.call(ObjectVerb::Seal).expect("a seal");
    fails("a staged write", Kind::Immutable, object.staged(1).write(0, b"x"));
    fails("a freeze", Kind::Immutable, object.freeze(1));
    fails("a publication", Kind::Immutable, object.publish(1));
    assert_eq!(object.all(), b"before", "bytes are fixed once sealed");
    object.discard(1).expect("a discard");
    object.publish(1).expect("nothing is left to publish");
    assert_eq!(object.all(), b"before");
}

fn m2_a_seal_waits_for_what_is_to_be_shown(make: MakeBackend<'_>) {
    let object = Probe::new(&make(), 1);
    object.staged(1).write(0, b"staged").expect("a staged write");
    object.freeze(1).expect("a freeze");
    fails("a seal over what is to be shown", Kind::Invalid, object.staged(1).call(ObjectVerb::Seal));
    object.publish(1).expect("a publication");
    assert_eq!(object.all(), b"staged");
}

fn t11_a_write_is_before_the_seal_or_fails(make: MakeBackend<'_>) {
    let target = make();
    let len = 200_000;
    for round in 0..60 {
        let object = Probe::new(&target, round);
        object.write(0, &vec![1; len]).expect("a write");
        let racer = object.clone();
        let mut results = together(2, move |i| match i {
            0 => racer.write(0, &vec![2; len]),
            _ => {
                seam::sleep(round * 10_000); // a moment later each time, so that some fall into the write
                racer.call(ObjectVerb::Seal)
            }
        });
        let sealed = results.pop().expect("two results");
        sealed.expect("a seal");
        let expected = match results.remove(0) {
            Ok(_) => 2,
            Err(e) if e.kind() == Kind::Immutable => 1,
            Err(e) => panic!("a write in a race with a seal: {e:?}"),
        };
        let bytes = object.all();
        assert!(bytes.len() == len && bytes.iter().all(|b| *b == expected), "round {round}: all bytes are {expected}");
    }
}

fn x1_an_older_epoch_is_fenced(make: MakeBackend<'_>) {
    let target = make();
    let (object, other) = (Probe::new(&target, 1), Probe::new(&target, 2));
    let data = pattern(1, 4096);
    object.fence(5).expect("a fence");
    object.with(|d| d.epoch = 5).write(0, &data).expect("a write of the present epoch");
    object.with(|d| d.epoch = 6).write(0, &data).expect("a write of a later epoch");
    object.write(0, &data).expect("a write that demands no epoch");
    other.write(0, &data[..100]).expect("a write");
    assert_eq!(object.stat().epoch, 5, "evidence tells the epoch");
    let old = object.with(|d| d.epoch = 4);
    let more =
        [ObjectVerb::Stat, ObjectVerb::Sync, ObjectVerb::Seal, ObjectVerb::Fence { epoch: 9 }, ObjectVerb::Remove];
    let more = more.into_iter().map(|verb| (verb, vec![]));
    for (verb, memory) in changes(&other).into_iter().chain(more) {
        let e = fails(&format!("{verb:?}"), Kind::Fenced, old.send(verb, &memory));
        assert_eq!(e.clause(), Some(Clause::X1), "the error names its clause: {e:?}");
    }
    fails("a read", Kind::Fenced, old.read(0, 10));
    assert!(object.all() == data, "nothing of it applies");
    object.write(0, b"still open").expect("it was not sealed");
}

fn x1_an_older_epoch_publishes_nothing(make: MakeBackend<'_>) {
    let object = Probe::new(&make(), 1);
    object.write(0, b"before").expect("a write");
    let holder = object.with(|d| d.epoch = 1);
    holder.staged(1).write(0, b"staged").expect("a staged write");
    object.fence(2).expect("the next holder's fence");
    fails("a staged write", Kind::Fenced, holder.staged(1).write(0, b"x"));
    fails("a freeze", Kind::Fenced, holder.freeze(1));
    fails("a publication", Kind::Fenced, holder.publish(1));
    assert_eq!(object.all(), b"before", "a fenced holder changes nothing");
    holder.discard(1).expect("it may still clear up");
    assert_eq!(object.all(), b"before");
}

fn x1_epochs_only_rise(make: MakeBackend<'_>) {
    let object = Probe::new(&make(), 1);
    assert_eq!(object.fence(3).expect("a fence of an object that nobody wrote").epoch, 3);
    assert_eq!(object.fence(3).expect("the same again").epoch, 3);
    fails("a lower epoch", Kind::Conflict, object.fence(2));
    assert_eq!(object.stat().epoch, 3);
    fails("a write of an older epoch", Kind::Fenced, object.with(|d| d.epoch = 2).write(0, b"x"));
}

fn x1_nothing_of_a_fenced_writer_appears(make: MakeBackend<'_>) {
    let target = make();
    for round in 0..20 {
        let object = Probe::new(&target, round);
        object.write(0, &[0; 20_000]).expect("a write");
        let holder = object.with(|d| d.epoch = 1);
        let at_work = Arc::new(AtomicBool::new(false));
        let begun = at_work.clone();
        let writer = Thread::start(move |stop| {
            let mut applied = 0u8;
            while !stop.load(Ordering::Relaxed) {
                let value = applied % 200 + 1;
                match holder.write(0, &[value; 20_000]) {
                    Ok(_) => {
                        applied = value;
                        begun.store(true, Ordering::Relaxed);
                    }
                    Err(e) if e.kind() == Kind::Fenced => break,
                    Err(e) => panic!("a write in a race with a fence: {e:?}"),
                }
            }
        });
        assert!(soon(|| at_work.load(Ordering::Relaxed)), "the holder does not come to write");
        object.fence(2).expect("a fence");
        let behind = object.all();
        assert!(behind.iter().all(|b| *b == behind[0]), "T12: a write that was under way is whole or absent");
        object.with(|d| d.epoch = 2).write(5, &[250; 100]).expect("a write of the next holder");
        writer.stop();
        let mut expected = behind;
        expected[5..105].fill(250);
        assert!(object.all() == expected, "T12: round {round}: something of the old holder appeared");
    }
}

fn h1_no_change_grows_beyond_the_limit(make: MakeBackend<'_>) {
    let target = make();
    let (plain, other) = (Probe::new(&target, 1), Probe::new(&target, 2));
    let object = plain.with(|d| d.max_size = 100);
    other.write(0, &[7; 300]).expect("a write");
    object.write(0, &[1; 100]).expect("up to the limit");
    let growing = [
        (ObjectVerb::Write { offset: 99 }, vec![9; 2]),
        (ObjectVerb::Write { offset: 1 << 40 }, vec![9; 2]),
        (ObjectVerb::Append, vec![9; 1]),
        (ObjectVerb::Truncate { size: 101 }, vec![]),
        (ObjectVerb::Allocate { range: Range { offset: 50, len: 51 }, keep_size: false }, vec![]),
        (ObjectVerb::Copy { source: other.id, source_offset: 0, offset: 0, len: 101 }, vec![]),
    ];
    for (verb, memory) in growing {
        let e = fails(&format!("{verb:?}"), Kind::FileTooBig, object.send(verb, &memory));
        assert_eq!(e.clause(), Some(Clause::H1), "the error names its clause: {e:?}");
    }
    assert_eq!(object.all(), [1; 100], "what was refused has no effect");
    object.allocate(50, 5000, true).expect("space that changes no length");
    object.copy(&other, 250, 50, 100).expect("a copy that ends with its source, inside the limit");
    plain.write(0, &[2; 150]).expect("a write without a limit");
    object.write(140, &[3; 5]).expect("a write inside what is there already");
    assert_eq!(object.truncate(120).expect("a cut to beyond the limit").size, 120, "shrinking is never refused");
}

fn h1_the_limit_holds_at_publication(make: MakeBackend<'_>) {
    let plain = Probe::new(&make(), 1);
    let object = plain.with(|d| d.max_size = 100);
    let staged = object.with(|d| d.stage = Some(uuid(1)));
    staged.write(0, &[1; 60]).expect("a staged write");
    staged.append(&[2; 40]).expect("a staged append up to the limit");
    fails("a staged append", Kind::FileTooBig, staged.append(&[2; 1]));
    fails("a staged write", Kind::FileTooBig, staged.write(99, &[2; 2]));
    plain.write(0, &[9; 61]).expect("a write of somebody else");
    fails("a freeze, after which all must fit", Kind::FileTooBig, object.freeze(1));
    fails("a publication", Kind::FileTooBig, object.publish(1));
    assert_eq!(plain.all(), [9; 61], "all of the stage or nothing");
    plain.truncate(10).expect("a cut by somebody else");
    object.freeze(1).expect("now it fits");
    object.publish(1).expect("a publication");
    assert_eq!(plain.all(), [[1; 60].as_slice(), &[2; 40]].concat());
}
