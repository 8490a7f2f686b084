//! `file:` stores with a real daemon: the library starts it, it dies, nothing acknowledged is lost.
#![allow(clippy::disallowed_methods)]

use std::process::Command;

use ioverbs::{Controls, Kind, Metadata, Name, SessionAttr, Value, Which, open};

/// Cargo builds the daemon for this test and puts it where the library looks: one folder above the test.
const IOVD: &str = env!("CARGO_BIN_EXE_iovd");

struct Store(tempfile::TempDir);

impl Store {
    fn new() -> Store {
        assert!(std::path::Path::new(IOVD).is_file());
        Store(tempfile::tempdir().unwrap())
    }

    fn url(&self) -> String {
        format!("file:{}", self.0.path().display())
    }

    fn kill(&self) {
        let status = ioverbs::daemon_status(&self.url()).unwrap().expect("a daemon runs");
        let pid = status.iter().find(|(name, _)| name == "pid").unwrap().1;
        assert!(Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap().success());
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let _ = ioverbs::daemon_shutdown(&self.url());
    }
}

fn session(store: &Store) -> ioverbs::Session {
    open(Some(&store.url()), SessionAttr::default()).unwrap()
}

#[test]
fn p2_acknowledged_bytes_and_names_survive_sigkill_of_the_daemon() {
    let store = Store::new();
    let s = session(&store);
    let ws = s.create_workspace(Name::new("w").unwrap(), Default::default()).unwrap();
    let mut md = Metadata::new();
    md.set("temperature", Value::I64(310)).unwrap();
    let c = ioverbs::create(&ws, None, Some("run"), md, Controls::default()).unwrap();
    for i in 0..64u64 {
        ioverbs::write_at(&c, i * 65_536, &[i as u8; 65_536]).unwrap();
    }
    store.kill();
    let s = session(&store);
    let ws = s.load_workspace(Which::parse("w").unwrap()).unwrap();
    let c = ioverbs::lookup(&ws, None, "run", Controls::default()).unwrap();
    assert_eq!(ioverbs::stat(&c).unwrap().bytes, 64 * 65_536);
    let mut buf = vec![0; 65_536];
    for i in 0..64u64 {
        assert_eq!(ioverbs::read_at(&c, i * 65_536, &mut buf).unwrap(), 65_536);
        assert!(buf.iter().all(|b| *b == i as u8), "block {i}");
    }
}

#[test]
fn g1_large_transfers_go_past_the_daemon() {
    let store = Store::new();
    let s = session(&store);
    let ws = s.create_workspace(Name::new("w").unwrap(), Default::default()).unwrap();
    let c = ioverbs::create(&ws, None, Some("big"), Metadata::new(), Controls::default()).unwrap();
    ioverbs::write_at(&c, 0, &vec![7; 4 << 20]).unwrap();
    let counter = |name| s.counters().snapshot()[ioverbs::Counters::NAMES.iter().position(|n| *n == name).unwrap()];
    assert_eq!((counter("bytes_direct"), counter("bytes_unix")), (4 << 20, 0));
}

#[test]
fn m2_a_seal_holds_against_a_granted_descriptor() {
    let store = Store::new();
    let (one, two) = (session(&store), session(&store));
    let ws = one.create_workspace(Name::new("w").unwrap(), Default::default()).unwrap();
    let mut immutable = Controls::default();
    ioverbs::text::parse(&mut immutable, "mutability=immutable").unwrap();
    let c = ioverbs::create(&ws, None, Some("c"), Metadata::new(), immutable).unwrap();
    ioverbs::write_at(&c, 0, &vec![1; 1 << 20]).unwrap();
    let ws2 = two.load_workspace(Which::parse("w").unwrap()).unwrap();
    let other = ioverbs::lookup(&ws2, None, "c", Controls::default()).unwrap();
    ioverbs::run(&two, ioverbs::Op::Seal { c: other }).unwrap();
    assert_eq!(ioverbs::write_at(&c, 0, &vec![2; 1 << 20]).unwrap_err().kind(), Kind::Immutable);
}

#[test]
fn two_starts_at_once_lead_to_one_daemon() {
    let store = Store::new();
    let url = store.url();
    let threads: Vec<_> = (0..6)
        .map(|_| {
            let url = url.clone();
            std::thread::spawn(move || open(Some(&url), SessionAttr::default()).map(drop))
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap().unwrap());
}
