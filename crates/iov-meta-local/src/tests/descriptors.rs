//! A process that has no descriptor left for a while. The limit is one of the whole process, so it is a child: this test
//! program itself.

use std::{
    os::fd::RawFd,
    path::Path,
    process::{Command, Stdio},
};

use iov_store::{MetadataStore, Room};
use iov_types::{Kind, Outcome};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::kit::{Place, all, apply, open, put, tiny, wait_applied, wait_until, writes};
use crate::{LocalStore, engine::lock};

const DIR: &str = "IOV_META_DESCRIPTORS_DIR";
const WHAT: &str = "IOV_META_DESCRIPTORS_WHAT";

/// Lets this process open so many files more, and no others; `None`: as many as it may.
fn limit(free: Option<usize>) {
    let limit = getrlimit(Resource::Nofile);
    let current = free.map_or(limit.maximum, |free| {
        let number =
            |entry: std::io::Result<std::fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse::<RawFd>().ok();
        let held: Vec<RawFd> = std::fs::read_dir("/proc/self/fd").expect("descriptors").filter_map(number).collect();
        // That of the listing is closed again.
        let open = |n: &RawFd| Path::new(&format!("/proc/self/fd/{n}")).symlink_metadata().is_ok();
        (0..).filter(|n| !(held.contains(n) && open(n))).nth(free).map(|n| n as u64)
    });
    setrlimit(Resource::Nofile, Rlimit { current, ..limit }).expect("a limit");
}

/// Not a test by itself: what the process does.
#[test]
#[ignore = "run by the tests of descriptors"]
fn child() {
    let (Some(dir), Ok(what)) = (std::env::var_os(DIR), std::env::var(WHAT)) else { return };
    let store = open(Path::new(&dir), &tiny());
    match what.split_once(' ') {
        Some((what, free)) => manifest(&store, free.parse().expect("a number"), what == "goes-on"),
        _ if what == "sync" => sync(&store),
        _ => reserve(&store, Path::new(&dir)),
    }
    // As a kill.
    std::process::abort();
}

/// Runs it to its end.
fn run(dir: &Path, what: &str) {
    let output = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "tests::descriptors::child", "--ignored", "--nocapture"])
        .env(DIR, dir)
        .env(WHAT, what)
        .stdin(Stdio::null())
        .output()
        .expect("a child");
    let said = String::from_utf8_lossy(&output.stderr);
    let signal = std::os::unix::process::ExitStatusExt::signal(&output.status);
    assert_eq!(signal, Some(6), "{what}: {said}");
    assert!(!said.contains("panicked"), "{what}: {said}");
}

const RECORDS: u32 = 30;

fn manifest(store: &LocalStore, free: usize, goes_on: bool) {
    for n in 0..RECORDS {
        apply(store, vec![put([&b"R"[..], &n.to_be_bytes()].concat(), [1; 100])]);
    }
    let engine = store.engine();
    assert!(engine.parts().sealed.is_empty(), "none of it is in tables");
    limit(Some(free));
    engine.seal(&mut engine.log.lock().expect("the log")).expect("a new segment");
    wait_until("a try", || lock(&engine.progress).apply.is_some() || store.stats().applied == 1);
    if goes_on {
        limit(None);
        lock(&engine.progress).hurry = true;
        engine.changed.notify_all();
        wait_applied(store, 1);
        assert_eq!(all(store).len(), RECORDS as usize);
    }
}

#[test]
fn p2_tables_without_descriptors_leave_a_store_that_opens() {
    for what in ["ends", "goes-on"] {
        for free in 2..10 {
            let place = Place::new("descriptors");
            run(place.path(), &format!("{what} {free}"));
            let store = open(place.path(), &tiny());
            assert_eq!(all(&store).len(), RECORDS as usize, "{what}, {free} were free");
        }
    }
}

fn sync(store: &LocalStore) {
    limit(Some(0));
    std::fs::File::open("/").expect_err("there is none left");
    apply(store, vec![put("R1", "x")]);
    store.persist().expect("a sync takes none");
    limit(None);
    apply(store, vec![put("R2", "x")]);
    store.persist().expect("a sync");
}

#[test]
fn p8_want_of_descriptors_is_no_failed_sync() {
    let place = Place::new("descriptors-sync");
    run(place.path(), "sync");
    assert!(!place.path().join("unsynced").exists());
    assert_eq!(all(&open(place.path(), &tiny())).len(), 2);
}

fn reserve(store: &LocalStore, dir: &Path) {
    let file = dir.join("reserve");
    if !file.exists() {
        return eprintln!("skipped: this file system keeps no room");
    }
    limit(Some(0));
    let commit = |room: Room| store.commit_with(vec![writes(vec![put("R", [1; 60_000])])], room);
    // Until a segment is full, and what must go on has gone on.
    for room in [Room::Free, Room::Freeing] {
        let e = (0..1000).find_map(|_| commit(room).err()).expect("another segment takes a descriptor");
        assert_eq!((e.kind(), e.outcome()), (Kind::Exhausted, Outcome::NotApplied), "{e:?}");
    }
    limit(None);
    assert!(file.exists(), "space is of no help");
    commit(Room::Free).expect("a descriptor");
}

#[test]
fn p7_want_of_descriptors_is_no_full_medium() {
    let place = Place::new("descriptors-reserve");
    run(place.path(), "reserve");
    assert_eq!(all(&open(place.path(), &tiny())).len(), 1);
}
