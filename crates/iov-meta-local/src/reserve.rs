//! Room that is kept for when the medium is full: without it nobody could delete anything, since that too is written to
//! the log.

use std::sync::atomic::Ordering;

use iov_store::{Commit, Txn};
use iov_types::{Kind, Outcome, Result};

use crate::{engine::Engine, files::create};

/// The file that takes the room. It holds nothing.
pub(crate) const RESERVE_FILE: &str = "reserve";
/// A thousand deletes or so, after which there should be room.
const RESERVE: u64 = 1 << 20;
/// Room is kept only where much more is free: a small medium is not filled by it.
const SPARE: u64 = 2 * RESERVE;

impl Engine {
    /// Keeps room, if there is none kept.
    pub(crate) fn keep_room(&self) {
        if self.reserved.load(Ordering::Relaxed) {
            return;
        }
        let path = self.home().path(RESERVE_FILE);
        let kept = std::fs::metadata(&path).is_ok_and(|file| file.len() >= RESERVE);
        if !kept && self.home().free_bytes().is_none_or(|free| free < RESERVE + SPARE) {
            return;
        }
        let made = create(&path, false).and_then(|file| {
            let flags = rustix::fs::FallocateFlags::empty();
            rustix::fs::fallocate(file, flags, 0, RESERVE).map_err(std::io::Error::from)
        });
        match made {
            Ok(()) => self.reserved.store(true, Ordering::Relaxed),
            // A file system that cannot keep room, or has none.
            Err(_) => drop(self.home().remove(RESERVE_FILE)),
        }
    }

    /// Commits what must go on, with the room that was kept if there is no other.
    pub(crate) fn commit_vital(&self, txns: &[Txn]) -> Result<Vec<Commit>> {
        match self.commit(txns) {
            Err(e) if e.kind() == Kind::Exhausted && e.outcome() == Outcome::NotApplied && self.take_room() => {
                self.commit(txns)
            }
            done => done,
        }
    }

    fn take_room(&self) -> bool {
        self.reserved.swap(false, Ordering::Relaxed) && self.home().remove(RESERVE_FILE).is_ok()
    }
}
