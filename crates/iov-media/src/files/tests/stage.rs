use std::{fs::File, os::unix::fs::FileExt, path::PathBuf};

use iov_types::{Kind, ObjectVerb, Range, Uuid};

use super::{Rng, disk, id};
use crate::files::{
    disk::Disk,
    stage::{Stage, plan::Base},
    tree::FileName,
};

const STAGE: Uuid = Uuid([0x5a; 16]);
const BASE: u64 = 0;

fn bytes(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|i| seed.wrapping_add(i as u8) | 1).collect()
}

/// A stage of an object that has no file: small writes, a large one, an append, a hole.
fn filled(disk: &Disk) -> Stage {
    let mut stage = Stage::new(STAGE, id(1), BASE);
    let mut push = |verb: ObjectVerb, data: &[u8]| {
        stage.push(disk, BASE, &verb, data, None, 0).expect("a staged change");
    };
    push(ObjectVerb::Write { offset: 10 }, &bytes(1, 100));
    push(ObjectVerb::Write { offset: 1000 }, &bytes(2, 40_000));
    push(ObjectVerb::Append, &bytes(3, 500));
    push(ObjectVerb::Punch(Range { offset: 2000, len: 300 }), &[]);
    push(ObjectVerb::Write { offset: 2100 }, &bytes(4, 20_000));
    stage
}

fn contents(disk: &Disk, stage: &mut Stage) -> Vec<u8> {
    let mut out = vec![0xee; 50_000];
    let len = stage.read(disk, BASE, 0, &mut out, |_, _| Ok(0)).expect("a read");
    out.truncate(len);
    out
}

fn expected() -> Vec<u8> {
    let mut out = vec![0; 41_500];
    out[10..110].copy_from_slice(&bytes(1, 100));
    out[1000..41_000].copy_from_slice(&bytes(2, 40_000));
    out[41_000..].copy_from_slice(&bytes(3, 500));
    out[2000..2300].fill(0);
    out[2100..22_100].copy_from_slice(&bytes(4, 20_000));
    out
}

fn path(directory: &tempfile::TempDir, name: FileName) -> PathBuf {
    directory.path().join(name.path())
}

fn open(path: &PathBuf) -> File {
    File::options().read(true).write(true).open(path).expect("a file of the stage")
}

#[test]
fn b3_a_stage_outlives_its_daemon() {
    let (_directory, disk) = disk();
    let mut stage = filled(&disk);
    assert!(contents(&disk, &mut stage) == expected());
    let mut again = Stage::load(&disk, STAGE, id(1), BASE).expect("the stage");
    assert!(contents(&disk, &mut again) == expected());
    assert_eq!((again.cost, again.size(BASE)), (stage.cost, stage.size(BASE)));
    again.push(&disk, BASE, &ObjectVerb::Append, b"more", None, 0).expect("a staged change");
    assert_eq!(contents(&disk, &mut again), [&expected()[..], b"more"].concat());
}

#[test]
fn b3_a_record_cut_short_was_never_there() {
    let (directory, disk) = disk();
    let mut stage = filled(&disk);
    let log = path(&directory, stage.log());
    let before = std::fs::read(&log).expect("the log");
    stage.push(&disk, BASE, &ObjectVerb::Append, &bytes(9, 300), None, 0).expect("a staged change");
    let after = std::fs::read(&log).expect("the log");
    for len in before.len()..after.len() {
        std::fs::write(&log, &after[..len]).expect("a log cut short");
        let mut found = Stage::load(&disk, STAGE, id(1), BASE).expect("the stage");
        assert!(contents(&disk, &mut found) == expected(), "a log of {len} bytes");
        assert_eq!(std::fs::read(&log).expect("the log"), before, "the rest is cut off");
    }
    std::fs::write(&log, &after[..30]).expect("a log cut short in its header");
    assert!(Stage::load(&disk, STAGE, id(1), BASE).expect("an empty stage").is_empty());
}

