//! The thread that moves sealed buffers into tables, oldest first.
//!
//! The order is what keeps commits: the segment is synced, the tables take the buffer's families one after the other,
//! a mark says that they have it, readers stop looking into the buffer, the segment goes. A crash in between leaves a
//! buffer to be moved again, which changes nothing: what it holds is newer than all the tables have.

use std::{
    sync::{Arc, PoisonError, atomic::Ordering},
    time::Duration,
};

use iov_types::Result;

use crate::{
    buffer::Buffer,
    engine::{Engine, Progress, lock},
    files::Applied,
    hooks::Point,
    log::{full, name},
    tables::{FAMILIES, Family, MAX_RUNS, Pin},
    view::Parts,
};

/// How long to wait before something that failed is tried again, at first and at most.
const RETRY: Duration = Duration::from_millis(50);
const RETRY_MOST: Duration = Duration::from_secs(5);

/// Room that is left on the medium besides what the tables will take.
pub(crate) const SPARE: u64 = 256 << 10;

/// What an entry of a table takes besides key and value, at most.
const ENTRY: usize = 64;

/// Why a buffer was not moved.
enum Halt {
    Stop,
    Failed(iov_types::Error),
}

impl From<iov_types::Error> for Halt {
    fn from(e: iov_types::Error) -> Halt {
        Halt::Failed(e)
    }
}

/// Runs until the store is closed.
pub(crate) fn run(engine: &Arc<Engine>) {
    let mut wait = RETRY;
    // Families of the oldest buffer that are in tables already.
    let mut done = [false; FAMILIES.len()];
    while let Some(buffer) = oldest(engine) {
        match apply(engine, &buffer, &mut done) {
            Ok(()) => {
                done = [false; FAMILIES.len()];
                wait = RETRY;
                let mut progress = lock(&engine.progress);
                progress.apply = None;
                progress.unmerged = true;
                drop(progress);
                engine.changed.notify_all();
            }
            Err(Halt::Stop) => return,
            Err(Halt::Failed(e)) => {
                lock(&engine.progress).apply = Some(e);
                engine.changed.notify_all();
                if pause(engine, wait, |progress| progress.hurry) {
                    return;
                }
                lock(&engine.progress).hurry = false;
                wait = (wait * 2).min(RETRY_MOST);
            }
        }
    }
}

/// Waits for a sealed buffer; `None` when the store is closed.
fn oldest(engine: &Engine) -> Option<Arc<Buffer>> {
    let mut progress = lock(&engine.progress);
    loop {
        if progress.stop {
            return None;
        }
        if let Some(buffer) = engine.parts().sealed.last() {
            return Some(buffer.clone());
        }
        progress = engine.changed.wait(progress).unwrap_or_else(PoisonError::into_inner);
    }
}

/// Waits a while, unless woken; whether the store is being closed.
pub(crate) fn pause(engine: &Engine, time: Duration, woken: impl Fn(&Progress) -> bool) -> bool {
    let progress = lock(&engine.progress);
    let waited = engine.changed.wait_timeout_while(progress, time, |progress| !progress.stop && !woken(progress));
    waited.unwrap_or_else(PoisonError::into_inner).0.stop
}

fn apply(
    engine: &Arc<Engine>,
    buffer: &Arc<Buffer>,
    done: &mut [bool; FAMILIES.len()],
) -> std::result::Result<(), Halt> {
    let parts = engine.parts();
    let next = parts.sealed.iter().rev().nth(1).unwrap_or(&parts.active).generation;
    drop(parts);
    let segment = engine.segment(buffer.generation)?;
    engine.sync_segment(&segment)?;
    // The log must go on somewhere once this segment is gone.
    engine.sync_segment(&engine.segment(next)?)?;
    for family in FAMILIES {
        buffer.seal(family);
    }
    for family in FAMILIES.into_iter().filter(|f| !done[*f as usize]).collect::<Vec<_>>() {
        if !buffer.read().is_empty(family) {
            wait_for_merges(engine, family)?;
            check_room(engine, buffer, family)?;
            ingest(engine, buffer, family)?;
        }
        done[family as usize] = true;
        if engine.stopping() {
            return Err(Halt::Stop);
        }
    }
    let applied = Applied { generation: buffer.generation, sequence: segment.last(), revision: buffer.last() };
    applied.write(engine.home())?;
    release(engine, buffer);
    engine.shared.counts.applied.fetch_add(1, Ordering::Relaxed);
    // A segment that stays is deleted at the next start: the mark says that it may.
    let _ = engine.home().remove(name(applied.generation));
    Ok(())
}

/// Merging must keep up, else reads would have to look into ever more tables.
fn wait_for_merges(engine: &Engine, family: Family) -> std::result::Result<(), Halt> {
    let mut progress = lock(&engine.progress);
    while engine.tables.tree(family).runs() >= MAX_RUNS {
        if progress.stop {
            return Err(Halt::Stop);
        }
        if let Some(e) = &progress.merge {
            return Err(Halt::Failed(e.clone()));
        }
        progress.unmerged = true;
        engine.changed.notify_all();
        progress = engine.changed.wait(progress).unwrap_or_else(PoisonError::into_inner);
    }
    Ok(())
}

/// A table that is cut off by a full disk is work and writes for nothing.
fn check_room(engine: &Engine, buffer: &Buffer, family: Family) -> Result<()> {
    let entries = buffer.read();
    let bytes = entries.newest(family).map(|(key, hit, _)| key.len() + hit.value.map_or(0, <[u8]>::len) + ENTRY);
    let needed = bytes.sum::<usize>() as u64 + SPARE;
    match engine.home().free_bytes() {
        Some(free) if free < needed => {
            Err(full(&engine.home().shown(""), format_args!("{free} bytes are free, {needed} are needed for tables")))
        }
        _ => Ok(()),
    }
}

fn ingest(engine: &Engine, buffer: &Buffer, family: Family) -> Result<()> {
    let tree = engine.tables.tree(family);
    engine.hooks.check(Point::Ingest).map_err(|e| engine.home().unwritten("tables", e))?;
    let entries = buffer.read();
    tree.ingest(entries.newest(family).map(|(key, hit, _)| (key, hit.value, hit.revision)))
}

/// Readers find the buffer's content in tables from now on.
fn release(engine: &Engine, buffer: &Arc<Buffer>) {
    let epoch = engine.parts().pin.epoch + 1;
    let cache = &engine.shared.cache;
    cache.advance(epoch);
    let entries = buffer.read();
    for family in FAMILIES {
        for (key, hit, hash) in entries.newest(family) {
            cache.change(key, hash, hit.value, hit.revision);
        }
    }
    drop(entries);
    engine.change_parts(|parts| Parts {
        shared: parts.shared.clone(),
        active: parts.active.clone(),
        sealed: parts.sealed.iter().filter(|b| !Arc::ptr_eq(b, buffer)).cloned().collect(),
        pin: Arc::new(Pin::new(&engine.tables, epoch)),
    });
    lock(&engine.syncing).segments.retain(|s| s.generation != buffer.generation);
    let mut released = lock(&engine.released);
    released.retain(|buffer| buffer.strong_count() > 0);
    released.push(Arc::downgrade(buffer));
}
