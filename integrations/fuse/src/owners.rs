//! Who may have locks in this mount.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard},
};

use iov_posix::InTheWay;
use ioverbs::seam;

use crate::inodes::lock;

/// How long it takes the kernel, at most, to say that what was closed was the last descriptor.
const CLOSING_NS: i64 = 200_000_000;
/// Files that are locked and closed one behind the other have a number modulo this in common.
const TURNS: usize = 32;

/// Who may have locks on what, by which open file they were taken last, so that closing a file of which nobody has any asks nobody, and by
/// which process.
#[derive(Default)]
pub(crate) struct Owners {
    all: Mutex<HashMap<u64, Of>>,
    turns: [Mutex<()>; TURNS],
}

/// Those of one file.
#[derive(Default)]
struct Of {
    owners: Vec<(u64, Taken)>,
    /// How often pages of it are being dropped now.
    dropping: usize,
}

/// How a lock was taken.
#[derive(Clone)]
pub(crate) struct Taken {
    by: u64,
    process: u32,
    /// When a descriptor of that open file was closed last since (monotonic clock), which may have been its last one.
    closed_ns: i64,
    /// What may be locked, each from the first to the last byte.
    bytes: Vec<(u64, u64)>,
    /// Pages were dropped since the first of those was: what its owner was writing then may have been read anew as it was before.
    dropped: bool,
}

impl Taken {
    pub(crate) fn new(by: u64, process: u32, bytes: (u64, u64)) -> Taken {
        Taken { by, process, closed_ns: i64::MIN, bytes: vec![bytes], dropped: false }
    }

    /// Whether what was written under it may have been read before it had come to the store.
    pub(crate) fn is_dropped(&self) -> bool {
        self.dropped
    }

    /// This one, with what its owner has had before.
    fn beside(mut self, mut before: Taken) -> Taken {
        self.bytes.iter().for_each(|bytes| before.without(*bytes));
        self.bytes.append(&mut before.bytes);
        Taken { dropped: self.dropped || before.dropped, ..self }
    }

    /// Its owner has these bytes no more.
    fn without(&mut self, (first, last): (u64, u64)) {
        let left = |(from, to): (u64, u64)| {
            let before = (from < first).then(|| (from, to.min(first.saturating_sub(1))));
            let behind = (to > last).then(|| (from.max(last.saturating_add(1)), to));
            before.into_iter().chain(behind)
        };
        self.bytes = self.bytes.drain(..).flat_map(left).collect();
    }
}

