//! Space for moving the log into tables and for merging these. Whoever deletes writes more at first: to the log, then as a table that says
//! what is gone. Only merging gives space back, and takes as much again as what stays, for a moment. So what can wait leaves that much free;
//! else a medium full of small records would stay full, whatever is deleted.

use std::{
    sync::{Arc, PoisonError, atomic::Ordering},
    time::Duration,
};

use iov_store::seam;
use iov_types::Result;

use crate::{
    apply::SPARE,
    engine::{Engine, MAX_SEALED, Progress, lock},
    tables::Tree,
};

/// Bytes of a table at most, and at least.
const TABLE_BYTES: u64 = 64 << 20;
const TABLE_LEAST: u64 = 1 << 20;
/// Bytes that stay free for merging at most, which is what merges with tables of the largest size work with; no larger tree is merged as a whole.
const MERGE_MOST: u64 = 256 << 20;
/// Space is scarce once less than so many times what the tables take is free, or less than the least (of a small file system a share), unless there is very much.
const PLENTY: u64 = 4;
const PLENTY_LEAST: u64 = 64 << 20;
const PLENTY_SHARE: u64 = 4;
const PLENTY_MOST: u64 = 4 << 30;
/// Deleted records for whose sake all tables are merged: at least so many, and this share of all, where a commit waits for it and else.
const DELETED: u64 = 500;
const DELETED_SHARE: u64 = 8;
const DELETED_SHARE_LEAST: u64 = 64;
/// Bytes of a buffer that is worth to be moved into tables for the sake of what moving it needs no more.
const BUFFER_LEAST: usize = 1 << 20;
/// Bytes of a buffer at most while space is scarce.
const SCARCE_BUFFER: usize = 2 << 20;
/// How long a commit waits for buffers to be moved, and then for tables to be merged.
const RECLAIM_WAIT: Duration = Duration::from_secs(2);
/// How often, and how long at a time, it is looked whether readers have gone on.
const LOOKS: u32 = 10;
const LOOK_NS: u64 = 5_000_000;

impl Engine {
    /// Bytes that tables take.
    fn in_tables(&self) -> u64 {
        self.tables.trees().iter().map(Tree::size).sum()
    }

    /// Bytes that have to stay free, so that what only the log has can be moved into tables, and these can be merged.
    pub(crate) fn needed_for_tables(&self) -> u64 {
        let parts = self.parts();
        let buffers = parts.sealed.iter().chain([&parts.active]);
        // Tables have indexes and filters besides: twice is on the safe side.
        let pending: u64 = buffers.map(|buffer| 2 * buffer.bytes() as u64 + SPARE).sum();
        pending + self.in_tables().min(MERGE_MOST)
    }

    /// Looks whether space is scarce.
    pub(crate) fn look_at_space(&self) {
        let Some((free, total)) = self.home().space() else { return };
        let least = PLENTY_LEAST.min(total / PLENTY_SHARE);
        let plenty = (PLENTY * self.in_tables()).clamp(least, PLENTY_MOST).max(2 * self.needed_for_tables());
        self.scarce.store(free < plenty, Ordering::Relaxed);
        self.full.store(free < self.another, Ordering::Relaxed);
    }

    /// Whether space was scarce when it was last looked at: when the store was opened, for every few hundred KiB of log, and behind merges.
    pub(crate) fn is_scarce(&self) -> bool {
        self.scarce.load(Ordering::Relaxed)
    }

    /// Whether there was no room for another segment of the log then: what is kept is all there is.
    pub(crate) fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// Bytes of commits that a buffer gathers now: a large one could not be moved into tables once nothing is free any more.
    pub(crate) fn buffer_bytes(&self) -> usize {
        if self.is_scarce() { self.options.write_buffer.min(SCARCE_BUFFER) } else { self.options.write_buffer }
    }

    /// Bytes with which one buffer, and what deletes it, can be moved into tables: room for the next segment, and for the tables.
    pub(crate) fn for_one_buffer(&self) -> u64 {
        let buffer = self.options.write_buffer.min(SCARCE_BUFFER) as u64 + self.kept;
        self.another + buffer + buffer / 2 + SPARE
    }

    /// Bytes of a table, about: what has to be free for a moment while some are merged is a few of them.
    pub(crate) fn table_bytes(&self) -> u64 {
        (self.options.write_buffer as u64 * 2).clamp(TABLE_LEAST, TABLE_BYTES)
    }

