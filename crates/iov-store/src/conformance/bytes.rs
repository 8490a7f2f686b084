//! Bytes of one object, one caller: what is written is read, holes are zeros, the end is where it should be.

use iov_types::{ExtentKind, Kind};

use super::{
    BackendCheck, MakeBackend, Probe, checks,
    kit::{fails, pattern},
};

pub(super) fn checks() -> Vec<BackendCheck> {
    checks![BackendCheck:
        o6_holes_read_as_zeros,
        o6_reads_are_short_at_the_end,
        o6_truncated_bytes_do_not_come_back,
        o6_punched_bytes_are_gone,
        o6_allocated_space_reads_as_zeros,
        o6_extents_tell_data_from_holes,
        o6_zero_bytes_change_nothing,
        o6_offsets_end_at_the_largest_integer,
        o6_copies_what_is_there,
        o6_copy_refuses_an_overlap,
    ]
}

/// Places where media cut their space: a byte, a sector, a page, a megabyte.
const BORDERS: &[u64] = &[1, 511, 512, 513, 4095, 4096, 4097, 65536, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3 << 20];

fn o6_holes_read_as_zeros(make: MakeBackend<'_>) {
    for &at in BORDERS {
        let object = Probe::new(&make(), 1);
        let data = pattern(at, 700);
        object.write(at, &data).expect("a write");
        let mut expected = vec![0; at as usize];
        expected.extend(&data);
        assert!(object.all() == expected, "a write at {at} with a hole before it");
        object.write(2 * at + 5000, &data).expect("a second write");
        expected.resize(2 * at as usize + 5000, 0);
        expected.extend(&data);
        assert!(object.all() == expected, "a write at {} with a hole before it", 2 * at + 5000);
        // A read that begins and ends inside the hole, with memory that was not zero.
        assert!(object.read(at + 700, 1000).expect("a read") == expected[at as usize + 700..][..1000], "in the hole");
    }
}

fn o6_reads_are_short_at_the_end(make: MakeBackend<'_>) {
    let object = Probe::new(&make(), 1);
    let data = pattern(1, 5000);
    object.write(0, &data).expect("a write");
    assert_eq!(object.read(4990, 100).expect("across the end"), data[4990..]);
    for offset in [5000, 5001, 1 << 30, i64::MAX as u64] {
        assert_eq!(object.read(offset, 100).expect("behind the end"), [], "at {offset}");
    }
    let e = object.write(10, &data[..100]).expect("an overwrite");
    assert_eq!((e.bytes, e.offset, e.size), (100, 10, 5000), "evidence of a write: bytes, offset, size");
}

fn o6_truncated_bytes_do_not_come_back(make: MakeBackend<'_>) {
    for &cut in BORDERS {
        let object = Probe::new(&make(), 1);
        let data = pattern(cut, cut as usize + 9000);
        object.write(0, &data).expect("a write");
        assert_eq!(object.truncate(cut).expect("a cut").size, cut);
        assert!(object.all() == data[..cut as usize], "after a cut at {cut}");
        assert_eq!(object.truncate(cut + 8000).expect("an extension").size, cut + 8000);
        let mut expected = data[..cut as usize].to_vec();
        expected.resize(cut as usize + 8000, 0);
        assert!(object.all() == expected, "cut at {cut}, then extended: zeros must follow the cut");
        object.truncate(cut).expect("a second cut");
        object.write(cut + 100, b"new").expect("a write behind the cut");
        expected.truncate(cut as usize);
        expected.resize(cut as usize + 100, 0);
        expected.extend(b"new");
        assert!(object.all() == expected, "cut at {cut}, then written behind it: zeros must lie between");
    }
}

