//! Connections that break, lead nowhere, or bring other bytes than were sent.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Instant,
};

use iov_net::secret::Secret;
use iov_wire::{Verb, messages::Hello};
use ioverbs::{Clause, Kind, Lent, Op, SessionAttr, open, seam};

use super::*;
use crate::{
    kit::{Peer, batch, controls, create, lookup, read, signal, wait_until},
    raw,
    restart::try_lock,
};

#[test]
fn x1_a_session_goes_on_when_its_connections_break() {
    let net = Net::new();
    let cable = net.cable();
    let ws = net.through(&cable);
    let held = create(&ws, "held", "concurrency=exclusive");
    let staged = create(&ws, "staged", "atomicity=publication");
    let locked = create(&ws, "locked", "");
    ioverbs::write_at(&held, 0, &pattern(1, 300_000)).unwrap();
    ioverbs::write_at(&staged, 0, &pattern(2, 300_000)).unwrap();
    ioverbs::write_at(&locked, 0, b"locked").unwrap();
    try_lock(&locked).unwrap();
    for round in 0..5u64 {
        cable.cut();
        let there = net.workspace();
        let busy = ioverbs::lookup(&there, None, "held", Default::default()).err().unwrap();
        assert_eq!((busy.kind(), busy.clause()), (Kind::Busy, Some(Clause::X1)), "{busy}");
        let busy = try_lock(&lookup(&there, "locked")).unwrap_err();
        assert_eq!((busy.kind(), busy.clause()), (Kind::Busy, Some(Clause::O11)), "{busy}");
        ioverbs::write_at(&held, (round + 1) * 300_000, &pattern(round, 300_000)).unwrap();
        ioverbs::write_at(&staged, (round + 1) * 300_000, &pattern(round, 300_000)).unwrap();
    }
    let there = net.workspace();
    assert_eq!(ioverbs::stat(&lookup(&there, "staged")).unwrap().bytes, 0, "nothing is committed");
    cable.cut();
    ioverbs::commit(&staged).unwrap();
    cable.cut();
    ioverbs::close(&held).unwrap();
    for (name, first) in [("held", 1), ("staged", 2)] {
        let bytes = read(&lookup(&there, name));
        let seeds = std::iter::once(first).chain(0..5);
        assert_eq!(bytes.len(), 1_800_000, "{name}");
        for (piece, seed) in bytes.chunks(300_000).zip(seeds) {
            assert!(piece == pattern(seed, 300_000), "{name}");
        }
    }
    cable.cut();
    ioverbs::close(&locked).unwrap();
    try_lock(&lookup(&there, "locked")).unwrap();
}

#[test]
fn p2_a_large_transfer_goes_on_when_its_connection_breaks_within_it() {
    let net = Net::new();
    let cable = net.cable();
    let ws = net.through(&cable);
    let c = create(&ws, "large", "concurrency=exclusive");
    let bytes = pattern(5, 24 << 20);
    ioverbs::write_at(&c, 0, &bytes).unwrap();
    for at in [100_000u64, 3 << 20, 11 << 20] {
        cable.cut_after(at);
        ioverbs::write_at(&c, 0, &bytes).unwrap();
        assert!(cable.was_cut(), "in the middle of a write");
        cable.cut_after(at);
        let mut got = vec![0; bytes.len()];
        assert_eq!(ioverbs::read_at(&c, 0, &mut got).unwrap(), got.len());
        assert!(cable.was_cut() && got == bytes);
    }
    // What others may have written meanwhile is not written twice: it is told that nobody knows.
    let shared = create(&ws, "shared", "");
    cable.cut_after(5 << 20);
    let e = ioverbs::write_at(&shared, 0, &bytes).unwrap_err();
    assert_eq!((e.kind(), e.outcome()), (Kind::Unavailable, ioverbs::Outcome::Unknown), "{e}");
    ioverbs::write_at(&shared, 0, &bytes).unwrap();
    let mut got = vec![0; bytes.len()];
    ioverbs::read_at(&lookup(&net.workspace(), "shared"), 0, &mut got).unwrap();
    assert!(got == bytes);
}

