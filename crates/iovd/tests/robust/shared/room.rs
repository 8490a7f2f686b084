//! Room: what is told when there is too little, where it goes, and what goes with it.

use std::path::Path;

use ioverbs::{Clause, Kind, Name};

use super::{MIB, Shared, delete};
use crate::kit::{Store, create, lookup, read};

/// A small file system of its own.
struct Small(tempfile::TempDir);

impl Small {
    /// `None` where mounting is not allowed.
    fn mount(size: &str) -> Option<Small> {
        let dir = tempfile::tempdir().unwrap();
        let status = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
            .arg(dir.path())
            .status();
        match status.is_ok_and(|s| s.success()) {
            true => Some(Small(dir)),
            false => {
                eprintln!("skipped: a small tmpfs cannot be mounted");
                None
            }
        }
    }
}

impl Small {
    /// Others take what is left; the file that they take it with.
    fn fill(&self) -> std::path::PathBuf {
        let path = self.0.path().join("ballast");
        let ballast = std::fs::File::create(&path).unwrap();
        // The daemon may be making a segment ahead just now.
        let taken = (0..100).any(|_| {
            let free = rustix::fs::statvfs(self.0.path()).unwrap();
            let len = (free.f_bavail * free.f_frsize).saturating_sub(64 << 10);
            let taken = rustix::fs::fallocate(&ballast, rustix::fs::FallocateFlags::empty(), 0, len).is_ok();
            taken || {
                std::thread::sleep(std::time::Duration::from_millis(10));
                false
            }
        });
        assert!(taken, "there is something left");
        path
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[test]
fn p1_what_went_with_the_memory_is_lost_and_never_zeros() {
    let mut shared = Shared::new("128MiB");
    let ws = shared.store.in_workspace();
    for (name, len) in [("small", 100), ("large", MIB), ("empty", 0)] {
        let c = create(&ws, name, "");
        ioverbs::write_at(&c, 0, &vec![7; len]).unwrap();
        ioverbs::close(&c).unwrap();
    }
    // One that is open, and of which nobody has written down how long it is.
    let open = create(&ws, "open", "");
    ioverbs::write_at(&open, 0, &vec![7; MIB]).unwrap();
    shared.kill();
    drop((open, ws));
    assert!(ioverbs::store_release(&shared.store.url()).unwrap() > 0);
    assert!(!shared.place().exists(), "the memory is free again");
    shared.restart(&[]);
    let ws = shared.store.again();
    let mut buf = vec![1; 2 * MIB];
    for name in ["large", "open"] {
        let c = lookup(&ws, name);
        let e = ioverbs::read_at(&c, 0, &mut buf).unwrap_err();
        assert_eq!((e.kind(), e.clause()), (Kind::Lost, Some(Clause::P1)), "{name}: {e}");
        let e = ioverbs::write_at(&c, 0, &[1; 20_000]).unwrap_err();
        assert_eq!(e.kind(), Kind::Lost, "{name}: no new bytes in the place of lost ones: {e}");
    }
    assert_eq!(ioverbs::read_at(&lookup(&ws, "small"), 0, &mut buf).unwrap(), 100, "those in the record are there");
    assert_eq!(ioverbs::read_at(&lookup(&ws, "empty"), 0, &mut buf).unwrap(), 0);
    delete(&ws, "large");
    let c = create(&ws, "large", "");
    ioverbs::write_at(&c, 0, &vec![8; MIB]).unwrap();
    assert!(read(&c) == vec![8; MIB], "made again");
}

#[test]
fn a_full_store_says_so_and_goes_on_when_something_is_deleted() {
    let shared = Shared::new("32MiB");
    let ws = shared.store.in_workspace();
    let mut names = Vec::new();
    let e = loop {
        let name = format!("c{}", names.len());
        let c = create(&ws, &name, "");
        match ioverbs::write_at(&c, 0, &vec![names.len() as u8 + 1; 3 * MIB]) {
            Ok(()) => names.push(name),
            Err(e) => break e,
        }
        // Those that are open keep no more than they need.
        assert!(names.len() < 20);
    };
    assert_eq!(e.kind(), Kind::Exhausted);
    assert!(e.detail().contains("iov df") && e.detail().contains("remove something"), "{e}");
    assert!(names.len() >= 8, "{} of 10 have room", names.len());
    for (i, name) in names.iter().enumerate() {
        assert!(read(&lookup(&ws, name)) == vec![i as u8 + 1; 3 * MIB], "{name}: nothing is lost");
    }
    delete(&ws, "c0");
    let c = create(&ws, "again", "");
    ioverbs::write_at(&c, 0, &vec![9; 3 * MIB]).unwrap();
    assert!(read(&c) == vec![9; 3 * MIB]);
}

#[test]
fn g6_too_little_memory_is_told_before_anything_begins() {
    let store = Store::new();
    std::fs::create_dir_all(store.dir()).unwrap();
    let start = |shm: &Path, size: &str| {
        let out = std::process::Command::new(crate::kit::IOVD)
            .args(["--dir", store.dir().to_str().unwrap(), "--detach", "--storage", size])
            .env("IOVD_SHM", shm)
            .output()
            .unwrap();
        (out.status.code(), String::from_utf8_lossy(&out.stderr).into_owned())
    };
    let (code, words) = start(Path::new("/dev/shm"), "shmem:1000TiB");
    assert_eq!(code, Some(73), "{words}");
    assert!(words.contains("--shm-size") && words.contains("ask for less"), "{words}");
    let (code, words) = start(Path::new("/dev/shm"), "shmem:1MiB");
    assert!(code == Some(2) && words.contains("at least 4MiB"), "{words}");
    let (code, words) = start(Path::new("/dev/shm"), "tape:1MiB");
    assert!(code == Some(2) && words.contains("shmem:SIZE"), "{words}");
    let (code, words) = start(Path::new("dev/shm"), "shmem:8MiB");
    assert!(code == Some(64) && words.contains("whole path"), "{words}");
    let (code, words) = start(&store.dir().join("nowhere"), "shmem:8MiB");
    assert!(code != Some(0) && words.contains("mount a tmpfs"), "{words}");
    assert!(!store.dir().join("storage").exists(), "nothing was begun");
}

/// A container's small /dev/shm: the store may take more than the machine turns out to have.
#[test]
fn g6_memory_that_others_have_taken_is_an_error_and_not_a_signal() {
    let Some(small) = Small::mount("24m") else { return };
    let store = Store::new();
    let base = small.0.path().to_str().unwrap().to_owned();
    let daemon = store.daemon(&["--storage", "shmem:16MiB"], &[("IOVD_SHM", &base)]);
    let ws = store.in_workspace();
    let c = create(&ws, "c", "");
    ioverbs::write_at(&c, 0, &vec![1; MIB]).unwrap();
    let ballast = small.fill();
    let e = (1..16).find_map(|at| ioverbs::write_at(&c, (at * MIB) as u64, &vec![2; MIB]).err());
    let e = e.expect("it cannot all have room");
    assert_eq!(e.kind(), Kind::Exhausted, "{e}");
    assert!(e.detail().contains("of this machine is full"), "the store itself may take more: {e}");
    assert!(read(&c)[..MIB].iter().all(|b| *b == 1), "what was there is there");
    std::fs::remove_file(ballast).unwrap();
    ioverbs::write_at(&c, 8 << 20, &vec![3; MIB]).expect("and now there is room");
    drop((c, ws));
    store.shut_down();
    drop(daemon);
}

#[test]
fn g5_memory_that_a_workspace_does_not_need_any_more_is_there_for_another() {
    let Some(small) = Small::mount("24m") else { return };
    let store = Store::new();
    let base = small.0.path().to_str().unwrap().to_owned();
    let daemon = store.daemon(&["--storage", "shmem:20MiB"], &[("IOVD_SHM", &base)]);
    let ws = store.in_workspace();
    let c = create(&ws, "c", "");
    ioverbs::write_at(&c, 0, &vec![1; 10 * MIB]).unwrap();
    ioverbs::close(&c).unwrap();
    delete(&ws, "c");
    drop((c, ws));
    small.fill();
    let other = Name::new("other").unwrap();
    let ws = store.session().create_workspace(other, Default::default()).unwrap();
    let c = create(&ws, "c", "");
    ioverbs::write_at(&c, 0, &vec![2; 10 * MIB]).expect("the store may take it, and the machine has no more");
    assert!(read(&c) == vec![2; 10 * MIB]);
    drop((c, ws));
    store.shut_down();
    drop(daemon);
}

#[test]
fn memory_of_a_store_that_is_gone_is_named_and_not_removed() {
    let Some(small) = Small::mount("24m") else { return };
    let base = small.0.path().to_str().unwrap().to_owned();
    let start = |store: &Store| {
        std::fs::create_dir_all(store.dir()).unwrap();
        let out = std::process::Command::new(crate::kit::IOVD)
            .args(["--dir", store.dir().to_str().unwrap(), "--detach", "--storage", "shmem:20MiB"])
            .env("IOVD_SHM", &base)
            .output()
            .unwrap();
        String::from_utf8_lossy(&out.stderr).into_owned()
    };
    let first = Store::new();
    start(&first);
    ioverbs::write_at(&create(&first.in_workspace(), "c", ""), 0, &vec![1; 8 * MIB]).unwrap();
    first.kill();
    let text = std::fs::read_to_string(first.dir().join("storage")).unwrap();
    // Its owner has moved it; or has removed it: who could tell?
    let moved = first.dir().with_file_name("moved");
    std::fs::rename(first.dir(), &moved).unwrap();
    let second = Store::new();
    let words = start(&second);
    assert!(words.contains("is of a store that was in ") && words.contains("remove it if that is gone"), "{words}");
    // It was moved.
    std::fs::rename(&moved, first.dir()).unwrap();
    assert!(read(&lookup(&first.again(), "c")) == vec![1; 8 * MIB], "nothing is lost");
    assert!(text.starts_with("shmem "));
    first.shut_down();
}

/// Programs that are still there when the memory goes must not take for stored what nobody will find.
#[test]
fn p1_nothing_is_acknowledged_that_goes_to_memory_which_was_given_back() {
    let mut shared = Shared::new("64MiB");
    let ws = shared.store.in_workspace();
    let c = create(&ws, "c", "");
    for _ in 0..2 {
        ioverbs::write_at(&c, 0, &vec![1; MIB]).unwrap();
    }
    assert!(shared.release() > 0);
    shared.restart(&[]);
    let e = ioverbs::write_at(&c, 0, &vec![2; MIB]).unwrap_err();
    assert_eq!(e.kind(), Kind::Lost, "{e}");
    let mut buf = vec![0; MIB];
    let e = ioverbs::read_at(&c, 0, &mut buf).unwrap_err();
    assert_eq!(e.kind(), Kind::Lost, "{e}");
}

/// What a writer had been lent when the daemon died is free again behind the next start.
#[test]
fn space_that_was_lent_ahead_does_not_leak_over_a_restart() {
    let mut shared = Shared::new("64MiB");
    let ws = shared.store.in_workspace();
    for i in 0..4 {
        let c = create(&ws, &format!("c{i}"), "");
        for at in 0..5 {
            ioverbs::write_at(&c, at * 300_000, &vec![i + 1; 300_000]).unwrap();
        }
        std::mem::forget(c); // as if its program had died
    }
    shared.kill();
    shared.restart(&[]);
    let used = shared.store.status("shm_used_bytes").unwrap();
    assert!(used < 4 * 1_600_000, "{used} bytes for 6,000,000");
}

#[test]
fn a_store_changes_its_size_and_not_its_medium() {
    let mut shared = Shared::new("16MiB");
    let ws = shared.store.in_workspace();
    let c = create(&ws, "c", "");
    ioverbs::write_at(&c, 0, &vec![1; 10 * MIB]).unwrap();
    assert!(ioverbs::write_at(&c, 10 << 20, &vec![1; 10 * MIB]).is_err());
    shared.kill();
    shared.restart(&["--storage", "shmem:48MiB"]);
    ioverbs::write_at(&c, 10 << 20, &vec![1; 10 * MIB]).expect("it is larger now");
    assert_eq!(shared.store.status("shm_capacity_bytes"), Some(48 << 20));
    assert!(read(&c) == vec![1; 16 * MIB], "the first 16 MiB of it");
    shared.kill();
    let out = std::process::Command::new(crate::kit::IOVD)
        .args(["--dir", shared.store.dir().to_str().unwrap(), "--detach", "--storage", "files"])
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&out.stderr).contains("another directory"));
    shared.restart(&[]);
    assert!(shared.release() > 0);
}
