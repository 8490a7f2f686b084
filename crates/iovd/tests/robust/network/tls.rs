//! TLS: who is believed, what passes, and that everything else is as it is in the clear.

use std::{
    io::{Read, Write},
    net::TcpStream,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use iov_net::secret::Secret;
use iov_wire::{
    Header, Verb, Wire,
    messages::{Fault, ObjectRequest},
};
use ioverbs::{Clause, Error, Kind, seam};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    pki_types::{CertificateDer, pem::PemObject},
};

use super::*;
use crate::{
    kit::{create, lookup, read, wait_until},
    raw::{self, answer, framed_as, receive},
};

fn net() -> Net {
    Net::with(&["--tls", "self"])
}

fn is_denied(e: &Error, what: &str) {
    assert_eq!((e.kind(), e.clause()), (Kind::Denied, Some(Clause::A2)), "{e}");
    assert!(e.detail().contains(what), "{e}");
}

#[test]
fn a2_bytes_pass_both_ways_and_nobody_reads_them() {
    let net = net();
    let cable = net.cable();
    cable.listen_in();
    let session = net.open(&net.url_at(&format!("127.0.0.1:{}", cable.port))).unwrap();
    let ws = workspace(&session);
    std::thread::scope(|scope| {
        for n in 0..4u64 {
            let ws = ws.clone();
            scope.spawn(move || {
                let c = create(&ws, &format!("name-that-is-secret-{n}"), "");
                for round in 0..5 {
                    let len = [1, 4096, 70_000, (3 << 20) + 17, 9 << 20][((n + round) % 5) as usize];
                    let bytes = pattern(n * 100 + round, len);
                    ioverbs::write_at(&c, round * 1000, &bytes).unwrap();
                    let mut got = vec![0; len];
                    assert_eq!(ioverbs::read_at(&c, round * 1000, &mut got).unwrap(), len);
                    assert!(got == bytes, "thread {n}, round {round}");
                }
            });
        }
    });
    let heard = cable.heard();
    assert!(heard.len() > 80 << 20);
    let same = pattern(1, 70_000);
    // The first bytes of what was written, a name, and what each frame begins with.
    for part in [&same[..16], b"that-is-secret", b"IOVERBS1"] {
        assert!(!heard.windows(part.len()).any(|w| w == part), "{part:?}");
    }
    let counters = session.counters().snapshot();
    let of = |name: &str| counters[ioverbs::Counters::NAMES.iter().position(|n| *n == name).unwrap()];
    assert!(of("bytes_tcp") > 80 << 20 && of("connections") <= 3);
}

#[test]
fn p2_transfers_go_on_when_the_connection_breaks_within_them() {
    let net = net();
    let cable = net.cable();
    let ws = net.through(&cable);
    let c = create(&ws, "c", "concurrency=exclusive");
    let bytes = pattern(5, 16 << 20);
    ioverbs::write_at(&c, 0, &bytes).unwrap();
    for at in [100_000u64, 3 << 20, 11 << 20] {
        cable.cut_after(at);
        ioverbs::write_at(&c, 0, &bytes).unwrap();
        assert!(cable.was_cut(), "in the middle of a write");
        cable.cut_after(at);
        let mut got = vec![0; bytes.len()];
        assert_eq!(ioverbs::read_at(&c, 0, &mut got).unwrap(), got.len());
        assert!(cable.was_cut() && got == bytes);
        let busy = ioverbs::lookup(&net.workspace(), None, "c", Default::default()).err().unwrap();
        assert_eq!((busy.kind(), busy.clause()), (Kind::Busy, Some(Clause::X1)), "{busy}");
    }
    // Within requests for facts, and the greeting too.
    for i in 0..40u64 {
        cable.cut_after(60 + i * 97 % 3000);
        ioverbs::close(&lookup(&ws, "c")).unwrap();
    }
    cable.cut_after(u64::MAX / 2);
    assert!(read(&c) == bytes);
}

