//! Appends: every record once, whole, in its writer's order, however often it is repeated (M4).

use iov_types::{Kind, ObjectVerb, Uuid};

use super::{
    BackendCheck, MakeBackend, Probe, Rng, checks,
    kit::{Thread, fails, pattern, together, uuid},
};
use crate::seam;

pub(super) fn checks() -> Vec<BackendCheck> {
    checks![BackendCheck:
        m4_appends_from_many_threads_are_all_there,
        m4_readers_stop_before_unfinished_records,
        m4_a_repeated_append_applies_once,
        m4_racing_repetitions_apply_once,
        m4_repetitions_hold_across_a_seal,
        m4_staged_appends_apply_once if |c| c.staging,
        m4_a_dropped_append_can_be_repeated if |c| c.staging,
        b3_a_batch_older_than_a_day_is_refused,
    ]
}

const WRITERS: usize = 8;
const RECORDS: usize = 60;

/// A record: writer, sequence number, length, bytes that follow from them; no byte of the bytes is zero.
fn record(writer: usize, seq: usize) -> Vec<u8> {
    let seed = (writer * RECORDS + seq) as u64;
    let data = pattern(seed, 1 + Rng::new(seed).below(3000) as usize);
    [&[0xff, writer as u8 + 1, seq as u8 + 1][..], &(data.len() as u32).to_le_bytes(), &data].concat()
}

/// Takes the records apart again: (offset, writer, sequence number).
fn records(bytes: &[u8]) -> Vec<(u64, usize, usize)> {
    let (mut at, mut out) = (0, Vec::new());
    while at < bytes.len() {
        assert!(bytes.len() - at >= 7 && bytes[at] == 0xff, "no record begins at {at}");
        let (writer, seq) = (bytes[at + 1] as usize - 1, bytes[at + 2] as usize - 1);
        let whole = record(writer, seq);
        assert!(bytes[at..].starts_with(&whole), "record {seq} of writer {writer} at {at} is torn");
        out.push((at as u64, writer, seq));
        at += whole.len();
    }
    out
}

fn m4_appends_from_many_threads_are_all_there(make: MakeBackend<'_>) {
    let object = Probe::new(&make(), 1);
    let to = object.clone();
    let told = together(WRITERS, move |writer| {
        let append = |seq| to.append(&record(writer, seq)).expect("an append").offset;
        (0..RECORDS).map(append).collect::<Vec<_>>()
    });
    let there = records(&object.all());
    assert_eq!(there.len(), WRITERS * RECORDS, "T10: as many records as were appended");
    for (writer, offsets) in told.iter().enumerate() {
        let mine: Vec<_> = there.iter().filter(|r| r.1 == writer).map(|r| (r.0, r.2)).collect();
        let expected: Vec<_> = offsets.iter().copied().zip(0..RECORDS).collect();
        assert_eq!(mine, expected, "writer {writer}: in its order, where it was told");
    }
}

fn m4_readers_stop_before_unfinished_records(make: MakeBackend<'_>) {
    let object = Probe::new(&make(), 1);
    let reader = {
        let object = object.clone();
        Thread::start(move |stop| {
            let mut last = 0;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let size = object.stat().size;
                assert!(size >= last, "T18: the size went from {last} to {size}");
                let from = size.saturating_sub(8000);
                let bytes = object.read(from, 16_000).expect("a read");
                assert!(from + bytes.len() as u64 >= size, "a read behind a stat sees as much");
                assert!(bytes.iter().all(|b| *b != 0), "T18: the size counts bytes that nobody wrote");
                last = size;
            }
        })
    };
    let to = object.clone();
    together(4, move |writer| {
        for i in 0..RECORDS as u64 {
            to.append(&pattern(writer as u64 * 100 + i, 500 + i as usize * 37)).expect("an append");
        }
    });
    reader.stop();
}

fn m4_a_repeated_append_applies_once(make: MakeBackend<'_>) {
    let object = Probe::new(&make(), 1);
    let batch = seam::new_uuid();
    let key = |seq| object.with(|d| d.batch = Some((batch, seq)));
    assert_eq!(key(0).append(b"aa").expect("an append").offset, 0);
    assert_eq!(key(1).append(b"bbb").expect("an append").offset, 2);
    assert_eq!(object.append(b"c").expect("another append").offset, 5);
    let again = key(0).append(b"aa").expect("a repeated append");
    assert_eq!((again.offset, again.bytes, again.size), (0, 2, 6), "a repetition hears where it went");
    assert_eq!(key(1).append(b"bbb").expect("a repeated append").offset, 2);
    let other = object.with(|d| d.batch = Some((seam::new_uuid(), 0)));
    assert_eq!(other.append(b"d").expect("an append of another batch").offset, 6);
    assert_eq!(object.all(), b"aabbbcd");
    let elsewhere = Probe::new(&make(), 1).with(|d| d.batch = Some((batch, 0)));
    assert_eq!(elsewhere.append(b"e").expect("an append to another object").offset, 0);
}

