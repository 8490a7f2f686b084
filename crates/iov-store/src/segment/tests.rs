use std::{fs::File, os::fd::OwnedFd};

use super::*;

fn file() -> OwnedFd {
    tempfile::tempfile_in("/dev/shm").expect("a file in memory").into()
}

#[test]
fn g6_a_segment_is_there_and_zero_before_anybody_sees_it() {
    let file = file();
    let len = 4 << 20;
    let made = Segment::make(&file, len).expect("a segment");
    let stat = rustix::fs::fstat(&file).expect("facts");
    assert!(stat.st_blocks as u64 * 512 >= len, "all of it is allocated");
    let mut out = vec![1; len as usize];
    made.copy_out(0, &mut out);
    assert!(out.iter().all(|b| *b == 0));
    let other = Segment::map(&file).expect("another mapping");
    made.copy_in(len - 3, b"end");
    let mut end = [0; 3];
    other.copy_out(len - 3, &mut end);
    assert_eq!(&end, b"end");
    other.copy_from(10, &made, len - 3, 3);
    other.zero(len - 3, 3);
    made.copy_out(10, &mut end);
    assert_eq!(&end, b"end");
    made.copy_out(len - 3, &mut end);
    assert_eq!(end, [0; 3]);
}

#[test]
fn g5_a_descriptor_for_reading_maps_for_reading() {
    let path = tempfile::NamedTempFile::new_in("/dev/shm").expect("a file");
    drop(Segment::make(path.as_file(), 1 << 20).expect("a segment"));
    let reader = Segment::map(std::fs::File::open(path.path()).expect("the file")).expect("a mapping");
    assert!(!reader.is_writable());
    let wrote = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| reader.copy_in(0, b"x")));
    assert!(wrote.is_err(), "refused before the kernel has to");
}

#[test]
fn a_place_outside_is_refused() {
    let segment = Segment::make(file(), 1 << 20).expect("a segment");
    for (at, len) in [(1 << 20, 1), ((1 << 20) - 1, 2), (u64::MAX, 2)] {
        let copied = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| segment.zero(at, len)));
        assert!(copied.is_err(), "{at}+{len}");
    }
    let e = Segment::map(tempfile::tempfile_in("/dev/shm").expect("a file")).err().expect("an empty file");
    assert_eq!(e.kind(), iov_types::Kind::Corrupt);
}

#[test]
fn t18_a_size_only_grows_by_writing() {
    let segment = Segment::make(file(), 1 << 20).expect("a segment");
    let head = segment.head(128);
    assert_eq!((head.size(), head.mtime_ns()), (0, 0));
    head.written(10);
    head.written(5);
    assert_eq!(head.size(), 10);
    assert!(head.mtime_ns() > 0);
    head.set_size(3);
    assert_eq!(segment.head(128).size(), 3);
}

#[test]
fn each_write_has_another_time_than_the_one_before() {
    let segment = Segment::make(file(), 1 << 20).expect("a segment");
    let head = segment.head(128);
    let mut before = 0;
    for _ in 0..1000 {
        head.written(1);
        assert!(head.mtime_ns() > before);
        before = head.mtime_ns();
    }
    // Where the clock was set back, it is that clock's time.
    let future = before + 3_600_000_000_000;
    head.set_mtime_ns(future);
    head.written(1);
    assert!(head.mtime_ns() < future);
}

#[test]
fn t23_a_child_does_not_inherit_what_is_mapped_for_writing() {
    let path = tempfile::NamedTempFile::new_in("/dev/shm").expect("a file");
    drop(Segment::make(path.as_file(), 1 << 20).expect("a segment"));
    let writable = File::options().read(true).write(true).open(path.path()).expect("the file");
    let maps = [Segment::map(writable), Segment::map(File::open(path.path()).expect("the file"))];
    let flags = maps.map(|map| {
        let map = map.expect("a mapping");
        let address = format!("{:x}-", map.address(0, 1) as usize);
        let all = std::fs::read_to_string("/proc/self/smaps").expect("the mappings");
        let own = all.split_once(&address).expect("the mapping").1;
        own.lines().find_map(|line| line.strip_prefix("VmFlags:")).expect("its flags").contains(" dc")
    });
    assert_eq!(flags, [true, false], "dc: do not copy the mapping to a child");
}
