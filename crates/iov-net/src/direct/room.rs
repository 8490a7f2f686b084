//! How many grants a process holds of a target, and which it gives back.

use std::sync::{Arc, Weak, atomic::Ordering};

use iov_store::kept::{self, Spares};
use iov_types::{Capability, ObjectId};

use super::{Direct, MEMORY_GRANTS, lock};
use crate::grant::GRANTS;

/// Who has no descriptor left may ask for those of its grants.
pub(super) fn can_be_asked(target: &Arc<Direct>) {
    let target: Weak<Direct> = Arc::downgrade(target);
    kept::can_spare(target);
}

impl Spares for Direct {
    fn give_up(&self) {
        if !self.link.in_child() {
            self.evict(0);
        }
    }
}

impl Direct {
    /// How many grants may be held.
    pub(super) fn most(&self, room: usize) -> usize {
        if self.link.targets().medium == Capability::SHARED_MEMORY { MEMORY_GRANTS } else { room }
    }

    /// Whether a new grant would soon cost another.
    pub(super) fn is_full(&self) -> bool {
        self.held.load(Ordering::Relaxed) >= self.most(self.room) * 3 / 4
    }

    /// Gives back the grants used longest ago if there are more than `room`, and forgets objects without one.
    pub(super) fn evict(&self, room: usize) {
        let mut entries = lock(&self.entries);
        let room = self.most(room);
        let all = || entries.iter().flat_map(|(id, e)| e.grants.iter().map(move |g| (g, *id)));
        let count = all().count();
        self.held.store(count.min(room), Ordering::Relaxed);
        if count <= room {
            return;
        }
        let mut held: Vec<(u64, ObjectId)> = all().map(|(g, id)| (g.used.load(Ordering::Relaxed), id)).collect();
        held.sort_unstable();
        let mut old = Vec::new();
        // A quarter at a time, so that a program that walks over many objects does not sort for each.
        for (used, id) in held.iter().take(held.len() - room * 3 / 4) {
            let Some(entry) = entries.get_mut(id) else { continue };
            old.extend(entry.grants.extract_if(.., |g| g.used.load(Ordering::Relaxed) <= *used));
            if entry.grants.is_empty() {
                entries.remove(id);
            }
        }
        if entries.len() > GRANTS.1 * 64 {
            entries.retain(|_, e| !e.grants.is_empty());
        }
        drop(entries);
        old.iter().for_each(|grant| grant.give_back());
    }
}
