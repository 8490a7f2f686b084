//! Space for moving the log into tables and for merging these. Whoever deletes writes more at first: to the log, then as a table that says
//! what is gone. Only merging gives space back, and takes as much again as what stays, for a moment. So what can wait leaves that much free;
//! else a medium full of small records would stay full, whatever is deleted.

use std::{
    sync::{Arc, PoisonError, atomic::Ordering},
    time::Duration,
};

use iov_types::Result;

use crate::{
    apply::SPARE,
    engine::{Engine, MAX_SEALED, Progress, lock},
    tables::Tree,
};

/// Bytes of a table at most, and at least.
const TABLE_BYTES: u64 = 64 << 20;
const TABLE_LEAST: u64 = 1 << 20;
/// Bytes that stay free for merging at most: what merges with tables of the largest size work with.
const MERGE_MOST: u64 = 256 << 20;
/// Space is scarce once less than so many times what the tables take is free, or less than the least, unless there is very much.
const PLENTY: u64 = 4;
const PLENTY_LEAST: u64 = 64 << 20;
const PLENTY_MOST: u64 = 4 << 30;
/// Deleted records for whose sake all tables are merged: at least so many, and this share of all.
const DELETED: u64 = 500;
const DELETED_SHARE: u64 = 8;
/// Most bytes of a tree that are merged at once, and how long a commit waits for that.
const RECLAIM_MOST: u64 = 1 << 30;
const RECLAIM_WAIT: Duration = Duration::from_secs(3);

impl Engine {
    /// Bytes that tables take.
    fn in_tables(&self) -> u64 {
        self.tables.trees().iter().map(Tree::bytes).sum()
    }

    /// Bytes that have to stay free, so that what only the log has can be moved into tables, and these can be merged.
    pub(crate) fn needed_for_tables(&self) -> u64 {
        let parts = self.parts();
        let buffers = parts.sealed.iter().chain([&parts.active]);
        // Families come one after the other, each with room for all of the buffer.
        let pending: u64 = buffers.map(|buffer| 2 * buffer.bytes() as u64 + SPARE).sum();
        pending + self.in_tables().min(MERGE_MOST)
    }

    /// Looks whether space is scarce.
    pub(crate) fn look_at_space(&self) {
        let plenty = (PLENTY * self.in_tables()).clamp(PLENTY_LEAST, PLENTY_MOST);
        let scarce = self.home().free_bytes().is_some_and(|free| free < plenty);
        self.scarce.store(scarce, Ordering::Relaxed);
    }

    /// Whether space was scarce when it was last looked at: when the store was opened, for every few hundred KiB of log, and behind merges.
    pub(crate) fn is_scarce(&self) -> bool {
        self.scarce.load(Ordering::Relaxed)
    }

    /// Bytes of a table, about: what has to be free for a moment while some are merged is a few of them.
    pub(crate) fn table_bytes(&self) -> u64 {
        (self.options.write_buffer as u64 * 2).clamp(TABLE_LEAST, TABLE_BYTES)
    }

    /// There is no room. Gets some from what was deleted and lies in tables still; whether another attempt is worth while.
    pub(crate) fn reclaim(&self) -> bool {
        if self.deleted.swap(0, Ordering::Relaxed) < DELETED {
            return false;
        }
        // What says that they are deleted has to be in tables, too. Where that fails, what is there already is merged.
        if let Ok(mut log) = self.log.lock()
            && self.parts().sealed.len() < MAX_SEALED
        {
            let _ = self.seal(&mut log);
        }
        self.wait(|progress| self.parts().sealed.is_empty() || progress.apply.is_some());
        lock(&self.progress).reclaim = true;
        self.changed.notify_all();
        self.wait(|progress| !progress.reclaim)
    }

    /// Waits for the background, not for long; whether it is so.
    fn wait(&self, ready: impl Fn(&Progress) -> bool) -> bool {
        let progress = lock(&self.progress);
        let waits = |progress: &mut Progress| !ready(progress) && !progress.stop;
        let waited = self.changed.wait_timeout_while(progress, RECLAIM_WAIT, waits);
        ready(&waited.unwrap_or_else(PoisonError::into_inner).0)
    }
}

/// Merges all tables of trees of which much was deleted, if there is a need for space; with `always`, of all trees.
pub(crate) fn reclaim_all(engine: &Arc<Engine>, always: bool) -> Result<()> {
    engine.look_at_space();
    for tree in engine.tables.trees() {
        let deleted = tree.deletions();
        let worth = always || engine.is_scarce() && deleted >= DELETED && deleted >= tree.items() / DELETED_SHARE;
        if worth && (1..=RECLAIM_MOST).contains(&tree.bytes()) && !engine.stopping() {
            engine.renew_pin();
            tree.merge_all(engine.table_bytes())?;
            pass(engine, tree)?;
        }
    }
    engine.look_at_space();
    Ok(())
}

/// Readers go on to the present state, then to the one behind it; the tables of what there was before go, as soon as nobody holds them.
fn pass(engine: &Engine, tree: &Tree) -> Result<()> {
    for _ in 0..2 {
        engine.renew_pin();
        tree.pass()?;
    }
    engine.renew_pin();
    Ok(())
}

/// The tables that a merge has left behind can go. Where space is scarce, they go now.
pub(crate) fn merged(engine: &Engine, tree: &Tree) -> Result<()> {
    if engine.is_scarce() {
        return pass(engine, tree);
    }
    engine.renew_pin();
    Ok(())
}
