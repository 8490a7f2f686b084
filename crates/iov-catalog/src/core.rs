//! What all parts of the catalog share: the store, the targets, and what is in memory.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    },
};

use iov_store::{CatalogCapability, MetadataStore, Room, seam};
use iov_types::{Capability, Persistence, Place, Result, Uuid};
use iov_wire::ticket::TicketKey;

use crate::{
    changes::Changing,
    lock_table::LockTable,
    map::Map,
    record::StoreRecord,
    recovery,
    search::Cursors,
    service::Writer,
    state::{Sessions, Shared},
    targets::Targets,
};

/// How a catalog is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// Only one user can reach the store (`mem:`, `file:`): all others are denied, and so are access lists for them.
    pub single_user: bool,
    /// That user.
    pub uid: u32,
    /// Lease of exclusive holds in nanoseconds; `i64::MAX` where a holder cannot be lost sight of.
    pub lease_ns: i64,
    /// Collections up to this many bytes live in their record; 0 = none do.
    pub inline_bytes: u64,
    /// The identity of a new store; nil = a new one is made.
    pub store_uuid: Uuid,
}

/// What a catalog has done so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ServiceStats {
    /// Submissions taken.
    pub submissions: u64,
    /// Operations in them.
    pub operations: u64,
    /// Commits to the store: one write to its log each.
    pub commits: u64,
    /// Keys asked from the store, and pairs scanned.
    pub keys_read: u64,
    /// Puts and deletes committed.
    pub keys_written: u64,
    /// Operations asked of targets.
    pub target_operations: u64,
    /// Objects that the last check has compared, those of no collection, and those that are missing.
    pub checked: [u64; 3],
}

impl IntoIterator for ServiceStats {
    type Item = (&'static str, u64);
    type IntoIter = std::array::IntoIter<Self::Item, 9>;

    /// Names and numbers, as operators see them.
    fn into_iter(self) -> Self::IntoIter {
        let ServiceStats { submissions, operations, commits, keys_read, keys_written, target_operations, checked } =
            self;
        [
            ("submissions", submissions),
            ("operations", operations),
            ("commits", commits),
            ("keys_read", keys_read),
            ("keys_written", keys_written),
            ("target_operations", target_operations),
            ("checked_objects", checked[0]),
            ("objects_of_no_collection", checked[1]),
            ("missing_objects", checked[2]),
        ]
        .into_iter()
    }
}

#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) submissions: AtomicU64,
    pub(crate) operations: AtomicU64,
    pub(crate) commits: AtomicU64,
    pub(crate) keys_read: AtomicU64,
    pub(crate) keys_written: AtomicU64,
}

/// What the last check has found.
#[derive(Default)]
pub(crate) struct CheckCounts {
    pub(crate) objects: AtomicU64,
    pub(crate) unknown: AtomicU64,
    pub(crate) missing: AtomicU64,
}

/// Adds to a count that only tests and people read.
pub(crate) fn count(counter: &AtomicU64, n: usize) {
    counter.fetch_add(n as u64, Ordering::Relaxed);
}

/// How often whoever wants a writer's turn looks whether it is free before it sleeps, and how long it pauses between two looks, in
/// instructions of some 50 cycles: 10 to 20 µs in all. Most turns take less than it takes to sleep and to be woken.
const LOOKS: u32 = 32;
const PAUSES: u32 = 32;

/// How long until what found no room is tried again.
const AGAIN_NS: i64 = 1_000_000_000;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The shared parts.
pub(crate) struct Core {
    store: Arc<dyn MetadataStore>,
    targets: Targets,
    map: Mutex<Map>,
    capability: CatalogCapability,
    options: Options,
    found: StoreRecord,
    /// The store says of this incarnation that records need not say that they are open.
    unmarked: AtomicBool,
    /// Until when it is not tried again to have it say so.
    unmarked_again_ns: AtomicI64,
    /// The store says that no session acts for another.
    alone: AtomicBool,
    shared: RwLock<Shared>,
    sessions: Mutex<Sessions>,
    cursors: Mutex<Cursors>,
    locks: Mutex<LockTable>,
    writer: Mutex<Writer>,
    /// Until when sessions of the incarnation before may come back, on the monotonic clock; 0 = none may.
    pub(crate) grace_ns: AtomicI64,
    pub(crate) checked: CheckCounts,
    /// Batches that the crash of an earlier incarnation left to be finished: their clients may not have heard of it.
    pub(crate) finished: OnceLock<HashSet<Uuid>>,
    pub(crate) counts: Counts,
    ticket_key: Mutex<Option<TicketKey>>,
    /// While clients of an earlier catalog may come back: nobody relies on what he knows.
    in_doubt: Mutex<Option<Changing>>,
    #[cfg(test)]
    pub(crate) ahead_ns: std::sync::atomic::AtomicI64,
}

