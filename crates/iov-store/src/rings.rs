//! A short way between two processes of a host: beside their socket two rings of bytes in memory that both have mapped, one for each
//! direction. What goes that way costs no system call, neither its sender nor who is looking for it.
//!
//! The socket stays: what is large, comes with descriptors, finds no room, or finds nobody looking goes over it, and each
//! piece in a ring says how many bytes went over the socket before it, so that all is received in the order in which it was sent.
//!
//! ```text
//! sender                                   receiver, about to sleep
//! 1 looking? else by the socket            1 looking := 0
//! 2 piece, then tail                       2 tail moved? then takes that, and goes on looking
//! 3 looking? else a bell by the socket     3 waits for the socket
//! ```
//!
//! Tail and looking are sequentially consistent: either the receiver finds the piece at its step 2, or the sender finds it asleep at
//! 3 and wakes it. Nothing that the other side has written is trusted: what would lie outside of the ring is an error, which
//! ends the connection, and bytes are copied before anybody looks at what they say.

use std::{
    io::IoSlice,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    ptr::NonNull,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use iov_types::{Error, Result};
use rustix::fs::{MemfdFlags, SealFlags};

#[cfg(test)]
mod tests;

/// "IOVRINGS", little endian.
const MAGIC: u64 = u64::from_le_bytes(*b"IOVRINGS");
const VERSION: u64 = 2;
/// The header fills a memory page of its own.
const HEADER_BYTES: usize = 4096;
/// Bytes in each ring.
const ROOM: usize = 32 << 10;
/// Length of the file, and of the mapping.
pub const RINGS_BYTES: usize = HEADER_BYTES + 2 * ROOM;
/// Most bytes that go this way at a time: a question or an answer with all of a small file.
const MOST: usize = ROOM / 4;
/// Before each piece: its length, four bytes of nothing, and how much went over the socket before it.
const PIECE: usize = 16;

/// A word that others change has a cache line for itself.
#[repr(C, align(64))]
struct Word(AtomicU64);

/// One direction. Positions only grow; where one lies is its remainder by [`ROOM`].
#[repr(C)]
struct Way {
    /// Up to where there is something: the sender's.
    tail: Word,
    /// Up to where it has been taken: the receiver's.
    head: Word,
    /// Not 0: the receiver looks.
    looking: Word,
    /// Not 0: the sender has given up, and what was not taken by then is not to be taken.
    gone: Word,
    /// How many bytes the sender has sent over the socket, so that who looks need not ask that. It tells when to ask, and nothing else.
    beside: Word,
}

#[repr(C)]
struct Header {
    magic: AtomicU64,
    version: AtomicU64,
    ways: [Way; 2],
}

const _: () = assert!(size_of::<Header>() <= HEADER_BYTES);

/// Which side of the rings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// Who asks.
    Client,
    /// Who answers.
    Server,
}

/// The file in the memory of this process.
struct Mapping(NonNull<u8>);

