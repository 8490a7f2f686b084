//! Room that is kept for when the medium is full: without it no store could be opened, and nobody could delete anything,
//! since all that is written to the log. Most of it lies behind the end of the log; a file keeps a little more.
//!
//! A log that is cut off, after a kill in the middle of a write, gives its room back to the file system for a moment, and
//! somebody else may take it. The file is for that case.

use std::sync::atomic::Ordering;

use iov_store::{Commit, Room, Txn};
use iov_types::{Error, Kind, Outcome, Result};

use crate::{
    engine::Engine,
    files::{Home, create},
    log::Appender,
};

/// The file that takes the room. It holds nothing.
pub(crate) const RESERVE_FILE: &str = "reserve";
/// Some starts and some hundred deletes, after which there should be room.
const RESERVE: u64 = 256 << 10;
/// Room is kept only where much more is free: a small medium is not filled by it.
const SPARE: u64 = 2 << 20;

/// Has what is needed to open a store: a log that is written on, with room behind its end.
pub(crate) fn settle(home: &Home, log: &mut Appender) -> Result<()> {
    if log.keep_room(home) < RESERVE {
        home.remove(RESERVE_FILE)?;
        log.keep_room(home);
    }
    Ok(())
}

impl Engine {
    /// Keeps room, if there is none kept.
    pub(crate) fn keep_room(&self) {
        if let Ok(mut log) = self.log.lock()
            && self.check().is_ok()
        {
            log.keep_room(self.home());
        }
        self.keep_file();
    }

    fn keep_file(&self) {
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

    /// Commits. What can wait does so for a moment, where deletes may give room; what makes room gets the file's as well, if there is no other.
    pub(crate) fn commit_with(&self, txns: &[Txn], room: Room) -> Result<Vec<Commit>> {
        let full = |e: &Error| e.kind() == Kind::Exhausted && e.outcome() == Outcome::NotApplied;
        match self.commit(txns, room) {
            Err(e) if room == Room::Free && full(&e) && self.reclaim() => self.commit(txns, room),
            Err(e) if room >= Room::Freeing && full(&e) && self.take_file() => self.commit(txns, room),
            done => done,
        }
    }

    fn take_file(&self) -> bool {
        self.reserved.swap(false, Ordering::Relaxed) && self.home().remove(RESERVE_FILE).is_ok()
    }
}
