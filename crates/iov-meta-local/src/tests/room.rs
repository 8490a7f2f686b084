//! The room that is kept for when the medium is full: who may take it, that nobody else gets it, and that a store opens
//! with it whenever its process was killed.

use std::{
    fs::File,
    io::{BufRead, BufReader, ErrorKind, Write},
    os::unix::fs::MetadataExt,
    path::Path,
    process::{Command, Stdio},
};

use iov_store::{MetadataStore, Room};
use iov_types::{Kind, Outcome, Result};

use super::{
    kit::{Place, Rng, Small, all, apply, open, put, tiny, try_open, unlocked, value, wait_until, writes},
    torn::newest_segment,
};
use crate::{LocalStore, Options, hooks::Hooks, hooks::Point};

const EOPNOTSUPP: i32 = 95;
const ENOSPC: i32 = 28;
const MIB: u64 = 1 << 20;
/// What cannot be taken back to a smaller number of commits than this is no room.
const MOST: usize = 1 << 20;

fn is_full<T>(result: Result<T>) -> bool {
    let Err(e) = result else { return false };
    assert_eq!((e.kind(), e.outcome()), (Kind::Exhausted, Outcome::NotApplied), "{e:?}");
    assert!(e.detail().contains("space"), "{e}");
    true
}

/// Bytes that a file takes on the medium.
fn taken(path: &Path) -> u64 {
    std::fs::metadata(path).expect("a file").blocks() * 512
}

/// Another user of the file system takes every byte that is free.
pub(super) fn take_all(dir: &Path) {
    let mut file = File::options().append(true).create(true).open(dir.join("ballast")).expect("a file");
    for size in [1 << 16, 4096] {
        loop {
            match file.write_all(&vec![1; size]) {
                Ok(()) => {}
                Err(e) if e.kind() == ErrorKind::StorageFull => break,
                Err(e) => panic!("{e}"),
            }
        }
    }
}

pub(super) fn give_back(dir: &Path) {
    std::fs::remove_file(dir.join("ballast")).expect("the ballast");
}

fn ordinary(store: &LocalStore) -> Result<()> {
    store.commit(vec![writes(vec![put("R-ordinary", [1; 100])])]).map(drop)
}

fn vital(store: &LocalStore) -> Result<()> {
    store.commit_with(vec![writes(vec![put("R-vital", [2; 1000])])], Room::Kept).map(drop)
}

fn freeing(store: &LocalStore) -> Result<()> {
    store.commit_with(vec![writes(vec![(b"R-gone".to_vec(), None), put("R-f", [4; 1000])])], Room::Freeing).map(drop)
}

fn last(store: &LocalStore) -> Result<()> {
    store.commit_with(vec![writes(vec![put("R-last", [3; 1000])])], Room::Last).map(drop)
}

fn until_full(store: &LocalStore, commit: impl Fn(&LocalStore) -> Result<()>) -> usize {
    (0..MOST).find(|_| is_full(commit(store))).expect("room ends")
}

#[test]
fn p7_what_must_go_on_takes_the_room_that_was_kept_for_it() {
    let place = Place::new("reserve");
    let reserve = place.path().join("reserve");
    let store = open(place.path(), &Options::default());
    if !reserve.exists() {
        return eprintln!("skipped: this file system keeps no room");
    }
    let hooks = store.engine().hooks.clone();
    hooks.fail(Point::Write, ENOSPC);
    assert!(is_full(ordinary(&store)) && is_full(vital(&store)));
    assert!(reserve.exists(), "not for this");
    assert!(is_full(freeing(&store)));
    assert!(!reserve.exists(), "given up, and it was still not enough");
    hooks.heal();
    last(&store).expect("room");
    assert!(!reserve.exists());
    store.keep_room();
    assert_eq!(std::fs::metadata(&reserve).expect("the file").len(), store.engine().reserve_bytes());
    drop(store);
    drop(open(place.path(), &Options::default()));
    assert!(reserve.exists(), "and it stays");
}