    /// There is no room. Gets some: from buffers that wait to be moved, and from what was deleted and lies in tables still. Whether another attempt is worth while.
    pub(crate) fn reclaim(&self) -> bool {
        let deleted = self.deleted.load(Ordering::Relaxed) >= DELETED;
        let least = BUFFER_LEAST.min(self.options.write_buffer / 2);
        if self.check().is_err() || !deleted && self.parts().active.bytes() < least {
            return false;
        }
        // What says that they are deleted has to be in tables, too. Where that fails, what is there already is merged.
        if let Ok(mut log) = self.log.lock()
            && self.check().is_ok()
            && self.parts().sealed.len() < MAX_SEALED
        {
            let _ = self.seal(&mut log);
        }
        let mut progress = lock(&self.progress);
        (progress.apply, progress.hurry) = (None, true);
        drop(progress);
        self.changed.notify_all();
        self.wait(|progress| self.parts().sealed.is_empty() || progress.apply.is_some());
        if self.tables.trees().iter().any(|tree| has_deleted(tree, DELETED_SHARE_LEAST)) {
            let mut progress = lock(&self.progress);
            progress.reclaims += 1;
            let asked = progress.reclaims;
            drop(progress);
            self.changed.notify_all();
            self.wait(|progress| progress.reclaimed >= asked);
        }
        // Who reads what was before is done some time.
        if !lock(&self.progress).waits {
            self.deleted.store(0, Ordering::Relaxed);
        }
        true
    }

    /// Waits for the background, not for long.
    fn wait(&self, ready: impl Fn(&Progress) -> bool) {
        let progress = lock(&self.progress);
        let waits = |progress: &mut Progress| !ready(progress) && !progress.stop;
        drop(self.changed.wait_timeout_while(progress, RECLAIM_WAIT, waits).unwrap_or_else(PoisonError::into_inner));
    }
}

/// Whether enough of a tree was deleted.
fn has_deleted(tree: &Tree, share: u64) -> bool {
    let deleted = tree.deletions();
    deleted >= DELETED && deleted >= tree.items() / share
}

/// Merges trees as a whole of which much was deleted, where space is scarce; with `asked`, also those of which less was. Whether some of it has to wait, as somebody
/// reads what was there before.
pub(crate) fn reclaim(engine: &Arc<Engine>, asked: bool) -> Result<bool> {
    engine.look_at_space();
    let (mut waits, mut done) = (false, Ok(()));
    if !engine.is_scarce() {
        return Ok(false);
    }
    let share = if asked { DELETED_SHARE_LEAST } else { DELETED_SHARE };
    for tree in engine.tables.trees() {
        let left = tree.has_left();
        let merges = has_deleted(tree, share) && tree.size() <= MERGE_MOST;
        if engine.stopping() || !(left || merges) {
            continue;
        }
        // As long as a state before is read, its tables stay, and those of all states since: more would be taken, and nothing given back.
        if !is_alone(engine, tree) {
            waits = true;
            continue;
        }
        let one = (|| {
            if merges && has_room(engine, tree) {
                tree.merge_all(engine.table_bytes()).inspect_err(|_| tree.failed(engine.home().free_bytes()))?;
            }
            pass(engine, tree)
        })();
        // Others may have room all the same.
        done = done.and(one);
    }
    engine.look_at_space();
    done.map(|()| waits)
}

/// Whether nobody reads a state of a tree before the present one, or does so no more in a moment.
fn is_alone(engine: &Engine, tree: &Tree) -> bool {
    engine.renew_pin();
    for _ in 0..LOOKS {
        if tree.states() <= 1 {
            return true;
        }
        seam::sleep(LOOK_NS);
    }
    tree.states() <= 1
}

/// Whether what stays of a tree has room beside it: a merge that runs out of room has taken all there is in vain, for a moment also from others.
fn has_room(engine: &Engine, tree: &Tree) -> bool {
    let (size, items) = (tree.size(), tree.items().max(1));
    // It was less than that last time.
    if !tree.may_try(engine.home().free_bytes()) {
        return false;
    }
    let gone = (u128::from(size) * u128::from(tree.deletions().min(items)) / u128::from(items)) as u64;
    engine.home().free_bytes().is_none_or(|free| free >= size - gone + SPARE)
}

/// Readers go on to the present state, then to the one behind it; the tables of what there was before go, as soon as nobody holds them.
fn pass(engine: &Engine, tree: &Tree) -> Result<()> {
    // Until it is done: there may be no room for it.
    tree.leave(true);
    for _ in 0..2 {
        engine.renew_pin();
        tree.pass()?;
    }
    engine.renew_pin();
    tree.leave(tree.states() > 1);
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
