//! Locks, and waiting for them.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
};

use iov_fuse_kernel::{Lock, LockAsked, Request, Waiting};
use iov_posix::{Errno, File, InTheWay, LockKind, LockRange, Outcome, again_behind_close};
use ioverbs::seam;

use crate::{door::Door, inodes::lock, opened::Served};

/// Types of `struct flock`, as on Linux.
const READ: i32 = 0;
const WRITE: i32 = 1;
const NONE: i32 = 2;

/// How long it takes the kernel, at most, to say that what was closed was the last descriptor, and how often that is looked for.
const CLOSING_NS: i64 = 200_000_000;
const LOOK_NS: u64 = 100_000;
/// How long between two tries of who waits for a lock, in nanoseconds.
const PAUSE_NS: u64 = 2_000_000;
/// Files that are locked and closed one behind the other have a number modulo this in common.
const TURNS: usize = 32;

pub(crate) fn kind(number: i32) -> Option<LockKind> {
    match number {
        READ => Some(LockKind::Read),
        WRITE => Some(LockKind::Write),
        NONE => Some(LockKind::None),
        _ => None,
    }
}

pub(crate) fn number(kind: LockKind) -> i32 {
    match kind {
        LockKind::Read => READ,
        LockKind::Write => WRITE,
        LockKind::None => NONE,
    }
}

/// Who may have locks on what, by which open file they were taken last, so that closing a file of which nobody has any asks nobody, and by
/// which process.
#[derive(Default)]
pub(crate) struct Owners {
    all: Mutex<HashMap<(u64, u64), Taken>>,
    /// Files of which pages are being dropped, each as often as it is.
    dropping: Mutex<Vec<u64>>,
    turns: [Mutex<()>; TURNS],
}

/// How a lock was taken.
#[derive(Clone, Copy)]
pub(crate) struct Taken {
    by: u64,
    process: u32,
    /// When a descriptor of that open file was closed last since (monotonic clock), which may have been its last one.
    closed_ns: i64,
    /// Pages were dropped since: what this one was writing may have been read anew as it was before.
    dropped: bool,
}

impl Taken {
    pub(crate) fn new(by: u64, process: u32) -> Taken {
        Taken { by, process, closed_ns: i64::MIN, dropped: false }
    }
}

