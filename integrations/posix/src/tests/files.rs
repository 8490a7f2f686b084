//! Bytes, open files, locks; and what holds between two file systems.

use super::*;
use crate::{Change, Errno, InTheWay, LockKind, LockRange, Seek, SetTime, owner_of};

fn both() -> (FileSystem, FileSystem) {
    let ws = workspace();
    (FileSystem::new(again(&ws), Options::default()), FileSystem::new(ws, Options::default()))
}

#[test]
fn all_who_have_a_file_open_see_each_other() {
    let fs = file_system();
    let node = put(&fs, &fs.root(), b"a", b"");
    let (one, two) = (File::open(&node, WRITE).unwrap().0, File::open(&node, READ).unwrap().0);
    one.write(3, b"xyz").unwrap();
    assert_eq!((two.size().unwrap(), node.attributes().unwrap().size), (6, 6));
    let mut bytes = [9; 10];
    assert_eq!(two.read(0, &mut bytes).unwrap(), 6);
    assert_eq!(&bytes[..6], b"\0\0\0xyz");
    assert_eq!(fs.lookup(&fs.root(), b"a").unwrap().1.size, 6);
    one.close().unwrap();
    assert_eq!(two.read(4, &mut bytes).unwrap(), 2, "the other goes on");
}

#[test]
fn c3_what_was_closed_is_there_for_who_opens_it_elsewhere() {
    let (here, there) = both();
    let node = put(&here, &here.root(), b"a", b"one");
    assert_eq!(get(&there.lookup(&there.root(), b"a").unwrap().0), b"one");
    let file = File::open(&node, WRITE).unwrap().0;
    file.write(0, b"two and more").unwrap();
    file.flush().unwrap();
    assert_eq!(
        get(&there.lookup(&there.root(), b"a").unwrap().0),
        b"two and more",
        "close is enough, it need not be the last"
    );
}

#[test]
fn open_files_live_on_without_a_name() {
    let (here, there) = both();
    let node = put(&here, &here.root(), b"a", b"one");
    let file = File::open(&node, WRITE).unwrap().0;
    there.unlink(&there.root(), b"a").unwrap();
    assert_eq!(here.lookup(&here.root(), b"a").unwrap_err(), Errno::ENOENT);
    file.write(3, b"!").unwrap();
    let mut bytes = [0; 4];
    assert_eq!((file.read(0, &mut bytes).unwrap(), &bytes), (4, b"one!"));
    assert_eq!(node.attributes().unwrap().links, 0);
    assert_eq!(node.change(&Change { size: Some(2), ..Change::default() }).unwrap().size, 2);
    file.close().unwrap();
    assert_eq!(node.attributes().unwrap_err(), Errno::ENOENT);
    // One without a name from the start can get one.
    let (file, node, a) = here.create_unnamed(&here.root(), born(0o600), WRITE).unwrap();
    assert_eq!(a.links, 0);
    file.write(0, b"late").unwrap();
    assert_eq!(here.link(&node, &here.root(), b"named").unwrap().links, 1);
    file.close().unwrap();
    assert_eq!(get(&there.lookup(&there.root(), b"named").unwrap().0), b"late");
}

#[test]
fn m4_appends_of_many_lose_nothing() {
    let (here, there) = both();
    put(&here, &here.root(), b"log", b"");
    let append = |fs: FileSystem, tag: u8| {
        let body = move || {
            let node = fs.lookup(&fs.root(), b"log").unwrap().0;
            let file = File::open(&node, Flags { append: true, ..WRITE }).unwrap().0;
            for i in 0..200u8 {
                // Wherever the program believes to be.
                assert_eq!(file.write(0, &[tag, i, i, i]).unwrap(), 4);
            }
            file.close().unwrap();
        };
        ioverbs::seam::spawn("test-writer", body).unwrap()
    };
    let writers = [append(here.clone(), 1), append(here.clone(), 2), append(there, 3)];
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    let bytes = get(&here.lookup(&here.root(), b"log").unwrap().0);
    for tag in 1..=3 {
        let records: Vec<&[u8]> = bytes.chunks(4).filter(|record| record[0] == tag).collect();
        let expected: Vec<Vec<u8>> = (0..200u8).map(|i| vec![tag, i, i, i]).collect();
        assert_eq!(records, expected, "each once, and in order");
    }
    assert_eq!(bytes.len(), 3 * 800);
}

