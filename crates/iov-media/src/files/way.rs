//! The ways in which bytes get to files and back: through the kernel's cache, or past it.

use std::{
    cell::RefCell,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    sync::{Arc, OnceLock},
};

use iov_types::{Error, Outcome, Result};
use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
};

use super::io;
use crate::ring;

/// How bytes are moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Way {
    /// `pwrite` and `pread` through the kernel's cache.
    #[default]
    Cached,
    /// Past the cache (`O_DIRECT`), from and to aligned memory. What is not a whole block of 4 KiB goes through the cache.
    Direct,
    /// Past the cache, and by io_uring: many pieces of a transfer under way at once.
    Ring,
}

/// Offsets, lengths and addresses past the cache are multiples of this: no device has larger blocks for it.
const BLOCK: usize = 4096;
/// Memory for what does not lie on a border of blocks, per thread; also the most that is moved at once past the cache.
const BOUNCE: usize = 4 << 20;

/// Memory that begins at a border of blocks.
struct Aligned {
    bytes: Vec<u8>,
    from: usize,
}

impl Aligned {
    fn new() -> Aligned {
        let bytes = vec![0; BOUNCE + BLOCK];
        let from = bytes.as_ptr().align_offset(BLOCK);
        Aligned { bytes, from }
    }

    fn part(&mut self, len: usize) -> &mut [u8] {
        &mut self.bytes[self.from..self.from + len]
    }
}

thread_local! {
    static MEMORY: RefCell<Option<Aligned>> = const { RefCell::new(None) };
}

fn with_memory<T>(len: usize, body: impl FnOnce(&mut [u8]) -> T) -> T {
    MEMORY.with(|memory| body(memory.borrow_mut().get_or_insert_with(Aligned::new).part(len)))
}

/// A file of bytes, and the way to it.
#[derive(Clone)]
pub(super) struct DataFile {
    pub(super) fd: Arc<OwnedFd>,
    past: Option<Arc<Past>>,
}

/// The same file, open a second time past the cache.
struct Past {
    ring: bool,
    fd: OnceLock<Option<OwnedFd>>,
}

impl AsFd for DataFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Opens a file again, past the cache.
fn open_past(fd: BorrowedFd<'_>) -> rustix::io::Result<OwnedFd> {
    let flags = rustix::fs::fcntl_getfl(fd)? & OFlags::RWMODE;
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    rustix::fs::open(path, flags | OFlags::DIRECT | OFlags::CLOEXEC, Mode::empty())
}

/// Whether the file system of a file, and this machine, know a way.
pub(super) fn check(way: Way, file: BorrowedFd<'_>) -> Result<()> {
    let past =
        open_past(file).map_err(|e| no_way(e, "this file system has no O_DIRECT: use io=pwrite, or another one"))?;
    let written = with_memory(BLOCK, |block| rustix::io::pwrite(&past, block, 0));
    // A full disk is told to who writes to it.
    if let Err(e @ (Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS)) = written {
        return Err(no_way(e, "this file system does not write past the cache: use io=pwrite, or another one"));
    }
    if way == Way::Ring {
        ring::check()
            .map_err(|e| no_way(e, "this machine has no io_uring, or does not let it be used: use io=direct"))?;
    }
    Ok(())
}

fn no_way(e: Errno, why: &str) -> Error {
    Error::unsupported(format!("{why} ({})", std::io::Error::from(e)))
}

/// The whole blocks of a transfer: how many bytes lie before them, and how many they have.
fn blocks(offset: u64, len: usize) -> (usize, usize) {
    let head = (offset.next_multiple_of(BLOCK as u64) - offset) as usize;
    match len.checked_sub(head) {
        Some(rest) if rest >= BLOCK => (head, rest / BLOCK * BLOCK),
        _ => (len, 0),
    }
}

impl DataFile {
    pub(super) fn new(fd: Arc<OwnedFd>, way: Way) -> DataFile {
        let past = (way != Way::Cached).then(|| Arc::new(Past { ring: way == Way::Ring, fd: OnceLock::new() }));
        DataFile { fd, past }
    }