impl Owners {
    /// Nobody else takes locks of this file, or gives them back with a last close, until that is dropped: the kernel gives the number of an open file (`F_OFD_SETLK`) to the next one while
    /// that close is on its way. Either what the first had ends before, or it is the next one's.
    pub(crate) fn turn(&self, ino: u64) -> MutexGuard<'_, ()> {
        lock(&self.turns[(ino % TURNS as u64) as usize])
    }

    pub(crate) fn add(&self, ino: u64, owner: u64, mut taken: Taken) {
        let mut all = lock(&self.all);
        taken.dropped |= all.get(&(ino, owner)).is_some_and(|before| before.dropped);
        all.insert((ino, owner), taken);
    }

    pub(crate) fn take(&self, ino: u64, owner: u64) -> Option<Taken> {
        lock(&self.all).remove(&(ino, owner))
    }

    /// Pages of a file are being dropped until what is returned is. Who has a lock on it may be writing meanwhile.
    pub(crate) fn dropping(&self, ino: u64) -> Dropping<'_> {
        lock(&self.dropping).push(ino);
        Dropping { owners: self, ino }
    }

    /// Whether they were since this owner got its first lock, or are now.
    fn has_dropped(&self, ino: u64, owner: u64) -> bool {
        self.is_dropping(ino) || lock(&self.all).get(&(ino, owner)).is_some_and(|taken| taken.dropped)
    }

    fn is_dropping(&self, ino: u64) -> bool {
        lock(&self.dropping).contains(&ino)
    }

    /// The process that has a lock: of this mount, or one that says so itself; 0: nobody here knows.
    fn process(&self, ino: u64, found: &InTheWay) -> u32 {
        let here = lock(&self.all).get(&(ino, found.owner)).map(|taken| taken.process);
        here.or_else(|| found.process()).unwrap_or(0)
    }

    /// The last descriptor of an open file is closed: `unlock` gives back the locks of an owner that has some by it. Processes have given theirs back when they closed
    /// it: what is left belongs to the open file itself (`flock`, `F_OFD_SETLK`), and the kernel does not say so of the latter.
    ///
    /// Whether pages were dropped while one of those had its lock.
    pub(crate) fn end_all(&self, ino: u64, by: u64, unlock: &dyn Fn(u64)) -> bool {
        let all = || {
            let all = lock(&self.all);
            let ended = all.iter().filter(|((of, _), taken)| *of == ino && taken.by == by);
            ended.map(|((_, owner), _)| *owner).collect::<Vec<_>>()
        };
        if all().is_empty() {
            return false;
        }
        let (_turn, mut dropped) = (self.turn(ino), false);
        for owner in all() {
            unlock(owner);
            dropped |= self.has_dropped(ino, owner);
            lock(&self.all).remove(&(ino, owner));
        }
        dropped
    }

    /// A descriptor of an open file is closed.
    pub(crate) fn closes(&self, ino: u64, by: u64) {
        for ((of, _), taken) in lock(&self.all).iter_mut() {
            if *of == ino && taken.by == by {
                taken.closed_ns = seam::monotonic_ns();
            }
        }
    }

    /// Whether somebody else of this mount may have locks on it.
    fn has_other(&self, ino: u64, owner: u64) -> bool {
        lock(&self.all).keys().any(|(of, other)| *of == ino && *other != owner)
    }

    /// Whether somebody else has locks by an open file of which a descriptor was closed shortly before that time: they have ended if that was the last one, of which
    /// the kernel tells behind the end of `close`. It was not if another one was closed since.
    fn is_closing(&self, ino: u64, owner: u64, before_ns: i64) -> bool {
        let closed = seam::monotonic_ns() - CLOSING_NS..=before_ns;
        lock(&self.all)
            .iter()
            .any(|((of, other), taken)| *of == ino && *other != owner && closed.contains(&taken.closed_ns))
    }
}

/// Pages of a file are being dropped.
pub(crate) struct Dropping<'a> {
    owners: &'a Owners,
    ino: u64,
}

impl Drop for Dropping<'_> {
    fn drop(&mut self) {
        for ((of, _), taken) in lock(&self.owners.all).iter_mut() {
            taken.dropped |= *of == self.ino;
        }
        // Behind that, so that who gives a lock back finds one or the other.
        let mut all = lock(&self.owners.dropping);
        if let Some(at) = all.iter().position(|ino| *ino == self.ino) {
            all.swap_remove(at);
        }
    }
}

impl Door {
    /// Gets a lock, changes it, or gives it back; waits for it if that is wanted.
    pub(crate) fn lock(&self, req: &Request<'_>, asked: &LockAsked, sleep: bool) -> Outcome<()> {
        let ((file, range, kind), owner, now_ns) = (self.asked(asked)?, owner_of(asked), seam::monotonic_ns());
        let attempt = || {
            let _turn = (kind != LockKind::None).then(|| self.known.owners.turn(req.node));
            file.lock(owner, range, kind)?;
            if kind != LockKind::None {
                self.known.owners.add(req.node, owner, Taken::new(asked.handle, asked.lock.process));
            }
            Ok(())
        };
        let is_closing = || self.known.owners.is_closing(req.node, owner, now_ns);
        let is_elsewhere = || asked.of_open_file && !self.known.owners.has_other(req.node, owner);
        let may_end = is_closing();
        match attempt() {
            Err(Errno::EAGAIN) if sleep => wait(&req.waits(), &attempt)?,
            Err(Errno::EAGAIN) if may_end || is_elsewhere() => {
                let waiting = req.waits();
                wait_for_closes(&waiting, &is_closing);
                again_behind_close(attempt, &|| waiting.is_interrupted() || !is_elsewhere())?;
            }
            outcome => outcome?,
        }
        match range {
            _ if kind != LockKind::None => self.known.locked(req, &file),
            LockRange::Bytes(first, last) if self.known.owners.has_dropped(req.node, owner) => {
                self.known.drop_bytes(req, (first, (last - first).saturating_add(1)));
            }
            _ => {}
        }
        Ok(())
    }

