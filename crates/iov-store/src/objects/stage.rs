//! Changes that wait for their publication, kept as they were asked for and replayed in order.
//!
//! A list, not a merged image: an append gets its offset only at point P (B3), and others may have changed the base
//! meanwhile without losing anything to us (X3).

use std::collections::{BTreeMap, HashMap};

use iov_types::{Clause, Demand, Error, Persistence, Range, Result};

use super::{AppendKey, Body, Call, shape::Shape};
use crate::{Overlay, PieceSource};

/// A change that changes something: none is of zero bytes.
#[allow(missing_docs)] // each is the verb of the same name
pub enum Change {
    Write { offset: u64, data: Vec<u8> },
    Append { data: Vec<u8>, key: Option<AppendKey> },
    Truncate { size: u64 },
    Punch(Range),
    Allocate { range: Range, keep_size: bool },
}

impl Change {
    /// What it counts against the room of its stage: the bytes, and the list entry that holds them.
    pub(super) fn cost(&self) -> u64 {
        let data = match self {
            Change::Write { data, .. } | Change::Append { data, .. } => data.len(),
            Change::Truncate { .. } | Change::Punch(_) | Change::Allocate { .. } => 0,
        };
        (data + size_of::<Change>()) as u64
    }
}

/// Where the newest bytes of a stage lie.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Laid {
    /// Nowhere: they are zero.
    Zero,
    /// In the data of a change, from `within` on.
    Of { change: usize, within: u64 },
}

impl PieceSource for Laid {
    fn after(self, n: u64) -> Laid {
        match self {
            Laid::Zero => Laid::Zero,
            Laid::Of { change, within } => Laid::Of { change, within: within + n },
        }
    }
}

/// What one batch or publication would change of one object, in the order in which it was asked for.
#[derive(Default)]
pub struct Stage {
    changes: Vec<Change>,
    /// Where the newest bytes lie, as long as that does not hang on the base: appends go to where that ends.
    laid: Overlay<Laid>,
    hangs_on_base: bool,
    cost: u64,
    /// The changes turn a length `b` into the larger of `b + grown` (while `grown` is there) and `least`.
    cut: bool,
    grown: u64,
    least: u64,
    /// Appends staged here, and the offset that was told for each.
    appended: HashMap<AppendKey, u64>,
    /// Where appends went that are replayed already.
    shown: Vec<(AppendKey, u64)>,
    max_size: u64,
    /// What all of it must survive once it is published.
    durability: Option<Persistence>,
}

impl Stage {
    /// Adds a change; `max_size` is the limit that it came with.
    pub fn push(&mut self, change: Change, offset: u64, max_size: u64) {
        self.cost += change.cost();
        if max_size != 0 {
            self.max_size = max_size;
        }
        self.lay(&change);
        match &change {
            Change::Write { offset, data } => self.least = self.least.max(offset + data.len() as u64),
            Change::Append { data, key } => {
                self.grown += data.len() as u64;
                self.least += data.len() as u64;
                self.appended.extend(key.map(|k| (k, offset)));
            }
            Change::Truncate { size } => (self.cut, self.grown, self.least) = (true, 0, *size),
            Change::Allocate { range, keep_size: false } => self.least = self.least.max(range.end()),
            Change::Punch(_) | Change::Allocate { .. } => {}
        }
        self.changes.push(change);
    }

    fn lay(&mut self, change: &Change) {
        match change {
            Change::Write { offset, data } => {
                let of = Laid::Of { change: self.changes.len(), within: 0 };
                self.laid.lay(Range { offset: *offset, len: data.len() as u64 }, of);
            }
            Change::Append { .. } => self.hangs_on_base = true,
            Change::Truncate { size } => self.laid.lay(behind(*size), Laid::Zero),
            Change::Punch(range) => self.laid.lay(*range, Laid::Zero),
            Change::Allocate { .. } => {}
        }
    }

