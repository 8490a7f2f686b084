//! Locks, and waiting for them.

use std::{cell::Cell, sync::Arc};

use iov_fuse_kernel::{Lock, LockAsked, Request, Waiting};
use iov_posix::{Errno, File, LockKind, LockRange, Outcome, again_behind_close};
use ioverbs::seam;

use crate::{door::Door, opened::Served, owners::Taken};

/// Types of `struct flock`, as on Linux.
const READ: i32 = 0;
const WRITE: i32 = 1;
const NONE: i32 = 2;

/// How often is looked whether what was closed was the last descriptor.
const LOOK_NS: u64 = 100_000;
/// How long between two tries of who waits for a lock, in nanoseconds.
const PAUSE_NS: u64 = 2_000_000;

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

impl Door {
    /// Gets a lock, changes it, or gives it back; waits for it if that is wanted.
    pub(crate) fn lock(&self, req: &Request<'_>, asked: &LockAsked, sleep: bool) -> Outcome<()> {
        let ((file, range, kind), owner, now_ns) = (self.asked(asked)?, owner_of(asked), seam::monotonic_ns());
        let (owners, taken) = (&self.known.owners, || Taken::new(asked.handle, asked.lock.process, bytes_of(asked)));
        if kind == LockKind::None {
            self.ends_writing(req, owner, owners.gives_back(req.node, owner, bytes_of(asked)));
            return file.lock(owner, range, kind).inspect_err(|_| {
                // It has it still.
                owners.add(req.node, owner, taken());
            });
        }
        if kind == LockKind::Read {
            // It may have it alone, and shares it then.
            self.ends_writing(req, owner, owners.has_dropped(req.node, owner));
        }
        let had_none = Cell::new(false);
        let attempt = || {
            let _turn = owners.turn(req.node);
            file.lock(owner, range, kind)?;
            had_none.set(owners.add(req.node, owner, taken()));
            Ok(())
        };
        let is_closing = || owners.is_closing(req.node, owner, now_ns);
        let is_elsewhere = || asked.of_open_file && !owners.has_other(req.node, owner);
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
        self.known.begins(req.node, &file);
        self.known.locked(req, &file, had_none.get().then_some(owner));
        Ok(())
    }

    /// Somebody is about to give a lock back. What was written under it has come to the store: where it may have been read anew before it had (`dropped`), the kernel reads it once
    /// more, before anybody gets the lock next.
    fn ends_writing(&self, req: &Request<'_>, owner: u64, dropped: bool) {
        if dropped {
            self.known.drop_bytes(req, (0, 0), Some(owner));
        }
    }

    /// A process has closed a descriptor of a file: its locks on that end.
    pub(crate) fn unlock_all(&self, req: &Request<'_>, file: &File, owner: u64) {
        let Some(taken) = self.known.owners.take(req.node, owner) else { return };
        self.ends_writing(req, owner, taken.is_dropped());
        if file.unlock_all(owner).is_err() {
            self.known.owners.add(req.node, owner, taken);
        }
    }

    /// An open file is closed for good: what locks belong to it end.
    pub(crate) fn end_locks(&self, req: &Request<'_>, handle: u64, file: &File) {
        // Not while others wait for their turn: pages may have to be read or written for that, by whoever serves those.
        if let Some(owner) = self.known.owners.dropped_by(req.node, handle) {
            self.ends_writing(req, owner, true);
        }
        self.known.owners.end_all(req.node, handle, &|owner| {
            // What cannot be told ends with the mount.
            let _ = file.unlock_all(owner);
        });
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

fn bytes_of(asked: &LockAsked) -> (u64, u64) {
    (asked.lock.first, asked.lock.last)
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
