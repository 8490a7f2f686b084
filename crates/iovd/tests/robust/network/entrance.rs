//! Who is let in (A2).

use std::{
    io::Write,
    net::{TcpListener, TcpStream},
};

use iov_net::secret::{Secret, Side};
use iov_wire::{
    Header, Verb, Wire,
    messages::{Challenge, Fault, Hello, ObjectRequest, Proof, StatusRequest},
};
use ioverbs::{Clause, Kind, Uuid, seam};

use super::*;
use crate::{
    kit::{create, lookup, read, wait_until},
    raw::{connect, framed, hello, prove, receive},
};

/// The answer, if it is a fault.
fn fault(stream: &mut TcpStream) -> Option<Kind> {
    let (header, body) = receive(stream)?;
    assert_eq!(header.verb(), Ok(Verb::Fault), "nobody is let in");
    Some(Fault::decode(&body).unwrap().error.kind())
}

#[test]
fn a2_a_client_without_the_secret_is_not_let_in() {
    let net = Net::new();
    create(&net.workspace(), "mine", "");
    let other = net.store.dir().join("other");
    Secret::make(&other).unwrap();
    for secret in [other.to_str().unwrap(), "none"] {
        let e = net.open(&format!("iov://{}?secret={secret}", net.address)).err().unwrap();
        assert_eq!((e.kind(), e.clause()), (Kind::Denied, Some(Clause::A2)), "{e}");
        assert!(e.detail().contains("copy the file named secret"), "{e}");
    }
    let e = net.open(&format!("iov://{}?secret=/nowhere", net.address)).err().unwrap();
    assert!(e.kind() == Kind::NotFound && e.detail().contains("/nowhere"), "{e}");
    lookup(&net.workspace(), "mine");
}

#[test]
fn a2_a_daemon_without_the_secret_is_not_believed() {
    let net = Net::with(&["--no-secret"]);
    Secret::make(&net.secret()).unwrap();
    let e = net.open(&net.url()).err().unwrap();
    assert_eq!((e.kind(), e.clause()), (Kind::Denied, Some(Clause::A2)), "{e}");
    assert!(e.detail().contains("secret=none"), "{e}");
    // Who says that it does not matter is let in.
    let open = net.open(&format!("iov://{}?secret=none", net.address)).unwrap();
    create(&workspace(&open), "c", "");
    // One that asks for a proof, and then cannot give one.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let impostor = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        receive(&mut stream).unwrap();
        stream.write_all(&framed(&Challenge { challenge: vec![1; 32] })).unwrap();
        let (header, body) = receive(&mut stream).unwrap();
        assert_eq!(header.verb(), Ok(Verb::Proof));
        // Sent back, it is no proof of the other side's.
        let proof = Proof::decode(&body).unwrap().proof;
        let capability = iov_wire::messages::StoreCapability {
            targets: (&iov_semantics::stores::mem(1)).into(),
            max_ops: 1,
            single_user: true,
            inline_bytes: 0,
        };
        let welcome = iov_wire::messages::Welcome {
            version: 1,
            store: Uuid([1; 16]),
            incarnation: 1,
            capability,
            daemon: String::new(),
            pid: 1,
            lease_ns: 1,
            proof,
            addresses: Vec::new(),
            target: 0,
            priorities: false,
            rings: false,
        };
        stream.write_all(&framed(&welcome)).unwrap();
        receive(&mut stream).is_none()
    });
    let e = net.open(&net.url_at(&format!("127.0.0.1:{port}"))).err().unwrap();
    assert_eq!((e.kind(), e.clause()), (Kind::Denied, Some(Clause::A2)), "{e}");
    assert!(impostor.join().unwrap(), "it was told nothing more");
}

#[test]
fn a2_the_secret_is_never_sent() {
    let net = Net::new();
    let cable = net.cable();
    cable.listen_in();
    let c = create(&net.through(&cable), "c", "");
    ioverbs::write_at(&c, 0, &pattern(1, 100_000)).unwrap();
    let heard = cable.heard();
    let secret = std::fs::read(net.secret()).unwrap();
    let secret = secret.trim_ascii();
    let raw: Vec<u8> =
        secret.chunks(2).map(|p| u8::from_str_radix(std::str::from_utf8(p).unwrap(), 16).unwrap()).collect();
    assert!(heard.len() > 100_000);
    for part in [&secret[..16], &raw[..8]] {
        assert!(!heard.windows(part.len()).any(|w| w == part));
    }
    // Nor do two proofs look alike.
    let proof = |secret: &Secret, challenge: u8| secret.proof(Side::Client, &hello(Uuid([1; 16]), 0), &[challenge; 32]);
    let secret = Secret::load(&net.secret()).unwrap();
    assert_ne!(proof(&secret, 1), proof(&secret, 2));
}

