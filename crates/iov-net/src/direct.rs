//! Direct access (SEMANTICS §2.6): this process moves the bytes itself, through a descriptor that the daemon has passed, for
//! as long as the grant's slot in the session's lease page says so. Everything else goes over the socket.

mod room;

use std::{
    cell::RefCell,
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
};

use iov_store::{AtOnce, Backend, ClientPage, LEASE_SLOTS, LentFile, Now, OpCx, Shown, Sink, Submitted, seam};
use iov_types::{Capability, Counters, Error, Kind, ObjectId, ObjectOp, Range, Result};
use iov_wire::messages::{Access, GiveBack, GrantRequest};

use crate::{
    conn::{Reply, Terms},
    grant::{Grant, lent_by, room, slot_of},
    kept::SumCache,
    link::{Link, Up},
    remote::RemoteBackend,
    run::Run,
    socket,
};

/// A first operation up to this size goes over the socket: a grant costs as much, and there may be no second one.
const FIRST_BY_SOCKET: u64 = 16 << 10;
/// Reads of several objects up to this size each go over the socket together while they are few of each: one frame costs less
/// than a grant for each.
const SCATTERED_BY_SOCKET: u64 = 64 << 10;
/// So many of them of one object: then they are not few.
const SCATTERED_USES: u64 = 3;
/// Writes smaller than this to an object that is kept by checksums go over the socket: for those the daemon knows which
/// bytes they change, and need not read all that it has lent.
const KEPT_BY_SOCKET: u64 = 256 << 10;
/// Most bytes moved without a look at the deadline.
const AT_ONCE: usize = 8 << 20;
/// How long an object that the daemon does not grant is not asked for again.
const NOT_GRANTED_NS: i64 = 1_000_000_000;

/// Most grants of memory that may be held: each takes a slot of the lease page.
const MEMORY_GRANTS: usize = LEASE_SLOTS as usize / 2;
/// And of one object: so many stretches are written without asking.
const GRANTS_OF_ONE: usize = 64;
/// How long a grant is not asked for again that was not enough: such as over holes.
const NOT_ENOUGH_NS: i64 = 10_000_000;

#[derive(Default)]
struct Entry {
    /// One of a file; of memory several, for parts of it.
    grants: Vec<Arc<Grant>>,
    uses: u64,
    not_before_ns: i64,
    /// Its bytes are shown in place, by grants for reading: nobody waits for those.
    shown: bool,
    /// The object is kept by checksums, as far as we know.
    kept: bool,
}

impl Entry {
    /// Takes a grant in, and those out that it makes superfluous.
    fn put(&mut self, new: &Arc<Grant>) -> Vec<Arc<Grant>> {
        let covered = |old: &mut Arc<Grant>| {
            let less = old.access == Access::Read || new.access == Access::Write;
            !new.in_memory() || !old.slot.holds() || (less && new.covers(old.range))
        };
        let mut gone: Vec<_> = self.grants.extract_if(.., covered).collect();
        if self.grants.len() >= GRANTS_OF_ONE
            && let Some(oldest) = (0..self.grants.len()).min_by_key(|i| self.grants[*i].used.load(Ordering::Relaxed))
        {
            gone.push(self.grants.swap_remove(oldest));
        }
        self.grants.push(new.clone());
        gone
    }
}

/// What is known of objects. Each small read and write looks one up, by an identity that a catalog has given: a hash against
/// chosen keys would cost a tenth of it.
type Entries = HashMap<ObjectId, Entry, foldhash::fast::RandomState>;

/// What there is of direct access to a `file:` target on the same host.
pub(crate) struct Direct {
    number: u64,
    pub(crate) link: Arc<Link>,
    pub(crate) socket: RemoteBackend,
    pub(crate) kept: SumCache,
    entries: Mutex<Entries>,
    page: Mutex<Option<(Weak<Up>, Arc<ClientPage>)>>,
    clock: AtomicU64,
    /// Bytes of some object are shown in place.
    shows: AtomicBool,
    /// Most grants held.
    room: usize,
    /// Grants held, as of the last one that was taken.
    held: AtomicUsize,
    /// Files that are lent.
    pub(crate) loans: AtomicUsize,
    direct: bool,
}

/// By the number of a target in this process, an object, and whether to write.
type Last = Option<((u64, ObjectId, bool), Weak<Grant>)>;

/// How many targets this process has had.
static TARGETS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The grant that this thread has used last. It keeps none alive; one that does not fit or hold any more is looked for
    /// in the table.
    static LAST: RefCell<Last> = const { RefCell::new(None) };
}

/// How an operation may go.
pub(crate) enum Way {
    /// By a grant that holds.
    Granted(Arc<Grant>),
    /// By one that is to be asked for.
    Ask,
    /// By way of the daemon.
    Socket,
}

