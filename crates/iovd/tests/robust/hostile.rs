//! Clients that do not keep to the protocol, and daemons that do not: an error or the end of the connection, and everybody
//! else is served.

use std::{
    io::{Read, Write},
    os::unix::net::{UnixListener, UnixStream},
    time::Duration,
};

use iov_wire::{
    Header, Verb, Wire, frame,
    messages::{CatalogRequest, Fault, Hello, StatusRequest},
};
use ioverbs::{Kind, SessionAttr, Uuid, open, seam};

use crate::{
    kit::{Store, create, lookup, read, wait_until},
    raw::{self, framed, receive},
};

fn connect(store: &Store) -> UnixStream {
    let stream = UnixStream::connect(store.dir().join("socket")).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

fn hello(min_version: u16, max_version: u16, session: Uuid) -> Hello {
    // On a socket of this machine nobody asks for proof.
    Hello { min_version, max_version, challenge: Vec::new(), ..raw::hello(session, 0) }
}

fn fault(stream: &mut UnixStream) -> Option<ioverbs::Error> {
    let (header, body) = receive(stream)?;
    assert_eq!(header.verb(), Ok(Verb::Fault));
    Some(Fault::decode(&body).unwrap().error)
}

/// Says hello as somebody who may not be let in; the answer.
pub(crate) fn knock(mut stream: UnixStream) -> String {
    let _ = stream.write_all(&framed(&hello(1, 1, seam::new_uuid())));
    match receive(&mut stream) {
        Some((header, body)) if header.verb() == Ok(Verb::Fault) => {
            let e = Fault::decode(&body).unwrap().error;
            format!("{:?} {:?}", e.kind(), e.clause())
        }
        Some((header, _)) => format!("{:?}", header.verb()),
        None => "PermissionDenied: not a word".into(),
    }
}

/// A connection that has been let in.
fn inside(store: &Store) -> UnixStream {
    let mut stream = connect(store);
    stream.write_all(&framed(&hello(1, 1, seam::new_uuid()))).unwrap();
    assert_eq!(receive(&mut stream).unwrap().0.verb(), Ok(Verb::Welcome));
    stream
}

/// A store with a client that must not be disturbed.
struct Calm {
    store: Store,
    c: ioverbs::Collection,
    pid: Option<u64>,
}

impl Calm {
    fn new() -> Calm {
        let store = Store::new();
        let ws = store.in_workspace();
        let c = create(&ws, "calm", "");
        ioverbs::write_at(&c, 0, b"calm").unwrap();
        let pid = store.status("pid");
        Calm { store, c, pid }
    }

    fn check(&self) {
        assert_eq!(read(&self.c), b"calm");
        ioverbs::write_at(&self.c, 0, b"calm").unwrap();
        assert_eq!(read(&lookup(&self.store.again(), "calm")), b"calm");
        assert_eq!(self.store.status("pid"), self.pid, "the daemon has not ended");
    }
}

/// Numbers that are the same in every run.
fn random(seed: u64) -> impl FnMut() -> u8 {
    let mut x = seed;
    move || {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (x >> 56) as u8
    }
}

#[test]
fn random_bytes_instead_of_a_hello() {
    let calm = Calm::new();
    for seed in 0..20 {
        let mut next = random(seed);
        let bytes: Vec<u8> = (0..200 + seed * 100).map(|_| next()).collect();
        let mut stream = connect(&calm.store);
        // The daemon may have hung up before all is sent.
        let _ = stream.write_all(&bytes);
        let e = fault(&mut stream);
        assert!(e.is_none_or(|e| e.kind() == Kind::Corrupt));
        assert!(receive(&mut stream).is_none());
    }
    calm.check();
}

#[test]
fn damaged_frames_behind_a_hello() {
    let calm = Calm::new();
    let good = framed(&CatalogRequest {
        context: Default::default(),
        how: ioverbs::catalog::Submission::Each,
        ops: vec![Ok(ioverbs::catalog::CatalogOp::Renew)],
    });
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 0x41;
        let mut stream = inside(&calm.store);
        stream.write_all(&bad).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        // Whatever it is taken for, the connection ends, and nobody waits for what never comes.
        while receive(&mut stream).is_some() {}
    }
    calm.check();
}

#[test]
fn truncated_frames_and_huge_lengths() {
    let calm = Calm::new();
    let good = framed(&StatusRequest);
    for cut in 0..good.len() {
        let mut stream = inside(&calm.store);
        stream.write_all(&good[..cut]).unwrap();
    }
    for (body_len, payload_len) in [(u32::MAX, 0), (0, u64::MAX), (64 << 20, 64 << 20), (1 << 30, 1), (1, 1 << 40)] {
        let header = Header { body_len, payload_len, ..Header::new(Verb::Object, 1) };
        // Many of them: what is announced costs memory only as it comes.
        let streams: Vec<UnixStream> = (0..50)
            .map(|_| {
                let mut stream = inside(&calm.store);
                stream.write_all(&header.encode()).unwrap();
                stream
            })
            .collect();
        let status = std::fs::read_to_string(format!("/proc/{}/status", calm.pid.unwrap())).unwrap();
        let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap();
        let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        assert!(kib < 1 << 20, "{line} for nothing but announcements");
        drop(streams);
    }
    calm.check();
}

