//! Where bytes are and where nothing is (`SEEK_DATA`, `SEEK_HOLE`).

use ioverbs::{ExtentKind, Op, Range};

use crate::{Errno, File, Outcome, file::extents_of};

/// Stretches that are looked at in the first request, as the next one is mostly what is looked for; and in one at most.
const FIRST: usize = 8;
const EXTENTS: usize = 1024;

/// What is looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seek {
    /// The next byte that somebody wrote.
    Data,
    /// The next that nobody did; the end of the file is one.
    Hole,
}

impl File {
    /// The next offset of that kind at or behind this one. `ENXIO`: there is none before the end.
    pub fn seek(&self, offset: u64, what: Seek) -> Outcome<u64> {
        let size = self.size()?;
        if offset >= size {
            return Err(Errno::ENXIO);
        }
        if self.joined().is_some_and(|handle| handle.is_stuck()) {
            // The store does not know them.
            return Ok(if what == Seek::Data { offset } else { size });
        }
        let (mut at, mut max) = (offset, FIRST);
        while at < size {
            let range = Range::new(at, size - at).map_err(|_| Errno::EOVERFLOW)?;
            let op = Op::Extents { c: self.collection()?.clone(), range, max };
            let status = self.node().file_system().run(op)?;
            let extents = extents_of(&status.output)?;
            let mut seen = at;
            for extent in extents {
                // What no extent tells of, nobody wrote.
                if what == Seek::Hole && extent.range.offset > seen {
                    return Ok(seen);
                }
                let is_data = extent.kind == ExtentKind::Data;
                if is_data == (what == Seek::Data) {
                    return Ok(extent.range.offset.max(offset));
                }
                seen = seen.max(extent.range.end());
            }
            if extents.len() < max {
                at = seen;
                break;
            }
            (at, max) = (seen, (max * 4).min(EXTENTS));
        }
        match what {
            Seek::Hole => Ok(at.min(size)),
            Seek::Data => Err(Errno::ENXIO),
        }
    }
}