    /// It must survive this, or what was asked for before if that is more.
    pub(super) fn must_survive(&mut self, level: Option<Persistence>) {
        self.durability = self.durability.max(level);
    }

    /// A demand, raised to what it must survive.
    pub(super) fn demand(&self, demand: &Demand) -> Demand {
        Demand { durability: demand.durability.max(self.durability), ..demand.clone() }
    }

    /// What it must survive once it is published.
    pub fn durability(&self) -> Option<Persistence> {
        self.durability
    }

    /// What it counts against its room.
    pub(super) fn cost(&self) -> u64 {
        self.cost
    }

    /// The changes, the first one first.
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// Whether nothing was staged.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Where an append already lies, as far as it was told.
    pub(super) fn appended(&self, key: &AppendKey) -> Option<u64> {
        self.appended.get(key).copied()
    }

    /// The size that the base will have.
    pub fn size(&self, base: u64) -> u64 {
        if self.cut { self.least } else { self.least.max(base.saturating_add(self.grown)) }
    }

    /// Reads as if it were published.
    pub fn read(&self, base: &(impl Body + ?Sized), call: Call<'_>, offset: u64, out: &mut [u8]) -> Result<usize> {
        let size = self.size(base.size());
        let len = size.saturating_sub(offset).min(out.len() as u64) as usize;
        let out = &mut out[..len];
        let have = base.read(call, offset, out)?;
        out[have..].fill(0);
        let window = Range { offset, len: len as u64 };
        if !self.hangs_on_base {
            self.read_laid(window, out);
            return Ok(len);
        }
        let mut lay = |at: u64, data: &[u8]| {
            if let Some(r) = window.intersect(&Range { offset: at, len: data.len() as u64 }) {
                let (to, from) = ((r.offset - offset) as usize, (r.offset - at) as usize);
                out[to..to + r.len as usize].copy_from_slice(&data[from..from + r.len as usize]);
            }
        };
        let zeros = |lay: &mut dyn FnMut(u64, &[u8]), range: Range| {
            if let Some(r) = window.intersect(&range) {
                lay(r.offset, &vec![0; r.len as usize]);
            }
        };
        let mut end = base.size();
        for change in &self.changes {
            match change {
                Change::Write { offset, data } => {
                    lay(*offset, data);
                    end = end.max(offset + data.len() as u64);
                }
                Change::Append { data, .. } => {
                    lay(end, data);
                    end = end.saturating_add(data.len() as u64);
                }
                Change::Truncate { size } => {
                    // What lies behind a cut is gone, also when the object grows again later.
                    zeros(&mut lay, behind(*size));
                    end = *size;
                }
                Change::Punch(range) => zeros(&mut lay, *range),
                Change::Allocate { range, keep_size: false } => end = end.max(range.end()),
                Change::Allocate { .. } => {}
            }
        }
        Ok(len)
    }

    /// Lays what is staged of a range over `out`, which is as long.
    fn read_laid(&self, window: Range, out: &mut [u8]) {
        for (piece, source) in self.laid.cover(window) {
            let out = &mut out[(piece.offset - window.offset) as usize..][..piece.len as usize];
            match source {
                None => {}
                Some(Laid::Zero) => out.fill(0),
                Some(Laid::Of { change, within }) => {
                    if let Some(Change::Write { data, .. }) = self.changes.get(change) {
                        out.copy_from_slice(&data[within as usize..][..out.len()]);
                    }
                }
            }
        }
    }

    /// The outline that the base would have.
    pub(super) fn shape(&self, base: Shape) -> Shape {
        let mut shape = base;
        for change in &self.changes {
            match change {
                Change::Write { offset, data } => shape.write(Range { offset: *offset, len: data.len() as u64 }),
                Change::Append { data, .. } => shape.write(Range { offset: shape.size, len: data.len() as u64 }),
                Change::Truncate { size } => shape.truncate(*size),
                Change::Punch(range) => shape.punch(*range),
                Change::Allocate { range, keep_size } => shape.allocate(*range, *keep_size),
            }
        }
        shape
    }