#[test]
fn p2_clients_over_a_network_go_on_after_sigkill_of_the_daemon() {
    let mut net = Net::new();
    let ws = net.workspace();
    let held = create(&ws, "held", "concurrency=exclusive");
    let staged = create(&ws, "staged", "atomicity=publication");
    let shared = create(&ws, "shared", "");
    ioverbs::write_at(&held, 0, b"one").unwrap();
    ioverbs::write_at(&staged, 0, b"one").unwrap();
    for _ in 0..2 {
        match net.daemon.take() {
            Some(daemon) => daemon.kill(),
            None => net.store.kill(),
        }
        // The next one is started by whoever uses the store on its host.
        let there = net.store.again();
        let busy = ioverbs::lookup(&there, None, "held", Default::default()).err().unwrap();
        assert_eq!((busy.kind(), busy.clause()), (Kind::Busy, Some(Clause::X1)), "{busy}");
        ioverbs::write_at(&held, 3, b"two").unwrap();
        ioverbs::write_at(&staged, 3, b"two").unwrap();
        // That the daemon is gone is seen before anything is sent to it.
        ioverbs::write_at(&shared, 0, b"shared").unwrap();
    }
    ioverbs::commit(&staged).unwrap();
    ioverbs::close(&held).unwrap();
    let there = net.store.again();
    assert_eq!(read(&lookup(&there, "held")), b"onetwo");
    assert_eq!(read(&lookup(&there, "staged")), b"onetwo");
}

#[test]
fn o8_nothing_outlives_its_deadline_when_the_network_leads_nowhere() {
    let net = Net::new();
    let cable = net.cable();
    let url = net.url_at(&format!("127.0.0.1:{}", cable.port));
    let attr = SessionAttr { deadline_ns: 1_000_000_000, ..SessionAttr::default() };
    let ws = workspace(&open(Some(&url), attr.clone()).unwrap());
    let c = create(&ws, "c", "");
    let bytes = pattern(1, 12 << 20);
    ioverbs::write_at(&c, 0, &bytes).unwrap();
    cable.hold(true);
    let begun = Instant::now();
    let mut buffer = vec![0; bytes.len()];
    let calls = [
        ioverbs::write_at(&c, 0, &bytes).unwrap_err(),
        ioverbs::read_at(&c, 0, &mut buffer).unwrap_err(),
        ioverbs::stat(&c).err().unwrap(),
        ioverbs::create(&ws, None, Some("d"), Default::default(), Default::default()).err().unwrap(),
        open(Some(&url), attr).err().unwrap(),
    ];
    let took = begun.elapsed();
    for e in &calls {
        assert!(matches!(e.kind(), Kind::Timeout | Kind::Unavailable), "{e}");
    }
    assert!(took.as_secs() < 40, "five calls of a second took {took:?}");
    cable.hold(false);
    wait_until("it goes on", || ioverbs::write_at(&c, 0, &bytes).is_ok());
    ioverbs::read_at(&c, 0, &mut buffer).unwrap();
    assert!(buffer == bytes);
}

#[test]
fn i1_damage_on_the_wire_is_found_and_never_read() {
    let net = Net::new();
    let cable = net.cable();
    let ws = net.through(&cable);
    let c = create(&ws, "c", "concurrency=exclusive");
    let good = pattern(1, 3 << 20);
    ioverbs::write_at(&c, 0, &good).unwrap();
    let (mut damaged, mut right) = (0, 0);
    for every in [3, 5, 7, 11, 40, 100, 300] {
        cable.damage_every(every);
        for _ in 0..6 {
            let mut got = vec![0; good.len()];
            match ioverbs::read_at(&c, 0, &mut got) {
                Ok(n) => {
                    assert!(n == good.len() && got == good, "other bytes than were written");
                    right += 1;
                }
                Err(e) => {
                    assert!(matches!(e.kind(), Kind::Corrupt | Kind::Unavailable | Kind::Timeout), "{e}");
                    damaged += 1;
                }
            }
            if let Err(e) = ioverbs::write_at(&c, 0, &good) {
                assert!(matches!(e.kind(), Kind::Corrupt | Kind::Unavailable | Kind::Timeout), "{e}");
                damaged += 1;
            }
        }
    }
    assert!(damaged > 0, "some of it was damaged");
    cable.damage_every(0);
    let mut got = vec![0; good.len()];
    wait_until("it goes on", || ioverbs::read_at(&c, 0, &mut got).is_ok());
    assert!(got == good, "damaged bytes were never stored ({right} reads were right before)");
}