    /// The other descriptor; `None` where there is none, and all goes through the cache.
    fn past(&self) -> Option<(&OwnedFd, bool)> {
        let past = self.past.as_ref()?;
        let fd = past.fd.get_or_init(|| open_past(self.fd.as_fd()).ok()).as_ref()?;
        Some((fd, past.ring))
    }

    /// See [`super::body::Body::write_all`].
    pub(super) fn write_all(&self, data: &[u8], offset: u64) -> Result<()> {
        let (head, middle) = blocks(offset, data.len());
        let Some((past, ring)) = self.past().filter(|_| middle > 0) else {
            return io::write_all(&self.fd, data, offset);
        };
        io::write_all(&self.fd, &data[..head], offset)?;
        let unknown = |e: Error| e.with_outcome(Outcome::Unknown);
        let mut at = head;
        for piece in data[head..head + middle].chunks(BOUNCE) {
            let place = offset + at as u64;
            let result = if piece.as_ptr().align_offset(BLOCK) == 0 {
                write_past(past, ring, piece, place)
            } else {
                with_memory(piece.len(), |memory| {
                    memory.copy_from_slice(piece);
                    write_past(past, ring, memory, place)
                })
            };
            let done = match result {
                Ok(done) => done,
                // A device with larger blocks than ours.
                Err(Errno::INVAL) => 0,
                // Of several pieces that were under way others may have been written.
                Err(e) if at == 0 && !ring => return Err(io::os("writing")(e)),
                Err(e) => return Err(unknown(io::os("writing")(e))),
            };
            // What is short is written through the cache: that tells why, if it is the disk that is full.
            io::write_all(&self.fd, &piece[done..], place + done as u64).map_err(unknown)?;
            at += piece.len();
        }
        io::write_all(&self.fd, &data[at..], offset + at as u64).map_err(unknown)
    }

    /// See [`super::body::Body::read`].
    pub(super) fn read(&self, out: &mut [u8], offset: u64) -> Result<usize> {
        let (head, middle) = blocks(offset, out.len());
        let Some((past, ring)) = self.past().filter(|_| middle > 0) else { return io::read(&self.fd, out, offset) };
        let mut done = io::read(&self.fd, &mut out[..head], offset)?;
        if done < head {
            return Ok(done);
        }
        for piece in out[head..head + middle].chunks_mut(BOUNCE) {
            let place = offset + done as u64;
            let result = if piece.as_ptr().align_offset(BLOCK) == 0 {
                read_past(past, ring, piece, place)
            } else {
                with_memory(piece.len(), |memory| {
                    let n = read_past(past, ring, memory, place)?;
                    piece[..n].copy_from_slice(&memory[..n]);
                    Ok(n)
                })
            };
            let n = match result {
                Ok(n) => n,
                Err(Errno::INVAL) => 0,
                Err(e) => return Err(io::os("reading")(e)),
            };
            let rest = io::read(&self.fd, &mut piece[n..], place + n as u64)?;
            done += n + rest;
            if n + rest < piece.len() {
                return Ok(done);
            }
        }
        Ok(done + io::read(&self.fd, &mut out[done..], offset + done as u64)?)
    }
}

/// Whole blocks from aligned memory; how many bytes were written, a multiple of a block.
fn write_past(fd: &OwnedFd, ring: bool, data: &[u8], offset: u64) -> rustix::io::Result<usize> {
    // Short of descriptors or memory there may be none: then the pieces go one after the other.
    let n = if ring && ring::is_ready() {
        ring::write(fd, data, offset)
    } else {
        io::retry(|| rustix::io::pwrite(fd, data, offset))
    };
    n.map(|n| n / BLOCK * BLOCK)
}

/// Whole blocks into aligned memory; how many bytes were read.
fn read_past(fd: &OwnedFd, ring: bool, out: &mut [u8], offset: u64) -> rustix::io::Result<usize> {
    if ring && ring::is_ready() {
        ring::read(fd, out, offset)
    } else {
        io::retry(|| rustix::io::pread(fd, &mut *out, offset))
    }
}
