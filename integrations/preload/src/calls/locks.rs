//! Locks of files: those of a process (`fcntl`) and those of an open file (`flock`, `F_OFD_SETLK`).

use std::{
    ffi::c_int,
    sync::{Arc, atomic::Ordering},
};

use iov_posix::{Errno, File, InTheWay, LockKind, LockRange, Outcome};

use super::lock_owner;
use crate::{
    files::Open,
    raw::kernel,
    world::{World, lock},
};

/// Owners of locks of open files, which are no processes.
fn owner_of(open: &Open) -> u64 {
    open.id
}

fn kind_of(kind: c_int) -> Outcome<LockKind> {
    match kind {
        libc::F_RDLCK => Ok(LockKind::Read),
        libc::F_WRLCK => Ok(LockKind::Write),
        libc::F_UNLCK => Ok(LockKind::None),
        _ => Err(Errno::EINVAL),
    }
}

/// The bytes that a program means, from where it means.
fn range_of(fd: c_int, open: &Open, file: &File, lock: &libc::flock) -> Outcome<LockRange> {
    let from = match c_int::from(lock.l_whence) {
        libc::SEEK_SET => 0,
        libc::SEEK_CUR => open.standing.offset(fd) as i64,
        libc::SEEK_END => file.size()? as i64,
        _ => return Err(Errno::EINVAL),
    };
    let start = from.checked_add(lock.l_start).ok_or(Errno::EOVERFLOW)?;
    let (first, last) = match lock.l_len {
        0 => (start, i64::MAX),
        len if len > 0 => (start, start.checked_add(len - 1).ok_or(Errno::EOVERFLOW)?),
        len => (start.checked_add(len).ok_or(Errno::EINVAL)?, start - 1),
    };
    match (u64::try_from(first), u64::try_from(last)) {
        (Ok(first), Ok(last)) => Ok(LockRange::Bytes(first, last)),
        _ => Err(Errno::EINVAL),
    }
}

/// How long is waited between two looks whether a lock is free, at first and at most, in nanoseconds.
const PAUSES: std::ops::RangeInclusive<i64> = 500_000..=20_000_000;

/// Takes a lock; waits for it, if that is wanted, until it is there or a signal comes.
fn take(file: &File, owner: u64, range: LockRange, kind: LockKind, wait: bool) -> Outcome<()> {
    let mut pause = *PAUSES.start();
    loop {
        match file.lock(owner, range, kind) {
            Err(Errno::EAGAIN) if wait => {}
            done => return done,
        }
        // In the program's thread, so that its signals come.
        let time = libc::timespec { tv_sec: 0, tv_nsec: pause };
        if kernel!(libc::SYS_nanosleep, &raw const time, 0) == -(libc::EINTR as isize) {
            return Err(Errno::EINTR);
        }
        pause = (pause * 2).min(*PAUSES.end());
    }
}

/// `fcntl` with a lock.
pub(crate) fn fcntl(
    world: &World,
    fd: c_int,
    open: &Arc<Open>,
    command: c_int,
    wanted: &mut libc::flock,
) -> Outcome<isize> {
    let file = open.file(world)?;
    let (kind, range) = (kind_of(c_int::from(wanted.l_type))?, range_of(fd, open, file, wanted)?);
    let of_file = matches!(command, libc::F_OFD_GETLK | libc::F_OFD_SETLK | libc::F_OFD_SETLKW);
    let owner = if of_file { owner_of(open) } else { lock_owner(world) };
    if matches!(command, libc::F_GETLK | libc::F_OFD_GETLK) {
        let found = file.lock_in_the_way(owner, range, kind)?;
        let Some(found) = found else {
            wanted.l_type = libc::F_UNLCK as i16;
            return Ok(0);
        };
        let InTheWay { kind, first, last, .. } = found;
        wanted.l_type = if kind == LockKind::Write { libc::F_WRLCK } else { libc::F_RDLCK } as i16;
        (wanted.l_whence, wanted.l_start) = (libc::SEEK_SET as i16, first as i64);
        wanted.l_len = if last == i64::MAX as u64 { 0 } else { (last - first + 1) as i64 };
        // It may be no process, or one of another machine.
        wanted.l_pid = found.process().map_or(-1, |pid| pid as i32);
        return Ok(0);
    }
    let allowed = match kind {
        LockKind::Read => open.reads(),
        LockKind::Write => open.writes(),
        LockKind::None => true,
    };
    if !allowed {
        return Err(Errno::EBADF);
    }
    take(file, owner, range, kind, matches!(command, libc::F_SETLKW | libc::F_OFD_SETLKW))?;
    if kind == LockKind::None {
        open.dirty.store(false, Ordering::Relaxed);
        return Ok(0);
    }
    open.refresh(world);
    if of_file {
        open.flocked.store(true, Ordering::Relaxed);
    } else {
        let mut locked = lock(&world.files.locked);
        if !locked.contains(&open.record.uuid) {
            locked.push(open.record.uuid);
        }
    }
    Ok(0)
}

/// `flock`
pub(crate) fn flock(world: &World, open: &Arc<Open>, operation: c_int) -> Outcome<isize> {
    let kind = match operation & !libc::LOCK_NB {
        libc::LOCK_SH => LockKind::Read,
        libc::LOCK_EX => LockKind::Write,
        libc::LOCK_UN => LockKind::None,
        _ => return Err(Errno::EINVAL),
    };
    let file = open.file(world)?;
    take(file, owner_of(open), LockRange::Whole, kind, operation & libc::LOCK_NB == 0)?;
    open.flocked.store(kind != LockKind::None, Ordering::Relaxed);
    if kind != LockKind::None {
        open.refresh(world);
    }
    Ok(0)
}

/// The last descriptor of an open file is closed: the locks that it has end.
pub(crate) fn ended(open: &Open, file: &File) {
    if open.flocked.load(Ordering::Relaxed) {
        // What cannot be told ends with this process.
        let _ = file.unlock_all(owner_of(open));
    }
}