/// A `file:` target seen from a client on the same host.
pub struct DirectBackend(pub(crate) Arc<Direct>);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Direct {
    /// The connection's lease page.
    pub(crate) fn page(&self, up: &Arc<Up>) -> Result<Arc<ClientPage>> {
        let mut known = lock(&self.page);
        if let Some((of, page)) = &*known
            && of.upgrade().is_some_and(|of| Arc::ptr_eq(&of, up))
        {
            return Ok(page.clone());
        }
        let page = up.page.as_ref().ok_or_else(|| Error::unsupported("over a network there is no direct access"))?;
        let new = ClientPage::map(page)?;
        *known = Some((Arc::downgrade(up), new.clone()));
        Ok(new)
    }

    /// How the next `range` of an operation goes; `first`: none of it has gone yet; `scattered`: with it go reads of many other
    /// objects.
    pub(crate) fn way(&self, op: &ObjectOp, access: Access, range: Range, first: bool, scattered: bool) -> Way {
        let mut entries = lock(&self.entries);
        let entry = entries.entry(op.object).or_default();
        entry.uses += 1;
        // Of an object that is kept by checksums, or lies in memory, only a part is lent to a writer.
        let start = Range { len: range.len.min(1), ..range };
        let fits = |grant: &&Arc<Grant>| {
            let enough = match access {
                Access::Read if grant.in_memory() => {
                    grant.is_enough(range, false) && (!entry.shown || grant.access == Access::Read)
                }
                Access::Read => true,
                Access::Write if grant.kept || grant.in_memory() => grant.covers(start),
                Access::Write | Access::Lent => true,
            };
            let may = grant.access == Access::Write || access == Access::Read;
            may && enough && grant.slot.holds() && op.demand.epoch <= grant.epoch
        };
        if let Some(grant) = entry.grants.iter().find(fits) {
            grant.used.store(self.clock.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
            return Way::Granted(grant.clone());
        }
        // The daemon's descriptors serve everybody, so that only a grant's can be read in a pattern.
        let small = entry.uses == 1 && range.len <= FIRST_BY_SOCKET && op.demand.pattern.is_none()
            || first && entry.kept && access == Access::Write && range.len < KEPT_BY_SOCKET
            || scattered
                && op.demand.pattern.is_none()
                && range.len <= SCATTERED_BY_SOCKET
                && (entry.uses <= SCATTERED_USES || self.is_full());
        if seam::monotonic_ns() < entry.not_before_ns || small { Way::Socket } else { Way::Ask }
    }

    /// A grant for all of a range that holds just now: most often the one that this thread has used last.
    fn held(&self, object: ObjectId, epoch: u64, range: Range, write: bool) -> Option<Arc<Grant>> {
        let fits = |grant: &Grant| {
            let writes = grant.access == Access::Write;
            // Where bytes are shown in place, the table says which grants are for reading them.
            let may = if write { writes } else { !(writes && self.shows.load(Ordering::Relaxed)) };
            may && epoch <= grant.epoch && !grant.kept && grant.is_enough(range, write) && grant.slot.holds()
        };
        let key = (self.number, object, write);
        // A thread that is ending has none.
        let last = LAST.try_with(|last| match &*last.borrow() {
            Some((of, grant)) if *of == key => grant.upgrade(),
            _ => None,
        });
        if let Some(grant) = last.unwrap_or_default().filter(|grant| fits(grant)) {
            // Roughly now: whatever is used so often is not the oldest.
            grant.used.store(self.clock.load(Ordering::Relaxed), Ordering::Relaxed);
            return Some(grant);
        }
        let found = self.find(object, epoch, range, write)?;
        let _ = LAST.try_with(|last| last.replace(Some((key, Arc::downgrade(&found)))));
        Some(found)
    }

    fn find(&self, object: ObjectId, epoch: u64, range: Range, write: bool) -> Option<Arc<Grant>> {
        let entries = lock(&self.entries);
        let entry = entries.get(&object)?;
        // What is kept by checksums is compared, or lent in parts.
        let fits = |grant: &&Arc<Grant>| {
            let writes = grant.access == Access::Write;
            let may = if write { writes } else { !(writes && entry.shown) };
            may && epoch <= grant.epoch && !grant.kept && grant.is_enough(range, write) && grant.slot.holds()
        };
        let grant = entry.grants.iter().find(fits)?;
        grant.used.store(self.clock.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        Some(grant.clone())
    }

    /// Shows bytes in place by a grant for reading.
    fn show(&self, object: ObjectId, epoch: u64, range: Range) -> Shown {
        let mut entries = lock(&self.entries);
        let entry = entries.entry(object).or_default();
        entry.shown = true;
        self.shows.store(true, Ordering::Relaxed);
        // The next read is not taken for the only one.
        entry.uses = entry.uses.max(1);
        let start = Range { len: range.len.min(1), ..range };
        let fits = |grant: &&Arc<Grant>| {
            let reads = grant.access == Access::Read || !grant.in_memory();
            reads && epoch <= grant.epoch && grant.is_enough(start, false)
        };
        let Some(grant) = entry.grants.iter().find(fits).cloned() else { return Shown::Later };
        drop(entries);
        // What cannot be mapped can be read.
        grant.show(range.offset, range.len).unwrap_or(Shown::Never)
    }

    /// The next operation on an object is not taken for the only one, nor for too small to ask for a grant.
    pub(crate) fn expect_more(&self, object: ObjectId) {
        let mut entries = lock(&self.entries);
        let entry = entries.entry(object).or_default();
        (entry.uses, entry.kept) = (entry.uses.max(1), false);
    }

    /// A grant that there is on an object, as it is now.
    pub(crate) fn of_all(&self, object: ObjectId, epoch: u64) -> Option<Arc<Grant>> {
        let entries = lock(&self.entries);
        let fits = |grant: &&Arc<Grant>| epoch <= grant.epoch && grant.slot.holds();
        entries.get(&object)?.grants.iter().find(fits).cloned()
    }

    /// Gives back what an object's writer was lent ahead.
    fn closed(&self, object: ObjectId) {
        let mut entries = lock(&self.entries);
        let Some(entry) = entries.get_mut(&object) else { return };
        let ahead = |grant: &mut Arc<Grant>| grant.in_memory() && grant.access == Access::Write;
        let gone: Vec<Arc<Grant>> = entry.grants.extract_if(.., ahead).collect();
        drop(entries);
        gone.iter().for_each(|grant| grant.give_back());
    }

    /// Gives back whatever is held of an object.
    pub(crate) fn give_all_back(&self, object: ObjectId) {
        let gone = lock(&self.entries).remove(&object);
        gone.iter().flat_map(|entry| &entry.grants).for_each(|grant| grant.give_back());
    }

    /// Takes what a request for a grant brought; `None`: the daemon grants none, or this process has no room for one.
    pub(crate) fn take(&self, object: ObjectId, new: Result<Grant>) -> Result<Option<Arc<Grant>>> {
        let mut entries = lock(&self.entries);
        let entry = entries.entry(object).or_default();
        match new {
            Ok(grant) => {
                let grant = Arc::new(grant);
                entry.kept = grant.kept;
                let old = entry.put(&grant);
                drop(entries);
                old.into_iter().for_each(|old| old.give_back());
                self.evict(self.room);
                Ok(Some(grant))
            }
            Err(e) if matches!(e.kind(), Kind::Unsupported | Kind::Exhausted) => {
                entry.not_before_ns = seam::monotonic_ns() + NOT_GRANTED_NS;
                drop(entries);
                if e.kind() == Kind::Exhausted {
                    // The program needs its descriptors more than we do: bytes also move without.
                    self.evict(0);
                }
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }

    /// Asks for a grant over a connection; it is used once `done` has handed it to [`Direct::take`].
    pub(crate) fn ask(
        self: &Arc<Direct>,
        up: &Arc<Up>,
        deadline_ns: i64,
        request: &GrantRequest,
        done: impl FnOnce(Result<Grant>) + Send + 'static,
    ) {
        // A daemon whose disk is full sends something else in its place.
        let page = match self.page(up) {
            Ok(page) => page,
            Err(e) => return done(Err(Error::unsupported(format!("no direct access: {e}")))),
        };
        Counters::add(&self.link.counters().round_trips, 1);
        let (direct, epoch, of) = (self.clone(), request.epoch, Arc::downgrade(up));
        let reply = Box::new(move |reply| done(direct.grant(reply, &of, &page, epoch)));
        let memory = self.link.targets().medium == Capability::SHARED_MEMORY;
        let request = GrantRequest { memory, anew: memory && up.maps.are_none(), ..request.clone() };
        up.connection.request_in_time(&request, Vec::new(), Vec::new(), Terms::by(deadline_ns), reply);
    }

    pub(crate) fn grant(
        &self,
        reply: Result<Reply>,
        up: &Weak<Up>,
        page: &Arc<ClientPage>,
        epoch: u64,
    ) -> Result<Grant> {
        let (granted, descriptors) = match reply? {
            Reply::Granted(granted, descriptors) => (granted, descriptors),
            _ => return Err(Error::corrupt("the daemon answered a grant request with something else")),
        };
        let (slot, generation) = slot_of(granted.grant);
        let lent = descriptors.ok_or_else(|| socket::no_descriptor("direct access to a collection"));
        let lent = lent.and_then(|descriptors| Ok((lent_by(&granted, descriptors, up)?, page.slot(slot, generation)?)));
        let (lent, slot) = lent.inspect_err(|_| {
            if let Some(up) = up.upgrade() {
                up.connection.tell(&GiveBack { grant: granted.grant });
                // What did not come, or could not be mapped, is to be passed again.
                up.maps.forget();
            }
        })?;
        Counters::add(&self.link.counters().grants, 1);
        Ok(Grant {
            lent,
            number: granted.grant,
            slot,
            access: granted.access,
            epoch: granted.epoch.max(epoch),
            range: granted.range,
            kept: granted.kept,
            version: granted.version,
            up: up.clone(),
            used: AtomicU64::new(self.clock.fetch_add(1, Ordering::Relaxed)),
            advised: Mutex::default(),
        })
    }

    /// A grant was taken back.
    pub(crate) fn lost(&self, object: ObjectId, grant: &Arc<Grant>) {
        Counters::add(&self.link.counters().recalls, 1);
        let mut entries = lock(&self.entries);
        if let Some(entry) = entries.get_mut(&object) {
            entry.grants.retain(|g| !Arc::ptr_eq(g, grant));
            entry.uses = entry.uses.max(1);
        }
        drop(entries);
        grant.give_back();
    }

    /// What was granted does not reach as far as was asked.
    pub(crate) fn not_enough(&self, object: ObjectId) {
        let mut entries = lock(&self.entries);
        entries.entry(object).or_default().not_before_ns = seam::monotonic_ns() + NOT_ENOUGH_NS;
    }
}

impl DirectBackend {
    /// The target behind a link; without `direct`, all bytes go over the socket.
    pub fn new(link: Arc<Link>, direct: bool) -> DirectBackend {
        let target = Arc::new(Direct {
            number: TARGETS.fetch_add(1, Ordering::Relaxed),
            socket: RemoteBackend(link.clone()),
            link,
            kept: SumCache::default(),
            entries: Mutex::default(),
            page: Mutex::default(),
            clock: AtomicU64::new(0),
            shows: AtomicBool::new(false),
            room: room(),
            held: AtomicUsize::new(0),
            loans: AtomicUsize::new(0),
            direct,
        });
        room::can_be_asked(&target);
        DirectBackend(target)
    }
}

impl Backend for DirectBackend {
    fn capability(&self) -> &Capability {
        self.0.link.targets()
    }

    fn may_wait(&self) -> bool {
        true
    }

    fn is_near(&self) -> bool {
        self.0.direct
    }

    fn at_once(&self, object: ObjectId, epoch: u64, offset: u64, bytes: Now<'_>) -> AtOnce {
        let (len, write) = match &bytes {
            Now::Write(from) => (from.len(), true),
            Now::Read(into) => (into.len(), false),
        };
        // Larger ones look at their deadline on the way.
        if !self.0.direct || len > AT_ONCE || self.0.link.in_child() {
            return AtOnce::No;
        }
        let Ok(range) = Range::new(offset, len as u64) else { return AtOnce::No };
        let Some(grant) = self.0.held(object, epoch, range, write) else { return AtOnce::No };
        // A handle or lock that is gone: its target may not know.
        if self.0.link.check(object.collection, None).is_err() {
            return AtOnce::No;
        }
        let moved = match bytes {
            Now::Write(from) => grant.write_now(from, offset),
            Now::Read(into) => grant.read_now(into, offset),
        };
        if let AtOnce::Done(Ok(bytes)) = moved {
            Counters::add(&self.0.link.counters().bytes_direct, bytes);
        }
        moved
    }

    fn show(&self, object: ObjectId, epoch: u64, range: Range) -> Shown {
        let within_reach = [Capability::SHARED_MEMORY, Capability::FILES].contains(&self.0.link.targets().medium);
        if !self.0.direct || !within_reach || self.0.link.in_child() {
            return Shown::Never;
        }
        self.0.show(object, epoch, range)
    }

    fn lend(&self, cx: &OpCx, object: ObjectId, epoch: u64) -> Result<Box<dyn LentFile>> {
        self.may_lend(self.0.direct).and_then(|()| self.lend_file(cx, object, epoch))
    }

    fn lend_to_write(&self, cx: &OpCx, object: ObjectId, epoch: u64) -> Result<Box<dyn LentFile>> {
        self.may_lend(self.0.direct).and_then(|()| self.lend_writable(cx, object, epoch))
    }

    fn closed(&self, object: ObjectId) {
        self.0.closed(object);
    }

    fn submit(&self, cx: &OpCx, ops: Vec<Submitted>, sink: Arc<dyn Sink>) {
        if !self.0.direct || self.0.link.in_child() {
            return self.0.socket.submit(cx, ops, sink);
        }
        Run::new(self.0.clone(), cx, ops, sink).go();
    }
}
