//! The descriptor that a program looks at beside others: with nobody but the program to drive a batch, answers of the
//! daemon make it readable, over each connection.

use std::time::{Duration, Instant};

use ioverbs::{Batch, BatchAttr, Drive, Op, catalog::LockSpec};

use crate::kit::{Store, create, lookup, signal};

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

/// A batch that asks the daemon for facts.
fn stats(ws: &ioverbs::Workspace, c: &ioverbs::Collection, drive: Drive) -> Batch {
    let mut batch = Batch::new(ws.session(), BatchAttr { drive, ..Default::default() }).unwrap();
    batch.push(Op::Stat { c: c.clone() }).unwrap();
    batch
}

#[test]
fn o8_the_descriptor_tells_of_answers_over_a_connection_that_is_made_anew_meanwhile() {
    let store = Store::new();
    let ws = store.in_workspace();
    let c = create(&ws, "c", "");
    let fd = ws.session().event_fd().unwrap();
    store.kill();
    let mut batch = stats(&ws, &c, Drive::Caller);
    let _request = batch.start().unwrap();
    let mut done = ws.session().poll_completed(4, 0).unwrap();
    while done.is_empty() {
        assert!(is_readable(fd, 30_000), "nobody told of the answer");
        done = ws.session().poll_completed(4, 0).unwrap();
    }
    batch.status(0).unwrap().result().unwrap();
}

/// Starts an operation on bytes in a batch of its own.
///
/// # Safety
/// The memory outlives the request.
unsafe fn start_data(
    ws: &ioverbs::Workspace,
    attr: BatchAttr,
    c: &ioverbs::Collection,
    bytes: &mut [u8],
    read: bool,
) -> (ioverbs::Request, Batch) {
    let mut batch = Batch::new(ws.session(), attr).unwrap();
    // SAFETY: promised by the caller.
    let chunks = vec![(0, unsafe { ioverbs::Memory::writable(bytes.as_mut_ptr(), bytes.len()) })];
    let c = c.clone();
    batch.push(if read { Op::Read { c, chunks } } else { Op::Write { c, chunks } }).unwrap();
    (batch.start().unwrap(), batch)
}

#[test]
fn o8_neither_starting_nor_testing_waits_for_a_daemon_that_does_not_answer() {
    let store = Store::new();
    store.in_workspace();
    for (drive, nodirect) in [
        (Drive::Caller, false),
        (Drive::Caller, true),
        (Drive::Auto, false),
        (Drive::Auto, true),
        (Drive::Background, false),
        (Drive::Background, true),
    ] {
        let attr = ioverbs::SessionAttr { nodirect, ..Default::default() };
        let session = ioverbs::open(Some(&store.url()), attr).unwrap();
        let ws = session.load_workspace(ioverbs::Which::parse("w").unwrap()).unwrap();
        let name = format!("{drive:?} {nodirect}");
        let (c, d) = (create(&ws, &name, ""), create(&ws, &format!("{name} written"), ""));
        ioverbs::write_at(&c, 0, &vec![7; 3 << 20]).unwrap();
        store.kill();
        // It takes connections, and that is all.
        let _daemon = store.daemon(&[], &[]);
        let serving = store.serving();
        signal(serving, "STOP");
        let begun = Instant::now();
        let mut batch = stats(&ws, &c, drive);
        let request = batch.start().unwrap();
        let (mut into, mut from) = (vec![0; 3 << 20], vec![8; 3 << 20]);
        let attr = BatchAttr { drive, ..Default::default() };
        // SAFETY: both are waited for below.
        let data = unsafe {
            [start_data(&ws, attr.clone(), &c, &mut into, true), start_data(&ws, attr, &d, &mut from, false)]
        };
        for _ in 0..20 {
            assert!(request.test().is_none());
            assert!(data.iter().all(|(request, _)| request.test().is_none()));
            assert!(ws.session().poll_completed(4, 0).unwrap().is_empty());
            for (i, request) in [&data[0].0, &data[1].0, &request].into_iter().enumerate() {
                let waited = request.wait(1_000_000);
                assert!(
                    waited.as_ref().is_err_and(|e| e.kind() == ioverbs::Kind::Timeout),
                    "{name}, request {i}: {waited:?}"
                );
            }
        }
        let took = begun.elapsed();
        signal(serving, "CONT");
        assert!(took < Duration::from_secs(25), "half the deadline: {took:?} with {name}");
        request.wait(-1).unwrap();
        data.iter().for_each(|(request, _)| request.wait(-1).unwrap());
        assert!(into.iter().all(|byte| *byte == 7));
        assert!(crate::kit::read(&d).iter().all(|byte| *byte == 8));
    }
}