fn o6_punched_bytes_are_gone(make: MakeBackend<'_>) {
    let len = (3 << 20) + 12345;
    let data = pattern(3, len);
    for &from in BORDERS {
        for to in BORDERS.iter().map(|b| b + from).filter(|to| *to < len as u64).step_by(3) {
            let object = Probe::new(&make(), 1);
            object.write(0, &data).expect("a write");
            let size = object.punch(from, to - from).expect("a punch").size;
            assert_eq!(size, len as u64, "a punch changes no length");
            let mut expected = data.clone();
            expected[from as usize..to as usize].fill(0);
            assert!(object.all() == expected, "after a punch of {from}..{to}");
        }
    }
    let object = Probe::new(&make(), 1);
    object.write(0, &data[..100]).expect("a write");
    assert_eq!(object.punch(50, 1 << 40).expect("a punch across the end").size, 100);
    object.truncate(200).expect("an extension");
    let mut expected = data[..50].to_vec();
    expected.resize(200, 0);
    assert_eq!(object.all(), expected, "a punch across the end");
}

fn o6_allocated_space_reads_as_zeros(make: MakeBackend<'_>) {
    let object = Probe::new(&make(), 1);
    let data = pattern(4, 5000);
    object.write(1000, &data).expect("a write");
    assert_eq!(object.allocate(0, 3 << 20, true).expect("keep_size").size, 6000);
    let mut expected = vec![0; 1000];
    expected.extend(&data);
    assert!(object.all() == expected, "space that keeps the length");
    assert_eq!(object.allocate(5000, 4000, false).expect("with a new length").size, 9000);
    expected.resize(9000, 0);
    assert!(object.all() == expected, "space with a new length");
    assert_eq!(object.allocate(0, 10, false).expect("inside").size, 9000, "space inside changes no length");
    assert!(object.all() == expected, "space over data leaves the data");
}

fn o6_extents_tell_data_from_holes(make: MakeBackend<'_>) {
    let object = Probe::new(&make(), 1);
    let data = pattern(5, 300_000);
    for offset in [0, 8 << 20, (16 << 20) + 777] {
        object.write(offset, &data).expect("a write");
    }
    let size = (40 << 20) + 3;
    object.truncate(size).expect("an extension");
    object.punch(8 << 20, 100).expect("a punch");
    let all = object.extents(0, size + 1000, usize::MAX);
    let mut at = 0;
    for e in &all {
        assert!(e.range.offset == at && e.range.len > 0, "extents follow each other without gaps: {all:?}");
        at = e.range.end();
        if e.kind != ExtentKind::Data {
            let bytes = object.read(e.range.offset, e.range.len as usize).expect("a read");
            assert!(bytes.iter().all(|b| *b == 0), "{e:?} reads as zeros");
        }
    }
    assert_eq!(at, size, "they reach the end and no further: {all:?}");
    assert!(all.windows(2).all(|w| w[0].kind != w[1].kind), "neighbours of one kind are one: {all:?}");
    assert_eq!(object.extents(0, size, 2), all[..2.min(all.len())], "at most as many as asked for");
    assert_eq!(object.extents(0, size, 0), [], "none if none are asked for");
    assert_eq!(object.extents(size, 100, 10), [], "none behind the end");
    let part = object.extents(100, 1000, 10);
    assert_eq!(part.len(), 1, "the extents of a part are cut to it: {part:?}");
    assert_eq!((part[0].range.offset, part[0].range.len, part[0].kind), (100, 1000, ExtentKind::Data), "{part:?}");
}

fn o6_zero_bytes_change_nothing(make: MakeBackend<'_>) {
    let object = Probe::new(&make(), 1);
    object.write(0, b"abc").expect("a write");
    let before = object.extents(0, 1000, 10);
    assert_eq!(object.write(100, b"").expect("an empty write").size, 3);
    assert_eq!(object.append(b"").expect("an empty append").size, 3);
    assert_eq!(object.punch(1, 0).expect("an empty punch").size, 3);
    assert_eq!(object.allocate(100, 0, false).expect("empty space").size, 3);
    assert_eq!(object.copy(&Probe::new(&make(), 2), 0, 100, 0).expect("an empty copy").size, 3);
    assert_eq!(object.read(1, 0).expect("an empty read"), []);
    assert_eq!(object.all(), b"abc");
    assert_eq!(object.extents(0, 1000, 10), before, "nothing is split or added");
}

