use std::{io::Write, os::unix::net::UnixStream};

use iov_wire::{Verb, frame, messages::Goodbye};
use proptest::prelude::*;

use super::*;

fn frame(number: u64, payload: usize) -> Vec<u8> {
    let header = Header { payload_len: payload as u64, ..Header::new(Verb::Goodbye, number) };
    let mut out = Vec::new();
    frame::append(header, &Goodbye, &mut out).unwrap();
    out.extend((0..payload).map(|i| (i as u64 * 31 + number) as u8));
    out
}

fn pair() -> (UnixStream, Stream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    (ours, OwnedFd::from(theirs).into())
}

fn is_payload(bytes: &[u8], number: u64) -> bool {
    bytes.iter().enumerate().all(|(i, b)| *b == (i as u64 * 31 + number) as u8)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Whatever the pieces in which a stream arrives, and whoever takes the payloads, the frames are the same.
    #[test]
    fn frames_are_cut_wherever_the_stream_is(
        payloads in prop::collection::vec(prop_oneof![Just(0), 1usize..200, 10_000usize..60_000], 1..8),
        pieces in prop::collection::vec(1usize..30_000, 1..20),
        in_place in any::<bool>(),
    ) {
        let (mut ours, theirs) = pair();
        let stream: Vec<u8> = payloads.iter().enumerate().flat_map(|(i, len)| frame(i as u64, *len)).collect();
        let mut sent = 0;
        let mut sizes = pieces.iter().cycle();
        let mut frames = Frames::default();
        let mut got = Vec::new();
        let mut landing: Option<(Header, Vec<u8>)> = None;
        while got.len() < payloads.len() {
            if sent < stream.len() {
                let n = (*sizes.next().unwrap()).min(stream.len() - sent);
                ours.write_all(&stream[sent..sent + n]).unwrap();
                sent += n;
            }
            loop {
                if !in_place {
                    let Some(frame) = frames.next(&theirs, false).unwrap() else { break };
                    got.push((frame.header.request, frame.payload.to_vec()));
                    frames.give_back(frame);
                    continue;
                }
                let (header, mut at) = match landing.take() {
                    Some(landing) => landing,
                    None => match frames.head(&theirs, false).unwrap() {
                        Some((header, _)) => (header, Vec::new()),
                        None => break,
                    },
                };
                let left = header.payload_len as usize - at.len();
                let mut room = vec![0; left.min(7000)];
                let n = frames.payload(&theirs, &mut room, false).unwrap();
                at.extend_from_slice(&room[..n.unwrap_or(0)]);
                if at.len() as u64 == header.payload_len {
                    got.push((header.request, at));
                } else {
                    landing = Some((header, at));
                    if n.is_none() {
                        break;
                    }
                }
            }
        }
        for (i, (len, (number, payload))) in payloads.iter().zip(&got).enumerate() {
            prop_assert_eq!((*number, payload.len()), (i as u64, *len));
            prop_assert!(is_payload(payload, *number));
        }
    }
}

#[test]
fn what_is_announced_takes_memory_only_as_it_comes() {
    let (mut ours, theirs) = pair();
    let header = Header { payload_len: 60 << 20, ..Header::new(Verb::Goodbye, 1) };
    let mut out = Vec::new();
    frame::append(header, &Goodbye, &mut out).unwrap();
    ours.write_all(&out).unwrap();
    ours.write_all(&[7; 1000]).unwrap();
    let mut frames = Frames::default();
    assert!(frames.next(&theirs, false).unwrap().is_none());
    assert!(frames.payload.buf.len() <= 2 * GROWTH && frames.buf.len() <= GROWTH);
    drop(ours);
    let e = frames.next(&theirs, false).unwrap_err();
    assert!(frames.at_end() && e.detail().contains("in the middle of a frame"), "{e}");
}

#[test]
fn a_stranger_sends_no_large_frames() {
    let (mut ours, theirs) = pair();
    let mut frames = Frames::without_descriptors();
    frames.limit(1000);
    ours.write_all(&frame(1, 900)).unwrap();
    assert!(frames.next(&theirs, false).unwrap().is_some());
    ours.write_all(&frame(2, 1001)).unwrap();
    assert!(frames.next(&theirs, false).is_err());
}

#[test]
fn the_memory_of_payloads_is_used_again() {
    let (mut ours, theirs) = pair();
    let mut frames = Frames::default();
    let mut buffer = vec![0; 4096];
    let at = buffer.as_ptr();
    for i in 0..3 {
        frames.exchange(&mut buffer);
        ours.write_all(&frame(i, 4000)).unwrap();
        let got = frames.next(&theirs, false).unwrap().unwrap();
        assert!(std::ptr::eq(got.payload.as_ptr(), at) && is_payload(&got.payload, i));
        frames.give_back(got);
        frames.exchange(&mut buffer);
    }
    assert!(std::ptr::eq(buffer.as_ptr(), at));
}

#[test]
fn the_memory_of_bodies_is_used_again_unless_it_is_large() {
    let (mut ours, theirs) = pair();
    let mut frames = Frames::default();
    let body = Vec::with_capacity(SPARE);
    let at = body.as_ptr();
    let small = Header::new(Verb::Goodbye, 0);
    frames.give_back(Frame { header: small, body, payload: Payload::default() });
    for i in 0..3 {
        ours.write_all(&frame(i, 100)).unwrap();
        let got = frames.next(&theirs, false).unwrap().unwrap();
        assert!(std::ptr::eq(got.body.as_ptr(), at) && got.header.check_body(&got.body).is_ok());
        assert_eq!(got.body.len(), got.header.body_len as usize);
        frames.give_back(got);
        // One that is larger than what is kept, and one that is smaller than what is there.
        frames.give_back(Frame { header: small, body: Vec::with_capacity(SPARE + 1), payload: Payload::default() });
        frames.give_back(Frame { header: small, body: vec![1; 10], payload: Payload::default() });
    }
}