#[test]
fn p7_the_newest_segment_has_room_behind_its_end_and_no_other_has() {
    let place = Place::new("behind");
    let store = open(place.path(), &Options { write_buffer: 64 << 10, ..tiny() });
    let log = newest_segment(place.path());
    assert!(taken(&log) >= MIB && std::fs::metadata(&log).expect("a file").len() < 1000);
    // Buffers stay where they are, so that their segments do.
    store.engine().hooks.fail(Point::Ingest, ENOSPC);
    for n in 0.. {
        if store.commit(vec![writes(vec![put(format!("R{n}"), [1; 1000])])]).is_err() {
            break;
        }
    }
    let check = |when: &str| {
        let newest = newest_segment(place.path());
        let mut others = 0;
        for entry in std::fs::read_dir(place.path().join("log")).expect("a log") {
            let path = entry.expect("an entry").path();
            let (len, taken) = (std::fs::metadata(&path).expect("a file").len(), taken(&path));
            if path == newest {
                assert!(taken >= MIB, "{when}: {len} {taken}");
            } else {
                assert!(taken < len + (64 << 10), "{when}: {len} {taken}");
                others += 1;
            }
        }
        assert_eq!(others, 2, "{when}");
    };
    check("sealed");
    drop(store);
    // A kill between the new segment and the old one's trimming leaves room behind the old one.
    let mut segments: Vec<_> =
        std::fs::read_dir(place.path().join("log")).expect("a log").map(|e| e.expect("an entry").path()).collect();
    segments.sort();
    let file = File::options().write(true).open(&segments[0]).expect("a segment");
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::KEEP_SIZE, 0, 2 * MIB).expect("room");
    let hooks = Hooks::default();
    hooks.fail(Point::Ingest, ENOSPC);
    let reopened = unlocked(|| LocalStore::open_with(place.path(), tiny(), hooks.clone())).expect("a store");
    check("opened again");
    drop(reopened);
}

#[test]
fn p7_on_a_full_disk_each_kind_of_commits_leaves_room_to_the_next() {
    let Some(small) = Small::mount("12m") else { return };
    let dir = small.path().join("store");
    let mut store = open(&dir, &tiny());
    apply(&store, vec![put("R-gone", "x"), put("R-kept", "y")]);
    take_all(small.path());
    // What was taken ahead is still there for anybody.
    until_full(&store, ordinary);
    let made = until_full(&store, vital);
    assert!(made > 600, "{made}");
    assert!(is_full(ordinary(&store)));
    let made = until_full(&store, freeing);
    assert!(made > 150, "{made}");
    assert!(is_full(vital(&store)) && is_full(ordinary(&store)));
    let releasing =
        |store: &LocalStore| store.commit_with(vec![writes(vec![put("R-f", [4; 1000])])], Room::Releasing).map(drop);
    let made = until_full(&store, releasing);
    assert!(made > 20, "{made}");
    let made = until_full(&store, last);
    assert!(made > 25, "{made}");
    assert!(is_full(freeing(&store)) && is_full(vital(&store)) && is_full(ordinary(&store)));
    for round in 0..3 {
        take_all(small.path());
        drop(store);
        take_all(small.path());
        store = open(&dir, &tiny());
        assert_eq!(value(&store, "R-kept").as_deref(), Some(&b"y"[..]), "round {round}: all is there");
        assert_eq!((value(&store, "R-gone"), value(&store, "R-last").map(|v| v.len())), (None, Some(1000)));
    }
    give_back(small.path());
    wait_until("the store to go on", || ordinary(&store).is_ok());
    assert!(taken(&newest_segment(&dir)) >= MIB, "and room is kept again");
    store.keep_room();
    take_all(small.path());
    until_full(&store, ordinary);
    assert!(until_full(&store, vital) > 600);
}

