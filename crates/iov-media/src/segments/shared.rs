//! The bytes of an object in segments.

use std::{
    collections::BTreeMap,
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard,
        atomic::{AtomicU64, Ordering},
    },
};

use iov_store::{Head, SEGMENT_BLOCK, seam};
use iov_types::{Error, Extent, ExtentKind, Outcome, Range, Result, Uuid};

use super::{
    Piece, Segments, Stretch, Wait,
    index::{Change, Index, Map, cut, damaged},
};

/// The largest length of an object.
pub(crate) const MOST: u64 = i64::MAX as u64 / SEGMENT_BLOCK * SEGMENT_BLOCK;

/// Where a range of an object lies, for a client that is to move its bytes.
#[derive(Clone, Debug)]
pub struct Window {
    /// The head of the object ([`iov_store::Head`]).
    pub head: Piece,
    /// Stretches by their first byte, without gaps where the range was asked for writing.
    pub stretches: Vec<(u64, Piece)>,
}

/// An object's bytes. Whoever changes them, other than by writing, holds the object for itself.
pub(crate) struct Shared {
    segments: Arc<Segments>,
    domain: Uuid,
    head: Stretch,
    index: Mutex<Index>,
    stretches: RwLock<BTreeMap<u64, Stretch>>,
    /// Bytes of all of them.
    allocated: AtomicU64,
}

fn down(n: u64) -> u64 {
    n / SEGMENT_BLOCK * SEGMENT_BLOCK
}

fn up(n: u64) -> u64 {
    n.next_multiple_of(SEGMENT_BLOCK)
}

fn too_far() -> Error {
    Error::file_too_big(format!("an object in shared memory has at most {MOST} bytes"))
}

type Stretches = BTreeMap<u64, Stretch>;

/// The parts of a range that lie somewhere: where they begin, and where they lie.
fn parts(map: &Stretches, range: Range) -> impl Iterator<Item = (u64, Stretch)> {
    let first = map.range(..=range.offset).next_back().map_or(range.offset, |(at, _)| *at);
    map.range(first..range.end().max(first)).filter_map(move |(at, stretch)| {
        let from = range.offset.max(*at);
        let to = range.end().min(at + stretch.piece.len);
        let part = (to > from).then(|| stretch.piece.part(from - at, to - from))?;
        Some((from, Stretch { piece: part, map: stretch.map.clone() }))
    })
}

/// Adds a stretch; one that goes on where another ends, in the object and in the segment, is one with it.
fn insert(map: &mut Stretches, at: u64, stretch: Stretch) {
    if let Some((before, last)) = map.range_mut(..at).next_back()
        && before + last.piece.len == at
        && last.piece.segment == stretch.piece.segment
        && last.piece.end() == stretch.piece.at
    {
        last.piece.len += stretch.piece.len;
        return;
    }
    map.insert(at, stretch);
}

/// The parts of a range that lie nowhere.
fn gaps(map: &Stretches, range: Range) -> Vec<Range> {
    let (mut out, mut at) = (Vec::new(), range.offset);
    for (from, stretch) in parts(map, range) {
        if from > at {
            out.push(Range { offset: at, len: from - at });
        }
        at = from + stretch.piece.len;
    }
    if at < range.end() {
        out.push(Range { offset: at, len: range.end() - at });
    }
    out
}

impl Shared {
    /// The bytes of a new object, of which there are none; `file` becomes its index.
    pub(crate) fn create(segments: &Arc<Segments>, file: OwnedFd, domain: Uuid) -> Result<Shared> {
        let head = segments.take_head(domain)?;
        let give_back = |_: &_| segments.give(domain, Vec::new(), Some(head.piece), Vec::new());
        let index = Index::create(file, head.piece, &Map::new()).inspect_err(give_back)?;
        let shared = Shared::with(segments, domain, head, index, Stretches::new());
        shared.touch();
        Ok(shared)
    }

    fn with(segments: &Arc<Segments>, domain: Uuid, head: Stretch, index: Index, stretches: Stretches) -> Shared {
        let allocated = stretches.values().map(|s| s.piece.len).sum();
        Shared {
            segments: segments.clone(),
            domain,
            head,
            index: Mutex::new(index),
            stretches: RwLock::new(stretches),
            allocated: AtomicU64::new(allocated),
        }
    }

    /// The bytes of an object with this index.
    pub(crate) fn open(segments: &Arc<Segments>, file: OwnedFd) -> Result<Shared> {
        let (index, head, map) = Index::open(file)?.ok_or_else(damaged)?;
        let (head, domain) = segments.find(head)?;
        let mut stretches = Stretches::new();
        for (at, piece) in map {
            insert(&mut stretches, at, segments.find(piece)?.0);
        }
        Ok(Shared::with(segments, domain, head, index, stretches))
    }

