//! A target that keeps no bytes: what is written is counted and forgotten, what is read is zeros. Everything else (lengths,
//! epochs, seals, stages) is as with any target, so that what remains of an operation's cost is the way there and back.

use iov_types::{Capability, Extent, ObjectId, Persistence, Range, Result};

use crate::objects::{Body, Call, Medium, Objects, Shape};

/// Objects without bytes.
pub type Null = Objects<NullMedium>;

impl Null {
    /// An empty one.
    pub fn new(capability: Capability) -> Null {
        Objects::over(capability, NullMedium)
    }
}

/// Nowhere.
pub struct NullMedium;

impl Medium for NullMedium {
    type Body = NullBody;

    fn survives(&self) -> (Persistence, &str) {
        (Persistence::Volatile, "a store that keeps no bytes")
    }

    fn create(&self, _: ObjectId) -> NullBody {
        NullBody::default()
    }
}

/// An outline, and nothing in it.
#[derive(Default)]
pub struct NullBody(Shape);

impl Body for NullBody {
    fn size(&self) -> u64 {
        self.0.size
    }

    fn allocated(&self) -> u64 {
        0
    }

    fn shape(&self) -> Shape {
        self.0.clone()
    }

    fn extents(&self, range: Range, max: usize) -> Vec<Extent> {
        self.0.extents(range, max)
    }

    fn read(&self, _: Call<'_>, offset: u64, out: &mut [u8]) -> Result<usize> {
        let len = self.0.size.saturating_sub(offset).min(out.len() as u64) as usize;
        out[..len].fill(0);
        Ok(len)
    }

    fn write(&mut self, _: Call<'_>, offset: u64, data: &[u8]) -> Result<()> {
        self.0.write(Range::new(offset, data.len() as u64)?);
        Ok(())
    }

    fn truncate(&mut self, _: Call<'_>, size: u64) -> Result<()> {
        self.0.truncate(size);
        Ok(())
    }

    fn punch(&mut self, _: Call<'_>, range: Range) -> Result<()> {
        self.0.punch(range);
        Ok(())
    }

    fn allocate(&mut self, _: Call<'_>, range: Range, keep_size: bool) -> Result<()> {
        self.0.allocate(range, keep_size);
        Ok(())
    }

    fn remove(&mut self, _: Call<'_>) -> Result<()> {
        *self = NullBody::default();
        Ok(())
    }
}
