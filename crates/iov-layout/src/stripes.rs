//! Bytes over objects in turns of one chunk each (RAID 0).

use iov_types::Range;

/// A spread over so many objects, in chunks of so many bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stripes {
    chunk: u64,
    width: u64,
}

/// A run of bytes that lies together in one object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Which object, from 0 on.
    pub index: usize,
    /// First byte in the collection.
    pub offset: u64,
    /// First byte in the object.
    pub local: u64,
    /// Number of bytes.
    pub len: u64,
}

impl Stripes {
    /// Over `width` objects in chunks of `chunk` bytes; neither is 0 (0 counts as 1).
    pub fn new(width: usize, chunk: u64) -> Stripes {
        Stripes { chunk: chunk.max(1), width: (width as u64).max(1) }
    }

    /// Over how many objects.
    pub fn width(&self) -> usize {
        self.width as usize
    }

    /// Bytes on one object before the next.
    pub fn chunk(&self) -> u64 {
        self.chunk
    }

    /// The object of a byte, and where it lies there.
    pub fn locate(&self, offset: u64) -> (usize, u64) {
        if self.width == 1 {
            return (0, offset);
        }
        let (turn, within) = (offset / self.chunk, offset % self.chunk);
        ((turn % self.width) as usize, (turn / self.width) * self.chunk + within)
    }

    /// The byte of the collection that lies at `local` in object `index`; `u64::MAX` where none can.
    pub fn logical(&self, index: usize, local: u64) -> u64 {
        if self.width == 1 {
            return local;
        }
        let (row, within) = (local / self.chunk, local % self.chunk);
        let turn = row.checked_mul(self.width).and_then(|turn| turn.checked_add(index as u64));
        turn.and_then(|turn| turn.checked_mul(self.chunk)?.checked_add(within)).unwrap_or(u64::MAX)
    }

    /// How long object `index` is in a collection of `size` bytes without holes at its end.
    pub fn local_size(&self, index: usize, size: u64) -> u64 {
        if self.width == 1 {
            return size;
        }
        let (full, rest) = (size / self.chunk, size % self.chunk);
        let (rows, extra) = (full / self.width, full % self.width);
        let index = index as u64;
        rows * self.chunk
            + match index.cmp(&extra) {
                std::cmp::Ordering::Less => self.chunk,
                std::cmp::Ordering::Equal => rest,
                std::cmp::Ordering::Greater => 0,
            }
    }

    /// How far the collection reaches if object `index` has `local_size` bytes.
    pub fn reach(&self, index: usize, local_size: u64) -> u64 {
        match local_size.checked_sub(1) {
            None => 0,
            Some(last) => self.logical(index, last).saturating_add(1),
        }
    }

    /// The pieces of a range, in order.
    pub fn pieces(&self, range: Range) -> impl Iterator<Item = Piece> + use<> {
        let (stripes, end) = (*self, range.end());
        let mut at = range.offset;
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let (index, local) = stripes.locate(at);
            let len = match stripes.width {
                1 => end - at,
                _ => (stripes.chunk - at % stripes.chunk).min(end - at),
            };
            let piece = Piece { index, offset: at, local, len };
            at += len;
            Some(piece)
        })
    }

    /// The part of an object that holds its share of a range; `None`: it holds none of it.
    pub fn share(&self, index: usize, range: Range) -> Option<Range> {
        let from = self.local_size(index, range.offset);
        let to = self.local_size(index, range.end());
        (to > from).then_some(Range { offset: from, len: to - from })
    }
}
