//! Bytes through the kernel's cache and past it: the same bytes, whatever borders they lie on, and what they leave in the cache.

use std::path::Path;

use iov_media::{Files, Options, Way};
use iov_store::conformance::Rng;
use iov_types::{Demand, Kind, ObjectVerb, Persistence, Range};

use crate::kit::{bytes, cached_pages, call, cx, data_path, directory, object, open_with, send, try_all, write};

const WAYS: [Way; 3] = [Way::Cached, Way::Direct, Way::Ring];
const MIB: usize = 1 << 20;

fn open(path: &Path, way: Way) -> Files {
    open_with(path, Options { way, ..Options::default() }).expect("a target")
}

/// Reads into memory that begins `shift` bytes behind a border.
fn read(files: &Files, offset: u64, len: usize, shift: usize) -> Vec<u8> {
    let mut out = vec![0xa5; len + shift + 4096];
    let from = out.as_ptr().align_offset(4096) + shift;
    let op = iov_types::ObjectOp { object: object(1), verb: ObjectVerb::Read { offset }, demand: Demand::default() };
    // SAFETY: `run_one` waits for the evidence, and `out` lives longer than that.
    let memory = unsafe { iov_store::Memory::writable(out[from..].as_mut_ptr(), len) };
    let got = iov_store::run_one(files, &cx(), op, memory).expect("a read").bytes as usize;
    out[from..from + got].to_vec()
}

#[test]
fn o6_whatever_the_borders_the_bytes_are_the_same() {
    for way in WAYS {
        let directory = directory();
        let files = open(directory.path(), way);
        let (mut model, mut rng) = (Vec::new(), Rng::new(way as u64));
        for n in 0..150 {
            // Near borders of blocks, and across what is moved at once.
            let near = |rng: &mut Rng, most: u64| (rng.below(most) * 4096 + rng.below(3)).saturating_sub(1);
            let (offset, len) = match rng.below(12) {
                0 => (near(&mut rng, 512) as usize, 4 * MIB + rng.below(2 * MIB as u64) as usize),
                1..6 => (near(&mut rng, 1024) as usize, near(&mut rng, 40) as usize),
                _ => (rng.below(4 * MIB as u64) as usize, rng.below(20_000) as usize),
            };
            if rng.below(3) == 0 {
                let (shift, end) = (rng.below(2) as usize * 17, (offset + len).min(model.len()));
                assert!(read(&files, offset as u64, len, shift) == model[offset.min(end)..end], "{way:?}, step {n}");
                continue;
            }
            let data = bytes(n as u8, len);
            write(&files, object(1), offset as u64, &data).expect("a write");
            if len > 0 {
                model.resize(model.len().max(offset + len), 0);
                model[offset..offset + len].copy_from_slice(&data);
            }
            assert_eq!(call(&files, object(1), ObjectVerb::Stat).expect("facts").size, model.len() as u64, "{way:?}");
        }
        call(&files, object(1), ObjectVerb::Truncate { size: 100_001 }).expect("a cut");
        call(&files, object(1), ObjectVerb::Punch(Range { offset: 5000, len: 50_000 })).expect("a hole");
        model.truncate(100_001);
        model[5000..55_000].fill(0);
        drop(files);
        for other in WAYS {
            let files = open(directory.path(), other);
            assert!(try_all(&files, object(1)).expect("bytes") == model, "written {way:?}, read {other:?}");
        }
    }
}

#[test]
fn h2_what_goes_past_the_cache_is_not_in_it() {
    for way in WAYS {
        let directory = directory();
        let files = open(directory.path(), way);
        let durable = Demand { durability: Some(Persistence::Durable), ..Demand::default() };
        send(&files, object(1), ObjectVerb::Write { offset: 0 }, durable, &bytes(3, 8 * MIB + 5)).expect("a write");
        assert!(read(&files, 0, 8 * MIB + 5, 3) == bytes(3, 8 * MIB + 5));
        let pages = cached_pages(&data_path(directory.path(), object(1)), 8 * MIB + 5);
        // The last one is no whole block.
        assert!(
            if way == Way::Cached { pages > 1000 } else { pages <= 1 },
            "{way:?}: {pages} pages of 2049 are cached"
        );
    }
}

#[test]
fn stages_and_copies_go_the_same_way() {
    for way in [Way::Direct, Way::Ring] {
        let directory = directory();
        let files = open(directory.path(), way);
        write(&files, object(1), 0, &bytes(1, 3 * MIB)).expect("a write");
        let stage = iov_types::Uuid([7; 16]);
        let staged = || Demand { stage: Some(stage), ..Demand::default() };
        send(&files, object(1), ObjectVerb::Write { offset: 10_000 }, staged(), &bytes(2, 2 * MIB)).expect("a write");
        let copy = ObjectVerb::Copy { source: object(1), source_offset: 5, offset: 77, len: 2 * MIB as u64 };
        send(&files, object(2), copy, Demand::default(), &[]).expect("a copy");
        call(&files, object(1), ObjectVerb::Publish { stage }).expect("a publication");
        let mut expected = bytes(1, 3 * MIB);
        assert!(try_all(&files, object(2)).expect("bytes")[77..] == expected[5..5 + 2 * MIB], "{way:?}");
        expected[10_000..10_000 + 2 * MIB].copy_from_slice(&bytes(2, 2 * MIB));
        assert!(try_all(&files, object(1)).expect("bytes") == expected, "{way:?}");
    }
}

#[test]
fn a_file_system_that_knows_no_way_past_its_cache_is_told_of() {
    let directory = directory();
    let mounted = |args: &[&str]| std::process::Command::new(args[0]).args(&args[1..]).arg(directory.path()).status();
    // The one file system that has none, and that everybody has.
    if !mounted(&["mount", "-t", "ramfs", "ramfs"]).is_ok_and(|status| status.success()) {
        println!("skipped: a ramfs cannot be mounted");
        return;
    }
    let opened = |way| {
        let place: std::os::fd::OwnedFd = std::fs::File::open(directory.path()).expect("a directory").into();
        Files::open(place, Options { way, ..Options::default() }).map(drop)
    };
    let results = WAYS.map(opened);
    assert!(mounted(&["umount", "-l"]).is_ok_and(|status| status.success()));
    let [cached, direct, ring] = results;
    cached.expect("a target through the cache");
    for e in [direct.expect_err("no direct way"), ring.expect_err("no direct way")] {
        assert!(e.kind() == Kind::Unsupported && e.detail().contains("io=pwrite"), "{e}");
    }
}
