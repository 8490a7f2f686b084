//! The page through which a target takes a passed descriptor back at once (G1–G3).
//!
//! One page per client session: a file that the target's server and the client map, so that it outlives either. Each
//! grant has a slot with two words. The server alone writes `state`; the client alone changes `busy`.
//!
//! ```text
//! client write                              server, taking back                      client read
//! 1 busy += 1                               1 state := revoked                       1 state is mine? else give up
//! 2 state is mine? else busy -= 1, give up  2 wait until busy = 0, or                2 pread
//! 3 pwrite                                    the process has ended: drained         3 state is mine? else void
//! 4 state relocated? then the write is void 3 time is up: state := relocated,
//! 5 busy -= 1                                 move the bytes to a fresh inode
//! ```
//!
//! Steps 1 and 2 of both sides are sequentially consistent: either the client sees `revoked`, or the server sees the
//! client busy. Step 4 comes before step 5, so a write that counts was complete before the bytes were moved. A word of
//! state holds the generation of the grant: a slot can be given out again at once, an old handle no longer fits.

use std::{
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use iov_types::{Error, ObjectId, Result, Uuid};

use crate::words::{self, RELOCATED, REVOKED};

#[cfg(test)]
mod tests;

/// Grants that one page has room for.
pub const LEASE_SLOTS: u32 = 1024;

/// "IOVLEASE", little endian.
const MAGIC: u64 = u64::from_le_bytes(*b"IOVLEASE");
/// What a client puts in place of the first word when its session ends, and a server where nobody came back to it: nobody waits for it any more, only for a write
/// that may be under way.
pub const LEASE_ENDED: [u8; 8] = *b"IOVENDED";
const VERSION: u64 = 1;
/// The header fills a memory page of its own.
const HEADER_BYTES: usize = 4096;
const SLOT_BYTES: usize = 64;
/// Length of the file, and of the mapping.
pub const LEASE_PAGE_BYTES: usize = HEADER_BYTES + LEASE_SLOTS as usize * SLOT_BYTES;

/// What the low bits of a state word say, besides [`REVOKED`] and [`RELOCATED`]; the others hold the generation. The word 0
/// is a free slot.
const GRANTED: u64 = 0;

fn word(generation: u64, what: u64) -> u64 {
    (generation << 2) | what
}

/// All fields are atomic: the other process may change them at any time.
#[repr(C)]
struct Header {
    magic: AtomicU64,
    version: AtomicU64,
    pid: AtomicU64,
    start: AtomicU64,
    session: [AtomicU64; 2],
    namespace: AtomicU64,
}

/// As wide as a cache line, so that writers of different objects do not disturb each other.
#[repr(C, align(64))]
struct Slot {
    state: AtomicU64,
    busy: AtomicU64,
    collection: [AtomicU64; 2],
    object_slot: AtomicU64,
    access: AtomicU64,
    epoch: AtomicU64,
    reserved: AtomicU64,
}

const _: () = assert!(size_of::<Slot>() == SLOT_BYTES && size_of::<Header>() <= HEADER_BYTES);

fn load_uuid(words: &[AtomicU64; 2]) -> Uuid {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&words[0].load(Ordering::Relaxed).to_le_bytes());
    bytes[8..].copy_from_slice(&words[1].load(Ordering::Relaxed).to_le_bytes());
    Uuid(bytes)
}

fn store_uuid(words: &[AtomicU64; 2], uuid: Uuid) {
    let (low, high) = uuid.0.split_at(8);
    let number = |half: &[u8]| half.iter().rev().fold(0, |n, b| (n << 8) | u64::from(*b));
    words[0].store(number(low), Ordering::Relaxed);
    words[1].store(number(high), Ordering::Relaxed);
}

/// The file in the memory of this process.
struct Mapping {
    ptr: NonNull<u8>,
    writable: bool,
}

// SAFETY: the memory is shared with another process anyway; every access to it is atomic.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(file: BorrowedFd<'_>, writable: bool) -> std::io::Result<Mapping> {
        let protection = if writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
        // SAFETY: a new shared mapping of a live descriptor; the kernel checks all else.
        let ptr = unsafe {
            libc::mmap(std::ptr::null_mut(), LEASE_PAGE_BYTES, protection, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        if ptr == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        let ptr = NonNull::new(ptr.cast()).ok_or_else(|| std::io::Error::other("a mapping at address 0"))?;
        Ok(Mapping { ptr, writable })
    }

    fn header(&self) -> &Header {
        // SAFETY: the mapping is longer than a header, aligned to a memory page and lives as long as `self`; any bytes
        // are valid atomics, and nothing but atomics is ever made of them.
        unsafe { self.ptr.cast::<Header>().as_ref() }
    }

    fn slot(&self, index: u32) -> &Slot {
        assert!(index < LEASE_SLOTS, "slot {index} of {LEASE_SLOTS}");
        // SAFETY: inside the mapping by the assertion, aligned as 4096 and 64 are; else as above.
        unsafe { self.ptr.add(HEADER_BYTES + index as usize * SLOT_BYTES).cast::<Slot>().as_ref() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length; nobody borrows from it any more.
        unsafe { libc::munmap(self.ptr.as_ptr().cast(), LEASE_PAGE_BYTES) };
    }
}

fn file_length(file: BorrowedFd<'_>) -> std::io::Result<u64> {
    // SAFETY: an all-zero `stat` is a valid one to be overwritten.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: a live descriptor and a live `stat`.
    if unsafe { libc::fstat(file.as_raw_fd(), &mut stat) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    Ok(stat.st_size as u64)
}

/// What a grant allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum LeaseAccess {
    /// Reading.
    Read = 1,
    /// Reading and writing.
    Write = 2,
    /// Writing by others, such as the kernel for programs that know nothing of this page: it ends when nobody has the file open
    /// for writing any more, which the file system knows (G2).
    Lent = 3,
}

/// The client process that a page was made for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeaseOwner {
    /// Its session.
    pub session: Uuid,
    /// Its process id.
    pub pid: u32,
    /// When that process started, in clock ticks since boot: tells it from a later one with the same id.
    pub start: u64,
    /// In which process namespace the id is its; 0: the server did not say, as those of older versions.
    pub namespace: u64,
}

