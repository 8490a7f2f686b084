//! Byte ranges and extents.

use crate::{Error, Result};

/// `len` bytes from `offset` on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Range {
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
}

impl Range {
    /// A range whose end does not overflow the largest offset that media can address (`i64::MAX`).
    pub fn new(offset: u64, len: u64) -> Result<Range> {
        match offset.checked_add(len) {
            Some(end) if end <= i64::MAX as u64 => Ok(Range { offset, len }),
            _ => Err(Error::invalid(format!("offset {offset} + length {len} is beyond 2^63-1 bytes"))),
        }
    }

    /// One past the last byte.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.len)
    }

    /// Whether the two share a byte.
    pub fn overlaps(&self, other: &Range) -> bool {
        self.offset < other.end() && other.offset < self.end()
    }

    /// What both cover.
    pub fn intersect(&self, other: &Range) -> Option<Range> {
        let (from, to) = (self.offset.max(other.offset), self.end().min(other.end()));
        (from < to).then(|| Range { offset: from, len: to - from })
    }
}

/// What lies in a range (the numbers of `IOV_EXTENT_*`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u32)]
pub enum ExtentKind {
    /// Bytes somebody wrote.
    Data = 1,
    /// Nothing; reads as zeros (O6).
    Hole = 2,
    /// Reserved space without data; reads as zeros.
    Allocated = 3,
    /// The reservation of an appender that died (M4); reads as zeros.
    Abandoned = 4,
}

/// A stretch of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// Where it lies in the collection.
    pub range: Range,
    /// What it is.
    pub kind: ExtentKind,
    /// The target that holds it.
    pub target: u32,
}
