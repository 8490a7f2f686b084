use std::{fs::File, os::fd::OwnedFd, path::Path, sync::Arc};

use iov_store::SEGMENT_BLOCK;
use iov_types::{ExtentKind, Kind, Range, Uuid};

use super::*;

const MIB: u64 = 1 << 20;
const A: Uuid = Uuid([0xaa; 16]);
const B: Uuid = Uuid([0xbb; 16]);

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        Place(tempfile::tempdir_in("/dev/shm").expect("a directory in memory"))
    }

    /// 16 segments of 2 MiB.
    fn open(&self) -> Arc<Segments> {
        self.open_with(32 * MIB)
    }

    fn open_with(&self, capacity: u64) -> Arc<Segments> {
        let path = self.0.path().join("segments");
        std::fs::create_dir_all(&path).expect("a folder");
        Arc::new(Segments::open(File::open(path).expect("the folder").into(), capacity).expect("segments"))
    }

    fn file(&self, name: &str) -> OwnedFd {
        let file = File::options().read(true).write(true).create(true).truncate(false).open(self.0.path().join(name));
        file.expect("a file").into()
    }

    fn names(&self) -> Vec<String> {
        names(&self.0.path().join("segments"))
    }
}

fn names(path: &Path) -> Vec<String> {
    let names = std::fs::read_dir(path).expect("a folder");
    let mut names: Vec<String> = names.map(|e| e.expect("an entry").file_name().into_string().expect("text")).collect();
    names.sort();
    names
}

fn all(shared: &Shared) -> Vec<u8> {
    let mut out = vec![0xa5; shared.length() as usize];
    assert_eq!(shared.read(&mut out, 0), out.len());
    out
}

fn pattern(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i as u8).wrapping_mul(7).wrapping_add(seed) | 1).collect()
}

#[test]
fn what_is_written_is_read_across_stretches_and_starts() {
    let place = Place::new();
    let segments = place.open();
    let shared = Shared::create(&segments, place.file("a"), A).expect("an object");
    let data = pattern(1, 5 * MIB as usize + 77);
    shared.write_all(&data, 1000).expect("a write over three segments");
    shared.write_all(b"edge", 3).expect("a write");
    let mut expected = vec![0; 1000];
    expected[3..7].copy_from_slice(b"edge");
    expected.extend(&data);
    assert!(all(&shared) == expected);
    assert_eq!(shared.allocated(), (expected.len() as u64).next_multiple_of(SEGMENT_BLOCK));
    drop(shared);
    drop(segments);
    let segments = place.open();
    let claimed = Shared::claim(&segments, place.file("a")).expect("an index");
    assert_eq!(claimed, Some(false), "nothing lies behind its end");
    segments.claimed();
    let used = segments.space().used;
    let shared = Shared::open(&segments, place.file("a")).expect("the object");
    assert!(all(&shared) == expected, "it survives the daemon (P2)");
    assert_eq!(used, shared.allocated() + SEGMENT_BLOCK, "and the block of its head");
    // What is taken now is not what the object has.
    let other = Shared::create(&segments, place.file("b"), A).expect("another");
    other.write_all(&pattern(9, 20 * MIB as usize), 0).expect("a write");
    assert!(all(&shared) == expected);
}

#[test]
fn g5_a_segment_holds_one_domain_only() {
    let place = Place::new();
    let segments = place.open();
    let (a, b) = (segments.take(A, SEGMENT_BLOCK).expect("space"), segments.take(B, SEGMENT_BLOCK).expect("space"));
    assert_ne!(a[0].piece.segment, b[0].piece.segment);
    let names = place.names();
    assert!(names.iter().any(|n| n.ends_with(&"aa".repeat(16))), "{names:?}");
    assert!(names.iter().any(|n| n.ends_with(&"bb".repeat(16))), "{names:?}");
}

#[test]
fn space_that_comes_back_is_zero_and_is_used_again() {
    let place = Place::new();
    let segments = place.open();
    for round in 0..5 {
        let shared = Shared::create(&segments, place.file(&format!("{round}")), A).expect("an object");
        shared.reserve(Range { offset: 0, len: 24 * MIB }).expect("most of it");
        shared.head().written(24 * MIB);
        assert!(all(&shared).iter().all(|b| *b == 0), "round {round}: nothing of the one before (T21)");
        shared.write_all(&pattern(round, 24 * MIB as usize), 0).expect("a write");
        shared.release(None, Vec::new());
    }
    assert_eq!(segments.space().used, SEGMENT_BLOCK, "the block of heads stays");
}

