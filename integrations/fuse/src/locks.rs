//! Waiting for locks, beside the threads that serve the kernel.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use fuser::{Errno, FileHandle, INodeNo, ReplyEmpty, ReplyLock, Request};
use iov_posix::{Errno as No, File, InTheWay, LockKind, LockRange};

use crate::{
    convert::errno,
    door::{Door, done},
    inodes::lock,
};

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
    pub(crate) by: FileHandle,
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
    pub(crate) fn take_all_of(&self, ino: u64, by: FileHandle) -> Vec<u64> {
        let ended = lock(&self.0).extract_if(|(of, _), taken| *of == ino && taken.by == by).collect::<Vec<_>>();
        ended.into_iter().map(|((_, owner), _)| owner).collect()
    }
}

/// Whether a signal waits for a thread, so that it wants to stop waiting. The kernel asks us to stop in a way that `fuser` does not
/// pass on, and would have the thread wait, dead or alive.
fn is_interrupted(thread: u32) -> bool {
    let Ok(status) = std::fs::read_to_string(format!("/proc/{thread}/status")) else { return true };
    let mask = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
    };
    (mask("SigPnd:") | mask("ShdPnd:")) & !mask("SigBlk:") & !mask("SigIgn:") != 0
}

/// A lock that somebody waits for.
pub(crate) type Wanted = (Arc<File>, u64, LockRange, LockKind);

impl Door {
    /// Gets a lock, changes it, or gives it back; waits for it if that is wanted.
    pub(crate) fn lock(
        &self,
        req: &Request,
        (ino, by, process): (INodeNo, FileHandle, u32),
        wanted: Wanted,
        sleep: bool,
        reply: ReplyEmpty,
    ) {
        let (file, owner, range, kind) = wanted;
        let taken = Taken { by, process };
        match file.lock(owner, range, kind) {
            Err(No::EAGAIN) if sleep => {
                let (known, ino) = (self.known.clone(), ino.0);
                wait((file, owner, range, kind), req.pid(), move || known.locked(ino, owner, taken), reply);
            }
            Ok(()) if kind != LockKind::None => {
                self.known.locked(ino.0, owner, taken);
                reply.ok();
            }
            outcome => done(reply, outcome),
        }
    }
}

impl Door {
    /// Tells of a lock that is in the way of another one.
    pub(crate) fn tell_lock(&self, ino: INodeNo, wanted: Wanted, reply: ReplyLock) {
        let (file, owner, range, kind) = wanted;
        match file.lock_in_the_way(owner, range, kind) {
            Ok(Some(found)) => {
                reply.locked(found.first, found.last, number(found.kind), self.known.owners.process(ino.0, &found));
            }
            Ok(None) => reply.locked(0, 0, number(LockKind::None), 0),
            Err(e) => reply.error(errno(e)),
        }
    }
}

/// Answers when the lock is there, behind `got`, or whoever asks is interrupted.
fn wait(wanted: Wanted, thread: u32, got: impl FnOnce() + Send + 'static, reply: ReplyEmpty) {
    let (file, owner, range, kind) = wanted;
    let waiting = move || {
        loop {
            match file.lock_soon(owner, range, kind) {
                Ok(()) if is_interrupted(thread) => {
                    // It will not hear that it has the lock.
                    let _ = file.lock(owner, range, LockKind::None);
                    return reply.error(Errno::EINTR);
                }
                Ok(()) => {
                    got();
                    return reply.ok();
                }
                Err(No::EAGAIN) if is_interrupted(thread) => return reply.error(Errno::EINTR),
                Err(No::EAGAIN) => {}
                Err(e) => return reply.error(errno(e)),
            }
        }
    };
    // Without a thread nobody answers: the kernel's request ends with the mount.
    drop(ioverbs::seam::spawn("iov-fuse-lock", waiting));
}
