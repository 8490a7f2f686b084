use iov_types::Kind;

use super::*;
use crate::messages::{CatalogAnswer, Goodbye, StatusAnswer};

fn frame() -> Vec<u8> {
    let mut out = b"before".to_vec();
    let header = Header { deadline_left_ns: 5, payload_len: 7, ..Header::new(Verb::StatusAnswer, 9) };
    append(header, &StatusAnswer { daemon: "1.0".into(), ..StatusAnswer::default() }, &mut out).unwrap();
    out.split_off(6)
}

fn head(frame: &[u8]) -> [u8; HEADER_BYTES] {
    frame[..HEADER_BYTES].try_into().unwrap()
}

/// The header with some bytes changed and its checksum made to match.
fn forged(at: usize, bytes: &[u8]) -> [u8; HEADER_BYTES] {
    let mut head = head(&frame());
    head[at..at + bytes.len()].copy_from_slice(bytes);
    head[CRC_AT..CRC_AT + 4].fill(0);
    let crc = checksum(&head);
    head[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
    head
}

fn refused(head: &[u8; HEADER_BYTES]) -> Kind {
    Header::decode(head).unwrap_err().kind()
}

#[test]
fn crc32c_has_its_check_value() {
    assert_eq!(checksum(b"123456789"), 0xe306_9283);
}

#[test]
fn a_frame_reads_back() {
    let frame = frame();
    let header = Header::decode(&head(&frame)).unwrap();
    assert_eq!((header.verb().unwrap(), header.request), (Verb::StatusAnswer, 9));
    assert_eq!((header.deadline_left_ns, header.payload_len), (5, 7));
    assert_eq!(header.body_len as usize, frame.len() - HEADER_BYTES);
    assert_eq!(header.body::<StatusAnswer>(&frame[HEADER_BYTES..]).unwrap().daemon, "1.0");
    assert_eq!(header.encode(), head(&frame));
}

#[test]
fn i1_every_changed_bit_is_noticed() {
    let good = frame();
    for bit in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        let read = Header::decode(&head(&bad)).and_then(|h| h.body::<StatusAnswer>(&bad[HEADER_BYTES..]));
        assert_eq!(read.unwrap_err().kind(), Kind::Corrupt, "bit {bit}");
    }
}

#[test]
fn limits_hold_both_ways() {
    assert_eq!(refused(&forged(24, &(BODY_BYTES as u32 + 1).to_le_bytes())), Kind::Corrupt);
    assert_eq!(refused(&forged(32, &(PAYLOAD_BYTES as u64 + 1).to_le_bytes())), Kind::Corrupt);
    assert!(Header::decode(&forged(24, &(BODY_BYTES as u32).to_le_bytes())).is_ok());

    let mut out = b"kept".to_vec();
    let large = StatusAnswer { daemon: "x".repeat(BODY_BYTES), ..StatusAnswer::default() };
    let error = append(Header::new(Verb::StatusAnswer, 1), &large, &mut out).unwrap_err();
    assert_eq!((error.kind(), &out[..]), (Kind::TooBig, &b"kept"[..]));
    let header = Header { payload_len: PAYLOAD_BYTES as u64 + 1, ..Header::new(Verb::Goodbye, 1) };
    assert_eq!(append(header, &Goodbye, &mut out).unwrap_err().kind(), Kind::TooBig);
}

#[test]
fn a_newer_peer_is_told_apart_from_damage() {
    assert_eq!(refused(&forged(8, &99u16.to_le_bytes())), Kind::Version);
    assert_eq!(refused(&forged(12, &2u32.to_le_bytes())), Kind::Version);
    assert_eq!(refused(&forged(RESERVED_AT, &[1])), Kind::Version);
    assert_eq!(refused(&head(&[b'G'; HEADER_BYTES])), Kind::Corrupt);
    let header = Header::decode(&forged(10, &999u16.to_le_bytes())).unwrap();
    assert_eq!(header.verb().unwrap_err().kind(), Kind::Version, "the frame can be skipped and answered");
}

#[test]
fn a_request_may_give_way() {
    assert_eq!(Header::decode(&forged(12, &BACKGROUND.to_le_bytes())).unwrap().flags, BACKGROUND);
    assert_eq!(Header::decode(&head(&frame())).unwrap().flags, 0);
}

#[test]
fn releases_of_any_age_read_a_handshake() {
    for verb in [Verb::Hello, Verb::Welcome] {
        assert_eq!(Header::new(verb, 1).version, 1);
    }
    assert_eq!(Header::new(Verb::Catalog, 1).version, MAX_VERSION);
}

#[test]
fn a_body_belongs_to_its_verb() {
    let frame = frame();
    let header = Header::decode(&head(&frame)).unwrap();
    let error = header.body::<CatalogAnswer>(&frame[HEADER_BYTES..]).unwrap_err();
    assert!(error.detail().contains("sent StatusAnswer where CatalogAnswer belongs"), "{error}");
}
