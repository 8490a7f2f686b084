//! Descriptors of this library in a process whose program knows nothing of it.
//!
//! Such a program takes the lowest numbers for its own, closes those that it does not know, and puts others in their place (`dup2`). So
//! whoever has brought the library there says from which number on it keeps its own, and can ask which those are.

use std::{
    os::fd::{AsRawFd, OwnedFd},
    sync::atomic::{AtomicI32, AtomicU64, Ordering},
};

/// Descriptors that can be kept.
const MOST: usize = 1 << 16;

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
    let fd = if fd.as_raw_fd() >= above { fd } else { moved(fd, above) };
    keep(fd.as_raw_fd());
    fd
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
