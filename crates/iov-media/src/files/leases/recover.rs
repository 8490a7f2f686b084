//! What an earlier daemon has granted.

use std::{
    collections::{BTreeSet, HashMap},
    sync::PoisonError,
};

use iov_store::{FoundLease, LeaseAccess, LeasePage, seam};
use iov_types::{ObjectId, Range, Result, Uuid};

use super::{Held, HeldState, LOOK_NS, Leases, Lending, Place, Session};
use crate::{
    file_lease,
    files::{
        disk::Disk,
        process::Process,
        tree::{self, FileName},
    },
};

/// Whether no process of this machine, seen from here or not, has a page as who was given it has: open or mapped for writing, until it ends.
fn is_had_by_nobody(disk: &Disk, id: Uuid) -> Result<bool> {
    let file = disk.sparing(|| disk.tree.open_file(FileName::Lease(id), false))?;
    Ok(file.is_some_and(|file| file_lease::is_written_by_nobody(&file) == Ok(true)))
}

/// Whether somebody may have a file that was lent by who has ended.
fn is_left(lease: &FoundLease) -> bool {
    lease.access == LeaseAccess::Lent
}

impl Leases {
    /// Takes over the pages of an earlier daemon: everything is revoked. The objects of writes that are stuck.
    pub(in crate::files) fn recover(&self, disk: &Disk) -> Result<Vec<ObjectId>> {
        let mut pages = Vec::new();
        disk.tree.list("leases", |name| {
            pages.extend(tree::page_of(name));
            Ok(())
        })?;
        let mut book = self.lock();
        for id in pages {
            // Before it is open for writing here.
            let nobody_has_it = is_had_by_nobody(disk, id)?;
            let Some(file) = disk.sparing(|| disk.tree.open_file(FileName::Lease(id), true))? else { continue };
            // Spoiled by its client, or never handed out.
            let Ok((page, owner)) = LeasePage::open(&file) else {
                disk.remove(FileName::Lease(id))?;
                continue;
            };
            let find = || Process::find_again(&owner, nobody_has_it);
            let process = find()?;
            // Whoever the kernel has given what was lent may live longer than who had it lent.
            if process.has_ended() && !page.found().iter().any(is_left) {
                // Who has spoiled what it says of itself may live: it asks, as all others. Who has ended loses nothing.
                page.found().into_iter().for_each(|lease| page.relocate(lease.index, lease.generation));
                disk.remove(FileName::Lease(id))?;
                continue;
            }
            if page.has_owner() && !process.has_ended() {
                let mut earlier = self.earlier.lock().unwrap_or_else(PoisonError::into_inner);
                earlier.insert(owner.session, find()?);
            }
            let mut session = Session {
                id: owner.session,
                process,
                trusted: false,
                closing: true,
                taken_over: true,
                held: HashMap::new(),
                free: BTreeSet::new(),
                generation: 0,
                page,
            };
            for lease in session.page.found() {
                // What is lent to others stays so: they do not ask this daemon either.
                let stays = lease.access == LeaseAccess::Lent;
                if !lease.relocated && !stays {
                    session.page.revoke(lease.index, lease.generation);
                }
                let (epoch, state) = match (stays, lease.revoked) {
                    (true, false) => (lease.epoch, HeldState::Granted),
                    (true, true) => (lease.epoch, HeldState::Revoked),
                    (false, _) => (0, HeldState::Revoked),
                };
                let (object, access, generation) = (lease.object, lease.access, lease.generation);
                let range = Range { offset: 0, len: i64::MAX as u64 };
                let held = Held { object, access, range, epoch, generation, state };
                if access != LeaseAccess::Read || !session.page.drained(lease.index) {
                    session.held.insert(lease.index, held);
                    book.by_object.entry(object).or_default().push((id, lease.index));
                }
            }
            book.sessions.insert(id, session);
        }
        let mut objects: BTreeSet<ObjectId> = book.by_object.keys().copied().collect();
        drop(book);
        // A loan begins behind all moves: who is stuck since before has nothing of that file, and whoever it is lent to, has.
        objects.retain(|object| self.lending(*object, None) != Lending::Stays);
        // One wait for all: each object's own recall ends at once when its time is up already.
        let stuck = self.recall_all(&objects);
        self.reap(disk)?;
        Ok(stuck)
    }

    fn recall_all(&self, objects: &BTreeSet<ObjectId>) -> Vec<ObjectId> {
        let end = seam::monotonic_ns().saturating_add_unsigned(self.recall_ns);
        let mut waiting: Vec<ObjectId> = objects.iter().copied().collect();
        while !waiting.is_empty() && seam::monotonic_ns() < end {
            let book = self.lock();
            waiting.retain(|object| {
                let places = book.by_object.get(object);
                // Nobody waits for those who only look: their space rests.
                let busy = |(session, index): &Place| {
                    book.sessions.get(session).is_some_and(|s| s.is_writers(*index) && !s.is_drained(*index))
                };
                places.is_some_and(|places| places.iter().any(busy))
            });
            drop(book);
            seam::sleep(LOOK_NS);
        }
        for object in &waiting {
            let book = self.lock();
            let places = book.by_object.get(object).cloned().unwrap_or_default().into_iter();
            let known = |place: Place| {
                let session = book.sessions.get(&place.0).filter(|s| !s.is_lent(place.1))?;
                Some((place, session.held.get(&place.1)?.generation))
            };
            let places: Vec<_> = places.filter_map(known).collect();
            drop(book);
            self.quarantine(&places);
        }
        waiting
    }
}