/// A store as it was found.
pub(crate) struct Found {
    pub(crate) record: StoreRecord,
}

impl Core {
    pub(crate) fn new(
        store: Arc<dyn MetadataStore>,
        targets: Targets,
        map: Map,
        options: Options,
        found: Found,
    ) -> Core {
        let capability = CatalogCapability {
            targets: targets.capability().clone(),
            max_ops: iov_types::limits::BATCH_OPS,
            single_user: options.single_user,
            inline_bytes: options.inline_bytes,
            lease_ns: options.lease_ns,
        };
        Core {
            store,
            targets,
            map: Mutex::new(map),
            capability,
            alone: AtomicBool::new(found.record.alone),
            found: found.record,
            unmarked: AtomicBool::new(false),
            unmarked_again_ns: AtomicI64::new(i64::MIN),
            shared: RwLock::default(),
            finished: OnceLock::new(),
            sessions: Mutex::new(Sessions::new(options.lease_ns)),
            options,
            cursors: Mutex::default(),
            locks: Mutex::default(),
            writer: Mutex::default(),
            grace_ns: AtomicI64::new(0),
            checked: CheckCounts::default(),
            counts: Counts::default(),
            ticket_key: Mutex::default(),
            in_doubt: Mutex::default(),
            #[cfg(test)]
            ahead_ns: Default::default(),
        }
    }

    pub(crate) fn store(&self) -> &dyn MetadataStore {
        &*self.store
    }

    pub(crate) fn targets(&self) -> &Targets {
        &self.targets
    }

