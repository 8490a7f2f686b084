//! Moving bytes between local files and collections: several requests in flight, holes kept, names given at the end.

pub(crate) mod check;
pub(crate) mod copy;
pub(crate) mod download;
pub(crate) mod extents;
pub(crate) mod fetch;
pub(crate) mod given;
pub(crate) mod pool;
pub(crate) mod publish;
pub(crate) mod store;
pub(crate) mod upload;

/// Bytes of one request.
pub(crate) const PIECE: usize = 8 << 20;
/// Requests in flight. More do not help on one machine, and each holds a buffer of a piece.
pub(crate) const JOBS: usize = 4;
/// Files up to this size are taken together.
pub(crate) const SMALL: u64 = 1 << 20;
/// In files and collections up to this size nobody looks for holes: they save nothing, and what lives beside its record would
/// have to move to a target to be asked for them.
pub(crate) const SPARSE: u64 = 64 << 10;
/// Small files in one batch, and their bytes.
pub(crate) const BATCH: usize = 256;
pub(crate) const BATCH_BYTES: usize = 16 << 20;
