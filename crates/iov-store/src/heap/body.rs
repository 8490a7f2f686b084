//! The bytes of one object on the heap: pages that grow as they fill.

use std::{collections::BTreeMap, sync::Arc};

use iov_types::{Error, Extent, Range, Result, Uuid};

use super::Room;
use crate::objects::{AppendKey, Body, Call, Shape, Stage};

/// Bytes of a page. Large, so that a transfer touches few; a page's vector is only as long as it was filled.
pub(super) const PAGE: u64 = 1 << 20;

/// Sparse bytes.
pub struct HeapBody {
    room: Arc<Room>,
    pages: BTreeMap<u64, Vec<u8>>,
    /// Sum of the capacities of the pages: what is taken of the room.
    held: u64,
    /// What has become free since a publication began, and is not given back before its end: it needs that again.
    saved: Option<u64>,
    /// The stage that room is held for which its publication needs.
    prepared: Option<Uuid>,
    shape: Shape,
}

/// Cuts a range into (page, offset in page, length).
fn pieces(range: Range) -> impl Iterator<Item = (u64, usize, usize)> {
    let mut at = range.offset;
    std::iter::from_fn(move || {
        (at < range.end()).then(|| {
            let (page, within) = (at / PAGE, at % PAGE);
            let len = (PAGE - within).min(range.end() - at);
            at += len;
            (page, within as usize, len as usize)
        })
    })
}

/// How large to make a page that has `had` bytes and needs `end`: twice as large while it is small, if there is room, so that a
/// stream of small appends does not copy it each time.
fn capacity(had: usize, end: usize, double: bool) -> usize {
    if double { end.max((had * 2).min(PAGE as usize)) } else { end }
}

fn no_memory(_: std::collections::TryReserveError) -> Error {
    Error::exhausted("no memory for more bytes in a heap store; remove collections, or use a file: store")
}

impl HeapBody {
    pub(super) fn new(room: Arc<Room>) -> HeapBody {
        HeapBody { room, pages: BTreeMap::new(), held: 0, saved: None, prepared: None, shape: Shape::default() }
    }

    fn give(&mut self, bytes: u64) {
        self.held -= bytes;
        match &mut self.saved {
            Some(saved) => *saved += bytes,
            None => self.room.give(bytes),
        }
    }

    /// Takes room, of what was saved first.
    fn take(&mut self, bytes: u64) -> Result<()> {
        let own = self.saved.unwrap_or(0).min(bytes);
        self.room.take(bytes - own)?;
        self.saved = self.saved.map(|saved| saved - own);
        Ok(())
    }

    /// Bytes that a write to a range would take.
    fn missing(&self, range: Range, double: bool) -> u64 {
        let of = |(page, within, len): (u64, usize, usize)| {
            let (had, end) = (self.pages.get(&page).map_or(0, Vec::capacity), within + len);
            if end > had { (capacity(had, end, double) - had) as u64 } else { 0 }
        };
        pieces(range).map(of).sum()
    }
}

impl Drop for HeapBody {
    fn drop(&mut self) {
        self.room.give(self.held);
    }
}

impl Body for HeapBody {
    fn size(&self) -> u64 {
        self.shape.size
    }

    fn allocated(&self) -> u64 {
        self.held
    }

    fn shape(&self) -> Shape {
        self.shape.clone()
    }

    fn extents(&self, range: Range, max: usize) -> Vec<Extent> {
        self.shape.extents(range, max)
    }

    fn reserve(&mut self, range: Range) -> Result<()> {
        // All of it or nothing: what cannot have room must not take that of others.
        let generous = self.missing(range, true);
        let (taken, double) = match self.saved.is_none() && self.take(generous).is_ok() {
            true => (generous, true),
            // A publication takes what was reserved for it and no more: the rest of it needs that.
            false => {
                let least = self.missing(range, false);
                self.take(least)?;
                (least, false)
            }
        };
        let before = self.held;
        let made = pieces(range).try_for_each(|(page, within, len)| {
            let bytes = self.pages.entry(page).or_default();
            let (had, end) = (bytes.capacity(), within + len);
            if end > had {
                bytes.try_reserve_exact(capacity(had, end, double) - bytes.len()).map_err(no_memory)?;
                self.held += (bytes.capacity() - had) as u64;
            }
            Ok(())
        });
        // An allocator may give a little more than it was asked for.
        self.room.correct(taken, self.held - before);
        made
    }