#[test]
fn a_node_is_reached_by_another_of_its_addresses() {
    let store = crate::kit::Store::new();
    let daemon = store.daemon(&["--listen", "127.0.0.1:0,127.0.0.2:0"], &[]);
    let all = addresses(&store);
    assert_eq!(all.len(), 2);
    store.in_workspace();
    let net = Net { daemon: Some(daemon), store, address: all[0].clone() };
    let (one, two) = (Cable::to(&all[0]), Cable::to(&all[1]));
    // The first leads nowhere from the beginning.
    let url = format!("127.0.0.1:1,127.0.0.1:{},127.0.0.1:{}", one.port, two.port);
    let ws = workspace(&net.open(&net.url_at(&url)).unwrap());
    let c = create(&ws, "c", "concurrency=exclusive");
    let bytes = pattern(1, 4 << 20);
    ioverbs::write_at(&c, 0, &bytes).unwrap();
    assert!(one.passed() > 4 << 20 && two.passed() == 0, "the best first");
    one.unplug();
    ioverbs::write_at(&c, 0, &pattern(2, 4 << 20)).unwrap();
    // By the second, or on a slow machine by one that the daemon has told of, which no cable counts.
    assert!(read(&c) == pattern(2, 4 << 20));
    ioverbs::close(&c).unwrap();
    // One that the daemon has told of, and nobody else.
    let only = net.cable();
    let ws = net.through(&only);
    let c = create(&ws, "d", "concurrency=exclusive");
    only.unplug();
    ioverbs::write_at(&c, 0, &bytes).unwrap();
    assert!(read(&c) == bytes);
}

#[test]
fn x1_a_client_that_is_gone_loses_what_it_holds_with_its_lease() {
    let net = Net::with(&["--lease-ms", "1500"]);
    let cable = net.cable();
    let url = net.url_at(&format!("127.0.0.1:{}", cable.port));
    let mut gone = Peer::start_with("holds over the network", &net.store, &[("IOV_TEST_URL", &url)]);
    assert_eq!(gone.hear(), "holds");
    // As when its machine fails: nothing comes of it any more, not even that it has ended.
    cable.hold(true);
    gone.kill();
    cable.unplug();
    let there = net.workspace();
    let busy = ioverbs::lookup(&there, None, "held", Default::default()).err().unwrap();
    assert_eq!((busy.kind(), busy.clause()), (Kind::Busy, Some(Clause::X1)), "{busy}");
    wait_until("its lease is over", || ioverbs::lookup(&there, None, "held", Default::default()).is_ok());
    wait_until("its session is forgotten", || net.store.status("sessions") == Some(2));
}

/// Nobody has to wait for the lease of what the daemon itself ends with it.
#[test]
fn x1_a_client_of_several_targets_that_ends_in_order_leaves_nothing() {
    let net = Net::with(&["--storage", "files", "--storage", "files"]);
    let secret = Secret::load(&net.secret()).unwrap();
    let of = seam::new_uuid();
    let main = raw::hello(of, 0);
    let second = Hello { target: 1, of, ..raw::hello(seam::new_uuid(), 0) };
    let [(main, _), (_second, verb)] = [main, second].map(|hello| raw::prove(&net.address, &hello, &secret));
    assert_eq!(verb, Verb::Welcome);
    assert_eq!(net.store.status("sessions"), Some(2), "it, and who asks");
    let begun = Instant::now();
    drop(main);
    wait_until("its end", || net.store.status("sessions") == Some(1));
    assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
}

#[test]
fn o8_a_daemon_that_stands_still_holds_nobody_beyond_his_deadline() {
    let net = Net::new();
    let attr = SessionAttr { deadline_ns: 1_000_000_000, ..SessionAttr::default() };
    let ws = workspace(&open(Some(&net.url()), attr).unwrap());
    let c = create(&ws, "c", "");
    ioverbs::write_at(&c, 0, b"one").unwrap();
    let pid = net.daemon.as_ref().unwrap().pid();
    signal(pid, "STOP");
    let begun = Instant::now();
    let stuck = ioverbs::write_at(&c, 0, &pattern(1, 8 << 20)).unwrap_err();
    let cut = ioverbs::run(ws.session(), Op::Truncate { c: c.clone(), size: 1 }).unwrap_err();
    let took = begun.elapsed();
    signal(pid, "CONT");
    assert_eq!((stuck.kind(), cut.kind()), (Kind::Timeout, Kind::Timeout));
    assert!(took.as_secs() < 20, "{took:?}");
    wait_until("it goes on", || ioverbs::write_at(&c, 0, b"two").is_ok());
}

