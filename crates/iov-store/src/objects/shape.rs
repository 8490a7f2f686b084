//! What of an object was written or reserved, and how long it is: everything about its bytes but the bytes.

use iov_types::{Extent, ExtentKind, Range};

use super::intervals::Intervals;

/// The outline of an object. Replaying changes on a copy tells what a stage would make of it. Ranges are not empty.
#[derive(Clone, Default)]
pub struct Shape {
    written: Intervals,
    reserved: Intervals,
    pub(crate) size: u64,
}

impl Shape {
    /// Of an object that is all data.
    pub fn dense(size: u64) -> Shape {
        let mut shape = Shape::default();
        shape.write(Range { offset: 0, len: size });
        shape
    }

    /// Whether space was reserved.
    pub(crate) fn has_reserved(&self) -> bool {
        !self.reserved.is_empty()
    }

    /// Bytes were written there.
    pub fn write(&mut self, range: Range) {
        self.written.insert(range);
        self.size = self.size.max(range.end());
    }

    /// It was cut, or extended with a hole.
    pub fn truncate(&mut self, size: u64) {
        if size < self.size {
            let cut = Range { offset: size, len: i64::MAX as u64 - size };
            self.written.remove(cut);
            self.reserved.remove(cut);
        }
        self.size = size;
    }

    pub(crate) fn punch(&mut self, range: Range) {
        self.written.remove(range);
        self.reserved.remove(range);
    }

    pub(crate) fn allocate(&mut self, range: Range, keep_size: bool) {
        self.reserved.insert(range);
        if !keep_size {
            self.size = self.size.max(range.end());
        }
    }

    /// Data, reserved space and holes of a range up to the end, in order, neighbours of one kind merged.
    pub fn extents(&self, range: Range, max: usize) -> Vec<Extent> {
        let Some(range) = range.intersect(&Range { offset: 0, len: self.size }) else { return Vec::new() };
        let mut out: Vec<Extent> = Vec::new();
        let mut push = |offset: u64, to: u64, kind| {
            if offset < to && out.len() < max {
                out.push(Extent { range: Range { offset, len: to - offset }, kind, target: 0 });
            }
            out.len() >= max
        };
        let gap = |from: u64, to: u64, push: &mut dyn FnMut(u64, u64, ExtentKind) -> bool| {
            let mut at = from;
            for r in self.reserved.within(Range { offset: from, len: to - from }) {
                if push(at, r.offset, ExtentKind::Hole) || push(r.offset, r.end(), ExtentKind::Allocated) {
                    return true;
                }
                at = r.end();
            }
            push(at, to, ExtentKind::Hole)
        };
        let mut at = range.offset;
        for data in self.written.within(range) {
            if gap(at, data.offset, &mut push) || push(data.offset, data.end(), ExtentKind::Data) {
                return out;
            }
            at = data.end();
        }
        gap(at, range.end(), &mut push);
        out
    }
}
