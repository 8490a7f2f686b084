//! The book of grants: which client process may move which bytes itself, and how that is taken back (G1, G2).

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    os::fd::OwnedFd,
    sync::{Mutex, MutexGuard, PoisonError},
};

use iov_store::{LEASE_SLOTS, LeaseAccess, LeaseOwner, LeasePage, seam};
use iov_types::{Error, ObjectId, Range, Result, Uuid};

use super::{
    disk::Disk,
    process::{Process, namespace},
    tree::FileName,
};

mod lent;
mod over;
mod recover;

pub(super) use lent::{AFTER_END_NS, Lending, is_let_go};
pub use over::void_grants;

/// Whom a recall concerns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Which {
    /// Those who may write.
    Writers,
    /// Readers as well.
    All,
}

/// A grant as it was made.
#[derive(Clone, Copy)]
struct Held {
    object: ObjectId,
    access: LeaseAccess,
    /// What it covers.
    range: Range,
    epoch: u64,
    generation: u64,
    state: HeldState,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum HeldState {
    Granted,
    /// Taken back; its last write may be under way.
    Revoked,
    /// Its last write goes to an inode that nobody reads; the slot rests until it has ended.
    Quarantined,
}

struct Session {
    id: Uuid,
    page: LeasePage,
    process: Process,
    /// Whether writing may be granted.
    trusted: bool,
    /// Closed by its client or taken over from an earlier daemon: goes when its last write has ended.
    closing: bool,
    /// Taken over from an earlier daemon: stays until its session has come back, or does not any more, as the next daemon
    /// is told by it who may.
    taken_over: bool,
    held: HashMap<u32, Held>,
    free: BTreeSet<u32>,
    generation: u64,
}

/// A page, by the id that its file is named after, and a slot of it.
type Place = (Uuid, u32);

#[derive(Default)]
struct Book {
    /// By page: a session that has come back after a restart has a new page beside the old one.
    sessions: HashMap<Uuid, Session>,
    /// The page of each open session.
    open: HashMap<Uuid, Uuid>,
    by_object: HashMap<ObjectId, Vec<Place>>,
}

/// The book.
pub(super) struct Leases {
    book: Mutex<Book>,
    /// Sessions of an earlier daemon whose process lives, or may, and has not come back.
    pub(super) earlier: Mutex<HashMap<Uuid, Process>>,
    recall_ns: u64,
}

/// How long to sleep between two looks at a write under way.
const LOOK_NS: u64 = 50_000;

impl Session {
    /// Whether nothing is under way in a slot.
    fn is_drained(&self, index: u32) -> bool {
        // Of what is lent to others neither the page tells it nor the end of the process.
        !self.is_lent(index) && (self.page.drained(index) || self.process.has_ended())
    }

    fn access(&self, index: u32) -> Option<LeaseAccess> {
        self.held.get(&index).map(|held| held.access)
    }

    fn is_readers(&self, index: u32) -> bool {
        self.access(index) == Some(LeaseAccess::Read)
    }

    fn is_writers(&self, index: u32) -> bool {
        self.access(index) == Some(LeaseAccess::Write)
    }

    fn is_lent(&self, index: u32) -> bool {
        self.access(index) == Some(LeaseAccess::Lent)
    }
}

impl Book {
    /// The page of an open session.
    fn find(&mut self, session: Uuid) -> Result<(Uuid, &mut Session)> {
        let page = self.open.get(&session).copied();
        page.and_then(|page| Some((page, self.sessions.get_mut(&page)?)))
            .ok_or_else(|| Error::unsupported("the session has no lease page; it must use the socket"))
    }

    fn take(&mut self, (session, index): Place) -> Option<(&mut Session, Held)> {
        let session = self.sessions.get_mut(&session)?;
        let held = session.held.get(&index).copied()?;
        Some((session, held))
    }

    /// Frees a slot in which nothing is under way.
    fn free(&mut self, place: Place) {
        let Some((session, held)) = self.take(place) else { return };
        session.page.free(place.1);
        session.held.remove(&place.1);
        session.free.insert(place.1);
        if let Some(places) = self.by_object.get_mut(&held.object) {
            places.retain(|p| *p != place);
            if places.is_empty() {
                self.by_object.remove(&held.object);
            }
        }
    }

    /// Frees a drained slot; one in quarantine rests until its session is swept.
    fn free_or_rest(&mut self, place: Place) {
        if self.take(place).is_some_and(|(_, held)| held.state != HeldState::Quarantined) {
            self.free(place);
        }
    }

