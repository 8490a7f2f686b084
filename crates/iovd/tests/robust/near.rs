//! Direct access to what a daemon on the same host holds that has joined the store (SEMANTICS §2.6): its clients move the bytes
//! themselves, and everything holds as over a network.

use std::{
    io::Write,
    os::unix::net::{UnixListener, UnixStream},
    sync::atomic::Ordering,
};

use iov_types::{Place, Range};
use iov_wire::{
    Verb, Wire,
    messages::{Access, Fault, GrantAnswer, GrantRequest, Hello},
};
use ioverbs::{BatchAttr, Clause, Concurrency, Counters, Kind, Op, Session, seam, write_at};

use crate::{
    kit::{Peer, batch, lookup, read},
    members::{Two, bytes, on, workspace},
    raw,
};

const MIB: usize = 1 << 20;

fn moved(session: &Session) -> [u64; 3] {
    let Counters { bytes_direct, bytes_unix, bytes_tcp, .. } = session.counters();
    [bytes_direct, bytes_unix, bytes_tcp].map(|n| n.load(Ordering::Relaxed))
}

#[test]
fn bytes_of_a_target_on_this_host_are_moved_by_whoever_needs_them() {
    let two = Two::new(&["shmem:256MiB", "files"]);
    let ws = two.store.in_workspace();
    let data = bytes(1, 3 * MIB);
    for (name, targets) in [("memory", &[64][..]), ("file", &[65]), ("both", &[64, 65])] {
        // A file is made by the first write to it.
        let c = on(&ws, name, "", targets).unwrap();
        write_at(&c, 0, &[0; 4096]).unwrap();
        let before = moved(ws.session());
        write_at(&c, 0, &data).unwrap();
        let after = moved(ws.session());
        assert_eq!(after[0] - before[0], data.len() as u64, "{name}: {before:?} {after:?}");
        assert_eq!((after[1], after[2]), (before[1], before[2]), "{name}");
        // Others see them: another process of this host, one that is granted nothing, and who comes over the network.
        let reader = two.store.session();
        assert!(read(&lookup(&workspace(&reader), name)) == data, "{name}");
        assert!(
            moved(&reader)[0] >= data.len() as u64 - 20_000 && moved(&reader)[2] == 0,
            "{name}: {:?}",
            moved(&reader)
        );
        let near = two.by_network();
        assert!(read(&lookup(&workspace(&near), name)) == data, "{name}");
        assert_eq!(moved(&near)[2], 0, "{name}: only the catalog is far");
        let attr = ioverbs::SessionAttr { nodirect: true, ..Default::default() };
        let far = ioverbs::open(Some(&two.store.url()), attr).unwrap();
        assert!(read(&lookup(&workspace(&far), name)) == data, "{name}");
        assert_eq!(moved(&far), [0, 0, data.len() as u64], "{name}");
    }
    let memory = lookup(&ws, "memory");
    let view = memory.view(5, 100).unwrap();
    // SAFETY: the view pins them, and nobody writes meanwhile.
    assert!(unsafe { std::slice::from_raw_parts(view.as_ptr(), view.len()) } == &data[5..105]);
}

#[test]
fn m2_a_seal_takes_grants_back_at_another_daemon() {
    let two = Two::new(&["shmem:256MiB"]);
    let ws = two.store.in_workspace();
    let c = on(&ws, "c", "mutability=immutable", &[64]).unwrap();
    write_at(&c, 0, &bytes(1, MIB)).unwrap();
    write_at(&c, 0, &bytes(2, MIB)).unwrap();
    assert!(moved(ws.session())[0] > 0);
    let other = two.by_network();
    let sealed = lookup(&workspace(&other), "c");
    batch(&other, BatchAttr::default(), vec![Op::Seal { c: sealed.clone() }.into()]).unwrap();
    let e = write_at(&c, 0, &bytes(3, MIB)).expect_err("it is sealed");
    assert_eq!((e.kind(), e.clause()), (Kind::Immutable, Some(Clause::M2)), "{e}");
    assert!(read(&sealed) == bytes(2, MIB));
}

#[test]
fn x1_a_holder_that_is_gone_writes_nothing_by_a_grant() {
    let two = Two::new(&["files"]);
    let ws = two.store.in_workspace();
    let c = on(&ws, "c", "concurrency=exclusive", &[64]).unwrap();
    write_at(&c, 0, &bytes(1, MIB)).unwrap();
    write_at(&c, 0, &bytes(2, MIB)).unwrap();
    assert_eq!(c.effective().unwrap().concurrency, Concurrency::Exclusive);
    // Not closed: its session ends with it.
    drop((c, ws));
    let other = two.store.again();
    let c = lookup(&other, "c");
    assert!(read(&c) == bytes(2, MIB));
    write_at(&c, 0, &bytes(3, MIB)).unwrap();
    assert!(read(&c) == bytes(3, MIB));
}

