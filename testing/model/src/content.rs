//! The bytes of an object, each with what it is: the plainest way to say what the verbs mean.

use iov_types::{Extent, ExtentKind, Range};

/// What a byte is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mark {
    Hole,
    Data,
    Reserved,
}

/// Bytes up to the end, and marks up to wherever somebody has left one.
#[derive(Clone, Default)]
pub(crate) struct Content {
    pub(crate) bytes: Vec<u8>,
    marks: Vec<Mark>,
}

fn span(range: Range) -> std::ops::Range<usize> {
    range.offset as usize..range.end() as usize
}

impl Content {
    pub(crate) fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn grow(&mut self, to: usize) {
        if to > self.bytes.len() {
            self.bytes.resize(to, 0);
        }
        self.grow_marks(to);
    }

    fn grow_marks(&mut self, to: usize) {
        if to > self.marks.len() {
            self.marks.resize(to, Mark::Hole);
        }
    }

    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        let span = span(Range { offset, len: data.len() as u64 });
        self.grow(span.end);
        self.bytes[span.clone()].copy_from_slice(data);
        self.marks[span].fill(Mark::Data);
    }

    pub(crate) fn truncate(&mut self, size: u64) {
        if size < self.size() {
            self.marks.truncate(size as usize);
        }
        self.bytes.resize(size as usize, 0);
        self.grow_marks(size as usize);
    }

    pub(crate) fn punch(&mut self, range: Range) {
        let clip = |len: usize| (range.offset as usize).min(len)..(range.end() as usize).min(len);
        let (bytes, marks) = (clip(self.bytes.len()), clip(self.marks.len()));
        self.bytes[bytes].fill(0);
        self.marks[marks].fill(Mark::Hole);
    }

    pub(crate) fn allocate(&mut self, range: Range, keep_size: bool) {
        if range.len == 0 {
            return;
        }
        let span = span(range);
        self.grow_marks(span.end);
        for mark in &mut self.marks[span.clone()] {
            if *mark == Mark::Hole {
                *mark = Mark::Reserved;
            }
        }
        if !keep_size {
            self.grow(span.end);
        }
    }

    pub(crate) fn read(&self, offset: u64, len: usize) -> Vec<u8> {
        let from = (offset.min(self.size())) as usize;
        self.bytes[from..self.bytes.len().min(from.saturating_add(len))].to_vec()
    }

    pub(crate) fn extents(&self, range: Range, max: usize) -> Vec<Extent> {
        let end = range.end().min(self.size()) as usize;
        let (mut at, mut out) = ((range.offset as usize).min(end), Vec::new());
        while at < end && out.len() < max {
            let mark = self.marks[at];
            let len = self.marks[at..end].iter().position(|m| *m != mark).unwrap_or(end - at);
            let kind = match mark {
                Mark::Hole => ExtentKind::Hole,
                Mark::Data => ExtentKind::Data,
                Mark::Reserved => ExtentKind::Allocated,
            };
            out.push(Extent { range: Range { offset: at as u64, len: len as u64 }, kind, target: 0 });
            at += len;
        }
        out
    }
}