#[test]
fn a2_strangers_get_nothing_and_disturb_nobody() {
    let net = Net::new();
    let c = create(&net.workspace(), "calm", "");
    ioverbs::write_at(&c, 0, b"calm").unwrap();
    // Requests before the proof, frames that are too large for a greeting, bytes of any kind, half a hello.
    let large = Header { payload_len: 60 << 20, ..Header::new(Verb::Hello, 1) }.encode().to_vec();
    let half = framed(&hello(seam::new_uuid(), 0))[..70].to_vec();
    for bytes in [framed(&StatusRequest), framed(&Proof { proof: vec![0; 32] }), pattern(3, 5000), large, half] {
        let mut stream = connect(&net.address);
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        assert!(fault(&mut stream).is_none_or(|kind| kind == Kind::Corrupt));
        assert!(receive(&mut stream).is_none());
    }
    // A proof of another challenge, or for another session.
    let secret = Secret::load(&net.secret()).unwrap();
    let said = hello(seam::new_uuid(), 0);
    let mut stream = connect(&net.address);
    stream.write_all(&framed(&said)).unwrap();
    assert_eq!(receive(&mut stream).unwrap().0.verb(), Ok(Verb::Challenge));
    let proof = secret.proof(Side::Client, &said, &[9; 32]).to_vec();
    stream.write_all(&framed(&Proof { proof })).unwrap();
    assert_eq!(fault(&mut stream), Some(Kind::Denied));
    // Another version.
    let mut stream = connect(&net.address);
    stream.write_all(&framed(&Hello { min_version: 7, max_version: 9, ..said })).unwrap();
    assert_eq!(fault(&mut stream), Some(Kind::Version));
    assert_eq!(read(&c), b"calm");
}

#[test]
fn x1_a_channel_is_for_bytes_and_belongs_to_a_session() {
    let net = Net::new();
    let secret = Secret::load(&net.secret()).unwrap();
    let session = seam::new_uuid();
    assert_eq!(prove(&net.address, &hello(session, 1), &secret).1, Verb::Fault, "the first connection comes first");
    let (first, verb) = prove(&net.address, &hello(session, 0), &secret);
    assert_eq!(verb, Verb::Welcome);
    assert_eq!(prove(&net.address, &hello(session, 65), &secret).1, Verb::Fault, "there is an end to them");
    let (mut channel, verb) = prove(&net.address, &hello(session, 1), &secret);
    assert_eq!(verb, Verb::Welcome);
    channel.write_all(&framed(&StatusRequest)).unwrap();
    assert_eq!(fault(&mut channel), Some(Kind::Invalid));
    channel
        .write_all(&framed(&ObjectRequest { context: Default::default(), calls: Vec::new(), tickets: Vec::new() }))
        .unwrap();
    assert_eq!(receive(&mut channel).unwrap().0.verb(), Ok(Verb::ObjectAnswer));
    drop(first);
    assert!(receive(&mut channel).is_none(), "it ends with the first");
}

#[test]
fn a2_nothing_listens_unless_asked_and_not_behind_an_end_in_order() {
    let store = Store::new();
    drop(store.session());
    assert!(addresses(&store).is_empty());
    store.shut_down();
    let daemon = store.daemon(&["--listen", "127.0.0.1:0"], &[]);
    let address = addresses(&store).remove(0);
    assert!(TcpStream::connect(&address).is_ok());
    // In place of one that crashed the next one listens, on the same port.
    daemon.kill();
    drop(store.session());
    assert_eq!(addresses(&store), std::slice::from_ref(&address));
    store.shut_down();
    drop(store.session());
    assert!(addresses(&store).is_empty() && TcpStream::connect(&address).is_err());
}

#[test]
fn a_silent_stranger_is_shown_out() {
    let net = Net::new();
    let mut stream = connect(&net.address);
    assert!(receive(&mut stream).is_none(), "its time is up");
    wait_until("the connection is forgotten", || net.store.status("connections") == Some(1));
}
