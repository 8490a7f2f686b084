//! Descriptors of this library in a process whose program knows nothing of it.
//!
//! Such a program takes the lowest numbers for its own, closes those that it does not know, and puts others in their place (`dup2`). So
//! whoever has brought the library there says from which number on it keeps its own, and can ask which those are. Where the program may
//! raise its limit but has not, they lie behind all that it can have, and take none of its numbers (`RLIMIT_NOFILE` is for new ones only);
//! elsewhere those that can be had again are given up when the program needs one ([`give_up`]).

use std::{
    os::fd::{AsRawFd, OwnedFd},
    sync::{
        Mutex, TryLockError, Weak,
        atomic::{AtomicI32, AtomicU64, Ordering},
    },
};

use rustix::process::{Resource, Rlimit, getrlimit, prlimit};

/// Descriptors that can be kept.
const MOST: usize = 1 << 16;
/// How far behind what the program can have its own are kept at most: they are some 300.
const BEHIND: u64 = 1 << 10;

static ABOVE: AtomicI32 = AtomicI32::new(0);
static KEPT: [AtomicU64; MOST / 64] = [const { AtomicU64::new(0) }; MOST / 64];

/// From now on descriptors are kept from this number on.
pub fn keep_above(number: i32) {
    ABOVE.store(number, Ordering::Relaxed);
}

/// Puts a descriptor of the library where it is kept, or as near to there as there is room. As it is, where nobody has said where that is.
pub fn set_aside(fd: OwnedFd) -> OwnedFd {
    let above = ABOVE.load(Ordering::Relaxed);
    if above <= 0 {
        return fd;
    }
    let fd = match behind(&fd) {
        Some(fd) => fd,
        None if fd.as_raw_fd() >= above => fd,
        None => moved(fd, above),
    };
    keep(fd.as_raw_fd());
    fd
}

/// Nobody changes the limit of descriptors; somebody does, and it is what the program knows. Else it is raised from this.
const FREE: u64 = 0;
const TAKEN: u64 = u64::MAX;
static RAISED_FROM: AtomicU64 = AtomicU64::new(FREE);
/// Looks of who wants something at whether it is free.
const TRIES: usize = 1000;

