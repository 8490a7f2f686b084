//! When grants are over: who may still use what was taken back, and the end of all of them.

use std::{os::fd::OwnedFd, sync::PoisonError};

use iov_store::{LeaseAccess, LeasePage};
use iov_types::{ObjectId, Result, Uuid};

use super::{Held, HeldState, Leases, Place};
use crate::{files::tree, segments::Wait};

/// Voids every grant on the target in a directory that is about to be removed: whoever holds one asks the daemon again, and
/// what is being written does not count. No daemon may serve it.
pub fn void_grants(directory: &OwnedFd) -> Result<()> {
    tree::pages(directory, |file| {
        // What is no page any more grants nothing.
        if let Ok((page, _)) = LeasePage::open(&file) {
            page.found().into_iter().for_each(|lease| page.relocate(lease.index, lease.generation));
        }
    })
}

impl Leases {
    /// Who may still look at or write to what an object has had.
    pub(in crate::files) fn waits(&self, object: ObjectId) -> Vec<Wait> {
        self.undrained(|held| held.object == object)
    }

    /// Who may still look at or write to anything.
    pub(in crate::files) fn all_waits(&self) -> Vec<Wait> {
        self.undrained(|_| true)
    }

    fn undrained(&self, concerns: impl Fn(&Held) -> bool) -> Vec<Wait> {
        let book = self.lock();
        let mut out = Vec::new();
        for (page, session) in &book.sessions {
            let busy = session.held.iter().filter(|(slot, held)| concerns(held) && !session.is_drained(**slot));
            out.extend(busy.map(|(slot, held)| Wait { page: *page, slot: *slot, generation: held.generation }));
        }
        out
    }

    /// Nobody waits any more for those sessions of an earlier daemon whose processes are not seen here.
    pub(in crate::files) fn forget_unseen(&self) {
        self.earlier.lock().unwrap_or_else(PoisonError::into_inner).retain(|_, process| !process.is_unseen());
        self.disown_unseen(|_| true);
    }

    /// Nor does the next daemon, whatever else their pages still say.
    pub(in crate::files) fn disown_unseen(&self, which: impl Fn(Uuid) -> bool) {
        let book = self.lock();
        let unseen = book.sessions.values().filter(|s| s.process.is_unseen() && which(s.id));
        unseen.for_each(|session| session.page.disown());
    }

    /// Of processes that are not seen here: where they may still look, or write although it does not count.
    pub(in crate::files) fn unseen(&self) -> Vec<(Place, ObjectId)> {
        let is_void = |held: &Held| held.access == LeaseAccess::Read || held.state == HeldState::Quarantined;
        let book = self.lock();
        let unseen = book.sessions.iter().filter(|(_, session)| session.process.is_unseen());
        let places = unseen.flat_map(|(page, session)| {
            let void = session.held.iter().filter(|(_, held)| is_void(held));
            void.map(|(slot, held)| ((*page, *slot), held.object))
        });
        places.collect()
    }

    /// What was in a place is out of its process's reach.
    pub(in crate::files) fn free(&self, place: Place) {
        self.lock().free(place);
    }

    /// Whether what was waited for is over.
    pub(in crate::files) fn is_over(&self, wait: &Wait) -> bool {
        let book = self.lock();
        let Some(session) = book.sessions.get(&wait.page) else { return true };
        session
            .held
            .get(&wait.slot)
            .is_none_or(|held| held.generation != wait.generation || session.is_drained(wait.slot))
    }

    /// Whether anybody may write to an object.
    pub(in crate::files) fn has_writers(&self, object: ObjectId) -> bool {
        let book = self.lock();
        let mut places = book.by_object.get(&object).into_iter().flatten();
        places.any(|(page, slot)| book.sessions.get(page).is_some_and(|s| !s.is_readers(*slot)))
    }
}
