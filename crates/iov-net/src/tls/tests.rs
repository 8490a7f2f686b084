#![allow(clippy::disallowed_methods)]

use std::{
    io::{IoSlice, Write},
    net::{TcpListener, TcpStream},
    os::unix::fs::OpenOptionsExt,
    path::PathBuf,
};

use iov_types::{Kind, Uuid};
use iov_wire::messages::Hello;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};

use super::*;
use crate::secret::{Secret, Side};

const SECOND: i64 = 1_000_000_000;

/// Certificates of a test.
struct Papers(tempfile::TempDir);

impl Papers {
    fn new() -> Papers {
        Papers(tempfile::tempdir().unwrap())
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(self.at(name));
        file.unwrap().write_all(text.as_bytes()).unwrap();
    }

    /// A certificate for some names, signed by itself.
    fn own(&self, name: &str, names: &[&str]) -> ServerTls {
        let pair = KeyPair::generate().unwrap();
        let params = CertificateParams::new(names.iter().map(|n| n.to_string()).collect::<Vec<_>>()).unwrap();
        self.write(name, &params.self_signed(&pair).unwrap().pem());
        self.write(&format!("{name}.key"), &pair.serialize_pem());
        ServerTls::load(&self.at(name), &self.at(&format!("{name}.key"))).unwrap()
    }

    /// A CA, and a daemon with a certificate of it for some names until some year.
    fn signed(&self, ca: &str, names: &[&str], year: i32) -> ServerTls {
        let (ca_pair, pair) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        self.write(ca, &params.self_signed(&ca_pair).unwrap().pem());
        let issuer = Issuer::new(params, ca_pair);
        let mut params = CertificateParams::new(names.iter().map(|n| n.to_string()).collect::<Vec<_>>()).unwrap();
        params.not_after = date_time_ymd(year, 1, 1);
        self.write("signed", &params.signed_by(&pair, &issuer).unwrap().pem());
        self.write("signed.key", &pair.serialize_pem());
        ServerTls::load(&self.at("signed"), &self.at("signed.key")).unwrap()
    }

    fn client(&self, file: &str, hosts: &[&str]) -> ClientTls {
        let hosts: Vec<Host> = hosts.iter().map(|host| Host::parse(host).unwrap()).collect();
        ClientTls::new(Some(&self.at(file)), &hosts).unwrap()
    }
}

fn sockets() -> (OwnedFd, OwnedFd) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (ours.into(), listener.accept().unwrap().0.into())
}

fn until() -> i64 {
    seam::monotonic_ns() + 20 * SECOND
}

fn connect(client: &ClientTls, fd: OwnedFd, host: &str) -> Stream {
    client.connect(fd, &Host::parse(host).unwrap(), "127.0.0.1".parse().unwrap()).unwrap()
}

/// A server that shakes hands and says nothing else; what it was asked, and the stream.
fn serve(stream: Stream) -> std::thread::JoinHandle<(Result<Option<usize>>, Stream)> {
    std::thread::spawn(move || {
        let got = stream.receive(&mut [0; 100], &mut Vec::new(), true);
        (got, stream)
    })
}

/// Both ends, agreed.
fn pair(client: &ClientTls, server: &ServerTls, host: &str) -> Result<(Stream, Stream)> {
    let (ours, theirs) = sockets();
    let ours = connect(client, ours, host);
    let serving = serve(server.accept(theirs).unwrap());
    ours.shake(until())?;
    ours.send_all(b"x", until())?;
    let (got, theirs) = serving.join().unwrap();
    assert_eq!(got.unwrap(), Some(1));
    Ok((ours, theirs))
}

fn two() -> (Stream, Stream) {
    let papers = Papers::new();
    let server = papers.own("own", &[]);
    pair(&papers.client("own", &["anywhere"]), &server, "anywhere").unwrap()
}

fn bytes(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| (i.wrapping_mul(0x9e37_79b9).wrapping_add(seed) >> 7) as u8).collect()
}

