//! Programs and daemons under limits of resources (`ulimit`).

use std::os::fd::OwnedFd;

use ioverbs::{Kind, SessionAttr, open};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::kit::{IOVD, Peer, Store, create, listen, lookup, read, say};

const MIB: usize = 1 << 20;

/// Sets a limit of this process that it may take back.
fn limit(resource: Resource, to: u64) {
    setrlimit(resource, Rlimit { current: Some(to), maximum: getrlimit(resource).maximum }).unwrap();
}

/// Writes and reads many collections with hardly a descriptor, then with none.
pub(crate) fn with_few_descriptors(url: &str) {
    let session = open(Some(url), SessionAttr::default()).unwrap();
    let ws = session.create_workspace(ioverbs::Name::new("few").unwrap(), Default::default()).unwrap();
    let grants = || session.counters().grants.load(std::sync::atomic::Ordering::Relaxed);
    limit(Resource::Nofile, 32);
    let write_and_read = |name: String, byte: u8| {
        let c = create(&ws, &name, "");
        ioverbs::write_at(&c, 0, &vec![byte; MIB]).unwrap();
        let mut bytes = vec![0; MIB];
        assert_eq!(ioverbs::read_at(&c, 0, &mut bytes).unwrap(), MIB);
        assert!(bytes.iter().all(|b| *b == byte), "{name}");
        c
    };
    let mut open: Vec<_> = (0..60).map(|i| write_and_read(format!("few {i}"), i)).collect();
    assert!(grants() > 0, "nothing went the direct way");
    let taken: Vec<OwnedFd> = std::iter::from_fn(|| std::fs::File::open("/dev/null").ok().map(OwnedFd::from)).collect();
    assert!(!taken.is_empty());
    open.extend((0..20).map(|i| write_and_read(format!("none {i}"), i)));
    drop(taken);
    open.iter().for_each(|c| ioverbs::close(c).unwrap());
    say("done");
}

#[test]
fn a_program_without_descriptors_loses_speed_and_nothing_else() {
    let store = Store::new();
    drop(store.session());
    assert_eq!(Peer::start("has few descriptors", &store).hear(), "done");
}

/// Starts the store's daemon.
pub(crate) fn starts_a_daemon(url: &str) {
    limit(Resource::Fsize, 64 << 20);
    limit(Resource::As, 64 << 30);
    limit(Resource::Cpu, 3600);
    let _session = open(Some(url), SessionAttr::default()).unwrap();
    say("started");
    listen();
}

#[test]
fn a_daemon_does_not_keep_the_limits_of_whoever_started_it() {
    let store = Store::new();
    let mut peer = Peer::start("limits itself and starts the daemon", &store);
    assert_eq!(peer.hear(), "started");
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", store.status("pid").unwrap())).unwrap();
    for (name, resource) in
        [("Max file size", Resource::Fsize), ("Max address space", Resource::As), ("Max cpu time", Resource::Cpu)]
    {
        let line = limits.lines().find(|line| line.starts_with(name)).unwrap();
        let soft = line[name.len()..].split_whitespace().next().unwrap();
        let most = getrlimit(resource).maximum.map_or("unlimited".to_owned(), |most| most.to_string());
        assert_eq!(soft, most, "{line}");
    }
}

/// Takes all memory there is within a limit but a few MiB. (Allocators keep address space for later.)
fn take_memory() -> Vec<Vec<u8>> {
    let piece = || {
        let mut piece = Vec::new();
        piece.try_reserve_exact(MIB).is_ok().then_some(piece)
    };
    limit(Resource::As, 1);
    let mut taken: Vec<Vec<u8>> = Vec::with_capacity(1 << 16);
    taken.extend(std::iter::from_fn(piece));
    taken.truncate(taken.len().saturating_sub(6));
    taken
}

/// Reads more bytes than there is memory for, besides its own.
pub(crate) fn without_memory(url: &str) {
    // The direct way takes none in any case.
    let session = open(Some(url), SessionAttr { nodirect: true, ..SessionAttr::default() }).unwrap();
    let ws = session.create_workspace(ioverbs::Name::new("w").unwrap(), Default::default()).unwrap();
    let c = create(&ws, "c", "");
    let mut bytes = vec![7; 60 * MIB];
    ioverbs::write_at(&c, 0, &bytes).unwrap();
    let before = getrlimit(Resource::As);
    let taken = take_memory();
    bytes.fill(0);
    let got = ioverbs::read_at(&c, 0, &mut bytes);
    drop(taken);
    setrlimit(Resource::As, before).unwrap();
    assert_eq!(got.unwrap(), bytes.len(), "what comes goes straight to where it is wanted");
    assert!(bytes.iter().all(|byte| *byte == 7));
    ioverbs::close(&c).unwrap();
    say("done");
}

#[test]
fn what_a_program_reads_takes_no_memory_but_its_own() {
    let store = Store::new();
    drop(store.session());
    assert_eq!(Peer::start("has no memory", &store).hear(), "done");
}

#[test]
fn a_daemon_that_would_have_no_descriptors_for_its_requests_does_not_serve() {
    let store = Store::new();
    std::fs::create_dir_all(store.dir()).unwrap();
    let script = r#"ulimit -n 24; exec "$0" --dir "$1" --idle 0"#;
    let mut command = std::process::Command::new("sh");
    let out = command.args(["-c", script, crate::kit::IOVD, store.dir().to_str().unwrap()]).output().unwrap();
    let words = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success() && words.contains("needs 64 descriptors"), "{words}");
    drop(store.session());
}

#[test]
fn p2_a_daemon_whose_files_may_not_grow_says_so_and_lives() {
    let mut store = Store::new();
    store.nodirect = true;
    std::fs::create_dir_all(store.dir()).unwrap();
    // By hand: one that is started on demand takes the limit off, where it may.
    let mut daemon = std::process::Command::new("sh")
        .args(["-c", "ulimit -f 16384; exec \"$0\" --dir \"$1\" --idle 0", IOVD])
        .arg(store.dir())
        .spawn()
        .unwrap();
    assert_eq!(store.serving(), daemon.id());
    let c = create(&store.in_workspace(), "c", "");
    ioverbs::write_at(&c, 0, &vec![1; MIB]).unwrap();
    let e = ioverbs::write_at(&c, 31 << 20, &vec![2; 2 * MIB]).err();
    assert!(daemon.try_wait().unwrap().is_none(), "it lives");
    assert_eq!(e.unwrap().kind(), Kind::FileTooBig);
    assert_eq!(store.serving(), daemon.id());
    assert_eq!(read(&lookup(&store.again(), "c"))[..MIB], vec![1; MIB]);
    store.shut_down();
    daemon.wait().unwrap();
}
