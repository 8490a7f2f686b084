//! What clients of an earlier daemon had staged. Those that live come back, and go on; what nobody can come back for is
//! dropped.

use std::{
    collections::HashSet,
    sync::{Mutex, MutexGuard, PoisonError, atomic::Ordering},
};

use iov_types::{Kind, ObjectId, Result, Uuid};

use super::{
    Files,
    object::{Object, State},
};

/// What was decided of stages while their objects could not be read, or may have to be known again when these are read anew.
#[derive(Default)]
pub(super) struct Behind {
    /// Had frozen their objects, as their logs say, and keep nobody out any more.
    thawed: Mutex<HashSet<(Uuid, ObjectId)>>,
    /// Are to be dropped, unless it turns out that a batch has frozen their objects.
    dropped: Mutex<HashSet<(Uuid, ObjectId)>>,
}

impl Behind {
    fn thawed(&self) -> MutexGuard<'_, HashSet<(Uuid, ObjectId)>> {
        self.thawed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn dropped(&self) -> MutexGuard<'_, HashSet<(Uuid, ObjectId)>> {
        self.dropped.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a stage that says so on disk keeps others out of an object.
    pub(super) fn holds(&self, stage: Uuid, object: ObjectId) -> bool {
        !self.thawed().contains(&(stage, object))
    }

    /// It freezes the object anew.
    pub(super) fn freezes(&self, stage: Uuid, object: ObjectId) {
        self.thawed().remove(&(stage, object));
    }

    /// It is to be dropped, also where that is not possible yet.
    fn drops(&self, stage: Uuid, object: ObjectId) {
        self.dropped().insert((stage, object));
    }

    /// What is to be dropped of an object that can be read; with that it is seen to.
    fn take_dropped(&self, object: ObjectId) -> Vec<Uuid> {
        self.dropped().extract_if(|(_, of)| *of == object).map(|(stage, _)| stage).collect()
    }

    /// Whether it is only there because it could not be dropped yet.
    fn has_gone(&self, stage: Uuid, object: ObjectId) -> bool {
        self.dropped().contains(&(stage, object))
    }
}

/// One whose publication has begun stays.
fn unless_decided(dropped: Result<()>) -> Result<()> {
    match dropped {
        Err(e) if e.kind() == Kind::Conflict => Ok(()),
        other => other,
    }
}

impl Files {
    /// Whether a session that an earlier daemon served may still come back: its process lives, or is not seen from here, and has
    /// not ended it.
    pub fn awaits_clients(&self) -> bool {
        self.leases.awaits_clients()
    }

    /// The session of an earlier daemon is here, and has claimed what it had staged.
    pub fn came_back(&self, session: Uuid) {
        let earlier = self.leases.earlier.lock().unwrap_or_else(PoisonError::into_inner).remove(&session);
        if earlier.is_some() {
            self.leases.disown_unseen(|other| other == session);
            // Its old pages go; those that cannot be removed now do so with the next sweep.
            let _ = self.leases.reap(&self.disk);
        }
    }

    /// Of those whose processes are not seen from here none comes back any more: their pages go. Where bytes lie in segments, a page
    /// stays that says that its process is writing, as nobody can tell whether that has ended, and its space is given to nobody.
    pub fn end_waiting(&self) -> Result<()> {
        self.leases.forget_unseen();
        if self.disk.segments().is_none() {
            for (place, object) in self.leases.unseen() {
                let object = self.object(object);
                // What could not be moved away yet is known by its page to the next daemon.
                if object.write_now(self).is_ok_and(|state| state.unmoved.is_empty() && state.torn.is_none()) {
                    self.leases.free(place);
                }
            }
        }
        self.leases.reap(&self.disk).map(drop)
    }

    /// From now on only those to keep hold their objects, of all that an earlier daemon has left.
    fn note_kept(&self, keep: &[Uuid]) {
        let others = self.stages().into_iter().filter(|(stage, _)| !keep.contains(stage));
        let pairs = others.flat_map(|(stage, objects)| objects.into_iter().map(move |object| (stage, object)));
        self.behind.thawed().extend(pairs);
        self.settled.store(true, Ordering::SeqCst);
    }

    /// Drops all stages but those to keep: the end of recovery, when it is known which batches have reached point P, and
    /// nobody is left who could go on with another. One whose publication has begun stays.
    pub fn drop_stages(&self, keep: &[Uuid]) -> Result<()> {
        self.note_kept(keep);
        let dropped = self.each_stage(keep, |object, stage| {
            let object = self.object(object);
            // Beforehand: whoever reads it in between drops it.
            self.behind.drops(stage, object.id);
            match object.write_now(self) {
                Ok(mut state) => {
                    self.behind.take_dropped(object.id);
                    self.drop_unless_decided(&object, &mut state, stage)
                }
                Err(e) => unless_decided(self.drop_unread(&object, stage, e).map(drop)),
            }
        });
        dropped.and(self.hold_stages(keep))
    }

    /// Drops what could not be dropped when it was time, of an object that has just been read: before anybody can stage anything
    /// in the same stage.
    pub(super) fn drop_late(&self, object: &Object, state: &mut State) {
        for stage in self.behind.take_dropped(object.id) {
            if state.stages.contains_key(&stage) && state.frozen != Some(stage) {
                // What fails once more goes at the next start.
                let _ = self.drop_unless_decided(object, state, stage);
            }
        }
    }

    /// Looks whether what could not be dropped can be read now, which drops it.
    pub(super) fn try_to_drop(&self) {
        let waiting: Vec<ObjectId> = self.behind.dropped().iter().map(|(_, object)| *object).collect();
        waiting.into_iter().for_each(|object| drop(self.object(object).write_now(self)));
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
        self.note_kept(keep);
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

    /// Drops a stage whose session has ended. Where a batch has frozen an object the catalog decides about it; where that cannot
    /// be read, it goes once it can.
    pub fn abandon_stage(&self, stage: Uuid) -> Result<()> {
        let mut first = Ok(());
        for object in self.budget.objects(stage) {
            let object = self.object(object);
            self.behind.drops(stage, object.id);
            let dropped = object.write_now(self).and_then(|mut state| {
                self.behind.take_dropped(object.id);
                if state.frozen == Some(stage) { Ok(()) } else { self.drop_unless_decided(&object, &mut state, stage) }
            });
            first = first.and(dropped);
        }
        first
    }

    /// Whether a stage holds anything that its session has not lost.
    pub fn has_stage(&self, stage: Uuid) -> bool {
        self.budget.objects(stage).into_iter().any(|object| !self.behind.has_gone(stage, object))
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