/// Receives what is there.
fn take(from: &Stream, room: usize, into: &mut Vec<u8>) -> Result<bool> {
    let mut buf = vec![0; room];
    let got = from.receive(&mut buf, &mut Vec::new(), false)?;
    into.extend_from_slice(&buf[..got.unwrap_or(0)]);
    Ok(got.is_some_and(|n| n > 0))
}

#[test]
fn bytes_go_both_ways_in_whatever_pieces() {
    let (one, other) = two();
    let sent = [bytes(1, 5 << 20), bytes(2, 3 << 20)];
    let mut at = [0, 0];
    let mut got = [Vec::new(), Vec::new()];
    let rooms = [1, 100, 16_384, 70_001, 1 << 20];
    for round in 0.. {
        for (i, (from, to)) in [(&one, &other), (&other, &one)].into_iter().enumerate() {
            let rest = &sent[i][at[i]..];
            let (head, tail) = rest.split_at(rest.len().min(64));
            if !rest.is_empty() {
                at[i] += from.send_some(&[IoSlice::new(head), IoSlice::new(tail)], &[]).unwrap().unwrap_or(0);
            }
            from.push().unwrap();
            // What one side has taken it has, and waits for no socket.
            if round % 3 == 0 {
                while take(to, rooms[(round / 3 + i) % 5], &mut got[i]).unwrap() {}
                assert!(!to.holds(), "nothing is left behind that the socket does not tell of");
            }
        }
        if (0..2).all(|i| got[i].len() == sent[i].len()) {
            break;
        }
    }
    assert!(got[0] == sent[0] && got[1] == sent[1]);
    assert!(!one.owes() && !other.owes());
}

#[test]
fn o8_what_a_peer_does_not_take_is_bounded_and_goes_on_later() {
    let (one, other) = two();
    let sent = bytes(3, 64 << 20);
    let mut at = 0;
    while let Some(n) = one.send_some(&[IoSlice::new(&sent[at..])], &[]).unwrap() {
        at += n;
    }
    assert!(one.owes(), "taken, and not gone");
    assert!(at < 32 << 20, "it takes {at} bytes that nobody reads");
    assert!(!one.push().unwrap(), "the socket is full");
    let mut got = Vec::new();
    assert!(take(&other, 1000, &mut got).unwrap());
    assert!(other.holds(), "a record is larger than what was asked for");
    while got.len() < at {
        take(&other, 1 << 20, &mut got).unwrap();
        one.push().unwrap();
    }
    assert!(!one.owes() && got == sent[..at]);
}

#[test]
fn a_peer_that_closes_is_at_its_end_and_one_that_resets_broke() {
    let (one, other) = two();
    one.send_all(b"last", until()).unwrap();
    drop(one);
    let mut got = Vec::new();
    while take(&other, 10, &mut got).unwrap() {}
    assert_eq!(got, b"last");
    for _ in 0..2 {
        assert_eq!(other.receive(&mut [0; 10], &mut Vec::new(), false).unwrap(), Some(0));
    }
    let (one, other) = two();
    one.send_all(b"last", until()).unwrap();
    crate::tcp::abort(&one);
    let receive = || other.receive(&mut [0; 10], &mut Vec::new(), true);
    let e = receive().and_then(|_| receive()).unwrap_err();
    assert_eq!(e.kind(), Kind::Unavailable, "{e}");
    assert_eq!(receive().unwrap_err().kind(), Kind::Unavailable, "a break stays one");
}

#[test]
fn what_can_never_go_is_owed_no_more() {
    let (one, other) = two();
    let sent = bytes(3, 1 << 20);
    while one.send_some(&[IoSlice::new(&sent)], &[]).unwrap().is_some() {}
    assert!(one.owes());
    crate::tcp::abort(&other);
    drop(other);
    assert_eq!(one.push().unwrap_err().kind(), Kind::Unavailable);
    assert!(!one.owes(), "else it would be waited for");
    assert!(one.send_some(&[IoSlice::new(&sent)], &[]).is_err());
}

