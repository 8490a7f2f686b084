//! A daemon ends while clients have things open: they go on (P2, X1, O10).

use ioverbs::{Kind, Metadata, Op, Value};

use crate::kit::{Peer, Store, controls, create, has_ended, lookup, read, signal, wait_until};

/// What a client does before and after the daemon ended.
fn goes_on(store: &Store, size: usize, end: impl Fn(&Store)) {
    let ws = store.in_workspace();
    let c = create(&ws, "a", "");
    let other = create(&ws, "left alone", "");
    for _ in 0..3 {
        ioverbs::write_at(&c, 0, &vec![1; size]).unwrap();
    }
    end(store);
    ioverbs::write_at(&c, size as u64, &vec![2; size]).unwrap();
    let mut buf = vec![0; 2 * size];
    assert_eq!(ioverbs::read_at(&c, 0, &mut buf).unwrap(), 2 * size);
    assert!(buf[..size].iter().all(|b| *b == 1) && buf[size..].iter().all(|b| *b == 2));
    end(store);
    let mut pairs = Metadata::new();
    pairs.set("k", Value::I64(7)).unwrap();
    ioverbs::run(ws.session(), Op::MetaPut { c: c.clone(), pairs }).unwrap();
    end(store);
    let new = create(&ws, "b", "");
    assert_eq!(ioverbs::append(&new, b"record").unwrap(), 0);
    assert_eq!(ioverbs::stat(&c).unwrap().bytes, 2 * size as u64);
    end(store);
    ioverbs::close(&c).unwrap();
    end(store);
    ioverbs::close(&new).unwrap();
    ioverbs::close(&other).unwrap();

    let ws = store.again();
    assert_eq!(read(&lookup(&ws, "a")).len(), 2 * size);
    assert_eq!(read(&lookup(&ws, "b")), b"record");
}

#[test]
fn p2_a_client_goes_on_after_sigkill_of_the_daemon() {
    goes_on(&Store::new(), 1000, Store::kill);
}

#[test]
fn p2_a_client_with_grants_goes_on_after_sigkill_of_the_daemon() {
    goes_on(&Store::new(), 1 << 20, Store::kill);
}

#[test]
fn p2_a_client_goes_on_when_the_daemon_was_told_to_end() {
    goes_on(&Store::new(), 1000, |store| {
        assert!(ioverbs::daemon_shutdown(&store.url()).unwrap());
    });
}

#[test]
fn o10_what_was_deleted_while_open_can_be_used_after_a_restart() {
    let store = Store::new();
    let ws = store.in_workspace();
    let c = create(&ws, "a", "");
    ioverbs::write_at(&c, 0, b"12345").unwrap();
    let which = ioverbs::Which::parse("a").unwrap();
    ioverbs::run(ws.session(), Op::Delete { w: ws.clone(), parent: None, which }).unwrap();
    store.kill();
    ioverbs::write_at(&c, 5, b"6").unwrap();
    assert_eq!(read(&c), b"123456");
    ioverbs::close(&c).unwrap();
    let stat = ioverbs::run(ws.session(), Op::WorkspaceStat { w: ws.clone() }).unwrap();
    let ioverbs::Output::Stat(stat) = stat.output else { panic!() };
    assert_eq!((stat.entries, stat.bytes), (0, 0));
}

#[test]
fn x1_a_holder_goes_on_and_keeps_others_out() {
    let store = Store::new();
    let ws = store.in_workspace();
    let c = create(&ws, "held", "concurrency=exclusive");
    ioverbs::write_at(&c, 0, b"one").unwrap();
    store.kill();
    let others = store.again();
    let busy = ioverbs::lookup(&others, None, "held", Default::default()).err().unwrap();
    assert_eq!((busy.kind(), busy.clause()), (Kind::Busy, Some(ioverbs::Clause::X1)), "{busy}");
    ioverbs::write_at(&c, 3, b"two").unwrap();
    let busy = ioverbs::lookup(&others, None, "held", Default::default()).err().unwrap();
    assert_eq!(busy.kind(), Kind::Busy, "{busy}");
    ioverbs::close(&c).unwrap();
    assert_eq!(read(&lookup(&others, "held")), b"onetwo");
}

