//! How much each stage holds, over all objects of the target (B4), and which objects it has changes for.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, PoisonError},
};

use iov_types::{Clause, Error, ObjectId, Result, Uuid};

#[derive(Default)]
struct Held {
    bytes: u64,
    objects: BTreeMap<ObjectId, u64>,
}

/// Bytes held by each stage, and the most that one may hold.
pub(in crate::files) struct Budget {
    limit: u64,
    stages: Mutex<HashMap<Uuid, Held>>,
}

impl Budget {
    pub(in crate::files) fn new(limit: u64) -> Budget {
        Budget { limit, stages: Mutex::default() }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Uuid, Held>> {
        self.stages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes room for `more` bytes, or refuses.
    pub(in crate::files) fn take(&self, stage: Uuid, object: ObjectId, more: u64) -> Result<()> {
        let mut stages = self.lock();
        let has = stages.get(&stage).map_or(0, |s| s.bytes);
        if has.saturating_add(more) > self.limit {
            return Err(Error::too_big(format!(
                "the batch or publication holds {has} bytes and would hold {more} more; this store stages at most {}: \
                 commit in between, or split it",
                self.limit
            ))
            .with_clause(Clause::B4));
        }
        let held = stages.entry(stage).or_default();
        held.bytes += more;
        *held.objects.entry(object).or_default() += more;
        Ok(())
    }

    /// Takes note of what an earlier daemon has staged, whatever it is.
    pub(in crate::files) fn found(&self, stage: Uuid, object: ObjectId, bytes: u64) {
        let mut stages = self.lock();
        let held = stages.entry(stage).or_default();
        held.bytes = held.bytes.saturating_add(bytes);
        *held.objects.entry(object).or_default() += bytes;
    }

    /// Gives `less` bytes back: a change that did not come about.
    pub(in crate::files) fn give(&self, stage: Uuid, object: ObjectId, less: u64) {
        let mut stages = self.lock();
        let Some(held) = stages.get_mut(&stage) else { return };
        held.bytes = held.bytes.saturating_sub(less);
        let gone = held.objects.get_mut(&object).is_some_and(|bytes| {
            *bytes = bytes.saturating_sub(less);
            *bytes == 0
        });
        if gone {
            held.objects.remove(&object);
        }
        if held.objects.is_empty() {
            stages.remove(&stage);
        }
    }

    /// Gives all room of an object in a stage back.
    pub(in crate::files) fn give_all(&self, stage: Uuid, object: ObjectId) {
        let mut stages = self.lock();
        let Some(held) = stages.get_mut(&stage) else { return };
        held.bytes = held.bytes.saturating_sub(held.objects.remove(&object).unwrap_or(0));
        if held.objects.is_empty() {
            stages.remove(&stage);
        }
    }

    /// Whether a stage has changes for an object.
    pub(in crate::files) fn has(&self, stage: Uuid, object: ObjectId) -> bool {
        self.lock().get(&stage).is_some_and(|held| held.objects.contains_key(&object))
    }

    /// The objects that a stage has changes for.
    pub(in crate::files) fn objects(&self, stage: Uuid) -> Vec<ObjectId> {
        self.lock().get(&stage).map_or_else(Vec::new, |held| held.objects.keys().copied().collect())
    }

    /// The stages that have changes for an object.
    pub(in crate::files) fn of_object(&self, object: ObjectId) -> Vec<Uuid> {
        self.lock().iter().filter(|(_, held)| held.objects.contains_key(&object)).map(|(id, _)| *id).collect()
    }

    /// Every stage, and the objects that it has changes for.
    pub(in crate::files) fn all(&self) -> Vec<(Uuid, Vec<ObjectId>)> {
        let stages = self.lock();
        let mut all: Vec<_> = stages.iter().map(|(id, held)| (*id, held.objects.keys().copied().collect())).collect();
        all.sort_unstable();
        all
    }
}
