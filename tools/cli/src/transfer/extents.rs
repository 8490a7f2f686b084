//! Where data lies, in local files and in collections, so that holes stay holes.

use std::{fs::File, os::unix::fs::FileExt};

use ioverbs::{Collection, ExtentKind, Kind, Op, Output, Range, Result};
use rustix::{
    fs::{SeekFrom, seek},
    io::Errno,
};

/// The stretches of a local file that hold data. A file system that cannot say so holds data everywhere.
pub(crate) fn of_file(file: &File, size: u64) -> Result<Vec<Range>> {
    let mut out = Vec::new();
    let mut at = 0;
    while at < size {
        let from = match seek(file, SeekFrom::Data(at)) {
            Ok(from) => from,
            Err(Errno::NXIO) => break,
            Err(_) => {
                out.push(Range::new(at, size - at)?);
                break;
            }
        };
        if from >= size {
            break;
        }
        let to = seek(file, SeekFrom::Hole(from)).unwrap_or(size).clamp(from + 1, size);
        out.push(Range::new(from, to - from)?);
        at = to;
    }
    Ok(out)
}

/// Extents that one request asks for.
const PAGE: usize = 4096;

/// The stretches of a part of a collection that hold data. A store that cannot say so holds data everywhere.
pub(crate) fn of_collection(c: &Collection, from: u64, to: u64) -> Result<Vec<Range>> {
    let mut out = Vec::new();
    let mut at = from;
    while at < to {
        let op = Op::Extents { c: c.clone(), range: Range::new(at, to - at)?, max: PAGE };
        let page = match ioverbs::run(c.session(), op) {
            Err(e) if e.kind() == Kind::Unsupported => {
                out.push(Range::new(at, to - at)?);
                break;
            }
            status => match status?.output {
                Output::Extents(page) => page,
                _ => break,
            },
        };
        let full = page.len() == PAGE;
        for extent in page {
            let range = extent.range;
            // What lies outside of the question, or goes backwards, was not asked for and must not lead in circles.
            if range.end() <= at {
                continue;
            }
            let start = range.offset.max(at);
            let end = range.end().min(to);
            if extent.kind == ExtentKind::Data && start < end {
                out.push(Range::new(start, end - start)?);
            }
            at = at.max(end);
        }
        if !full {
            break;
        }
    }
    Ok(out)
}

/// The sum of some ranges.
pub(crate) fn sum(ranges: &[Range]) -> u64 {
    ranges.iter().map(|r| r.len).sum()
}

/// Cuts ranges into pieces, one after the other.
pub(crate) struct Pieces {
    ranges: std::vec::IntoIter<Range>,
    rest: Option<Range>,
    piece: u64,
}

impl Pieces {
    /// Pieces of at most `piece` bytes, each ending at a multiple of that, so that requests are aligned.
    pub(crate) fn new(ranges: Vec<Range>, piece: usize) -> Pieces {
        Pieces { ranges: ranges.into_iter(), rest: None, piece: piece.max(1) as u64 }
    }
}

impl Iterator for Pieces {
    type Item = Range;

    fn next(&mut self) -> Option<Range> {
        let range = match self.rest.take() {
            Some(range) => range,
            None => self.ranges.find(|r| r.len > 0)?,
        };
        let boundary = (range.offset / self.piece + 1) * self.piece;
        let end = boundary.min(range.end());
        if end < range.end() {
            self.rest = Some(Range { offset: end, len: range.end() - end });
        }
        Some(Range { offset: range.offset, len: end - range.offset })
    }
}

/// Reads a piece of a local file whole; `false`: the file has become shorter.
pub(crate) fn read_whole(file: &File, offset: u64, buf: &mut [u8]) -> std::io::Result<bool> {
    match file.read_exact_at(buf, offset) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => Ok(false),
        Err(e) => Err(e),
    }
}
