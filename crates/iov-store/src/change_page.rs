//! The page by which a catalog tells processes of its host that what they know of its facts holds no more: without a
//! message, at the moment of the change (C1).
//!
//! Whoever remembers a fact reads one word of memory instead of asking whether it still holds. The catalog counts its changes; each
//! fact falls into one of many slots, which says when something in it changed last, and whether it is just being changed.
//!
//! ```text
//! catalog, changing a fact             who remembers a fact
//! 1 busy += 1                          1 since := count
//! 2 stamp := count += 1                2 asks the catalog, and remembers the answer with `since`
//! 3 commits                            later, instead of asking:
//! 4 stamp := count += 1                3 busy = 0? else ask
//! 5 busy -= 1                          4 stamp <= since? else ask
//! 6 answers
//! ```
//!
//! All steps are sequentially consistent. A change that is visible to anybody is behind its step 2, so that 3 or 4 fails from then on: an
//! answer read before the commit has a `since` below the stamp of step 4 (it was taken before, or between 2 and 4), and one with a later `since`
//! was read behind the commit. What is open is being changed all the time. The page is a file that the next catalog
//! of the store goes on with: what was remembered before it holds no more.

use std::{
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
};

use iov_types::{Error, Result, Uuid};

#[cfg(test)]
mod tests;

/// "IOVCHNGE", little endian.
const MAGIC: u64 = u64::from_le_bytes(*b"IOVCHNGE");
/// A catalog that tells less has another version.
const VERSION: u64 = 3;
/// The header fills a memory page of its own.
const HEADER_BYTES: usize = 4096;
/// Facts that share a slot cost each other a question.
const SLOTS: usize = 1 << 16;
const SLOT_BYTES: usize = 16;
/// Length of the file, and of the mapping.
pub const CHANGE_PAGE_BYTES: usize = HEADER_BYTES + SLOTS * SLOT_BYTES;

/// What may change.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Fact {
    /// Which names a group has, and what they stand for; a root has the UUID of its workspace.
    Names(Uuid),
    /// What a collection or group is: all that a stat tells of it.
    Itself(Uuid),
    /// Which session has a collection open to write it. It is being changed as long as there are several: who is one of them, and finds that this holds since then, has
    /// been the only one since then.
    Writers(Uuid),
    /// Anything.
    All,
}

/// In the word of a slot: one more that has begun, above those that are under way.
const BEGUN: u64 = 1 << 32;

/// How many changes there had been.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Moment(u64);

/// How many changes are under way, by the word of a slot.
const fn under_way(word: u64) -> u64 {
    word & (BEGUN - 1)
}

/// All fields are atomic: the other process may look at them at any time.
#[repr(C)]
struct Slot {
    /// How many changes are under way, in its lower half; in its upper half how many have begun, modulo 2³².
    busy: AtomicU64,
    /// The number of the last one.
    stamp: AtomicU64,
}

#[repr(C)]
struct Header {
    magic: AtomicU64,
    version: AtomicU64,
    count: AtomicU64,
    /// Of the catalog that tells what changes; another one does not know of this page.
    incarnation: AtomicU64,
    all: Slot,
}

const _: () = assert!(size_of::<Slot>() == SLOT_BYTES && size_of::<Header>() <= HEADER_BYTES);

/// The file in the memory of this process.
struct Mapping(NonNull<u8>);

// SAFETY: the memory is shared with other processes anyway; every access to it is atomic.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(file: BorrowedFd<'_>, protection: i32) -> std::io::Result<Mapping> {
        let (length, fd) = (CHANGE_PAGE_BYTES, file.as_raw_fd());
        // SAFETY: a new shared mapping of a live descriptor; the kernel checks all else.
        let ptr = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, libc::MAP_SHARED, fd, 0) };
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

    fn slots(&self) -> &[Slot] {
        // SAFETY: all of them lie in the mapping, aligned as 4096 is; else as above.
        unsafe { std::slice::from_raw_parts(self.0.add(HEADER_BYTES).cast::<Slot>().as_ptr(), SLOTS) }
    }

    fn slot(&self, fact: Fact) -> &Slot {
        let (uuid, salt) = match fact {
            Fact::All => return &self.header().all,
            Fact::Names(uuid) => (uuid, 0),
            Fact::Itself(uuid) => (uuid, 1),
            Fact::Writers(uuid) => (uuid, 2),
        };
        // Its last bytes are random (UUIDv7); Fibonacci hashing spreads those of one that somebody has made up.
        let tail = uuid.0.iter().rev().take(8).fold(salt, |n: u64, byte| n.rotate_left(8) ^ u64::from(*byte));
        &self.slots()[(tail.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as usize % SLOTS]
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length; nobody borrows from it any more.
        unsafe { libc::munmap(self.0.as_ptr().cast(), CHANGE_PAGE_BYTES) };
    }
}

