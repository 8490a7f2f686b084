use std::os::{fd::AsFd, unix::net::UnixStream};

use iov_net::socket;

use super::*;

fn pair() -> (Stream, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    (OwnedFd::from(ours).into(), theirs)
}

#[test]
fn o8_what_a_peer_does_not_take_waits_and_comes_in_order() {
    let (ours, theirs) = pair();
    let mut out = Outgoing::default();
    let piece = |byte: u8, len: usize| vec![byte; len];
    for i in 0..40u8 {
        let payload = vec![piece(i, 50_000).into(), Vec::new().into(), piece(i, 1).into()];
        out.push(Parcel { head: piece(i, 64), payload, fds: Vec::new() });
    }
    assert!(out.send(&ours).unwrap(), "a socket takes something");
    assert!(!out.is_empty(), "and not two megabytes");
    assert!(!out.send(&ours).unwrap());
    let mut got = Vec::new();
    let mut none: Vec<Option<OwnedFd>> = Vec::new();
    while got.len() < 40 * 50_065 {
        let mut buf = vec![0; 70_001];
        if let Some(n) = socket::receive(theirs.as_fd(), &mut buf, &mut none, false).unwrap() {
            got.extend_from_slice(&buf[..n]);
        }
        out.send(&ours).unwrap();
    }
    assert!(out.is_empty());
    for (i, frame) in got.chunks(50_065).enumerate() {
        assert!(frame.iter().all(|b| *b == i as u8), "frame {i}");
    }
}

#[test]
fn descriptors_go_beside_their_own_frame() {
    let (ours, theirs) = pair();
    let mut out = Outgoing::default();
    let null = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
    out.push(Parcel { head: vec![1; 10], ..Parcel::default() });
    out.push(Parcel { head: vec![2; 10], payload: vec![vec![3; 5].into()], fds: vec![null(), null()] });
    out.send(&ours).unwrap();
    let mut fds: Vec<Option<OwnedFd>> = Vec::new();
    let mut buf = [0; 100];
    let mut got = 0;
    while got < 10 {
        got += socket::receive(theirs.as_fd(), &mut buf[got..10], &mut fds, false).unwrap().unwrap();
    }
    assert!(fds.is_empty(), "none came beside the first frame");
    socket::receive(theirs.as_fd(), &mut buf, &mut fds, false).unwrap();
    assert_eq!(fds.len(), 2);
}
