//! Full disks, few descriptors.

use std::path::{Path, PathBuf};

use iov_media::{Files, Options};
use iov_types::{Clause, Demand, Kind, ObjectVerb, Outcome, Persistence, Range};
use rustix::mount::{MountFlags, UnmountFlags};

use crate::kit::{Peer, all, bytes, call, directory, object, open, open_with, send, staged, uuid, write};

/// A small file system of its own.
struct Small(tempfile::TempDir);

impl Small {
    /// `None` where mounting is not allowed.
    fn mount(size: &str) -> Option<Small> {
        let directory = directory();
        let options = std::ffi::CString::new(format!("size={size}")).expect("a text");
        let mounted =
            rustix::mount::mount("tmpfs", directory.path(), "tmpfs", MountFlags::empty(), Some(options.as_c_str()));
        match mounted {
            Ok(()) => Some(Small(directory)),
            Err(e) => {
                println!("skipped: a small tmpfs cannot be mounted: {e}");
                None
            }
        }
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.0.path(), UnmountFlags::DETACH);
    }
}

/// Leaves room for so many bytes.
fn fill(small: &Small, leave: u64) -> PathBuf {
    let free = rustix::fs::statvfs(small.path()).expect("facts");
    let path = small.path().join("ballast");
    let ballast = std::fs::File::create(&path).expect("a file");
    let len = (free.f_bavail * free.f_frsize).saturating_sub(leave);
    rustix::fs::fallocate(&ballast, rustix::fs::FallocateFlags::empty(), 0, len).expect("room");
    path
}

#[test]
fn m1_a_full_disk_loses_nothing() {
    let Some(small) = Small::mount("16m") else { return };
    let files = open(small.path());
    let old = bytes(1, 1 << 20);
    write(&*files, object(1), 0, &old).expect("a write");
    send(&*files, object(2), ObjectVerb::Append, Demand::default(), &old).expect("an append");
    let ballast = fill(&small, 300_000);
    let large = bytes(2, 2 << 20);
    let full = |what: &str, result: iov_types::Result<iov_types::Evidence>| {
        let e = result.expect_err(what);
        assert_eq!(e.kind(), Kind::Exhausted, "{what}: {e:?}");
        assert!(e.detail().contains("free some"), "{what}: it says what to do: {e:?}");
        e.outcome()
    };
    for _ in 0..3 {
        let outcome = full("an append", send(&*files, object(2), ObjectVerb::Append, Demand::default(), &large));
        assert_eq!(outcome, Outcome::NotApplied);
        assert!(all(&*files, object(2)) == old, "an append is there or not");
    }
    send(&*files, object(2), ObjectVerb::Append, Demand::default(), b"small").expect("a small append has room");
    full("a write behind the end", write(&*files, object(1), 1 << 20, &large));
    assert!(all(&*files, object(1)).starts_with(&old), "what was there is there");
    call(&*files, object(1), ObjectVerb::Truncate { size: 1 << 20 }).expect("a cut");
    let range = Range { offset: 0, len: 8 << 20 };
    full("space", call(&*files, object(3), ObjectVerb::Allocate { range, keep_size: true }));
    let unit = Demand { unit: 1 << 20, ..Demand::default() };
    full("a unit", send(&*files, object(1), ObjectVerb::Write { offset: 1 << 20 }, unit, &large));
    assert!(all(&*files, object(1)) == old, "no part of a unit is there");
    full("staging", send(&*files, object(1), ObjectVerb::Write { offset: 0 }, staged(uuid(3)), &large));
    call(&*files, object(1), ObjectVerb::Discard { stage: uuid(3) }).expect("a discard");
    assert!(all(&*files, object(1)) == old);
    std::fs::remove_file(&ballast).expect("more room");
    write(&*files, object(1), 0, &large).expect("a write");
    assert!(all(&*files, object(1)) == large);
    drop(files);
    let files = open(small.path());
    assert!(files.troubles().is_empty(), "{:?}", files.troubles());
    assert!(all(&*files, object(1)) == large && all(&*files, object(2)) == [&old[..], b"small"].concat());
}

