//! Versions of the objects of a collection that were seen together: what is read from all of them in these versions is of one
//! publication, and nobody has to be asked again.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use iov_types::Uuid;

/// Most collections that are remembered.
const MOST: usize = 1 << 16;

/// Stands for the version of an object that is not known.
const UNKNOWN: u64 = u64::MAX;

/// By collection, for each of its objects.
#[derive(Default)]
pub(super) struct Versions(Mutex<HashMap<Uuid, Vec<u64>>>);

impl Versions {
    /// Whether these versions, each of the object at an index, were seen together.
    pub(super) fn know(&self, collection: Uuid, versions: &[(usize, u64)]) -> bool {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(known) = seen.get(&collection) else { return false };
        versions.iter().all(|(index, version)| known.get(*index) == Some(version))
    }

    /// They were.
    pub(super) fn learn(&self, collection: Uuid, width: usize, versions: &[(usize, u64)]) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.len() >= MOST && !seen.contains_key(&collection) {
            seen.clear();
        }
        // Others may have got another one since.
        let known = seen.entry(collection).or_default();
        known.clear();
        known.resize(width, UNKNOWN);
        for (index, version) in versions {
            known[*index] = *version;
        }
    }
}
