//! Looking at an object: its bytes, its facts, its holes.

use iov_store::{Memory, OpCx};
use iov_types::{Clause, Error, Evidence, ObjectId, ObjectOp, Range, Result};

use super::{Files, object::State};

impl Files {
    /// `Read`.
    pub(super) fn read(&self, cx: &OpCx, op: &ObjectOp, offset: u64, memory: &mut Memory) -> Result<Evidence> {
        if memory.bytes_mut().len() < memory.len() {
            return Err(Error::invalid("a read into memory that was lent for reading only"));
        }
        self.read_into(cx, op, offset, memory.bytes_mut())
    }

    pub(super) fn read_into(&self, cx: &OpCx, op: &ObjectOp, offset: u64, out: &mut [u8]) -> Result<Evidence> {
        let object = self.object(op.object);
        let state = object.read(self, cx, op.demand.stage)?;
        state.check_epoch(&op.demand)?;
        let base = state.size(self, object.id)?;
        let staged = state.stage(op.demand.stage)?;
        let bytes = match staged {
            Some(mut stage) => {
                let base_bytes = |at, out: &mut [u8]| self.read_base(&state, object.id, base, at, out);
                stage.read(&self.disk, base, offset, out, base_bytes)?
            }
            None => self.read_base(&state, object.id, base, offset, out)?,
        };
        if op.demand.once && state.exists {
            state.data(&self.disk, object.id)?.forget(Range { offset, len: bytes as u64 });
        }
        Ok(Evidence { bytes: bytes as u64, offset, ..state.evidence(self, object.id, op.demand.stage)? })
    }

    /// Fills from an object of `size` bytes, short at its end.
    fn read_base(&self, state: &State, id: ObjectId, size: u64, offset: u64, out: &mut [u8]) -> Result<usize> {
        let len = size.saturating_sub(offset).min(out.len() as u64) as usize;
        if len == 0 {
            return Ok(0);
        }
        if state.kept.is_kept() {
            return self.read_kept(id, state, size, offset, &mut out[..len]).map(|()| len);
        }
        state.data(&self.disk, id)?.read(&mut out[..len], offset)
    }

    /// `Stat`.
    pub(super) fn stat(&self, cx: &OpCx, op: &ObjectOp) -> Result<Evidence> {
        let object = self.object(op.object);
        let state = object.read(self, cx, op.demand.stage)?;
        state.check_epoch(&op.demand)?;
        state.evidence(self, object.id, op.demand.stage)
    }

    /// `Extents`.
    pub(super) fn extents(&self, cx: &OpCx, op: &ObjectOp, range: Range, max: usize) -> Result<Evidence> {
        let object = self.object(op.object);
        let state = object.read(self, cx, op.demand.stage)?;
        state.check_epoch(&op.demand)?;
        let base = state.size(self, object.id)?;
        let base_extents = |range: Range| match state.exists {
            true => state.data(&self.disk, object.id)?.extents(range, base, max.saturating_add(1)),
            false => Ok(Vec::new()),
        };
        let extents = match state.stage(op.demand.stage)? {
            Some(mut stage) => stage.extents(&self.disk, base, range, max, base_extents)?,
            None => {
                let mut extents = base_extents(range)?;
                extents.truncate(max);
                extents
            }
        };
        Ok(Evidence { extents, ..state.evidence(self, object.id, op.demand.stage)? })
    }

    /// `List`: in order, at most `max`, behind `after`.
    pub(super) fn list(&self, after: Option<ObjectId>, max: usize) -> Result<Evidence> {
        let objects = self.listing.page(self, after, max)?;
        Ok(Evidence { objects, ..Evidence::default() })
    }
}

impl State {
    /// Refuses direct access where somebody who looks past our lock could see or do what must not be.
    pub(super) fn check_direct(&self, write: bool) -> Result<()> {
        let why = if !self.exists {
            "there is no file yet"
        } else if self.unit {
            "its units change as a whole"
        } else if write && self.appends.is_some() {
            "its end is where the appends say"
        } else {
            return Ok(());
        };
        Err(Error::unsupported(format!("no direct access to this collection now, as {why}; use the socket"))
            .with_clause(Clause::G6))
    }
}
