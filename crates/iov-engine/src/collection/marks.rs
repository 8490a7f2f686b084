//! What a handle has done and has not told yet: changes, syncs, publications, and its end.

use std::sync::atomic::Ordering;

use iov_types::{Error, Result, catalog::Published};

use super::Collection;

impl Collection {
    /// The catalog is asked to end the open.
    pub(crate) fn mark_returned(&self) {
        self.0.returned.store(true, Ordering::Relaxed);
    }

    /// The same, and to publish what was changed.
    pub(crate) fn mark_closing(&self) {
        self.0.owed.fetch_or(self.0.dirty.swap(false, Ordering::Relaxed), Ordering::Relaxed);
        self.mark_returned();
    }

    /// It was not, after all.
    pub(crate) fn mark_kept(&self) {
        if self.0.owed.swap(false, Ordering::Relaxed) {
            self.mark_unpublished();
        }
        self.0.returned.store(false, Ordering::Relaxed);
    }

    /// Something that may change the collection is started with it.
    pub(crate) fn mark_used(&self) {
        self.0.used.store(true, Ordering::Relaxed);
    }

    pub(crate) fn was_used(&self) -> bool {
        self.0.used.load(Ordering::Relaxed)
    }

    /// Its bytes were changed by an earlier handle that could not say so: a commit or a close of this one tells the catalog. For who opens a collection
    /// again by its UUID since a close has failed.
    pub fn note_changed(&self) {
        self.mark_used();
        self.mark_changed();
    }

    pub(crate) fn mark_changed(&self) {
        self.0.dirty.store(true, Ordering::Relaxed);
        self.0.changes.fetch_add(1, Ordering::Relaxed);
    }

    /// A target has taken bytes of it: from then on there is an object, as long as there is the collection.
    pub(crate) fn mark_written(&self) {
        self.0.written.store(true, Ordering::Relaxed);
    }

    pub(crate) fn was_written(&self) -> bool {
        self.0.written.load(Ordering::Relaxed)
    }

    /// How often it was changed: a sync covers what came before it was sent.
    pub(crate) fn changes(&self) -> u64 {
        self.0.changes.load(Ordering::Relaxed)
    }

    pub(crate) fn is_dirty(&self) -> bool {
        self.0.dirty.load(Ordering::Relaxed) || self.0.lent.load(Ordering::Relaxed)
    }

    /// From now on others write it, or do not any more.
    pub(crate) fn mark_lent(&self, lent: bool) {
        self.mark_used();
        self.0.lent.store(lent, Ordering::Relaxed);
    }

    pub(crate) fn is_unsynced(&self) -> bool {
        self.0.synced.load(Ordering::Relaxed) < self.changes()
    }

    /// So many changes are synced.
    pub(crate) fn mark_synced(&self, changes: u64) {
        self.0.synced.fetch_max(changes, Ordering::Relaxed);
    }

    /// Remembers that bytes may be lost; every later persist and close says so (P8).
    pub(crate) fn mark_broken(&self, error: &Error) {
        let _ = self.0.broken.set(error.clone());
    }

    pub(crate) fn broken(&self) -> Result<()> {
        self.0.broken.get().map_or(Ok(()), |e| Err(e.clone().context("an earlier sync failed")))
    }

    /// What the catalog is to publish: the service reads the present size at the target.
    pub(crate) fn published(&self) -> Option<Published> {
        self.is_dirty().then(Published::default)
    }

    /// Whether its bytes live in the record.
    pub(crate) fn is_inline(&self) -> bool {
        self.0.inline.load(Ordering::Relaxed)
    }

    /// They are changed there by one more operation; how often they were before.
    pub(crate) fn mark_inline_change(&self) -> u32 {
        self.0.inline_changes.fetch_add(1, Ordering::Relaxed)
    }

    /// The catalog says that they are at a target.
    pub(crate) fn mark_moved(&self) {
        self.0.inline.store(false, Ordering::Relaxed);
    }

    /// The catalog is being told; what changes from now on, it has to be told again.
    pub(crate) fn mark_published(&self) {
        self.0.dirty.store(false, Ordering::Relaxed);
    }

    /// The catalog was not told after all.
    pub(crate) fn mark_unpublished(&self) {
        self.0.dirty.store(true, Ordering::Relaxed);
    }
}