fn m4_racing_repetitions_apply_once(make: MakeBackend<'_>) {
    let object = Probe::new(&make(), 1);
    let (to, batch) = (object.clone(), seam::new_uuid());
    let told = together(4, move |_| {
        let append = |seq| to.with(|d| d.batch = Some((batch, seq))).append(&record(0, seq as usize));
        (0..40).map(|seq| append(seq).expect("an append").offset).collect::<Vec<_>>()
    });
    assert!(told.windows(2).all(|w| w[0] == w[1]), "all are told the same offsets");
    let there: Vec<_> = records(&object.all()).into_iter().map(|r| r.0).collect();
    assert_eq!(there, told[0], "each record once");
}

fn m4_repetitions_hold_across_a_seal(make: MakeBackend<'_>) {
    let object = Probe::new(&make(), 1);
    let batch = seam::new_uuid();
    let key = |seq| object.with(|d| d.batch = Some((batch, seq)));
    key(0).append(b"in time").expect("an append");
    object.call(ObjectVerb::Seal).expect("a seal");
    assert_eq!(key(0).append(b"in time").expect("a repetition of what was applied").offset, 0);
    fails("a new append", Kind::Immutable, key(1).append(b"late"));
    assert_eq!(object.all(), b"in time");
}

fn m4_staged_appends_apply_once(make: MakeBackend<'_>) {
    let object = Probe::new(&make(), 1);
    object.append(b"base").expect("an append");
    let batch = seam::new_uuid();
    let key = |stage: u64, seq| object.staged(stage).with(|d| d.batch = Some((batch, seq)));
    assert_eq!(key(1, 0).append(b"one").expect("a staged append").offset, 4, "where it would go now");
    assert_eq!(key(1, 0).append(b"one").expect("a repetition in the stage").offset, 4);
    assert_eq!(key(1, 0).call(ObjectVerb::Stat).expect("stat").size, 7, "staged once");
    key(2, 0).append(b"one").expect("a repetition in another stage");
    object.append(b"+").expect("an append of somebody else");
    object.publish(1).expect("a publication");
    assert_eq!(object.all(), b"base+one");
    let unstaged = object.with(|d| d.batch = Some((batch, 0)));
    assert_eq!(unstaged.append(b"one").expect("a repetition afterwards").offset, 5, "where it went at point P");
    assert_eq!(object.freeze(2).expect("a freeze").size, 8, "a freeze foretells the size without the repetition");
    object.publish(2).expect("the other publication");
    assert_eq!(object.all(), b"base+one", "it appears exactly once");
}

fn m4_a_dropped_append_can_be_repeated(make: MakeBackend<'_>) {
    let object = Probe::new(&make(), 1);
    let key = object.with(|d| d.batch = Some((uuid(77), 0)));
    key.with(|d| d.stage = Some(uuid(1))).append(b"one").expect("a staged append");
    object.discard(1).expect("a discard");
    assert_eq!(key.append(b"one").expect("a retry after the rollback").offset, 0);
    assert_eq!(object.all(), b"one", "what was rolled back had no effect, so the retry has one");
}

fn b3_a_batch_older_than_a_day_is_refused(make: MakeBackend<'_>) {
    let object = Probe::new(&make(), 1);
    let day_ms = 24 * 3600 * 1000;
    let now_ms = seam::now_ns() as u64 / 1_000_000;
    let of_age = |age_ms: u64| object.with(|d| d.batch = Some((Uuid::v7(now_ms - age_ms, [3; 10]), 0)));
    fails("a batch of the day before", Kind::Stale, of_age(day_ms + 60_000).append(b"old"));
    assert_eq!(object.stat().size, 0, "what was refused has no effect");
    of_age(day_ms - 60_000).append(b"x").expect("a batch of nearly a day ago");
    of_age(day_ms - 60_000).append(b"x").expect("its repetition");
    assert_eq!(object.all(), b"x");
}