    pub(crate) fn lock_ticket_key(&self) -> MutexGuard<'_, Option<TicketKey>> {
        lock(&self.ticket_key)
    }

    /// That nobody relies on what he knows.
    pub(crate) fn in_doubt(&self) -> MutexGuard<'_, Option<Changing>> {
        lock(&self.in_doubt)
    }

    /// The targets and their patterns.
    pub(crate) fn map(&self) -> MutexGuard<'_, Map> {
        lock(&self.map)
    }

    /// What the targets of a place can do.
    pub(crate) fn capability_at(&self, place: Place) -> Capability {
        let of_place = self.map().capability_at(place);
        of_place.unwrap_or_else(|| self.capability.targets.clone())
    }

    /// What can be done somewhere in the store: targets come as it is served.
    pub(crate) fn capability_anywhere(&self) -> Capability {
        self.map().together().unwrap_or(&self.capability.targets).clone()
    }

    pub(crate) fn capability(&self) -> &CatalogCapability {
        &self.capability
    }

    pub(crate) fn is_single_user(&self) -> bool {
        self.options.single_user
    }

    pub(crate) fn uid(&self) -> u32 {
        self.options.uid
    }

    /// Whether little of the medium of the records is free.
    pub(crate) fn is_scarce(&self) -> bool {
        self.store.is_scarce()
    }

    /// The same of that, or of any target.
    pub(crate) fn is_short(&self) -> bool {
        self.is_scarce() || self.map().is_short()
    }

    /// The turn as writer.
    pub(crate) fn writer(&self) -> MutexGuard<'_, Writer> {
        for _ in 0..LOOKS {
            if let Some(writer) = self.writer_if_idle() {
                return writer;
            }
            (0..PAUSES).for_each(|_| std::hint::spin_loop());
        }
        lock(&self.writer)
    }

    /// The same, unless somebody has it.
    pub(crate) fn writer_if_idle(&self) -> Option<MutexGuard<'_, Writer>> {
        match self.writer.try_lock() {
            Ok(writer) => Some(writer),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    pub(crate) fn count_keys(&self, n: usize) {
        count(&self.counts.keys_read, n);
    }

    pub(crate) fn store_uuid(&self) -> Uuid {
        self.found.uuid
    }

    pub(crate) fn shared(&self) -> RwLockReadGuard<'_, Shared> {
        self.shared.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn shared_mut(&self) -> RwLockWriteGuard<'_, Shared> {
        self.shared.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn sessions(&self) -> MutexGuard<'_, Sessions> {
        lock(&self.sessions)
    }

    pub(crate) fn cursors(&self) -> MutexGuard<'_, Cursors> {
        lock(&self.cursors)
    }

    pub(crate) fn locks(&self) -> MutexGuard<'_, LockTable> {
        lock(&self.locks)
    }

    /// The incarnation to note in the record of what is opened for writing. A medium that forgets everything with the
    /// catalog leaves nothing to be behind of.
    pub(crate) fn incarnation_to_record(&self) -> u64 {
        if self.capability.targets.durability == Persistence::Volatile { 0 } else { self.found.incarnation }
    }

    /// The present incarnation.
    pub(crate) fn incarnation(&self) -> u64 {
        self.found.incarnation
    }

    /// Incarnations that ended without recording what was open.
    pub(crate) fn crashed(&self) -> &[u64] {
        &self.found.crashed
    }

    /// Whether the incarnation that a record names ended without recording what was open.
    pub(crate) fn has_crashed(&self, incarnation: u64) -> bool {
        let (crashed, behind) = (&self.found.crashed, self.found.behind);
        !crashed.is_empty() && (crashed.contains(&incarnation) || (1..=behind).contains(&incarnation))
    }

    /// The record of the store.
    pub(crate) fn store_record(&self, clean: bool) -> StoreRecord {
        let unmarked = if self.unmarked.load(Ordering::Relaxed) { self.incarnation() } else { 0 };
        StoreRecord { clean, unmarked, alone: self.is_alone(), ..self.found.clone() }
    }

    /// Whether collections are opened for writing without their records saying so: on a full medium nobody could read what he might write else. The store
    /// says so once, and what was open if this incarnation does not end in order nobody knows then: all is asked from targets.
    pub(crate) fn opens_unmarked(&self) -> bool {
        if !self.store.is_full() {
            return false;
        }
        if !self.unmarked.load(Ordering::Relaxed) {
            let record = StoreRecord { unmarked: self.incarnation(), ..self.store_record(false) };
            let now_ns = self.monotonic_ns();
            if now_ns < self.unmarked_again_ns.load(Ordering::Relaxed) {
                return false;
            }
            let done = recovery::write(&*self.store, &record, Room::Freeing);
            self.unmarked.store(done.is_ok(), Ordering::Relaxed);
            self.unmarked_again_ns.store(now_ns + AGAIN_NS, Ordering::Relaxed);
        }
        self.unmarked.load(Ordering::Relaxed)
    }

    /// Whether the store says that no session acts for another.
    pub(crate) fn is_alone(&self) -> bool {
        self.alone.load(Ordering::Relaxed)
    }

    /// A session may act for another from now on, which the store must know when sessions come back to the catalog after this one. To be
    /// called in a writer's turn.
    pub(crate) fn note_joined(&self) -> Result<()> {
        if self.is_alone() {
            let record = StoreRecord { alone: false, ..self.store_record(false) };
            recovery::write(&*self.store, &record, Room::Last)?;
            // Who has joined from another host may come back after this one has lost its power.
            self.store.persist()?;
            self.alone.store(false, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Whether none of the sessions of the incarnation before acted for another.
    pub(crate) fn were_alone(&self) -> bool {
        self.found.alone
    }

    /// Whether sessions of the incarnation before may still come back: until then nobody takes over what they hold.
    pub(crate) fn in_grace(&self) -> bool {
        let until = self.grace_ns.load(Ordering::Relaxed);
        until != 0 && self.monotonic_ns() < until
    }

    pub(crate) fn now_ns(&self) -> i64 {
        let now = seam::now_ns();
        #[cfg(test)]
        let now = now + self.ahead_ns.load(Ordering::Relaxed);
        now
    }

    pub(crate) fn monotonic_ns(&self) -> i64 {
        let now = seam::monotonic_ns();
        #[cfg(test)]
        let now = now + self.ahead_ns.load(Ordering::Relaxed);
        now
    }

    pub(crate) fn stats(&self) -> ServiceStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ServiceStats {
            submissions: read(&self.counts.submissions),
            operations: read(&self.counts.operations),
            commits: read(&self.counts.commits),
            keys_read: read(&self.counts.keys_read),
            keys_written: read(&self.counts.keys_written),
            target_operations: self.targets.asked(),
            checked: [&self.checked.objects, &self.checked.unknown, &self.checked.missing].map(read),
        }
    }
}
