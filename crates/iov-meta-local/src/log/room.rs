//! Room that the log has before it needs it. Everything that has to go on when the medium is full is written to the log:
//! a start, a delete. So the newest segment owns space behind its end, which nobody else can take; ordinary commits leave
//! it alone. It is part of the file from the moment it is taken, so a kill leaves it where it is.

use iov_store::Room;
use iov_types::Error;

use super::{
    full, is_full,
    segment::{Appender, Failure, name},
};
use crate::files::Home;

/// Bytes kept on a small file system and on a large one, some thousand frames of what must go on, and the share in between.
const KEPT: u64 = 1 << 20;
const KEPT_MOST: u64 = 4 << 20;
const SHARE: u64 = 1024;
/// The share of a tiny file system that is kept at most.
const TINY_SHARE: u64 = 4;
/// Taken together with what is needed, so that not every commit has to ask.
const AHEAD: u64 = 256 << 10;
/// The unit in which file systems give room.
const BLOCK: u64 = 4096;

/// How much is kept on a file system of that size.
fn kept_of(total: u64) -> u64 {
    let kept = (total / SHARE).clamp(KEPT, KEPT_MOST).min(total / TINY_SHARE);
    kept / BLOCK * BLOCK
}

/// What a segment has behind its end.
pub(super) struct Behind {
    /// Up to here there is space for certain. It may reach further: what an earlier process has taken is not known.
    until: u64,
    /// How much is to be kept.
    kept: u64,
    /// Up to here it was looked whether enough is free besides.
    looked: u64,
}

impl Behind {
    pub(super) fn new(home: &Home, until: u64) -> Behind {
        Behind { until, looked: 0, kept: home.total_bytes().map_or(KEPT, kept_of) }
    }

    /// The segment has been cut off there, and with it what was behind.
    pub(super) fn lost(&mut self, offset: u64) {
        // Where no room can be kept, there was none.
        if self.until != u64::MAX {
            self.until = offset;
        }
    }
}

impl Appender {
    /// What has to stay when a commit has been written.
    fn left_by(&self, room: Room) -> u64 {
        match room {
            Room::Free => self.behind.kept,
            Room::Kept => self.behind.kept / 4,
            Room::Freeing => self.behind.kept / 16,
            Room::Releasing => self.behind.kept / 32,
            Room::Last => 0,
        }
    }

    /// Sees to it that so many bytes can be written, and that what others count on is left behind them.
    pub(crate) fn make_room(&mut self, home: &Home, len: u64, room: Room) -> Result<(), Failure> {
        let kept = self.behind.kept;
        let short = match self.take(home, len + kept) {
            Err(Failure::Full(e)) if room != Room::Free => e,
            other => return other,
        };
        let least = self.left_by(room);
        if self.owned() >= len + least {
            return Ok(());
        }
        // How much there is only the file system knows: as much as possible, so that none of it is left to others.
        let mut more = kept / 2;
        while more > least {
            if self.take(home, len + more).is_ok() {
                return Ok(());
            }
            more /= 2;
        }
        self.take(home, len + least).map_err(|_| Failure::Full(short))
    }

    /// Whether it has to be looked, before so many bytes are written, whether enough is free besides.
    pub(crate) fn must_look(&self, len: u64) -> bool {
        self.tail.offset.saturating_add(len) > self.behind.looked
    }

    /// Fails where writing so many bytes would leave less free than so many for tables: without them the log would never give back its space,
    /// whatever is deleted.
    pub(crate) fn leave(&mut self, home: &Home, len: u64, tables: u64) -> Result<(), Error> {
        // A buffer can be moved only once the log goes on in another segment, which keeps as much.
        let more = self.tail.offset.saturating_add(len + self.behind.kept).saturating_sub(self.behind.until);
        let needed = (more + self.another()).saturating_add(tables);
        match home.free_bytes() {
            Some(free) if free < needed => {
                let what = format_args!("{free} bytes are free, {needed} are needed to go on once some are deleted");
                Err(full(&home.shown(name(self.segment.generation)), what))
            }
            _ => {
                self.behind.looked = self.tail.offset.saturating_add(len + AHEAD);
                Ok(())
            }
        }
    }

    /// Bytes that are kept.
    pub(crate) fn kept(&self) -> u64 {
        self.behind.kept
    }

    /// Bytes that another segment takes at first.
    pub(crate) fn another(&self) -> u64 {
        self.behind.kept + 2 * AHEAD
    }

    /// Keeps as much room as there is, up to what should be kept; how much that is.
    pub(crate) fn keep_room(&mut self, home: &Home) -> u64 {
        // That there is none is an answer, too.
        let _ = self.make_room(home, BLOCK, Room::Last);
        self.owned()
    }

    /// Bytes that can be written for certain.
    fn owned(&self) -> u64 {
        self.behind.until.saturating_sub(self.tail.offset)
    }

    fn take(&mut self, home: &Home, len: u64) -> Result<(), Failure> {
        let end = self.tail.offset.saturating_add(len);
        if end <= self.behind.until {
            return Ok(());
        }
        let (from, mut last) = (self.tail.offset.max(self.behind.until), None);
        for until in [end.saturating_add(AHEAD), end] {
            match self.segment.allocate(from, until) {
                Ok(()) => {
                    self.behind.until = until;
                    return Ok(());
                }
                Err(e) if is_full(&e) => last = Some(e),
                // A file system on which no room can be kept: a write finds out whether there is some.
                Err(_) => {
                    self.behind.until = u64::MAX;
                    return Ok(());
                }
            }
        }
        let shown = home.shown(name(self.segment.generation));
        Err(Failure::Full(full(&shown, last.map_or_else(String::new, |e| e.to_string()))))
    }
}