#[test]
fn keys_that_are_made_anew_change_nothing() {
    let (one, other) = two();
    let mut got = Vec::new();
    for round in 0..5u8 {
        let Stream::Tls(channel) = &one else { panic!() };
        channel.refresh();
        one.send_all(&[round; 40_000], until()).unwrap();
        while got.len() < 40_000 {
            take(&other, 1 << 20, &mut got).unwrap();
        }
        assert!(got.drain(..).all(|byte| byte == round));
        other.send_all(&[round; 10], until()).unwrap();
        let mut back = Vec::new();
        while back.len() < 10 {
            take(&one, 10, &mut back).unwrap();
        }
    }
}

#[test]
fn i1_a_flipped_bit_is_found_and_never_read() {
    let sent = bytes(4, 50_000);
    for at in [0, 3, 4, 5, 20, 16_000, 16_405, 30_000, 50_050] {
        let papers = Papers::new();
        let server = papers.own("own", &[]);
        let ((ours, near), (far, theirs)) = (sockets(), sockets());
        let (near, far) = (TcpStream::from(near), TcpStream::from(far));
        let damage = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let damages = damage.clone();
        let relay = |mut from: TcpStream, mut to: TcpStream, damages: Option<_>| {
            std::thread::spawn(move || {
                let mut seen = 0;
                let mut buf = vec![0; 100_000];
                while let Ok(n) = std::io::Read::read(&mut from, &mut buf)
                    && n > 0
                {
                    let on = damages.as_ref().is_some_and(|d: &std::sync::Arc<std::sync::atomic::AtomicBool>| {
                        d.load(std::sync::atomic::Ordering::SeqCst)
                    });
                    if on && (seen..seen + n).contains(&at) {
                        buf[at - seen] ^= 4;
                    }
                    seen += if on { n } else { 0 };
                    if to.write_all(&buf[..n]).is_err() {
                        break;
                    }
                }
                let _ = to.shutdown(std::net::Shutdown::Both);
            })
        };
        let relays =
            [relay(near.try_clone().unwrap(), far.try_clone().unwrap(), Some(damages)), relay(far, near, None)];
        let ours = connect(&papers.client("own", &["a"]), ours, "a");
        let serving = serve(server.accept(theirs).unwrap());
        ours.shake(until()).unwrap();
        ours.send_all(b"x", until()).unwrap();
        let (_, theirs) = serving.join().unwrap();
        damage.store(true, std::sync::atomic::Ordering::SeqCst);
        ours.send_all(&sent, until()).unwrap();
        rustix::net::shutdown(&ours, rustix::net::Shutdown::Write).unwrap();
        let mut got = Vec::new();
        let end = loop {
            let mut buf = [0; 5000];
            match theirs.receive(&mut buf, &mut Vec::new(), true) {
                Ok(Some(n)) if n > 0 => got.extend_from_slice(&buf[..n]),
                end => break end,
            }
        };
        assert!(got.len() < sent.len() && sent.starts_with(&got), "at {at}: other bytes, or all of them");
        match end {
            Err(e) => assert_eq!(e.kind(), Kind::Unavailable, "{e}"),
            // Its length was damaged: the rest never comes.
            Ok(end) => assert!(end == Some(0) && (3..5).contains(&at), "at {at}"),
        }
        drop((ours, theirs));
        relays.into_iter().for_each(|relay| relay.join().unwrap());
    }
}

fn denied(e: Error, what: &str) {
    assert_eq!((e.kind(), e.clause()), (Kind::Denied, Some(Clause::A2)), "{e}");
    assert!(e.detail().contains(what), "{e}");
}

