//! Room that is kept for when the medium is full: without it no store could be opened, and nobody could delete anything,
//! since all that is written to the log. Most of it lies behind the end of the log; a file keeps a little more.
//!
//! A log that is cut off, after a kill in the middle of a write, gives its room back to the file system for a moment, and
//! somebody else may take it. The file is for that case.

use std::{fs::File, sync::atomic::Ordering};

use iov_store::{Commit, Room, Txn};
use iov_types::Result;

use crate::{
    engine::{Engine, MAX_SEALED},
    files::{Home, create},
    log::{Appender, says_full},
};

/// The file that takes the room. It holds nothing.
pub(crate) const RESERVE_FILE: &str = "reserve";
/// Some starts and some hundred deletes. What it has besides is for what many deletes need: that the log is moved into tables.
const RESERVE: u64 = 256 << 10;
/// The share of a small file system that it has at most.
const SHARE: u64 = 8;
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
            self.look_at_space();
            // While it can be moved.
            if self.parts().active.bytes() >= self.buffer_bytes() && self.parts().sealed.len() < MAX_SEALED {
                let _ = self.seal(&mut log);
            }
        }
        self.keep_file();
    }

    /// Bytes of the file.
    pub(crate) fn reserve_bytes(&self) -> u64 {
        let most = self.home().total_bytes().map_or(0, |total| total / SHARE);
        let more = if self.options.many_deletes { self.for_one_buffer() } else { 0 };
        (RESERVE + more).min(most).max(RESERVE)
    }

    fn keep_file(&self) {
        if self.reserved.load(Ordering::Relaxed) {
            return;
        }
        let path = self.home().path(RESERVE_FILE);
        let bytes = self.reserve_bytes();
        let len = std::fs::metadata(&path).map_or(0, |file| file.len());
        // One that was copied from a larger file system.
        let kept = len >= bytes
            && (len == bytes || File::options().write(true).open(&path).and_then(|f| f.set_len(bytes)).is_ok());
        if !kept && self.home().free_bytes().is_none_or(|free| free < bytes + SPARE) {
            return;
        }
        let made = create(&path, false).and_then(|file| {
            let flags = rustix::fs::FallocateFlags::empty();
            rustix::fs::fallocate(file, flags, 0, bytes).map_err(std::io::Error::from)
        });
        match made {
            Ok(()) => self.reserved.store(true, Ordering::Relaxed),
            // A file system that cannot keep room, or has none.
            Err(_) => drop(self.home().remove(RESERVE_FILE)),
        }
    }

    /// Commits. What can wait does so for a moment, where deletes may give room; what makes room gets the file's as well, if there is no other.
    pub(crate) fn commit_with(&self, txns: &[Txn], room: Room) -> Result<Vec<Commit>> {
        match self.commit(txns, room) {
            Err(e) if room == Room::Free && says_full(&e) && self.reclaim() => self.commit(txns, room),
            // With the file's room the log is moved, not written on: else some thousand deletes would take it.
            Err(e)
                if room >= Room::Freeing
                    && says_full(&e)
                    && (self.take_file() | (room < Room::Last && self.reclaim())) =>
            {
                self.commit(txns, room)
            }
            done => done,
        }
    }

    fn take_file(&self) -> bool {
        // Also one that is smaller than it should be.
        let there = self.reserved.swap(false, Ordering::Relaxed) || self.home().path(RESERVE_FILE).exists();
        there && self.home().remove(RESERVE_FILE).is_ok()
    }
}