// SAFETY: the memory is shared with another process anyway; words are atomic, and bytes are only copied.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(file: BorrowedFd<'_>) -> std::io::Result<Mapping> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new shared mapping of a live descriptor; the kernel checks all else.
        let ptr =
            unsafe { libc::mmap(std::ptr::null_mut(), RINGS_BYTES, protection, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        if ptr == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        NonNull::new(ptr.cast()).map(Mapping).ok_or_else(|| std::io::Error::other("a mapping at address 0"))
    }

    fn header(&self) -> &Header {
        // SAFETY: the mapping is longer than a header, aligned to a memory page and lives as long as `self`; any bytes
        // are valid atomics, and nothing but atomics is ever made of them.
        unsafe { self.0.cast::<Header>().as_ref() }
    }

    /// Where a position of a ring lies, and how many bytes come there before its end.
    fn at(&self, way: usize, position: u64) -> (*mut u8, usize) {
        let at = (position % ROOM as u64) as usize;
        // SAFETY: inside the mapping, as there are two rings behind the header.
        (unsafe { self.0.add(HEADER_BYTES + way * ROOM + at).as_ptr() }, ROOM - at)
    }

    fn put(&self, way: usize, position: u64, bytes: &[u8]) {
        debug_assert!(way < 2 && bytes.len() <= ROOM);
        let (to, room) = self.at(way, position);
        let (first, rest) = bytes.split_at(bytes.len().min(room));
        // SAFETY: `first` ends with the ring, and what comes behind that begins with it; nobody else borrows from either.
        unsafe {
            std::ptr::copy_nonoverlapping(first.as_ptr(), to, first.len());
            std::ptr::copy_nonoverlapping(rest.as_ptr(), self.at(way, 0).0, rest.len());
        }
    }

    fn get(&self, way: usize, position: u64, into: &mut [u8]) {
        debug_assert!(way < 2 && into.len() <= ROOM);
        let (from, room) = self.at(way, position);
        let n = into.len().min(room);
        let (first, rest) = into.split_at_mut(n);
        // SAFETY: as above.
        unsafe {
            std::ptr::copy_nonoverlapping(from, first.as_mut_ptr(), first.len());
            std::ptr::copy_nonoverlapping(self.at(way, 0).0, rest.as_mut_ptr(), rest.len());
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length; nobody borrows from it any more.
        unsafe { libc::munmap(self.0.as_ptr().cast(), RINGS_BYTES) };
    }
}

/// How far this side has taken.
#[derive(Default)]
struct Taken {
    head: u64,
    /// Of the present piece.
    left: usize,
    after: u64,
}

/// One end. May be used by many threads.
pub struct Rings {
    map: Mapping,
    /// The way on which this side sends; the other one is where it receives.
    out: usize,
    tail: Mutex<u64>,
    taken: Mutex<Taken>,
    /// The same head, for who only looks.
    head: AtomicU64,
}

impl std::fmt::Debug for Rings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "rings, {} bytes sent", *lock(&self.tail))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn broken(what: &str) -> Error {
    Error::corrupt(format!("the other side of the connection has spoilt the memory shared with it: {what}"))
}

/// Memory for rings, as a file that nobody can make shorter: to be mapped here and sent to the other side.
pub fn rings_memory() -> Result<OwnedFd> {
    let make = || {
        let fd = rustix::fs::memfd_create(c"iov-rings", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&fd, RINGS_BYTES as u64)?;
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok(fd)
    };
    make().map_err(|e: rustix::io::Errno| Error::from(std::io::Error::from(e)).context("memory shared with a program"))
}

impl Rings {
    /// Maps one end of new memory, or of what the other side has made.
    pub fn map(file: impl AsFd, end: End) -> Result<Rings> {
        let file = file.as_fd();
        let seals = rustix::fs::fcntl_get_seals(file).unwrap_or(SealFlags::empty());
        let len = rustix::fs::fstat(file).map_or(0, |stat| stat.st_size);
        // Who touched what is not there any more would be ended by the kernel.
        if !seals.contains(SealFlags::SHRINK) || len != RINGS_BYTES as i64 {
            return Err(Error::corrupt("this is no memory for rings"));
        }
        let map = Mapping::new(file)?;
        let header = map.header();
        match end {
            End::Server => {
                header.version.store(VERSION, Ordering::Relaxed);
                header.magic.store(MAGIC, Ordering::SeqCst);
            }
            End::Client => match (header.magic.load(Ordering::SeqCst), header.version.load(Ordering::Relaxed)) {
                (MAGIC, VERSION) => {}
                (MAGIC, other) => return Err(Error::version(format!("rings of version {other}, not {VERSION}"))),
                _ => return Err(Error::corrupt("this is no memory for rings")),
            },
        }
        let out = usize::from(end == End::Server);
        Ok(Rings { map, out, tail: Mutex::new(0), taken: Mutex::default(), head: AtomicU64::new(0) })
    }

    fn way(&self, way: usize) -> &Way {
        &self.map.header().ways[way]
    }

