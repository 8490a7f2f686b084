//! The bytes of protocol version 1, pinned. What once went over a wire reads the same for ever: these files are added to,
//! never changed. `UPDATE_GOLDEN=1` writes those that are missing.

use std::path::PathBuf;

use iov_types::{Result, catalog::CatalogOp};
use iov_wire::{Body, Header, Verb, Wire, frame, messages::*};

use crate::examples;

fn path(verb: Verb) -> PathBuf {
    let number = verb.number();
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("golden/v1-{number:02}-{}.bin", verb.name()))
}

fn golden(verb: Verb) -> Vec<u8> {
    let path = path(verb);
    std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}; UPDATE_GOLDEN=1 writes a new one", path.display()))
}

#[test]
fn every_verb_is_written_as_it_was() {
    let frames = examples::frames();
    assert_eq!(frames.iter().map(|(verb, _)| *verb).collect::<Vec<_>>(), Verb::ALL);
    for (verb, frame) in frames {
        if std::env::var_os("UPDATE_GOLDEN").is_some() && !path(verb).exists() {
            std::fs::write(path(verb), &frame).expect("the folder of golden bytes is there");
        }
        assert_eq!(frame, golden(verb), "{}: the encoding of version 1 has changed", verb.name());
    }
}

fn reads_as<B: Body + PartialEq + std::fmt::Debug>(expected: B) {
    let bytes = golden(B::VERB);
    let (head, body) = bytes.split_first_chunk::<{ frame::HEADER_BYTES }>().expect("a whole header");
    let header = Header::decode(head).expect("a header of version 1");
    assert_eq!((header.version, header.verb()), (1, Ok(B::VERB)));
    assert_eq!(header.body::<B>(body), Ok(expected));
}

#[test]
fn version_1_is_read_for_ever() {
    reads_as(examples::hello());
    reads_as(examples::welcome());
    reads_as(examples::catalog_request());
    reads_as(examples::catalog_answer());
    reads_as(examples::object_request());
    reads_as(examples::object_answer());
    reads_as(examples::grant_request());
    reads_as(examples::grant_answer());
    reads_as(examples::recall());
    reads_as(examples::give_back());
    reads_as(examples::renew());
    reads_as(Goodbye);
    reads_as(examples::fault());
    reads_as(StatusRequest);
    reads_as(examples::status_answer());
    reads_as(Shutdown);
}

/// The tags of the variants in a list of choices.
fn tags(choices: impl Iterator<Item = Vec<u8>>) -> Vec<u32> {
    choices
        .map(|bytes| {
            let key = iov_wire::codec::Reader::new(&bytes, "a choice").key();
            key.expect("a key").expect("a variant").0
        })
        .collect()
}

#[test]
fn no_operation_is_without_golden_bytes() {
    let known = |op: &Result<CatalogOp>| op.as_ref().expect("an operation").to_bytes();
    assert_eq!(tags(examples::catalog_request().ops.iter().map(known)), (1..=33).collect::<Vec<_>>());
    let replies = examples::catalog_answer().replies;
    assert_eq!(tags(replies.iter().flatten().map(Wire::to_bytes)), (1..=9).collect::<Vec<_>>());
    let calls = examples::object_request().calls;
    let verbs: Vec<_> = calls.iter().map(|c| &c.op.as_ref().expect("an operation").verb).collect();
    assert_eq!(tags(verbs.iter().map(|v| v.to_bytes())), (1..=18).collect::<Vec<_>>());
    // The numbers of verbs on objects are also those of capabilities, traces and faults.
    assert_eq!(tags(verbs.iter().map(|v| v.to_bytes())), verbs.iter().map(|v| v.kind() as u32).collect::<Vec<_>>());
}