#[test]
fn a_full_store_says_so_and_loses_nothing() {
    let place = Place::new();
    let segments = place.open();
    let shared = Shared::create(&segments, place.file("a"), A).expect("an object");
    let data = pattern(3, 20 * MIB as usize);
    shared.write_all(&data, 0).expect("a write");
    let before = segments.space().used;
    let e = shared.reserve(Range { offset: 20 * MIB, len: 20 * MIB }).expect_err("more than there is");
    assert_eq!(e.kind(), Kind::Exhausted);
    assert!(e.detail().contains("iov df"), "{e:?}");
    assert_eq!(segments.space().used, before, "what was taken on the way is given back");
    assert!(all(&shared) == data);
    shared.truncate(MIB, Vec::new()).expect("a cut");
    shared.reserve(Range { offset: 20 * MIB, len: 10 * MIB }).expect("now there is room");
    assert!(all(&shared) == data[..MIB as usize]);
}

/// A segment that nobody uses any more makes room for another workspace, by going.
#[test]
fn g5_a_free_segment_is_not_handed_to_another_domain() {
    let place = Place::new();
    let segments = place.open_with(4 * MIB);
    let taken = segments.take(A, 2 * MIB).expect("one segment");
    segments.take(B, MIB).expect("the other");
    assert_eq!(segments.take(B, 2 * MIB).err().map(|e| e.kind()), Some(Kind::Exhausted));
    taken[0].map.copy_in(taken[0].piece.at, b"secret");
    segments.give(A, vec![taken[0].piece], None, Vec::new());
    let got = segments.take(B, 2 * MIB).expect("room now");
    assert!(got.iter().all(|s| s.piece.segment != taken[0].piece.segment));
    assert!(!place.names().iter().any(|n| n.ends_with(&"aa".repeat(16))), "the old one has gone");
    let mut still = [0; 6];
    taken[0].map.copy_out(taken[0].piece.at, &mut still);
    assert_eq!(&still, b"secret", "whoever has it mapped keeps what he had (G6)");
}

#[test]
fn heads_that_nobody_has_keep_no_segment() {
    let place = Place::new();
    let segments = place.open_with(4 * MIB);
    let objects = [0, 1, 2].map(|i| Shared::create(&segments, place.file(&i.to_string()), A).expect("an object"));
    segments.take(B, MIB).expect("the other segment");
    assert!(segments.take(B, 2 * MIB).is_err(), "heads are in use");
    objects.iter().for_each(|object| object.release(None, Vec::new()));
    segments.take(B, 2 * MIB).expect("the segment of a workspace that has nothing any more");
}

#[test]
fn g2_space_rests_until_the_last_has_let_go() {
    let place = Place::new();
    let segments = place.open();
    let wait = |slot| Wait { page: A, slot, generation: 1 };
    let shared = Shared::create(&segments, place.file("a"), A).expect("an object");
    shared.write_all(&pattern(1, 16 * MIB as usize), 0).expect("a write");
    let used = segments.space().used;
    shared.truncate(0, vec![wait(1), wait(2)]).expect("a cut");
    let space = segments.space();
    assert_eq!((space.held, space.used), (16 * MIB, used - 16 * MIB), "it is nobody's, and not free");
    assert_eq!(segments.take(A, 24 * MIB).err().map(|e| e.kind()), Some(Kind::Exhausted));
    segments.settle(|w| w.slot == 1);
    assert_eq!(segments.space().held, 16 * MIB);
    segments.settle(|w| w.slot == 2);
    assert!(!segments.holds_any());
    segments.take(A, 24 * MIB).expect("now it is");
    // After a start it is not known what rested.
    let again = place.open();
    again.hold_all(&[wait(3)]);
    assert_eq!(again.take(A, 20 * MIB).err().map(|e| e.kind()), Some(Kind::Exhausted));
    again.settle(|_| true);
    again.take(A, 20 * MIB).expect("all of it");
}

#[test]
fn g2_a_late_writer_writes_to_what_nobody_reads() {
    let place = Place::new();
    let segments = place.open();
    let old = Shared::create(&segments, place.file("a"), A).expect("an object");
    let data = pattern(4, 3 * MIB as usize);
    old.write_all(&data, 0).expect("a write");
    let window = old.window(Range { offset: 0, len: 3 * MIB }, 10);
    let ranges = [Range { offset: 0, len: MIB }];
    let new = old.moved(place.file("b"), &ranges).expect("a move");
    let others = new.window(Range { offset: 0, len: 3 * MIB }, 10);
    assert_ne!(window.head, others.head);
    // The late one.
    old.write_all(&[0xff; 1000], 0).expect("a late write");
    old.head().written(100 * MIB);
    assert!(all(&new) == data, "nothing of it appears");
    let waits = vec![Wait { page: A, slot: 1, generation: 1 }];
    old.release(Some(&new), waits);
    assert!(all(&new) == data);
    let moved: u64 = window.stretches.iter().filter(|s| !others.stretches.contains(s)).map(|(_, p)| p.len).sum();
    assert_eq!(segments.space().held, moved, "only what was moved rests");
    new.write_all(&[7; 10], 0).expect("a write");
    assert_eq!(all(&new)[..10], [7; 10]);
}

