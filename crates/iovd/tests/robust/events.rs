//! The descriptor that a program looks at beside others: with nobody but the program to drive a batch, answers of the
//! daemon make it readable, over each connection.

use ioverbs::{Batch, BatchAttr, Drive, Op, catalog::LockSpec};

use crate::kit::{Store, create, lookup};

fn lock(try_only: bool) -> LockSpec {
    let range = ioverbs::Range { offset: 0, len: 10 };
    LockSpec { exclusive: true, try_only, range, owner: 0, lease_ns: 0 }
}

/// Whether it is readable within some time.
fn is_readable(fd: i32, ms: i32) -> bool {
    let mut one = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one descriptor, which the session keeps open.
    let n = unsafe { libc::poll(&mut one, 1, ms) };
    assert!(n >= 0);
    n == 1 && one.revents & libc::POLLIN != 0
}

#[test]
fn o8_answers_make_the_descriptor_readable_though_no_thread_reads_them() {
    let store = Store::new();
    let ws = store.in_workspace();
    let mine = create(&ws, "c", "");
    let fd = ws.session().event_fd().unwrap();
    for restarted in [false, true] {
        if restarted {
            store.kill();
            // The connection is made anew.
            ioverbs::stat(&mine).unwrap();
        }
        let other = lookup(&store.again(), "c");
        ioverbs::run(other.session(), Op::Lock { c: other.clone(), lock: lock(true) }).unwrap();
        let mut batch = Batch::new(ws.session(), BatchAttr { drive: Drive::Caller, ..Default::default() }).unwrap();
        batch.push(Op::Lock { c: mine.clone(), lock: lock(false) }).unwrap();
        let request = batch.start().unwrap();
        // All that there is to be done at once.
        while is_readable(fd, 50) {
            assert!(ws.session().poll_completed(4, 0).unwrap().is_empty(), "the lock is another's");
        }
        ioverbs::run(other.session(), Op::Unlock { c: other.clone(), lock: lock(true) }).unwrap();
        let mut done = Vec::new();
        while done.is_empty() {
            assert!(is_readable(fd, 30_000), "nobody told of the answer (restarted: {restarted})");
            done = ws.session().poll_completed(4, 0).unwrap();
        }
        batch.status(0).unwrap().result().unwrap();
        drop((done, request));
        ioverbs::run(mine.session(), Op::Unlock { c: mine.clone(), lock: lock(true) }).unwrap();
    }
}
