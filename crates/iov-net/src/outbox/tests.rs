use iov_wire::{Verb, messages::StatusRequest};
use proptest::prelude::*;

use super::*;

fn push(outbox: &mut Outbox, payload: &[&'static [u8]]) -> u64 {
    let request = outbox.next();
    let memory = payload.iter().map(|p| Memory::constant(p)).collect();
    outbox.push(Header::new(Verb::Status, request), &StatusRequest, memory, i64::MAX).unwrap();
    request
}

fn outbox(requests: usize) -> (Outbox, usize) {
    let mut outbox = Outbox::default();
    for _ in 0..requests {
        push(&mut outbox, &[]);
    }
    let frame = outbox.pieces()[0].len();
    (outbox, frame)
}

fn rest(outbox: &Outbox) -> Vec<u8> {
    outbox.pieces().iter().flat_map(|piece| piece.to_vec()).collect()
}

#[test]
fn what_is_not_whole_is_not_sent() {
    let (mut outbox, frame) = outbox(4);
    outbox.took(frame * 2 + 1, None);
    assert_eq!(rest(&outbox).len(), frame * 2 - 1);
    assert_eq!(outbox.give_up(0), [3, 4]);
    assert!(outbox.is_empty() && outbox.pieces().is_empty());
    assert_eq!(push(&mut outbox, &[]), 5, "no number comes twice");
    assert_eq!(rest(&outbox).len(), frame);
}

#[test]
fn at_most_so_many_pieces_as_the_kernel_takes() {
    let (mut outbox, frame) = outbox(PIECES + 7);
    assert_eq!(outbox.pieces().len(), PIECES);
    outbox.took(PIECES * frame, None);
    assert_eq!(outbox.pieces().len(), 7);
}

#[test]
fn a_frame_that_waited_says_what_is_left_of_its_time() {
    let mut outbox = Outbox::default();
    let soon = seam::monotonic_ns() + 50_000_000;
    for deadline in [soon, i64::MAX] {
        let header = Header::new(Verb::Status, outbox.next());
        outbox.push(header, &StatusRequest, Vec::new(), deadline).unwrap();
    }
    let left = |outbox: &Outbox| {
        let pieces = outbox.pieces();
        let header = |i: usize| Header::decode(pieces[i].first_chunk().unwrap()).unwrap().deadline_left_ns;
        (header(0), header(1))
    };
    let before = left(&outbox);
    assert!(before.0 > 0 && before.0 <= 50_000_000 && before.1 == NO_DEADLINE);
    seam::sleep(60_000_000);
    outbox.refresh();
    assert_eq!(left(&outbox), (0, NO_DEADLINE));
    outbox.took(1, None);
    assert!(!outbox.is_unsent(1) && outbox.is_unsent(2));
    let begun = rest(&outbox);
    seam::sleep(20_000_000);
    outbox.refresh();
    assert_eq!(rest(&outbox), begun, "what was begun stays as it is");
}

proptest! {
    /// Whatever the socket takes at a time, and whoever gives up meanwhile: the peer gets whole frames in order.
    #[test]
    fn frames_stay_whole_and_in_order(
        payloads in prop::collection::vec(0usize..4, 1..12),
        steps in prop::collection::vec((0usize..200, prop::option::of(0u64..13)), 0..40),
    ) {
        const PAYLOADS: [&[&[u8]]; 4] = [&[], &[b"", b"seven"], &[b"x", b"", b"second part"], &[&[9; 300]]];
        let mut outbox = Outbox::default();
        let mut frames = Vec::new();
        for payload in payloads {
            let before = rest(&outbox).len();
            let request = push(&mut outbox, PAYLOADS[payload]);
            frames.push((request, rest(&outbox)[before..].to_vec()));
        }
        let mut sent = Vec::new();
        for (bytes, gives_up) in steps {
            let next = rest(&outbox);
            let taken = bytes.min(next.len());
            sent.extend_from_slice(&next[..taken]);
            outbox.took(taken, None);
            let Some(request) = gives_up else { continue };
            let expected: usize = frames.iter().take_while(|(r, _)| *r != request).map(|(_, f)| f.len()).sum();
            match outbox.withdraw(request) {
                Withdrawn::Unsent => {
                    prop_assert!(sent.len() <= expected);
                    frames.retain(|(r, _)| *r != request);
                }
                Withdrawn::Begun => prop_assert!(sent.len() > expected),
                Withdrawn::Sent => {}
                Withdrawn::Stuck => prop_assert!(false, "there is memory"),
            }
        }
        sent.extend(rest(&outbox));
        let whole: Vec<u8> = frames.into_iter().flat_map(|(_, frame)| frame).collect();
        prop_assert_eq!(sent, whole);
    }
}

#[test]
fn what_was_not_taken_from_the_ring_had_no_effect() {
    let memory = iov_store::rings_memory().unwrap();
    let server = Rings::map(&memory, iov_store::End::Server).unwrap();
    let client = Rings::map(&memory, iov_store::End::Client).unwrap();
    server.look(true);
    let mut outbox = Outbox::default();
    // One by the socket, then three times two by the ring; the last one stays here.
    push(&mut outbox, &[]);
    let bytes = outbox.pieces().iter().map(|piece| piece.len()).sum();
    outbox.took(bytes, Some(&client));
    for _ in 0..3 {
        push(&mut outbox, &[b"ten bytes."]);
        push(&mut outbox, &[b"ten bytes."]);
        let pieces = outbox.pieces();
        let bytes = pieces.iter().map(|piece| piece.len()).sum();
        assert!(client.offer(0, &pieces).unwrap());
        outbox.took(bytes, Some(&client));
        assert!(outbox.is_empty());
    }
    push(&mut outbox, &[]);
    // The first two were taken, and of the next two a part: what becomes of those nobody knows.
    let mut all = [0; 4096];
    let two = {
        server.next().unwrap();
        server.take(&mut all).unwrap()
    };
    server.next().unwrap();
    assert_eq!(server.take(&mut all[..two - 1]).unwrap(), two - 1);
    assert_eq!(outbox.give_up(client.give_up()), [6, 7, 8]);
}
