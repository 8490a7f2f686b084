//! Bytes from a wire are never trusted: whatever they are, reading them ends with a value or with an error that is
//! `Corrupt` (damage) or `Version` (a newer peer), and never with a panic.

use iov_types::catalog::{CatalogOp, CatalogReply, Submission};
use iov_types::{Kind, Result, Uuid};
use iov_wire::messages::*;
use iov_wire::{Header, Wire, frame};
use proptest::prelude::*;

use crate::examples;
use crate::strategies::*;

fn harmless<T: Wire>(bytes: &[u8]) -> bool {
    read_or::<T>(bytes, &[Kind::Corrupt, Kind::Version])
}

fn read_or<T: Wire>(bytes: &[u8], kinds: &[Kind]) -> bool {
    T::decode(bytes).map_or_else(|e| kinds.contains(&e.kind()), |_| true)
}

/// Reads the bytes as every body there is.
fn harmless_as_any(bytes: &[u8]) -> bool {
    harmless::<Hello>(bytes)
        && harmless::<Welcome>(bytes)
        && harmless::<CatalogRequest>(bytes)
        && harmless::<CatalogAnswer>(bytes)
        && harmless::<ObjectRequest>(bytes)
        && harmless::<ObjectAnswer>(bytes)
        && harmless::<GrantRequest>(bytes)
        && harmless::<GrantAnswer>(bytes)
        && harmless::<Recall>(bytes)
        && harmless::<GiveBack>(bytes)
        && harmless::<Renew>(bytes)
        && harmless::<Resume>(bytes)
        && harmless::<ResumeAnswer>(bytes)
        && harmless::<SumsRequest>(bytes)
        && harmless::<SumsAnswer>(bytes)
        && harmless::<TakeBack>(bytes)
        && harmless::<TakeBackAnswer>(bytes)
        && harmless::<Challenge>(bytes)
        && harmless::<Proof>(bytes)
        && harmless::<Join>(bytes)
        && harmless::<JoinAnswer>(bytes)
        && harmless::<iov_types::Ticket>(bytes)
        && harmless::<Goodbye>(bytes)
        && harmless::<Wake>(bytes)
        && harmless::<Fault>(bytes)
        && harmless::<StatusRequest>(bytes)
        && harmless::<StatusAnswer>(bytes)
        && harmless::<Shutdown>(bytes)
}

/// One change somewhere: a byte, a cut, a piece twice.
#[derive(Debug, Clone)]
enum Damage {
    Byte(prop::sample::Index, u8),
    Cut(prop::sample::Index),
    Double(prop::sample::Index, prop::sample::Index),
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        (any::<prop::sample::Index>(), any::<u8>()).prop_map(|(at, byte)| Damage::Byte(at, byte)),
        any::<prop::sample::Index>().prop_map(Damage::Cut),
        (any::<prop::sample::Index>(), any::<prop::sample::Index>()).prop_map(|(a, b)| Damage::Double(a, b)),
    ]
}

fn damaged(mut bytes: Vec<u8>, damages: &[Damage]) -> Vec<u8> {
    for damage in damages {
        let len = bytes.len().max(1);
        match damage {
            Damage::Byte(at, byte) => bytes.iter_mut().skip(at.index(len)).take(1).for_each(|b| *b = *byte),
            Damage::Cut(at) => bytes.truncate(at.index(len)),
            Damage::Double(a, b) => {
                let (a, b) = (a.index(len).min(bytes.len()), b.index(len).min(bytes.len()));
                let piece = bytes[a.min(b)..a.max(b)].to_vec();
                bytes.extend(piece);
            }
        }
    }
    bytes
}

