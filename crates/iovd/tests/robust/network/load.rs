//! Many clients, large transfers, and peers that do not listen.

use std::{io::Write, net::TcpStream};

use iov_net::secret::Secret;
use iov_types::catalog::{CatalogOp, Submission};
use iov_wire::{
    Verb, Wire,
    messages::{CatalogRequest, Fault},
};
use ioverbs::{Kind, Metadata, Outcome, Value, seam};

use super::*;
use crate::{
    kit::{create, lookup, read},
    raw::{answer, ask_for_a_gigabyte, framed, hello, prove},
};

pub(super) fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

fn threads(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().count()
}

#[test]
fn many_sessions_take_few_threads() {
    let net = Net::new();
    let pid = net.daemon.as_ref().unwrap().pid();
    let first = net.workspace();
    let c = create(&first, "c", "");
    ioverbs::write_at(&c, 0, &pattern(1, 100_000)).unwrap();
    let all: Vec<Workspace> = (0..60).map(|_| net.workspace()).collect();
    for ws in &all {
        assert!(read(&lookup(ws, "c")) == pattern(1, 100_000));
    }
    assert_eq!(net.store.status("sessions"), Some(62), "with the one that asks, and the first");
    assert!(threads(pid) < 20, "{} threads for {} connections", threads(pid), net.store.status("connections").unwrap());
}

#[test]
fn bytes_go_both_ways_at_the_same_time_from_several_threads() {
    let net = Net::new();
    let session = net.open(&net.url()).unwrap();
    let ws = workspace(&session);
    std::thread::scope(|scope| {
        for n in 0..6u64 {
            let ws = ws.clone();
            scope.spawn(move || {
                let c = create(&ws, &format!("c{n}"), "");
                for round in 0..6 {
                    let len = [1, 4096, 70_000, 1 << 20, (3 << 20) + 17, 9 << 20][((n + round) % 6) as usize];
                    let bytes = pattern(n * 100 + round, len);
                    ioverbs::write_at(&c, round * 1000, &bytes).unwrap();
                    let mut got = vec![0; len];
                    assert_eq!(ioverbs::read_at(&c, round * 1000, &mut got).unwrap(), len);
                    assert!(got == bytes, "thread {n}, round {round}");
                }
            });
        }
    });
    let counters = session.counters().snapshot();
    let of = |name: &str| counters[ioverbs::Counters::NAMES.iter().position(|n| *n == name).unwrap()];
    assert!(of("bytes_tcp") > 80 << 20 && of("bytes_unix") == 0 && of("bytes_direct") == 0);
    assert_eq!(of("bytes_copied"), 0, "what is read goes from the socket to where it is wanted");
    assert!(of("connections") <= 3, "one for facts, two for bytes");
}

/// A connection for bytes of a client that is about to misbehave; what it holds besides is its first connection.
fn channel(net: &Net) -> (TcpStream, TcpStream) {
    let secret = Secret::load(&net.secret()).unwrap();
    let session = seam::new_uuid();
    let open = |channel| {
        let (stream, verb) = prove(&net.address, &hello(session, channel), &secret);
        assert_eq!(verb, Verb::Welcome);
        stream
    };
    (open(0), open(1))
}

#[test]
fn o8_a_client_that_does_not_listen_takes_no_memory_and_no_worker() {
    let net = Net::with(&["--workers", "2"]);
    let pid = net.daemon.as_ref().unwrap().pid();
    let ws = net.workspace();
    let c = create(&ws, "c", "");
    let bytes = pattern(1, 1 << 20);
    ioverbs::write_at(&c, 0, &bytes).unwrap();
    let collection = ioverbs::stat(&c).unwrap().uuid;
    let before = resident(pid);
    let deaf: Vec<(TcpStream, TcpStream)> = (0..6).map(|_| channel(&net)).collect();
    for (_, stream) in &deaf {
        stream.set_nonblocking(true).unwrap();
        ask_for_a_gigabyte(&mut &*stream, collection);
    }
    for _ in 0..50 {
        let mut got = vec![0; bytes.len()];
        ioverbs::read_at(&c, 0, &mut got).unwrap();
        assert!(got == bytes, "others are served");
    }
    let grown = resident(pid).saturating_sub(before);
    assert!(grown < 64 << 20, "{} MiB for clients that do not listen", grown >> 20);
}