    /// Takes a grant back. A reader is done with at once: what it reads from now on is void. Only what it shows in place
    /// stays until it is shown no more.
    fn revoke(&mut self, place: Place) {
        let Some((session, held)) = self.take(place) else { return };
        if held.state == HeldState::Granted {
            session.page.revoke(place.1, held.generation);
            if let Some(held) = session.held.get_mut(&place.1) {
                held.state = HeldState::Revoked;
            }
        }
        if held.access == LeaseAccess::Read && self.take(place).is_some_and(|(s, _)| s.is_drained(place.1)) {
            self.free(place);
        }
    }
}

impl Leases {
    pub(super) fn new(recall_ns: u64) -> Leases {
        Leases { book: Mutex::default(), earlier: Mutex::default(), recall_ns }
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the page of a session. A trusted one gets it for writing as well.
    pub(super) fn open_session(&self, disk: &Disk, session: Uuid, process: Process, trusted: bool) -> Result<OwnedFd> {
        self.reap(disk)?;
        let mut book = self.lock();
        if book.open.contains_key(&session) {
            return Err(Error::exists("this session has a lease page already"));
        }
        let id = seam::new_uuid();
        let name = FileName::Lease(id);
        let file = disk.sparing(|| disk.tree.create_file(name))?;
        let owner = LeaseOwner { session, pid: process.pid, start: process.start, namespace: namespace() };
        let page = LeasePage::create(&file, &owner).inspect_err(|_| {
            let _ = disk.remove(name);
        })?;
        let passed = if trusted { file } else { disk.sparing(|| disk.tree.open_file(name, false))?.unwrap_or(file) };
        let (held, free) = (HashMap::new(), (0..LEASE_SLOTS).collect());
        let opened = Session {
            id: session,
            page,
            process,
            trusted,
            closing: false,
            taken_over: false,
            held,
            free,
            generation: 0,
        };
        book.sessions.insert(id, opened);
        book.open.insert(session, id);
        Ok(passed)
    }

    /// Whether a session may be granted `access`, and has a slot for it.
    pub(super) fn check(&self, session: Uuid, access: LeaseAccess) -> Result<()> {
        let mut book = self.lock();
        let (_, session) = book.find(session)?;
        if access != LeaseAccess::Read && !session.trusted {
            let why = "only processes of the store's own user write directly; others use the socket";
            return Err(Error::unsupported(why).with_clause(iov_types::Clause::G5));
        }
        if session.free.is_empty() {
            return Err(Error::exhausted(format!("the session has {LEASE_SLOTS} grants; give some back")));
        }
        Ok(())
    }

    /// Fills a slot. The caller holds the object, so that nobody recalls at the same time.
    pub(super) fn grant(
        &self,
        session: Uuid,
        object: ObjectId,
        access: LeaseAccess,
        range: Range,
        epoch: u64,
    ) -> Result<(u32, u64)> {
        let mut book = self.lock();
        let (page, known) = book.find(session)?;
        let index = known.free.pop_first().ok_or_else(|| Error::exhausted("the session has no slot left"))?;
        known.generation += 1;
        let generation = known.generation;
        known.page.offer(index, generation, object, epoch, access);
        known.held.insert(index, Held { object, access, range, epoch, generation, state: HeldState::Granted });
        book.by_object.entry(object).or_default().push((page, index));
        Ok((index, generation))
    }

    /// Whether anybody has a grant on an object.
    pub(super) fn any(&self, object: ObjectId) -> bool {
        self.lock().by_object.contains_key(&object)
    }

    /// Takes grants of an object back that are of an epoch below `below` if it is given, and waits until nothing is under way. Those
    /// that are stuck are told by their ranges, and are void from then on: the caller must move the bytes out of their reach.
    pub(super) fn recall(&self, object: ObjectId, which: Which, below: Option<u64>, patience: u64) -> Vec<Range> {
        // By their generations: a place may have been given back and be another grant's by the next look.
        let (mut waiting, mut lent) = (Vec::<(Place, u64)>::new(), Vec::<(Place, u64)>::new());
        {
            let mut book = self.lock();
            for place in book.by_object.get(&object).cloned().unwrap_or_default() {
                let Some((session, held)) = book.take(place) else { continue };
                let newer = below.is_some_and(|below| held.epoch >= below);
                if newer || (which == Which::Writers && session.is_readers(place.1)) {
                    continue;
                }
                book.revoke(place);
                let known = (place, held.generation);
                match held.access {
                    // Nobody waits for readers.
                    LeaseAccess::Read => {}
                    LeaseAccess::Write => waiting.push(known),
                    // Nor for what nobody can be asked for.
                    LeaseAccess::Lent => lent.push(known),
                }
            }
        }
        let end = seam::monotonic_ns().saturating_add_unsigned(self.recall_ns.saturating_mul(patience));
        loop {
            let mut book = self.lock();
            waiting.retain(|(place, generation)| match book.take(*place) {
                None => false,
                Some((_, held)) if held.generation != *generation => false,
                Some((session, held)) if held.state == HeldState::Quarantined || session.is_drained(place.1) => {
                    book.free_or_rest(*place);
                    false
                }
                Some(_) => true,
            });
            if waiting.is_empty() || seam::monotonic_ns() >= end {
                break;
            }
            drop(book);
            seam::sleep(LOOK_NS);
        }
        let mut stuck = self.quarantine(&waiting);
        // Those stay in the book until the bytes have been moved: else nobody would know of it after a crash.
        let book = &mut *self.lock();
        let range = |(place, generation): (Place, u64)| {
            book.take(place).filter(|(_, held)| held.generation == generation).map(|(_, held)| held.range)
        };
        stuck.extend(lent.into_iter().filter_map(range));
        stuck
    }

    /// Declares what is still under way void; where that may be.
    fn quarantine(&self, stuck: &[(Place, u64)]) -> Vec<Range> {
        let mut book = self.lock();
        let mut ranges = Vec::new();
        for (place, generation) in stuck {
            let Some((session, held)) = book.take(*place) else { continue };
            if held.access == LeaseAccess::Read || held.generation != *generation {
                continue;
            }
            ranges.push(held.range);
            session.page.relocate(place.1, held.generation);
            if let Some(held) = session.held.get_mut(&place.1) {
                held.state = HeldState::Quarantined;
            }
            if let Some(places) = book.by_object.get_mut(&held.object) {
                places.retain(|p| p != place);
                if places.is_empty() {
                    book.by_object.remove(&held.object);
                }
            }
        }
        ranges
    }

    /// Takes grants back that a client does not need any more.
    /// The objects that they were on.
    pub(super) fn give_back(&self, session: Uuid, slots: &[(u32, u64)]) -> Vec<ObjectId> {
        let mut book = self.lock();
        let mut objects = Vec::new();
        let Ok((page, _)) = book.find(session) else { return objects };
        for (index, generation) in slots {
            let place = (page, *index);
            let ours = book.take(place).filter(|(_, held)| held.generation == *generation);
            let Some((_, held)) = ours else { continue }; // it was taken back before
            objects.push(held.object);
            book.revoke(place);
            // What was lent has not come to who asked for it.
            if held.access == LeaseAccess::Lent
                || book.take(place).is_some_and(|(session, _)| session.is_drained(*index))
            {
                book.free(place);
            }
        }
        objects
    }

    /// Ends a session. Its page goes as soon as nothing of it is under way. The objects that its grants were on.
    pub(super) fn end_session(&self, disk: &Disk, session: Uuid) -> Result<Vec<ObjectId>> {
        let mut objects: Vec<ObjectId>;
        {
            let mut book = self.lock();
            let Some(page) = book.open.remove(&session) else { return Ok(Vec::new()) };
            let Some(known) = book.sessions.get_mut(&page) else { return Ok(Vec::new()) };
            known.closing = true;
            objects = known.held.values().map(|held| held.object).collect();
            let slots: Vec<u32> = known.held.keys().copied().collect();
            for index in slots {
                // What is lent stays: where only the connection has ended, the session comes back with its holds. Else the
                // process ends, or the next holder gets what he needs.
                if book.sessions.get(&page).is_some_and(|s| !s.is_lent(index)) {
                    book.revoke((page, index));
                }
            }
        }
        objects.extend(self.reap(disk)?);
        Ok(objects)
    }

    /// Whether any session of an earlier daemon may still come back.
    pub(super) fn awaits_clients(&self) -> bool {
        let book = self.lock();
        let mut earlier = self.earlier.lock().unwrap_or_else(PoisonError::into_inner);
        let marked = book.sessions.values().filter(|s| s.page.has_owner());
        let marked: HashSet<Uuid> = if earlier.is_empty() { HashSet::new() } else { marked.map(|s| s.id).collect() };
        earlier.retain(|session, process| !process.has_ended() && marked.contains(session));
        !earlier.is_empty()
    }

    /// Whether a session of an earlier daemon has not come back.
    fn is_awaited(&self, session: Uuid) -> bool {
        self.earlier.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&session)
    }

