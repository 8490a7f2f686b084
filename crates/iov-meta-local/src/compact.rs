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
    space::{merged, reclaim_all},
};

/// How long to wait before something that failed is tried again.
const RETRY: Duration = Duration::from_millis(500);

/// Runs until the store is closed.
pub(crate) fn run(engine: &Arc<Engine>) {
    while let Some(reclaim) = work(engine) {
        // What must be done for reads first: else commits would wait for more runs than there may be.
        let done = merge_all(engine).and_then(|()| reclaim_all(engine, reclaim));
        if reclaim {
            lock(&engine.progress).reclaim = false;
        }
        match done {
            Ok(()) => {
                lock(&engine.progress).merge = None;
                engine.changed.notify_all();
            }
            Err(e) => {
                let mut progress = lock(&engine.progress);
                progress.merge = Some(e);
                progress.unmerged = true;
                drop(progress);
                engine.changed.notify_all();
                if pause(engine, RETRY) {
                    return;
                }
            }
        }
    }
}

/// Waits for new tables, and says whether there is no room; `None` when the store is closed.
fn work(engine: &Engine) -> Option<bool> {
    let mut progress = lock(&engine.progress);
    loop {
        if progress.stop {
            return None;
        }
        if std::mem::take(&mut progress.unmerged) || progress.reclaim {
            return Some(progress.reclaim);
        }
        progress = engine.changed.wait(progress).unwrap_or_else(PoisonError::into_inner);
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
            engine.hooks.check(Point::Compact).map_err(|e| engine.home().failed("tables", e))?;
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
