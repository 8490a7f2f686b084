//! A session: one connection to one store, its counters, and the requests in flight.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use iov_store::{Answer, Backend, Bell, Catalog, ChangeView, OpCx, Route, ask, seam};
use iov_types::{
    Caller, Capability, Controls, Counters, Error, Priority, Result, StoreMap, Uuid, Which, WorkspaceAttr,
    catalog::{CatalogOp, CatalogReply, Submission},
    limits,
};

use crate::{
    Cursor, Workspace, cursor,
    event::Event,
    leases::{Leases, Renewal},
    progress::Progress,
    records::{Detached, Records, Watched},
    request::RequestInner,
    within::most_ns,
};

/// The two sides of a store, as the facade has put them together.
#[derive(Clone)]
pub struct Sides {
    /// Facts.
    pub catalog: Arc<dyn Catalog>,
    /// Bytes.
    pub backend: Arc<dyn Backend>,
}

/// How a session is opened.
#[derive(Clone, Debug, Default)]
pub struct SessionAttr {
    /// No changes through this session.
    pub readonly: bool,
    /// No direct access: bytes go through the daemon.
    pub nodirect: bool,
    /// No client caches.
    pub nocache: bool,
    /// Start no daemon.
    pub nostart: bool,
    /// Of calls and batches that set none, in nanoseconds; 0 = 60 s.
    pub deadline_ns: i64,
    /// Limit of the client's caches, in bytes; 0 = default.
    pub cache_bytes: u64,
    /// Of everything it asks. What a program copies itself, to or from shared memory, takes that program's time alone.
    pub priority: Priority,
    /// Shown to operators; `None` = the executable's name.
    pub program: Option<String>,
}

pub(crate) struct SessionInner {
    pub(crate) sides: Sides,
    pub(crate) caller: Mutex<Caller>,
    pub(crate) attr: SessionAttr,
    pub(crate) url: String,
    pub(crate) counters: Arc<Counters>,
    pub(crate) in_flight: Mutex<Vec<Arc<RequestInner>>>,
    completed: Mutex<VecDeque<Weak<RequestInner>>>,
    arrived: Bell,
    event: Event,
    /// Grows with each answer that a request has not looked at yet.
    answers: AtomicU64,
    pub(crate) progress: Progress,
    pub(crate) leases: Leases,
    /// Of sealed collections; `None` where the session was opened to keep none.
    pub(crate) records: Option<Arc<Records>>,
    /// Handles opened from these.
    pub(crate) detached: Detached,
    /// The catalog cannot set the length of bytes in records.
    pub(crate) cut_elsewhere: AtomicBool,
    /// Nor append to them.
    pub(crate) append_elsewhere: AtomicBool,
    generation: u64,
    closed: AtomicBool,
}

