//! Where the bytes of a collection lie.

use crate::Place;

/// How a layout survives losses; the numbers of `IOV_REDUNDANCY_*`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u32)]
pub enum Redundancy {
    /// One copy.
    None = 1,
    /// k copies.
    Mirror = 2,
    /// k data and m parity shards.
    Erasure = 3,
}

/// A layout; `None` and 0 leave a choice to the policy. It changes only with its revision.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Layout {
    /// How many targets to spread over; 0 = the policy decides.
    pub targets: u32,
    /// Bytes on one target before the next; 0 = the policy decides.
    pub chunk_size: u64,
    /// How it survives losses.
    pub redundancy: Option<Redundancy>,
    /// Copies, or data shards.
    pub k: u16,
    /// Parity shards.
    pub m: u16,
    /// Grows with each change; set by the catalog.
    pub revision: u64,
    /// A configured backend; `None` = the store's default.
    pub backend: Option<String>,
    /// A named placement policy; `None` = the default.
    pub policy: Option<String>,
    /// Where it lies; set by the catalog.
    pub place: Place,
}