#[test]
fn lengths_and_holes_are_as_posix_has_them() {
    let fs = file_system();
    let (file, node, _) = fs.create(&fs.root(), b"a", born(0o644), WRITE).unwrap();
    file.write(1 << 20, b"end").unwrap();
    assert_eq!(file.size().unwrap(), (1 << 20) + 3);
    let mut byte = [7];
    assert_eq!((file.read(0, &mut byte).unwrap(), byte), (1, [0]));
    assert_eq!(file.seek(0, Seek::Hole).unwrap(), 0);
    let data = file.seek(0, Seek::Data).unwrap();
    assert!(data <= 1 << 20 && data > 0, "{data}");
    assert_eq!(file.seek(1 << 20, Seek::Hole).unwrap(), (1 << 20) + 3, "the end is a hole");
    assert_eq!(file.seek((1 << 20) + 3, Seek::Data).unwrap_err(), Errno::ENXIO);
    file.truncate(10).unwrap();
    assert_eq!(file.seek(0, Seek::Data).unwrap_err(), Errno::ENXIO);
    file.truncate(1 << 30).unwrap();
    assert_eq!(node.attributes().unwrap().size, 1 << 30);
    assert_eq!(file.write(i64::MAX as u64, b"x").unwrap_err(), Errno::EFBIG);
    assert_eq!(file.truncate(u64::MAX).unwrap_err(), Errno::EFBIG);
    assert_eq!(file.write(u64::MAX, b"").unwrap(), 0);
}

#[test]
fn space_is_made_and_given_back() {
    let fs = file_system();
    let (file, ..) = fs.create(&fs.root(), b"a", born(0o644), WRITE).unwrap();
    file.write(0, &[1; 10_000]).unwrap();
    file.allocate(5000, 20_000, 0).unwrap();
    assert_eq!(file.size().unwrap(), 25_000);
    file.allocate(0, 100_000, 1).unwrap();
    assert_eq!(file.size().unwrap(), 25_000, "kept");
    file.allocate(0, 8192, 3).unwrap();
    let mut bytes = vec![7; 10_000];
    assert_eq!(file.read(0, &mut bytes).unwrap(), 10_000);
    assert!(bytes[..8192].iter().all(|b| *b == 0) && bytes[8192..].iter().all(|b| *b == 1));
    file.allocate(8192, 30_000, 0x10).unwrap();
    assert_eq!(file.size().unwrap(), 38_192);
    file.read(0, &mut bytes).unwrap();
    assert!(bytes.iter().all(|b| *b == 0));
    assert_eq!(file.allocate(0, 0, 0).unwrap_err(), Errno::EINVAL);
    assert_eq!(file.allocate(0, 4096, 8).unwrap_err(), Errno::EOPNOTSUPP, "a range taken out");
    assert_eq!(file.allocate(u64::MAX, 2, 0).unwrap_err(), Errno::EFBIG);
}

