//! Advisory locks of `fcntl` and `flock`, for all processes and file systems on one store (O11).
//!
//! Both are locks of bytes, those of `flock` of all that a file can have: so the two are in each other's way, as on NFS. A mount cannot tell them
//! apart, and what one front door has locked holds for all.

use std::{os::unix::ffi::OsStrExt, sync::OnceLock};

use ioverbs::{Op, Output, Range, catalog::LockSpec, limits::LEASE_NS};

use crate::{Errno, File, Outcome};

/// The last byte that can be locked.
pub(crate) const LAST: u64 = i64::MAX as u64 - 2;
/// How long a lock of an open file outlasts the `close` that ends it, but on a machine that is very busy: where a mount has it, the kernel tells of the last
/// close behind that. And how long is waited at first between two looks, each time twice as long as before.
const BEHIND_CLOSE_NS: u64 = 20_000_000;
const SOON_NS: u64 = 200_000;

/// Shared, exclusive, or none any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockKind {
    /// Others may have it too.
    Read,
    /// Nobody else.
    Write,
    /// Given back.
    None,
}

/// What is locked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockRange {
    /// The whole file, as `flock` does.
    Whole,
    /// Bytes from the first to the last, both among them, as `fcntl` does; `i64::MAX` is the last there can be.
    Bytes(u64, u64),
}

/// A lock that somebody has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InTheWay {
    /// Shared or exclusive.
    pub kind: LockKind,
    /// Its first byte.
    pub first: u64,
    /// Its last byte; `i64::MAX`: it has no end.
    pub last: u64,
    /// Whom it belongs to, as that one's front door says.
    pub owner: u64,
}

impl InTheWay {
    /// The process that has it, where the owner is one that [`owner_of`] gave and it runs on this machine.
    pub fn process(&self) -> Option<u32> {
        ((self.owner >> 32) as u32 == machine()).then_some(self.owner as u32)
    }
}

/// An owner of locks that tells others on this machine which process it is.
pub fn owner_of(process: u32) -> u64 {
    u64::from(machine()) << 32 | u64::from(process)
}

/// What tells this machine from others, and from itself before it was started anew; also one space of process numbers from another.
fn machine() -> u32 {
    static MACHINE: OnceLock<u32> = OnceLock::new();
    *MACHINE.get_or_init(|| {
        let boot = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let space = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        let all = boot.iter().chain(space.as_os_str().as_bytes());
        // FNV-1a; owners that are no processes have small numbers, or any.
        all.fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)) | 1 << 31
    })
}

/// The bytes that are locked.
pub(crate) fn range_of(range: LockRange) -> Outcome<Range> {
    match range {
        LockRange::Whole => range_of(LockRange::Bytes(0, LAST)),
        LockRange::Bytes(first, last) if first > last => Err(Errno::EINVAL),
        LockRange::Bytes(first, last) => {
            let (first, last) = (first.min(LAST), last.min(LAST));
            Ok(Range { offset: first, len: last - first + 1 })
        }
    }
}

fn spec(owner: u64, range: Range, kind: LockKind) -> LockSpec {
    LockSpec { exclusive: kind != LockKind::Read, try_only: true, range, owner, lease_ns: LEASE_NS }
}

impl File {
    /// Takes or gives back a lock without waiting. `EAGAIN`: somebody else has it. `owner` is whoever the front door says.
    pub fn lock(&self, owner: u64, range: LockRange, kind: LockKind) -> Outcome<()> {
        self.lock_of(owner, range_of(range)?, kind)
    }

    /// The same for any range.
    pub(crate) fn lock_of(&self, owner: u64, range: Range, kind: LockKind) -> Outcome<()> {
        if kind == LockKind::None && self.joined().is_none() {
            // Nobody has locked what is not open yet.
            return Ok(());
        }
        let (c, lock) = (self.collection()?.clone(), spec(owner, range, kind));
        let fs = self.node().file_system();
        if kind == LockKind::None {
            // Whoever has the lock next sees what was written under it, by whichever descriptor. It is given back all the same where that fails.
            let published = self.publish();
            let unlock = || Op::Unlock { c: c.clone(), lock: lock.clone() };
            return fs.again("unlock", || ioverbs::run(c.session(), unlock())).map(drop).and(published);
        }
        self.settle()?;
        let op = || Op::Lock { c: c.clone(), lock: lock.clone() };
        fs.again("lock", || ioverbs::run(c.session(), op())).map(drop).map_err(in_the_way)
    }

    /// Takes a lock when it is this one's turn, in the order of those that wait like this.
    pub(crate) fn lock_in_turn(&self, owner: u64, range: Range, kind: LockKind) -> Outcome<()> {
        let (c, lock) = (self.collection()?.clone(), LockSpec { try_only: false, ..spec(owner, range, kind) });
        self.node()
            .file_system()
            .again("lock", || ioverbs::run(c.session(), Op::Lock { c: c.clone(), lock: lock.clone() }).map(drop))
    }

    /// A lock that is in the way of this one.
    pub fn lock_in_the_way(&self, owner: u64, range: LockRange, kind: LockKind) -> Outcome<Option<InTheWay>> {
        self.in_the_way(owner, range_of(range)?, kind)
    }

    /// The same for any range.
    pub(crate) fn in_the_way(&self, owner: u64, range: Range, kind: LockKind) -> Outcome<Option<InTheWay>> {
        let op = Op::LockQuery { c: self.collection()?.clone(), lock: spec(owner, range, kind) };
        let status = match self.node().file_system().run(op) {
            Err(Errno::ENOENT) => return Ok(None),
            other => other?,
        };
        let Output::Lock(found) = status.output else { return Ok(None) };
        let kind = if found.exclusive { LockKind::Write } else { LockKind::Read };
        // To the end of all bytes, as `fcntl` says it.
        let last =
            if found.range.end() > LAST || found.range.len == 0 { i64::MAX as u64 } else { found.range.end() - 1 };
        Ok(Some(InTheWay { kind, first: found.range.offset, last, owner: found.owner }))
    }

    /// Gives back every lock that an owner has of this kind of range.
    pub fn unlock_all(&self, owner: u64) -> Outcome<()> {
        self.lock(owner, LockRange::Whole, LockKind::None)
    }
}

/// Tries to take a lock of an open file (`flock`, `F_OFD_SETLK`) again where somebody else has it (`EAGAIN`), for some milliseconds: who has it elsewhere may have
/// closed the file before. Ends early where `is_over` says so.
pub fn again_behind_close(lock: impl Fn() -> Outcome<()>, is_over: &dyn Fn() -> bool) -> Outcome<()> {
    let (mut pause, mut waited) = (SOON_NS, 0);
    loop {
        match lock() {
            Err(Errno::EAGAIN) if waited < BEHIND_CLOSE_NS && !is_over() => {}
            done => return done,
        }
        ioverbs::seam::sleep(pause);
        (waited, pause) = (waited + pause, pause * 2);
    }
}

fn in_the_way(e: Errno) -> Errno {
    if e == Errno::EBUSY { Errno::EAGAIN } else { e }
}
