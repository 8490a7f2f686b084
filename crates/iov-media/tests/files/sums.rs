//! I1: what is durable is compared with checksums when it is read.

mod between;

use std::{os::unix::fs::FileExt, path::Path};

use iov_media::{Files, Options, Peer as Client};
use iov_store::{LeaseAccess, Memory, block_sums::BlockSum, run_one};
use iov_types::{
    Clause, Demand, Error, Kind, ObjectId, ObjectOp, ObjectVerb, Outcome, Persistence, Range, Result, Uuid,
};
use proptest::prelude::*;

use crate::kit::{
    all, bytes, call, cx, data_path, directory, into_file, object, open, open_with, send, staged, try_all, uuid, write,
};

const BLOCK: u64 = 4096;
const DURABLE: Demand = Demand {
    stage: None,
    batch: None,
    epoch: 0,
    durability: Some(Persistence::Durable),
    unit: 0,
    max_size: 0,
    once: false,
    pattern: None,
    domain: None,
};

fn sync(files: &Files, id: ObjectId) {
    send(files, id, ObjectVerb::Sync, DURABLE, &[]).expect("a sync");
}

fn read(files: &Files, id: ObjectId, offset: u64, len: usize) -> Result<Vec<u8>> {
    let mut out = vec![0; len];
    // SAFETY: `run_one` waits for the evidence, and `out` lives longer.
    let memory = unsafe { Memory::writable(out.as_mut_ptr(), out.len()) };
    let op = ObjectOp { object: id, verb: ObjectVerb::Read { offset }, demand: Demand::default() };
    let got = run_one(files, &cx(), op, memory)?.bytes as usize;
    out.truncate(got);
    Ok(out)
}

/// The medium changes a byte by itself.
fn damage(root: &Path, id: ObjectId, at: u64) {
    let path = data_path(root, id);
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).expect("the file");
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("a byte");
    file.write_all_at(&[byte[0] ^ 0x10], at).expect("its damage");
}

fn is_damage<T: std::fmt::Debug>(result: Result<T>) -> bool {
    let e: Error = result.expect_err("damage is no success");
    (e.kind(), e.clause()) == (Kind::Corrupt, Some(Clause::I1))
}

#[test]
fn i1_a_damaged_byte_is_an_error_and_the_others_are_read() {
    let directory = directory();
    let files = open(directory.path());
    let data = bytes(3, (3 << 20) + 100);
    for at in [0, 4095, 4096, (1 << 20) - 1, 1 << 20, (3 << 20) - 1, 3 << 20, (3 << 20) + 99] {
        let id = object(at);
        write(&*files, id, 0, &data).expect("a write");
        sync(&files, id);
        assert!(all(&*files, id) == data);
        damage(directory.path(), id, at);
        assert!(is_damage(try_all(&*files, id)), "damage at {at}");
        assert!(is_damage(read(&files, id, at, 1)), "the byte itself, at {at}");
        let (begin, end) = (at / BLOCK * BLOCK, (at / BLOCK + 1) * BLOCK);
        if begin > 0 {
            assert!(read(&files, id, 0, begin as usize).expect("what is before") == data[..begin as usize]);
        }
        if end < data.len() as u64 {
            let rest = read(&files, id, end, data.len()).expect("what is behind");
            assert!(rest == data[end as usize..]);
        }
        let e = write(&*files, id, begin, b"x").expect_err("bytes among damaged ones");
        assert_eq!((e.kind(), e.clause(), e.outcome()), (Kind::Corrupt, Some(Clause::I1), Outcome::NotApplied));
        let whole = &data[begin as usize..data.len().min(end as usize)];
        write(&*files, id, begin, whole).expect("the block anew");
        assert!(all(&*files, id) == data, "mended at {at}");
    }
}