/// What is done while the library does not raise the limit of descriptors; none: it seems to do so all the time.
pub fn with_limit<T>(work: impl FnOnce() -> T) -> Option<T> {
    let take = |_: &usize| {
        let taken = RAISED_FROM.compare_exchange(FREE, TAKEN, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if !taken {
            std::thread::yield_now();
        }
        taken
    };
    (0..TRIES).find(take)?;
    let done = work();
    RAISED_FROM.store(FREE, Ordering::Release);
    Some(done)
}

/// In a child of `fork`: nobody raises the limit any more, and it is what it was.
pub fn limit_of_child() {
    let from = RAISED_FROM.swap(FREE, Ordering::AcqRel);
    if from != FREE && from != TAKEN {
        let limit = getrlimit(Resource::Nofile);
        let _ = prlimit(None, Resource::Nofile, Rlimit { current: Some(from), ..limit });
    }
}

/// Which number is the first that the program cannot have now, but may raise its limit to, and how far.
fn beyond(limit: &Rlimit) -> Option<(u64, u64)> {
    let first = limit.current.filter(|first| *first < MOST as u64)?;
    let raised = (first + BEHIND).min(MOST as u64).min(limit.maximum.unwrap_or(u64::MAX));
    (raised > first).then_some((first, raised))
}

/// The same descriptor behind all numbers that the program can have now, where it may have more. Another thread that asks for the limit just then hears of the higher one.
fn behind(fd: &OwnedFd) -> Option<OwnedFd> {
    beyond(&getrlimit(Resource::Nofile))?;
    with_limit(|| {
        let limit = getrlimit(Resource::Nofile);
        let (first, raised) = beyond(&limit)?;
        RAISED_FROM.store(first, Ordering::Release);
        let raised = Rlimit { current: Some(raised), ..limit };
        let high = prlimit(None, Resource::Nofile, raised).ok().and_then(|was| {
            let high = rustix::io::fcntl_dupfd_cloexec(fd, first as i32);
            let _ = prlimit(None, Resource::Nofile, was);
            high.ok()
        });
        RAISED_FROM.store(TAKEN, Ordering::Release);
        high
    })?
}

fn moved(fd: OwnedFd, above: i32) -> OwnedFd {
    let mut from = above;
    // The limit may be lower by now, or the program has all that are higher.
    while from > fd.as_raw_fd() {
        match rustix::io::fcntl_dupfd_cloexec(&fd, from) {
            Ok(high) if place(high.as_raw_fd()).is_some() => return high,
            _ => from /= 2,
        }
    }
    fd
}

/// This descriptor is one of the library's, which keeps it where it is.
pub fn keep(fd: i32) {
    if let Some((word, bit)) = place(fd) {
        word.fetch_or(bit, Ordering::AcqRel);
    }
}

fn place(fd: i32) -> Option<(&'static AtomicU64, u64)> {
    let fd = usize::try_from(fd).ok()?;
    Some((KEPT.get(fd / 64)?, 1 << (fd % 64)))
}

/// Whether a descriptor is one of the library's.
pub fn is_kept(fd: i32) -> bool {
    place(fd).is_some_and(|(word, bit)| word.load(Ordering::Acquire) & bit != 0)
}

/// The library closes it: it is one of anybody's from now on.
pub fn let_go(fd: i32) {
    if let Some((word, bit)) = place(fd) {
        word.fetch_and(!bit, Ordering::AcqRel);
    }
}

/// All that are kept, in order.
pub fn kept() -> Vec<i32> {
    let of_word = |(n, word): (usize, &AtomicU64)| {
        let bits = word.load(Ordering::Acquire);
        (0..64).filter(move |bit| bits >> bit & 1 != 0).map(move |bit| (n * 64) as i32 + bit)
    };
    KEPT.iter().enumerate().flat_map(of_word).collect()
}

/// Something that has descriptors which it can do without, or have again.
pub trait Spares: Send + Sync {
    /// Closes them.
    fn give_up(&self);
}

static SPARING: Mutex<Vec<Weak<dyn Spares>>> = Mutex::new(Vec::new());

/// From now on [`give_up`] asks it too.
pub fn can_spare(it: Weak<dyn Spares>) {
    // In a child of `fork` somebody may have it who is not there any more: then it spares nothing.
    let lock = |_| match SPARING.try_lock() {
        Ok(all) => Some(all),
        Err(TryLockError::Poisoned(all)) => Some(all.into_inner()),
        Err(TryLockError::WouldBlock) => {
            std::thread::yield_now();
            None
        }
    };
    if let Some(mut all) = (0..TRIES).find_map(lock) {
        all.retain(|it| it.strong_count() > 0);
        all.push(it);
    }
}

/// The program has no number left: closes what the library can do without. Whether there was anybody to ask.
pub fn give_up() -> bool {
    // Those that lie behind what the program can have are not in its way.
    if beyond(&getrlimit(Resource::Nofile)).is_some() {
        return false;
    }
    // Another thread that is about to ask has them closed; in a child of `fork` nobody may be.
    let Ok(all) = SPARING.try_lock().map(|all| all.clone()) else { return false };
    let all: Vec<_> = all.iter().filter_map(Weak::upgrade).collect();
    all.iter().for_each(|it| it.give_up());
    !all.is_empty()
}

/// Closes what a program was started with beyond the three standard streams. To be called before anything is opened.
pub fn close_inherited() {
    // SAFETY: it takes numbers only; nothing that this process has opened is among them yet, as the caller sees to.
    let done = unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) };
    if done != 0 {
        for fd in 3..1024 {
            // SAFETY: as above.
            unsafe { libc::close(fd) };
        }
    }
}

#[cfg(test)]
mod tests;