#[test]
fn i1_damage_on_the_wire_breaks_the_connection_and_is_never_read() {
    let net = net();
    let cable = net.cable();
    let ws = net.through(&cable);
    let c = create(&ws, "c", "concurrency=exclusive");
    let good = pattern(1, 3 << 20);
    ioverbs::write_at(&c, 0, &good).unwrap();
    let mended = |ws: &Workspace| {
        let counters = ws.session().counters().snapshot();
        counters[ioverbs::Counters::NAMES.iter().position(|n| *n == "retries").unwrap()]
    };
    let before = mended(&ws);
    for every in [100, 40, 20, 7] {
        cable.damage_every(every);
        for _ in 0..4 {
            let mut got = vec![0; good.len()];
            match ioverbs::read_at(&c, 0, &mut got) {
                Ok(n) => assert!(n == good.len() && got == good, "other bytes than were written"),
                Err(e) => assert!(matches!(e.kind(), Kind::Unavailable | Kind::Timeout), "{e}"),
            }
            if let Err(e) = ioverbs::write_at(&c, 0, &good) {
                assert!(matches!(e.kind(), Kind::Unavailable | Kind::Timeout), "{e}");
            }
        }
    }
    cable.damage_every(0);
    let mut got = vec![0; good.len()];
    wait_until("it goes on", || ioverbs::read_at(&c, 0, &mut got).is_ok());
    assert!(got == good, "damaged bytes were never stored");
    assert!(mended(&ws) > before, "some of it was damaged, and a connection made anew");
}

#[test]
fn a2_a_side_that_speaks_no_tls_is_told_so_at_once() {
    let (with, without) = (net(), Net::new());
    let begun = Instant::now();
    let clear = format!("iov://{}?secret={}", with.address, with.secret().display());
    is_denied(&with.open(&clear).err().unwrap(), "speaks TLS only");
    is_denied(&with.open(&format!("{clear}&tls=none")).err().unwrap(), "?tls=FILE");
    let tls = format!("{}&tls={}", without.url(), with.certificate().display());
    is_denied(&without.open(&tls).err().unwrap(), "does not speak TLS");
    assert!(begun.elapsed().as_secs() < 10, "{:?}", begun.elapsed());
    // Both go on.
    create(&with.workspace(), "c", "");
    create(&without.workspace(), "c", "");
}