#[test]
fn i1_a_damaged_stage_is_an_error() {
    let (directory, disk) = disk();
    let stage = filled(&disk);
    let (log, image) = (path(&directory, stage.log()), path(&directory, stage.image()));
    let mut rng = Rng(3);
    let flip = |path: &PathBuf, at: u64, bit: u64| {
        let file = open(path);
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).expect("a byte");
        file.write_all_at(&[byte[0] ^ (1 << bit)], at).expect("a flipped bit");
    };
    let log_len = std::fs::metadata(&log).expect("the log").len();
    for _ in 0..300 {
        let (at, bit) = (rng.below(log_len), rng.below(8));
        flip(&log, at, bit);
        let kind = Stage::load(&disk, STAGE, id(1), BASE).err().map(|e| e.kind());
        assert_eq!(kind, Some(Kind::Corrupt), "bit {bit} of byte {at} of the log");
        flip(&log, at, bit);
    }
    for _ in 0..30 {
        let (at, bit) = (1000 + rng.below(40_000), rng.below(8));
        flip(&image, at, bit);
        let kind = Stage::load(&disk, STAGE, id(1), BASE).err().map(|e| e.kind());
        assert_eq!(kind, Some(Kind::Corrupt), "bit {bit} of byte {at} of the image");
        flip(&image, at, bit);
    }
    std::fs::remove_file(&image).expect("the image");
    disk.forget(stage.image());
    assert_eq!(Stage::load(&disk, STAGE, id(1), BASE).err().map(|e| e.kind()), Some(Kind::Corrupt));
}

#[test]
fn i1_the_log_of_another_stage_or_object_is_refused() {
    let (directory, disk) = disk();
    let stage = filled(&disk);
    for name in [FileName::Log(STAGE, id(2)), FileName::Log(Uuid([1; 16]), id(1))] {
        std::fs::copy(path(&directory, stage.log()), path(&directory, name)).expect("a copy");
    }
    assert_eq!(Stage::load(&disk, STAGE, id(2), BASE).err().map(|e| e.kind()), Some(Kind::Corrupt));
    assert_eq!(Stage::load(&disk, Uuid([1; 16]), id(1), BASE).err().map(|e| e.kind()), Some(Kind::Corrupt));
}

#[test]
fn b3_a_plan_can_be_carried_out_again_and_again() {
    let (directory, disk) = disk();
    let mut stage = filled(&disk);
    let base = Base { exists: false, size: 0, version: 4, appends: None, frozen: false, admitted: false };
    stage.prepare(&disk, &base, &[]).expect("a plan");
    let plan = Stage::load(&disk, STAGE, id(1), BASE).expect("the stage").plan.expect("the plan");
    assert_eq!(Some(&plan), stage.plan.as_ref());
    assert_eq!((plan.base, plan.size, plan.version, plan.rename), (0, 41_500, 5, true));
    stage.decide(&disk, false).expect("the point of no return");
    for _ in 0..2 {
        stage.apply(&disk, &plan, Vec::new()).expect("a publication");
        assert!(std::fs::read(path(&directory, FileName::Data(id(1)))).expect("the object") == expected());
    }
    assert!(Stage::was_decided(&disk, STAGE, id(1)).expect("the log"));
    let late = stage.push(&disk, BASE, &ObjectVerb::Append, b"late", None, 0);
    assert_eq!(late.err().map(|e| e.kind()), Some(Kind::Conflict));
}

#[test]
fn i1_bytes_that_rot_before_they_are_published_are_noticed() {
    let (directory, disk) = disk();
    let mut stage = filled(&disk);
    let base = Base { exists: false, size: 0, version: 0, appends: None, frozen: false, admitted: false };
    stage.prepare(&disk, &base, &[]).expect("a plan");
    stage.decide(&disk, false).expect("the point of no return");
    // A byte of the first write, which is in the log.
    open(&path(&directory, stage.log())).write_all_at(b"?", 150).expect("a rotten byte");
    let plan = stage.plan.clone().expect("the plan");
    assert_eq!(stage.apply(&disk, &plan, Vec::new()).err().map(|e| e.kind()), Some(Kind::Corrupt));
    assert!(!path(&directory, FileName::Data(id(1))).exists(), "nothing shows");
}

#[test]
fn b3_bytes_of_a_write_that_failed_do_not_show() {
    let (directory, disk) = disk();
    let mut stage = filled(&disk);
    // A write into the image that was cut short: its bytes are there, its record is not.
    open(&path(&directory, stage.image())).write_all_at(&[0xbb; 700], 200).expect("some bytes");
    let base = Base { exists: false, size: 0, version: 0, appends: None, frozen: false, admitted: false };
    stage.prepare(&disk, &base, &[]).expect("a plan");
    let plan = stage.plan.clone().expect("the plan");
    stage.decide(&disk, false).expect("the point of no return");
    stage.apply(&disk, &plan, Vec::new()).expect("a publication");
    assert!(std::fs::read(path(&directory, FileName::Data(id(1)))).expect("the object") == expected());
}
