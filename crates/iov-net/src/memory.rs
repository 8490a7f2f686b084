//! Bytes of an object in segments of shared memory that this process has mapped.

use std::{
    collections::HashMap,
    os::fd::OwnedFd,
    sync::{Arc, Mutex, PoisonError},
};

use iov_store::{HEAD_BYTES, Head, SEGMENT_BLOCK, Segment};
use iov_types::{Error, Range, Result};
use iov_wire::messages;

type ByNumber = HashMap<(u64, bool), Arc<Segment>>;

/// The segments that came over a connection, by number, and whether for writing.
#[derive(Default)]
pub(crate) struct Maps(Mutex<ByNumber>);

/// A stretch of an object, in the memory of this process.
struct Stretch {
    range: Range,
    map: Arc<Segment>,
    at: u64,
}

/// Where the bytes of an object lie.
pub(crate) struct Window {
    head: (Arc<Segment>, u64),
    stretches: Vec<Stretch>,
}

fn wrong(what: &str) -> Error {
    Error::corrupt(format!("the daemon grants memory that cannot be right: {what}"))
}

impl Maps {
    fn lock(&self) -> std::sync::MutexGuard<'_, ByNumber> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing that came before is here any more: it is asked for anew.
    pub(crate) fn forget(&self) {
        self.lock().clear();
    }

    /// Whether nothing has come yet, or it was forgotten.
    pub(crate) fn are_none(&self) -> bool {
        self.lock().is_empty()
    }

    /// Maps what came with a grant, and finds what it names.
    pub(crate) fn window(&self, lent: &messages::Window, descriptors: Vec<OwnedFd>, write: bool) -> Result<Window> {
        let mut maps = self.lock();
        for (number, fd) in lent.passed.iter().zip(descriptors) {
            maps.insert((*number, write), Arc::new(Segment::map(&fd)?));
        }
        let find = |number: u64, at: u64, len: u64| {
            let map = maps
                .get(&(number, write))
                .ok_or_else(|| Error::unsupported("a segment is not mapped here any more"))?;
            if at.checked_add(len).is_none_or(|end| end > map.len()) || (write && !map.is_writable()) {
                return Err(wrong("a place outside of its segment, or one for reading only"));
            }
            Ok(map.clone())
        };
        if !lent.head_at.is_multiple_of(HEAD_BYTES) {
            return Err(wrong("the place of a head"));
        }
        let head = (find(lent.head_segment, lent.head_at, HEAD_BYTES)?, lent.head_at);
        let mut stretches: Vec<Stretch> = Vec::with_capacity(lent.stretches.len());
        for s in &lent.stretches {
            let range = Range::new(s.offset, s.len).map_err(|_| wrong("a stretch without an end"))?;
            let behind = stretches.last().is_none_or(|last| last.range.end() <= range.offset);
            if !behind || s.len == 0 || !s.at.is_multiple_of(SEGMENT_BLOCK) {
                return Err(wrong("stretches that are out of order"));
            }
            stretches.push(Stretch { range, map: find(s.segment, s.at, s.len)?, at: s.at });
        }
        Ok(Window { head, stretches })
    }
}

impl Window {
    pub(crate) fn head(&self) -> &Head {
        self.head.0.head(self.head.1)
    }

    /// The stretch that a byte lies in, and those behind it.
    fn from(&self, byte: u64) -> &[Stretch] {
        let first = self.stretches.partition_point(|s| s.range.end() <= byte);
        &self.stretches[first..]
    }

    /// The first byte of a range that has no place.
    fn gap(&self, range: Range) -> Option<u64> {
        let mut at = range.offset;
        for stretch in self.from(range.offset) {
            if at >= range.end() || stretch.range.offset > at {
                break;
            }
            at = stretch.range.end();
        }
        (at < range.end()).then_some(at)
    }

    /// Whether every byte of a range has a place.
    pub(crate) fn covers(&self, range: Range) -> bool {
        self.gap(range).is_none()
    }

    /// Copies bytes in. All of them must have a place.
    pub(crate) fn write(&self, bytes: &[u8], offset: u64) {
        let end = offset + bytes.len() as u64;
        let mut at = offset;
        for stretch in self.from(offset) {
            if at >= end {
                break;
            }
            let to = end.min(stretch.range.end());
            let part = &bytes[(at - offset) as usize..(to - offset) as usize];
            stretch.map.copy_in(stretch.at + (at - stretch.range.offset), part);
            at = to;
        }
    }

    /// Notes that bytes were written up to `end`.
    pub(crate) fn written(&self, end: u64) {
        self.head().written(end);
    }

    /// Copies bytes out, short at the object's end; `None`: some have no place that is known here.
    pub(crate) fn read(&self, out: &mut [u8], offset: u64) -> Option<u64> {
        let there = self.head().size().saturating_sub(offset).min(out.len() as u64);
        let range = Range { offset, len: there };
        if !self.covers(range) {
            return None;
        }
        let mut at = offset;
        for stretch in self.from(offset) {
            if at >= range.end() {
                break;
            }
            let to = range.end().min(stretch.range.end());
            let part = &mut out[(at - offset) as usize..(to - offset) as usize];
            stretch.map.copy_out(stretch.at + (at - stretch.range.offset), part);
            at = to;
        }
        Some(there)
    }

    /// Where bytes lie that begin at `offset`, as many of `len` as lie in one stretch and before the object's end.
    pub(crate) fn show(&self, offset: u64, len: u64) -> Option<(&Segment, u64, u64)> {
        let there = self.head().size().saturating_sub(offset).min(len);
        if there == 0 {
            return Some((&self.head.0, self.head.1, 0));
        }
        let stretch = self.from(offset).first().filter(|s| s.range.offset <= offset)?;
        let len = there.min(stretch.range.end() - offset);
        Some((&stretch.map, stretch.at + (offset - stretch.range.offset), len))
    }
}
