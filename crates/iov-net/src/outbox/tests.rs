use iov_wire::{Verb, messages::StatusRequest};

use super::*;

fn outbox(requests: std::ops::Range<u64>) -> (Outbox, usize) {
    let mut outbox = Outbox::default();
    for request in requests.clone() {
        outbox.push(Header::new(Verb::Status, request), &StatusRequest).unwrap();
    }
    let frame = outbox.rest().len() / (requests.end - requests.start) as usize;
    (outbox, frame)
}

#[test]
fn what_is_not_whole_is_not_sent() {
    let (mut outbox, frame) = outbox(1..5);
    outbox.took(frame * 2 + 1);
    assert_eq!(outbox.rest().len(), frame * 2 - 1);
    assert_eq!(outbox.give_up(), [3, 4]);
    assert!(outbox.is_empty() && outbox.rest().is_empty());
}

#[test]
fn frames_stay_in_order_over_any_pieces() {
    let (mut whole, frame) = outbox(1..9);
    let expected = whole.rest().to_vec();
    let mut sent = Vec::new();
    while !whole.is_empty() {
        let piece = whole.rest().len().min(frame - 3);
        sent.extend_from_slice(&whole.rest()[..piece]);
        whole.took(piece);
    }
    assert_eq!(sent, expected);
    whole.push(Header::new(Verb::Status, 9), &StatusRequest).unwrap();
    assert_eq!(whole.rest().len(), frame);
    assert_eq!(whole.give_up(), [9]);
}

#[test]
fn room_comes_back_as_frames_are_taken_though_it_is_never_empty() {
    let (mut outbox, frame) = outbox(0..1);
    let mut most = 0;
    for request in 1..(3 * ROOM / frame) as u64 {
        assert!(outbox.has_room());
        outbox.push(Header::new(Verb::Status, request), &StatusRequest).unwrap();
        outbox.took(frame);
        most = most.max(outbox.bytes.capacity());
    }
    assert!(most < 4 * ROOM, "{most}");
    assert_eq!(outbox.give_up().len(), 1);
    let (mut full, _) = self::outbox(0..(ROOM / frame) as u64 + 1);
    assert!(!full.has_room());
    full.took(frame * 2);
    assert!(full.has_room());
}

#[test]
fn a_frame_that_was_begun_is_ended_before_what_was_posted_meanwhile() {
    let (mut outbox, frame) = outbox(7..9);
    outbox.took(frame * 2);
    outbox.push(Header::new(Verb::Status, 9), &StatusRequest).unwrap();
    outbox.push(Header::new(Verb::Status, 10), &StatusRequest).unwrap();
    let posted = outbox.rest().to_vec();
    assert!(outbox.push_rest(4, &[b"head", b"", b"payload"], 6));
    assert_eq!(outbox.rest(), [&b"yload"[..], &posted].concat());
    outbox.took(4);
    assert_eq!(outbox.rest().len(), 1 + posted.len());
    outbox.took(1 + frame);
    assert_eq!(outbox.rest(), &posted[frame..]);
    assert_eq!(outbox.give_up(), [10]);
}