/// A grant found in the page of a server that is gone. The client can write to its page: believe nothing of it that is
/// not checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FoundLease {
    /// Its slot.
    pub index: u32,
    /// Its generation.
    pub generation: u64,
    /// Which object.
    pub object: ObjectId,
    /// What it allowed.
    pub access: LeaseAccess,
    /// The object's epoch as it was made.
    pub epoch: u64,
    /// Whether it was taken back.
    pub revoked: bool,
    /// Whether what is under way was declared void.
    pub relocated: bool,
}

/// The server's side of a page.
pub struct LeasePage(Mapping);

impl LeasePage {
    /// Makes an empty file into the page of a client. The space is allocated first (G6).
    pub fn create(file: impl AsFd, owner: &LeaseOwner) -> Result<LeasePage> {
        let file = file.as_fd();
        // SAFETY: a live descriptor; the kernel checks all else.
        let error = unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, LEASE_PAGE_BYTES as libc::off_t) };
        if error != 0 {
            return Err(Error::from(std::io::Error::from_raw_os_error(error)).context("no room for a lease page"));
        }
        let page = LeasePage(Mapping::new(file, true)?);
        let header = page.0.header();
        header.version.store(VERSION, Ordering::Relaxed);
        header.pid.store(owner.pid.into(), Ordering::Relaxed);
        header.start.store(owner.start, Ordering::Relaxed);
        store_uuid(&header.session, owner.session);
        header.namespace.store(owner.namespace, Ordering::Relaxed);
        // The last word: a page without it was never handed out.
        header.magic.store(MAGIC, Ordering::Release);
        Ok(page)
    }

    /// Opens a page that an earlier server has made.
    pub fn open(file: impl AsFd) -> Result<(LeasePage, LeaseOwner)> {
        let mapping = checked(file.as_fd(), true, &[MAGIC, u64::from_le_bytes(LEASE_ENDED)])?;
        let header = mapping.header();
        let pid = u32::try_from(header.pid.load(Ordering::Relaxed)).ok().filter(|pid| *pid != 0);
        let pid = pid.ok_or_else(|| Error::corrupt("a lease page names no process; remove it"))?;
        let (start, session) = (header.start.load(Ordering::Relaxed), load_uuid(&header.session));
        let namespace = header.namespace.load(Ordering::Relaxed);
        Ok((LeasePage(mapping), LeaseOwner { session, pid, start, namespace }))
    }

    /// Whether the session that it was made for has not ended it.
    pub fn has_owner(&self) -> bool {
        self.0.header().magic.load(Ordering::Acquire) == MAGIC
    }

    /// Nobody waits for its session any more, only for what may be under way.
    pub fn disown(&self) {
        self.0.header().magic.store(u64::from_le_bytes(LEASE_ENDED), Ordering::Release);
    }

    /// Every slot that is not free.
    pub fn found(&self) -> Vec<FoundLease> {
        let found = |index| {
            let slot = self.0.slot(index);
            let state = slot.state.load(Ordering::SeqCst);
            let access = match slot.access.load(Ordering::Relaxed) {
                1 => LeaseAccess::Read,
                2 => LeaseAccess::Write,
                3 => LeaseAccess::Lent,
                _ => return None,
            };
            let object =
                ObjectId { collection: load_uuid(&slot.collection), slot: slot.object_slot.load(Ordering::Relaxed) };
            let (epoch, generation) = (slot.epoch.load(Ordering::Relaxed), state >> 2);
            let (revoked, relocated) = (state & 3 != GRANTED, state & 3 == RELOCATED);
            (state != 0).then_some(FoundLease { index, generation, object, access, epoch, revoked, relocated })
        };
        (0..LEASE_SLOTS).filter_map(found).collect()
    }

    /// Fills a slot. `generation` must be larger than any that this slot has had, and not 0.
    pub fn offer(&self, index: u32, generation: u64, object: ObjectId, epoch: u64, access: LeaseAccess) {
        let slot = self.0.slot(index);
        store_uuid(&slot.collection, object.collection);
        slot.object_slot.store(object.slot, Ordering::Relaxed);
        slot.epoch.store(epoch, Ordering::Relaxed);
        slot.access.store(access as u64, Ordering::Relaxed);
        slot.state.store(word(generation, GRANTED), Ordering::SeqCst);
    }

    /// Takes a grant back: no write begins from now on, and no read that ends from now on is valid.
    pub fn revoke(&self, index: u32, generation: u64) {
        words::declare(&self.0.slot(index).state, word(generation, REVOKED));
    }

    /// Whether no write is under way.
    pub fn drained(&self, index: u32) -> bool {
        words::is_drained(&self.0.slot(index).busy)
    }

    /// Declares void what is still under way, before the bytes are moved out of its reach (G2).
    pub fn relocate(&self, index: u32, generation: u64) {
        words::declare(&self.0.slot(index).state, word(generation, RELOCATED));
    }

    /// Frees a slot in which nothing is under way.
    pub fn free(&self, index: u32) {
        self.0.slot(index).state.store(0, Ordering::SeqCst);
    }
}