impl Owners {
    /// Nobody else takes locks of this file, or gives them back with a last close, until that is dropped: the kernel gives the number of an open file (`F_OFD_SETLK`) to the next one while
    /// that close is on its way. Either what the first had ends before, or it is the next one's.
    pub(crate) fn turn(&self, ino: u64) -> MutexGuard<'_, ()> {
        lock(&self.turns[(ino % TURNS as u64) as usize])
    }

    /// With those of a file, if there are any.
    fn of<T>(&self, ino: u64, what: impl FnOnce(&mut Of) -> T) -> Option<T> {
        let mut all = lock(&self.all);
        let of = all.get_mut(&ino)?;
        let done = what(of);
        if of.owners.is_empty() && of.dropping == 0 {
            all.remove(&ino);
        }
        Some(done)
    }

    /// An owner has got a lock. Whether it had none before.
    pub(crate) fn add(&self, ino: u64, owner: u64, taken: Taken) -> bool {
        let mut all = lock(&self.all);
        let owners = &mut all.entry(ino).or_default().owners;
        let Some(at) = owners.iter().position(|(other, _)| *other == owner) else {
            owners.push((owner, taken));
            return true;
        };
        let (_, before) = owners.swap_remove(at);
        let had_none = before.bytes.is_empty();
        owners.push((owner, taken.beside(before)));
        had_none
    }

    /// An owner is about to give back all that it has.
    pub(crate) fn take(&self, ino: u64, owner: u64) -> Option<Taken> {
        self.of(ino, |of| {
            let at = of.owners.iter().position(|(other, _)| *other == owner)?;
            let (_, taken) = of.owners.swap_remove(at);
            Some(Taken { dropped: taken.dropped || (of.dropping > 0 && !taken.bytes.is_empty()), ..taken })
        })?
    }

    /// The same of bytes from the first to the last. Whether pages were dropped since it locked some, or are now.
    pub(crate) fn gives_back(&self, ino: u64, owner: u64, bytes: (u64, u64)) -> bool {
        let gives = self.of(ino, |of| {
            let (_, taken) = of.owners.iter_mut().find(|(other, taken)| *other == owner && !taken.bytes.is_empty())?;
            let dropped = taken.dropped || of.dropping > 0;
            taken.without(bytes);
            taken.dropped &= !taken.bytes.is_empty();
            Some(dropped)
        });
        gives.flatten().unwrap_or(false)
    }

    /// Whether pages were dropped since an owner locked some bytes.
    pub(crate) fn has_dropped(&self, ino: u64, owner: u64) -> bool {
        let dropped = |of: &mut Of| of.owners.iter().any(|(other, taken)| *other == owner && taken.dropped);
        self.of(ino, dropped).unwrap_or(false)
    }

    /// An owner of locks that an open file has, which are to end with it, of which that is so.
    pub(crate) fn dropped_by(&self, ino: u64, by: u64) -> Option<u64> {
        let dropped =
            |of: &mut Of| of.owners.iter().find(|(_, taken)| taken.by == by && taken.dropped).map(|one| one.0);
        self.of(ino, dropped).flatten()
    }

    /// Pages of a file are being dropped until what is returned is. Who has a lock on it may be writing meanwhile, but for the one (`by`) for which that is done.
    pub(crate) fn dropping(&self, ino: u64, by: Option<u64>) -> Dropping<'_> {
        lock(&self.all).entry(ino).or_default().dropping += 1;
        Dropping { owners: self, ino, by }
    }

    /// The process that has a lock: of this mount, or one that says so itself; 0: nobody here knows.
    pub(crate) fn process(&self, ino: u64, found: &InTheWay) -> u32 {
        let mine =
            |of: &mut Of| of.owners.iter().find(|(owner, _)| *owner == found.owner).map(|(_, taken)| taken.process);
        self.of(ino, mine).flatten().or_else(|| found.process()).unwrap_or(0)
    }

    /// The last descriptor of an open file is closed: `unlock` gives back the locks of an owner that has some by it. Processes have given
    /// theirs back when they closed it: what is left belongs to the open file itself (`flock`, `F_OFD_SETLK`), and the kernel does not say so of the latter.
    pub(crate) fn end_all(&self, ino: u64, by: u64, unlock: &dyn Fn(u64)) {
        let next =
            || self.of(ino, |of| of.owners.iter().find(|(_, taken)| taken.by == by).map(|(owner, _)| *owner)).flatten();
        if next().is_none() {
            return;
        }
        let _turn = self.turn(ino);
        while let Some(owner) = next() {
            unlock(owner);
            self.take(ino, owner);
        }
    }

    /// A descriptor of an open file is closed.
    pub(crate) fn closes(&self, ino: u64, by: u64) {
        self.of(ino, |of| {
            for (_, taken) in of.owners.iter_mut().filter(|(_, taken)| taken.by == by) {
                taken.closed_ns = seam::monotonic_ns();
            }
        });
    }

    /// Whether somebody else of this mount may have locks on it.
    pub(crate) fn has_other(&self, ino: u64, owner: u64) -> bool {
        self.of(ino, |of| of.owners.iter().any(|(other, _)| *other != owner)).unwrap_or(false)
    }

    /// Whether somebody else has locks by an open file of which a descriptor was closed shortly before that time: they have ended if that was the last one, of which
    /// the kernel tells behind the end of `close`. It was not if another one was closed since.
    pub(crate) fn is_closing(&self, ino: u64, owner: u64, before_ns: i64) -> bool {
        let closed = seam::monotonic_ns() - CLOSING_NS..=before_ns;
        let others =
            |of: &mut Of| of.owners.iter().any(|(other, taken)| *other != owner && closed.contains(&taken.closed_ns));
        self.of(ino, others).unwrap_or(false)
    }
}

/// Pages of a file are being dropped.
pub(crate) struct Dropping<'a> {
    owners: &'a Owners,
    ino: u64,
    by: Option<u64>,
}

impl Drop for Dropping<'_> {
    fn drop(&mut self) {
        self.owners.of(self.ino, |of| {
            of.dropping -= 1;
            for (_, taken) in of.owners.iter_mut().filter(|(owner, _)| Some(*owner) != self.by) {
                taken.dropped |= !taken.bytes.is_empty();
            }
        });
    }
}