#[test]
fn copies_stay_in_the_store() {
    let fs = file_system();
    let from = File::open(&put(&fs, &fs.root(), b"a", &[5; 100_000]), READ).unwrap().0;
    let (to, node, _) = fs.create(&fs.root(), b"b", born(0o644), WRITE).unwrap();
    assert_eq!(from.copy_to(50_000, &to, 10, 1 << 40).unwrap(), 50_000);
    assert_eq!(from.copy_to(100_000, &to, 0, 1).unwrap(), 0);
    let bytes = get(&node);
    assert!(bytes.len() == 50_010 && bytes[..10] == [0; 10] && bytes[10..].iter().all(|b| *b == 5));
    assert_eq!(to.copy_to(0, &to, 5, 100).unwrap_err(), Errno::EINVAL, "onto itself");
    assert_eq!(to.copy_to(0, &to, 60_000, 100).unwrap(), 100);
    // More than one piece, holes among them.
    from.write_at(150 << 20, b"end").unwrap();
    assert_eq!(from.copy_to(10, &to, 20, u64::MAX).unwrap(), (150 << 20) - 7);
    let mut end = [0; 10];
    assert_eq!((to.size().unwrap(), to.read((150 << 20) + 8, &mut end).unwrap()), ((150 << 20) + 13, 5));
    assert_eq!(&end[..5], b"\0\0end");
}

#[test]
fn o11_locks_hold_between_owners_and_file_systems() {
    let (here, there) = both();
    let node = put(&here, &here.root(), b"a", b"0123456789");
    let (mine, other) = (
        File::open(&node, WRITE).unwrap().0,
        File::open(&there.lookup(&there.root(), b"a").unwrap().0, WRITE).unwrap().0,
    );
    let all = LockRange::Bytes(0, i64::MAX as u64);
    mine.lock(1, LockRange::Bytes(2, 5), LockKind::Write).unwrap();
    assert_eq!(mine.lock(2, LockRange::Bytes(5, 5), LockKind::Read).unwrap_err(), Errno::EAGAIN);
    assert_eq!(other.lock(3, all, LockKind::Read).unwrap_err(), Errno::EAGAIN);
    other.lock(3, LockRange::Bytes(6, i64::MAX as u64), LockKind::Write).unwrap();
    let way = other.lock_in_the_way(3, LockRange::Bytes(0, 3), LockKind::Read).unwrap();
    let of = |owner: u64, first: u64, last: u64| Some(InTheWay { kind: LockKind::Write, first, last, owner });
    assert_eq!(way, of(1, 2, 5));
    assert_eq!(way.unwrap().process(), None);
    assert_eq!(InTheWay { owner: owner_of(77), ..way.unwrap() }.process(), Some(77));
    let way = mine.lock_in_the_way(1, LockRange::Bytes(3, 9), LockKind::Read).unwrap();
    assert_eq!(way, of(3, 6, i64::MAX as u64));
    assert_eq!(mine.lock_in_the_way(1, LockRange::Bytes(0, 5), LockKind::Write).unwrap(), None);
    // A whole file is all of its bytes.
    assert_eq!(other.lock(4, LockRange::Whole, LockKind::Write).unwrap_err(), Errno::EAGAIN);
    assert_eq!(mine.lock(1, LockRange::Whole, LockKind::Read).unwrap_err(), Errno::EAGAIN);
    mine.lock(1, LockRange::Bytes(3, 4), LockKind::None).unwrap();
    mine.lock(2, LockRange::Bytes(3, 4), LockKind::Write).unwrap();
    mine.unlock_all(1).unwrap();
    mine.lock(2, LockRange::Bytes(0, 5), LockKind::Write).unwrap();
    // They end with the session's last handle on the file.
    drop(other);
    mine.unlock_all(2).unwrap();
    mine.lock(1, LockRange::Whole, LockKind::Read).unwrap();
    assert_eq!(mine.lock(1, LockRange::Bytes(5, 4), LockKind::Read).unwrap_err(), Errno::EINVAL);
}