/// Locks the first ten bytes exclusively, or fails.
pub(crate) fn try_lock(c: &ioverbs::Collection) -> ioverbs::Result<()> {
    ioverbs::run(c.session(), Op::Lock { c: c.clone(), lock: ten_bytes() }).map(drop)
}

fn ten_bytes() -> ioverbs::catalog::LockSpec {
    let range = ioverbs::Range { offset: 0, len: 10 };
    ioverbs::catalog::LockSpec { exclusive: true, try_only: true, range, owner: 0, lease_ns: 0 }
}

#[test]
fn o11_a_lock_outlasts_the_end_of_the_daemon() {
    let store = Store::new();
    let ws = store.in_workspace();
    let c = create(&ws, "locked", "");
    ioverbs::write_at(&c, 0, b"one").unwrap();
    try_lock(&c).unwrap();
    store.kill();
    let other = lookup(&store.again(), "locked");
    let busy = try_lock(&other).unwrap_err();
    assert_eq!((busy.kind(), busy.clause()), (Kind::Busy, Some(ioverbs::Clause::O11)), "{busy}");
    ioverbs::write_at(&c, 3, b"two").unwrap();
    let busy = try_lock(&other).unwrap_err();
    assert_eq!((busy.kind(), busy.clause()), (Kind::Busy, Some(ioverbs::Clause::O11)), "{busy}");
    try_lock(&c).unwrap();
    store.kill();
    ioverbs::run(c.session(), Op::Unlock { c: c.clone(), lock: ten_bytes() }).unwrap();
    try_lock(&other).unwrap();
    let busy = try_lock(&c).unwrap_err();
    assert_eq!(busy.kind(), Kind::Busy, "{busy}");
    ioverbs::close(&other).unwrap();
    drop(other);
    store.kill();
    // Nobody is left who could come back with another.
    try_lock(&c).unwrap();
    ioverbs::close(&c).unwrap();
}

#[test]
fn o11_an_owner_that_slept_through_its_lease_and_a_restart_hears_that_its_lock_is_gone() {
    let store = Store::new();
    let lease = ["--lease-ms", "700"];
    let daemon = store.daemon(&lease, &[]);
    let ws = store.in_workspace();
    ioverbs::close(&create(&ws, "locked", "")).unwrap();
    let mut owner = Peer::start("locks and writes", &store);
    assert_eq!(owner.hear(), "written");
    signal(owner.pid(), "STOP");
    daemon.kill();
    let _daemon = store.daemon(&lease, &[]);
    let next = lookup(&store.again(), "locked");
    wait_until("the end of the lease", || try_lock(&next).is_ok());
    signal(owner.pid(), "CONT");
    owner.tell("write");
    assert_eq!(owner.hear(), "Fenced Some(O11)");
    owner.tell("close");
    assert_eq!(owner.hear(), "closed");
    ioverbs::close(&next).unwrap();
}

#[test]
fn x1_a_holder_that_slept_through_its_lease_and_a_restart_is_fenced() {
    let store = Store::new();
    let lease = ["--lease-ms", "700"];
    let daemon = store.daemon(&lease, &[]);
    let ws = store.in_workspace();
    ioverbs::close(&create(&ws, "held", "")).unwrap();
    let mut holder = Peer::start("holds and writes", &store);
    assert_eq!(holder.hear(), "written");
    signal(holder.pid(), "STOP");
    daemon.kill();
    let _daemon = store.daemon(&lease, &[]);
    let ws = store.again();
    let mut next = None;
    wait_until("the end of the lease", || {
        next = ioverbs::lookup(&ws, None, "held", controls("concurrency=exclusive")).ok();
        next.is_some()
    });
    let next = next.unwrap();
    ioverbs::write_at(&next, 0, b"the next one").unwrap();
    signal(holder.pid(), "CONT");
    holder.tell("write");
    assert_eq!(holder.hear(), "Fenced Some(X1)");
    holder.tell("close");
    assert_eq!(holder.hear(), "Fenced");
    assert_eq!(read(&next), b"the next one");
    ioverbs::close(&next).unwrap();
}