#[test]
fn a2_a_certificate_is_believed_itself_or_for_its_names() {
    let papers = Papers::new();
    let own = papers.own("own", &["node7"]);
    // Whatever it is called, and whatever else stands in the file.
    let (ours, others) = (fs::read_to_string(papers.at("own")).unwrap(), papers.own("other", &["node7"]));
    papers.write("both", &format!("{}{ours}", fs::read_to_string(papers.at("other")).unwrap()));
    for file in ["own", "both"] {
        pair(&papers.client(file, &["10.1.2.3"]), &own, "10.1.2.3").unwrap();
    }
    // One with the same names that somebody else has made.
    denied(pair(&papers.client("own", &["node7"]), &others, "node7").unwrap_err(), "IOVERBS_TLS");
    // Of a CA, for the names in it.
    let signed = papers.signed("ca", &["node7", "10.1.2.3"], 4000);
    for host in ["node7", "10.1.2.3"] {
        pair(&papers.client("ca", &[host]), &signed, host).unwrap();
    }
    denied(pair(&papers.client("ca", &["node8"]), &signed, "node8").unwrap_err(), "not for this host");
    // The hosts of a URL are one daemon, and so is an address of which it has told.
    pair(&papers.client("ca", &["node7-ib", "node7"]), &signed, "node7-ib").unwrap();
    pair(&papers.client("ca", &["node7"]), &signed, "10.9.9.9").unwrap();
    denied(pair(&papers.client("own", &["node7"]), &signed, "node7").unwrap_err(), "not to be trusted");
    pair(&papers.client("signed", &["node8"]), &signed, "node8").unwrap();
    let late = papers.signed("ca", &["node7"], 2001);
    denied(pair(&papers.client("ca", &["node7"]), &late, "node7").unwrap_err(), "has expired");
}

#[test]
fn a2_who_stands_in_the_middle_cannot_hand_proofs_on() {
    // He has a certificate that the client believes, for the daemon's name, and speaks TLS with both.
    let papers = Papers::new();
    let (daemon, middle) = (papers.own("daemon", &["a"]), papers.own("middle", &["a"]));
    let (client, to_middle) = pair(&papers.client("middle", &["a"]), &middle, "a").unwrap();
    let (from_middle, server) = pair(&papers.client("daemon", &["a"]), &daemon, "a").unwrap();
    let exported = |stream: &Stream| stream.exported().unwrap().unwrap();
    assert_eq!(exported(&client), exported(&to_middle), "the ends of one connection agree");
    assert_eq!(exported(&from_middle), exported(&server));
    assert_ne!(exported(&client), exported(&server));
    let secret = Secret::new(&[b's'; 32]).unwrap();
    let hello = Hello {
        min_version: 1,
        max_version: 1,
        library: String::new(),
        session: Uuid([7; 16]),
        program: "p".into(),
        pid: 1,
        channel: 0,
        challenge: vec![1; 32],
        target: 0,
        of: Uuid::NIL,
        rings: false,
    };
    let challenge = [2; 32];
    let proof = secret.within(client.exported().unwrap().as_ref()).proof(Side::Client, &hello, &challenge);
    let at_server = secret.within(server.exported().unwrap().as_ref());
    assert!(!at_server.fits(&proof, Side::Client, &hello, &challenge));
    let back = at_server.proof(Side::Server, &hello, &hello.challenge);
    assert!(!secret.within(client.exported().unwrap().as_ref()).fits(&back, Side::Server, &hello, &hello.challenge));
    assert_eq!(Stream::from(sockets().0).exported().unwrap(), None);
}

