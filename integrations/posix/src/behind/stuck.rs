//! What the store had no room for, or has not answered for, of files that are written behind.
//!
//! The program was told that it is written. So whoever asks to make it last, or closes the file, is told so, and until the file is
//! closed it is read as it was written, as from the page cache of a file system whose medium is full: SQLite, for instance, takes a journal that has
//! become empty for one of which nothing is left to be undone.

use std::sync::atomic::Ordering;

use ioverbs::{Collection, Op, Range, Result, within};

use super::Untold;
use crate::{
    Attributes, Errno, Outcome,
    fs::lock,
    handle::{Handle, stat},
};

/// How long the store is asked what came of a write, in nanoseconds.
const LOOK_NS: i64 = 1_000_000_000;

/// Another time there may be some, or the store may answer.
pub(super) fn may_come_through(e: Errno) -> bool {
    // Busy: somebody holds what is above it, or may come back for it.
    matches!(e, Errno::ENOSPC | Errno::EDQUOT | Errno::EIO | Errno::ENOMEM | Errno::EBUSY)
}

/// What takes away what came of a write that nobody was told of.
#[derive(Clone, Copy)]
pub(super) enum Cut {
    End(u64),
    Hole(Range),
}

impl Cut {
    pub(super) fn of(self, c: &Collection) -> Op {
        match self {
            Cut::End(size) => Op::Truncate { c: c.clone(), size },
            Cut::Hole(range) => Op::Punch { c: c.clone(), range },
        }
    }
}

impl Handle {
    pub(crate) fn is_stuck(&self) -> bool {
        self.behind.stuck.load(Ordering::Acquire)
    }

    /// All is told, or lost. What has come through after all has not failed; what is beyond a quota may be there and has.
    pub(super) fn is_stuck_no_more(&self, is_told: bool) {
        if self.behind.stuck.swap(false, Ordering::AcqRel) && is_told {
            lock(&self.behind.failed).take_if(|e| may_come_through(*e) && *e != Errno::EDQUOT);
        }
    }

    /// A write has failed, up to `end`: how much of it has come through the store says, unless it is on its way still, as others may write behind that.
    pub(super) fn has_failed(&self, untold: &mut Untold, end: u64, why: Errno) {
        let look = || stat(ioverbs::run(self.c.session(), Op::Stat { c: self.c.clone() }));
        let came = match why {
            Errno::ENOSPC | Errno::EDQUOT => within(LOOK_NS, look).map_or(end, |told| told.bytes.min(end)),
            _ => end,
        };
        untold.reached = came.max(untold.reached);
    }

    /// Of a write that has found no room there may be some, up to where it was tried: what takes that away. What lies behind that is others', who have written
    /// meanwhile.
    pub(super) fn cut(&self, untold: &Untold) -> Result<Option<Cut>> {
        let (size, reached) = (untold.attributes.size, untold.reached);
        if reached <= size {
            return Ok(None);
        }
        let is_last = stat(ioverbs::run(self.c.session(), Op::Stat { c: self.c.clone() }))?.bytes <= reached;
        Ok(Some(if is_last { Cut::End(size) } else { Cut::Hole(Range::new(size, reached - size)?) }))
    }

    /// The attributes of the file, if the store had no room for what was written.
    pub(crate) fn stuck_attributes(&self) -> Option<Attributes> {
        if !self.is_stuck() {
            return None;
        }
        // What becomes of its names is asked once.
        let names = self.file_system().0.names.load(Ordering::Acquire);
        lock(&self.behind.untold).as_mut().map(|untold| {
            untold.names = names;
            untold.attributes
        })
    }

    /// Reads what was written, if the store had no room for it.
    pub(crate) fn read_stuck(&self, offset: u64, out: &mut [u8]) -> Option<Outcome<usize>> {
        if !self.is_stuck() {
            return None;
        }
        let behind = lock(&self.behind.untold);
        let untold = behind.as_ref()?;
        let len = untold.attributes.size.saturating_sub(offset).min(out.len() as u64);
        if len == 0 {
            return Some(Ok(0));
        }
        let out = &mut out[..len as usize];
        let (told, kept) = out.split_at_mut(untold.from.saturating_sub(offset).min(len) as usize);
        if !told.is_empty() {
            let read = self.file_system().again("read", || ioverbs::read_at(&self.c, offset, told));
            if read != Ok(told.len()) {
                return Some(read);
            }
        }
        let at = offset.saturating_sub(untold.from) as usize;
        let from = untold.data.get(at..at + kept.len())?;
        kept.copy_from_slice(from);
        Some(Ok(len as usize))
    }

    /// Cuts what the store had no room for; `false`: there is nothing of that.
    pub(crate) fn truncate_stuck(&self, size: u64) -> Outcome<bool> {
        let Err(full) = self.settle() else { return Ok(false) };
        let mut behind = lock(&self.behind.untold);
        let Some(untold) = behind.as_mut().filter(|_| self.is_stuck()) else { return Err(full) };
        if size > untold.attributes.size {
            return Err(full);
        }
        // Also where all of that stays: of a write that has failed the store may have some.
        let told = size.min(untold.from);
        let cut = || ioverbs::run(self.c.session(), Op::Truncate { c: self.c.clone(), size: told });
        self.file_system().again("truncate", cut)?;
        (untold.from, untold.reached) = (told, 0);
        untold.data.truncate((size - told) as usize);
        untold.attributes.size = size;
        Ok(true)
    }

    /// As if a write up to there had found no room.
    #[cfg(test)]
    pub(crate) fn found_no_room(&self, reached: u64) {
        lock(&self.behind.untold).as_mut().expect("something to tell").reached = reached;
        self.behind.stuck.store(true, Ordering::Release);
    }
}