#[test]
fn p7_what_must_go_on_does_not_wait_for_tables_without_room() {
    let place = Place::new("over");
    let store = open(place.path(), &tiny());
    store.engine().hooks.fail(Point::Ingest, ENOSPC);
    let mut n = 0;
    while store.commit(vec![writes(vec![put(format!("R{n}"), [1; 200])])]).is_ok() {
        n += 1;
        assert!(n < 10_000, "memory is bounded");
    }
    for _ in 0..100 {
        n -= 1;
        let commits = store
            .commit_with(vec![writes(vec![(format!("R{n}").into_bytes(), None)])], Room::Freeing)
            .expect("a delete");
        assert!(commits[0].is_ok());
    }
    vital(&store).expect("room");
    let more = until_full(&store, vital);
    assert!(more < 100_000, "memory is bounded here, too: {more}");
    assert_eq!(all(&store).len(), n + 1);
    store.engine().hooks.heal();
    wait_until("the store to go on", || ordinary(&store).is_ok());
    drop(store);
    assert_eq!(all(&open(place.path(), &tiny())).len(), n + 2);
}

#[test]
fn p7_a_store_lives_without_room_where_none_can_be_kept() {
    let place = Place::new("unsupported");
    let hooks = Hooks::default();
    hooks.fail(Point::Allocate, EOPNOTSUPP);
    let open = || unlocked(|| LocalStore::open_with(place.path(), tiny(), hooks.clone())).expect("a store");
    let store = open();
    assert!(taken(&newest_segment(place.path())) < MIB / 2);
    for n in 0..500 {
        apply(&store, vec![put(format!("R{n}"), [1; 200])]);
    }
    hooks.fail(Point::Write, ENOSPC);
    assert!(is_full(ordinary(&store)) && is_full(vital(&store)) && is_full(last(&store)));
    hooks.heal();
    hooks.fail(Point::Allocate, EOPNOTSUPP);
    ordinary(&store).expect("a commit");
    drop(store);
    assert_eq!(all(&open()).len(), 501);
}

#[test]
fn p7_a_store_whose_log_has_no_room_left_opens_with_the_file() {
    let Some(small) = Small::mount("12m") else { return };
    let dir = small.path().join("store");
    let store = open(&dir, &tiny());
    apply(&store, vec![put("R-kept", "y")]);
    drop(store);
    assert!(dir.join("reserve").exists());
    // What a log leaves that was cut off, and whose room somebody else has taken since.
    let log = newest_segment(&dir);
    let mut file = File::options().append(true).open(&log).expect("a segment");
    let len = file.metadata().expect("a length").len();
    file.write_all(&[0x55; 30]).expect("part of a head");
    file.set_len(len + 30).expect("a cut");
    take_all(small.path());
    let store = open(&dir, &tiny());
    assert!(!dir.join("reserve").exists(), "it was needed");
    take_all(small.path());
    assert!(is_full(ordinary(&store)));
    for _ in 0..100 {
        last(&store).expect("room");
    }
    drop(store);
    take_all(small.path());
    let store = open(&dir, &tiny());
    assert_eq!(value(&store, "R-kept").as_deref(), Some(&b"y"[..]));
    last(&store).expect("room");
}

#[test]
fn p8_a_log_is_written_again_after_a_failed_sync_without_room_for_another() {
    let Some(small) = Small::mount("12m") else { return };
    let dir = small.path().join("store");
    let store = open(&dir, &Options::default());
    for n in 0..1000 {
        apply(&store, vec![put(format!("R{n}"), [1; 1000])]);
    }
    store.engine().hooks.fail(Point::Sync, 5);
    store.persist().expect_err("a failed sync");
    drop(store);
    take_all(small.path());
    assert!(dir.join("unsynced").exists());
    let log = newest_segment(&dir);
    let inode = std::fs::metadata(&log).expect("a file").ino();
    let store = open(&dir, &Options::default());
    assert_eq!(std::fs::metadata(&log).expect("a file").ino(), inode, "there was no room for another");
    assert!(!dir.join("unsynced").exists());
    assert_eq!(all(&store).len(), 1000);
    last(&store).expect("room");
    store.persist().expect("a sync");
}

