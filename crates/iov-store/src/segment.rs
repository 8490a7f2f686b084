//! A segment: a file of shared memory that a target's server and its clients map, and the heads of objects in it (G5, G6).
//!
//! The server makes a segment at its full length and touches all of it before anybody else sees it; it is never cut. What
//! lies in it is copied in and out by address; bytes of an object that change while they are copied are the caller's to
//! judge, by the slot of its grant ([`crate::ClientSlot`]).

use std::{
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    ptr::NonNull,
    sync::atomic::{AtomicI64, AtomicU64, Ordering},
};

use iov_types::{Error, Result};

use crate::{seam, words};

#[cfg(test)]
mod tests;

/// Space is handed out in multiples of this, which is also the size of a page.
pub const SEGMENT_BLOCK: u64 = 4096;
/// Length of a head: a cache line, so that writers of different objects do not disturb each other.
pub const HEAD_BYTES: u64 = 64;

/// The size of a large page, to which segments are aligned so that one entry of the page table maps so much.
const LARGE_PAGE: usize = 2 << 20;

/// Facts of an object that everybody changes who changes its bytes. All fields are atomic: other processes may change them
/// at any time, to anything.
#[repr(C, align(64))]
pub struct Head {
    size: AtomicU64,
    mtime_ns: AtomicI64,
    reserved: [AtomicU64; 6],
}

const _: () = assert!(size_of::<Head>() as u64 == HEAD_BYTES);

/// More than two times that are taken by the coarse clock of a kernel lie apart.
const TICK_NS: i64 = 20_000_000;

impl Head {
    /// Length of the object: what lies before it has been written, or is a hole (T18).
    pub fn size(&self) -> u64 {
        words::length(&self.size).min(i64::MAX as u64)
    }

    /// Time of the last change, in nanoseconds since 1970.
    pub fn mtime_ns(&self) -> i64 {
        self.mtime_ns.load(Ordering::Relaxed)
    }

    /// Notes bytes that were written up to `end`. To be called when all of them are there.
    pub fn written(&self, end: u64) {
        let (before, now) = (self.mtime_ns(), seam::coarse_now_ns());
        // Another time than before, also within a tick of that clock: whoever has noted the one before sees that something was written since.
        let within_tick = now <= before && before - now < TICK_NS;
        self.mtime_ns.store(if within_tick { before + 1 } else { now }, Ordering::Relaxed);
        words::note_end(&self.size, end);
    }

    /// Sets the length. The server's, while no client writes.
    pub fn set_size(&self, size: u64) {
        self.size.store(size, Ordering::SeqCst);
    }

    /// Sets the time of the last change.
    pub fn set_mtime_ns(&self, ns: i64) {
        self.mtime_ns.store(ns, Ordering::Relaxed);
    }
}

/// A segment in the memory of this process.
pub struct Segment {
    ptr: NonNull<u8>,
    len: usize,
    writable: bool,
}

// SAFETY: the memory is shared with other processes anyway; what is done to it is bounded copies and atomics.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}

fn os(what: &str) -> Error {
    let e = std::io::Error::last_os_error();
    match e.raw_os_error() {
        Some(libc::ENOSPC) => Error::exhausted(format!("{what}: the shared memory of this machine is full")),
        _ => Error::from(e).context(what),
    }
}

impl Segment {
    /// Makes an empty file into a segment of `len` bytes, all of which are there when this returns, and zero.
    ///
    /// Large pages are taken where the system gives them: a tenth of the time here, and none in those who map it.
    pub fn make(file: impl AsFd, len: u64) -> Result<Segment> {
        let file = file.as_fd();
        let fd = file.as_raw_fd();
        // SAFETY: a live descriptor; the kernel checks all else.
        if unsafe { libc::ftruncate(fd, len as libc::off_t) } != 0 {
            return Err(os("making a segment"));
        }
        // A page in each large one is enough to let the kernel make it whole. By a write: there is an error if memory is full.
        for at in (0..len).step_by(LARGE_PAGE) {
            // SAFETY: one byte of a live array.
            if unsafe { libc::pwrite(fd, [0_u8].as_ptr().cast(), 1, at as libc::off_t) } != 1 {
                return Err(os("making a segment"));
            }
        }
        let segment = Segment::map_with(file, len as usize, true)?;
        // SAFETY: the mapping is ours. A wish: without large pages, the next call takes small ones.
        unsafe { libc::madvise(segment.ptr.as_ptr().cast(), segment.len, libc::MADV_COLLAPSE) };
        // SAFETY: a live descriptor; the kernel checks all else.
        let error = unsafe { libc::posix_fallocate(fd, 0, len as libc::off_t) };
        if error != 0 {
            let e = std::io::Error::from_raw_os_error(error);
            return Err(match error {
                libc::ENOSPC => Error::exhausted("making a segment: the shared memory of this machine is full"),
                _ => Error::from(e).context("making a segment"),
            });
        }
        segment.populate(true);
        Ok(segment)
    }

