//! Descriptors of this library in a process whose program knows nothing of it.
//!
//! Such a program takes the lowest numbers for its own, closes those that it does not know, and puts others in their place (`dup2`). So
//! whoever has brought the library there says from which number on it keeps its own, and can ask which those are. Where the program may
//! raise its limit but has not, they lie behind all that it can have, and take none of its numbers (`RLIMIT_NOFILE` is for new ones only);
//! elsewhere those that can be had again are given up when the program needs one ([`give_up`]).

use std::{
    os::fd::{AsRawFd, OwnedFd},
    sync::{
        Mutex, PoisonError, Weak,
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
    let fd = if fd.as_raw_fd() >= above { fd } else { behind(&fd).unwrap_or_else(|| moved(fd, above)) };
    keep(fd.as_raw_fd());
    fd
}

/// The same descriptor behind all numbers that the program can have now, where it may have more.
fn behind(fd: &OwnedFd) -> Option<OwnedFd> {
    let limit = getrlimit(Resource::Nofile);
    let first = limit.current.filter(|first| *first < MOST as u64)?;
    let raised = (first + BEHIND).min(MOST as u64).min(limit.maximum.unwrap_or(u64::MAX));
    if raised <= first {
        return None;
    }
    let raised = Rlimit { current: Some(raised), ..limit };
    prlimit(None, Resource::Nofile, raised.clone()).ok()?;
    let high = rustix::io::fcntl_dupfd_cloexec(fd, first as i32);
    // Another thread may have set one of its own meanwhile, which stands.
    if let Ok(found) = prlimit(None, Resource::Nofile, limit)
        && found != raised
    {
        let _ = prlimit(None, Resource::Nofile, found);
    }
    high.ok()
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
    let mut all = SPARING.lock().unwrap_or_else(PoisonError::into_inner);
    all.retain(|it| it.strong_count() > 0);
    all.push(it);
}

/// The program has no number left: closes what the library can do without. Whether there was anybody to ask.
pub fn give_up() -> bool {
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