#[test]
fn x1_the_lease_is_the_daemons_and_is_renewed_in_time() {
    let store = Store::new();
    let _daemon = store.daemon(&["--lease-ms", "600"], &[]);
    let ws = store.in_workspace();
    ioverbs::close(&create(&ws, "held", "")).unwrap();
    let c = ioverbs::lookup(&ws, None, "held", controls("concurrency=exclusive")).unwrap();
    let renewals = || {
        let at = ioverbs::Counters::NAMES.iter().position(|n| *n == "lease_renewals").unwrap();
        ws.session().counters().snapshot()[at]
    };
    wait_until("a few leases' time", || renewals() >= 8);
    let others = store.again();
    let busy = ioverbs::lookup(&others, None, "held", controls("concurrency=exclusive")).err().unwrap();
    assert_eq!(busy.kind(), Kind::Busy);
    ioverbs::write_at(&c, 0, b"still").unwrap();
    ioverbs::close(&c).unwrap();
}

#[test]
fn m2_what_a_writer_left_unsealed_when_it_died_with_the_daemon_is_its_owners() {
    let store = Store::new();
    let ws = store.in_workspace();
    let mut writer = Peer::start("leaves unsealed", &store);
    assert_eq!(writer.hear(), "written");
    store.kill();
    writer.kill();
    drop(ws);
    let ws = store.again();
    let c = lookup(&ws, "unsealed");
    assert_eq!(ioverbs::stat(&c).unwrap().state, Some(ioverbs::State::Staging));
    ioverbs::write_at(&c, 4, b" whole").unwrap();
    ioverbs::run(ws.session(), Op::Seal { c: c.clone() }).unwrap();
    assert_eq!(ioverbs::write_at(&c, 0, b"x").unwrap_err().kind(), Kind::Immutable);
    assert_eq!(read(&c), b"half whole");
    ioverbs::close(&c).unwrap();
}

#[test]
fn o8_nothing_outlives_its_deadline_while_the_daemon_is_stopped() {
    let store = Store::new();
    let attr = ioverbs::SessionAttr { deadline_ns: 1_000_000_000, ..Default::default() };
    store.in_workspace();
    let pid = store.status("pid").unwrap() as u32;
    for asked in ["persistence=durable,point=explicit", "atomicity=publication", "atomicity=unit", ""] {
        let session = ioverbs::open(Some(&store.url()), attr.clone()).unwrap();
        let ws = session.load_workspace(ioverbs::Which::parse("w").unwrap()).unwrap();
        let c = create(&ws, &format!("c {asked}"), asked);
        let bytes = vec![7; 6 << 20];
        ioverbs::write_at(&c, 0, &bytes).unwrap();
        ioverbs::commit(&c).unwrap();
        signal(pid, "STOP");
        let mut buffer = vec![0; bytes.len()];
        let begun = std::time::Instant::now();
        // Larger than what a socket holds: it cannot even be sent.
        let _ = ioverbs::write_at(&c, 0, &bytes);
        let _ = ioverbs::read_at(&c, 0, &mut buffer);
        let persisted = ioverbs::run(&session, Op::Persist { c: c.clone() });
        let cut = ioverbs::run(&session, Op::Truncate { c: c.clone(), size: 100 });
        let took = begun.elapsed();
        signal(pid, "CONT");
        assert_eq!(cut.unwrap_err().kind(), Kind::Timeout, "{asked}");
        assert!(!asked.contains("durable") || persisted.unwrap_err().kind() == Kind::Timeout, "{asked}");
        assert!(took.as_secs() < 40, "{asked}: four calls of a second took {took:?}");
        // It goes on where the daemon does.
        wait_until("an answer", || ioverbs::write_at(&c, 0, b"again").is_ok());
        assert_eq!(&read(&c)[..5], b"again", "{asked}");
    }
}

/// Threads of the library keep signals away from the program's handlers, and start daemons.
#[test]
fn a_daemon_hears_of_signals_whoever_has_started_it() {
    let (sender, receiver) = std::sync::mpsc::channel();
    ioverbs::seam::spawn("starts", move || {
        let store = Store::new();
        let daemon = store.daemon(&[], &[]);
        sender.send((store, daemon)).unwrap();
    })
    .unwrap();
    let (_store, daemon) = receiver.recv().unwrap();
    signal(daemon.pid(), "TERM");
    wait_until("its end", || has_ended(daemon.pid()));
}
