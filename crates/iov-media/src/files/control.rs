//! The verbs that change what may be done with an object: create, seal, fence, remove.

use std::{
    os::fd::{AsFd, AsRawFd},
    sync::{Arc, PoisonError, atomic::Ordering},
};

use iov_store::{LENT_MODE, OpCx, objects::seal_over_changes};
use iov_types::{Clause, Error, Evidence, ObjectOp, Result};
use rustix::fs::{Mode, OFlags};

use super::{
    Files, Which,
    change::is_durable,
    io,
    object::Object,
    tree::{FileName, SEALED_MODE},
};
use crate::fail;

/// From this size on the space of a removed file is given back at once.
const LARGE: u64 = 64 << 10;

/// Gives the space of a file back that has no name any more. Else it would be taken until the last client that was ever
/// granted access has closed its descriptor, which it does when it needs another one.
fn free(file: impl AsFd) {
    // Its mode forbids that where it was sealed; nobody can find it to be misled.
    let _ = rustix::fs::fchmod(&file, Mode::RUSR | Mode::WUSR);
    let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    let _ = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()).map(|f| io::truncate(f, 0));
}

/// Whether somebody may have a sealed file mapped who is not known here. What cannot be told is taken for that.
fn is_lent(file: impl AsFd) -> bool {
    rustix::fs::fstat(file).map_or(true, |stat| stat.st_mode & LENT_MODE != 0)
}

impl Files {
    /// `Create`.
    pub(super) fn create(&self, op: &ObjectOp) -> Result<Evidence> {
        let object = self.object(op.object);
        // Not held up by a freeze: an empty file shows nothing.
        let mut state = object.write_now(self)?;
        if state.removed {
            return Err(Error::not_found("the collection was deleted").with_clause(Clause::O10));
        }
        self.ensure(&object, &mut state)?;
        if is_durable(&op.demand) {
            self.quiesce(&object, &mut state)?;
            self.sync_object(&object, &state)?;
        }
        state.evidence(self, op.object, None)
    }

    /// `Seal`: atomic against changes under way, those of clients that write themselves included (M2).
    pub(super) fn seal(&self, cx: &OpCx, op: &ObjectOp) -> Result<Evidence> {
        let object = self.object(op.object);
        // Whoever seals several objects at once has frozen them before.
        let mut state = object.write(self, cx, op.demand.stage)?;
        state.check_epoch(&op.demand)?;
        if op.demand.stage.is_some_and(|stage| state.stages.contains_key(&stage)) {
            return Err(seal_over_changes());
        }
        if !state.sealed {
            fail::point("seal.0.begin")?;
            self.ensure(&object, &mut state)?;
            self.recall(&object, &mut state, Which::Writers, None)?;
            fail::point("seal.1.revoked")?;
            self.trim_tail(&object, &mut state);
            state.trim(self, object.id)?;
            let body = state.data(&self.disk, object.id)?;
            // The mode is the seal: it is changed in one step, lies with the bytes, and nobody opens them for writing.
            object.mode_unsynced.store(true, Ordering::SeqCst);
            body.set_mode(self.sealed_mode(&object))?;
            self.disk.forget(FileName::Data(object.id));
            state.sealed = true;
            fail::point("seal.2.sealed")?;
        }
        if is_durable(&op.demand) {
            self.quiesce(&object, &mut state)?;
            self.sync_object(&object, &state)?;
        }
        state.evidence(self, op.object, None)
    }

    /// The mode of a file that is sealed. That somebody may have it mapped is true of it as before.
    fn sealed_mode(&self, object: &Object) -> Mode {
        let file = self.disk.segments().is_none().then(|| self.disk.get(FileName::Data(object.id), false));
        let lent = matches!(file, Some(Ok(Some(file))) if is_lent(&file));
        if lent { SEALED_MODE | Mode::from_raw_mode(LENT_MODE) } else { SEALED_MODE }
    }

    /// `Fence`: writers of older epochs are out before it completes (X1).
    pub(super) fn fence(&self, cx: &OpCx, op: &ObjectOp, epoch: u64) -> Result<Evidence> {
        let object = self.object(op.object);
        let mut state = object.write(self, cx, None)?;
        state.check_epoch(&op.demand)?;
        if epoch < state.facts.epoch {
            let present = state.facts.epoch;
            return Err(Error::conflict(format!("epoch {epoch} is behind the object's {present}")));
        }
        self.ensure(&object, &mut state)?;
        if epoch > state.facts.epoch {
            fail::point("fence.0.begin")?;
            self.recall(&object, &mut state, Which::All, Some(epoch))?;
            fail::point("fence.1.revoked")?;
            self.update(&object, &mut state, is_durable(&op.demand), |facts| facts.epoch = epoch)?;
            fail::point("fence.2.fenced")?;
        }
        if is_durable(&op.demand) {
            self.quiesce(&object, &mut state)?;
            self.sync_object(&object, &state)?;
        }
        state.evidence(self, op.object, None)
    }

    /// `Remove`: the name goes at once, and the space with it, whoever still has a descriptor (O10).
    pub(super) fn remove(&self, op: &ObjectOp) -> Result<Evidence> {
        let object = self.object(op.object);
        // Not held up by a freeze: its batch has no say in whether the object lives on, and may be dead.
        // One that is damaged goes as well: its space must not be lost.
        let mut state = object.write_to_remove(self)?;
        if !state.removed {
            state.check_fence(&op.demand)?;
            fail::point("remove.0.begin")?;
            // Stages first: one that outlived its object could bring it back.
            let stages: Vec<_> = state.stages.keys().copied().collect();
            for stage in stages {
                self.disk.remove(FileName::Log(stage, object.id))?;
                self.disk.remove(FileName::Image(stage, object.id))?;
                state.stages.remove(&stage);
                self.budget.give_all(stage, object.id);
            }
            // Who has it open no more may keep a descriptor: what that reads is void from now on.
            if self.leases.any(object.id) {
                self.leases.recall(object.id, Which::All, None, 1);
            }
            if state.kept.is_kept() || !state.loaded {
                // Before its bytes: what is kept and not there has been lost.
                self.sums.forget(object.id)?;
            }
            let large = match state.exists && self.disk.segments().is_none() {
                true => {
                    self.disk.get(FileName::Data(object.id), false)?.filter(|f| io::length(f).is_ok_and(|n| n >= LARGE))
                }
                false => None,
            };
            let waits = self.leases.waits(object.id);
            // Who looks at it in place keeps it, and with it the space, until that is over.
            let in_use = !waits.is_empty();
            self.disk.remove_used(FileName::Data(object.id), waits)?;
            fail::point("remove.1.data")?;
            // Looked at behind the recall: whoever lends it from now on hears that its grant is gone.
            if let Some(file) = large.filter(|file| !in_use && !is_lent(file)) {
                free(&file);
            }
            self.disk.remove(FileName::Side(object.id))?;
            fail::point("remove.2.sidecar")?;
            object.end(&mut state);
            let mut objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
            if objects.known.get(&object.id).is_some_and(|known| Arc::ptr_eq(known, &object)) {
                objects.known.remove(&object.id);
            }
        }
        if is_durable(&op.demand) {
            self.disk.tree.sync_folder(FileName::Data(object.id))?;
        }
        Ok(Evidence::default())
    }
}
