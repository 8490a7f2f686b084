//! The thread that merges tables, so that reads have few to look into.

use std::{
    sync::{Arc, PoisonError},
    time::Duration,
};

use iov_types::Result;

use crate::{
    apply::pause,
    engine::{Engine, lock},
    hooks::Point,
    space::{merged, reclaim},
};

/// How long to wait before something that failed is tried again, at first and at most.
const RETRY: Duration = Duration::from_millis(500);
const RETRY_MOST: Duration = Duration::from_secs(4);
/// How long until it is looked again whether readers hold tables that could go.
const AGAIN: Duration = Duration::from_secs(1);

/// Runs until the store is closed.
pub(crate) fn run(engine: &Arc<Engine>) {
    let (mut waits, mut wait) = (false, RETRY);
    while let Some(asked) = work(engine, waits) {
        // What must be done for reads first: else commits would wait for more runs than there may be. But where that fails, space may be what it needs.
        let merged = merge_all(engine);
        let before = lock(&engine.progress).reclaimed;
        let reclaimed = reclaim(engine, asked > before);
        waits = matches!(reclaimed, Ok(true));
        let mut progress = lock(&engine.progress);
        (progress.reclaimed, progress.waits) = (asked, waits);
        drop(progress);
        match merged.and(reclaimed) {
            Ok(_) => {
                wait = RETRY;
                lock(&engine.progress).merge = None;
                engine.changed.notify_all();
            }
            Err(e) => {
                let mut progress = lock(&engine.progress);
                progress.merge = Some(e);
                progress.unmerged = true;
                drop(progress);
                engine.changed.notify_all();
                if pause(engine, wait, |progress| progress.reclaims > progress.reclaimed) {
                    return;
                }
                wait = (wait * 2).min(RETRY_MOST);
            }
        }
    }
}

/// Waits for new tables, or for somebody who has no room, if something `waits` not for long; the number of who was last without. `None` when the store is closed.
fn work(engine: &Engine, waits: bool) -> Option<u64> {
    let mut progress = lock(&engine.progress);
    loop {
        if progress.stop {
            return None;
        }
        if std::mem::take(&mut progress.unmerged) || progress.reclaims > progress.reclaimed {
            return Some(progress.reclaims);
        }
        if !waits {
            progress = engine.changed.wait(progress).unwrap_or_else(PoisonError::into_inner);
            continue;
        }
        let waited = engine.changed.wait_timeout(progress, AGAIN).unwrap_or_else(PoisonError::into_inner);
        progress = waited.0;
        progress.unmerged |= waited.1.timed_out();
    }
}

fn merge_all(engine: &Arc<Engine>) -> Result<()> {
    let mut again = true;
    while again {
        again = false;
        for tree in engine.tables.trees() {
            if engine.stopping() {
                return Ok(());
            }
            engine.hooks.check(Point::Compact).map_err(|e| engine.home().unwritten("tables", e))?;
            if tree.merge(engine.table_bytes())? {
                again = true;
                // The old tables can go, and whoever waits for fewer of them hears of it.
                merged(engine, tree)?;
                drop(lock(&engine.progress));
                engine.changed.notify_all();
            }
        }
    }
    Ok(())
}