    /// Maps a segment, for writing if the descriptor allows it; then children do not inherit the mapping.
    pub fn map(file: impl AsFd) -> Result<Segment> {
        let file = file.as_fd();
        // SAFETY: a live descriptor; the call takes no pointer.
        let flags = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) };
        // SAFETY: an all-zero `stat` is a valid one to be overwritten.
        let mut stat: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: a live descriptor and a live `stat`.
        if unsafe { libc::fstat(file.as_raw_fd(), &mut stat) } != 0 {
            return Err(os("mapping a segment"));
        }
        let writable = flags & libc::O_ACCMODE == libc::O_RDWR;
        let segment = Segment::map_with(file, stat.st_size as usize, writable)?;
        segment.populate(false);
        if writable {
            // A child must not write through it (rule 7 of the header).
            // SAFETY: the mapping is ours.
            unsafe { libc::madvise(segment.ptr.as_ptr().cast(), segment.len, libc::MADV_DONTFORK) };
        }
        Ok(segment)
    }

    fn map_with(file: BorrowedFd<'_>, len: usize, writable: bool) -> Result<Segment> {
        if len == 0 || !(len as u64).is_multiple_of(SEGMENT_BLOCK) {
            return Err(Error::corrupt(format!("a segment of {len} bytes")));
        }
        let protection = if writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
        let around = len + LARGE_PAGE;
        // SAFETY: addresses are reserved first, so that an aligned part of them can be chosen; what is not used is returned.
        // All pointers lie in what the first call returned.
        unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            let base = libc::mmap(std::ptr::null_mut(), around, libc::PROT_NONE, flags, -1, 0);
            if base == libc::MAP_FAILED {
                return Err(os("mapping a segment"));
            }
            let skip = (base as usize).next_multiple_of(LARGE_PAGE) - base as usize;
            let aligned = base.cast::<u8>().add(skip);
            let flags = libc::MAP_SHARED | libc::MAP_FIXED;
            let ptr = libc::mmap(aligned.cast(), len, protection, flags, file.as_raw_fd(), 0);
            if ptr == libc::MAP_FAILED {
                let e = os("mapping a segment");
                libc::munmap(base, around);
                return Err(e);
            }
            if skip > 0 {
                libc::munmap(base, skip);
            }
            libc::munmap(aligned.add(len).cast(), around - skip - len);
            let ptr = NonNull::new(ptr.cast()).ok_or_else(|| Error::internal("a mapping at address 0"))?;
            Ok(Segment { ptr, len, writable })
        }
    }

    /// Fills the page table, so that no access faults later. A wish. Reading is enough where the pages are there: a shared
    /// mapping of memory has them for writing at once, and sixteen at a time.
    fn populate(&self, fresh: bool) {
        let advice = if fresh { libc::MADV_POPULATE_WRITE } else { libc::MADV_POPULATE_READ };
        // SAFETY: the mapping is ours.
        unsafe { libc::madvise(self.ptr.as_ptr().cast(), self.len, advice) };
    }

    /// Its length in bytes.
    #[allow(clippy::len_without_is_empty)] // none is empty
    pub fn len(&self) -> u64 {
        self.len as u64
    }

    /// Whether this process may write to it.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    fn place(&self, at: u64, len: usize) -> *mut u8 {
        let end = at.checked_add(len as u64);
        assert!(end.is_some_and(|end| end <= self.len as u64), "{at}+{len} of a segment of {} bytes", self.len);
        // SAFETY: inside the mapping by the assertion.
        unsafe { self.ptr.as_ptr().add(at as usize) }
    }

    fn place_to_write(&self, at: u64, len: usize) -> *mut u8 {
        assert!(self.writable, "a segment that is mapped for reading");
        self.place(at, len)
    }

    /// Copies bytes into it.
    pub fn copy_in(&self, at: u64, bytes: &[u8]) {
        let to = self.place_to_write(at, bytes.len());
        // SAFETY: both are so long, the target is mapped for writing, and no slice of a caller lies in a segment. Another
        // process may copy there at the same time: then each byte is one of the two (C5).
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }

    /// Copies bytes out of it.
    pub fn copy_out(&self, at: u64, out: &mut [u8]) {
        let from = self.place(at, out.len());
        // SAFETY: as in `copy_in`; what races with a writer is judged by the caller (G3).
        unsafe { std::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), out.len()) };
    }

    /// Copies bytes from another segment, or from another place of this one.
    pub fn copy_from(&self, at: u64, other: &Segment, from: u64, len: u64) {
        let (from, to) = (other.place(from, len as usize), self.place_to_write(at, len as usize));
        // SAFETY: both are so long; they may overlap.
        unsafe { std::ptr::copy(from, to, len as usize) };
    }

    /// Fills a stretch with zeros.
    pub fn zero(&self, at: u64, len: u64) {
        let to = self.place_to_write(at, len as usize);
        // SAFETY: so long by `place`, and mapped for writing.
        unsafe { std::ptr::write_bytes(to, 0, len as usize) };
    }

    /// The head at a place, which must be a multiple of its length.
    pub fn head(&self, at: u64) -> &Head {
        assert!(at.is_multiple_of(HEAD_BYTES), "a head at {at}");
        let place = self.place(at, HEAD_BYTES as usize);
        // SAFETY: inside the mapping and aligned by the assertions; any bytes are valid atomics. A mapping for reading is
        // only read: `written` and `set_…` are called by those who may write.
        unsafe { &*place.cast::<Head>() }
    }

    /// Where bytes lie in this process's memory, for as long as the segment is mapped.
    pub fn address(&self, at: u64, len: u64) -> *const u8 {
        self.place(at, len as usize)
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: mapped by `map_with` with this length; nobody borrows from it any more.
        unsafe { libc::munmap(self.ptr.as_ptr().cast(), self.len) };
    }
}
