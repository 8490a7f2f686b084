//! The bare server keeps and gives what it is asked for, the samples lie apart, and no byte can go another way unseen.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{
    KINDS,
    bare::{Ask, Bare, listen},
    worker::{BATCH, SAMPLES, TURN, by, offsets},
};
use crate::{
    buffer::{Buffer, spoil},
    cores,
    data::{SCHEDULE, SMALL},
};

const MIB: usize = 1 << 20;

fn counters(pairs: &[(&str, u64)]) -> Map<String, Value> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect()
}

proptest! {
    #[test]
    fn a_request_is_read_as_it_was_written(kind in 1u8..4, a in any::<u64>(), len in any::<u64>()) {
        let ask = match kind {
            1 => Ask::Write { at: a, len },
            2 => Ask::Read { at: a, len },
            _ => Ask::Core(a),
        };
        prop_assert_eq!(Ask::decode(ask.encode()).unwrap(), ask);
    }

    #[test]
    fn a_spoilt_byte_is_one_of_the_buffer(len in 1usize..5000, at in any::<u32>()) {
        let mut buffer = vec![7; len];
        let spot = spoil(&mut buffer, u64::from(at), 8);
        prop_assert_eq!(buffer.iter().position(|b| *b == 8), Some(spot));
    }
}

#[test]
fn no_request_is_no_request() {
    assert!(Ask::decode([0; 24]).is_err());
}

#[test]
fn bytes_come_back_over_either_socket() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bare");
    let tcp = listen(&path, Buffer::filled(4 * MIB, 1)).unwrap().to_string();
    for (address, tag) in [(tcp.as_str(), 2), (path.to_str().unwrap(), 3)] {
        let mut bare = Bare::connect(address).unwrap();
        bare.serve_on(cores::allowed().unwrap()[0]).unwrap();
        bare.write(MIB as u64, &vec![tag; MIB], 2).unwrap();
        bare.ask(0, 4 * MIB as u64).unwrap();
        for expected in [1, tag, tag, 1] {
            let mut part = vec![0; MIB];
            bare.receive(&mut part).unwrap();
            assert!(part.iter().all(|b| *b == expected), "{address}");
        }
    }
}

#[test]
fn the_bare_server_keeps_nothing_beyond_its_memory() {
    let dir = tempfile::tempdir().unwrap();
    let address = listen(&dir.path().join("bare"), Buffer::filled(MIB, 1)).unwrap().to_string();
    for at in [1, u64::MAX] {
        let mut bare = Bare::connect(&address).unwrap();
        bare.ask(at, MIB as u64).unwrap();
        assert!(bare.receive(&mut [0]).is_err());
    }
}

#[test]
fn samples_lie_apart() {
    let all: Vec<u64> = (0..4).flat_map(offsets).collect();
    assert_eq!(all.len(), 4 * SAMPLES);
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
    assert!(all.iter().all(|at| at.is_multiple_of(SMALL.request) && *at < SCHEDULE.footprint));
    // Both sides go first as often.
    assert!(SAMPLES.is_multiple_of(2 * TURN));
    let last = offsets(1_000_000);
    assert_eq!(last.len(), SAMPLES);
}

#[test]
fn whole_batches_fill_a_piece() {
    assert!(SCHEDULE.piece.is_multiple_of(BATCH * SCHEDULE.request));
}

#[test]
fn bytes_that_went_another_way_are_an_error() {
    let said = by("tcp", 100, counters(&[("bytes_tcp", 120), ("round_trips", 3)])).unwrap();
    assert_eq!((&said["bytes_direct"], &said["bytes_unix"], &said["bytes_tcp"]), (&json!(0), &json!(0), &json!(120)));
    assert_eq!(said["round_trips"], 3);
    for wrong in [&[("bytes_tcp", 99)][..], &[("bytes_direct", 100)], &[("bytes_tcp", 100), ("bytes_direct", 1)], &[]] {
        assert!(by("tcp", 100, counters(wrong)).is_err(), "{wrong:?}");
    }
}

#[test]
fn the_cases_are_those_of_the_interface() {
    let names = [
        "tcp.write.1MiB",
        "tcp.read.1MiB",
        "tcp.read.4KiB.latency",
        "uds.read.4KiB.latency",
        "tcp.submit.4KiB",
        "tcp.overlap",
    ];
    assert_eq!(KINDS.map(|kind| kind.name), names);
}

#[test]
fn a_thread_stays_where_it_is_put() {
    let all = cores::allowed().unwrap();
    let last = *all.last().unwrap();
    cores::stay_on(0, &[last]).unwrap();
    assert_eq!(cores::allowed().unwrap(), [last]);
    cores::stay_on(0, &all).unwrap();
    assert_eq!(cores::allowed().unwrap(), all);
}
