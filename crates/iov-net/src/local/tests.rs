#![allow(clippy::disallowed_methods)]

use std::{os::unix::net::UnixStream, time::Duration};

use iov_store::{End, rings_memory, seam};
use iov_types::Kind;
use iov_wire::frame::HEADER_BYTES;
use proptest::prelude::*;

use super::*;

/// Both ends of a connection with rings.
fn pair() -> (Local, Local) {
    let (one, two) = UnixStream::pair().unwrap();
    let (client, server) = (Local::new(one.into()), Local::new(two.into()));
    let memory = rings_memory().unwrap();
    server.begin(Rings::map(&memory, End::Server).unwrap());
    client.begin(Rings::map(&memory, End::Client).unwrap());
    (client, server)
}

/// A frame of so many bytes that says which one it is.
fn frame(number: u64, len: usize) -> Vec<u8> {
    let header = Header { payload_len: len as u64, ..Header::new(Verb::Goodbye, number) };
    let mut frame = header.encode().to_vec();
    frame.resize(HEADER_BYTES + len, number as u8);
    frame
}

/// Which frames there are in a stream, but for those that only wake.
fn numbers(stream: &[u8]) -> Vec<u64> {
    let (mut at, mut numbers) = (0, Vec::new());
    while let Some(header) = stream.get(at..at + HEADER_BYTES) {
        let header = Header::decode(header.try_into().unwrap()).unwrap();
        at += HEADER_BYTES;
        let payload = &stream[at..at + header.payload_len as usize];
        at += payload.len();
        if header.verb != Verb::Wake.number() {
            assert!(payload.iter().all(|b| *b == header.request as u8));
            numbers.push(header.request);
        }
    }
    assert_eq!(at, stream.len(), "whole frames");
    numbers
}

#[derive(Clone, Debug)]
enum Step {
    /// Of so many bytes, perhaps with a descriptor.
    Send(usize, bool),
    /// With room for so many bytes.
    Receive(usize),
    Look(bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (prop_oneof![0..200_usize, 0..20_000_usize], prop::bool::weighted(0.1)).prop_map(|(n, fd)| Step::Send(n, fd)),
        (1..30_000_usize).prop_map(Step::Receive),
        (1..30_000_usize).prop_map(Step::Receive),
        any::<bool>().prop_map(Step::Look),
    ]
}

proptest! {
    #[test]
    fn all_is_received_in_the_order_in_which_it_was_sent(steps in prop::collection::vec(step(), 1..120)) {
        let (client, server) = pair();
        let (mut sent, mut unsent, mut got, mut fds, mut beside) = (0, Vec::<u8>::new(), Vec::new(), Vec::new(), 0);
        let receive = |room: usize, got: &mut Vec<u8>, fds: &mut Vec<Option<OwnedFd>>| {
            let mut buf = vec![0; room];
            let n = server.receive(&mut buf, fds, false).unwrap();
            got.extend_from_slice(&buf[..n.unwrap_or(0)]);
            n
        };
        for step in steps {
            match step {
                Step::Send(len, with) => {
                    // What the socket has not taken of the last one goes first, as from an outbox.
                    let with = with && unsent.is_empty();
                    sent += 1;
                    unsent.extend(frame(sent, len));
                    let null = std::fs::File::open("/dev/null").unwrap();
                    let fds = if with { vec![null.as_fd()] } else { Vec::new() };
                    if let Some(n) = client.send_some(&[IoSlice::new(&unsent)], &fds).unwrap() {
                        unsent.drain(..n);
                        beside += usize::from(with);
                    }
                }
                Step::Receive(room) => drop(receive(room, &mut got, &mut fds)),
                Step::Look(looks) => server.look(looks),
            }
        }
        server.look(false);
        loop {
            let n = receive(10_000, &mut got, &mut fds);
            if n.is_none() && unsent.is_empty() {
                break;
            }
            if !unsent.is_empty() && let Some(n) = client.send_some(&[IoSlice::new(&unsent)], &[]).unwrap() {
                unsent.drain(..n);
            }
        }
        prop_assert!(!server.holds());
        prop_assert_eq!(numbers(&got), (1..=sent).collect::<Vec<_>>());
        prop_assert_eq!(fds.len(), beside);
    }
}

