//! What staged changes make of a base: which bytes it would have, and how long it would be.

use iov_store::Overlay;
use iov_types::Range;

use super::{
    log::{Kind, Record},
    source::Source,
};
use crate::files::appends::Key;

/// Staged changes as they would look on a base of a certain length.
#[derive(Default)]
pub(super) struct View {
    pub(super) overlay: Overlay<Source>,
    /// Where the next append would go.
    pub(super) end: u64,
    /// Space asked for, and not given back since.
    pub(super) reserved: Vec<Range>,
    /// Staged appends, and where they are.
    pub(super) appended: Vec<(Key, u64)>,
}

impl View {
    pub(super) fn change(&mut self, place: u64, record: &Record) {
        let range = record.range;
        let logged = Source::Log { record: place, within: 0 };
        match record.kind {
            Kind::Write { image } => {
                self.overlay.lay(range, if image { Source::Image } else { logged });
                self.end = self.end.max(range.end());
            }
            Kind::Append => {
                let at = Range { offset: self.end, len: range.len };
                self.overlay.lay(at, logged);
                self.appended.extend(record.key.map(|key| (key, at.offset)));
                self.end = at.end();
            }
            Kind::Truncate => {
                // What lies behind a cut is gone, also when the object grows again later.
                let cut = Range { offset: range.offset, len: i64::MAX as u64 - range.offset };
                self.overlay.lay(cut, Source::Zero);
                self.reserved.retain(|r| r.offset < cut.offset);
                self.end = range.offset;
            }
            Kind::Punch => {
                self.overlay.lay(range, Source::Zero);
                self.reserved.retain(|r| !r.overlaps(&range));
            }
            Kind::Allocate { keep_size } => {
                self.reserved.push(range);
                if !keep_size {
                    self.end = self.end.max(range.end());
                }
            }
            Kind::Plan | Kind::Decided => {}
        }
    }
}

/// What the changes do to the length of a base: a length `b` becomes the larger of `b + grown` (unless it was cut) and
/// `least`.
#[derive(Default)]
pub(super) struct Growth {
    cut: bool,
    grown: u64,
    least: u64,
    pub(super) has_appends: bool,
}

impl Growth {
    pub(super) fn change(&mut self, record: &Record) {
        let range = record.range;
        match record.kind {
            Kind::Write { .. } | Kind::Allocate { keep_size: false } => self.least = self.least.max(range.end()),
            Kind::Append => {
                self.grown += range.len;
                self.least += range.len;
                self.has_appends = true;
            }
            Kind::Truncate => (self.cut, self.grown, self.least) = (true, 0, range.offset),
            _ => {}
        }
    }

    pub(super) fn size(&self, base: u64) -> u64 {
        if self.cut { self.least } else { self.least.max(base.saturating_add(self.grown)) }
    }
}