#[test]
fn o8_the_descriptor_tells_of_room_for_what_is_still_to_be_sent() {
    let store = Store::new();
    store.in_workspace();
    let attr = ioverbs::SessionAttr { nodirect: true, ..Default::default() };
    let session = ioverbs::open(Some(&store.url()), attr).unwrap();
    let ws = session.load_workspace(ioverbs::Which::parse("w").unwrap()).unwrap();
    let c = create(&ws, "c", "");
    let fd = session.event_fd().unwrap();
    for round in 0..2 {
        let pid = store.status("pid").unwrap() as u32;
        signal(pid, "STOP");
        // Many times what the socket holds, and nobody but the program to send it.
        let mut bytes = vec![round; 8 << 20];
        let attr = BatchAttr { drive: Drive::Caller, ..Default::default() };
        // SAFETY: waited for below.
        let (request, _batch) = unsafe { start_data(&ws, attr, &c, &mut bytes, false) };
        while is_readable(fd, 50) {
            assert!(session.poll_completed(4, 0).unwrap().is_empty(), "nobody has taken it yet");
        }
        signal(pid, "CONT");
        let mut done = session.poll_completed(4, 0).unwrap();
        while done.is_empty() {
            assert!(is_readable(fd, 30_000), "nobody told of the room, round {round}");
            done = session.poll_completed(4, 0).unwrap();
        }
        assert!(request.is_done() && crate::kit::read(&c) == bytes);
        // It is quiet again.
        while is_readable(fd, 50) {
            assert!(session.poll_completed(4, 0).unwrap().is_empty());
        }
    }
}

#[test]
fn g1_requests_that_start_together_share_what_they_ask_for() {
    let store = Store::new();
    let ws = store.in_workspace();
    for durable in [false, true] {
        let c = create(&ws, &format!("{durable}"), if durable { "persistence=durable" } else { "" });
        let mut bytes = vec![5; 40 << 20];
        ioverbs::write_at(&c, 0, &bytes).unwrap();
        ioverbs::close(&c).unwrap();
        let ws = store.again();
        let c = lookup(&ws, &format!("{durable}"));
        let counters = ws.session().counters();
        let before = counters.grants.load(std::sync::atomic::Ordering::Relaxed);
        let trips = counters.round_trips.load(std::sync::atomic::Ordering::Relaxed);
        bytes.fill(0);
        let started: Vec<_> = (0..40)
            .map(|i| {
                let mut batch =
                    Batch::new(ws.session(), BatchAttr { drive: Drive::Caller, ..Default::default() }).unwrap();
                let piece = &mut bytes[i << 20..][..1 << 20];
                // SAFETY: waited for below.
                let memory = unsafe { ioverbs::Memory::writable(piece.as_mut_ptr(), piece.len()) };
                batch.push(Op::Read { c: c.clone(), chunks: vec![((i as u64) << 20, memory)] }).unwrap();
                (batch.start().unwrap(), batch)
            })
            .collect();
        // Each asks before any is answered.
        started.iter().for_each(|(request, _)| drop(request.test()));
        started.iter().rev().for_each(|(request, _)| request.wait(-1).unwrap());
        assert!(bytes.iter().all(|byte| *byte == 5));
        let counters = ws.session().counters();
        assert_eq!(counters.grants.load(std::sync::atomic::Ordering::Relaxed) - before, 1, "durable: {durable}");
        let trips = counters.round_trips.load(std::sync::atomic::Ordering::Relaxed) - trips;
        assert!(trips <= 1 + 3, "{trips} requests: a grant, and checksums of three times 16 MiB at most");
    }
}

