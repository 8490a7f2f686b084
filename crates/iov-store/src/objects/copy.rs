//! Copies between objects of one target, through memory, and around holes.

use iov_types::{Clause, Demand, Error, Evidence, ExtentKind, ObjectId, ObjectOp, ObjectVerb, Outcome, Range, Result};

use super::{Medium, Objects, object::Object};
use crate::{Memory, OpCx};

/// Most bytes that one `Copy` holds at a time, unless it is staged or its units are larger.
const COPY_PIECE: u64 = 1 << 20;
static ZERO: u8 = 0;

impl<M: Medium> Objects<M> {
    pub(super) fn copy(
        &self,
        cx: &OpCx,
        op: &ObjectOp,
        (source, from): (ObjectId, Range),
        to: Range,
    ) -> Result<Evidence> {
        if source == op.object && from.overlaps(&to) {
            return Err(Error::invalid("source and target of a copy overlap; copy through another object"));
        }
        let reader = Demand { stage: op.demand.stage, ..Demand::default() };
        let none = &mut Memory::default();
        let source = self.find(cx, source)?;
        let size = match &source {
            Some(source) => source.run(cx, &ObjectVerb::Stat, &reader, none, &self.budget)?.size,
            None => 0,
        };
        let len = size.saturating_sub(from.offset).min(to.len);
        let target = self.find_or_create(cx, op.object)?;
        target.may_write(cx, &op.demand, to.offset, len)?;
        let mut done = 0;
        // Whether something of it may be there already.
        let mut begun = false;
        let unknown = |e: Error, begun: bool| if begun { e.with_outcome(Outcome::Unknown) } else { e };
        loop {
            if begun && cx.left_ns() == 0 {
                let why = format!("the deadline passed after {done} of {len} bytes were copied");
                return Err(Error::timeout(why).with_clause(Clause::O8).with_outcome(Outcome::Unknown));
            }
            let hole = source.as_ref().filter(|_| op.demand.stage.is_none() && len - done >= COPY_PIECE);
            let hole = hole.map_or(Ok(0), |s| {
                let hole = self.hole_at(cx, s, Range { offset: from.offset + done, len: len - done })?;
                // Up to where a unit ends: the rest of it is written with what follows (M1).
                Ok(if hole < len - done { whole_units(&op.demand, to.offset + done, hole) } else { hole })
            });
            let hole = hole.map_err(|e| unknown(e, begun))?;
            if hole > 0 {
                // A hole stays one: as zeros it could be larger than all memory.
                let range = Range { offset: to.offset + done, len: hole };
                let punch = ObjectVerb::Punch(range);
                target.run(cx, &punch, &op.demand, none, &self.budget).map_err(|e| unknown(e, begun))?;
                begun = true;
                // SAFETY: the byte outlives the operation, which completes before `run` returns.
                let mut end = unsafe { Memory::readable(&raw const ZERO, 1) };
                let write = ObjectVerb::Write { offset: range.end() - 1 };
                let last = target.run(cx, &write, &op.demand, &mut end, &self.budget);
                let last = last.map_err(|e| unknown(e, begun))?;
                done += hole;
                if done >= len {
                    return Ok(Evidence { bytes: done, offset: to.offset, ..last });
                }
                continue;
            }
            let want = self.copy_piece(op, to.offset + done, len - done).map_err(|e| unknown(e, begun))?;
            let mut piece = Vec::new();
            let no_memory = |_| unknown(Error::exhausted("no memory to copy through"), begun);
            piece.try_reserve_exact(want).map_err(no_memory)?;
            piece.resize(want, 0);
            // SAFETY: `piece` outlives both operations, which complete before `run` returns.
            let mut memory = unsafe { Memory::writable(piece.as_mut_ptr(), want) };
            let read = ObjectVerb::Read { offset: from.offset + done };
            let got = match &source {
                Some(source) => source.run(cx, &read, &reader, &mut memory, &self.budget),
                None => Ok(Evidence::default()),
            };
            let written = got.and_then(|got| {
                // SAFETY: as above.
                let mut memory = unsafe { Memory::readable(piece.as_ptr(), got.bytes as usize) };
                let write = ObjectVerb::Write { offset: to.offset + done };
                target.run(cx, &write, &op.demand, &mut memory, &self.budget)
            });
            let last = written.map_err(|e| unknown(e, begun))?;
            begun = true;
            done += last.bytes;
            // Less than was wanted: the source was cut meanwhile.
            if done >= len || last.bytes < want as u64 {
                return Ok(Evidence { bytes: done, offset: to.offset, ..last });
            }
        }
    }

    /// How long the hole is at the beginning of a range, if it is worth a step of its own; else 0.
    fn hole_at(&self, cx: &OpCx, source: &Object<M::Body>, range: Range) -> Result<u64> {
        let verb = ObjectVerb::Extents { range, max: 1 };
        let found = source.run(cx, &verb, &Demand::default(), &mut Memory::default(), &self.budget)?;
        let first = found.extents.first().filter(|e| e.kind != ExtentKind::Data && e.range.offset <= range.offset);
        let len = first.map_or(0, |e| e.range.end().min(range.end()) - range.offset);
        Ok(if len >= COPY_PIECE { len } else { 0 })
    }

    /// How much to copy at once: all of it into a stage, which holds it anyway; else whole units (M1).
    fn copy_piece(&self, op: &ObjectOp, at: u64, left: u64) -> Result<usize> {
        let piece = if op.demand.stage.is_some() {
            if left > self.capability.stage_bytes {
                let why = format!("a stage holds {} bytes; copy less, or without a batch", self.capability.stage_bytes);
                return Err(Error::too_big(why).with_clause(Clause::B4));
            }
            left
        } else {
            let unit = op.demand.unit.max(1);
            let end = (at + COPY_PIECE.max(unit)) / unit * unit;
            left.min(end - at)
        };
        usize::try_from(piece).map_err(|_| Error::exhausted("no memory to copy through"))
    }
}

/// How much of a range that begins at `at` ends with a whole unit: what changes a unit changes all of it at once (M1).
pub(crate) fn whole_units(demand: &Demand, at: u64, len: u64) -> u64 {
    let unit = demand.unit.max(1);
    ((at + len) / unit * unit).saturating_sub(at)
}
