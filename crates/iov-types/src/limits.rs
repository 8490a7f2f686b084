//! Named limits. Each says why it has its value.

/// Longest name, as on every POSIX file system (O3).
pub const NAME_BYTES: usize = 255;
/// Longest metadata key; the header promises 255.
pub const KEY_BYTES: usize = 255;
/// Largest metadata value: one that fits a request many times over; bigger things are collections.
pub const VALUE_BYTES: usize = 1 << 20;
/// Largest sum of metadata of one collection: records stay cheap to read and log.
pub const METADATA_BYTES: usize = 4 << 20;
/// Most operations in one batch: bounds the memory a server needs for one request.
pub const BATCH_OPS: usize = 1 << 20;
/// Most bytes staged for one rollback batch or publication on a medium that holds them in memory (B4).
pub const STAGE_BYTES: u64 = 1 << 30;
/// A request that sets none lives this long (O8).
pub const DEFAULT_DEADLINE_NS: i64 = 60_000_000_000;
/// Lease of an exclusive hold, a cursor, a lock (X1, M3).
pub const LEASE_NS: i64 = 30_000_000_000;
/// How long a ticket for the objects of a collection is good: a session that has lost its rights has them at targets of other
/// daemons for so long at most (A1).
pub const TICKET_NS: u64 = 600_000_000_000;
/// How long batch ids are remembered (B3).
pub const BATCH_MEMORY_NS: i64 = 24 * 3600 * 1_000_000_000;
/// T of `eventual` when none is given.
pub const EVENTUAL_NS: u64 = 5_000_000_000;
/// n of `unit` when neither it nor one request size is given (section 2).
pub const DEFAULT_UNIT: u64 = 4096;
/// Largest n of `unit`: a unit is held in memory while it is exchanged.
pub const MAX_UNIT: u64 = 1 << 20;
/// Collections up to this size may live in their record.
pub const INLINE_BYTES: u64 = 8 << 10;
/// Bytes that begin in a record go to their target with the write by which they grow up to this: the catalog does nothing else meanwhile, and what most files
/// of a tree of sources have is written as soon as it could be asked for a place.
pub const WRITE_THROUGH: u64 = 64 << 10;
/// Deepest nesting of groups that a move checks for cycles and a search descends.
pub const GROUP_DEPTH: usize = 1024;
/// Longest predicate text.
pub const PREDICATE_BYTES: usize = 64 << 10;
/// Most results in one page of a search.
pub const PAGE_ENTRIES: usize = 4096;
/// Most bytes of results in one page, about: metadata may be long. A page has at least one result.
pub const PAGE_BYTES: usize = 8 << 20;
/// Most open cursors of one session: each pins a snapshot of the catalog.
pub const SESSION_CURSORS: usize = 256;
/// Most results that a search sorts, or remembers in order to return each once.
pub const SORTED_RESULTS: usize = 4 << 20;
/// Most bytes that a search holds to sort by.
pub const SORTED_BYTES: usize = 1 << 30;
/// Most stretches of bytes under advisory locks in one collection: bounds the memory that lockers can take.
pub const COLLECTION_LOCKS: usize = 1 << 18;
/// Most requests that wait for advisory locks of one collection.
pub const LOCK_WAITERS: usize = 1 << 14;