    /// Tells the segments, while a target is opened, what an index names, and zeroes what lies behind the object's end in its
    /// last block: nobody had acknowledged it, and nobody may write any more. Whether whole blocks lie behind the end, which are to be trimmed; `None`: it
    /// was never finished, and names nothing.
    pub(crate) fn claim(segments: &Segments, file: OwnedFd) -> Result<Option<bool>> {
        let Some((_, head, map)) = Index::open(file)? else { return Ok(None) };
        segments.claim(map.values().copied(), head);
        let size = segments.find(head)?.0.map.head(head.at).size();
        if let Some((at, piece)) = map.range(..size).next_back()
            && size < at + piece.len
        {
            let (skip, len) = (size - at, up(size) - size);
            let last = segments.find(piece.part(skip, len))?.0;
            last.map.zero(last.piece.at, last.piece.len);
        }
        Ok(Some(map.last_key_value().is_some_and(|(at, piece)| at + piece.len > up(size))))
    }

    fn lock(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn map(&self) -> RwLockReadGuard<'_, Stretches> {
        self.stretches.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn head(&self) -> &Head {
        self.head.map.head(self.head.piece.at)
    }

    /// Sets the time of the last change to now.
    pub(crate) fn touch(&self) {
        self.head().set_mtime_ns(seam::now_ns());
    }

    pub(crate) fn length(&self) -> u64 {
        self.head().size()
    }

    /// Bytes that it takes.
    pub(crate) fn allocated(&self) -> u64 {
        self.allocated.load(Ordering::Relaxed)
    }

    /// Calls `each` with the mode of its index, which is the object's seal.
    pub(crate) fn with_index<T>(&self, each: impl FnOnce(&OwnedFd) -> T) -> T {
        each(self.lock().file())
    }

    /// Gives every byte of a range a place, zero where it had none.
    pub(crate) fn reserve(&self, range: Range) -> Result<()> {
        let end = range.offset.checked_add(range.len).filter(|end| *end <= MOST).ok_or_else(too_far)?;
        let range = Range { offset: down(range.offset), len: up(end) - down(range.offset) };
        if range.len == 0 || gaps(&self.map(), range).is_empty() {
            return Ok(());
        }
        let mut index = self.lock();
        let gaps = gaps(&self.map(), range);
        let mut new: Vec<(u64, Stretch)> = Vec::new();
        let give_back = |new: &[(u64, Stretch)]| {
            self.segments.give(self.domain, new.iter().map(|(_, s)| s.piece).collect(), None, Vec::new());
        };
        for gap in gaps {
            let mut at = gap.offset;
            for stretch in self.segments.take(self.domain, gap.len).inspect_err(|_| give_back(&new))? {
                let len = stretch.piece.len;
                new.push((at, stretch));
                at += len;
            }
        }
        index.add(new.iter().map(|(at, s)| Change::Mapped(*at, s.piece))).inspect_err(|_| give_back(&new))?;
        let mut map = self.stretches.write().unwrap_or_else(PoisonError::into_inner);
        for (at, stretch) in new {
            self.allocated.fetch_add(stretch.piece.len, Ordering::Relaxed);
            insert(&mut map, at, stretch);
        }
        Ok(())
    }

    /// Writes all of it.
    pub(crate) fn write_all(&self, data: &[u8], offset: u64) -> Result<()> {
        let range = Range { offset, len: data.len() as u64 };
        if data.is_empty() {
            return Ok(());
        }
        self.reserve(range)?;
        for (at, stretch) in parts(&self.map(), range) {
            let from = (at - offset) as usize;
            stretch.map.copy_in(stretch.piece.at, &data[from..from + stretch.piece.len as usize]);
        }
        self.head().written(range.end());
        Ok(())
    }

    /// Fills as much of `out` as there is; short at the end.
    pub(crate) fn read(&self, out: &mut [u8], offset: u64) -> usize {
        let len = self.length().saturating_sub(offset).min(out.len() as u64);
        let range = Range { offset, len };
        let map = self.map();
        let mut at = offset;
        for (from, stretch) in parts(&map, range) {
            out[(at - offset) as usize..(from - offset) as usize].fill(0);
            at = from + stretch.piece.len;
            stretch.map.copy_out(stretch.piece.at, &mut out[(from - offset) as usize..(at - offset) as usize]);
        }
        out[(at - offset) as usize..len as usize].fill(0);
        len as usize
    }

    /// Copies from another object, or from elsewhere in this one; how many bytes there were before the source's end.
    pub(crate) fn copy_from(&self, source: &Shared, from: u64, to: u64, len: u64) -> Result<u64> {
        let len = source.length().saturating_sub(from).min(len);
        if len == 0 {
            return Ok(0);
        }
        let target = Range { offset: to, len };
        self.reserve(target)?;
        let places: Vec<_> = parts(&self.map(), target).collect();
        let origins: Vec<_> = parts(&source.map(), Range { offset: from, len }).collect();
        for (at, place) in places {
            // The part of the source that goes there.
            let wanted = Range { offset: at - to + from, len: place.piece.len };
            let mut done = wanted.offset;
            for (origin, stretch) in &origins {
                let (begin, end) = (wanted.offset.max(*origin), wanted.end().min(origin + stretch.piece.len));
                if begin >= end {
                    continue;
                }
                let there = |byte: u64| place.piece.at + (byte - wanted.offset);
                place.map.zero(there(done), begin - done);
                place.map.copy_from(there(begin), &stretch.map, stretch.piece.at + (begin - origin), end - begin);
                done = end;
            }
            place.map.zero(place.piece.at + (done - wanted.offset), wanted.end() - done);
        }
        self.head().written(target.end());
        Ok(len)
    }

    /// Sets the length. Nobody but the caller may use the bytes; `waits` still may, and are waited for.
    pub(crate) fn truncate(&self, size: u64, waits: Vec<Wait>) -> Result<()> {
        if size > MOST {
            return Err(too_far());
        }
        // First of all, so that a reader that has the old length is void before the bytes go.
        let before = self.length();
        self.head().set_size(size.min(before));
        // What a writer that was killed has left behind the end goes as well.
        let cut = size.min(before);
        self.cut(Range { offset: cut, len: MOST - cut }, waits).map_err(|e| {
            // A part of a block may be zero by now.
            self.head().set_size(before);
            e.with_outcome(Outcome::Unknown)
        })?;
        self.head().set_size(size);
        self.touch();
        Ok(())
    }

    /// Makes a range a hole, as far as the object reaches.
    pub(crate) fn punch(&self, range: Range, waits: Vec<Wait>) -> Result<()> {
        let Some(range) = range.intersect(&Range { offset: 0, len: self.length() }) else { return Ok(()) };
        // What lies behind the end holds nothing that anybody wrote.
        let end = if range.end() == self.length() { up(range.end()) } else { range.end() };
        let cut = self.cut(Range { offset: range.offset, len: end - range.offset }, waits);
        cut.map_err(|e| e.with_outcome(Outcome::Unknown))?;
        self.touch();
        Ok(())
    }

    /// Zeroes a range, and gives back the space of its whole blocks.
    fn cut(&self, range: Range, waits: Vec<Wait>) -> Result<()> {
        let (from, to) = (up(range.offset).min(range.end()), down(range.end()).max(up(range.offset).min(range.end())));
        let edges = [(range.offset, from), (to, range.end())];
        let whole = (down(to) > up(from)).then(|| (up(from), down(to)));
        let mut index = self.lock();
        let map = self.map();
        for (from, to) in edges.into_iter().filter(|(from, to)| to > from) {
            for (_, stretch) in parts(&map, Range { offset: from, len: to - from }) {
                stretch.map.zero(stretch.piece.at, stretch.piece.len);
            }
        }
        let Some((from, to)) = whole else { return Ok(()) };
        if parts(&map, Range { offset: from, len: to - from }).next().is_none() {
            return Ok(());
        }
        drop(map);
        index.add([Change::Cut(from, to)])?;
        let mut map = self.stretches.write().unwrap_or_else(PoisonError::into_inner);
        let freed = cut(&mut map, from, to, |stretch| &mut stretch.piece);
        self.allocated.fetch_sub(freed.iter().map(|piece| piece.len).sum(), Ordering::Relaxed);
        drop(map);
        self.segments.give(self.domain, freed, None, waits);
        Ok(())
    }

    /// Whether a byte has a place.
    pub(crate) fn has(&self, byte: u64) -> bool {
        parts(&self.map(), Range { offset: byte, len: 1 }).next().is_some()
    }

    /// Gives back what lies behind the end.
    pub(crate) fn trim(&self, waits: Vec<Wait>) -> Result<()> {
        let end = up(self.length());
        self.cut(Range { offset: end, len: MOST - end }, waits)
    }

    /// Whether there is space behind the end.
    pub(crate) fn has_tail(&self) -> bool {
        self.map().last_key_value().is_some_and(|(at, s)| at + s.piece.len > up(self.length()))
    }

    /// Whether no byte before the end is a hole.
    pub(crate) fn is_dense(&self) -> bool {
        gaps(&self.map(), Range { offset: 0, len: self.length() }).is_empty()
    }

    /// Data and holes of a range of the first `size` bytes, at most `max`.
    pub(crate) fn extents(&self, range: Range, size: u64, max: usize) -> Vec<Extent> {
        let mut out: Vec<Extent> = Vec::new();
        let Some(range) = range.intersect(&Range { offset: 0, len: size }) else { return out };
        let map = self.map();
        let mut push = |from: u64, to: u64, kind: ExtentKind| {
            let len = out.len();
            match out.last_mut() {
                _ if from == to => true,
                Some(last) if last.kind == kind => {
                    last.range.len += to - from;
                    true
                }
                _ if len >= max => false,
                _ => {
                    out.push(Extent { range: Range { offset: from, len: to - from }, kind, target: 0 });
                    true
                }
            }
        };
        let mut at = range.offset;
        for (from, stretch) in parts(&map, range) {
            let to = from + stretch.piece.len;
            if !push(at, from, ExtentKind::Hole) || !push(from, to, ExtentKind::Data) {
                return out;
            }
            at = to;
        }
        push(at, range.end(), ExtentKind::Hole);
        out
    }

    /// Where the bytes of a range lie, as far as they do, in at most `most` stretches.
    pub(crate) fn window(&self, range: Range, most: usize) -> Window {
        let mut stretches: Vec<(u64, Piece)> = Vec::new();
        for (at, Stretch { piece, .. }) in parts(&self.map(), range) {
            let count = stretches.len();
            match stretches.last_mut() {
                // Taken one behind the other: for whoever looks, they are one.
                Some((from, last))
                    if *from + last.len == at && last.segment == piece.segment && last.end() == piece.at =>
                {
                    last.len += piece.len;
                }
                _ if count == most => break,
                _ => stretches.push((at, piece)),
            }
        }
        Window { head: self.head.piece, stretches }
    }

    /// The part of `within` around a byte that has a place for each byte; empty if that byte has none.
    pub(crate) fn around(&self, byte: u64, within: Range) -> Range {
        let (mut from, mut to) = (byte, byte);
        for (at, stretch) in parts(&self.map(), within) {
            if at != to || from == to {
                if from <= byte && byte < to {
                    break;
                }
                from = at;
            }
            to = at + stretch.piece.len;
        }
        let len = if from <= byte { to.saturating_sub(byte) } else { 0 };
        if len == 0 { Range { offset: byte, len: 0 } } else { Range { offset: from, len: to - from } }
    }

    /// The same bytes under a new head, with fresh space for some ranges: what is written to the old one from now on is
    /// read by nobody (G2). `file` becomes its index.
    pub(crate) fn moved(&self, file: OwnedFd, ranges: &[Range]) -> Result<Shared> {
        // Before the bytes are copied: what is longer by then has them.
        let (length, mtime_ns) = (self.length(), self.head().mtime_ns());
        let head = self.segments.take_head(self.domain)?;
        let mut fresh: Vec<Piece> = Vec::new();
        let mut stretches = Stretches::new();
        let mut copy = || -> Result<()> {
            for (at, stretch) in self.map().iter() {
                let whole = Range { offset: *at, len: stretch.piece.len };
                if !ranges.iter().any(|r| r.overlaps(&whole)) {
                    stretches.insert(*at, stretch.clone());
                    continue;
                }
                let mut done = 0;
                for new in self.segments.take(self.domain, stretch.piece.len)? {
                    new.map.copy_from(new.piece.at, &stretch.map, stretch.piece.at + done, new.piece.len);
                    fresh.push(new.piece);
                    stretches.insert(at + done, new.clone());
                    done += new.piece.len;
                }
            }
            Ok(())
        };
        let copied = copy();
        let map: Map = stretches.iter().map(|(at, s)| (*at, s.piece)).collect();
        let index = copied.and_then(|()| Index::create(file, head.piece, &map));
        let index =
            index.inspect_err(|_| self.segments.give(self.domain, fresh.clone(), Some(head.piece), Vec::new()))?;
        let new = Shared::with(&self.segments, self.domain, head, index, stretches);
        new.head().set_size(length);
        new.head().set_mtime_ns(mtime_ns);
        Ok(new)
    }

    /// Gives its space back: its name is gone. What `kept` has of it stays.
    pub(crate) fn release(&self, kept: Option<&Shared>, waits: Vec<Wait>) {
        let mut map = self.stretches.write().unwrap_or_else(PoisonError::into_inner);
        let mut room = super::room::Room::default();
        std::mem::take(&mut *map).into_values().for_each(|s| room.add(s.piece));
        self.allocated.store(0, Ordering::Relaxed);
        drop(map);
        if let Some(kept) = kept {
            kept.map().values().for_each(|s| room.carve(s.piece));
        }
        let mut pieces = Vec::new();
        while let Some(piece) = room.take_longest(u64::MAX) {
            pieces.push(piece);
        }
        self.segments.give(self.domain, pieces, Some(self.head.piece), waits);
    }

    /// Whether its index should be written anew.
    pub(crate) fn is_wasteful(&self) -> bool {
        let stretches = self.map().len();
        self.lock().is_wasteful(stretches)
    }
}