#[test]
fn giving_a_lock_back_publishes_whatever_descriptor_wrote() {
    let (here, there) = both();
    let node = put(&here, &here.root(), b"a", b"one");
    let (writer, reader) = (File::open(&node, WRITE).unwrap().0, File::open(&node, READ).unwrap().0);
    let there = there.lookup(&there.root(), b"a").unwrap().0;
    let version = || there.attributes().unwrap().version;
    reader.lock(1, LockRange::Whole, LockKind::Read).unwrap();
    let before = version();
    writer.write(0, &[7; 20_000]).unwrap();
    reader.lock(1, LockRange::Whole, LockKind::None).unwrap();
    assert!(version() > before);
    assert_eq!(get(&there), [7; 20_000]);
}

#[test]
fn what_is_sealed_cannot_be_written() {
    let fs = file_system();
    let node = put(&fs, &fs.root(), b"a", b"fixed");
    let c = ioverbs::lookup(fs.workspace(), None, "a", Default::default()).unwrap();
    ioverbs::run(c.session(), ioverbs::Op::Seal { c: c.clone() }).unwrap();
    assert_eq!(File::open(&node, WRITE).unwrap_err(), Errno::EPERM);
    assert_eq!(get(&node), b"fixed");
    assert_eq!(node.change(&Change { size: Some(0), ..Change::default() }).unwrap_err(), Errno::EPERM);
    fs.unlink(&fs.root(), b"a").unwrap();
}

#[test]
fn nodes_go_when_nobody_needs_them() {
    let fs = file_system();
    let node = put(&fs, &fs.root(), b"a", b"x");
    assert!(fs.lookup(&fs.root(), b"a").unwrap().0.is(&node), "one for each identity");
    let weak = Arc::downgrade(&node);
    drop(node);
    assert!(weak.upgrade().is_none());
    assert_eq!(fs.known(), 0, "and the file system forgets them");
}

#[test]
fn a_file_of_many_stretches_is_walked_from_one_to_the_next() {
    let fs = file_system();
    let (file, _, _) = fs.create(&fs.root(), b"sparse", born(0o644), WRITE).unwrap();
    let far = 1 << 20;
    for n in (0..60).step_by(2) {
        file.write(n * far, &[1; 4096]).unwrap();
    }
    let mut at = 0;
    for n in (0..60).step_by(2) {
        assert_eq!(file.seek(at, Seek::Data).unwrap(), n * far);
        at = file.seek(n * far, Seek::Hole).unwrap();
        assert!(at >= n * far + 4096 && at < (n + 1) * far, "{at}");
    }
    assert_eq!(file.seek(at, Seek::Data).unwrap_err(), Errno::ENXIO);
    // Stretches that follow each other are one.
    let (file, _, _) = fs.create(&fs.root(), b"full", born(0o644), WRITE).unwrap();
    for n in 0..40 {
        file.write(n * far, &vec![1; far as usize]).unwrap();
    }
    assert_eq!(file.seek(5, Seek::Hole).unwrap(), 40 * far);
}

#[test]
fn where_the_last_bytes_find_no_room_the_rest_is_told_all_the_same() {
    let limits = ioverbs::Limits { min: 0, max: 100_000 };
    let controls = ioverbs::Controls { collection_size: limits, ..Default::default() };
    let ws = workspace();
    let fs = FileSystem::new(ws.clone(), Options { controls, ..Options::default() });
    let (file, node, _) = fs.create(&fs.root(), b"a", born(0o600), WRITE).unwrap();
    for at in (0..110_000).step_by(10_000) {
        file.write(at, &[7; 10_000]).unwrap();
    }
    node.change(&Change { mode: Some(0o640), mtime: Some(SetTime::At(9)), ..Change::default() }).unwrap();
    assert_eq!(file.flush(), Err(Errno::EFBIG));
    let elsewhere = FileSystem::new(again(&ws), Options::default());
    let told = elsewhere.lookup(&elsewhere.root(), b"a").unwrap().1;
    assert!(told.mode == 0o640 && told.size >= 64 << 10 && told.size <= 100_000, "{told:?}");
    file.close().unwrap();
    assert!(get(&node).iter().all(|byte| *byte == 7));
}
