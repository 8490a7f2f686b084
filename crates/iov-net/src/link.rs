//! The link of a session to its store's daemon: connects, starts the daemon on demand, connects anew when it broke.

use std::{
    os::fd::OwnedFd,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, Weak,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    },
};

use iov_store::{CatalogCapability, LEASE_ENDED, OpCx, seam};
use iov_types::{Capability, Counters, Error, Kind, ObjectId, Result, Target, Uuid};
use iov_wire::{
    Body,
    messages::{Context, Goodbye, Resume, ResumeAnswer},
};

use crate::{
    asks::Asks,
    book::Book,
    changes::Changes,
    conn::{Connection, Reply, Terms},
    frames::Frame,
    kept::Piece,
    lanes::Lanes,
    memory::Maps,
    mend::Queue,
    near,
    reach::{self, Address, Reached},
    tickets::{Desk, Tickets},
};

/// Opens presented in one frame.
pub const PRESENTED: usize = 1 << 16;
/// How often a request is sent again over a new connection: one that kills its daemon must not do so for ever.
pub(crate) const ATTEMPTS: u32 = 5;

/// A connection and what came with it.
pub(crate) struct Up {
    pub(crate) connection: Connection,
    /// The session's lease page; none over a network.
    pub(crate) page: Option<OwnedFd>,
    /// Segments that came over it.
    pub(crate) maps: Maps,
    /// Where the catalog says what changes.
    pub(crate) changes: Changes,
}

impl Up {
    pub(crate) fn new(connection: Connection, page: Option<OwnedFd>) -> Up {
        Up { connection, page, maps: Maps::default(), changes: Changes::default() }
    }

    /// The connection is of no use, but the session goes on over the next one, which has a page of its own.
    fn give_up(&self) {
        match &self.page {
            Some(_) => self.leave(),
            None => self.connection.fail(&Error::unavailable("the session could not be taken up again")),
        }
    }

    /// The session ends: no daemon waits for it to come back.
    fn leave(&self) {
        match &self.page {
            // A page that cannot be marked is over when this process ends.
            Some(page) => drop(rustix::io::pwrite(page, &LEASE_ENDED, 0)),
            None => self.connection.tell(&Goodbye),
        }
    }
}

fn closed() -> Error {
    Error::unavailable("the session has ended")
}

