#![allow(clippy::disallowed_methods)] // tests may spawn threads and look at clocks

mod appends;
mod journal;
mod names;
mod overlay;
mod sidecar;
mod stage;

use std::{fs::File, os::fd::OwnedFd};

use iov_types::{ObjectId, Uuid};

use super::{disk::Disk, tree::Tree};

/// A file without a name.
fn file() -> File {
    tempfile::tempfile().expect("a temporary file")
}

fn id(slot: u64) -> ObjectId {
    ObjectId { collection: Uuid([0xab; 16]), slot }
}

/// The disk of a new target; it goes with the directory.
fn disk() -> (tempfile::TempDir, Disk) {
    let directory = tempfile::tempdir().expect("a directory");
    let root: OwnedFd = File::open(directory.path()).expect("the directory").into();
    let tree = Tree::open(root, 1).expect("a target");
    (directory, Disk::new(tree, 8, None, Default::default()))
}

/// Numbers that always are the same (xorshift).
struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}
