//! How many names of a directory are asked for along with one.
//!
//! A program that looks at several names of a directory will mostly look at more of them, in whatever order: so each question after the first few
//! brings those that follow in the order of names, more of them the more of what came that way was used. A program that looks
//! for a few names in a large directory pays for some entries with each, and for none any more once it is seen that nothing comes of it.

use std::{collections::HashMap, sync::Mutex};

use ioverbs::{Uuid, seam};

use crate::{Node, early, fs::lock};

/// Questions about names of a directory before any brings more than its answer.
const FIRST: u64 = 4;
/// Entries that may come along for each name that was looked at.
const EACH: u64 = 64;
/// Most that come along at once.
const MOST: u64 = 256;
/// After so many it is seen whether they are of use: one in [`WORTH`] must be.
const TRIED: u64 = 1024;
const WORTH: u64 = 32;
/// The same for bytes, of which each costs more.
const TOLD: u64 = 256;
const WORTH_TELLING: u64 = 4;
/// After so many questions in a row behind whose names there was nothing only one of so many asks for more: the catalog may have to pass all the names that were
/// removed there to see that, each time.
const NOTHING: u64 = 8;
const ONE_OF: u64 = 64;
/// Directories that are kept count of.
const DIRECTORIES: usize = 256;
/// What a program does may change: for how long a count is kept, in nanoseconds.
const KEPT_NS: i64 = 10_000_000_000;

#[derive(Clone, Copy)]
struct Count {
    /// Names that were asked for.
    asked: u64,
    /// Files that were opened to be read.
    opened: u64,
    /// Names that came along.
    came: u64,
    /// Those of them that were looked at.
    used: u64,
    /// Questions for more in a row with which nothing came.
    nothing: u64,
    /// When it was begun (monotonic clock).
    since_ns: i64,
}

impl Count {
    fn new(since_ns: i64) -> Count {
        Count { asked: 0, opened: 0, came: 0, used: 0, nothing: 0, since_ns }
    }

    fn wanted(&self) -> u64 {
        let in_vain = self.came >= TRIED && self.used < self.came / WORTH;
        let nothing_there = self.nothing >= NOTHING && !self.asked.is_multiple_of(ONE_OF);
        if self.asked < FIRST || in_vain || nothing_there {
            return 0;
        }
        (EACH * (self.asked + self.used)).saturating_sub(self.came).min(MOST)
    }

    fn has_come(&mut self, along: u64) {
        if self.wanted() > 0 {
            self.nothing = if along == 0 { self.nothing + 1 } else { 0 };
        }
        self.asked += 1;
        self.came += along;
    }

    /// Whether bytes are to come along: most of what was looked at was read then, and enough of what came along was looked at.
    fn tells(&self) -> bool {
        let in_vain = self.came >= TOLD && self.used < self.came / WORTH_TELLING;
        self.opened * 2 >= self.asked + self.used && !in_vain
    }
}

/// See the module.
#[derive(Default)]
pub(super) struct Ahead {
    counts: Mutex<HashMap<Uuid, Count>>,
}

impl Ahead {
    fn with<T>(&self, dir: Uuid, work: impl FnOnce(&mut Count) -> T) -> T {
        let now = seam::monotonic_ns();
        let mut counts = lock(&self.counts);
        if counts.len() >= DIRECTORIES && !counts.contains_key(&dir) {
            counts.clear();
        }
        let count = counts.entry(dir).or_insert(Count::new(now));
        if now - count.since_ns > KEPT_NS {
            *count = Count::new(now);
        }
        work(count)
    }

    /// A name of this directory is to be asked for: how many of those behind it are to come along, and files of how many bytes at most with
    /// these; 0: without.
    pub(super) fn wanted(&self, dir: &Node) -> (u32, u64) {
        self.with(dir.uuid(), |count| (count.wanted() as u32, if count.tells() { early::MOST } else { 0 }))
    }

    /// A file of this directory was opened to be read.
    pub(super) fn was_opened(&self, dir: Uuid) {
        self.with(dir, |count| count.opened += 1);
    }

    /// A name was found, and so many came along.
    pub(super) fn has_come(&self, dir: &Node, along: usize) {
        self.with(dir.uuid(), |count| count.has_come(along as u64));
    }

    /// A name was found by a question that asked for no more.
    pub(super) fn was_asked(&self, dir: &Node) {
        self.with(dir.uuid(), |count| count.asked += 1);
    }

    /// A name was looked at that had come along.
    pub(super) fn was_used(&self, dir: &Node) {
        self.with(dir.uuid(), |count| count.used += 1);
    }
}

#[cfg(test)]
mod tests;
