//! Controls that show in counters and in the kernel (SEMANTICS 2.8): what is not asked for is not paid for.
#![allow(clippy::disallowed_methods)]

use std::{fs::File, os::fd::AsFd, path::Path};

use ioverbs::{Controls, Metadata, Name, Session, SessionAttr, open};

struct Store(tempfile::TempDir);

impl Store {
    /// On a disk: a file system in memory has no read-ahead, and nothing to sync.
    fn new() -> Store {
        assert!(Path::new(env!("CARGO_BIN_EXE_iovd")).is_file());
        Store(tempfile::tempdir_in("/var/tmp").unwrap())
    }

    fn session(&self) -> Session {
        open(Some(&format!("file:{}", self.0.path().display())), SessionAttr::default()).unwrap()
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let _ = ioverbs::daemon_shutdown(&format!("file:{}", self.0.path().display()));
    }
}

fn counter(s: &Session, name: &str) -> u64 {
    s.counters().snapshot()[ioverbs::Counters::NAMES.iter().position(|n| *n == name).unwrap()]
}

fn controls(text: &str) -> Controls {
    let mut controls = Controls::default();
    ioverbs::text::parse(&mut controls, text).unwrap();
    controls
}

/// The largest file below a directory.
fn largest(dir: &Path, found: &mut Option<(u64, std::path::PathBuf)>) {
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        let meta = entry.metadata().unwrap();
        if meta.is_dir() {
            largest(&entry.path(), found);
        } else if found.as_ref().is_none_or(|(size, _)| *size < meta.len()) {
            *found = Some((meta.len(), entry.path()));
        }
    }
}

/// Pages of a file that the kernel keeps.
fn resident(file: &File, len: usize) -> usize {
    let mut pages = vec![0u8; len.div_ceil(4096)];
    // SAFETY: a fresh mapping of a file that nobody truncates, unmapped below; `pages` has a byte for each page.
    unsafe {
        let at = rustix::mm::mmap(
            std::ptr::null_mut(),
            len,
            rustix::mm::ProtFlags::READ,
            rustix::mm::MapFlags::SHARED,
            file.as_fd(),
            0,
        )
        .unwrap();
        assert_eq!(libc::mincore(at, len, pages.as_mut_ptr()), 0);
        rustix::mm::munmap(at, len).unwrap();
    }
    pages.iter().filter(|p| **p & 1 == 1).count()
}

#[test]
fn h2_random_reads_make_the_kernel_read_nothing_ahead() {
    const LEN: usize = 16 << 20;
    let store = Store::new();
    let s = store.session();
    let ws = s.create_workspace(Name::new("w").unwrap(), Default::default()).unwrap();
    let c = ioverbs::create(&ws, None, Some("c"), Metadata::new(), Controls::default()).unwrap();
    ioverbs::write_at(&c, 0, &vec![7; LEN]).unwrap();
    ioverbs::close(&c).unwrap();
    let mut found = None;
    largest(&store.0.path().join("data"), &mut found);
    let file = File::open(found.unwrap().1).unwrap();
    let pages_after = |text: &str| {
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        if resident(&file, LEN) > 0 {
            return None;
        }
        // A new session, so that no older descriptor is used.
        let s = store.session();
        let ws = s.load_workspace(ioverbs::Which::parse("w").unwrap()).unwrap();
        let c = ioverbs::lookup(&ws, None, "c", controls(text)).unwrap();
        let mut page = [0; 4096];
        for i in 0..8u64 {
            assert_eq!(ioverbs::read_at(&c, i * (1 << 20), &mut page).unwrap(), 4096);
            assert!(page.iter().all(|b| *b == 7));
        }
        Some(resident(&file, LEN))
    };
    let (Some(random), Some(strided), Some(contiguous)) = (
        pages_after("spatiality=random"),
        pages_after("spatiality=strided(1MiB,4KiB)"),
        pages_after("spatiality=contiguous"),
    ) else {
        return println!("left out: this file system does not drop pages when it is asked to");
    };
    assert_eq!((random, strided), (8, 8), "the pages that were read, and no other");
    assert!(contiguous > random, "{contiguous}");
}

#[test]
fn x1_a_holder_asks_for_access_once() {
    let store = Store::new();
    let s = store.session();
    let ws = s.create_workspace(Name::new("w").unwrap(), Default::default()).unwrap();
    for text in ["concurrency=exclusive", "concurrency=shared"] {
        let before = counter(&s, "grants");
        let c = ioverbs::create(&ws, None, Some(text), Metadata::new(), controls(text)).unwrap();
        for i in 0..16u64 {
            ioverbs::write_at(&c, i << 20, &vec![1; 1 << 20]).unwrap();
        }
        assert_eq!(counter(&s, "grants") - before, 1, "{text}");
    }
}

#[test]
fn p5_who_has_only_looked_waits_for_no_sync() {
    let store = Store::new();
    let s = store.session();
    let ws = s.create_workspace(Name::new("w").unwrap(), Default::default()).unwrap();
    let durable = controls("persistence=durable@close");
    let c = match ioverbs::create(&ws, None, Some("c"), Metadata::new(), durable) {
        Ok(c) => c,
        Err(e) => return println!("left out: no disk here ({e})"),
    };
    let before = counter(&s, "syncs");
    ioverbs::close(&c).unwrap();
    assert!(counter(&s, "syncs") > before, "the new name survives power loss (P7)");
    let before = counter(&s, "syncs");
    let c = ioverbs::lookup(&ws, None, "c", Controls::default()).unwrap();
    assert_eq!(ioverbs::read_at(&c, 0, &mut [0; 10]).unwrap(), 0);
    ioverbs::stat(&c).unwrap();
    ioverbs::close(&c).unwrap();
    assert_eq!(counter(&s, "syncs"), before);
    let c = ioverbs::lookup(&ws, None, "c", Controls::default()).unwrap();
    ioverbs::write_at(&c, 0, b"news").unwrap();
    ioverbs::close(&c).unwrap();
    assert!(counter(&s, "syncs") > before);
}
