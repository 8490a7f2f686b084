//! Which targets there are, and in which lines they stand.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use iov_types::{Capability, Error, Result};

use crate::Backend;

/// The targets of a pattern.
pub(super) struct Lined {
    /// Their numbers.
    pub(super) numbers: Vec<u32>,
    /// They themselves, in the same order.
    pub(super) backends: Vec<Arc<dyn Backend>>,
    /// What each can do.
    pub(super) capabilities: Vec<Capability>,
}

#[derive(Default)]
struct Known {
    targets: BTreeMap<u32, (Arc<dyn Backend>, Capability)>,
    patterns: HashMap<u32, Vec<u32>>,
    /// Patterns of which all targets are known, by their numbers.
    lined: Vec<Option<Arc<Lined>>>,
}

/// Everything that is known.
#[derive(Default)]
pub(super) struct Table(RwLock<Known>);

impl Table {
    pub(super) fn with_first(first: Arc<dyn Backend>) -> Table {
        let capability = first.capability().clone();
        Table(RwLock::new(Known { targets: BTreeMap::from([(0, (first, capability))]), ..Known::default() }))
    }

    fn read(&self) -> RwLockReadGuard<'_, Known> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Known> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add_target(&self, number: u32, backend: Arc<dyn Backend>, capability: Capability) {
        let mut known = self.write();
        known.targets.insert(number, (backend, capability));
        // Lines are made anew, with the new way to it.
        known.lined.clear();
    }

    pub(super) fn add_pattern(&self, number: u32, targets: Vec<u32>) {
        if number != 0 && !targets.is_empty() {
            self.write().patterns.entry(number).or_insert(targets);
        }
    }

    pub(super) fn knows_pattern(&self, number: u32) -> bool {
        self.read().patterns.contains_key(&number)
    }

    pub(super) fn target(&self, number: u32) -> Option<Arc<dyn Backend>> {
        self.read().targets.get(&number).map(|(backend, _)| backend.clone())
    }

    /// What a target can do.
    pub(super) fn capability(&self, number: u32) -> Option<Capability> {
        self.read().targets.get(&number).map(|(_, capability)| capability.clone())
    }

    pub(super) fn may_wait(&self) -> bool {
        self.read().targets.values().any(|(target, _)| target.may_wait())
    }

    /// The targets of a pattern.
    pub(super) fn line(&self, number: u32) -> Result<Arc<Lined>> {
        let at = number as usize;
        if let Some(lined) = self.read().lined.get(at).and_then(Option::as_ref) {
            return Ok(lined.clone());
        }
        let mut known = self.write();
        let numbers = known.patterns.get(&number).cloned().ok_or_else(|| {
            Error::unavailable(format!("where the bytes are (pattern {number}) is not known yet: repeat it"))
        })?;
        let find = |target: &u32| {
            known.targets.get(target).cloned().ok_or_else(|| {
                Error::unavailable(format!("target {target}, where bytes of it lie, is not known here: iov targets"))
            })
        };
        let (backends, capabilities) = numbers.iter().map(find).collect::<Result<Vec<_>>>()?.into_iter().unzip();
        let lined = Arc::new(Lined { numbers, backends, capabilities });
        if known.lined.len() <= at {
            known.lined.resize(at + 1, None);
        }
        known.lined[at] = Some(lined.clone());
        Ok(lined)
    }
}