/// One connection to one store. Clones are the same session; any thread, any time.
#[derive(Clone)]
pub struct Session(pub(crate) Arc<SessionInner>);

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Session {
    /// A session of `caller` on a store. Counters may be shared with the sides, which count what they see.
    pub fn new(url: &str, mut sides: Sides, caller: Caller, attr: SessionAttr, counters: Arc<Counters>) -> Session {
        let records = (!attr.nocache).then(|| {
            let lease_ns = sides.catalog.capability().lease_ns;
            Arc::new(Records::new(attr.cache_bytes, lease_ns, counters.clone(), seam::monotonic_ns))
        });
        if let Some(records) = &records {
            sides.catalog = Arc::new(Watched::new(sides.catalog, records.clone()));
        }
        Session(Arc::new(SessionInner {
            sides,
            caller: Mutex::new(caller),
            attr,
            url: url.into(),
            counters,
            in_flight: Mutex::default(),
            completed: Mutex::default(),
            arrived: Bell::default(),
            event: Event::default(),
            answers: AtomicU64::new(0),
            progress: Progress::default(),
            leases: Leases::default(),
            records,
            detached: Detached::default(),
            cut_elsewhere: AtomicBool::new(false),
            append_elsewhere: AtomicBool::new(false),
            generation: seam::fork_generation(),
            closed: AtomicBool::new(false),
        }))
    }

    /// The URL it was opened with.
    pub fn url(&self) -> &str {
        &self.0.url
    }

    /// The counters.
    pub fn counters(&self) -> &Counters {
        &self.0.counters
    }

    /// What the store's targets can do.
    pub fn capability(&self) -> &Capability {
        &self.0.sides.catalog.capability().targets
    }

    /// Whether both are sessions of one store: in this process of the same memory, else of the same medium, which got its
    /// number when it was made.
    pub(crate) fn shares_store(&self, other: &Session) -> bool {
        let (one, two) = (self.capability(), other.capability());
        let in_memory = !self.0.sides.backend.may_wait();
        let same_memory = Arc::ptr_eq(&self.0.sides.backend, &other.0.sides.backend);
        same_memory || (!in_memory && (one.medium, one.incarnation) == (two.medium, two.incarnation))
    }

    /// The default deadline in nanoseconds, as far as [`within`](crate::within) leaves it to the calling thread.
    pub fn deadline_ns(&self) -> i64 {
        let ns = if self.0.attr.deadline_ns > 0 { self.0.attr.deadline_ns } else { limits::DEFAULT_DEADLINE_NS };
        ns.min(most_ns())
    }

    /// Fails in a child of the process that opened the session (rule 7), and after close.
    pub fn check(&self) -> Result<()> {
        self.0.check_fork()?;
        if self.0.closed.load(Ordering::Relaxed) {
            return Err(Error::invalid("the session is closed"));
        }
        Ok(())
    }

    /// Ends the session for new calls; what is open in it lives on.
    pub fn close(&self) -> Result<()> {
        self.check()?;
        if !lock(&self.0.in_flight).is_empty() {
            return Err(Error::busy("requests are in flight: wait for them, then close"));
        }
        self.0.closed.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Tells the store that the process ends, with all that is open: nothing can be done by this session any more, nor by what is open in it.
    ///
    /// Who does not say so may be taken for one whose connection broke, and is waited for until his lease ends.
    pub fn leave(&self) {
        self.0.say_goodbye();
    }

    pub(crate) fn cx(&self, timeout_ns: i64) -> OpCx {
        let timeout_ns = if timeout_ns > 0 { timeout_ns.min(most_ns()) } else { self.deadline_ns() };
        OpCx::new(lock(&self.0.caller).clone(), timeout_ns).at(self.0.attr.priority)
    }

    pub(crate) fn ask(&self, op: CatalogOp, timeout_ns: i64) -> Result<CatalogReply> {
        self.check()?;
        self.ask_on(op, timeout_ns)
    }

    /// The same for what is still open in a closed session (rule 5).
    pub(crate) fn ask_on(&self, op: CatalogOp, timeout_ns: i64) -> Result<CatalogReply> {
        self.0.check_fork()?;
        Counters::add(&self.0.counters.metadata_requests, 1);
        let answer: Answer = ask(&*self.0.sides.catalog, &self.cx(timeout_ns), vec![op], Submission::Each);
        answer?.pop().unwrap_or_else(|| Err(Error::internal("the catalog sent no reply")))
    }

    pub(crate) fn refuse_if_readonly(&self) -> Result<()> {
        if self.0.attr.readonly {
            return Err(Error::denied("the session was opened read-only; open another one to change things"));
        }
        Ok(())
    }

    /// Makes and opens a workspace.
    pub fn create_workspace(&self, name: iov_types::Name, attr: WorkspaceAttr) -> Result<Workspace> {
        self.refuse_if_readonly()?;
        let reply = self.ask(CatalogOp::WorkspaceCreate { uuid: seam::new_uuid(), name, attr }, 0)?;
        Workspace::from_reply(self, reply)
    }

    /// Opens a workspace.
    pub fn load_workspace(&self, which: Which) -> Result<Workspace> {
        let reply = self.ask(CatalogOp::WorkspaceLoad { which }, 0)?;
        Workspace::from_reply(self, reply)
    }

    /// Deletes an empty workspace.
    pub fn delete_workspace(&self, which: Which) -> Result<()> {
        self.refuse_if_readonly()?;
        self.ask(CatalogOp::WorkspaceDelete { which }, 0).map(drop)
    }

    /// Searches the workspaces that the caller may see.
    pub fn search_workspaces(&self, mut spec: iov_types::catalog::SearchSpec) -> Result<Cursor> {
        spec.page = cursor::first_page(spec.limit);
        match self.ask(CatalogOp::WorkspaceSearch { spec }, 0)? {
            CatalogReply::Page(page) => Ok(Cursor::ready(self, page)),
            _ => Err(Error::internal("a search was not answered by a page")),
        }
    }

    /// What a create in a workspace would get. The error of a refusal comes with the nearest offer.
    pub fn check_controls(
        &self,
        workspace: Option<&Workspace>,
        asked: &Controls,
    ) -> std::result::Result<iov_types::Effective, iov_semantics::Refusal> {
        let defaults = workspace.map(|w| w.defaults()).unwrap_or_default();
        iov_semantics::resolve::create(&defaults, asked, self.capability())
    }

    /// Joins the exclusive holds of the session that exported the token (X1).
    pub fn join(&self, token: Vec<u8>) -> Result<()> {
        match self.ask(CatalogOp::TokenJoin { token }, 0)? {
            CatalogReply::Token(holder) => {
                let holder: [u8; 16] =
                    holder.try_into().map_err(|_| Error::internal("a holder is a UUID of 16 bytes"))?;
                lock(&self.0.caller).holder = Uuid(holder);
                Ok(())
            }
            _ => Err(Error::internal("a join was not answered by a token")),
        }
    }

    /// Where the store's catalog says which facts change, so that nobody need ask whether what he remembers still holds (C1). `None`:
    /// it is on another host, or cannot tell. What was remembered by another view than this one does not hold.
    pub fn changes(&self) -> Option<Arc<ChangeView>> {
        self.check().ok()?;
        self.0.sides.catalog.changes()
    }

    /// The targets of the store, and the patterns in which collections lie on them.
    pub fn store_map(&self) -> Result<StoreMap> {
        let mut all = StoreMap::default();
        loop {
            let from = all.patterns.last().map_or(1, |last| last.number.saturating_add(1));
            match self.ask(CatalogOp::Map { from }, 0)? {
                CatalogReply::Map(map) => {
                    let more = !map.patterns.is_empty();
                    all.targets = map.targets;
                    all.patterns.extend(map.patterns);
                    if !more {
                        return Ok(all);
                    }
                }
                _ => return Err(Error::internal("a question for the store's map was not answered by one")),
            }
        }
    }

    /// The ways from this process to the store's daemons, each tried now.
    pub fn routes(&self) -> Vec<Route> {
        self.0.sides.catalog.routes(&self.cx(0))
    }

    /// A token with which others join this session's exclusive holds.
    pub fn export_token(&self) -> Result<Vec<u8>> {
        match self.ask(CatalogOp::TokenExport, 0)? {
            CatalogReply::Token(token) => Ok(token),
            _ => Err(Error::internal("an export was not answered by a token")),
        }
    }

    /// Renews the session's leases from now on, also if it holds nothing: so its tokens hold for as long as it lives.
    pub fn renew_leases(&self) {
        self.0.keep_leases();
    }

    /// A descriptor that is readable when [`Session::poll`] has work.
    pub fn event_fd(&self) -> Result<i32> {
        self.check()?;
        let fd = self.0.event.fd()?;
        self.0.event.watch(&*self.0.sides.catalog);
        if !lock(&self.0.completed).is_empty() {
            self.0.event.raise();
        }
        Ok(fd)
    }

    /// Drives the session and takes up to `max` completed requests, each once and only if nobody was told of it before.
    /// `timeout_ns` 0 = do not wait, negative = for ever. Empty: none yet.
    pub(crate) fn poll(&self, max: usize, timeout_ns: i64) -> Result<Vec<Arc<RequestInner>>> {
        self.0.check_fork()?;
        let until = if timeout_ns < 0 { i64::MAX } else { seam::monotonic_ns().saturating_add(timeout_ns) };
        loop {
            let running: Vec<_> = lock(&self.0.in_flight).clone();
            self.0.event.notice();
            if !running.is_empty() {
                // Those that nobody else goes on with have their answers from here alone.
                self.0.sides.catalog.drive(0);
                // It may be another connection than before.
                self.0.event.watch(&*self.0.sides.catalog);
            }
            let seen = self.0.answers.load(Ordering::SeqCst);
            for request in &running {
                request.drive_while(timeout_ns);
            }
            let mut done = Vec::new();
            let mut completed = lock(&self.0.completed);
            while done.len() < max {
                let Some(request) = completed.pop_front() else { break };
                done.extend(request.upgrade().filter(|r| r.tell()));
            }
            if completed.is_empty() {
                self.0.event.clear();
                if self.0.answers.load(Ordering::SeqCst) != seen {
                    // It came after we looked: the descriptor must not forget it.
                    self.0.event.raise();
                }
            }
            let left = until.saturating_sub(seam::monotonic_ns());
            if !done.is_empty() || max == 0 || left <= 0 {
                return Ok(done);
            }
            drop(completed);
            if !self.0.sides.catalog.drive(left.min(50_000_000)) {
                let completed = lock(&self.0.completed);
                if completed.is_empty() {
                    // Bounded: a request may also end by its deadline, which nobody announces.
                    let wait = Duration::from_nanos(left.min(50_000_000) as u64);
                    drop(self.0.arrived.wait(completed, wait));
                }
            }
        }
    }
}

impl SessionInner {
    pub(crate) fn check_fork(&self) -> Result<()> {
        if self.generation != seam::fork_generation() {
            return Err(Error::forked("the handle belongs to the parent process; open the store anew in this one"));
        }
        Ok(())
    }

    /// Keeps the session's leases alive from now on: it holds something exclusively, or a lock. A store in this process
    /// cannot lose sight of a holder.
    pub(crate) fn keep_leases(&self) {
        if self.sides.backend.may_wait() {
            self.leases.keep(Renewal {
                catalog: self.sides.catalog.clone(),
                caller: lock(&self.caller).clone(),
                counters: self.counters.clone(),
                // Two renewals may be lost before the lease is.
                every_ns: self.sides.catalog.capability().lease_ns / 3,
            });
        }
    }

    /// A request has something to look at.
    pub(crate) fn answered(&self) {
        self.answers.fetch_add(1, Ordering::SeqCst);
        self.notify();
    }

    /// Something arrived that a poller may be waiting for.
    fn notify(&self) {
        self.arrived.ring();
        self.event.raise();
    }

    pub(crate) fn completed(&self, request: &Arc<RequestInner>) {
        lock(&self.in_flight).retain(|r| !Arc::ptr_eq(r, request));
        Counters::sub(&self.counters.in_flight, 1);
        if request.is_told() {
            return;
        }
        let mut completed = lock(&self.completed);
        // A program that never polls must not collect them for ever.
        while completed.front().is_some_and(|r| r.upgrade().is_none_or(|r| r.is_told())) {
            completed.pop_front();
        }
        completed.push_back(Arc::downgrade(request));
        // Before anybody can take it: raised later, the descriptor would tell of work that is done.
        self.notify();
    }
}

impl SessionInner {
    fn say_goodbye(&self) {
        if self.check_fork().is_err() {
            return;
        }
        let cx = OpCx::new(lock(&self.caller).clone(), 1_000_000_000);
        self.sides.catalog.submit(&cx, vec![CatalogOp::Goodbye], Submission::Each, Box::new(|_| {}));
    }
}

impl Drop for SessionInner {
    fn drop(&mut self) {
        self.say_goodbye();
    }
}