#[test]
fn b3_a_full_disk_stops_a_batch_before_point_p_or_not_at_all() {
    let Some(small) = Small::mount("16m") else { return };
    let files = open(small.path());
    write(&*files, object(1), 0, b"base").expect("a write");
    // Small pieces in the log, appends: publishing must copy them.
    for _ in 0..150 {
        send(&*files, object(1), ObjectVerb::Append, staged(uuid(3)), &bytes(3, 10_000)).expect("a staged append");
    }
    let before = call(&*files, object(1), ObjectVerb::Stat).expect("stat");
    let ballast = fill(&small, 500_000);
    let freeze = ObjectVerb::Freeze { stage: uuid(3) };
    assert_eq!(call(&*files, object(1), freeze.clone()).expect_err("there is no room").kind(), Kind::Exhausted);
    let after = call(&*files, object(1), ObjectVerb::Stat).expect("not frozen");
    assert_eq!((after.size, after.mtime_ns, after.version), (4, before.mtime_ns, 0));
    assert!(after.allocated < 100_000, "the room is given back: {}", after.allocated);
    std::fs::remove_file(&ballast).expect("more room");
    call(&*files, object(1), freeze.clone()).expect("now there is room");
    let _ballast = fill(&small, 0);
    call(&*files, object(1), ObjectVerb::Publish { stage: uuid(3) }).expect("behind a freeze nothing is lacking");
    assert_eq!(all(&*files, object(1)).len(), 4 + 1_500_000);
}

#[test]
fn p3_a_target_in_memory_does_not_promise_to_survive_power_loss() {
    let Some(small) = Small::mount("4m") else { return };
    let files = open(small.path());
    let durable = Demand { durability: Some(Persistence::Durable), ..Demand::default() };
    let e = send(&*files, object(1), ObjectVerb::Write { offset: 0 }, durable, b"x").expect_err("it lies in memory");
    assert_eq!((e.kind(), e.clause()), (Kind::Refused, Some(Clause::P3)));
    assert!(e.detail().contains("persistence=process"), "the offer: {e:?}");
}

#[test]
fn b4_stages_are_counted_across_restarts() {
    let directory = directory();
    let options = || Options { stage_bytes: 1 << 20, ..Options::default() };
    let stage = |files: &Files, offset| {
        send(files, object(1), ObjectVerb::Write { offset }, staged(uuid(3)), &bytes(1, 400_000)).map_err(|e| e.kind())
    };
    let files = open_with(directory.path(), options()).expect("a target");
    stage(&files, 0).expect("room");
    stage(&files, 500_000).expect("room");
    assert_eq!(stage(&files, 1_000_000).err(), Some(Kind::TooBig));
    drop(files);
    let files = open_with(directory.path(), options()).expect("a target");
    assert_eq!(files.stages(), [(uuid(3), vec![object(1)])]);
    assert_eq!(stage(&files, 1_000_000).err(), Some(Kind::TooBig), "what an earlier daemon has staged counts");
    files.drop_stages(&[uuid(4)]).expect("dropping the others");
    assert_eq!(files.stages(), []);
    assert_eq!(std::fs::read_dir(directory.path().join("stage")).expect("the folder").count(), 0);
    stage(&files, 1_000_000).expect("the room came back");
}

/// The child: 600 objects with a sidecar and a stage each, and hardly any descriptors.
pub(crate) fn few_descriptors(root: &Path) {
    let limit = |n| rustix::process::Rlimit { current: Some(n), maximum: Some(n) };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limit(40)).expect("a limit");
    for descriptors in [0, 1000] {
        let files = open_with(root, Options { descriptors, ..Options::default() }).expect("a target");
        for slot in 0..300 {
            send(&files, object(slot), ObjectVerb::Append, Demand::default(), b"record").expect("an append");
            send(&files, object(slot), ObjectVerb::Append, staged(uuid(2)), &bytes(1, 20)).expect("a staged append");
        }
        for slot in 0..300 {
            call(&files, object(slot), ObjectVerb::Publish { stage: uuid(2) }).expect("a publication");
        }
        let len = if descriptors == 0 { 26 } else { 52 };
        assert!((0..300).all(|slot| all(&files, object(slot)).len() == len));
    }
}

#[test]
fn o10_few_descriptors_are_enough() {
    let directory = directory();
    assert_eq!(Peer::start("few descriptors", directory.path(), &[]).end(), None);
}

#[test]
fn m1_units_that_find_no_room_are_not_called_untouched() {
    let old = bytes(1, 8_192_000);
    let new = bytes(2, 24_576_000);
    for (leave, len) in [(300_000, 8_192_000), (300_000, 24_576_000), (2_500_000, 8_192_000), (2_500_000, 24_576_000)] {
        let Some(small) = Small::mount("48m") else { return };
        let files = open(small.path());
        write(&*files, object(1), 0, &old).expect("a write");
        fill(&small, leave);
        let demand = Demand { unit: 4096, ..Demand::default() };
        let written = send(&*files, object(1), ObjectVerb::Write { offset: 0 }, demand, &new[..len]);
        let now = all(&*files, object(1));
        match written {
            Ok(_) => assert!(now[..len] == new[..len], "{leave} {len}"),
            Err(e) if e.outcome() == Outcome::NotApplied => assert!(now == old, "{leave} {len}: {e}"),
            Err(e) => assert_eq!(e.outcome(), Outcome::Unknown, "{leave} {len}: {e}"),
        }
    }
}