#[test]
fn i1_also_after_a_restart_when_sealed_and_where_there_was_nothing() {
    let directory = directory();
    let files = open(directory.path());
    let data = bytes(5, 100_000);
    write(&*files, object(1), 0, &data).expect("a write");
    send(&*files, object(1), ObjectVerb::Seal, DURABLE, &[]).expect("a seal");
    write(&*files, object(2), 3 << 20, &data).expect("a write behind a hole");
    sync(&files, object(2));
    write(&*files, object(3), 0, &data).expect("a write");
    drop(files);
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(data_path(directory.path(), object(1)), mode).expect("rights");
    for (slot, at) in [(1, 77_777), (2, 1 << 20), (3, 5)] {
        damage(directory.path(), object(slot), at);
    }
    let files = open(directory.path());
    assert!(is_damage(try_all(&*files, object(1))), "sealed");
    assert!(is_damage(try_all(&*files, object(2))), "in a hole");
    assert!(try_all(&*files, object(3)).is_ok(), "what was never to be durable carries none");
}

#[test]
fn i1_a_copy_does_not_wash_damage() {
    let directory = directory();
    let files = open(directory.path());
    let data = bytes(7, 50_000);
    write(&*files, object(1), 0, &data).expect("a write");
    sync(&files, object(1));
    let copy = ObjectVerb::Copy { source: object(1), source_offset: 0, offset: 0, len: 50_000 };
    send(&*files, object(2), copy.clone(), DURABLE, &[]).expect("a copy");
    assert!(all(&*files, object(2)) == data);
    damage(directory.path(), object(1), 20_000);
    assert!(is_damage(send(&*files, object(3), copy, DURABLE, &[])));
}

#[test]
fn i1_what_is_not_synced_when_the_daemon_ends_is_taken_as_it_is_and_kept_from_then_on() {
    let directory = directory();
    let files = open(directory.path());
    let (old, new) = (bytes(1, 64 << 10), bytes(2, 8 << 10));
    write(&*files, object(1), 0, &old).expect("a write");
    sync(&files, object(1));
    write(&*files, object(1), 16 << 10, &new).expect("a write that nobody syncs");
    drop(files);
    // As if of two blocks one had come to the medium, and the other in part.
    damage(directory.path(), object(1), (16 << 10) + 17);
    let files = open(directory.path());
    let got = all(&*files, object(1));
    assert!(got[..16 << 10] == old[..16 << 10] && got[24 << 10..] == old[24 << 10..]);
    damage(directory.path(), object(1), (16 << 10) + 17);
    assert!(is_damage(try_all(&*files, object(1))), "once looked at, it is kept");
    drop(files);
    damage(directory.path(), object(1), 5);
    assert!(is_damage(read(&open(directory.path()), object(1), 0, 10)), "blocks that were not open are compared");
}

#[test]
fn i1_checksums_of_a_removed_object_do_not_come_back() {
    let directory = directory();
    let files = open(directory.path());
    write(&*files, object(1), 0, &bytes(1, 30_000)).expect("a write");
    sync(&files, object(1));
    call(&*files, object(1), ObjectVerb::Remove).expect("a remove");
    drop(files);
    let files = open(directory.path());
    write(&*files, object(1), 0, &bytes(9, 10_000)).expect("a write");
    assert!(all(&*files, object(1)) == bytes(9, 10_000));
    sync(&files, object(1));
    assert!(all(&*files, object(1)) == bytes(9, 10_000));
}

#[test]
fn i1_a_file_that_is_gone_or_lost_its_end_is_an_error() {
    let directory = directory();
    let files = open(directory.path());
    for slot in [1, 2, 3] {
        write(&*files, object(slot), 0, &bytes(1, 30_000)).expect("a write");
        sync(&files, object(slot));
    }
    let cut = |slot, len| {
        let file = std::fs::File::options().write(true).open(data_path(directory.path(), object(slot)));
        file.expect("the file").set_len(len).expect("a shorter one");
    };
    cut(1, 8192);
    assert!(is_damage(try_all(&*files, object(1))), "while it is in use");
    drop(files);
    cut(2, 0);
    std::fs::remove_file(data_path(directory.path(), object(3))).expect("the file");
    let files = open(directory.path());
    for slot in [1, 2, 3] {
        assert!(is_damage(try_all(&*files, object(slot))), "object {slot}");
        assert!(is_damage(write(&*files, object(slot), 0, b"x")), "object {slot}");
        call(&*files, object(slot), ObjectVerb::Remove).expect("it can be removed");
    }
    write(&*files, object(4), 0, &bytes(1, 30_000)).expect("a write");
    sync(&files, object(4));
    for size in [20_000, 100, 0, 50_000] {
        call(&*files, object(4), ObjectVerb::Truncate { size }).expect("a cut");
        assert_eq!(call(&*files, object(4), ObjectVerb::Stat).expect("a look").size, size);
    }
}

