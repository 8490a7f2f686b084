//! Copies between objects of the target.

use iov_store::OpCx;
use iov_types::{Clause, Demand, Error, Evidence, ObjectId, ObjectOp, ObjectVerb, Outcome, Range, Result};

use super::{Files, change::is_durable, io, object::State};

/// Most bytes copied while both objects are held.
const PIECE: u64 = 64 << 20;

impl Files {
    /// `Copy`: less only at the source's end.
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
        let look = |verb| ObjectOp {
            object: source,
            verb,
            demand: Demand { stage: op.demand.stage, once: op.demand.once, ..Demand::default() },
        };
        let size = self.stat(cx, &look(ObjectVerb::Stat))?.size;
        let len = size.saturating_sub(from.offset).min(to.len);
        self.may_write(cx, op, to.offset, len)?;
        let mut done = 0;
        loop {
            let copied = match self.copy_within(source, from.offset + done, op, to.offset + done, len - done)? {
                Some(evidence) => Ok(evidence),
                None => {
                    let want = copy_piece(op, to.offset + done, len - done);
                    let mut piece = vec![0; want as usize];
                    let read = look(ObjectVerb::Read { offset: from.offset + done });
                    self.read_into(cx, &read, from.offset + done, &mut piece).and_then(|got| {
                        let write = ObjectVerb::Write { offset: to.offset + done };
                        let write = ObjectOp { verb: write, ..op.clone() };
                        self.change(cx, &write, &piece[..got.bytes as usize])
                    })
                }
            };
            let last = match copied {
                Err(e) if done > 0 => return Err(e.with_outcome(Outcome::Unknown)),
                other => other?,
            };
            done += last.bytes;
            // Nothing more: all is done, or the source was cut meanwhile.
            if done >= len || last.bytes == 0 {
                return Ok(Evidence { bytes: done, offset: to.offset, ..last });
            }
        }
    }

    /// Whether a write of `len` bytes at `offset` would be admitted now.
    fn may_write(&self, cx: &OpCx, op: &ObjectOp, offset: u64, len: u64) -> Result<()> {
        let object = self.object(op.object);
        let state = object.read(self, cx, op.demand.stage)?;
        state.check_change(&object, &op.demand)?;
        let base = state.size(self, object.id)?;
        let before = state.stage(op.demand.stage)?.map_or(base, |s| s.size(base));
        State::check_room(self, &ObjectVerb::Write { offset }, len, &op.demand, before)?;
        if op.demand.stage.is_some() && len > self.capability.stage_bytes {
            let why = format!("a stage holds {} bytes; copy less, or without a batch", self.capability.stage_bytes);
            return Err(Error::too_big(why).with_clause(Clause::B4));
        }
        Ok(())
    }

    /// Lets the kernel copy where both objects are plain files and can be held together at once; `None` if not.
    fn copy_within(
        &self,
        source: ObjectId,
        at: u64,
        op: &ObjectOp,
        offset: u64,
        left: u64,
    ) -> Result<Option<Evidence>> {
        if op.demand.stage.is_some() || op.demand.unit > 0 || source == op.object || left == 0 {
            return Ok(None);
        }
        let (source, target) = (self.object(source), self.object(op.object));
        // Without waiting: two copies in opposite directions must not wait for each other.
        let (Some(from), Some(to)) = (source.try_read(), target.try_read()) else { return Ok(None) };
        // What is damaged in the source must not get a good checksum in the target.
        let kept = from.kept.is_kept() || to.kept.is_guarded() || (is_durable(&op.demand) && self.sums.is_kept());
        if kept || !from.exists || !to.exists || to.appends.is_some() || from.removed || to.removed {
            return Ok(None);
        }
        from.check_epoch(&Demand::default())?;
        to.check_change(&target, &op.demand)?;
        let len = from.size(self, source.id)?.saturating_sub(at).min(left).min(PIECE);
        State::check_room(self, &ObjectVerb::Write { offset }, len, &op.demand, to.size(self, target.id)?)?;
        let bodies = (from.data(&self.disk, source.id)?, to.data(&self.disk, target.id)?);
        let bytes = bodies.1.copy_from(&bodies.0, at, offset, len)?;
        self.settle(&target, &to, &op.demand, Some(Range { offset, len: bytes }))
            .map_err(|e| e.with_outcome(Outcome::Unknown))?;
        let mut evidence = to.evidence(self, target.id, None)?;
        evidence.durability = evidence.durability.max(op.demand.durability);
        Ok(Some(Evidence { bytes, offset, ..evidence }))
    }
}

/// How much goes through memory at once: whole units (M1).
fn copy_piece(op: &ObjectOp, at: u64, left: u64) -> u64 {
    let unit = op.demand.unit.max(1);
    let end = (at + (io::PIECE as u64).max(unit)) / unit * unit;
    left.min(end - at)
}