/// A CA and a daemon's certificate for some names, in files.
fn signed(dir: &Path, names: &[&str]) -> String {
    let (ca_pair, pair) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    std::fs::write(dir.join("ca.pem"), params.self_signed(&ca_pair).unwrap().pem()).unwrap();
    let issuer = Issuer::new(params, ca_pair);
    let params = CertificateParams::new(names.iter().map(|n| n.to_string()).collect::<Vec<_>>()).unwrap();
    std::fs::write(dir.join("cert.pem"), params.signed_by(&pair, &issuer).unwrap().pem()).unwrap();
    std::fs::write(dir.join("key.pem"), pair.serialize_pem()).unwrap();
    std::fs::set_permissions(dir.join("key.pem"), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    format!("{0}/cert.pem,{0}/key.pem", dir.display())
}

#[test]
fn a2_only_a_certificate_that_is_given_or_signed_is_believed() {
    let dir = tempfile::tempdir().unwrap();
    let net = Net::with(&["--tls", &signed(dir.path(), &["localhost"])]);
    let port = net.address.rsplit_once(':').unwrap().1;
    let url =
        |host: &str, tls: &Path| format!("iov://{host}:{port}?secret={}&tls={}", net.secret().display(), tls.display());
    let (ca, itself) = (dir.path().join("ca.pem"), dir.path().join("cert.pem"));
    create(&workspace(&net.open(&url("localhost", &ca)).unwrap()), "by-ca", "");
    create(&workspace(&net.open(&url("127.0.0.1", &itself)).unwrap()), "by-itself", "");
    is_denied(&net.open(&url("127.0.0.1", &ca)).err().unwrap(), "not for this host");
    // Of another store's, of another CA with the same names, and of whom the system trusts.
    let (store, other) = (self::net(), tempfile::tempdir().unwrap());
    signed(other.path(), &["localhost"]);
    for wrong in [store.certificate(), other.path().join("ca.pem"), other.path().join("cert.pem")] {
        is_denied(&net.open(&url("localhost", &wrong)).err().unwrap(), "IOVERBS_TLS");
    }
    if let Err(e) = net.open(&url("localhost", Path::new("system"))) {
        assert!(matches!(e.kind(), Kind::Denied | Kind::NotFound), "{e}");
    } else {
        panic!("the system does not know this CA");
    }
    let e = net.open(&url("localhost", Path::new("/nowhere"))).err().unwrap();
    assert!(e.kind() == Kind::NotFound && e.detail().contains("/nowhere"), "{e}");
    // The secret is asked for inside all the same.
    let e = net.open(&format!("iov://localhost:{port}?secret=none&tls={}", ca.display())).err().unwrap();
    is_denied(&e, "copy the file named secret");
    let e = net.open(&format!("iov://localhost:{port}?secret={}&tls={}", store.secret().display(), ca.display()));
    is_denied(&e.err().unwrap(), "copy the file named secret");
}

#[test]
fn p2_what_comes_in_place_of_a_killed_daemon_speaks_tls_too() {
    let mut net = net();
    let ws = net.workspace();
    let held = create(&ws, "held", "concurrency=exclusive");
    ioverbs::write_at(&held, 0, b"one").unwrap();
    let certificate = std::fs::read(net.certificate()).unwrap();
    for _ in 0..2 {
        match net.daemon.take() {
            Some(daemon) => daemon.kill(),
            None => net.store.kill(),
        }
        // The next one is started by whoever uses the store on its host.
        drop(net.store.again());
        ioverbs::write_at(&held, 3, b"two").unwrap();
        let clear = format!("iov://{}?secret={}", net.address, net.secret().display());
        is_denied(&net.open(&clear).err().unwrap(), "speaks TLS only");
    }
    assert_eq!(std::fs::read(net.certificate()).unwrap(), certificate, "the one of which clients have a copy");
    ioverbs::close(&held).unwrap();
    assert_eq!(read(&lookup(&net.workspace(), "held")), b"onetwo");
    let log = std::fs::read_to_string(net.store.dir().join("iovd.log")).unwrap();
    assert!(log.contains(", by TLS, for who has the store's secret") && !log.contains("PRIVATE"), "{log}");
}

#[test]
fn a2_who_stalls_in_the_greeting_is_shown_out_and_keeps_nobody_out() {
    let net = net();
    let c = create(&net.workspace(), "calm", "");
    ioverbs::write_at(&c, 0, b"calm").unwrap();
    let connect = || {
        let stream = TcpStream::connect(&net.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream
    };
    // The first bytes of a first message; nothing; all of one, and then nothing; what is none; and what may yet be a word in
    // the clear.
    let mut first = Vec::new();
    client(&net).write_tls(&mut first).unwrap();
    let begun = Instant::now();
    let mut stalled: Vec<TcpStream> = [&first[..50], &[], &first[..], &[0x16, 3, 3, 0x40, 0], b"I", b"IOVERB"]
        .into_iter()
        .map(|bytes| {
            let mut stream = connect();
            stream.write_all(bytes).unwrap();
            stream
        })
        .collect();
    let mut noise = connect();
    let _ = noise.write_all(&pattern(3, 60_000));
    let _ = noise.read_to_end(&mut Vec::new());
    let crowd: Vec<TcpStream> = (0..300)
        .map(|_| {
            let mut stream = connect();
            let _ = stream.write_all(&first[..100]);
            stream
        })
        .collect();
    assert_eq!(read(&lookup(&net.workspace(), "calm")), b"calm", "others are let in");
    for stream in &mut stalled {
        let _ = stream.read_to_end(&mut Vec::new());
    }
    assert!(begun.elapsed().as_secs() < 25, "their time is up: {:?}", begun.elapsed());
    wait_until("they are forgotten", || net.store.status("connections").is_some_and(|n| n < 6));
    drop(crowd);
}

/// A client's side of TLS, as any other program would have it.
fn client(net: &Net) -> ClientConnection {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(net.certificate()).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    ClientConnection::new(Arc::new(config), "127.0.0.1".try_into().unwrap()).unwrap()
}

type Tls = StreamOwned<ClientConnection, TcpStream>;

/// A connection that is asked for proof, and gives one: of its own connection, or as in the clear.
fn prove(net: &Net, session: ioverbs::Uuid, channel: u32, bound: bool) -> (Tls, Verb, Vec<u8>) {
    let mut stream = StreamOwned::new(client(net), raw::connect(&net.address));
    // Hands are shaken before anything is said, so that there is something that only these two know.
    stream.conn.complete_io(&mut stream.sock).unwrap();
    let exported: [u8; 32] =
        stream.conn.export_keying_material([0; 32], b"EXPORTER-IOVerbs-2026-11-proof", None).unwrap();
    let secret = Secret::load(&net.secret()).unwrap();
    let secret = if bound { secret.within(Some(&exported)) } else { secret };
    let (verb, body) = raw::prove_over(&mut stream, &raw::hello(session, channel), &secret);
    (stream, verb, body)
}

#[test]
fn a2_a_proof_that_is_not_of_this_connection_is_refused() {
    let net = net();
    assert_eq!(prove(&net, seam::new_uuid(), 0, true).1, Verb::Welcome);
    // What somebody in the middle could have handed on.
    let (_, verb, body) = prove(&net, seam::new_uuid(), 0, false);
    assert_eq!(verb, Verb::Fault);
    is_denied(&Fault::decode(&body).unwrap().error, "secret");
}

#[test]
fn a2_a_stranger_within_tls_sends_no_large_frames() {
    let net = net();
    let socket = TcpStream::connect(&net.address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut stream = StreamOwned::new(client(&net), socket);
    let large = Header { payload_len: 60 << 20, ..Header::new(Verb::Hello, 1) }.encode();
    stream.write_all(&large).unwrap();
    let (verb, body) = answer(&mut stream);
    assert_eq!((verb, Fault::decode(&body).unwrap().error.kind()), (Verb::Fault, Kind::Corrupt));
    // Nor does somebody in the clear hear more than what to do.
    let mut clear = TcpStream::connect(&net.address).unwrap();
    clear.write_all(&large).unwrap();
    let (header, body) = receive(&mut clear).unwrap();
    assert_eq!(header.verb(), Ok(Verb::Fault));
    is_denied(&Fault::decode(&body).unwrap().error, "speaks TLS only");
    assert!(receive(&mut clear).is_none());
}

/// More requests than a worker serves in a turn, in one piece: the rest is decrypted when the turn ends, and the socket is empty.
#[test]
fn o8_what_was_read_ahead_is_served_without_another_word() {
    let net = net();
    let session = seam::new_uuid();
    let (_first, verb, _) = prove(&net, session, 0, true);
    assert_eq!(verb, Verb::Welcome);
    let (mut stream, ..) = prove(&net, session, 1, true);
    for _ in 0..5 {
        let request = ObjectRequest { context: Default::default(), calls: Vec::new(), tickets: Vec::new() };
        let all: Vec<u8> = (1..=600).flat_map(|n| framed_as(&request, n)).collect();
        stream.write_all(&all).unwrap();
        stream.flush().unwrap();
        for _ in 0..600 {
            assert_eq!(answer(&mut stream).0, Verb::ObjectAnswer);
        }
    }
}

#[test]
fn o8_a_client_that_does_not_listen_takes_no_memory_and_no_worker() {
    let net = Net::with(&["--workers", "2", "--tls", "self"]);
    let pid = net.daemon.as_ref().unwrap().pid();
    let ws = net.workspace();
    let c = create(&ws, "c", "");
    let bytes = pattern(1, 1 << 20);
    ioverbs::write_at(&c, 0, &bytes).unwrap();
    let collection = ioverbs::stat(&c).unwrap().uuid;
    let before = super::load::resident(pid);
    let mut deaf: Vec<(Tls, Tls)> = (0..6)
        .map(|_| {
            let session = seam::new_uuid();
            let (first, verb, _) = prove(&net, session, 0, true);
            assert_eq!(verb, Verb::Welcome);
            (first, prove(&net, session, 1, true).0)
        })
        .collect();
    for (_, stream) in &mut deaf {
        stream.sock.set_nonblocking(true).unwrap();
        raw::ask_for_a_gigabyte(stream, collection);
    }
    for _ in 0..50 {
        let mut got = vec![0; bytes.len()];
        ioverbs::read_at(&c, 0, &mut got).unwrap();
        assert!(got == bytes, "others are served");
    }
    let grown = super::load::resident(pid).saturating_sub(before);
    assert!(grown < 64 << 20, "{} MiB for clients that do not listen", grown >> 20);
}