#[test]
fn o8_starting_does_not_wait_for_a_daemon_that_takes_no_requests() {
    let store = Store::new();
    let ws = store.in_workspace();
    let c = create(&ws, "c", "");
    let pid = store.status("pid").unwrap() as u32;
    signal(pid, "STOP");
    let begun = Instant::now();
    // Ten times what a socket holds.
    let started: Vec<_> = (0..2000i64)
        .map(|i| {
            let mut pairs = ioverbs::Metadata::new();
            pairs.set("number", ioverbs::Value::I64(i)).unwrap();
            pairs.set("text", ioverbs::Value::Str("x".repeat(1000))).unwrap();
            let mut batch = Batch::new(ws.session(), BatchAttr::default()).unwrap();
            batch.push(Op::MetaPut { c: c.clone(), pairs }).unwrap();
            batch.start().unwrap()
        })
        .collect();
    let took = begun.elapsed();
    let mut one = vec![0; 1 << 20];
    let attr = ioverbs::BatchAttr { deadline_ns: 1_000_000_000, ..Default::default() };
    let late =
        crate::kit::batch(ws.session(), attr, vec![ioverbs::Lent::Write { c: c.clone(), offset: 0, data: &one }]);
    signal(pid, "CONT");
    assert!(took < Duration::from_secs(25), "half the deadline: {took:?}");
    assert_eq!(late.unwrap_err().kind(), ioverbs::Kind::Timeout, "who has bytes to send waits, until the deadline");
    for request in started {
        request.wait(-1).unwrap();
    }
    let metadata = ioverbs::run(ws.session(), Op::MetaList { c: c.clone() }).unwrap();
    assert!(format!("{metadata:?}").contains("1999"), "in order: {metadata:?}");
    one.fill(3);
    ioverbs::write_at(&c, 0, &one).unwrap();
    assert_eq!(crate::kit::read(&c), one);
}

#[test]
fn o8_who_is_late_takes_nobody_else_along() {
    let store = Store::new();
    let ws = store.in_workspace();
    let c = create(&ws, "c", "");
    store.kill();
    let _daemon = store.daemon(&[], &[]);
    let serving = store.serving();
    signal(serving, "STOP");
    let stat = |deadline_ns| {
        let mut batch = Batch::new(ws.session(), BatchAttr { deadline_ns, ..Default::default() }).unwrap();
        batch.push(Op::Stat { c: c.clone() }).unwrap();
        (batch.start().unwrap(), batch)
    };
    let (early, _early) = stat(1_000_000_000);
    std::thread::sleep(Duration::from_millis(800));
    let (other, _other) = stat(60_000_000_000);
    let late = early.wait(-1).unwrap_err();
    std::thread::sleep(Duration::from_millis(500));
    signal(serving, "CONT");
    assert_eq!(late.kind(), ioverbs::Kind::Partial, "{late}");
    other.wait(-1).unwrap();
}

#[test]
fn o8_a_write_that_is_late_does_not_cost_the_session_what_it_holds() {
    let store = Store::new();
    store.in_workspace();
    // All bytes go over the socket.
    let attr = ioverbs::SessionAttr { nodirect: true, ..Default::default() };
    let session = ioverbs::open(Some(&store.url()), attr).unwrap();
    let ws = session.load_workspace(ioverbs::Which::parse("w").unwrap()).unwrap();
    let published = create(&ws, "published", "atomicity=publication");
    ioverbs::write_at(&published, 0, b"not public yet").unwrap();
    let held = create(&ws, "held", "concurrency=exclusive");
    let c = create(&ws, "c", "");
    ioverbs::write_at(&c, 0, &vec![1; 6 << 20]).unwrap();
    let pid = store.status("pid").unwrap() as u32;
    signal(pid, "STOP");
    let mut bytes = vec![2; 6 << 20];
    let meanwhile = std::sync::Mutex::new(Vec::new());
    for _ in 0..2 {
        // The first is cut off in its middle, the second before its beginning.
        let attr = BatchAttr { deadline_ns: 1_000_000_000, ..Default::default() };
        let write = vec![ioverbs::Lent::Write { c: c.clone(), offset: 0, data: &bytes }];
        let late = std::thread::scope(|scope| {
            // What others ask meanwhile comes behind it, and is answered.
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(300));
                let mut batch = stats(&ws, &c, Drive::Auto);
                meanwhile.lock().unwrap().push((batch.start().unwrap(), batch));
            });
            crate::kit::batch(&session, attr, write).unwrap_err()
        });
        assert_eq!(late.kind(), ioverbs::Kind::Timeout, "{late}");
    }
    // Nobody looks at it any more.
    bytes.fill(9);
    signal(pid, "CONT");
    meanwhile.into_inner().unwrap().iter().for_each(|(request, _)| request.wait(-1).unwrap());
    ioverbs::commit(&published).unwrap();
    ioverbs::write_at(&held, 0, b"still mine").unwrap();
    let seen = crate::kit::read(&c);
    assert!(seen.iter().all(|byte| *byte <= 2) && seen.len() == 6 << 20, "old or new");
    assert_eq!(crate::kit::read(&lookup(&store.again(), "published")), b"not public yet");
    ioverbs::write_at(&c, 0, &bytes).unwrap();
    assert_eq!(crate::kit::read(&c), bytes);
    assert_eq!(session.counters().retries.load(std::sync::atomic::Ordering::Relaxed), 0, "over the same connection");
}