fn o6_offsets_end_at_the_largest_integer(make: MakeBackend<'_>) {
    let max = i64::MAX as u64;
    let object = Probe::new(&make(), 1);
    object.write(0, b"abc").expect("a write");
    fails("a write across 2^63-1", Kind::Invalid, object.write(max - 3, b"wxyz"));
    fails("a write across 2^64", Kind::Invalid, object.write(u64::MAX - 1, b"wxyz"));
    fails("a truncate to 2^63", Kind::Invalid, object.truncate(max + 1));
    fails("a punch across 2^63-1", Kind::Invalid, object.punch(max - 3, 4));
    fails("a punch across 2^64", Kind::Invalid, object.punch(5, u64::MAX));
    fails("space across 2^63-1", Kind::Invalid, object.allocate(max, 1, false));
    fails("space across 2^64", Kind::Invalid, object.allocate(5, u64::MAX, false));
    let other = Probe::new(&make(), 2);
    fails("a copy from across 2^64", Kind::Invalid, object.copy(&other, u64::MAX, 0, 9));
    fails("a copy to across 2^63-1", Kind::Invalid, object.copy(&other, 0, max, 9));
    assert_eq!(object.all(), b"abc", "what was refused has no effect");
    assert_eq!(object.extents(0, u64::MAX, 9).last().map(|e| e.range.end()), Some(3), "extents of everything");
    // The last bytes of all, where the medium can hold them; many file systems end earlier.
    if object.write(max - 4, b"last").is_ok() {
        assert_eq!((object.stat().size, object.read(max - 5, 10).expect("a read")), (max, b"\0last".to_vec()));
        fails("an append to a full object", Kind::Invalid, object.append(b"x"));
        object.punch(100, max - 100 - 2).expect("a punch of nearly all");
        assert_eq!(object.read(max - 5, 10).expect("a read"), b"\0\0\0st");
        object.truncate(3).expect("a cut");
        assert_eq!(object.all(), b"abc");
    }
}

fn o6_copies_what_is_there(make: MakeBackend<'_>) {
    let target = make();
    let (from, to) = (Probe::new(&target, 1), Probe::new(&target, 2));
    let data = pattern(6, (2 << 20) + 4321);
    from.write(0, &data).expect("a write");
    let e = to.copy(&from, 0, 0, data.len() as u64).expect("a copy");
    assert_eq!((e.bytes, e.size), (data.len() as u64, data.len() as u64));
    assert!(to.all() == data, "the whole object");
    let e = to.copy(&from, 1000, 5, 1 << 40).expect("a copy across the end");
    assert_eq!(e.bytes, data.len() as u64 - 1000, "less only at the source's end");
    assert!(to.read(5, data.len()).expect("a read")[..data.len() - 1000] == data[1000..], "from the middle");
    let size = to.stat().size;
    assert_eq!(to.copy(&from, data.len() as u64, 0, 10).expect("from behind the end").bytes, 0);
    assert_eq!(to.copy(&Probe::new(&target, 3), 0, 0, 10).expect("from an object that nobody wrote").bytes, 0);
    assert_eq!(to.stat().size, size, "nothing copied, nothing changed");
    from.write(0, b"later").expect("a write");
    assert_eq!(to.read(0, 5).expect("a read"), data[..5], "what the source becomes later does not show");
    let sparse = Probe::new(&target, 4);
    sparse.truncate(100_000).expect("an extension");
    to.copy(&sparse, 0, 0, 100_000).expect("a copy of a hole");
    assert!(to.read(0, 100_000).expect("a read").iter().all(|b| *b == 0), "a hole is copied as zeros");
}

fn o6_copy_refuses_an_overlap(make: MakeBackend<'_>) {
    let object = Probe::new(&make(), 1);
    let data = pattern(7, 10_000);
    object.write(0, &data).expect("a write");
    fails("a copy onto itself", Kind::Invalid, object.copy(&object, 0, 4000, 5000));
    assert!(object.all() == data, "what was refused has no effect");
    object.copy(&object, 0, 5000, 5000).expect("a copy beside itself");
    assert!(object.read(5000, 5000).expect("a read") == data[..5000], "a copy within one object");
}