/// Receives a frame; looks for long, or sleeps at once, or anything in between.
fn expect(local: &Local, number: u64, patience: u64) {
    let (expected, mut got, mut buf, mut looks) = (frame(number, (number % 50) as usize), Vec::new(), [0; 4096], 0);
    while got.len() < expected.len() {
        match local.receive_bytes(&mut buf, false).unwrap() {
            Some(0) => panic!("it ended at message {number}"),
            Some(n) => {
                got.extend_from_slice(&buf[..n]);
                while got.starts_with(&Header::new(Verb::Wake, 0).encode()) {
                    got.drain(..HEADER_BYTES);
                }
            }
            None if looks < patience => {
                looks += 1;
                local.look(true);
            }
            None => {
                looks = 0;
                local.look(false);
                if !local.holds() {
                    assert!(socket::wait_readable(local, 20_000_000_000), "nobody told of message {number}");
                }
            }
        }
    }
    assert!(got == expected, "message {number}");
}

#[test]
fn nobody_sleeps_while_there_is_something() {
    const MESSAGES: u64 = 60_000;
    let (client, server) = pair();
    let say = |local: &Local, number: u64| {
        let message = frame(number, (number % 50) as usize);
        assert_eq!(local.send_some(&[IoSlice::new(&message)], &[]), Ok(Some(message.len())));
    };
    // One at a time: nothing comes behind that would wake whoever has missed it.
    let echo = move || {
        for number in 1..=MESSAGES {
            expect(&server, number, number % 61);
            say(&server, number);
        }
    };
    let echo = seam::spawn("echo", echo).unwrap();
    for number in 1..=MESSAGES {
        say(&client, number);
        expect(&client, number, number % 53);
    }
    echo.join().unwrap();
}

#[test]
fn who_is_not_looked_for_is_woken_by_the_socket() {
    let (client, server) = pair();
    let readable = || socket::wait_readable(&server, 0);
    server.look(true);
    client.send_some(&[IoSlice::new(b"by the ring")], &[]).unwrap();
    assert!(!readable() && server.holds());
    server.look(false);
    assert!(server.holds(), "and is asked for that before it sleeps");
    let mut buf = [0; 100];
    assert_eq!(server.receive_bytes(&mut buf, false), Ok(Some(11)));
    client.send_some(&[IoSlice::new(b"by the socket")], &[]).unwrap();
    assert!(readable() && !server.holds());
    assert_eq!(server.receive_bytes(&mut buf, false), Ok(Some(13)));
    assert_eq!(server.receive_bytes(&mut buf, false), Ok(None));
    // What was in the ring before the end comes before it.
    server.look(true);
    client.send_some(&[IoSlice::new(b"the last")], &[]).unwrap();
    drop(client);
    assert_eq!(server.receive_bytes(&mut buf, false), Ok(Some(8)));
    server.look(false);
    assert_eq!(server.receive_bytes(&mut buf, false), Ok(Some(0)));
}

#[test]
fn a_peer_that_lies_about_the_order_is_found_out() {
    for (after, by_socket) in [(1, 0), (1_000, 10), (u64::MAX, 10), (0, 10)] {
        let (one, two) = UnixStream::pair().unwrap();
        one.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let server = Local::new(two.into());
        let memory = rings_memory().unwrap();
        server.begin(Rings::map(&memory, End::Server).unwrap());
        let liar = Rings::map(&memory, End::Client).unwrap();
        let mut buf = [0; 100];
        socket::send_some(&one, &[IoSlice::new(&[7; 10][..by_socket])], &[]).unwrap();
        if after == 0 {
            // Of the past.
            assert_eq!(server.receive_bytes(&mut buf, false), Ok(Some(10)));
        }
        server.look(true);
        assert!(liar.offer(after, &[IoSlice::new(b"x")]).unwrap());
        let mut last = server.receive_bytes(&mut buf, false);
        if by_socket > 0 && after > 0 {
            assert_eq!(last, Ok(Some(10)));
            last = server.receive_bytes(&mut buf, false);
        }
        assert_eq!(last.unwrap_err().kind(), Kind::Corrupt, "{after}");
    }
}
