//! What an [`Objects`](super::Objects) target asks of the place where its bytes lie.

use iov_types::{Demand, Error, Evidence, Extent, ObjectId, Persistence, Range, Result, Uuid};

use super::{shape::Shape, stage::Stage};
use crate::OpCx;

/// Batch id and sequence number: the identity of an append (M4).
pub type AppendKey = (Uuid, u64);

/// Who asks a body for something, and what must be fulfilled with it.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    /// Until when.
    pub cx: &'a OpCx,
    /// What is demanded. Epochs, stages and limits have been looked at already; `durability` is the body's affair.
    pub demand: &'a Demand,
}

/// Room of a medium, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Space {
    /// All of it.
    pub bytes: u64,
    /// What is taken.
    pub taken: u64,
}

/// A place for bytes. It knows nothing of stages, freezes, epochs or seals, unless it keeps them by itself, for another process
/// after this one.
pub trait Medium: Send + Sync + 'static {
    /// The bytes of one object there.
    type Body: Body;

    /// The strongest level that they can survive, and what to say of the place to whom it is not enough.
    fn survives(&self) -> (Persistence, &str);

    /// The body of an object that is not there yet.
    fn create(&self, id: ObjectId) -> Self::Body;

    /// The body of an object that another process has left here.
    fn find(&self, _cx: &OpCx, _id: ObjectId) -> Result<Option<Self::Body>> {
        Ok(None)
    }

    /// What there is behind `after`, at most `max`; `None`: only what this process has made.
    fn list(&self, _cx: &OpCx, _after: Option<ObjectId>, _max: usize) -> Result<Option<Vec<ObjectId>>> {
        Ok(None)
    }

    /// How much room there is; `None`: no bounds of its own.
    fn space(&self) -> Option<Space> {
        None
    }

    /// Drops what a process before has prepared for publication, but for the stages to keep; what could not be done.
    fn settle(&self, _cx: &OpCx, _keep: &[Uuid]) -> Vec<Error> {
        Vec::new()
    }

    /// What a process before has prepared for publication, and nobody has ended yet.
    fn prepared(&self) -> Vec<(ObjectId, Uuid)> {
        Vec::new()
    }

    /// Whether bodies can be found again, so that objects which nobody uses need no memory.
    fn keeps(&self) -> bool {
        false
    }
}

/// The bytes of one object. What was never written reads as zeros (O6).
pub trait Body: Send + Sync {
    /// How many there are.
    fn size(&self) -> u64;

    /// Space that they take.
    fn allocated(&self) -> u64;

    /// What of them was written or reserved.
    fn shape(&self) -> Shape;

    /// See [`Shape::extents`].
    fn extents(&self, range: Range, max: usize) -> Vec<Extent> {
        self.shape().extents(range, max)
    }

    /// Fills `out` from `offset` on, and tells how much; short only at the end.
    fn read(&self, call: Call<'_>, offset: u64, out: &mut [u8]) -> Result<usize>;

    /// Makes room, so that a write to the range cannot fail half-way. Changes nothing that a reader sees.
    fn reserve(&mut self, _range: Range) -> Result<()> {
        Ok(())
    }

    /// Makes room for a whole range at the caller's wish.
    fn reserve_space(&mut self, range: Range) -> Result<()> {
        self.reserve(range)
    }

    /// Stores bytes.
    fn write(&mut self, call: Call<'_>, offset: u64, data: &[u8]) -> Result<()>;

    /// Stores bytes at the end; where they went. One that came before with the same key went where it went then.
    fn append(&mut self, call: Call<'_>, data: &[u8], _key: Option<AppendKey>) -> Result<u64> {
        let offset = self.size();
        self.write(call, offset, data).map(|()| offset)
    }

    /// Cuts, or extends with a hole.
    fn truncate(&mut self, call: Call<'_>, size: u64) -> Result<()>;

    /// Makes a range a hole.
    fn punch(&mut self, call: Call<'_>, range: Range) -> Result<()>;

    /// Reserves space.
    fn allocate(&mut self, call: Call<'_>, range: Range, keep_size: bool) -> Result<()>;

    /// Makes sure that [`Body::publish`] of this stage cannot fail any more.
    fn prepare(&mut self, _call: Call<'_>, _id: Uuid, staged: &Stage) -> Result<()> {
        staged.make_room(self)
    }

    /// Carries out what is staged, and takes it out of the stage. Where each append went comes back. A stage that is left as it
    /// was by an error can be published again.
    fn publish(&mut self, call: Call<'_>, _id: Uuid, staged: &mut Stage) -> Result<Vec<(AppendKey, u64)>> {
        staged.replay(self, call)
    }

    /// A stage of which this process knows nothing is published: it may be one of a process before. Whether it was.
    fn settle(&mut self, _call: Call<'_>, _id: Uuid) -> Result<bool> {
        Ok(false)
    }

    /// A stage is dropped that may have been prepared.
    fn unprepare(&mut self, _call: Call<'_>, _id: Uuid) -> Result<()> {
        Ok(())
    }

    /// Makes what was acknowledged survive what is demanded.
    fn sync(&mut self, _call: Call<'_>) -> Result<()> {
        Ok(())
    }

    /// Refuses every later change, also in processes to come.
    fn seal(&mut self, _call: Call<'_>) -> Result<()> {
        Ok(())
    }

    /// Raises the epoch, also for processes to come.
    fn fence(&mut self, _call: Call<'_>, _epoch: u64) -> Result<()> {
        Ok(())
    }

    /// Makes the object, empty, if the medium lists it from then on.
    fn create(&mut self, _call: Call<'_>) -> Result<()> {
        Ok(())
    }

    /// Gives everything back. Afterwards it is empty.
    fn remove(&mut self, call: Call<'_>) -> Result<()>;

    /// Version, epoch and time of the last change that a process before has left.
    fn earlier(&self) -> Evidence {
        Evidence::default()
    }
}