    /// Sends all of these pieces, before which so many bytes went over the socket; `false`: they have to go that way too. Whoever has
    /// sent something looks whether it has to be woken for that ([`Rings::sleeps`]).
    pub fn offer(&self, after: u64, pieces: &[IoSlice<'_>]) -> Result<bool> {
        let len: usize = pieces.iter().map(|piece| piece.len()).sum();
        if len == 0 || len > MOST || self.sleeps() {
            return Ok(false);
        }
        let mut tail = lock(&self.tail);
        let used = tail.wrapping_sub(self.way(self.out).head.0.load(Ordering::Acquire));
        if used > ROOM as u64 {
            return Err(broken("it has taken more than was sent"));
        }
        if ROOM - (used as usize) < PIECE + len {
            return Ok(false);
        }
        let mut head = [0; PIECE];
        head[..4].copy_from_slice(&(len as u32).to_le_bytes());
        head[8..].copy_from_slice(&after.to_le_bytes());
        let mut at = *tail;
        for bytes in std::iter::once(&head[..]).chain(pieces.iter().map(|piece| &piece[..])) {
            self.map.put(self.out, at, bytes);
            at += bytes.len() as u64;
        }
        *tail = at;
        self.way(self.out).tail.0.store(at, Ordering::SeqCst);
        Ok(true)
    }

    /// Tells how many bytes went over the socket so far.
    pub fn tell_beside(&self, bytes: u64) {
        self.way(self.out).beside.0.store(bytes, Ordering::Release);
    }

    /// How many bytes the other side has sent over the socket, as it says.
    pub fn beside(&self) -> u64 {
        self.way(1 - self.out).beside.0.load(Ordering::Acquire)
    }

    /// How much was put there so far.
    pub fn put(&self) -> u64 {
        *lock(&self.tail)
    }

    /// How much of that the other side has taken.
    pub fn taken(&self) -> u64 {
        self.way(self.out).head.0.load(Ordering::SeqCst)
    }

    /// Nothing that the other side has not taken yet is to be taken any more; how much it has taken.
    pub fn give_up(&self) -> u64 {
        self.way(self.out).gone.0.store(1, Ordering::SeqCst);
        self.taken()
    }

    /// Whether the other side is not looking.
    pub fn sleeps(&self) -> bool {
        self.way(self.out).looking.0.load(Ordering::SeqCst) == 0
    }

    /// Says whether this side looks.
    pub fn look(&self, looks: bool) {
        self.way(1 - self.out).looking.0.store(u64::from(looks), Ordering::SeqCst);
    }

    /// Whether this side has said that it looks.
    pub fn looks(&self) -> bool {
        self.way(1 - self.out).looking.0.load(Ordering::Relaxed) != 0
    }

    /// Whether something has come. To be asked before sleeping, once it was said that nobody looks.
    pub fn has_some(&self) -> bool {
        self.way(1 - self.out).tail.0.load(Ordering::SeqCst) != self.head.load(Ordering::Relaxed)
    }

    /// How many bytes went over the socket before the next piece; `None`: there is none.
    pub fn next(&self) -> Result<Option<u64>> {
        let (way, mut taken) = (1 - self.out, lock(&self.taken));
        if taken.left == 0 {
            let have = self.way(way).tail.0.load(Ordering::SeqCst).wrapping_sub(taken.head);
            if have == 0 {
                return Ok(None);
            }
            if have > ROOM as u64 || have <= PIECE as u64 {
                return Err(broken("it has sent what cannot be"));
            }
            let mut head = [0; PIECE];
            self.map.get(way, taken.head, &mut head);
            let (len, after) = head.split_at(8);
            let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |n, b| (n << 8) | u64::from(*b));
            let len = number(&len[..4]);
            if len == 0 || len > have - PIECE as u64 {
                return Err(broken("a piece is longer than what was sent"));
            }
            taken.head += PIECE as u64;
            (taken.left, taken.after) = (len as usize, number(after));
        }
        Ok(Some(taken.after))
    }

    /// Takes what fits of the piece that [`Rings::next`] has told of. An error: the other side had given up before.
    pub fn take(&self, into: &mut [u8]) -> Result<usize> {
        let (way, mut taken) = (1 - self.out, lock(&self.taken));
        let n = into.len().min(taken.left);
        self.map.get(way, taken.head, &mut into[..n]);
        taken.head += n as u64;
        taken.left -= n;
        self.head.store(taken.head, Ordering::Relaxed);
        self.way(way).head.0.store(taken.head, Ordering::SeqCst);
        // Behind that: either this side sees that it has, or that side sees that this was taken.
        if self.way(way).gone.0.load(Ordering::SeqCst) != 0 {
            return Err(Error::unavailable("the other side has given up what it had sent"));
        }
        Ok(n)
    }
}