    /// A process has closed a descriptor of a file: its locks on that end.
    pub(crate) fn unlock_all(&self, req: &Request<'_>, file: &File, owner: u64) {
        let owners = &self.known.owners;
        let Some(taken) = owners.take(req.node, owner) else { return };
        if file.unlock_all(owner).is_err() {
            owners.add(req.node, owner, taken);
        } else if taken.dropped || owners.is_dropping(req.node) {
            self.known.drop_bytes(req, (0, 0));
        }
    }

    /// An open file is closed for good: what locks belong to it end.
    pub(crate) fn end_locks(&self, req: &Request<'_>, handle: u64, file: &File) {
        let unlock = |owner| {
            // What cannot be told ends with the mount.
            let _ = file.unlock_all(owner);
        };
        if self.known.owners.end_all(req.node, handle, &unlock) {
            self.known.drop_bytes(req, (0, 0));
        }
    }

    fn asked(&self, asked: &LockAsked) -> Outcome<(Arc<Served>, LockRange, LockKind)> {
        let kind = kind(asked.lock.kind).ok_or(Errno::EINVAL)?;
        Ok((self.file(asked.handle)?, LockRange::Bytes(asked.lock.first, asked.lock.last), kind))
    }

    /// The lock that is in the way of another one.
    pub(crate) fn lock_in_the_way(&self, req: &Request<'_>, asked: &LockAsked) -> Outcome<Lock> {
        let (ino, (file, range, kind), owner) = (req.node, self.asked(asked)?, owner_of(asked));
        let now_ns = seam::monotonic_ns();
        let is_closing = || self.known.owners.is_closing(ino, owner, now_ns);
        let may_end = is_closing();
        let mut in_the_way = file.lock_in_the_way(owner, range, kind)?;
        if may_end && in_the_way.is_some() {
            wait_for_closes(&req.waits(), &is_closing);
            in_the_way = file.lock_in_the_way(owner, range, kind)?;
        }
        Ok(match in_the_way {
            Some(found) => Lock {
                first: found.first,
                last: found.last,
                kind: number(found.kind),
                process: self.known.owners.process(ino, &found),
            },
            None => Lock { first: 0, last: 0, kind: number(LockKind::None), process: 0 },
        })
    }
}

/// Who is to have it. The kernel gives the number of an open file to the next one while the last close of the first is still on its way: that of a handle is of one open
/// file for ever.
fn owner_of(asked: &LockAsked) -> u64 {
    if asked.of_open_file { !asked.handle } else { asked.owner }
}

/// Returns when the lock is there, or whoever asks is interrupted. Who is so as it gets the lock hears that it has it, and gives it back with its end.
fn wait(waiting: &Waiting<'_>, attempt: &dyn Fn() -> Outcome<()>) -> Outcome<()> {
    loop {
        match attempt() {
            Err(Errno::EAGAIN) if waiting.is_interrupted() => return Err(Errno::EINTR),
            Err(Errno::EAGAIN) => seam::sleep(PAUSE_NS),
            done => return done,
        }
    }
}

/// Returns when locks that end with a close have ended, as far as they do.
fn wait_for_closes(waiting: &Waiting<'_>, is_closing: &dyn Fn() -> bool) {
    while is_closing() && !waiting.is_interrupted() {
        seam::sleep(LOOK_NS);
    }
}
