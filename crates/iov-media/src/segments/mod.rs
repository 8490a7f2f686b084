//! Shared memory as a medium: segments, and the space of objects in them (SEMANTICS §2.6).
//!
//! ```text
//! segments/N            a segment that was made ahead of its use
//! segments/N-DOMAIN     one that holds bytes of one protection domain only; DOMAIN is 32 hex digits (G5)
//! segments/N.new        one that is being made
//! ```
//!
//! Which stretches belong to which object is told by the objects' own index files ([`Shared`]). What no index names is free:
//! a start reads them all. Free space is *clean* where it was never used or has been zeroed since, else *dirty*; what a
//! client may still look at or write to, since it does not answer, is *held* until it has let go of it or has ended (G2).

mod index;
mod room;
mod shared;
mod supply;
mod work;

#[cfg(test)]
mod tests;

use std::{
    collections::{HashMap, HashSet},
    os::fd::OwnedFd,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};

use iov_store::{HEAD_BYTES, SEGMENT_BLOCK, Segment};
use iov_types::{Error, Result, Uuid};
use rustix::fs::{AtFlags, Dir, Mode, OFlags};

pub use room::Piece;
use room::Room;
pub use shared::Window;
pub(crate) use shared::{MOST, Shared};

/// A grant that may still be in use, and what it is in: the space behind it rests until it is not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Wait {
    /// The lease page.
    pub(crate) page: Uuid,
    /// The slot of it.
    pub(crate) slot: u32,
    /// The slot's generation.
    pub(crate) generation: u64,
}

/// A piece, and the memory that it lies in.
#[derive(Clone)]
pub(crate) struct Stretch {
    pub(crate) piece: Piece,
    pub(crate) map: Arc<Segment>,
}

struct Known {
    map: Arc<Segment>,
    /// `None`: made ahead.
    domain: Option<Uuid>,
}

/// The free space of one domain.
#[derive(Default)]
struct Pool {
    clean: Room,
    dirty: Room,
    /// Places for heads in blocks that are used for nothing else.
    heads: Vec<Piece>,
}

/// Space that somebody may still use.
struct Held {
    domain: Uuid,
    pieces: Vec<Piece>,
    heads: Vec<Piece>,
    waits: Vec<Wait>,
}

#[derive(Default)]
struct Inner {
    known: HashMap<u32, Known>,
    spare: Vec<u32>,
    pools: HashMap<Uuid, Pool>,
    held: Vec<Held>,
    /// Heads in use, by block, while a target is opened.
    claimed: HashMap<(u32, u64), HashSet<u64>>,
    next: u32,
    /// Segments that are being made without the lock.
    making: u32,
    /// Pieces that are being zeroed without the lock.
    scrubbing: u32,
    /// The thread that works ahead lives.
    works: bool,
    ending: bool,
}

/// How much there is.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SpaceUse {
    /// Bytes that objects may take in all.
    pub capacity: u64,
    /// Bytes of shared memory that are taken from the machine.
    pub made: u64,
    /// Bytes that belong to objects.
    pub used: u64,
    /// Bytes that rest until a client that does not answer has ended.
    pub held: u64,
}

/// The segments of a target.
pub(crate) struct Segments {
    folder: OwnedFd,
    capacity: u64,
    /// Length of those that are made.
    len: u64,
    inner: Mutex<Inner>,
    /// There is something to do ahead of need.
    work: Condvar,
    /// Something was done.
    done: Condvar,
}

type Guard<'a> = MutexGuard<'a, Inner>;

/// Least and most bytes of a segment, where the capacity is not tiny.
const LENGTHS: (u64, u64) = (64 << 20, 1 << 30);
/// So many segments, at least, share a small capacity: each workspace needs one of its own.
const PARTS: u64 = 16;
/// Lengths are multiples of this.
const STEP: u64 = 2 << 20;

/// The length of segments for a capacity.
fn length_for(capacity: u64) -> u64 {
    let few = (capacity / PARTS / STEP * STEP).clamp(STEP, LENGTHS.0);
    if few < LENGTHS.0 { few } else { (capacity / 1024).next_power_of_two().clamp(LENGTHS.0, LENGTHS.1) }
}