fn checked(file: BorrowedFd<'_>, writable: bool, magic: &[u64]) -> Result<Mapping> {
    let length = file_length(file)?;
    if length < LEASE_PAGE_BYTES as u64 {
        return Err(Error::corrupt(format!("a lease page of {length} bytes, not {LEASE_PAGE_BYTES}; remove it")));
    }
    let mapping = Mapping::new(file, writable)?;
    if !magic.contains(&mapping.header().magic.load(Ordering::Acquire)) {
        return Err(Error::corrupt("this is no lease page; remove it"));
    }
    match mapping.header().version.load(Ordering::Relaxed) {
        VERSION => Ok(mapping),
        other => Err(Error::version(format!(
            "a lease page of version {other}, this program knows {VERSION}: use the socket path, or update the older one"
        ))),
    }
}

/// The client's side of a page.
pub struct ClientPage(Mapping);

impl ClientPage {
    /// Maps a page that the server has passed. A session that may only read gets a descriptor for reading only.
    pub fn map(file: impl AsFd) -> Result<Arc<ClientPage>> {
        let file = file.as_fd();
        // SAFETY: a live descriptor; the call takes no pointer.
        let flags = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) };
        Ok(Arc::new(ClientPage(checked(file, flags & libc::O_ACCMODE == libc::O_RDWR, &[MAGIC])?)))
    }

    /// The slot of a grant.
    pub fn slot(self: &Arc<ClientPage>, index: u32, generation: u64) -> Result<ClientSlot> {
        if index >= LEASE_SLOTS || generation == 0 || generation > u64::MAX >> 2 {
            return Err(Error::corrupt(format!("a grant with slot {index} and generation {generation}")));
        }
        Ok(ClientSlot { page: self.clone(), index, granted: word(generation, GRANTED) })
    }
}

/// A client's handle of one grant.
#[derive(Clone)]
pub struct ClientSlot {
    page: Arc<ClientPage>,
    index: u32,
    granted: u64,
}

impl ClientSlot {
    fn slot(&self) -> &Slot {
        self.page.0.slot(self.index)
    }

    /// Announces a write. `None`: the grant was taken back, or its session may only read; ask the server.
    pub fn begin_write(&self) -> Option<WriteGuard<'_>> {
        if !self.page.0.writable {
            return None;
        }
        let slot = self.slot();
        let holds = words::announce(&slot.busy, &slot.state, self.granted);
        let guard = WriteGuard(self);
        holds.then_some(guard)
    }

    /// Keeps what the grant shows where it is, until [`ClientSlot::unpin`]: the server gives its space to nobody else before
    /// (G2). `false`: the grant was taken back, or the page is mapped for reading.
    #[must_use = "what is not pinned may go"]
    pub fn pin(&self) -> bool {
        self.begin_write().map(std::mem::forget).is_some()
    }

    /// Ends a [`ClientSlot::pin`].
    pub fn unpin(&self) {
        drop(WriteGuard(self));
    }

    /// Whether the grant holds. To be asked before a read and, by [`ClientSlot::read_is_valid`], after it.
    pub fn holds(&self) -> bool {
        words::holds(&self.slot().state, self.granted)
    }

    /// Whether what was read since [`ClientSlot::holds`] may be used; else it must be read again, through the server or
    /// a new grant (G3).
    pub fn read_is_valid(&self) -> bool {
        words::is_valid(&self.slot().state, self.granted)
    }
}

/// A write under way. The server waits for its end.
#[must_use = "the write has ended as soon as this is dropped"]
pub struct WriteGuard<'a>(&'a ClientSlot);

impl WriteGuard<'_> {
    /// Ends the write. False: the bytes were moved away meanwhile; it may or may not have been among them, so ask the
    /// server to write it again.
    pub fn finish(self) -> bool {
        words::counts(&self.0.slot().state, self.0.granted)
    }
}

impl Drop for WriteGuard<'_> {
    fn drop(&mut self) {
        words::retire(&self.0.slot().busy);
    }
}