fn grant(files: &Files, session: Uuid, slot: u64, access: LeaseAccess, range: Range) -> Result<iov_media::Granted> {
    files.grant(&cx(), session, object(slot), access, range, 0)
}

#[test]
fn i1_clients_that_write_themselves_get_a_part_and_a_sync_looks_at_it() {
    let directory = directory();
    let files = open(directory.path());
    let me = Client { pid: std::process::id(), uid: rustix::process::geteuid().as_raw() };
    files.open_session(uuid(1), me).expect("a session");
    let want = |offset, len| Range { offset, len };
    let first = grant(&files, uuid(1), 1, LeaseAccess::Write, want(0, 100)).expect("a grant");
    assert_eq!((first.range, first.kept), (want(0, i64::MAX as u64), false), "nothing was synced yet");
    let file = into_file(first);
    let mut data = bytes(4, 9 << 20);
    file.write_all_at(&data, 0).expect("a write");
    sync(&files, object(1));
    assert!(all(&*files, object(1)) == data);
    let reader = grant(&files, uuid(1), 1, LeaseAccess::Read, want(0, 100)).expect("a grant");
    assert!(reader.kept, "what is read must be compared");
    let sums = files.block_sums(&cx(), object(1), 8, 2).expect("checksums");
    assert!(sums[..256].iter().all(|sum| matches!(sum, BlockSum::Sum(_))), "the last run is full");
    assert!(sums[256..].iter().all(|sum| *sum == BlockSum::Zeros), "behind the end");
    let lent = grant(&files, uuid(1), 1, LeaseAccess::Write, want((5 << 20) + 3, 100)).expect("a grant");
    assert_eq!((lent.range, lent.kept), (want(5 << 20, 4 << 20), true));
    let file = into_file(lent);
    file.write_all_at(b"changed", (6 << 20) + 1000).expect("a write");
    data[(6 << 20) + 1000..][..7].copy_from_slice(b"changed");
    assert!(all(&*files, object(1)) == data, "others see it at once");
    assert_eq!(files.block_sums(&cx(), object(1), 6, 1).expect("checksums")[0], BlockSum::Open);
    damage(directory.path(), object(1), 100);
    assert!(is_damage(try_all(&*files, object(1))), "what is not lent is compared");
    damage(directory.path(), object(1), 100);
    sync(&files, object(1));
    assert!(all(&*files, object(1)) == data);
    damage(directory.path(), object(1), (6 << 20) + 1001);
    assert!(is_damage(try_all(&*files, object(1))), "and from the sync on, all is");
}

#[test]
fn g1_an_object_that_is_lent_is_not_forgotten() {
    let directory = directory();
    let options = Options { objects: 1, ..Options::default() };
    let files = open_with(directory.path(), options).expect("a target");
    let me = Client { pid: std::process::id(), uid: rustix::process::geteuid().as_raw() };
    files.open_session(uuid(1), me).expect("a session");
    write(&files, object(1), 0, &bytes(1, 30_000)).expect("a write");
    sync(&files, object(1));
    let lent = grant(&files, uuid(1), 1, LeaseAccess::Write, Range { offset: 0, len: 100 }).expect("a grant");
    for slot in 2..20 {
        write(&files, object(slot), 0, b"others").expect("a write");
    }
    into_file(lent).write_all_at(&bytes(2, 30_000), 0).expect("a write");
    assert!(all(&files, object(1)) == bytes(2, 30_000));
    sync(&files, object(1));
    assert!(all(&files, object(1)) == bytes(2, 30_000));
}

#[derive(Clone, Debug)]
enum Step {
    Write { offset: u64, len: usize, unit: bool },
    Append(usize),
    Truncate(u64),
    Punch(u64, u64),
    Allocate(u64, u64),
    Stage(Vec<(u64, usize)>, bool),
    Sync,
    Restart,
}