fn hex(uuid: Uuid) -> String {
    uuid.0.iter().map(|b| format!("{b:02x}")).collect()
}

fn name(number: u32, domain: Option<Uuid>) -> String {
    domain.map_or_else(|| number.to_string(), |domain| format!("{number}-{}", hex(domain)))
}

/// Number and domain of a segment's name; `None`: it is none, or was being made.
fn parse(text: &str) -> Option<(u32, Option<Uuid>)> {
    let (number, domain) = match text.split_once('-') {
        Some((number, domain)) => {
            (number.parse().ok()?, Some(Uuid(u128::from_str_radix(domain, 16).ok()?.to_be_bytes())))
        }
        None => (text.parse().ok()?, None),
    };
    (name(number, domain) == text).then_some((number, domain))
}

fn os(what: &'static str) -> impl Fn(rustix::io::Errno) -> Error {
    move |e| Error::from(std::io::Error::from(e)).context(what)
}

impl Segments {
    /// Opens the folder of segments in a target's directory. All space counts as dirty until [`Segments::claim`] has told
    /// what is in use, but for what was never used.
    pub(crate) fn open(folder: OwnedFd, capacity: u64) -> Result<Segments> {
        Segments::with(folder, capacity, OFlags::RDWR)
    }

    /// The same, to look at what is there: nothing is taken or given back.
    pub(crate) fn look(folder: OwnedFd) -> Result<Segments> {
        Segments::with(folder, 0, OFlags::RDONLY)
    }

