//! What the tests share: places, options, a model.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use iov_store::{Commit, KeyRange, MetadataStore, Record, Txn};
use iov_types::{Kind, Result};

use crate::{LocalStore, Options};

/// A directory that goes when the test has passed; of one that failed the files stay, to be looked at.
pub(crate) struct Place(PathBuf);

impl Place {
    pub(crate) fn new(name: &str) -> Place {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = root().join(format!("iov-meta-{}-{number}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory for the test");
        Place(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

/// Memory, if there is enough: most tests do not depend on a disk, but wait for its syncs.
fn root() -> PathBuf {
    let memory = Path::new("/dev/shm");
    let free = rustix::fs::statvfs(memory).map_or(0, |s| s.f_bavail * s.f_frsize);
    if free > 1 << 30 { memory.into() } else { std::env::temp_dir() }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

/// Small buffers, so that they are moved into tables all the time.
pub(crate) fn tiny() -> Options {
    Options { write_buffer: 16 << 10, record_cache: 256 << 10, table_cache: 1 << 20, ..Options::default() }
}

pub(crate) fn open(path: &Path, options: &Options) -> LocalStore {
    try_open(path, options).unwrap_or_else(|e| panic!("opening {}: {e:?}", path.display()))
}

pub(crate) fn try_open(path: &Path, options: &Options) -> Result<LocalStore> {
    unlocked(|| LocalStore::open(path, options.clone()))
}

/// Tests beside this one start processes, and a fork holds every lock of this process until its exec.
pub(crate) fn unlocked<T>(open: impl Fn() -> Result<T>) -> Result<T> {
    for _ in 0..1000 {
        match open() {
            Err(e) if e.kind() == Kind::Busy => std::thread::sleep(std::time::Duration::from_millis(2)),
            other => return other,
        }
    }
    open()
}

pub(crate) fn put(key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> (Vec<u8>, Option<Bytes>) {
    (key.as_ref().to_vec(), Some(Bytes::copy_from_slice(value.as_ref())))
}

pub(crate) fn writes(writes: Vec<(Vec<u8>, Option<Bytes>)>) -> Txn {
    Txn { guards: vec![], writes }
}

/// Numbers in an order in which keys of different buffers lie between each other, so that their tables must be merged.
pub(crate) fn scattered(tag: u8, n: u32) -> Vec<u8> {
    [&[tag][..], &n.wrapping_mul(0x9E37_79B1).to_be_bytes()].concat()
}

/// Commits one transaction without guards.
pub(crate) fn apply(store: &LocalStore, list: Vec<(Vec<u8>, Option<Bytes>)>) -> u64 {
    let mut commits: Vec<Commit> = store.commit(vec![writes(list)]).expect("a commit");
    commits.remove(0).expect("no guards")
}

pub(crate) fn all(store: &dyn MetadataStore) -> Vec<(Bytes, Record)> {
    store.scan(&KeyRange { from: vec![], to: None }, None, usize::MAX).expect("a scan of everything")
}

pub(crate) fn value(store: &LocalStore, key: impl AsRef<[u8]>) -> Option<Bytes> {
    store.get(&[key.as_ref()]).expect("a get").remove(0).map(|r| r.value)
}

/// Waits until a number of buffers has been moved into tables since the store was opened.
pub(crate) fn wait_applied(store: &LocalStore, n: u64) {
    wait_until("buffers to be moved", || store.stats().applied >= n);
}

pub(crate) fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    for _ in 0..20_000 {
        if done() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    panic!("waited in vain for {what}");
}

/// Numbers that are the same in every run.
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

pub(crate) fn shared(store: LocalStore) -> Arc<dyn MetadataStore> {
    Arc::new(store)
}

/// A file system of a few MiB; none if this user may not mount one.
pub(crate) struct Small(Place);

impl Small {
    pub(crate) fn mount(size: &str) -> Option<Small> {
        let place = Place::new("small");
        let options = format!("size={size},mode=700");
        let done = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "iov-test"]).arg(place.path()).output();
        match done {
            Ok(output) if output.status.success() => Some(Small(place)),
            _ => {
                println!("left out: mounting a tmpfs takes the right to");
                None
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).output();
    }
}
