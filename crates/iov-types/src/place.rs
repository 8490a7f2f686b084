//! Where the objects of a collection lie, in one number.

use crate::{ObjectId, Uuid};

/// Bits of [`Place`] that hold the size of a chunk.
const CHUNK_BITS: u32 = 40;

/// Which targets a collection lies on, and how many bytes go to one before the next: the number of a pattern and the size of a
/// chunk. A pattern is a list of targets that the catalog has given a number, once and for all; a store's clients know them
/// all. So a layout is one number, and nobody is asked for it.
///
/// The default is all of it on the store's first target.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Place(pub u64);

impl Place {
    /// All of it on the first target.
    pub const FIRST: Place = Place(0);
    /// Largest chunk.
    pub const MAX_CHUNK: u64 = (1 << CHUNK_BITS) - 1;
    /// Largest number of a pattern.
    pub const MAX_PATTERN: u32 = (1 << (u64::BITS - CHUNK_BITS)) - 1;
    /// Most targets of one pattern.
    pub const MAX_WIDTH: usize = 1024;

    /// Spread over the targets of a pattern (from 1 on) in chunks of so many bytes; `None` if one of the numbers is none of a place.
    pub fn new(pattern: u32, chunk: u64) -> Option<Place> {
        let fits = (1..=Self::MAX_PATTERN).contains(&pattern) && (1..=Self::MAX_CHUNK).contains(&chunk);
        fits.then_some(Place(u64::from(pattern) << CHUNK_BITS | chunk))
    }

    /// Whether it is the default.
    pub fn is_first(self) -> bool {
        self == Self::FIRST
    }

    /// The number of its pattern; 0 = of the default.
    pub fn pattern(self) -> u32 {
        (self.0 >> CHUNK_BITS) as u32
    }

    /// Bytes on one target before the next; 0 = of the default.
    pub fn chunk(self) -> u64 {
        self.0 & Self::MAX_CHUNK
    }

    /// Whether the number can be a place's.
    pub fn is_valid(self) -> bool {
        self.is_first() || (self.pattern() != 0 && self.chunk() != 0)
    }

    /// The name under which all objects of a collection are asked for together, and which stands for its one object where
    /// that is on the first target.
    pub fn whole(self, collection: Uuid) -> ObjectId {
        ObjectId { collection, slot: self.0 }
    }

    /// The place in such a name; `None`: it is the name of one object on a target.
    pub fn of(object: ObjectId) -> Option<Place> {
        let place = Place(object.slot);
        (!place.is_first() && place.pattern() != 0).then_some(place)
    }

    /// The name, on its target, of the object for the target at this position of the pattern. Not that of a collection in the
    /// default place: whoever does not know of places must not find it.
    pub fn part(collection: Uuid, position: usize) -> ObjectId {
        ObjectId { collection, slot: position as u64 + 1 }
    }
}