#[test]
fn an_index_is_cut_and_written_anew() {
    let place = Place::new();
    let segments = place.open();
    let shared = Shared::create(&segments, place.file("a"), A).expect("an object");
    for round in 0..200_u64 {
        let at = round % 7 * 40_000;
        shared.write_all(&pattern(round as u8, 30_000), at).expect("a write");
        shared.punch(Range { offset: at + 5000, len: 20_000 }, Vec::new()).expect("a hole");
        shared.truncate(at + 28_000, Vec::new()).expect("a cut");
    }
    assert!(shared.is_wasteful());
    let new = shared.moved(place.file("b"), &[]).expect("a new index");
    assert!(!new.is_wasteful());
    let expected = all(&shared);
    assert!(all(&new) == expected);
    drop(new);
    assert!(all(&Shared::open(&segments, place.file("b")).expect("the index")) == expected);
    assert!(all(&Shared::open(&segments, place.file("a")).expect("the older one")) == expected);
}

#[test]
fn t18_holes_are_zero_whatever_lay_there() {
    let place = Place::new();
    let segments = place.open();
    let shared = Shared::create(&segments, place.file("a"), A).expect("an object");
    shared.write_all(&pattern(1, 100_000), 0).expect("a write");
    shared.truncate(10_000, Vec::new()).expect("a cut");
    shared.truncate(100_000, Vec::new()).expect("a hole");
    assert!(all(&shared)[10_000..].iter().all(|b| *b == 0));
    // A writer that was killed before it could say that it had written.
    let (_, piece) = shared.window(Range { offset: 8192, len: 1 }, 1).stretches[0];
    segments.find(piece).expect("the stretch").0.map.copy_in(piece.at + 3000, &[9; 500]);
    shared.truncate(9000, Vec::new()).expect("a cut before it");
    shared.truncate(50_000, Vec::new()).expect("a hole");
    assert!(all(&shared)[9000..].iter().all(|b| *b == 0));
    let extents = shared.extents(Range { offset: 0, len: 50_000 }, 50_000, 10);
    assert_eq!(extents.iter().map(|e| e.kind).collect::<Vec<_>>(), [ExtentKind::Data, ExtentKind::Hole]);
}

#[test]
fn an_index_that_cannot_be_right_is_refused() {
    use std::os::unix::fs::FileExt;
    let place = Place::new();
    let segments = place.open();
    let shared = Shared::create(&segments, place.file("a"), A).expect("an object");
    shared.write_all(&pattern(1, 10_000), 0).expect("a write");
    drop(shared);
    let good = std::fs::read(place.0.path().join("a")).expect("the index");
    let corrupt = |bytes: &[u8]| {
        std::fs::write(place.0.path().join("x"), bytes).expect("a file");
        Shared::open(&segments, place.file("x")).err().map(|e| e.kind())
    };
    assert_eq!(corrupt(&good), None);
    for at in [0, 8, 13, 20, 61] {
        let mut bad = good.clone();
        bad[at] ^= 1;
        assert_eq!(corrupt(&bad), Some(Kind::Corrupt), "the header at {at}");
    }
    // A record that was cut short was never there.
    let mut cut = good.clone();
    cut.truncate(good.len() - 1);
    assert_eq!(corrupt(&cut), None);
    // Two daemons' worth of the same range, each record good in itself.
    let twice = [&good[..], &good[64..96]].concat();
    assert_eq!(corrupt(&twice), Some(Kind::Corrupt));
    // One of another store: no such segment.
    let elsewhere = Place::new().open();
    let file = place.file("a");
    assert_eq!(Shared::open(&elsewhere, file).err().map(|e| e.kind()), Some(Kind::Corrupt));
    // Never finished: it is told so when the target is opened, and is no object behind that.
    let file = File::from(place.file("new"));
    file.write_all_at(&[0; 64], 0).expect("zeros");
    assert_eq!(Shared::claim(&segments, place.file("new")).expect("a look"), None);
    assert_eq!(Shared::open(&segments, file.into()).err().map(|e| e.kind()), Some(Kind::Corrupt));
}

#[test]
fn what_was_being_made_is_removed_at_the_next_start() {
    let place = Place::new();
    drop(place.open());
    let path = place.0.path().join("segments");
    for name in ["7.new", "rubbish", "3-zz", "03"] {
        std::fs::write(path.join(name), "x").expect("a file");
    }
    drop(place.open());
    assert_eq!(place.names(), [""; 0]);
}

#[test]
fn segments_are_made_ahead_and_dirt_is_removed() {
    let place = Place::new();
    let segments = place.open();
    while segments.work_once() {}
    let made = segments.space().made;
    assert!(made > 0 && made <= 32 * MIB / 4, "some are ahead, not all: {made}");
    let taken = segments.take(A, MIB).expect("space");
    taken[0].map.copy_in(taken[0].piece.at, &[1; 100]);
    segments.give(A, vec![taken[0].piece], None, Vec::new());
    while segments.work_once() {}
    let mut out = [1; 100];
    taken[0].map.copy_out(taken[0].piece.at, &mut out);
    assert_eq!(out, [0; 100]);
}