#[test]
fn p2_what_was_written_by_a_grant_outlives_its_daemon_and_its_writer() {
    for storage in ["files", "shmem:256MiB"] {
        let mut two = Two::new(&[storage]);
        let ws = two.store.in_workspace();
        for round in 0..3 {
            let c = on(&ws, &format!("c{round}"), "", &[64]).unwrap();
            write_at(&c, 0, &vec![0; MIB]).unwrap();
            let mut peer = Peer::start("writes round after round", &two.store);
            peer.tell(&format!("c{round}"));
            let mut told: u64 = 0;
            while told < 3 {
                told = peer.hear().parse().unwrap();
            }
            two.other.take().unwrap().kill();
            if round == 1 {
                // Both at once.
                peer.kill();
                two.join();
            } else {
                two.join();
                // The writer goes on, by grants of the new daemon.
                let seen = told;
                while told < seen + 3 {
                    told = peer.hear().parse().unwrap();
                }
                peer.kill();
            }
            let there = read(&lookup(&two.store.again(), &format!("c{round}")));
            assert!(there.len() == MIB, "{storage}");
            // One that was told, or one behind it, and perhaps a part of the next, which was being copied.
            let rounds: Vec<u64> = there.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
            let (first, last) = (rounds.iter().min().unwrap(), rounds.iter().max().unwrap());
            assert!(*first >= told, "{storage}, round {round}: {told} was acknowledged, and there is {first}");
            assert!(last - first <= 1, "{storage}, round {round}: {first} to {last}");
        }
    }
}

/// In a child: overwrites a collection again and again, and tells each time that it is done.
pub(crate) fn writes_rounds(url: &str) {
    let session = ioverbs::open(Some(url), Default::default()).unwrap();
    let c = lookup(&workspace(&session), &crate::kit::listen());
    for round in 1..u64::MAX {
        write_at(&c, 0, &round.to_le_bytes().repeat(MIB / 8)).unwrap();
        crate::kit::say(&round.to_string());
    }
}

#[test]
fn a1_without_leave_of_the_catalog_nothing_is_granted() {
    let two = Two::new(&["files"]);
    let ws = two.store.in_workspace();
    let c = on(&ws, "c", "", &[64]).unwrap();
    write_at(&c, 0, &bytes(1, 1000)).unwrap();
    let object = Place::part(ioverbs::stat(&c).unwrap().uuid, 0);
    let mut stream = UnixStream::connect(two.member.dir().join("socket")).unwrap();
    let hello = Hello { target: 64, of: seam::new_uuid(), challenge: Vec::new(), ..raw::hello(seam::new_uuid(), 0) };
    stream.write_all(&raw::framed(&hello)).unwrap();
    assert_eq!(raw::answer(&mut stream).0, Verb::Welcome);
    let context = Default::default();
    let range = Range { offset: 0, len: 1000 };
    for (access, tickets) in
        [(Access::Read, Vec::new()), (Access::Write, Vec::new()), (Access::Read, vec![vec![7; 120]])]
    {
        let request = GrantRequest { context, object, range, access, epoch: 0, memory: false, anew: false, tickets };
        stream.write_all(&raw::framed_as(&request, 2)).unwrap();
        let (verb, body) = raw::answer(&mut stream);
        assert_eq!(verb, Verb::GrantAnswer);
        let GrantAnswer::Failed(e) = GrantAnswer::decode(&body).unwrap() else { panic!("it was granted") };
        assert_eq!((e.kind(), e.clause()), (Kind::Denied, Some(Clause::A1)), "{e}");
    }
}

#[test]
fn g6_where_another_answers_in_the_directory_it_goes_by_the_network() {
    let two = Two::new(&["files"]);
    let ws = two.store.in_workspace();
    let data = bytes(1, MIB);
    let c = on(&ws, "c", "", &[64]).unwrap();
    write_at(&c, 0, &data).unwrap();
    let (socket, away) = (two.member.dir().join("socket"), two.member.dir().join("away"));
    std::fs::rename(&socket, &away).unwrap();
    let listener = UnixListener::bind(&socket).unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            // Those who only look whether somebody is there say nothing.
            if raw::receive(&mut stream).is_some() {
                let error = ioverbs::Error::not_found("this daemon has no target 64");
                let _ = stream.write_all(&raw::framed(&Fault { error }));
            }
        }
    });
    let other = two.store.session();
    assert!(read(&lookup(&workspace(&other), "c")) == data);
    let [direct, _, tcp] = moved(&other);
    assert_eq!((direct, tcp), (0, MIB as u64));
    let routes: Vec<_> = other.routes().into_iter().map(|r| (r.target, r.by)).collect();
    assert_eq!(routes, [(0, "unix"), (64, "tcp")]);
    std::fs::rename(&away, &socket).unwrap();
}