    /// Leaves out appends that were published meanwhile through another stage, or without any: each appears once (M4).
    pub(super) fn drop_repeated(&mut self, appended: &BTreeMap<AppendKey, u64>) {
        let repeated = |c: &Change| matches!(c, Change::Append { key: Some(key), .. } if appended.contains_key(key));
        if !self.changes.iter().any(repeated) {
            return;
        }
        let changes = std::mem::take(&mut self.changes);
        self.begin_again(changes.into_iter().filter(|c| !repeated(c)));
    }

    /// Is from now on the stage of these changes, which are of its own.
    fn begin_again(&mut self, changes: impl Iterator<Item = Change>) {
        let old = std::mem::take(self);
        for change in changes {
            let told = match &change {
                Change::Append { key: Some(key), .. } => old.appended.get(key).copied(),
                _ => None,
            };
            self.push(change, told.unwrap_or(0), old.max_size);
        }
        self.max_size = old.max_size;
        self.cost = old.cost; // what was taken for it is given back at the end
        self.durability = old.durability;
        self.appended.extend(old.shown.iter().copied());
        self.shown = old.shown;
    }

    /// Checks what others have done to the base meanwhile against the limit (H1).
    pub(super) fn check_size(&self, base: u64) -> Result<()> {
        let end = self.size(base);
        if self.max_size != 0 && end > self.max_size && end > base {
            return Err(Error::file_too_big(format!(
                "the object has grown meanwhile: published, it would have {end} bytes, and collection_size.max is {}",
                self.max_size
            ))
            .with_clause(Clause::H1));
        }
        Ok(())
    }

    /// Makes room in the base for all of it: after point P nothing may fail (B3).
    pub(crate) fn make_room(&self, base: &mut (impl Body + ?Sized)) -> Result<()> {
        let mut end = base.size();
        for change in &self.changes {
            match change {
                Change::Write { offset, data } => {
                    let range = Range { offset: *offset, len: data.len() as u64 };
                    base.reserve(range)?;
                    end = end.max(range.end());
                }
                Change::Append { data, .. } => {
                    let range = Range::new(end, data.len() as u64)?;
                    base.reserve(range)?;
                    end = range.end();
                }
                Change::Truncate { size } => end = *size,
                Change::Allocate { range, keep_size } => {
                    base.reserve_space(*range)?;
                    if !keep_size {
                        end = end.max(range.end());
                    }
                }
                Change::Punch(_) => {}
            }
        }
        Ok(())
    }

    /// Replays everything on the base; where appends went. After an error it goes on with what failed: what came before is shown,
    /// and not done again.
    pub(crate) fn replay(&mut self, base: &mut (impl Body + ?Sized), call: Call<'_>) -> Result<Vec<(AppendKey, u64)>> {
        let mut rest = std::mem::take(&mut self.changes).into_iter();
        while let Some(change) = rest.next() {
            if let Err(e) = self.replay_one(&change, base, call) {
                self.begin_again(std::iter::once(change).chain(rest));
                return Err(e);
            }
        }
        Ok(std::mem::take(&mut self.shown))
    }

    fn replay_one(&mut self, change: &Change, base: &mut (impl Body + ?Sized), call: Call<'_>) -> Result<()> {
        match change {
            Change::Write { offset, data } => base.write(call, *offset, data),
            Change::Append { data, key } => {
                let offset = base.append(call, data, *key)?;
                self.shown.extend(key.map(|k| (k, offset)));
                Ok(())
            }
            Change::Truncate { size } => base.truncate(call, *size),
            Change::Punch(range) => base.punch(call, *range),
            Change::Allocate { range, keep_size } => base.allocate(call, *range, *keep_size),
        }
    }
}

/// All that may lie behind an end.
fn behind(size: u64) -> Range {
    Range { offset: size, len: (i64::MAX as u64).saturating_sub(size) }
}