/// A link that mends itself.
pub struct Link {
    pub(crate) address: Address,
    pub(crate) lanes: Lanes,
    /// Locked for a moment only.
    pub(crate) up: Mutex<Option<Arc<Up>>>,
    /// Grants that are being asked for: of an object, for writing or not.
    pub(crate) grants_asked: Asks<(ObjectId, bool), ()>,
    /// Pieces of checksums that are: of an object, by their first run; the answer is `None` if there is none.
    pub(crate) sums_asked: Asks<(ObjectId, u64), Option<Arc<Piece>>>,
    /// What waits until it is made anew.
    pub(crate) queue: Mutex<Queue>,
    pub(crate) mended_or_not: Condvar,
    /// How much was begun.
    pub(crate) begun: AtomicU64,
    /// When it was last looked whether it has broken.
    pub(crate) looked_ns: AtomicI64,
    capability: CatalogCapability,
    addresses: Vec<String>,
    pub(crate) store: Uuid,
    counters: Arc<Counters>,
    book: Book,
    generation: u64,
    /// How often it was connected anew.
    mended: AtomicU64,
    /// The session has ended: there is no other connection.
    ended: AtomicBool,
    /// The set of epoll that tells of answers.
    watched: Mutex<Option<Arc<OwnedFd>>>,
    /// Links of the same program to other targets: whoever waits waits for all of them.
    siblings: RwLock<Vec<Arc<Link>>>,
    /// The link to the store, if this is one to another target.
    pub(crate) main: Option<Weak<Link>>,
    /// What is shown to the daemon with operations on objects.
    pub(crate) tickets: Tickets,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Link {
    /// Connects, and starts the daemon if there is none and the address says how.
    pub fn open(address: Address, counters: Arc<Counters>, timeout_ns: i64) -> Result<Arc<Link>> {
        let until = seam::monotonic_ns().saturating_add(timeout_ns);
        let Reached { up, capability, addresses, store } = reach::connect(&address, 0, until)?;
        address.learn(&addresses);
        Counters::add(&counters.connections, 1);
        let mut link = Link::unconnected(address, capability, store, counters, Tickets::None);
        (link.up, link.addresses) = (Mutex::new(Some(Arc::new(up))), addresses);
        Ok(Arc::new(link))
    }

    fn unconnected(
        address: Address,
        capability: CatalogCapability,
        store: Uuid,
        counters: Arc<Counters>,
        tickets: Tickets,
    ) -> Link {
        Link {
            lanes: match &tickets {
                // Those who move bytes at a daemon may all wait for what the catalog is to show: it does not queue behind them.
                Tickets::Own(_) => Lanes::one(),
                _ => Lanes::to(&address.place),
            },
            address,
            up: Mutex::default(),
            grants_asked: Asks::default(),
            sums_asked: Asks::default(),
            queue: Mutex::default(),
            mended_or_not: Condvar::new(),
            begun: AtomicU64::new(0),
            looked_ns: AtomicI64::new(0),
            capability,
            addresses: Vec::new(),
            store,
            counters,
            book: Book::default(),
            generation: seam::fork_generation(),
            mended: AtomicU64::new(0),
            ended: AtomicBool::new(false),
            watched: Mutex::default(),
            siblings: RwLock::default(),
            main: None,
            tickets,
        }
    }

    /// A link of the catalog of `store` to a target of another daemon, with a ticket for everything; it connects at the first
    /// use.
    pub fn of_catalog(address: Address, store: Uuid, capability: CatalogCapability, ticket: Vec<u8>) -> Arc<Link> {
        let tickets = Tickets::Own(Arc::new(ticket));
        Arc::new(Link::unconnected(address, capability, store, Arc::default(), tickets))
    }

    /// A link to one of the store's other targets, of another daemon or of the same; it connects at the first use. `near`: by the
    /// socket in that daemon's directory, if both are on this host.
    pub fn to_target(self: &Arc<Link>, target: &Target, near: bool) -> Result<Arc<Link>> {
        let Target { number, capability, addresses, local, .. } = target;
        let near = if near { near::find(local) } else { None };
        let address = self.address.to_target(*number, addresses, near, seam::new_uuid())?;
        let capability = CatalogCapability { targets: capability.clone(), ..self.capability.clone() };
        // The catalog's own daemon asks the catalog.
        let tickets = if addresses.is_empty() { Tickets::None } else { Tickets::Asked(Desk::new(self)) };
        let mut link = Link::unconnected(address, capability, self.store, self.counters.clone(), tickets);
        (link.addresses, link.generation) = (addresses.to_vec(), self.generation);
        link.watched = Mutex::new(lock(&self.watched).clone());
        link.main = Some(Arc::downgrade(self));
        let link = Arc::new(link);
        self.siblings.write().unwrap_or_else(PoisonError::into_inner).push(link.clone());
        // It may have come meanwhile.
        let watched = lock(&self.watched).clone();
        if let Some(set) = watched {
            link.watch(&set);
        }
        if self.ended.load(Ordering::SeqCst) {
            link.end();
        }
        Ok(link)
    }

    /// The links to the store's other targets.
    pub(crate) fn siblings(&self) -> Vec<Arc<Link>> {
        self.siblings.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether there are any.
    pub(crate) fn has_siblings(&self) -> bool {
        !self.siblings.read().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// What the catalog can do.
    pub fn capability(&self) -> &CatalogCapability {
        &self.capability
    }

    /// What the target can do.
    pub fn targets(&self) -> &Capability {
        &self.capability.targets
    }

    /// Where the daemon said that it can be reached over a network.
    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// The counters of the session.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Makes the connection anew; by one thread at a time.
    pub(crate) fn renew(&self, cx: &OpCx) -> Result<Arc<Up>> {
        let (new, capability) = loop {
            self.check_open()?;
            // What the session has open is taken up there, before anything is asked of a target.
            let main = self.main_up(cx)?;
            let reached = reach::connect(&self.address, 0, cx.deadline_ns);
            if let (Err(e), Some(main)) = (&reached, &main)
                && e.kind() == Kind::Stale
                && cx.left_ns() > 0
            {
                // The daemon does not know the session: that connection has broken too, and nobody has noticed.
                main.connection.fail(&Error::unavailable("the store's daemon does not know the session any more"));
                continue;
            }
            let Reached { up: new, capability, store, .. } = reached?;
            if store != self.store {
                // It knows nothing of this session, whatever the name or the address says.
                new.leave();
                return Err(Error::stale("another store answers at this address now: open it anew"));
            }
            match self.resume(cx, &new) {
                // It ended before it could answer: there will be another one, which finds the page of the last that did.
                Err(e) if e.kind() == Kind::Unavailable && new.connection.is_broken() && cx.left_ns() > 0 => {
                    new.give_up()
                }
                Err(e) => {
                    new.give_up();
                    return Err(e);
                }
                Ok(()) => break (new, capability),
            }
        };
        // More may have come: another target. What was promised must still hold.
        if capability.targets.durability < self.capability.targets.durability {
            new.leave();
            return Err(Error::version("the store's daemon came back with other capabilities: open the store anew"));
        }
        let old = lock(&self.up).clone();
        old.iter().for_each(|old| old.connection.wait_told());
        let mut up = lock(&self.up);
        if self.ended.load(Ordering::SeqCst) {
            new.leave();
            return Err(closed());
        }
        // A target's is made when it is first needed.
        let again = self.address.is_of_store() || self.mended.load(Ordering::Relaxed) > 0;
        if up.is_none() {
            Counters::add(&self.counters.connections, 1);
        }
        if again {
            Counters::add(&self.counters.retries, 1);
        }
        self.mended.fetch_add(1, Ordering::Relaxed);
        let new = Arc::new(new);
        let old = up.replace(new.clone());
        drop(up);
        // By its new page it is known from now on.
        old.inspect(|old| old.leave());
        self.watch_too(&new.connection);
        Ok(new)
    }

    /// Of a link to another target: the connection of the link to the store, made anew if need be.
    fn main_up(&self, cx: &OpCx) -> Result<Option<Arc<Up>>> {
        let Some(main) = &self.main else { return Ok(None) };
        let main = main.upgrade().ok_or_else(closed)?;
        if let Some(up) = main.current() {
            up.connection.look();
        }
        main.up(cx).map(Some)
    }

    /// Fails for a collection whose handle did not come through the end of a daemon, or a stage that did not.
    pub(crate) fn check(&self, collection: Uuid, stage: Option<Uuid>) -> Result<()> {
        self.book.check(collection, stage)?;
        self.check_doubt(collection)?;
        match self.main.as_ref().map(Weak::upgrade) {
            // What is open stands in the book of the link to the store.
            Some(Some(main)) => main.book.check(collection, None),
            Some(None) => Err(closed()),
            None => Ok(()),
        }
    }

    /// Adds a new connection to the set of epoll, if there is one.
    pub(crate) fn watch_too(&self, connection: &Connection) {
        let set = lock(&self.watched).clone();
        if let Some(set) = set {
            connection.watch(&set);
        }
    }

    /// Tells a daemon that may not know the session what it has open and staged.
    fn resume(&self, cx: &OpCx, up: &Up) -> Result<()> {
        let (opens, stages) = self.book.to_present();
        // Over a network the daemon may still have the session, with what was opened and never answered.
        let joined = cx.caller.holder != cx.caller.session;
        if opens.is_empty() && stages.is_empty() && !up.connection.is_network() && !joined {
            return Ok(());
        }
        let mut stages = Some(stages);
        for opens in opens.chunks(PRESENTED).chain((opens.is_empty()).then_some(&[][..])) {
            let stages = stages.take().unwrap_or_default();
            let request = Resume { context: Link::context(cx), opens: opens.to_vec(), stages, ..Resume::default() };
            let answer = match call(up, cx, &request) {
                Ok(frame) => frame.header.body::<ResumeAnswer>(&frame.body)?,
                // Of an older release: everything that was open is stale.
                Err(e) if e.kind() == Kind::Version => return Ok(()),
                Err(e) => return Err(e),
            };
            self.book.resumed(opens, answer);
        }
        self.resume_locks(cx, up)
    }

    /// Its locks follow on what it has open (O11).
    fn resume_locks(&self, cx: &OpCx, up: &Up) -> Result<()> {
        for locks in self.book.locks_to_present().chunks(PRESENTED) {
            let request = Resume { context: Link::context(cx), locks: locks.to_vec(), ..Resume::default() };
            let answer = match call(up, cx, &request) {
                Ok(frame) => frame.header.body::<ResumeAnswer>(&frame.body),
                // Of a release that takes no locks up.
                Err(e) if e.kind() == Kind::Version => Err(Error::fenced(
                    "a lock did not outlast the break of the connection, as the store's daemon is of an older release: \
                     close, then open and lock anew",
                )
                .with_clause(iov_types::Clause::O11)),
                Err(e) => return Err(e),
            };
            self.book.locks_resumed(locks, answer);
        }
        Ok(())
    }

    /// What the session has open.
    pub(crate) fn book(&self) -> &Book {
        &self.book
    }

    /// The present connection if there is one that works.
    pub(crate) fn current(&self) -> Option<Arc<Up>> {
        lock(&self.up).clone().filter(|up| !up.connection.is_broken())
    }

    /// Which connection there is; one that is broken is none any more, and stands for the next.
    pub(crate) fn connection(&self) -> u64 {
        let up = lock(&self.up);
        let works = up.as_ref().is_some_and(|up| !up.connection.is_broken());
        self.mended.load(Ordering::Relaxed) + u64::from(!works)
    }

    /// Adds the connection there is, and each that comes after it, to a set of epoll: the session has one.
    pub(crate) fn watch(&self, given: &OwnedFd) {
        let mut watched = lock(&self.watched);
        if watched.is_none() {
            *watched = given.try_clone().ok().map(Arc::new);
        }
        let set = watched.clone();
        drop(watched);
        self.siblings().iter().for_each(|sibling| sibling.watch(set.as_deref().unwrap_or(given)));
        if let Some(set) = &set {
            self.watch_lanes(set);
        }
        let up = lock(&self.up).clone();
        if let (Some(set), Some(up)) = (set, up) {
            up.connection.watch(&set);
        }
    }

    /// Lets go of the connection: the session has ended. A daemon hears of that by the end of the connection; one that
    /// is still to come by the page that it finds marked, so that it does not wait for the session.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
        self.siblings().iter().for_each(|sibling| sibling.end());
        self.close_lanes();
        let up = lock(&self.up).take();
        if let Some(up) = up {
            Counters::sub(&self.counters.connections, 1);
            up.leave();
        }
    }

    /// Fails once the session has ended.
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.ended.load(Ordering::SeqCst) { Err(closed()) } else { Ok(()) }
    }

    /// Asks the daemon something and waits for the answer.
    pub(crate) fn call<B: Body>(self: &Arc<Link>, cx: &OpCx, body: &B) -> Result<Frame> {
        call(&*self.up(cx)?, cx, body)
    }

    /// Lets go of connections over which nothing comes; what is wanted again makes new ones.
    pub fn break_off(&self) {
        let e = Error::unavailable("nothing more comes from the daemon");
        let lanes = (0..self.lanes.all().len() as u32).filter_map(|lane| self.current_of(lane));
        lanes.for_each(|up| up.connection.fail(&e));
    }

    pub(crate) fn in_child(&self) -> bool {
        self.generation != seam::fork_generation()
    }

    pub(crate) fn context(cx: &OpCx) -> Context {
        Context { holder: cx.caller.holder, batch: cx.batch }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if !self.in_child() {
            self.end();
        }
    }
}

pub(crate) fn call<B: Body>(up: &Up, cx: &OpCx, body: &B) -> Result<Frame> {
    match ask(up, cx, body)? {
        Reply::Frame(frame) => Ok(frame),
        _ => Err(Error::corrupt("the daemon sent a grant, or bytes, that nobody asked for")),
    }
}

/// Asks for something over a connection and waits for the answer.
pub(crate) fn ask<B: Body>(up: &Up, cx: &OpCx, body: &B) -> Result<Reply> {
    let slot = Arc::new(Mutex::new(None));
    let to = slot.clone();
    up.connection.request(body, Terms::of(cx), Box::new(move |reply| *lock(&to) = Some(reply)));
    loop {
        if let Some(reply) = lock(&slot).take() {
            return reply;
        }
        let left = cx.left_ns();
        if left == 0 {
            return Err(Error::timeout("the daemon did not answer in time"));
        }
        up.connection.drive(left.min(50_000_000));
    }
}
