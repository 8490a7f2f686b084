//! Making commits survive power loss. Callers that come together share one sync.

use std::sync::{Arc, PoisonError, atomic::Ordering};

use iov_types::{Error, Outcome, Result};

use crate::{
    engine::{Engine, lock},
    files::UNSYNCED_FILE,
    log::Segment,
};

impl Engine {
    /// Syncs everything that has been committed.
    pub(crate) fn persist(&self) -> Result<()> {
        let wanted = self.committed.load(Ordering::Acquire);
        let mut syncing = lock(&self.syncing);
        loop {
            self.check()?;
            if self.synced.load(Ordering::Acquire) >= wanted {
                return Ok(());
            }
            if !syncing.running {
                break;
            }
            syncing = self.sync_ended.wait(syncing).unwrap_or_else(PoisonError::into_inner);
        }
        syncing.running = true;
        // All commits up to now are in these: those of others that wait, too.
        let reached = self.committed.load(Ordering::Acquire);
        let segments = syncing.segments.clone();
        drop(syncing);
        let done = segments.iter().filter(|s| s.is_dirty()).try_for_each(|s| self.sync_segment(s));
        // Nothing is acknowledged any more once a sync has failed, whoever's it was.
        let done = done.and_then(|()| self.check());
        let mut syncing = lock(&self.syncing);
        syncing.running = false;
        if done.is_ok() {
            self.synced.fetch_max(reached, Ordering::AcqRel);
        }
        drop(syncing);
        self.sync_ended.notify_all();
        done
    }

    /// The last sync, and a mark that everything is synced.
    pub(crate) fn close(&self) {
        if self.persist().is_ok() {
            let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
            let synced = self.synced.load(Ordering::Acquire);
            // Without the mark the log is as a killed process leaves it.
            let _ = log.mark(self.home(), synced, &self.hooks);
        }
    }

    /// Syncs one segment. A failure is for good: what the system has dropped it will not report again (P8). Of two who sync
    /// a file or the log's directory at once it tells only one, so that each waits until the other's failure is known.
    pub(crate) fn sync_segment(&self, segment: &Arc<Segment>) -> Result<()> {
        let _alone = lock(&self.sync_alone);
        self.check()?;
        self.shared.counts.log_syncs.fetch_add(1, Ordering::Relaxed);
        segment.sync(self.home()).map_err(|e| self.sync_failed(e))
    }

    fn sync_failed(&self, e: Error) -> Error {
        // After a new start the pages would pass for clean. This makes the log be written anew then; if not even this
        // can be written, nor can the log.
        let _ = self.home().replace(UNSYNCED_FILE, b"");
        self.fail(e.with_outcome(Outcome::Unknown).context("commits may not survive a loss of power"))
    }
}
