//! Locks of files: those of a process (`fcntl`) and those of an open file (`flock`, `F_OFD_SETLK`). Those of an open file that no other process has belong to this
//! process's session; others are held by a process of their own ([`crate::holder`]).

use std::{
    ffi::c_int,
    sync::{Arc, atomic::Ordering},
};

use iov_posix::{
    Errno, File, InTheWay, LockKind, LockRange, Outcome, again_behind_close,
    holder::{Request, Wants},
};

use ioverbs::seam;

use super::lock_owner;
use crate::{
    files::{Locked, Open, Patience},
    holder,
    raw::kernel,
    signals::Signals,
    world::{Inside, World, lock},
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
fn take(wait: bool, lock: impl Fn() -> Outcome<()>) -> Outcome<()> {
    if !wait {
        return lock();
    }
    let mut pause = *PAUSES.start();
    // One that comes while the store is asked is heard behind that, and not lost.
    let signals = Signals::hold();
    loop {
        match lock() {
            Err(Errno::EAGAIN) => {}
            done => return done,
        }
        if signals.pause(pause) {
            return Err(Errno::EINTR);
        }
        pause = (pause * 2).min(*PAUSES.end());
    }
}

/// There is another process from now on that has what is open here, or another program in this one: what ends with this process is held by who stays.
pub(crate) fn hand_over(world: &World, patience: &mut Patience) {
    let _inside = Inside::enter();
    for (fd, open) in world.files.all().iter().filter(|(_, open)| open.shared.load(Ordering::Relaxed)) {
        // Whoever would hold it has to reach the store, too.
        if patience.is_up() {
            break;
        }
        if !open.kept.load(Ordering::Relaxed) && patience.with(|| open.ends_with_opener()) == Ok(true) {
            let asked = Request { wants: Wants::Keep, kind: LockKind::None, range: LockRange::Whole };
            open.kept.store(matches!(holder::ask(world, (*fd, open), &asked, true), Some(Ok(_))), Ordering::Relaxed);
        }
        let handed_over = || {
            hand_over_lock(world, (*fd, open));
            if open.locked() == Locked::No { Ok(()) } else { Err(Errno::EIO) }
        };
        let _ = patience.with(handed_over);
    }
}

/// Takes a lock of an open file, or gives it back.
fn of_open(of: (&World, c_int, &Open), range: LockRange, kind: LockKind, wait: bool) -> Outcome<()> {
    let whole = range == LockRange::Bytes(0, i64::MAX as u64);
    let range = if whole { LockRange::Whole } else { range };
    let attempt = || try_of_open(of, range, kind);
    if wait { take(wait, attempt) } else { again_behind_close(attempt, &|| false) }
}

/// The same without waiting. Where the lock belongs may be another place each time: it is handed over when there is another process.
fn try_of_open((world, fd, open): (&World, c_int, &Open), range: LockRange, kind: LockKind) -> Outcome<()> {
    let file = open.file(world)?;
    let _one = lock(&open.locking);
    let has = open.locked();
    if has == Locked::No && open.shared.load(Ordering::Relaxed) {
        let releases = kind == LockKind::None;
        let mut published = Ok(());
        if releases {
            // Whoever has the lock next sees what was written under it. It is given back all the same where that fails.
            open.dirty.store(false, Ordering::Relaxed);
            published = file.flush();
        }
        let asked = Request { wants: Wants::Lock, kind, range };
        match holder::ask(world, (fd, open), &asked, !releases) {
            Some(answer) => return answer.map(drop).and(published),
            None if releases => return published,
            // Nobody can be had who holds it: it ends with this process.
            None => {}
        }
    }
    let done = file.lock(owner_of(open), range, kind);
    // It is given back also where what was written under it has found no room.
    if !matches!((kind, done), (_, Ok(())) | (LockKind::None, Err(Errno::ENOSPC | Errno::EDQUOT))) {
        return done;
    }
    open.set_locked(match (kind, range) {
        (LockKind::None, LockRange::Whole) => Locked::No,
        (LockKind::Read, LockRange::Whole) if has != Locked::Parts => Locked::Shared,
        (LockKind::Write, LockRange::Whole) if has != Locked::Parts => Locked::Alone,
        (LockKind::None, _) if has == Locked::No => Locked::No,
        _ => Locked::Parts,
    });
    done
}

/// How long is waited for a lock that is handed over, in nanoseconds: nobody but who has waited for it before can have it.
const HANDS_OVER_NS: i64 = 5_000_000_000;

fn hand_over_lock(world: &World, (fd, open): (c_int, &Open)) {
    let _one = lock(&open.locking);
    let kind = match open.locked() {
        Locked::Alone => LockKind::Write,
        Locked::Shared => LockKind::Read,
        Locked::No | Locked::Parts => return,
    };
    let Ok(file) = open.file(world) else { return };
    let asked = Request { wants: Wants::Place, kind, range: LockRange::Whole };
    // Without anybody it ends with this process.
    if !matches!(holder::ask(world, (fd, open), &asked, true), Some(Ok(_))) || file.unlock_all(owner_of(open)).is_err()
    {
        return;
    }
    open.set_locked(Locked::No);
    let asked = Request { wants: Wants::Lock, ..asked };
    let until_ns = seam::monotonic_ns() + HANDS_OVER_NS;
    while matches!(holder::ask(world, (fd, open), &asked, true), Some(Err(Errno::EAGAIN)))
        && seam::monotonic_ns() < until_ns
    {
        seam::sleep(*PAUSES.start() as u64);
    }
}

/// This process ends: what only it has open ends, and the locks of that have ended when anybody hears of it.
pub(crate) fn end(world: &World, patience: &mut Patience) {
    let all = world.files.all();
    for (_, open) in &all {
        let ends = || {
            let unlocked = world.files.unlock(world, open);
            // What nobody here has used is not opened for that.
            if open.locked() != Locked::No {
                return unlocked.and(ended(open, open.file(world)?));
            }
            unlocked
        };
        let _ = patience.with(ends);
    }
    let held = |(fd, open): (c_int, Arc<Open>)| Some((fd, holder::before_close(fd, &open)?));
    let held: Vec<_> = all.into_iter().filter_map(held).collect();
    for (fd, _) in &held {
        kernel!(libc::SYS_close, *fd);
    }
    held.iter().for_each(|(_, known)| holder::closed(known));
}

/// `fcntl` with a lock.
pub(crate) fn fcntl(
    world: &World,
    fd: c_int,
    open: &Arc<Open>,
    command: c_int,
    wanted: &mut libc::flock,
) -> Outcome<isize> {
    let of_file = matches!(command, libc::F_OFD_GETLK | libc::F_OFD_SETLK | libc::F_OFD_SETLKW);
    if of_file && wanted.l_pid != 0 {
        return Err(Errno::EINVAL);
    }
    let file = open.file(world)?;
    let (kind, range) = (kind_of(c_int::from(wanted.l_type))?, range_of(fd, open, file, wanted)?);
    let owner = if of_file { owner_of(open) } else { lock_owner(world) };
    if matches!(command, libc::F_GETLK | libc::F_OFD_GETLK) {
        let asked = Request { wants: Wants::InTheWay, kind, range };
        let shares = of_file && open.locked() == Locked::No && open.shared.load(Ordering::Relaxed);
        let found = shares.then(|| holder::ask(world, (fd, open), &asked, false)).flatten();
        let found = found.unwrap_or_else(|| file.lock_in_the_way(owner, range, kind))?;
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
    let wait = matches!(command, libc::F_SETLKW | libc::F_OFD_SETLKW);
    let done = match of_file {
        true => of_open((world, fd, open), range, kind, wait),
        false => take(wait, || file.lock(owner, range, kind)),
    };
    if kind == LockKind::None {
        open.dirty.fetch_and(done.is_err(), Ordering::Relaxed);
        return done.map(|()| 0);
    }
    done?;
    open.refresh(world);
    if !of_file {
        let mut locked = lock(&world.files.locked);
        if !locked.contains(&open.record.uuid) {
            locked.push(open.record.uuid);
        }
    }
    Ok(0)
}

/// `flock`
pub(crate) fn flock(world: &World, fd: c_int, open: &Arc<Open>, operation: c_int) -> Outcome<isize> {
    let kind = match operation & !libc::LOCK_NB {
        libc::LOCK_SH => LockKind::Read,
        libc::LOCK_EX => LockKind::Write,
        libc::LOCK_UN => LockKind::None,
        _ => return Err(Errno::EINVAL),
    };
    of_open((world, fd, open), LockRange::Whole, kind, operation & libc::LOCK_NB == 0)?;
    if kind != LockKind::None {
        open.refresh(world);
    }
    Ok(0)
}

/// The last descriptor of an open file is closed: the locks that it has end.
pub(crate) fn ended(open: &Open, file: &File) -> Outcome<()> {
    if open.locked() == Locked::No {
        return Ok(());
    }
    // What cannot be told ends with this process.
    open.set_locked(Locked::No);
    file.unlock_all(owner_of(open))
}
