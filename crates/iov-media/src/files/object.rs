//! One object: its state under one lock, and the freeze that keeps everybody out around point P.

use std::{
    collections::HashMap,
    os::fd::AsFd,
    sync::{
        Condvar, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use iov_store::{OpCx, seam};
use iov_types::{Clause, Demand, Error, Evidence, Kind, ObjectId, ObjectVerb, Persistence, Range, Result, Uuid};
use rustix::{fs::AtFlags, io::Errno};

use super::{
    Files, Which,
    appends::Appends,
    body::Body,
    disk::Disk,
    grants::WHOLE,
    io, look,
    sidecar::{self, Facts},
    stage::Stage,
    sums::{Kept, too_short},
    tree::FileName,
};

/// What is known of an object; read from disk when it is first used.
#[derive(Default)]
pub(super) struct State {
    pub(super) loaded: bool,
    pub(super) removed: bool,
    /// Whether it has a file.
    pub(super) exists: bool,
    pub(super) sealed: bool,
    pub(super) facts: Facts,
    /// The log of appends, if there ever was one.
    pub(super) appends: Option<Appends>,
    /// Units were changed since this was read: nobody may look past our lock.
    pub(super) unit: bool,
    /// A change could not be finished, so the bytes are neither old nor new: why.
    pub(super) torn: Option<Error>,
    pub(super) frozen: Option<Uuid>,
    /// Its checksums, from the first durable sync on.
    pub(super) kept: Kept,
    /// Ranges that a process may still write to, since moving them out of its reach has failed: nothing goes on before it is
    /// done (G2).
    pub(super) unmoved: Vec<Range>,
    /// Staged changes, or why they cannot be used.
    pub(super) stages: HashMap<Uuid, Result<Mutex<Stage>>>,
}

/// An object in use.
pub(super) struct Object {
    pub(super) id: ObjectId,
    /// The protection domain whose space its bytes go to, once it is known (G5).
    domain: OnceLock<Uuid>,
    state: RwLock<State>,
    thaw: (Mutex<bool>, Condvar),
    /// Held while facts about the file are synced, so that nobody takes for done what is under way.
    pub(super) syncing: Mutex<()>,
    /// The folder, the sidecar, the mode or the journal hold something that may not be on disk yet.
    pub(super) folder_unsynced: AtomicBool,
    pub(super) side_unsynced: AtomicBool,
    pub(super) mode_unsynced: AtomicBool,
    pub(super) journal_unsynced: AtomicBool,
    /// A sync has failed (P8).
    pub(super) sync_failed: AtomicBool,
    /// A change of a unit was begun and not finished (M1).
    pub(super) half_done: AtomicBool,
}

/// The stage that may pass a freeze: its own.
fn passes(state: &State, stage: Option<Uuid>) -> bool {
    state.frozen.is_none() || state.frozen == stage
}

impl Object {
    pub(super) fn new(id: ObjectId) -> Object {
        Object {
            id,
            domain: OnceLock::new(),
            state: RwLock::default(),
            thaw: Default::default(),
            syncing: Mutex::default(),
            // What an earlier daemon has synced is not known.
            folder_unsynced: AtomicBool::new(true),
            side_unsynced: AtomicBool::new(true),
            mode_unsynced: AtomicBool::new(true),
            journal_unsynced: AtomicBool::new(true),
            sync_failed: AtomicBool::new(false),
            half_done: AtomicBool::new(false),
        }
    }

    /// The protection domain of bytes that have no place yet.
    pub(super) fn domain(&self) -> Uuid {
        self.domain.get().copied().unwrap_or(Uuid::NIL)
    }

    /// Takes note of it.
    pub(super) fn note_domain(&self, domain: Uuid) {
        let _ = self.domain.set(domain);
    }

    fn wait_for_thaw(&self, cx: &OpCx) -> Result<()> {
        let mut frozen = self.thaw.0.lock().unwrap_or_else(PoisonError::into_inner);
        while *frozen {
            let left = cx.left_ns();
            if left == 0 {
                return Err(Error::timeout("the object is being published by another batch").with_clause(Clause::B3));
            }
            let wait = Duration::from_nanos(left as u64);
            frozen = self.thaw.1.wait_timeout(frozen, wait).unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(())
    }

    fn set_frozen(&self, frozen: bool) {
        *self.thaw.0.lock().unwrap_or_else(PoisonError::into_inner) = frozen;
        self.thaw.1.notify_all();
    }

    /// The state, shared, once no other stage than `stage` keeps it frozen.
    pub(super) fn read(&self, files: &Files, cx: &OpCx, stage: Option<Uuid>) -> Result<RwLockReadGuard<'_, State>> {
        loop {
            let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
            if !state.loaded {
                drop(state);
                drop(self.write_now(files)?);
            } else if state.kept.found_open() && passes(&state, stage) {
                drop(state);
                drop(self.write(files, cx, stage)?);
            } else if passes(&state, stage) {
                return Ok(state);
            } else {
                drop(state);
                self.wait_for_thaw(cx)?;
            }
        }
    }

    /// Whether there is a file for it, frozen or not.
    pub(super) fn exists(&self, files: &Files) -> Result<bool> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        if state.loaded {
            return Ok(state.exists);
        }
        drop(state);
        Ok(self.write_now(files)?.exists)
    }

    /// As [`Object::write`], if that is possible at once.
    pub(super) fn try_write(&self) -> Option<RwLockWriteGuard<'_, State>> {
        self.state.try_write().ok().filter(|state| state.loaded && !state.kept.found_open() && passes(state, None))
    }

    /// As [`Object::read`], if that is possible at once.
    pub(super) fn try_read(&self) -> Option<RwLockReadGuard<'_, State>> {
        self.state.try_read().ok().filter(|state| state.loaded && !state.kept.found_open() && passes(state, None))
    }

    /// The state for changing it, once no other stage than `stage` keeps it frozen.
    pub(super) fn write(&self, files: &Files, cx: &OpCx, stage: Option<Uuid>) -> Result<RwLockWriteGuard<'_, State>> {
        loop {
            let mut state = self.write_now(files)?;
            if passes(&state, stage) {
                if state.kept.found_open() {
                    files.close_found(self, &mut state);
                }
                return Ok(state);
            }
            drop(state);
            self.wait_for_thaw(cx)?;
        }
    }

    /// The state for changing it, frozen or not.
    pub(super) fn write_now(&self, files: &Files) -> Result<RwLockWriteGuard<'_, State>> {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        if !state.loaded {
            let loaded = State::load(files, self)?;
            // Only now: where it cannot be read, what is to be moved is so still.
            let loaded = State { unmoved: std::mem::take(&mut state.unmoved), ..loaded };
            if loaded.frozen.is_some() {
                self.set_frozen(true);
            }
            self.sync_failed.store(loaded.facts.failed, Ordering::SeqCst);
            *state = loaded;
            if !state.unmoved.is_empty() {
                // Before anybody is served. If it fails, whoever must not be overtaken by a late write tries again.
                let _ = files.recall(self, &mut state, Which::All, None);
            }
            files.drop_late(self, &mut state);
        }
        Ok(state)
    }

    /// A process may still write to all of it, and it could not be moved yet: that is done once it can be read.
    pub(super) fn note_unmoved(&self) {
        self.state.write().unwrap_or_else(PoisonError::into_inner).unmoved = vec![WHOLE];
    }

    /// The state for removing it: of one that cannot be read, what is known anyhow.
    pub(super) fn write_to_remove(&self, files: &Files) -> Result<RwLockWriteGuard<'_, State>> {
        let e = match self.write_now(files) {
            Err(e) if matches!(e.kind(), Kind::Corrupt | Kind::Unavailable) => e,
            read => return read,
        };
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        if e.kind() != Kind::Corrupt {
            // Its stages go as well, whatever they hold; but a holder that was fenced removes nothing. Who is not let, or
            // cannot, leaves it to be read anew.
            let base = State::load_base(files, self)?;
            *state = State { loaded: false, unmoved: std::mem::take(&mut state.unmoved), ..base };
        }
        for stage in files.budget.of_object(self.id) {
            state.stages.insert(stage, Err(e.clone()));
        }
        Ok(state)
    }

    /// Keeps everybody but `stage` out.
    pub(super) fn freeze(&self, state: &mut State, stage: Uuid) {
        // In this order: whoever sees the mark must find something to wait for.
        self.set_frozen(true);
        state.frozen = Some(stage);
    }

    /// Lets everybody in, if it was `stage` that kept them out.
    pub(super) fn end_freeze(&self, state: &mut State, stage: Uuid) {
        if state.frozen == Some(stage) {
            state.frozen = None;
            self.set_frozen(false);
        }
    }

    /// Ends its life: whoever waits finds it gone.
    pub(super) fn end(&self, state: &mut State) {
        *state = State { loaded: true, removed: true, ..State::default() };
        self.set_frozen(false);
    }

    /// Forgets what is in memory; the next use reads it from disk. For errors after which memory and disk may differ.
    pub(super) fn reload(&self, state: &mut State) {
        *state = State { unmoved: std::mem::take(&mut state.unmoved), ..State::default() };
        self.set_frozen(false);
    }

    /// Whether nothing would be lost with it.
    pub(super) fn is_idle(&self) -> bool {
        self.state.try_read().is_ok_and(|s| {
            let rests = s.frozen.is_none() && s.stages.is_empty() && !s.kept.has_open();
            rests && s.unmoved.is_empty() && s.torn.is_none() && !self.sync_failed.load(Ordering::SeqCst)
        })
    }
}

