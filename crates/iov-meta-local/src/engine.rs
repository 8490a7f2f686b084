//! What the store and its two background threads share.

use std::sync::{
    Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, Weak,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use iov_types::{Clause, Error, Outcome, Result};

use crate::{
    buffer::Buffer,
    files::Home,
    hooks::Hooks,
    log::{Appender, Segment},
    options::{Options, Stats},
    tables::{Pin, Tables},
    view::{Parts, Shared, View},
};

/// Sealed buffers that may wait. With two, one fills while one moves; more would only be more memory.
pub(crate) const MAX_SEALED: usize = 2;

/// Counts for [`Stats`].
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) log_writes: AtomicU64,
    pub(crate) log_syncs: AtomicU64,
    pub(crate) applied: AtomicU64,
    pub(crate) cache_hits: AtomicU64,
    pub(crate) table_reads: AtomicU64,
}

/// How the background threads are getting on.
#[derive(Default)]
pub(crate) struct Progress {
    /// Why no buffer can be moved into tables at the moment. It is tried again.
    pub(crate) apply: Option<Error>,
    /// Why tables cannot be merged at the moment. It is tried again.
    pub(crate) merge: Option<Error>,
    /// Buffers have been moved into tables since the last merge.
    pub(crate) unmerged: bool,
    /// How often somebody without room has asked for all tables to be merged without what was deleted, and which of these requests was answered last.
    pub(crate) reclaims: u64,
    pub(crate) reclaimed: u64,
    /// Something of what was deleted stays for somebody who reads what was before.
    pub(crate) waits: bool,
    /// Buffers are to be moved now, though that has just failed.
    pub(crate) hurry: bool,
    pub(crate) stop: bool,
}

/// How far the log has been synced.
#[derive(Default)]
pub(crate) struct Syncing {
    /// Somebody is at it.
    pub(crate) running: bool,
    /// The segments that are there, oldest first. Views do not hold them, so that their space is free when they go.
    pub(crate) segments: Vec<Arc<Segment>>,
}

/// The engine.
pub(crate) struct Engine {
    pub(crate) options: Options,
    pub(crate) hooks: Hooks,
    pub(crate) tables: Arc<Tables>,
    pub(crate) shared: Arc<Shared>,
    parts: RwLock<Arc<Parts>>,
    /// Taken by one commit at a time.
    pub(crate) log: Mutex<Appender>,
    pub(crate) progress: Mutex<Progress>,
    /// Something changed in `progress`, or a buffer was sealed.
    pub(crate) changed: Condvar,
    pub(crate) syncing: Mutex<Syncing>,
    pub(crate) sync_ended: Condvar,
    /// Taken for each sync of a segment, until it is known to all whether it failed.
    pub(crate) sync_alone: Mutex<()>,
    /// Number of the last commit in the log, and of the last one known to be synced.
    pub(crate) committed: AtomicU64,
    pub(crate) synced: AtomicU64,
    /// Buffers that are in tables; those that are still there are held by views.
    pub(crate) released: Mutex<Vec<Weak<Buffer>>>,
    /// Room is kept for when the medium is full.
    pub(crate) reserved: AtomicBool,
    /// Little of the medium is free.
    pub(crate) scarce: AtomicBool,
    /// So little that what can wait is refused.
    pub(crate) full: AtomicBool,
    /// Bytes that another segment of the log takes at first, and that each keeps behind its end.
    pub(crate) another: u64,
    pub(crate) kept: u64,
    /// The buffer that was the active one when the store was opened, and its bytes: as large as the log then was.
    opened: (u64, usize),
    /// Deletes since a commit last had tables merged for want of room.
    pub(crate) deleted: AtomicU64,
    failed: OnceLock<Error>,
}