fn place() -> impl Strategy<Value = u64> {
    prop_oneof![0u64..20_000, (0u64..12).prop_map(|n| n * BLOCK), (1u64 << 20) - 9000..(1 << 20) + 9000]
}

fn step() -> impl Strategy<Value = Step> {
    let len = || prop_oneof![1usize..100, 3000usize..40_000];
    prop_oneof![
        4 => (place(), len(), any::<bool>()).prop_map(|(offset, len, unit)| Step::Write { offset, len, unit }),
        1 => len().prop_map(Step::Append),
        1 => place().prop_map(Step::Truncate),
        1 => (place(), 1u64..30_000).prop_map(|(at, len)| Step::Punch(at, len)),
        1 => (place(), 1u64..30_000).prop_map(|(at, len)| Step::Allocate(at, len)),
        1 => (prop::collection::vec((place(), len()), 1..4), any::<bool>()).prop_map(|(w, d)| Step::Stage(w, d)),
        3 => Just(Step::Sync),
        1 => Just(Step::Restart),
    ]
}

fn put(data: &mut Vec<u8>, offset: u64, bytes: &[u8]) {
    let end = offset as usize + bytes.len();
    data.resize(data.len().max(end), 0);
    data[offset as usize..end].copy_from_slice(bytes);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn i1_whatever_is_done_the_bytes_are_right_and_damage_shows(
        steps in prop::collection::vec(step(), 1..24),
        spot in 0.0f64..1.0,
    ) {
        let directory = directory();
        let mut files = open(directory.path());
        let id = object(1);
        let mut data: Vec<u8> = Vec::new();
        write(&*files, id, 0, b"begin").expect("a write");
        put(&mut data, 0, b"begin");
        for (n, step) in steps.into_iter().enumerate() {
            let fill = |len| bytes(n as u8, len);
            let plain = Demand::default();
            match step {
                Step::Write { offset, len, unit } => {
                    let demand = Demand { unit: if unit { 4096 } else { 0 }, ..Demand::default() };
                    send(&*files, id, ObjectVerb::Write { offset }, demand, &fill(len)).expect("a write");
                    put(&mut data, offset, &fill(len));
                }
                Step::Append(len) => {
                    send(&*files, id, ObjectVerb::Append, plain, &fill(len)).expect("an append");
                    let end = data.len() as u64;
                    put(&mut data, end, &fill(len));
                }
                Step::Truncate(size) => {
                    call(&*files, id, ObjectVerb::Truncate { size }).expect("a truncate");
                    data.resize(size as usize, 0);
                }
                Step::Punch(offset, len) => {
                    call(&*files, id, ObjectVerb::Punch(Range { offset, len })).expect("a hole");
                    let end = data.len();
                    data[(offset as usize).min(end)..((offset + len) as usize).min(end)].fill(0);
                }
                Step::Allocate(offset, len) => {
                    let verb = ObjectVerb::Allocate { range: Range { offset, len }, keep_size: false };
                    call(&*files, id, verb).expect("room");
                    data.resize(data.len().max((offset + len) as usize), 0);
                }
                Step::Stage(writes, durable) => {
                    let stage = uuid(100 + n as u8);
                    for (offset, len) in writes {
                        send(&*files, id, ObjectVerb::Write { offset }, staged(stage), &fill(len)).expect("a write");
                        put(&mut data, offset, &fill(len));
                    }
                    let demand = if durable { DURABLE } else { plain };
                    send(&*files, id, ObjectVerb::Publish { stage }, demand, &[]).expect("a publication");
                }
                Step::Sync => sync(&files, id),
                Step::Restart => {
                    drop(files);
                    files = open(directory.path());
                }
            }
            prop_assert!(all(&*files, id) == data, "after step {}", n);
        }
        sync(&files, id);
        prop_assert!(all(&*files, id) == data);
        if !data.is_empty() {
            let at = (spot * data.len() as f64) as u64;
            damage(directory.path(), id, at);
            prop_assert!(is_damage(try_all(&*files, id)), "damage at {} of {}", at, data.len());
            damage(directory.path(), id, at);
            drop(files);
            prop_assert!(all(&*open(directory.path()), id) == data);
        }
    }
}