/// Why an object cannot be used.
pub(super) fn torn(why: &str) -> Error {
    Error::corrupt(format!("{why}: restore the object from a copy of the store, or remove it")).with_clause(Clause::M1)
}

impl State {
    /// What is known of an object without its stages.
    fn load_base(files: &Files, object: &Object) -> Result<State> {
        let (disk, id) = (&files.disk, object.id);
        let mut state = State { loaded: true, ..State::default() };
        match rustix::fs::statat(&disk.tree.root, FileName::Data(id).path(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => (state.exists, state.sealed) = (true, stat.st_mode & 0o200 == 0),
            Err(Errno::NOENT) => {}
            Err(e) => return Err(io::os("looking for an object")(e)),
        }
        state.kept = files.load_sums(id)?;
        if state.kept.is_kept() && !state.exists {
            state.torn = Some(too_short(0, state.kept.length()));
        }
        // A sidecar without a file is what is left of an object that was removed.
        if state.exists
            && let Some(side) = disk.get(FileName::Side(id), true)?
        {
            state.facts = match disk.tree.read_only {
                true => sidecar::look(side.as_fd(), id)?.0,
                false => sidecar::load(&side, id)?,
            };
            state.appends = Appends::load(&side)?;
            if state.facts.torn {
                state.torn = Some(torn("a unit holds a part of a change that cannot be finished"));
            }
        }
        Ok(state)
    }

    fn load(files: &Files, object: &Object) -> Result<State> {
        let (disk, id) = (&files.disk, object.id);
        let mut state = State::load_base(files, object)?;
        let stages: Vec<_> = files.budget.of_object(id);
        let stages = stages.into_iter().map(|stage| Ok((stage, Stage::was_decided(disk, stage, id)?)));
        let stages = stages.collect::<Result<Vec<_>>>()?;
        // Once publishing has begun the file may have any length; the plan knows what it was, and the others learn it behind that.
        let has_length = !stages.is_empty() && stages.iter().all(|(_, decided)| !decided);
        let base = if has_length { state.size(files, id) } else { Ok(0) };
        for (stage, decided) in stages {
            let slot = match base.clone().and_then(|base| Stage::load(disk, stage, id, base)) {
                Ok(stage) => {
                    if disk.tree.read_only {
                        // Nobody will come to publishing it: who looks waits for nobody.
                        state.torn = state.torn.or(stage.decided.then(look::unfinished));
                    } else if stage.decided || stage.froze && files.behind.holds(stage.id, id) {
                        state.frozen = Some(stage.id);
                    }
                    Ok(Mutex::new(stage))
                }
                // It is read when it is asked for again: nobody passes by what may have frozen it. What is damaged stays so.
                Err(e) if e.kind() != Kind::Corrupt => return Err(e),
                Err(e) => {
                    if decided {
                        state.torn = Some(e.clone().context("a publication was cut short and cannot be finished"));
                    }
                    Err(e)
                }
            };
            state.stages.insert(stage, slot);
        }
        Ok(state)
    }

    /// The file, which must be there.
    pub(super) fn data(&self, disk: &Disk, id: ObjectId) -> Result<Body> {
        disk.must_body(FileName::Data(id), !self.sealed)
    }

    /// Length of the object: without what a torn append has left behind the end.
    pub(super) fn size(&self, files: &Files, id: ObjectId) -> Result<u64> {
        if !self.exists {
            return Ok(0);
        }
        let length = self.data(&files.disk, id)?.length()?;
        self.committed(length)
    }

    /// Length of an object whose file has `length` bytes.
    pub(super) fn committed(&self, length: u64) -> Result<u64> {
        if length < self.kept.length() {
            return Err(too_short(length, self.kept.length()));
        }
        match &self.appends {
            None => Ok(length),
            Some(appends) if length < appends.end() => Err(Error::corrupt(format!(
                "the object should have {} bytes, its file has {length}: restore it from a copy of the store",
                appends.end()
            ))
            .with_clause(Clause::M4)),
            Some(appends) => Ok(appends.end()),
        }
    }

    /// Cuts off what a torn append has left behind the end, before something else grows the file over it.
    pub(super) fn trim(&self, files: &Files, id: ObjectId) -> Result<()> {
        if let (true, Some(appends)) = (self.exists, &self.appends) {
            let body = self.data(&files.disk, id)?;
            if body.length()? > appends.end() {
                body.keeping_time(|| body.truncate(appends.end(), files.leases.waits(id)))?;
            }
        }
        Ok(())
    }

    /// A stage, locked, if it has changes for this object.
    pub(super) fn stage(&self, stage: Option<Uuid>) -> Result<Option<MutexGuard<'_, Stage>>> {
        match stage.and_then(|id| self.stages.get(&id)) {
            None => Ok(None),
            Some(Ok(stage)) => Ok(Some(stage.lock().unwrap_or_else(PoisonError::into_inner))),
            Some(Err(e)) => Err(e.clone()),
        }
    }