    fn write(&mut self, _: Call<'_>, offset: u64, data: &[u8]) -> Result<()> {
        let range = Range::new(offset, data.len() as u64)?;
        self.reserve(range)?;
        let mut rest = data;
        for (page, within, len) in pieces(range) {
            let (now, later) = rest.split_at(len);
            rest = later;
            let bytes = self.pages.entry(page).or_default();
            if within >= bytes.len() {
                bytes.resize(within, 0);
                bytes.extend_from_slice(now);
            } else {
                let inside = len.min(bytes.len() - within);
                bytes[within..within + inside].copy_from_slice(&now[..inside]);
                bytes.extend_from_slice(&now[inside..]);
            }
        }
        self.shape.write(range);
        Ok(())
    }

    fn read(&self, _: Call<'_>, offset: u64, out: &mut [u8]) -> Result<usize> {
        let len = (self.shape.size.saturating_sub(offset)).min(out.len() as u64);
        let mut at = 0;
        for (page, within, len) in pieces(Range { offset, len }) {
            let to = &mut out[at..at + len];
            at += len;
            let bytes = self.pages.get(&page).map_or(&[][..], |p| &p[..]);
            let have = bytes.len().saturating_sub(within).min(len);
            to[..have].copy_from_slice(&bytes[within.min(bytes.len())..][..have]);
            to[have..].fill(0);
        }
        Ok(len as usize)
    }

    fn truncate(&mut self, _: Call<'_>, size: u64) -> Result<()> {
        Range::new(size, 0)?;
        if size < self.shape.size {
            let dropped = self.pages.split_off(&size.div_ceil(PAGE));
            let freed = dropped.values().map(|p| p.capacity() as u64).sum::<u64>();
            self.give(freed);
            if let Some(last) = self.pages.get_mut(&(size / PAGE)) {
                let had = last.capacity();
                last.truncate((size % PAGE) as usize);
                last.shrink_to_fit();
                let freed = (had - last.capacity()) as u64;
                self.give(freed);
            }
        }
        self.shape.truncate(size);
        Ok(())
    }

    fn punch(&mut self, _: Call<'_>, range: Range) -> Result<()> {
        let whole = range.offset.div_ceil(PAGE)..(range.end() / PAGE).max(range.offset.div_ceil(PAGE));
        while let Some((&page, _)) = self.pages.range(whole.clone()).next() {
            let freed = self.pages.remove(&page).map_or(0, |p| p.capacity() as u64);
            self.give(freed);
        }
        for (page, bytes) in self.pages.range_mut(range.offset / PAGE..range.end().div_ceil(PAGE)) {
            let start = page * PAGE;
            let from = range.offset.saturating_sub(start).min(bytes.len() as u64) as usize;
            let to = (range.end() - start).min(bytes.len() as u64) as usize;
            bytes[from..to.max(from)].fill(0);
        }
        self.shape.punch(range);
        Ok(())
    }

    fn reserve_space(&mut self, range: Range) -> Result<()> {
        // Ask for all of it at once first: what this machine can never hold is refused before any page is made.
        let len = usize::try_from(range.len).unwrap_or(usize::MAX);
        Vec::<u8>::new().try_reserve_exact(len).map_err(no_memory)?;
        self.reserve(range)
    }

    fn allocate(&mut self, _: Call<'_>, range: Range, keep_size: bool) -> Result<()> {
        self.reserve_space(range)?;
        self.shape.allocate(range, keep_size);
        Ok(())
    }

    fn prepare(&mut self, _: Call<'_>, id: Uuid, staged: &Stage) -> Result<()> {
        staged.make_room(self)?;
        self.prepared = Some(id);
        Ok(())
    }

    fn publish(&mut self, call: Call<'_>, _: Uuid, staged: &mut Stage) -> Result<Vec<(AppendKey, u64)>> {
        self.saved = Some(0);
        let published = staged.replay(self, call);
        self.room.give(self.saved.take().unwrap_or(0));
        if published.is_ok() {
            self.prepared = None;
        }
        published
    }

    fn unprepare(&mut self, _: Call<'_>, id: Uuid) -> Result<()> {
        if self.prepared.is_some_and(|other| other != id) {
            return Ok(());
        }
        self.prepared = None;
        // Space that was reserved by name stays.
        if !self.shape.has_reserved() {
            self.pages.retain(|_, page| !page.is_empty());
            self.pages.values_mut().for_each(Vec::shrink_to_fit);
            let left = self.pages.values().map(|p| p.capacity() as u64).sum();
            self.room.correct(self.held, left);
            self.held = left;
        }
        Ok(())
    }

    fn remove(&mut self, _: Call<'_>) -> Result<()> {
        *self = HeapBody::new(self.room.clone());
        Ok(())
    }
}
