//! What the engine must do: facts derived from controls that passed [`crate::admit`].

use iov_types::{
    Atomicity, Concurrency, Consistency, Effective, Mutability, Persistence, Point, Spatiality, Temporality,
};

/// Deadline of the drain of `bursty` when none is given: a burst of checkpoints comes minutes apart, and nothing may stay
/// undrained until the next one.
pub const DEFAULT_DRAIN_NS: u64 = 30_000_000_000;

/// From when on a reader may rely on a change. An engine may publish earlier, never later.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Publish {
    /// When the change has completed (`sequential`, C1).
    AtOnce,
    /// When the writer's commit, or its close, has completed (`commit`, C2; `publication` at `sequential` too, M1).
    AtCommit,
    /// When the writer's close has completed and the reader opens after that (`session`, C3).
    AtClose,
    /// T after it has completed, [`Effective::eventual_ns`] (`eventual`, C4); of a publication, after its commit or close.
    Within,
}

/// What completes only after a sync of what was written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SyncPoint {
    /// Nothing: at `volatile` and `process` the medium gives the level by itself.
    Never,
    /// Each request. Of a publication: the request that publishes.
    Request,
    /// The batch. Of a publication: the batch that publishes.
    Batch,
    /// The close.
    Close,
    /// Only a persist.
    Explicit,
}

/// What the engine owes for a handle or a batch. Made by [`crate::admit`] alone.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Contract {
    /// What was granted; parameters that belong to no granted value are 0.
    pub effective: Effective,
    /// What a reader may rely on.
    pub publish: Publish,
    /// Changes are collected in a stage, and shown in one step by commit or close (`publication`, M1).
    pub staged: bool,
    /// Units of this many bytes change as a whole (M1); 0 = no promise.
    pub unit: u64,
    /// What waits for a sync (P5).
    pub sync: SyncPoint,
    /// What acknowledged bytes survive, from the point on (P1–P4).
    pub durability: Persistence,
    /// One holder, with a lease and a fencing epoch that targets check (X1).
    pub exclusive: bool,
    /// Writes go to the end, where the target says (M4).
    pub append_only: bool,
    /// No change once it is sealed (M2).
    pub immutable: bool,
    /// The collection may not grow beyond this many bytes (H1); 0 = no limit.
    pub max_size: u64,
    /// Leave no trace in caches (H2).
    pub once: bool,
    /// Drain a burst to the durable tier within this time (H2); 0 = no burst.
    pub drain_ns: u64,
    /// Whether to read ahead: not where the next request is elsewhere (H2).
    pub read_ahead: bool,
    /// Whether a cache may keep what was read or written (H2).
    pub cacheable: bool,
}

impl Contract {
    /// Derives it. `effective` must have passed the gate.
    pub(crate) fn of(effective: Effective) -> Contract {
        let e = &effective;
        let staged = e.atomicity == Atomicity::Publication;
        let publish = match e.consistency {
            Consistency::Sequential if staged => Publish::AtCommit,
            Consistency::Sequential => Publish::AtOnce,
            Consistency::Commit => Publish::AtCommit,
            Consistency::Session => Publish::AtClose,
            Consistency::Eventual => Publish::Within,
        };
        let sync = match e.point {
            _ if e.persistence <= Persistence::Process => SyncPoint::Never,
            Point::Request => SyncPoint::Request,
            Point::Batch => SyncPoint::Batch,
            Point::Close => SyncPoint::Close,
            Point::Explicit => SyncPoint::Explicit,
        };
        Contract {
            publish,
            staged,
            unit: e.atomic_unit,
            sync,
            durability: e.persistence,
            exclusive: e.concurrency == Concurrency::Exclusive,
            append_only: e.mutability == Mutability::Append,
            immutable: e.mutability == Mutability::Immutable,
            max_size: e.collection_size.max,
            once: e.temporality == Temporality::Once,
            drain_ns: e.drain_ns,
            read_ahead: matches!(e.spatiality, Spatiality::Any | Spatiality::Contiguous),
            cacheable: e.temporality != Temporality::Once,
            effective,
        }
    }
}