    pub(super) fn check_epoch(&self, demand: &Demand) -> Result<()> {
        if self.removed {
            return Err(Error::not_found("the collection was deleted").with_clause(Clause::O10));
        }
        if let Some(why) = &self.torn {
            return Err(why.clone());
        }
        self.check_fence(demand)
    }

    pub(super) fn check_fence(&self, demand: &Demand) -> Result<()> {
        if demand.epoch != 0 && demand.epoch < self.facts.epoch {
            return Err(Error::fenced("another holder has opened it since; close, then reopen").with_clause(Clause::X1));
        }
        Ok(())
    }

    pub(super) fn check_change(&self, object: &Object, demand: &Demand) -> Result<()> {
        self.check_epoch(demand)?;
        if self.sealed {
            return Err(Error::immutable("the collection is sealed; write to a new one").with_clause(Clause::M2));
        }
        object.check_sync()
    }

    /// Checks a change of `len` bytes of memory to an object of `before` bytes against the largest offset, what the
    /// file system can hold, and `max_size`.
    pub(super) fn check_room(files: &Files, verb: &ObjectVerb, len: u64, demand: &Demand, before: u64) -> Result<()> {
        let end = match verb {
            ObjectVerb::Write { offset } => {
                Range::new(*offset, len).map(|r| if len == 0 { before } else { r.end() })?
            }
            ObjectVerb::Append => Range::new(before, len)?.end(),
            ObjectVerb::Truncate { size } => Range::new(*size, 0)?.end(),
            ObjectVerb::Punch(range) => Range::new(range.offset, range.len).map(|_| before)?,
            ObjectVerb::Allocate { range, keep_size } => {
                let end = Range::new(range.offset, range.len)?.end();
                if range.len == 0 || *keep_size && end <= files.max_file { before } else { end }
            }
            _ => before,
        };
        if demand.max_size != 0 && end > demand.max_size && end > before {
            return Err(Error::file_too_big(format!(
                "byte {end} is beyond collection_size.max = {}; use a collection with a larger limit",
                demand.max_size
            ))
            .with_clause(Clause::H1));
        }
        if end > files.max_file && end > before {
            return Err(Error::file_too_big(format!(
                "byte {end} is beyond the {} bytes that a file can have in this store's file system",
                files.max_file
            )));
        }
        Ok(())
    }

    /// Facts after an operation; of the view through `stage` if there is one.
    pub(super) fn evidence(&self, files: &Files, id: ObjectId, stage: Option<Uuid>) -> Result<Evidence> {
        let mut evidence = Evidence {
            version: self.facts.version,
            epoch: self.facts.epoch,
            durability: Some(Persistence::Process),
            ..Evidence::default()
        };
        if self.exists {
            let facts = self.data(&files.disk, id)?.facts()?;
            evidence.size = self.committed(facts.length)?;
            (evidence.allocated, evidence.mtime_ns) = (facts.allocated, facts.mtime_ns);
        }
        if let Some(stage) = self.stage(stage)? {
            evidence.size = stage.size(evidence.size);
            evidence.mtime_ns = seam::now_ns();
        }
        Ok(evidence)
    }
}

impl Object {
    /// Refuses what would take failed bytes for good ones (P8).
    pub(super) fn check_sync(&self) -> Result<()> {
        if self.sync_failed.load(Ordering::SeqCst) {
            return Err(iov_store::objects::failed_before());
        }
        Ok(())
    }
}
