//! A target on the heap of this process: volatile, gone with the process; every promise but survival holds.

mod body;

#[cfg(test)]
pub(crate) mod fixture;
#[cfg(test)]
mod tests;

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use iov_types::{Capability, Error, ObjectId, Persistence, Result};

use crate::objects::{Medium, Objects, Space};
use body::HeapBody;

/// Objects on the heap.
pub type Heap = Objects<HeapMedium>;

impl Heap {
    /// An empty heap that claims this capability, as large as memory is; the levels of survival beyond `volatile` are refused
    /// all the same.
    pub fn new(capability: Capability) -> Heap {
        Heap::limited(capability, u64::MAX)
    }

    /// As [`Heap::new`], for at most so many bytes, counted as its pages take them.
    pub fn limited(capability: Capability, bytes: u64) -> Heap {
        Objects::over(capability, HeapMedium(Arc::new(Room { bytes, taken: AtomicU64::new(0) })))
    }
}

/// Memory of this process.
pub struct HeapMedium(Arc<Room>);

impl Medium for HeapMedium {
    type Body = HeapBody;

    fn survives(&self) -> (Persistence, &str) {
        (Persistence::Volatile, "memory of this process")
    }

    fn space(&self) -> Option<Space> {
        Some(Space { bytes: self.0.bytes, taken: self.0.taken.load(Ordering::Relaxed) })
    }

    fn create(&self, _: ObjectId) -> HeapBody {
        HeapBody::new(self.0.clone())
    }
}

/// How much may be taken, and is.
struct Room {
    bytes: u64,
    taken: AtomicU64,
}

impl Room {
    fn take(&self, more: u64) -> Result<()> {
        let fits = |taken: u64| taken.checked_add(more).filter(|taken| *taken <= self.bytes);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).map(drop).map_err(|taken| {
            Error::exhausted(format!(
                "the heap store has {} bytes, of which {taken} are taken, and {more} more are needed: remove something (iov \
                 df shows how much there is), or make a larger one",
                self.bytes
            ))
        })
    }

    fn give(&self, less: u64) {
        self.taken.fetch_sub(less, Ordering::Relaxed);
    }

    /// So much was taken, and is needed.
    fn correct(&self, taken: u64, needed: u64) {
        self.taken.fetch_add(needed.wrapping_sub(taken), Ordering::Relaxed);
    }
}
