//! What a stage would make of an object, as ranges of bytes that change and a length: the form in which a backend takes it.

use iov_store::objects::{AppendKey, Change, Shape, Stage};
use iov_types::{ExtentKind, Range};

/// The outcome of a stage.
#[derive(Debug, PartialEq)]
pub(crate) struct Flat {
    /// Ranges whose bytes are not the base's any more, in order, none of them empty.
    pub(crate) ranges: Vec<Range>,
    /// The length, where it is shorter than the base and the ranges are.
    pub(crate) cut: Option<u64>,
    /// The length.
    pub(crate) size: u64,
    /// Where each append went.
    pub(crate) appended: Vec<(AppendKey, u64)>,
}

/// Lays the changes of a stage over a base of so many bytes.
pub(crate) fn flatten(staged: &Stage, base: u64) -> Flat {
    let mut touched = Shape::default();
    let (mut end, mut lowest) = (base, base);
    let mut appended = Vec::new();
    for change in staged.changes() {
        match change {
            Change::Write { offset, data } => {
                touched.write(Range { offset: *offset, len: data.len() as u64 });
                end = end.max(offset + data.len() as u64);
            }
            Change::Append { data, key } => {
                appended.extend(key.map(|key| (key, end)));
                touched.write(Range { offset: end, len: data.len() as u64 });
                end += data.len() as u64;
            }
            Change::Truncate { size } => {
                touched.truncate(*size);
                (end, lowest) = (*size, lowest.min(*size));
            }
            Change::Punch(range) => {
                if let Some(range) = range.intersect(&Range { offset: 0, len: end }) {
                    touched.write(range);
                }
            }
            Change::Allocate { range, keep_size: false } => end = end.max(range.end()),
            Change::Allocate { .. } => {}
        }
    }
    // What was cut off and is inside again is zeros, whatever the base has there.
    let back = base.min(end);
    if lowest < back {
        touched.write(Range { offset: lowest, len: back - lowest });
    }
    let last = |shape: &Shape| shape.extents(Range { offset: 0, len: i64::MAX as u64 }, usize::MAX);
    let reach = last(&touched).iter().filter(|e| e.kind == ExtentKind::Data).map(|e| e.range.end()).max().unwrap_or(0);
    if end > base.max(reach) {
        // It has grown without bytes: its last one makes it so long.
        touched.write(Range { offset: end - 1, len: 1 });
    }
    let data = last(&touched).into_iter().filter(|e| e.kind == ExtentKind::Data && e.range.len > 0);
    let ranges: Vec<Range> = data.map(|e| e.range).collect();
    let natural = base.max(ranges.last().map_or(0, Range::end));
    Flat { ranges, cut: (end < natural).then_some(end), size: end, appended }
}
