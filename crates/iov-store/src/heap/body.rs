//! The bytes of one object on the heap: pages that grow as they fill.

use std::collections::BTreeMap;

use iov_types::{Error, Extent, Range, Result};

use super::shape::Shape;

/// Bytes of a page. Large, so that a transfer touches few; a page's vector is only as long as it was filled.
pub(super) const PAGE: u64 = 1 << 20;

/// Sparse bytes. What was never written reads as zeros (O6).
#[derive(Default)]
pub(super) struct Body {
    pages: BTreeMap<u64, Vec<u8>>,
    /// Sum of the capacities of the pages.
    held: u64,
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

fn no_memory(_: std::collections::TryReserveError) -> Error {
    Error::exhausted("no memory for more bytes in a heap store; remove collections, or use a file: store")
}

impl Body {
    pub(super) fn size(&self) -> u64 {
        self.shape.size
    }

    pub(super) fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Makes room, so that a write to the range cannot fail half-way. Changes nothing that a reader sees.
    pub(super) fn reserve(&mut self, range: Range) -> Result<()> {
        for (page, within, len) in pieces(range) {
            let bytes = self.pages.entry(page).or_default();
            let (had, end) = (bytes.capacity(), within + len);
            if end > had {
                // Double a small page, so that a stream of small appends does not copy it each time.
                let want = end.max((had * 2).min(PAGE as usize));
                bytes.try_reserve_exact(want - bytes.len()).map_err(no_memory)?;
                self.held += (bytes.capacity() - had) as u64;
            }
        }
        Ok(())
    }

    pub(super) fn write(&mut self, offset: u64, data: &[u8]) -> Result<()> {
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

    /// Fills `out` from `offset` on and tells how much; short at the end.
    pub(super) fn read(&self, offset: u64, out: &mut [u8]) -> usize {
        let len = (self.size().saturating_sub(offset)).min(out.len() as u64);
        let mut at = 0;
        for (page, within, len) in pieces(Range { offset, len }) {
            let to = &mut out[at..at + len];
            at += len;
            let bytes = self.pages.get(&page).map_or(&[][..], |p| &p[..]);
            let have = bytes.len().saturating_sub(within).min(len);
            to[..have].copy_from_slice(&bytes[within.min(bytes.len())..][..have]);
            to[have..].fill(0);
        }
        len as usize
    }

    pub(super) fn truncate(&mut self, size: u64) -> Result<()> {
        Range::new(size, 0)?;
        if size < self.size() {
            let dropped = self.pages.split_off(&size.div_ceil(PAGE));
            self.held -= dropped.values().map(|p| p.capacity() as u64).sum::<u64>();
            if let Some(last) = self.pages.get_mut(&(size / PAGE)) {
                let had = last.capacity();
                last.truncate((size % PAGE) as usize);
                last.shrink_to_fit();
                self.held -= (had - last.capacity()) as u64;
            }
        }
        self.shape.truncate(size);
        Ok(())
    }

    pub(super) fn punch(&mut self, range: Range) {
        let whole = range.offset.div_ceil(PAGE)..(range.end() / PAGE).max(range.offset.div_ceil(PAGE));
        while let Some((&page, _)) = self.pages.range(whole.clone()).next() {
            self.held -= self.pages.remove(&page).map_or(0, |p| p.capacity() as u64);
        }
        for (page, bytes) in self.pages.range_mut(range.offset / PAGE..range.end().div_ceil(PAGE)) {
            let start = page * PAGE;
            let from = range.offset.saturating_sub(start).min(bytes.len() as u64) as usize;
            let to = (range.end() - start).min(bytes.len() as u64) as usize;
            bytes[from..to.max(from)].fill(0);
        }
        self.shape.punch(range);
    }

    /// Makes room for a whole range at the caller's wish.
    pub(super) fn reserve_space(&mut self, range: Range) -> Result<()> {
        // Ask for all of it at once first: what this machine can never hold is refused before any page is made.
        let len = usize::try_from(range.len).unwrap_or(usize::MAX);
        Vec::<u8>::new().try_reserve_exact(len).map_err(no_memory)?;
        self.reserve(range)
    }

    pub(super) fn allocate(&mut self, range: Range, keep_size: bool) -> Result<()> {
        self.reserve_space(range)?;
        self.shape.allocate(range, keep_size);
        Ok(())
    }

    /// Memory that the pages take.
    pub(super) fn allocated(&self) -> u64 {
        self.held
    }

    /// See [`Shape::extents`].
    pub(super) fn extents(&self, range: Range, max: usize) -> Vec<Extent> {
        self.shape.extents(range, max)
    }
}