fn length(file: BorrowedFd<'_>) -> std::io::Result<u64> {
    // SAFETY: an all-zero `stat` is a valid one to be overwritten.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: a live descriptor and a live `stat`.
    match unsafe { libc::fstat(file.as_raw_fd(), &mut stat) } {
        0 => Ok(stat.st_size as u64),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// The catalog's side. A store has one.
pub struct ChangePage(Mapping);

impl std::fmt::Debug for ChangePage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "change page, {} changes", self.0.header().count.load(SeqCst))
    }
}

impl ChangePage {
    /// Goes on with the page of the catalog before, or makes an empty file into one. From now on nothing holds, until it is said that a
    /// catalog of this incarnation is [`ready`](ChangePage::ready). Nobody else may have the page for writing.
    pub fn open(file: impl AsFd, incarnation: u64) -> Result<ChangePage> {
        let file = file.as_fd();
        if length(file)? != CHANGE_PAGE_BYTES as u64 {
            // SAFETY: a live descriptor; the kernel checks all else.
            let error = unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, CHANGE_PAGE_BYTES as libc::off_t) };
            if error != 0 {
                return Err(Error::from(std::io::Error::from_raw_os_error(error)).context("no room for a change page"));
            }
        }
        let page = ChangePage(Mapping::new(file, libc::PROT_READ | libc::PROT_WRITE)?);
        let header = page.0.header();
        // What the catalog before had under way has ended with it.
        header.all.busy.store(1, SeqCst);
        header.incarnation.store(incarnation, SeqCst);
        page.0.slots().iter().for_each(|slot| slot.busy.store(0, SeqCst));
        header.version.store(VERSION, SeqCst);
        header.magic.store(MAGIC, SeqCst);
        Ok(page)
    }

    /// From now on all changes are told; once.
    pub fn ready(&self) {
        self.end(Fact::All);
    }

    fn count(&self, slot: &Slot) {
        let number = self.0.header().count.fetch_add(1, SeqCst) + 1;
        slot.stamp.fetch_max(number, SeqCst);
    }

    /// A fact begins to change. Nobody may see that before.
    pub fn begin(&self, fact: Fact) {
        let slot = self.0.slot(fact);
        slot.busy.fetch_add(BEGUN + 1, SeqCst);
        self.count(slot);
    }

    /// It has changed: whoever asks from now on hears so.
    pub fn end(&self, fact: Fact) {
        let slot = self.0.slot(fact);
        self.count(slot);
        slot.busy.fetch_sub(1, SeqCst);
    }
}

/// The side of those who remember facts.
pub struct ChangeView(Mapping, u64);

impl std::fmt::Debug for ChangeView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "view of a change page at {:?}", self.now())
    }
}

impl ChangeView {
    /// Maps the page of a store; it is only read, and only what the catalog of this incarnation says in it counts.
    pub fn map(file: impl AsFd, incarnation: u64) -> Result<Arc<ChangeView>> {
        let file = file.as_fd();
        let length = length(file)?;
        if length < CHANGE_PAGE_BYTES as u64 {
            return Err(Error::corrupt(format!("a change page of {length} bytes, not {CHANGE_PAGE_BYTES}")));
        }
        let view = ChangeView(Mapping::new(file, libc::PROT_READ)?, incarnation);
        let header = view.0.header();
        match (header.magic.load(SeqCst), header.version.load(SeqCst)) {
            (MAGIC, VERSION) => Ok(Arc::new(view)),
            (MAGIC, other) => Err(Error::version(format!("a change page of version {other}, not {VERSION}"))),
            _ => Err(Error::corrupt("this is no change page")),
        }
    }

    /// As of now: to be taken before the catalog is asked.
    pub fn now(&self) -> Moment {
        Moment(self.0.header().count.load(SeqCst))
    }

    /// How many changes of this fact, or of one that shares its slot, have begun, modulo 2³². Who has changed it once, and finds one more, has been the
    /// only one.
    pub fn begun(&self, fact: Fact) -> u32 {
        (self.0.slot(fact).busy.load(SeqCst) / BEGUN) as u32
    }

    /// Whether what the catalog said, asked after this moment, still holds.
    pub fn holds(&self, since: Moment, facts: &[Fact]) -> bool {
        let holds = |fact: Fact| {
            let slot = self.0.slot(fact);
            under_way(slot.busy.load(SeqCst)) == 0 && slot.stamp.load(SeqCst) <= since.0
        };
        self.0.header().incarnation.load(SeqCst) == self.1 && holds(Fact::All) && facts.iter().all(|fact| holds(*fact))
    }
}
