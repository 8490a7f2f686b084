//! Syncs that fail, and what must follow (P8).

use iov_media::{Files, fail};
use iov_types::{Clause, Demand, Kind, ObjectVerb, Persistence, Result};

use crate::kit::{all, call, directory, object, open, send, staged, uuid, write};

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

/// One test for all, as a fail point is armed for the whole process.
#[test]
fn p8_what_a_sync_has_failed_for_is_failed_for_good() {
    let directory = directory();
    let files = open(directory.path());
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
    let files = open(directory.path());
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
    fail::arm("").expect("nothing is armed");
}