#[test]
fn p2_only_a_store_that_was_made_to_its_end_is_one() {
    let place = Place::new("made");
    let dir = place.path().join("store");
    let made = || unlocked(|| LocalStore::open_made(&dir, tiny()));
    assert!(made().expect("nothing").is_none() && !dir.exists());
    let store = open(&dir, &tiny());
    apply(&store, vec![put("R", "x")]);
    drop(store);
    assert_eq!(made().expect("a store").map(|store| all(&store).len()), Some(1));
    // One that holds something does not pass for one that was never made.
    std::fs::remove_file(dir.join("format")).expect("the format");
    assert_eq!(made().err().map(|e| e.kind()), Some(Kind::Corrupt));
    for keep in ["tables", "lock", ""] {
        for entry in std::fs::read_dir(&dir).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.ends_with("lock") && !keep.is_empty() || path.ends_with("tables") && keep == "tables" {
                continue;
            }
            if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) }.expect("gone");
        }
        assert!(made().expect("a part of one").is_none(), "{keep}");
    }
    drop(open(&dir, &tiny()));
    assert!(made().expect("a store").is_some());
}

const DIR: &str = "IOV_META_ROOM_DIR";

/// Not a test by itself: what the killed process does. For each line that it is given it commits, and says so.
#[test]
#[ignore = "run by the test of kills"]
fn child() {
    let Some(dir) = std::env::var_os(DIR) else { return };
    let store = open(Path::new(&dir), &tiny());
    let mut out = std::io::stdout();
    let first = value(&store, "last").map_or(0, number);
    for (n, _) in (first..).zip(std::io::stdin().lines()) {
        let list = vec![put("last", (n + 1).to_le_bytes()), put(format!("R{}", n % 50), vec![n as u8; 3000])];
        store.commit_with(vec![writes(list)], Room::Last).expect("room for what comes last");
        let _ = ordinary(&store);
        writeln!(out, "\ndone {}", n + 1).and_then(|()| out.flush()).expect("a pipe");
    }
}

fn number(bytes: bytes::Bytes) -> u64 {
    u64::from_le_bytes(bytes[..].try_into().expect("8 bytes"))
}

#[test]
fn p2_a_store_opens_on_a_full_disk_whenever_its_process_was_killed() {
    let Some(small) = Small::mount("24m") else { return };
    let dir = small.path().join("store");
    let mut rng = Rng(7);
    drop(open(&dir, &tiny()));
    take_all(small.path());
    for round in 0..15 {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "tests::room::child", "--ignored", "--nocapture"])
            .env(DIR, &dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a child");
        // No more than there is room for in all rounds; it is killed in the middle of them.
        let mut turns = child.stdin.take().expect("a pipe");
        turns.write_all(&[b'\n'; 12]).expect("a pipe");
        let mut said = BufReader::new(child.stdout.take().expect("a pipe")).lines().map_while(std::result::Result::ok);
        let mut next = || said.by_ref().find_map(|line| line.strip_prefix("done ").and_then(|n| n.parse::<u64>().ok()));
        let mut acknowledged = 0;
        for _ in 0..1 + rng.below(10) {
            acknowledged = next().expect("the child goes on");
        }
        child.kill().expect("a kill");
        child.wait().expect("its end");
        acknowledged = next().unwrap_or(acknowledged);
        take_all(small.path());
        let store = try_open(&dir, &tiny()).unwrap_or_else(|e| panic!("round {round}: {e:?}"));
        let found = value(&store, "last").map_or(0, number);
        assert!(found >= acknowledged, "round {round}: {acknowledged} were acknowledged, {found} are there");
        assert_eq!(
            value(&store, format!("R{}", (found - 1) % 50)).as_deref(),
            Some(&vec![(found - 1) as u8; 3000][..])
        );
        last(&store).unwrap_or_else(|e| panic!("round {round}: {e:?}"));
        drop(store);
        take_all(small.path());
    }
    give_back(small.path());
    let store = open(&dir, &tiny());
    ordinary(&store).expect("room");
}
