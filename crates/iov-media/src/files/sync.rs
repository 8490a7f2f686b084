//! What changes survive (P3, P5), and what follows when that fails (P8).

use std::sync::{
    PoisonError, RwLockWriteGuard,
    atomic::{AtomicBool, Ordering},
};

use iov_store::OpCx;
use iov_types::{Clause, Demand, Evidence, Kind, ObjectOp, Range, Result};

use super::{
    Files,
    body::Body,
    change::is_durable,
    io,
    journal::Journal,
    object::{Object, State},
    tree::FileName,
};
use crate::fail;

impl Files {
    /// `Sync`: of what is staged, or of the object.
    pub(super) fn sync(&self, cx: &OpCx, op: &ObjectOp) -> Result<Evidence> {
        let object = self.object(op.object);
        let began = is_durable(&op.demand) && self.sums.is_kept();
        let state = match began {
            true => {
                let mut state = object.write(self, cx, op.demand.stage)?;
                self.quiesce(&object, &mut state)?;
                state.kept.begin(op.demand.stage.is_none());
                // Who only looks need not wait for the medium.
                RwLockWriteGuard::downgrade(state)
            }
            false => object.read(self, cx, op.demand.stage)?,
        };
        let synced = state.check_epoch(&op.demand).and_then(|()| match is_durable(&op.demand) {
            true => match state.stage(op.demand.stage)? {
                Some(mut stage) => stage.sync(&self.disk),
                None => self.sync_object(&object, &state),
            },
            false => Ok(()),
        });
        if began {
            state.kept.begin(false);
        }
        synced?;
        let mut evidence = state.evidence(self, op.object, op.demand.stage)?;
        evidence.durability = op.demand.durability.max(evidence.durability);
        Ok(evidence)
    }

    /// What a change demands beyond being made: to survive, and to leave no trace.
    pub(super) fn settle(&self, object: &Object, state: &State, demand: &Demand, range: Option<Range>) -> Result<()> {
        if is_durable(demand) {
            self.sync_object(object, state)?;
        }
        if let (true, Some(range), true) = (demand.once, range, state.exists) {
            // From the beginning: what was dirty at the last write may be clean now. Little of it is left in the cache.
            state.data(&self.disk, object.id)?.forget(Range { offset: 0, len: range.end() });
        }
        Ok(())
    }

    /// Syncs the bytes of an object.
    pub(super) fn sync_file(&self, object: &Object, body: &Body) -> Result<()> {
        object.check_sync()?;
        let synced = fail::point("sync.data").and_then(|()| body.sync_data());
        self.judge(object, synced)
    }

    /// Makes everything acknowledged of an object survive power loss, and notes its checksums. Where there are any, the
    /// object must be quiet ([`Files::quiesce`]).
    pub(super) fn sync_object(&self, object: &Object, state: &State) -> Result<()> {
        object.check_sync()?;
        if state.exists {
            self.sync_file(object, &state.data(&self.disk, object.id)?)?;
        }
        // One at a time: whoever finds a flag down must not overtake the one who is syncing what it stood for.
        let _one = object.syncing.lock().unwrap_or_else(PoisonError::into_inner);
        let once = |flag: &AtomicBool, sync: &dyn Fn() -> Result<()>| {
            if !flag.swap(false, Ordering::SeqCst) {
                return Ok(());
            }
            sync().inspect_err(|_| flag.store(true, Ordering::SeqCst))
        };
        let name = FileName::Data(object.id);
        let synced = once(&object.mode_unsynced, &|| match state.exists {
            true => state.data(&self.disk, object.id)?.sync_all(),
            false => Ok(()),
        })
        .and_then(|()| {
            once(&object.side_unsynced, &|| match self.disk.get(FileName::Side(object.id), true)? {
                Some(side) => io::sync_data(side),
                None => Ok(()),
            })
        })
        .and_then(|()| {
            // Else a change of a unit, done long ago, could be done again over newer bytes after a cut of power.
            once(&object.journal_unsynced, &|| match self.disk.get(Journal::file(object.id), true)? {
                Some(journal) => io::sync_data(journal),
                None => Ok(()),
            })
        })
        .and_then(|()| once(&object.folder_unsynced, &|| self.disk.tree.sync_folder(name)));
        self.judge(object, synced)?;
        match self.close_blocks(object, state) {
            // Nothing was written: the blocks are open as before.
            Err(e) if e.kind() == Kind::Exhausted => Err(e),
            // Whether it was is not known, nor what is open now.
            closed => self.judge(object, closed),
        }
    }

    /// Remembers a failed sync: the kernel may take the lost pages for clean from now on.
    fn judge(&self, object: &Object, synced: Result<()>) -> Result<()> {
        synced.map_err(|e| {
            object.sync_failed.store(true, Ordering::SeqCst);
            e.context("the sync has failed, and the collection with it").with_clause(Clause::P8)
        })
    }

    /// Writes down that a sync of this object has failed, so that the next daemon knows as well. What can be done.
    pub(super) fn record_failure(&self, object: &Object) {
        // What was staged and could not be synced is dropped, and the object is as it was.
        if object.sync_failed.load(Ordering::SeqCst)
            && let Ok(mut state) = object.write_now(self)
            && state.exists
            && !state.facts.failed
        {
            let _ = self.update(object, &mut state, false, |facts| facts.failed = true);
        }
    }
}