fn damages() -> impl Strategy<Value = Vec<Damage>> {
    proptest::collection::vec(damage(), 1..4)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn any_bytes_are_harmless(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(harmless_as_any(&bytes));
    }

    #[test]
    fn damaged_requests_are_harmless(request in catalog_request(), damages in damages()) {
        prop_assert!(harmless_as_any(&damaged(request.to_bytes(), &damages)));
    }

    #[test]
    fn damaged_answers_are_harmless(answer in catalog_answer(), damages in damages()) {
        prop_assert!(harmless_as_any(&damaged(answer.to_bytes(), &damages)));
    }

    #[test]
    fn damaged_object_messages_are_harmless(q in object_request(), a in object_answer(), damages in damages()) {
        prop_assert!(harmless_as_any(&damaged(q.to_bytes(), &damages)));
        prop_assert!(harmless_as_any(&damaged(a.to_bytes(), &damages)));
    }

    #[test]
    fn a_cut_operation_is_corrupt_or_shorter(op in catalog_op(), cut in any::<prop::sample::Index>()) {
        let bytes = op.to_bytes();
        prop_assert!(read_or::<CatalogOp>(&bytes[..cut.index(bytes.len())], &[Kind::Corrupt]));
    }

    #[test]
    fn any_header_is_harmless(bytes in proptest::array::uniform32(any::<u8>())) {
        let mut head = [0u8; frame::HEADER_BYTES];
        head[..32].copy_from_slice(&bytes);
        prop_assert!(Header::decode(&head).is_err());
        head[..8].copy_from_slice(&frame::MAGIC);
        let crc = frame::checksum(&head); // the checksum's own place is still zero
        head[48..52].copy_from_slice(&crc.to_le_bytes());
        if let Err(error) = Header::decode(&head) {
            prop_assert!(matches!(error.kind(), Kind::Corrupt | Kind::Version));
        }
    }
}

#[test]
fn every_cut_of_every_golden_body_is_harmless() {
    for (_, frame) in examples::frames() {
        let body = &frame[frame::HEADER_BYTES..];
        for cut in 0..body.len() {
            assert!(harmless_as_any(&body[..cut]));
        }
    }
}

#[test]
fn an_operation_of_a_newer_release_fails_by_itself() {
    let known = CatalogOp::TokenExport.to_bytes();
    let unknown: &[u8] = &[0xa2, 0x06, 2, 0x08, 1]; // variant 100 with a field
    let new_field = {
        // Stat with a field 15 that this release does not know and therefore must not overlook.
        let ws = [&[0x0a, 16][..], &[1; 16]].concat();
        [&[0x6a, ws.len() as u8 + 2][..], &ws, &[0x78, 1]].concat()
    };
    let mut request = vec![0x12, 2, 0x0a, 0]; // how = Each
    for op in [&known[..], unknown, &new_field, &known] {
        request.extend([0x1a, op.len() as u8]);
        request.extend(op);
    }
    let request = CatalogRequest::decode(&request).unwrap();
    assert_eq!(request.how, Submission::Each);
    let kinds: Vec<_> = request.ops.iter().map(|op| op.as_ref().map_err(|e| e.kind())).collect();
    let export = &CatalogOp::TokenExport;
    assert_eq!(kinds, [Ok(export), Err(Kind::Version), Err(Kind::Version), Ok(export)]);
}

#[test]
fn a_reply_of_a_newer_release_is_an_error_that_says_it_was_applied() {
    let bytes = [0x0a, 5, 0xa2, 0x06, 2, 0x08, 1]; // ok = variant 100
    let error = Result::<CatalogReply>::decode(&bytes).unwrap().unwrap_err();
    assert_eq!((error.kind(), error.outcome()), (Kind::Version, iov_types::Outcome::Applied));
}

#[test]
fn an_error_of_a_newer_release_stays_an_error_with_its_sentence() {
    let mut bytes = vec![0x08, 0xd0, 0x0f, 0x10, 9]; // kind 2000, outcome 9
    bytes.extend(b"\x1a\x03Z99\x22\x05moons");
    let error = iov_types::Error::decode(&bytes).unwrap();
    assert_eq!((error.kind(), error.outcome(), error.clause()), (Kind::Internal, iov_types::Outcome::Unknown, None));
    assert!(error.detail().contains("moons") && error.detail().contains("2000") && error.detail().contains("Z99"));
}

#[test]
fn strict_requests_refuse_what_answers_may_add() {
    let added = [0xf8, 0x07, 1]; // field 127
    assert_eq!(CatalogRequest::decode(&added).unwrap_err().kind(), Kind::Version);
    assert_eq!(ObjectRequest::decode(&added).unwrap_err().kind(), Kind::Version);
    assert_eq!(GrantRequest::decode(&added).unwrap_err().kind(), Kind::Version);
    assert_eq!(iov_types::Controls::decode(&added).unwrap_err().kind(), Kind::Version);
    assert_eq!(CatalogAnswer::decode(&added), Ok(CatalogAnswer::default()));
    assert_eq!(StatusAnswer::decode(&added), Ok(StatusAnswer::default()));
    assert_eq!(Hello::decode(&added).map(|h| h.session), Ok(Uuid::NIL));
}