/// Takes a lock; a thread that panicked with it left what it guards whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Engine {
    pub(crate) fn new(
        (options, hooks): (Options, Hooks),
        tables: Arc<Tables>,
        parts: Parts,
        log: Appender,
        segments: Vec<Arc<Segment>>,
        [committed, synced]: [u64; 2],
    ) -> Engine {
        let (another, kept) = (log.another(), log.kept());
        let opened = (parts.active.generation, parts.active.bytes());
        Engine {
            options,
            hooks,
            tables,
            shared: parts.shared.clone(),
            parts: RwLock::new(Arc::new(parts)),
            log: Mutex::new(log),
            progress: Mutex::default(),
            changed: Condvar::new(),
            syncing: Mutex::new(Syncing { running: false, segments }),
            sync_ended: Condvar::new(),
            sync_alone: Mutex::default(),
            committed: AtomicU64::new(committed),
            synced: AtomicU64::new(synced),
            released: Mutex::default(),
            reserved: AtomicBool::new(false),
            scarce: AtomicBool::new(false),
            full: AtomicBool::new(false),
            another,
            kept,
            opened,
            // Nobody knows how many were before.
            deleted: AtomicU64::new(u64::from(u32::MAX)),
            failed: OnceLock::new(),
        }
    }

    /// Bytes by which the active buffer exceeds what it should take; those that it had when the store was opened do not count twice.
    pub(crate) fn over(&self) -> Option<usize> {
        let active = self.parts().active.clone();
        let opened = if active.generation == self.opened.0 { self.opened.1 } else { 0 };
        active.bytes().checked_sub(self.options.write_buffer).map(|over| over.saturating_sub(opened))
    }

    pub(crate) fn home(&self) -> &Home {
        &self.tables.home
    }

    /// The parts of now.
    pub(crate) fn parts(&self) -> Arc<Parts> {
        self.parts.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A view of now.
    pub(crate) fn view(&self) -> View {
        View::new(self.parts())
    }

    /// Replaces the parts, in one step for readers.
    pub(crate) fn change_parts(&self, change: impl FnOnce(&Parts) -> Parts) {
        let mut parts = self.parts.write().unwrap_or_else(PoisonError::into_inner);
        let new = Arc::new(change(&parts));
        let old = std::mem::replace(&mut *parts, new);
        drop(parts);
        // Freeing a buffer takes a while; no reader waits for it.
        drop(old);
    }

    /// Readers see the tables as they are now. The old state may be merged away when its last view is gone.
    pub(crate) fn renew_pin(&self) {
        self.change_parts(|parts| Parts {
            shared: parts.shared.clone(),
            active: parts.active.clone(),
            sealed: parts.sealed.clone(),
            pin: Arc::new(Pin::new(&self.tables, parts.pin.epoch)),
        });
    }

    /// From now on nothing is committed (P8); what is there can still be read.
    pub(crate) fn fail(&self, error: Error) -> Error {
        let error = error.with_clause(Clause::P8);
        let first = self.failed.get_or_init(|| error.clone());
        // Whoever waits must hear of it.
        drop(lock(&self.progress));
        self.changed.notify_all();
        first.clone()
    }

    /// An error once the log has failed.
    pub(crate) fn check(&self) -> Result<()> {
        match self.failed.get() {
            None => Ok(()),
            Some(error) => Err(error.clone().with_outcome(Outcome::NotApplied).context(
                "the metadata log failed before and takes no commits; mend the medium, then open the store anew",
            )),
        }
    }

    /// The segment of a buffer.
    pub(crate) fn segment(&self, generation: u64) -> Result<Arc<Segment>> {
        let syncing = lock(&self.syncing);
        let segment = syncing.segments.iter().find(|s| s.generation == generation).cloned();
        segment.ok_or_else(|| Error::internal(format!("segment {generation} of the metadata log is not known")))
    }

    /// Bytes on the medium, about.
    pub(crate) fn bytes(&self) -> u64 {
        let log: u64 = lock(&self.syncing).segments.iter().map(|s| s.bytes()).sum();
        log + self.tables.trees().iter().map(|t| t.bytes()).sum::<u64>()
    }

    /// Whether it is time to end.
    pub(crate) fn stopping(&self) -> bool {
        lock(&self.progress).stop
    }

    pub(crate) fn stats(&self) -> Stats {
        let counts = &self.shared.counts;
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Stats {
            log_writes: read(&counts.log_writes),
            log_syncs: read(&counts.log_syncs),
            applied: read(&counts.applied),
            cached: self.shared.cache.used(),
            held: lock(&self.released).iter().filter_map(Weak::upgrade).map(|buffer| buffer.bytes() as u64).sum(),
            cache_hits: read(&counts.cache_hits),
            table_reads: read(&counts.table_reads),
        }
    }
}
