//! What clients of an earlier daemon had staged. Those that live come back, and go on; what nobody can come back for is
//! dropped.

use std::sync::{PoisonError, atomic::Ordering};

use iov_types::{Kind, ObjectId, Result, Uuid};

use super::{
    Files,
    object::{Object, State},
};

/// One whose publication has begun stays.
fn unless_decided(dropped: Result<()>) -> Result<()> {
    match dropped {
        Err(e) if e.kind() == Kind::Conflict => Ok(()),
        other => other,
    }
}

impl Files {
    /// Whether a session that an earlier daemon served may still come back: its process lives and has not ended it.
    pub fn awaits_clients(&self) -> bool {
        self.leases.awaits_clients()
    }

    /// The session of an earlier daemon is here, and has claimed what it had staged.
    pub fn came_back(&self, session: Uuid) {
        let earlier = self.leases.earlier.lock().unwrap_or_else(PoisonError::into_inner).remove(&session);
        if earlier.is_some() {
            // Its old pages go; those that cannot be removed now do so with the next sweep.
            let _ = self.leases.reap(&self.disk);
        }
    }

    /// Drops all stages but those to keep: the end of recovery, when it is known which batches have reached point P, and
    /// nobody is left who could go on with another. One whose publication has begun stays.
    pub fn drop_stages(&self, keep: &[Uuid]) -> Result<()> {
        self.settled.store(true, Ordering::SeqCst);
        let dropped = self.each_stage(keep, |object, stage| {
            let object = self.object(object);
            match object.write_now(self) {
                Ok(mut state) => self.drop_unless_decided(&object, &mut state, stage),
                Err(e) => unless_decided(self.drop_unread(&object, stage, e).map(drop)),
            }
        });
        dropped.and(self.hold_stages(keep))
    }

    /// Lets nobody pass before what is kept is published. Of several stages that once froze an object, each says so on disk, and
    /// one of those that do not count any more may have been taken for the one that does.
    fn hold_stages(&self, keep: &[Uuid]) -> Result<()> {
        let kept = |(stage, _): &(Uuid, Vec<ObjectId>)| keep.contains(stage);
        let mut first = Ok(());
        for (stage, objects) in self.stages().into_iter().filter(kept) {
            for object in objects {
                let object = self.object(object);
                match object.write_now(self) {
                    Ok(mut state) => {
                        if matches!(state.stage(Some(stage)), Ok(Some(staged)) if staged.froze) {
                            object.freeze(&mut state, stage);
                        }
                    }
                    // Nobody passes what cannot be read; the others are held all the same.
                    Err(e) => first = first.and(Err(e)),
                }
            }
        }
        first
    }

    fn drop_unless_decided(&self, object: &Object, state: &mut State, stage: Uuid) -> Result<()> {
        unless_decided(self.drop_stage(object, state, stage))
    }

    /// Lets everybody pass what a batch had frozen that never reached its point P: of those of an earlier daemon only
    /// the ones to keep have. What it staged stays, for its client to go on with.
    pub fn thaw_stages(&self, keep: &[Uuid]) -> Result<()> {
        self.settled.store(true, Ordering::SeqCst);
        let thawed = self.each_stage(keep, |object, stage| {
            let object = self.object(object);
            let mut state = object.write_now(self)?;
            // One whose publication has begun, or that cannot be read, keeps its object as it is.
            if matches!(state.stage(Some(stage)), Ok(Some(staged)) if !staged.decided) {
                object.end_freeze(&mut state, stage);
            }
            Ok(())
        });
        thawed.and(self.hold_stages(keep))
    }

    /// Drops a stage whose session has ended. Where a batch has frozen an object the catalog decides about it.
    pub fn abandon_stage(&self, stage: Uuid) -> Result<()> {
        for object in self.budget.objects(stage) {
            let object = self.object(object);
            let mut state = object.write_now(self)?;
            if state.frozen != Some(stage) {
                self.drop_unless_decided(&object, &mut state, stage)?;
            }
        }
        Ok(())
    }

    /// Whether a stage holds anything.
    pub fn has_stage(&self, stage: Uuid) -> bool {
        !self.budget.objects(stage).is_empty()
    }

    /// Whether there is a file for an object, or a stage has changes for it, which was found when those came.
    pub fn has_object(&self, id: ObjectId, stage: Option<Uuid>) -> Result<bool> {
        if stage.is_some_and(|stage| self.budget.has(stage, id)) {
            return Ok(true);
        }
        self.object(id).exists(self)
    }

    /// Goes through all stages but those to keep; one that fails keeps none of the others from its turn.
    fn each_stage(&self, keep: &[Uuid], mut each: impl FnMut(ObjectId, Uuid) -> Result<()>) -> Result<()> {
        let mut first = Ok(());
        for (stage, objects) in self.stages().into_iter().filter(|(stage, _)| !keep.contains(stage)) {
            for object in objects {
                first = first.and(each(object, stage));
            }
        }
        first
    }
}