    /// Removes the pages of sessions that are closed, or whose process has ended, and in which nothing is under way. The
    /// objects on which grants are over by that.
    pub(super) fn reap(&self, disk: &Disk) -> Result<Vec<ObjectId>> {
        let mut book = self.lock();
        let (mut gone, mut objects) = (Vec::new(), Vec::new());
        let sessions: Vec<Uuid> = book.sessions.keys().copied().collect();
        for id in sessions {
            let Some(session) = book.sessions.get(&id) else { continue };
            let ended = session.process.has_ended();
            let slots: Vec<u32> = session.held.keys().copied().collect();
            for index in slots {
                let Some((session, held)) = book.take((id, index)) else { continue };
                if held.access == LeaseAccess::Lent {
                    // Who has ended cannot hand it to anybody any more.
                    let for_long = session.process.gone_for_ns().is_some_and(|ns| ns >= lent::AFTER_END_NS);
                    if for_long && lent::is_let_go(disk, held.object) {
                        book.free((id, index));
                    }
                } else if ended || (held.state != HeldState::Granted && session.is_drained(index)) {
                    book.free((id, index));
                    objects.push(held.object);
                }
            }
            let is_awaited = |s: &Session| s.taken_over && s.page.has_owner() && self.is_awaited(s.id);
            let idle = |s: &Session| s.held.is_empty() && (ended || (s.closing && !is_awaited(s)));
            if book.sessions.get(&id).is_some_and(idle) {
                if let Some(session) = book.sessions.remove(&id)
                    && book.open.get(&session.id) == Some(&id)
                {
                    book.open.remove(&session.id);
                }
                gone.push(id);
            }
        }
        drop(book);
        gone.into_iter().try_for_each(|id| disk.remove(FileName::Lease(id)).map(drop))?;
        Ok(objects)
    }
}
