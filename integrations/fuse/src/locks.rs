//! Locks, and waiting for them.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use iov_fuse_kernel::{Lock, LockAsked, Request, Waiting};
use iov_posix::{Errno, File, InTheWay, LockKind, LockRange, Outcome};

use crate::{door::Door, inodes::lock, opened::Served};

/// Types of `struct flock`, as on Linux.
const READ: i32 = 0;
const WRITE: i32 = 1;
const NONE: i32 = 2;

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
    pub(crate) by: u64,
    pub(crate) process: u32,
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
    pub(crate) fn take_all_of(&self, ino: u64, by: u64) -> Vec<u64> {
        let ended = lock(&self.0).extract_if(|(of, _), taken| *of == ino && taken.by == by).collect::<Vec<_>>();
        ended.into_iter().map(|((_, owner), _)| owner).collect()
    }
}

impl Door {
    /// Gets a lock, changes it, or gives it back; waits for it if that is wanted.
    pub(crate) fn lock(&self, req: &Request<'_>, asked: &LockAsked, sleep: bool) -> Outcome<()> {
        let (file, range, kind) = self.asked(asked)?;
        match file.lock(asked.owner, range, kind) {
            Err(Errno::EAGAIN) if sleep => wait(&req.waits(), (&file, asked.owner, range, kind))?,
            outcome => outcome?,
        }
        if kind != LockKind::None {
            self.known.locked(req, asked.owner, Taken { by: asked.handle, process: asked.lock.process });
        }
        Ok(())
    }

    fn asked(&self, asked: &LockAsked) -> Outcome<(Arc<Served>, LockRange, LockKind)> {
        let kind = kind(asked.lock.kind).ok_or(Errno::EINVAL)?;
        Ok((self.file(asked.handle)?, LockRange::Bytes(asked.lock.first, asked.lock.last), kind))
    }

    /// The lock that is in the way of another one.
    pub(crate) fn lock_in_the_way(&self, ino: u64, asked: &LockAsked) -> Outcome<Lock> {
        let (file, range, kind) = self.asked(asked)?;
        Ok(match file.lock_in_the_way(asked.owner, range, kind)? {
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

/// Returns when the lock is there, or whoever asks is interrupted.
fn wait(waiting: &Waiting<'_>, (file, owner, range, kind): (&File, u64, LockRange, LockKind)) -> Outcome<()> {
    // Who is interrupted as it gets the lock hears that it has it, and gives it back with its end.
    match file.lock_unless(owner, range, kind, &|| waiting.is_interrupted()) {
        Err(Errno::EAGAIN) => Err(Errno::EINTR),
        outcome => outcome,
    }
}
