//! Opening a store: what was being made is made, what was interrupted is finished, what is damaged is not touched.

use std::{os::unix::fs::FileExt, path::Path, sync::Arc};

use iov_types::{Error, Kind, Result};

use crate::{
    buffer::Buffer,
    cache::Cache,
    engine::{Counts, Engine},
    files::{APPLIED_FILE, Applied, FORMAT_FILE, Home, LOCK_FILE, LOG, UNSYNCED_FILE},
    hooks::Hooks,
    log::{self, Appender, Failure, Recovered, Segment, Tail},
    options::Options,
    reserve,
    tables::{Pin, Tables},
    view::{Parts, Seed, Shared},
};

/// Opens the store in a directory, and makes it if there is none.
pub(crate) fn open(dir: &Path, options: Options, hooks: Hooks) -> Result<Engine> {
    let home = Home::open(dir)?;
    let made = home.check_format()?;
    if !made {
        begin(&home)?;
    }
    let tables = Tables::open(home, options.table_cache, !made)?;
    if !made {
        finish(&tables, &hooks)?;
    }
    let home = &tables.home;
    let applied = Applied::read(home)?.ok_or_else(|| {
        Error::corrupt(format!("{} is missing: restore it, or the store from a copy", home.shown(APPLIED_FILE)))
    })?;
    let recovered = log::recover(home, applied, &hooks)?;
    home.hold_log()?;
    log::forget_unfinished(home)?;
    if home.read(UNSYNCED_FILE)?.is_some() {
        rewrite(home, &recovered)?;
    }
    load(tables.clone(), (options, hooks), applied, recovered)
}

/// The first half of making a store. The format file comes last; without it there must be nothing that counts.
fn begin(home: &Home) -> Result<()> {
    let segments = nothing_counts(home)?;
    home.make_dir(LOG)?;
    segments.iter().try_for_each(|generation| home.remove(log::name(*generation)))
}

/// Whether there is a store in a directory: one that was not made to its end is none yet. Nothing is written to tell.
pub(crate) fn is_made(dir: &Path) -> Result<bool> {
    let there = |name: &str| {
        let found = dir.join(name).try_exists();
        found.map_err(|e| Error::from(e).context(format_args!("the metadata engine's {}", dir.display())))
    };
    if there(FORMAT_FILE)? {
        return Ok(true);
    }
    // The lock is the first file that is made.
    if there(LOCK_FILE)? {
        nothing_counts(&Home::open(dir)?)?;
    }
    Ok(false)
}

/// The segments of a store without a format file. An error if there is anything that counts.
fn nothing_counts(home: &Home) -> Result<Vec<u64>> {
    let applied = Applied::read(home)?.unwrap_or_default();
    let segments = log::list(home)?;
    let commits = |generation: &u64| -> Result<bool> {
        let len = std::fs::metadata(home.path(log::name(*generation))).map_or(0, |m| m.len());
        Ok(len > log::EMPTY_SEGMENT)
    };
    if applied != Applied::default() || segments.len() > 1 || segments.first().map_or(Ok(false), commits)? {
        return Err(Error::corrupt(format!(
            "{} holds a metadata engine, but its file `format` is missing: restore the file, or the store from a copy",
            home.shown("")
        )));
    }
    Ok(segments)
}

/// The second half.
fn finish(tables: &Tables, hooks: &Hooks) -> Result<()> {
    let home = &tables.home;
    if !tables.is_empty() {
        return Err(Error::corrupt(format!(
            "{} holds tables, but its file `format` is missing: restore the file, or the store from a copy",
            home.shown("")
        )));
    }
    let log = Appender::create(home, 1, Tail::default(), 0, hooks)?;
    log.segment.sync(home)?;
    Applied::default().write(home)?;
    home.write_format()
}

/// After a sync that failed, pages of the log pass for clean though the medium does not have them. Writing them again
/// settles it: they arrive, or the sync fails again.
fn rewrite(home: &Home, recovered: &Recovered) -> Result<()> {
    for segment in &recovered.segments {
        let name = log::name(segment.generation);
        let bytes = home.read(&name)?.unwrap_or_default();
        let bytes = bytes.get(..segment.tail.offset as usize).unwrap_or(&bytes);
        match home.replace(&name, bytes) {
            // Where there is no room for another file, it is written over: every byte stays what it is.
            Err(e) if e.kind() == Kind::Exhausted => overwrite(home, &name, bytes)?,
            replaced => replaced?,
        }
    }
    home.sync_dir(LOG)?;
    home.remove(UNSYNCED_FILE)?;
    home.sync_dir("")
}

fn overwrite(home: &Home, name: &str, bytes: &[u8]) -> Result<()> {
    let file = std::fs::File::options().write(true).open(home.path(name));
    let done = file.and_then(|file| file.write_all_at(bytes, 0).and_then(|()| file.sync_all()));
    done.map_err(|e| home.failed(name, e))
}

/// Brings the log into memory. All segments but the last go on to tables in the background.
fn load(
    tables: Arc<Tables>,
    (options, hooks): (Options, Hooks),
    applied: Applied,
    recovered: Recovered,
) -> Result<Engine> {
    let home = &tables.home;
    let options = options.on(home.total_bytes());
    // The newest first, and each for good: whoever starts anew in the middle of that finds none missing between two others.
    for generation in recovered.stale.iter().rev() {
        home.remove(log::name(*generation))?;
        home.sync_dir(LOG)?;
    }
    let pin = Arc::new(Pin::new(&tables, applied.generation));
    let cache = Cache::new(options.record_cache, pin.epoch);
    let shared = Arc::new(Shared { seed: Seed::random(), cache, counts: Counts::default() });
    let (mut buffers, mut segments) = (Vec::new(), Vec::new());
    let mut before = Tail { offset: 0, sequence: applied.sequence, revision: applied.revision };
    let (mut committed, count) = (applied.sequence, recovered.segments.len());
    for loaded in recovered.segments {
        let segment = Arc::new(Segment::open(home, loaded.generation, loaded.salt, loaded.tail, &hooks)?);
        if loaded.cut {
            let cut = segment.cut(loaded.tail.offset);
            cut.map_err(|e| home.failed(log::name(loaded.generation), e))?;
        }
        let buffer = Buffer::new(loaded.generation, shared.seed.clone(), before.revision);
        for ([first, last], frame, writes) in loaded.frames {
            buffer.add(frame, &writes, first, last);
        }
        if loaded.committed > 0 {
            segment.wrote(loaded.committed);
            committed = loaded.committed;
        }
        before = loaded.tail;
        buffers.push(Arc::new(buffer));
        segments.push(segment);
    }
    let active = buffers.pop().zip(segments.last().cloned());
    let (active, segment) = active.ok_or_else(|| Error::internal(format!("{count} segments of the log")))?;
    buffers.reverse();
    let mut log = Appender::open(home, segment, before);
    reserve::settle(home, &mut log)?;
    segments.iter().rev().skip(1).for_each(|segment| segment.trim());
    let synced = recovered.synced.min(committed);
    // From here on frames are written under this boot of the machine.
    match log.mark(home, synced, &hooks) {
        // The next commit tries again.
        Ok(()) | Err(Failure::Full(_)) => {}
        Err(Failure::Broken(e)) => return Err(e),
    }
    let parts = Parts { shared, active, sealed: buffers, pin };
    let engine = Engine::new((options, hooks), tables.clone(), parts, log, segments, [committed, synced]);
    engine.look_at_space();
    Ok(engine)
}