/// Wherever within a request and its answer the connection breaks, the session goes on with what it has: no more, and no less.
#[test]
fn x1_holds_and_handles_outlast_breaks_within_requests_for_facts() {
    let net = Net::new();
    let cable = net.cable();
    let ws = net.through(&cable);
    let there = net.workspace();
    let held = create(&ws, "held", "concurrency=exclusive");
    let twice = create(&ws, "twice", "concurrency=exclusive");
    ioverbs::write_at(&held, 0, b"held").unwrap();
    let mut broke = 0;
    for i in 0..60u64 {
        cable.cut_after(60 + i * 97 % 1900);
        // Opened and closed again, whatever became of the first try.
        let again = lookup(&ws, "twice");
        ioverbs::close(&again).unwrap();
        let other =
            ioverbs::create(&ws, None, Some(&format!("n{i}")), Default::default(), controls("concurrency=exclusive"));
        if let Ok(other) = other {
            ioverbs::close(&other).unwrap();
        }
        broke += u64::from(cable.was_cut());
        for name in ["held", "twice"] {
            let busy = ioverbs::lookup(&there, None, name, Default::default()).err().unwrap();
            assert_eq!((busy.kind(), busy.clause()), (Kind::Busy, Some(Clause::X1)), "round {i}, {name}: {busy}");
        }
    }
    assert!(broke > 20, "{broke} breaks");
    cable.cut_after(u64::MAX / 2);
    ioverbs::close(&twice).unwrap();
    ioverbs::close(&held).unwrap();
    for name in ["held", "twice"] {
        ioverbs::close(&lookup(&there, name)).unwrap();
    }
    assert_eq!(read(&lookup(&there, "held")), b"held");
}

/// What one batch writes to the same place has an order, and keeps it wherever the connection breaks.
#[test]
fn o9_writes_to_one_place_keep_their_order_through_breaks() {
    let net = Net::new();
    let cable = net.cable();
    let ws = net.through(&cable);
    let c = create(&ws, "c", "concurrency=exclusive");
    let mut broke = 0;
    for round in 0..20u64 {
        let all: Vec<Vec<u8>> = (0..24).map(|n| vec![(round * 24 + n) as u8; 300_000]).collect();
        let writes = all.iter().map(|data| Lent::Write { c: c.clone(), offset: 0, data }).collect();
        cable.cut_after(10_000 + round * 350_000);
        batch(ws.session(), Default::default(), writes).unwrap();
        broke += u64::from(cable.was_cut());
        let got = read(&c);
        assert!(got == all[23], "round {round}: {} instead of {}", got[0], all[23][0]);
    }
    assert!(broke > 10, "{broke} breaks");
}

/// The same where connections break again and again, also just as what was under way is sent again.
#[test]
fn o9_writes_to_one_place_keep_their_order_however_often_connections_break() {
    let net = Net::new();
    let cable = net.cable();
    let ws = net.through(&cable);
    let c = create(&ws, "c", "concurrency=exclusive");
    let other = create(&ws, "other", "");
    ioverbs::write_at(&other, 0, &[1; 8]).unwrap();
    let (mut ended, rounds) = (0, 60u64);
    for round in 0..rounds {
        let all: Vec<Vec<u8>> = (0..24).map(|n| vec![(round * 24 + n) as u8; 30_000]).collect();
        let writes = all.iter().map(|data| Lent::Write { c: c.clone(), offset: 0, data }).collect();
        let cuts = (0..4).map(|n| 200 + (round * 97 + n * 613) % 1500);
        let ends = AtomicBool::new(false);
        let written = std::thread::scope(|scope| {
            scope.spawn(|| {
                for us in cuts {
                    std::thread::sleep(std::time::Duration::from_micros(us));
                    cable.cut();
                }
            });
            // Another thread that waits for answers finds out that they break, too.
            scope.spawn(|| {
                while !ends.load(Ordering::SeqCst) {
                    let _ = ioverbs::read_at(&other, 0, &mut [0; 8]);
                }
            });
            let written = batch(ws.session(), Default::default(), writes);
            ends.store(true, Ordering::SeqCst);
            written
        });
        // Who has been sent again too often ends.
        ended += u64::from(written.is_ok());
        let got = read(&c);
        assert!(written.is_err() || got == all[23], "round {round}: {} instead of {}", got[0], all[23][0]);
    }
    assert!(ended > rounds / 2, "{ended} ended");
}

#[test]
fn o8_a_close_that_nobody_waits_for_hides_no_broken_connection() {
    let net = Net::new();
    let cable = net.cable();
    let fs = iov_posix::FileSystem::new(net.through(&cable), Default::default());
    let who = iov_posix::Who { uid: 0, gid: 0 };
    let born = iov_posix::Create { mode: 0o644, umask: 0, who };
    for round in 0..10 {
        let write = iov_posix::Flags { write: true, ..Default::default() };
        let (file, node, _) = fs.create(&fs.root(), b"file", born, write).unwrap();
        file.write(0, b"some bytes").unwrap();
        file.finish().unwrap();
        // Its answer is taken by nobody.
        iov_posix::File::open(&node, Default::default()).unwrap().0.close().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        cable.cut();
        std::thread::sleep(std::time::Duration::from_millis(20));
        // What must not be done twice is not sent where it is known that nobody hears it.
        fs.unlink(&fs.root(), b"file").unwrap_or_else(|e| panic!("round {round}: {e:?}"));
    }
}