    fn with(folder: OwnedFd, capacity: u64, access: OFlags) -> Result<Segments> {
        let mut inner = Inner::default();
        let listing = os("listing the segments of a target");
        for entry in Dir::read_from(&folder).map_err(&listing)? {
            let entry = entry.map_err(&listing)?;
            let Ok(text) = entry.file_name().to_str() else { continue };
            if text == "." || text == ".." {
                continue;
            }
            let Some((number, domain)) = parse(text) else {
                if access == OFlags::RDWR {
                    let _ = rustix::fs::unlinkat(&folder, text, AtFlags::empty());
                }
                continue;
            };
            let flags = access | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            let file = rustix::fs::openat(&folder, text, flags, Mode::empty()).map_err(os("opening a segment"))?;
            let map = Arc::new(Segment::map(&file)?);
            let whole = Piece { segment: number, at: 0, len: map.len() };
            match domain {
                Some(domain) => inner.pools.entry(domain).or_default().dirty.add(whole),
                None => inner.spare.push(number),
            }
            inner.known.insert(number, Known { map, domain });
            inner.next = inner.next.max(number + 1);
        }
        let len = length_for(capacity);
        Ok(Segments { folder, capacity, len, inner: Mutex::new(inner), work: Condvar::new(), done: Condvar::new() })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A stretch that an index names, and its domain. Everything is checked: an index may be damaged.
    fn find(&self, piece: Piece) -> Result<(Stretch, Uuid)> {
        let inner = self.lock();
        let known = inner.known.get(&piece.segment);
        let known = known.filter(|k| piece.at.checked_add(piece.len).is_some_and(|end| end <= k.map.len()));
        let found = known.and_then(|k| Some((Stretch { piece, map: k.map.clone() }, k.domain?)));
        found.ok_or_else(|| {
            Error::corrupt(format!(
                "the index of an object names {piece:?}, which is in no segment of this target: restore the object from \
                 a copy of the store, or remove it"
            ))
        })
    }

    /// While a target is opened: something is in use.
    pub(crate) fn claim(&self, pieces: impl IntoIterator<Item = Piece>, head: Piece) {
        let mut inner = self.lock();
        for piece in pieces {
            if let Some(domain) = inner.known.get(&piece.segment).and_then(|k| k.domain) {
                inner.pools.entry(domain).or_default().dirty.carve(piece);
            }
        }
        inner.claimed.entry((head.segment, head.at / SEGMENT_BLOCK * SEGMENT_BLOCK)).or_default().insert(head.at);
    }

    /// Everything in use was claimed: the other places in blocks of heads are free.
    pub(crate) fn claimed(&self) {
        let mut inner = self.lock();
        for ((segment, at), used) in std::mem::take(&mut inner.claimed) {
            let Some(domain) = inner.known.get(&segment).and_then(|k| k.domain) else { continue };
            let pool = inner.pools.entry(domain).or_default();
            let block = Piece { segment, at, len: SEGMENT_BLOCK };
            pool.dirty.carve(block);
            pool.heads.extend(heads_of(block).filter(|head| !used.contains(&head.at)));
        }
    }

    /// While a target is opened: nothing that is free may be used before these have let go of it. What was held from them when the
    /// earlier daemon ended is not known.
    pub(crate) fn hold_all(&self, waits: &[Wait]) {
        if waits.is_empty() {
            return;
        }
        let mut inner = self.lock();
        let mut held = Vec::new();
        for (domain, pool) in &mut inner.pools {
            let mut pieces = Vec::new();
            while let Some(piece) = pool.dirty.take_longest(u64::MAX) {
                pieces.push(piece);
            }
            let heads = std::mem::take(&mut pool.heads);
            held.push(Held { domain: *domain, pieces, heads, waits: waits.to_vec() });
        }
        inner.held = held;
    }

    /// Takes space for a domain: `len` bytes, a multiple of the block, all of them zero, in few stretches.
    pub(crate) fn take(&self, domain: Uuid, len: u64) -> Result<Vec<Stretch>> {
        let mut got: Vec<(Stretch, bool)> = Vec::new();
        let mut left = len;
        let mut inner = self.lock();
        while left > 0 {
            let want = left.min(self.len);
            let pool = inner.pools.entry(domain).or_default();
            let mut found =
                pool.clean.take(want).map(|p| (p, false)).or_else(|| pool.dirty.take(want).map(|p| (p, true)));
            let mut why = None;
            if found.is_none() {
                let (guard, extended) = self.extend(inner, domain);
                inner = guard;
                match extended {
                    Ok(true) => continue,
                    Ok(false) => {}
                    Err(e) => why = Some(e),
                }
                let pool = inner.pools.entry(domain).or_default();
                found = pool.clean.take_longest(want).map(|p| (p, false));
                found = found.or_else(|| pool.dirty.take_longest(want).map(|p| (p, true)));
            }
            let Some((piece, dirty)) = found else {
                if inner.making + inner.scrubbing > 0 {
                    inner = self.done.wait(inner).unwrap_or_else(PoisonError::into_inner);
                    continue;
                }
                if inner.pools.entry(domain).or_default().free_blocks_of_heads(|_| true) {
                    continue;
                }
                for (stretch, dirty) in got {
                    let pool = inner.pools.entry(domain).or_default();
                    if dirty { pool.dirty.add(stretch.piece) } else { pool.clean.add(stretch.piece) }
                }
                return Err(why.unwrap_or_else(|| self.full(&inner, len)));
            };
            let map = inner.known[&piece.segment].map.clone();
            got.push((Stretch { piece, map }, dirty));
            left -= piece.len;
        }
        if inner.spare.len() < self.ahead() {
            self.work.notify_all();
        }
        drop(inner);
        for (stretch, _) in got.iter().filter(|(_, dirty)| *dirty) {
            stretch.map.zero(stretch.piece.at, stretch.piece.len);
        }
        Ok(got.into_iter().map(|(stretch, _)| stretch).collect())
    }

    fn full(&self, inner: &Inner, len: u64) -> Error {
        let held: u64 = inner.held.iter().flat_map(|h| &h.pieces).map(|p| p.len).sum();
        let rests = if held > 0 { format!("; {held} rest until a stopped process ends") } else { String::new() };
        Error::exhausted(format!(
            "the store's shared memory is full: {len} bytes were asked for, {} are all there is{rests}; remove something \
             (iov df shows the use), or give the store more by iov down and iov up --storage shmem:SIZE",
            self.capacity
        ))
    }

    /// Takes a place for a head, zero.
    pub(crate) fn take_head(&self, domain: Uuid) -> Result<Stretch> {
        loop {
            let mut inner = self.lock();
            let piece = inner.pools.entry(domain).or_default().heads.pop();
            if let Some(piece) = piece {
                let map = inner.known[&piece.segment].map.clone();
                drop(inner);
                map.zero(piece.at, piece.len);
                return Ok(Stretch { piece, map });
            }
            drop(inner);
            let block = self.take(domain, SEGMENT_BLOCK)?;
            let mut inner = self.lock();
            let pool = inner.pools.entry(domain).or_default();
            pool.heads.extend(block.iter().flat_map(|b| heads_of(b.piece)));
        }
    }

    /// Takes space back. `waits`: who may still look at it or write to it.
    pub(crate) fn give(&self, domain: Uuid, pieces: Vec<Piece>, head: Option<Piece>, waits: Vec<Wait>) {
        let mut inner = self.lock();
        let held = Held { domain, pieces, heads: head.into_iter().collect(), waits };
        if held.waits.is_empty() {
            inner.free(held);
            self.work.notify_all();
        } else {
            inner.held.push(held);
        }
    }

    /// Frees what was held from grants that are over.
    pub(crate) fn settle(&self, is_over: impl Fn(&Wait) -> bool) {
        let mut inner = self.lock();
        let (mut over, rest) = (Vec::new(), std::mem::take(&mut inner.held));
        for mut held in rest {
            held.waits.retain(|wait| !is_over(wait));
            if held.waits.is_empty() { over.push(held) } else { inner.held.push(held) }
        }
        let any = !over.is_empty();
        over.into_iter().for_each(|held| inner.free(held));
        if any {
            self.work.notify_all();
        }
    }

    /// Whether anything is held.
    pub(crate) fn holds_any(&self) -> bool {
        !self.lock().held.is_empty()
    }

    /// How much is in use.
    pub(crate) fn space(&self) -> SpaceUse {
        let inner = self.lock();
        let made = Segments::made(&inner);
        let spare: u64 = inner.spare.iter().filter_map(|n| inner.known.get(n)).map(|k| k.map.len()).sum();
        let free: u64 = inner.pools.values().map(|p| p.clean.total() + p.dirty.total()).sum();
        let held: u64 = inner.held.iter().flat_map(|h| &h.pieces).map(|p| p.len).sum();
        SpaceUse { capacity: self.capacity, made, used: made - spare - free - held, held }
    }

    /// Opens a segment for a client: for reading, or for both.
    pub(crate) fn descriptor(&self, number: u32, write: bool) -> rustix::io::Result<OwnedFd> {
        let domain = self.lock().known.get(&number).and_then(|k| k.domain);
        let access = if write { OFlags::RDWR } else { OFlags::RDONLY };
        let flags = access | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        rustix::fs::openat(&self.folder, name(number, domain), flags, Mode::empty())
    }
}

impl Pool {
    /// Blocks of some segments that hold heads which nobody has are free space again; whether there were any.
    fn free_blocks_of_heads(&mut self, of: impl Fn(u32) -> bool) -> bool {
        let mut count: HashMap<(u32, u64), u64> = HashMap::new();
        for head in self.heads.iter().filter(|head| of(head.segment)) {
            *count.entry((head.segment, head.at / SEGMENT_BLOCK)).or_default() += 1;
        }
        count.retain(|_, free| *free == SEGMENT_BLOCK / HEAD_BYTES);
        self.heads.retain(|head| !count.contains_key(&(head.segment, head.at / SEGMENT_BLOCK)));
        let any = !count.is_empty();
        for (segment, block) in count.into_keys() {
            self.dirty.add(Piece { segment, at: block * SEGMENT_BLOCK, len: SEGMENT_BLOCK });
        }
        any
    }
}

impl Inner {
    fn free(&mut self, held: Held) {
        let pool = self.pools.entry(held.domain).or_default();
        held.pieces.into_iter().for_each(|piece| pool.dirty.add(piece));
        pool.heads.extend(held.heads);
    }
}

/// The places for heads in a block.
fn heads_of(block: Piece) -> impl Iterator<Item = Piece> {
    (0..block.len / HEAD_BYTES).map(move |i| block.part(i * HEAD_BYTES, HEAD_BYTES))
}