#[test]
fn a2_a_side_without_tls_is_told_of_it() {
    let papers = Papers::new();
    let server = papers.own("own", &[]);
    let frame = iov_wire::Header::new(iov_wire::Verb::Fault, 1).encode();
    // The daemon hears the clear; in two pieces, and its answer is in the clear.
    let (ours, theirs) = sockets();
    let (mut ours, theirs) = (TcpStream::from(ours), server.accept(theirs).unwrap());
    ours.write_all(&frame[..3]).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(theirs.receive(&mut [0; 100], &mut Vec::new(), false).unwrap(), None);
    ours.write_all(&frame[3..]).unwrap();
    denied(theirs.receive(&mut [0; 100], &mut Vec::new(), true).unwrap_err(), "IOVERBS_TLS");
    theirs.send_all(b"in the clear", until()).unwrap();
    let mut got = [0; 12];
    std::io::Read::read_exact(&mut ours, &mut got).unwrap();
    assert_eq!(&got, b"in the clear");
    // The client hears the clear.
    let (ours, theirs) = sockets();
    let ours = connect(&papers.client("own", &["a"]), ours, "a");
    TcpStream::from(theirs).write_all(&frame).unwrap();
    denied(ours.shake(until()).unwrap_err(), "--tls");
    // Something else altogether may be damage: it is tried again.
    for other in [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], b"IOVERBS", b""] {
        let (ours, theirs) = sockets();
        let ours = connect(&papers.client("own", &["a"]), ours, "a");
        TcpStream::from(theirs).write_all(other).unwrap();
        assert_eq!(ours.shake(until()).unwrap_err().kind(), Kind::Unavailable);
    }
    // Nor is anybody waited for beyond the time.
    let (ours, _theirs) = sockets();
    let ours = connect(&papers.client("own", &["a"]), ours, "a");
    assert_eq!(ours.shake(seam::monotonic_ns() + SECOND / 20).unwrap_err().kind(), Kind::Timeout);
}

#[test]
fn a2_what_may_yet_be_no_tls_is_nothing_to_be_served() {
    let papers = Papers::new();
    let (ours, theirs) = sockets();
    let (mut ours, theirs) = (TcpStream::from(ours), papers.own("own", &[]).accept(theirs).unwrap());
    for (piece, taken) in [(&b"I"[..], true), (b"OVERB", true), (b"S1", false)] {
        ours.write_all(piece).unwrap();
        assert!(crate::socket::wait_readable(&theirs, 20 * SECOND));
        let got = take(&theirs, 100, &mut Vec::new());
        assert_eq!(got.map_err(|e| e.kind()), if taken { Ok(false) } else { Err(Kind::Denied) });
        // Who asks for more at once asks in vain, again and again, until the stranger's time is up.
        assert!(!theirs.holds());
    }
}

#[test]
fn a_stranger_takes_little_memory() {
    let papers = Papers::new();
    let server = papers.own("own", &[]);
    // A first message of 16 MiB, as its header has it.
    let (ours, theirs) = sockets();
    let theirs = server.accept(theirs).unwrap();
    let writer = std::thread::spawn(move || {
        let mut ours = TcpStream::from(ours);
        let mut record = vec![0x16, 3, 1, 0x40, 0];
        record.resize(5 + 0x4000, 0);
        record[5..9].copy_from_slice(&[1, 0xff, 0xff, 0xff]);
        (0..1000).take_while(|_| ours.write_all(&record).is_ok()).count()
    });
    let e = theirs.receive(&mut [0; 100], &mut Vec::new(), true).unwrap_err();
    assert_eq!(e.kind(), Kind::Unavailable, "{e}");
    drop(theirs);
    assert!(writer.join().unwrap() < 1000);
}

#[test]
fn nothing_of_it_is_shown() {
    let papers = Papers::new();
    let server = papers.own("own", &[]);
    assert_eq!(format!("{server:?} {:?}", papers.client("own", &["a"])), "ServerTls(…) ClientTls(…)");
    let (one, _) = two();
    assert_eq!(format!("{one:?}"), "Tls(Channel(…))");
}

#[test]
fn a_file_without_certificates_is_told() {
    let papers = Papers::new();
    papers.write("empty", "");
    papers.write("torn", "-----BEGIN CERTIFICATE-----\nAAAA\n");
    let open = |file: &str| ClientTls::new(Some(&papers.at(file)), &[]).unwrap_err();
    for file in ["empty", "torn"] {
        let e = open(file);
        assert!(e.kind() == Kind::Invalid && e.detail().contains("holds no certificate"), "{e}");
    }
    let e = open("nowhere");
    assert!(e.kind() == Kind::NotFound && e.detail().contains("nowhere"), "{e}");
}