#[test]
fn bytes_go_over_the_network_to_every_target() {
    let net = Net::with(&["--storage", "files", "--storage", "files", "--storage", "files"]);
    let url = net.url();
    let session = net.open(&url).unwrap();
    let ws = super::workspace(&session);
    let layout = ioverbs::Layout {
        targets: 3,
        chunk_size: 65_536,
        policy: Some("targets:2,1,0".into()),
        ..ioverbs::Layout::default()
    };
    let attr = ioverbs::WorkspaceAttr { layout: Some(layout), ..Default::default() };
    ioverbs::run(&session, ioverbs::Op::WorkspaceSet { w: ws.clone(), attr }).unwrap();
    let c = create(&ws, "wide", "persistence=volatile");
    let all = pattern(11, 9 << 20);
    ioverbs::write_at(&c, 0, &all).unwrap();
    let other = net.workspace();
    let d = ioverbs::lookup(&other, None, "wide", Default::default()).unwrap();
    let mut got = vec![0; all.len()];
    assert_eq!(ioverbs::read_at(&d, 0, &mut got).unwrap(), all.len());
    assert!(got == all);
    let counters = other.session().counters();
    let tcp = counters.bytes_tcp.load(std::sync::atomic::Ordering::Relaxed);
    assert!(tcp >= all.len() as u64, "{tcp}");
    // Each of them is cut, and its session goes on.
    let cable = net.cable();
    let ws = net.through(&cable);
    let e = ioverbs::lookup(&ws, None, "wide", Default::default()).unwrap();
    for seed in 0..3 {
        let more = pattern(seed, 3 << 20);
        cable.cut();
        ioverbs::write_at(&e, seed * 1000, &more).unwrap();
        cable.cut();
        let mut got = vec![0; more.len()];
        ioverbs::read_at(&e, seed * 1000, &mut got).unwrap();
        assert!(got == more, "{seed}");
    }
}

#[test]
fn an_answer_that_is_too_large_does_not_say_that_nothing_was_done() {
    let net = Net::with(&["--inline-bytes", "65536"]);
    let ws = net.workspace();
    let c = create(&ws, "c", "");
    ioverbs::write_at(&c, 0, &pattern(1, 65536)).unwrap();
    let (ws, uuid) = (ws.uuid(), ioverbs::stat(&c).unwrap().uuid);
    let secret = Secret::load(&net.secret()).unwrap();
    let (mut stream, _) = prove(&net.address, &hello(seam::new_uuid(), 0), &secret);
    let mut said = |first: Option<CatalogOp>| {
        let reads = (0..1100).map(|_| CatalogOp::Read { ws, uuid, offset: 0, len: 65536 });
        let ops = first.into_iter().chain(reads).map(Ok).collect();
        let request = CatalogRequest { context: Default::default(), how: Submission::Each, ops };
        stream.write_all(&framed(&request)).unwrap();
        let (verb, body) = answer(&mut stream);
        assert_eq!(verb, Verb::Fault);
        let error = Fault::decode(&body).unwrap().error;
        (error.kind(), error.outcome())
    };
    let mut pairs = Metadata::new();
    pairs.set("k", Value::I64(7)).unwrap();
    assert_eq!(said(Some(CatalogOp::MetaPut { ws, uuid, pairs })), (Kind::TooBig, Outcome::Unknown));
    assert_eq!(said(None), (Kind::TooBig, Outcome::NotApplied), "they only look");
}