#[test]
fn verbs_that_a_client_may_not_send() {
    let calm = Calm::new();
    let mut stream = inside(&calm.store);
    for number in [2u16, 4, 6, 8, 9, 13, 15, 18, 99, 0, u16::MAX] {
        let mut header = Header::new(Verb::Status, 7);
        header.verb = number;
        let mut out = Vec::new();
        frame::append(Header::new(Verb::Status, 7), &StatusRequest, &mut out).unwrap();
        let sum = Header::decode(out[..frame::HEADER_BYTES].try_into().unwrap()).unwrap().body_crc;
        header.body_crc = sum;
        stream.write_all(&header.encode()).unwrap();
        let e = fault(&mut stream).unwrap();
        assert_eq!(e.kind(), Kind::Version, "verb {number}: {e}");
    }
    // The connection goes on.
    stream.write_all(&framed(&StatusRequest)).unwrap();
    assert_eq!(receive(&mut stream).unwrap().0.verb(), Ok(Verb::StatusAnswer));
    calm.check();
}

#[test]
fn a_client_of_another_version_is_told_which_side_to_update() {
    let calm = Calm::new();
    for (min, max, side) in [(2, 5, "update the daemon"), (0, 0, "update the program's library")] {
        let mut stream = connect(&calm.store);
        stream.write_all(&framed(&hello(min, max, seam::new_uuid()))).unwrap();
        let e = fault(&mut stream).unwrap();
        assert_eq!(e.kind(), Kind::Version, "{e}");
        assert!(e.detail().contains(side) && e.detail().contains("9.9"), "{e}");
        assert!(receive(&mut stream).is_none(), "and the connection is closed");
    }
    // One that speaks what we do and more is welcome.
    let mut stream = connect(&calm.store);
    stream.write_all(&framed(&hello(1, 77, seam::new_uuid()))).unwrap();
    assert_eq!(receive(&mut stream).unwrap().0.verb(), Ok(Verb::Welcome));
    calm.check();
}

#[test]
fn thousands_of_connections_that_say_nothing() {
    let calm = Calm::new();
    raise_limit();
    let mut streams = Vec::new();
    for _ in 0..3000 {
        match UnixStream::connect(calm.store.dir().join("socket")) {
            Ok(stream) => streams.push(stream),
            Err(e) => panic!("{} connections, then {e}", streams.len()),
        }
    }
    calm.check();
    drop(streams);
    calm.check();
    wait_until("the end of the others", || calm.store.status("connections").is_some_and(|n| n <= 3));
}

fn raise_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
}

#[test]
fn more_connections_than_a_daemon_can_serve_are_told_so() {
    let store = Store::new();
    std::fs::create_dir_all(store.dir()).unwrap();
    // With so few descriptors it takes a few connections only.
    let script = r#"ulimit -n 120; exec "$0" --dir "$1" --idle 0"#;
    let mut child = std::process::Command::new("sh")
        .args(["-c", script, crate::kit::IOVD, store.dir().to_str().unwrap()])
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    wait_until("the daemon", || store.dir().join("socket").exists());
    let ws = store.in_workspace();
    let c = create(&ws, "calm", "");
    let mut streams = Vec::new();
    let refused = loop {
        let mut stream = connect(&store);
        // One that is too many may have been told so, and its connection closed, before it says a word.
        let _ = stream.write_all(&framed(&hello(1, 1, seam::new_uuid())));
        let (header, body) = receive(&mut stream).unwrap();
        if header.verb() == Ok(Verb::Fault) {
            break Fault::decode(&body).unwrap().error;
        }
        streams.push(stream);
        assert!(streams.len() < 120);
    };
    assert_eq!(refused.kind(), Kind::Exhausted, "{refused}");
    assert!(refused.detail().contains("at most"), "{refused}");
    ioverbs::write_at(&c, 0, &vec![1; 1 << 20]).unwrap();
    assert_eq!(read(&c).len(), 1 << 20, "who is in is served");
    drop(streams);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_client_that_takes_no_answers_keeps_nobody_else_waiting() {
    let calm = Calm::new();
    let mut stream = inside(&calm.store);
    stream.set_nonblocking(true).unwrap();
    let request = framed(&StatusRequest).repeat(100);
    // Until neither side takes any more.
    let mut rounds = 0;
    while stream.write(&request).is_ok() && rounds < 100_000 {
        rounds += 1;
    }
    calm.check();
    drop(stream);
    calm.check();
}

/// A daemon that answers a hello with these bytes; what a client says then.
fn answered(bytes: Vec<u8>) -> ioverbs::Error {
    let store = Store::new();
    std::fs::create_dir_all(store.dir()).unwrap();
    let listener = UnixListener::bind(store.dir().join("socket")).unwrap();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut head = [0; frame::HEADER_BYTES];
        stream.read_exact(&mut head).unwrap();
        stream.write_all(&bytes).unwrap();
        std::fs::remove_file(listener.local_addr().unwrap().as_pathname().unwrap()).unwrap();
        stream
    });
    let attr = SessionAttr { nostart: true, deadline_ns: 2_000_000_000, ..SessionAttr::default() };
    let e = open(Some(&store.url()), attr).err().unwrap();
    drop(server.join());
    e
}

#[test]
fn daemons_of_another_version_and_impostors() {
    let newer = Fault { error: ioverbs::Error::version("this daemon speaks 7 to 9: update the program's library") };
    let e = answered(framed(&newer));
    assert_eq!((e.kind(), e.detail()), (Kind::Version, newer.error.detail()));
    let mut next = random(1);
    let e = answered((0..500).map(|_| next()).collect());
    assert_eq!(e.kind(), Kind::Corrupt, "{e}");
    // One that says nothing is not waited for beyond the deadline.
    let e = answered(Vec::new());
    assert!(matches!(e.kind(), Kind::Timeout | Kind::Unavailable), "{e}");
}
