//! Locks, and waiting for them.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
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
pub(crate) struct Owners(Mutex<HashMap<(u64, u64), Taken>>);

/// How a lock was taken.
#[derive(Clone, Copy)]
pub(crate) struct Taken {
    by: u64,
    process: u32,
    /// When a descriptor of that open file was closed last since (monotonic clock), which may have been its last one.
    closed_ns: i64,
}

impl Taken {
    pub(crate) fn new(by: u64, process: u32) -> Taken {
        Taken { by, process, closed_ns: i64::MIN }
    }
}

impl Owners {
    pub(crate) fn add(&self, ino: u64, owner: u64, taken: Taken) {
        lock(&self.0).insert((ino, owner), taken);
    }

    pub(crate) fn take(&self, ino: u64, owner: u64) -> Option<Taken> {
        lock(&self.0).remove(&(ino, owner))
    }

    /// The process that has a lock: of this mount, or one that says so itself; 0: nobody here knows.
    fn process(&self, ino: u64, found: &InTheWay) -> u32 {
        let here = lock(&self.0).get(&(ino, found.owner)).map(|taken| taken.process);
        here.or_else(|| found.process()).unwrap_or(0)
    }

    /// Those that have locks by an open file of which the last descriptor is closed. Processes have given theirs back when they closed
    /// it: what is left belongs to the open file itself (`flock`, `F_OFD_SETLK`), and the kernel does not say so of the latter.
    pub(crate) fn all_of(&self, ino: u64, by: u64) -> Vec<u64> {
        let all = lock(&self.0);
        all.iter().filter(|((of, _), taken)| *of == ino && taken.by == by).map(|((_, owner), _)| *owner).collect()
    }

    /// One of those has none any more.
    pub(crate) fn end(&self, ino: u64, owner: u64, by: u64) {
        let mut all = lock(&self.0);
        if all.get(&(ino, owner)).is_some_and(|taken| taken.by == by) {
            all.remove(&(ino, owner));
        }
    }

    /// A descriptor of an open file is closed.
    pub(crate) fn closes(&self, ino: u64, by: u64) {
        for ((of, _), taken) in lock(&self.0).iter_mut() {
            if *of == ino && taken.by == by {
                taken.closed_ns = seam::monotonic_ns();
            }
        }
    }

    /// Whether somebody else of this mount may have locks on it.
    fn has_other(&self, ino: u64, owner: u64) -> bool {
        lock(&self.0).keys().any(|(of, other)| *of == ino && *other != owner)
    }

    /// Whether somebody else has locks by an open file of which a descriptor was closed shortly before that time: they have ended if that was the last one, of which
    /// the kernel tells behind the end of `close`. It was not if another one was closed since.
    fn is_closing(&self, ino: u64, owner: u64, before_ns: i64) -> bool {
        let closed = seam::monotonic_ns() - CLOSING_NS..=before_ns;
        lock(&self.0)
            .iter()
            .any(|((of, other), taken)| *of == ino && *other != owner && closed.contains(&taken.closed_ns))
    }
}

impl Door {
    /// Gets a lock, changes it, or gives it back; waits for it if that is wanted.
    pub(crate) fn lock(&self, req: &Request<'_>, asked: &LockAsked, sleep: bool) -> Outcome<()> {
        let ((file, range, kind), owner, now_ns) = (self.asked(asked)?, owner_of(asked), seam::monotonic_ns());
        let attempt = || file.lock(owner, range, kind);
        let is_closing = || self.known.owners.is_closing(req.node, owner, now_ns);
        let is_elsewhere = || asked.of_open_file && !self.known.owners.has_other(req.node, owner);
        let may_end = is_closing();
        match attempt() {
            Err(Errno::EAGAIN) if sleep => wait(&req.waits(), (&file, owner, range, kind))?,
            Err(Errno::EAGAIN) if may_end || is_elsewhere() => {
                let waiting = req.waits();
                wait_for_closes(&waiting, &is_closing);
                again_behind_close(attempt, &|| waiting.is_interrupted() || !is_elsewhere())?;
            }
            outcome => outcome?,
        }
        if kind != LockKind::None {
            self.known.locked(req, owner, Taken::new(asked.handle, asked.lock.process));
        }
        Ok(())
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

/// Who is to have it. The kernel gives the number of an open file to the next one while the last close of the first is still on its way, which would give back what the
/// next has locked: that of a handle is of one open file for ever.
fn owner_of(asked: &LockAsked) -> u64 {
    if asked.of_open_file { !asked.handle } else { asked.owner }
}

/// Returns when the lock is there, or whoever asks is interrupted.
fn wait(waiting: &Waiting<'_>, (file, owner, range, kind): (&File, u64, LockRange, LockKind)) -> Outcome<()> {
    // Who is interrupted as it gets the lock hears that it has it, and gives it back with its end.
    match file.lock_unless(owner, range, kind, &|| waiting.is_interrupted()) {
        Err(Errno::EAGAIN) => Err(Errno::EINTR),
        outcome => outcome,
    }
}

/// Returns when locks that end with a close have ended, as far as they do.
fn wait_for_closes(waiting: &Waiting<'_>, is_closing: &dyn Fn() -> bool) {
    while is_closing() && !waiting.is_interrupted() {
        seam::sleep(LOOK_NS);
    }
}
