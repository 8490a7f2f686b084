//! The listening sockets, the workers behind them, and the end of an idle daemon.

use std::{
    collections::HashMap,
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    },
};

use iov_catalog::Service;
use iov_store::{Backend, Catalog, seam};
use iov_types::{Error, Result, Uuid};

use crate::{GrantBook, connection::Connection, sessions::Sessions, stages::Stages, workers::Workers};

/// How a store is served.
#[derive(Clone, Debug)]
pub struct Options {
    /// The store.
    pub store: Uuid,
    /// Grows each time the store is served anew.
    pub incarnation: u64,
    /// The one user that may connect.
    pub owner: u32,
    /// End after so long without a connection, in nanoseconds; `i64::MAX` = never.
    pub idle_ns: i64,
    /// Most connections at a time.
    pub connections: usize,
    /// Whether bytes may be moved past this process, where the medium allows it.
    pub direct: bool,
}

/// A served store.
pub struct Server {
    pub(crate) options: Options,
    pub(crate) catalog: Arc<Service>,
    pub(crate) target: Arc<dyn Backend>,
    pub(crate) grants: Arc<dyn GrantBook>,
    pub(crate) stages: Stages,
    pub(crate) started_ns: i64,
    pub(crate) requests: AtomicU64,
    pub(crate) object_bytes: AtomicU64,
    connections: Mutex<HashMap<u64, Arc<Connection>>>,
    control: Arc<Workers>,
    sessions: Sessions,
    next: AtomicU64,
    last_busy_ns: AtomicI64,
    stopping: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How often the listener looks whether it is time to end, and lets the catalog look at its deadlines.
const TICK_NS: i64 = 50_000_000;
/// How often it looks for peers that have fallen silent.
const EXPIRY_NS: i64 = 1_000_000_000;
/// Most threads that serve requests.
const CONTROL_WORKERS: usize = 1024;
/// How often leftovers of ended processes are swept.
const SWEEP_NS: i64 = 5_000_000_000;

impl Server {
    /// A server over the two sides of a store.
    pub fn new(
        options: Options,
        catalog: Arc<Service>,
        target: Arc<dyn Backend>,
        grants: Arc<dyn GrantBook>,
    ) -> Result<Arc<Server>> {
        let unfinished = catalog.unfinished();
        let earlier = grants.stages().into_iter().filter(|stage| !unfinished.contains(stage));
        let control = Arc::new(Workers::new("iov-control", options.connections.min(CONTROL_WORKERS))?);
        Ok(Arc::new(Server {
            options,
            catalog,
            target,
            stages: Stages::with_earlier(earlier),
            grants,
            started_ns: seam::monotonic_ns(),
            requests: AtomicU64::new(0),
            object_bytes: AtomicU64::new(0),
            connections: Mutex::default(),
            control,
            sessions: Sessions::default(),
            next: AtomicU64::new(1),
            last_busy_ns: AtomicI64::new(seam::monotonic_ns()),
            stopping: AtomicBool::new(false),
        }))
    }

    /// Serves connections until it is told to end, `asked` says so, or it has been idle for long enough.
    pub fn run(self: &Arc<Self>, listener: &OwnedFd, asked: &dyn Fn() -> bool) -> Result<()> {
        self.control.start(self)?;
        let mut swept = seam::monotonic_ns();
        let mut looked = swept;
        let mut awaits = true;
        while !self.is_stopping() && !asked() {
            if iov_net::socket::wait_readable(listener, TICK_NS) {
                match rustix::net::accept_with(listener, rustix::net::SocketFlags::CLOEXEC) {
                    Ok(fd) => self.accept(fd),
                    // The peer went away, or descriptors are short for now: the next round tries again.
                    Err(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE) => seam::sleep(TICK_NS as u64),
                    Err(_) => {}
                }
            }
            self.catalog.tick(seam::monotonic_ns());
            if awaits && !self.grants.awaits_clients() {
                awaits = false;
                self.end_grace();
            }
            if seam::monotonic_ns() - swept > SWEEP_NS {
                swept = seam::monotonic_ns();
                self.grants.sweep();
            }
            let now = seam::monotonic_ns();
            if now - looked > EXPIRY_NS {
                looked = now;
                let patience_ns = self.lease_ns() as i64;
                self.all().iter().for_each(|connection| connection.expire(now, patience_ns));
                if self.control.threads() == 0 {
                    self.control.stand_in(self);
                }
            }
            if !lock(&self.connections).is_empty() {
                self.last_busy_ns.store(now, Ordering::Relaxed);
            } else if now.saturating_sub(self.last_busy_ns.load(Ordering::Relaxed)) > self.options.idle_ns {
                break;
            }
        }
        self.stop();
        // The workers finish the requests that have arrived; nothing acknowledged depends on it.
        let wait = |ended: &dyn Fn() -> bool| {
            for _ in 0..500 {
                if ended() {
                    break;
                }
                seam::sleep(10_000_000);
            }
        };
        wait(&|| self.is_idle());
        self.control.ring();
        wait(&|| self.control.threads() == 0);
        Ok(())
    }

    fn all(&self) -> Vec<Arc<Connection>> {
        lock(&self.connections).values().cloned().collect()
    }

    /// A connection by its number, if it has not ended.
    pub(crate) fn connection(&self, id: u64) -> Option<Arc<Connection>> {
        lock(&self.connections).get(&id).cloned()
    }

    /// A connection has ended.
    pub(crate) fn ended(&self, id: u64) {
        lock(&self.connections).remove(&id);
    }

    /// Asks the server to end.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.all().iter().for_each(|connection| connection.drain());
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    fn accept(self: &Arc<Self>, fd: OwnedFd) {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let connection = Arc::new(Connection::new(id, fd));
        if lock(&self.connections).len() >= self.options.connections {
            let most = self.options.connections;
            return connection
                .refuse(&Error::exhausted(format!("the store's daemon serves at most {most} connections")));
        }
        lock(&self.connections).insert(id, connection.clone());
        if connection.served_by(&self.control).is_err() {
            // Nobody would answer: dropping the socket tells the peer to try again.
            self.ended(id);
        }
    }

    /// None of those whom an earlier daemon served comes back any more.
    fn end_grace(&self) {
        self.stages.end_earlier(&*self.grants);
        // What fails is tried again at the next start.
        let _ = self.catalog.end_grace();
    }

    /// A session is here, with what it had. The last one that was waited for ends the waiting before it asks anything.
    pub(crate) fn came_back(&self, session: Uuid) {
        self.grants.came_back(session);
        if self.catalog.in_grace() && !self.grants.awaits_clients() {
            self.end_grace();
        }
    }

    /// A session is connected, unless it still is or is ending just now.
    pub(crate) fn session_begins(&self, session: Uuid) -> Result<()> {
        self.sessions.begin(session)
    }

    /// How long a session that does not renew keeps what it holds, in nanoseconds.
    pub(crate) fn lease_ns(&self) -> u64 {
        self.catalog.capability().lease_ns.max(0) as u64
    }

    /// Ends the session with its last connection: opens, holds, locks, cursors, grants, stages.
    pub(crate) fn session_ends(&self, session: Uuid) {
        let Some(_ending) = self.sessions.end(session) else { return };
        if self.is_stopping() && (self.catalog.has_open(session) || self.stages.has_any(session)) {
            // It is not the session that ends but the daemon: it will come back to the next one.
            return;
        }
        self.stages.end_session(session, &*self.grants);
        self.grants.end_session(session);
        self.catalog.end_session(session);
    }

    pub(crate) fn counts(&self) -> (u32, u32) {
        (self.sessions.count() as u32, lock(&self.connections).len() as u32)
    }

    pub(crate) fn capability(&self) -> iov_wire::messages::StoreCapability {
        let c = self.catalog.capability();
        iov_wire::messages::StoreCapability {
            targets: (&c.targets).into(),
            max_ops: c.max_ops as u64,
            single_user: c.single_user,
            inline_bytes: c.inline_bytes,
        }
    }

    /// The descriptor a thread would wait on; here for tests of shutdown.
    pub fn is_idle(&self) -> bool {
        lock(&self.connections).is_empty()
    }
}

/// Makes the listening socket of a store in its directory, in place of one that a dead daemon left.
pub fn listen(dir: impl AsFd) -> Result<OwnedFd> {
    let dir = dir.as_fd();
    match rustix::fs::unlinkat(dir, iov_net::SOCKET, rustix::fs::AtFlags::empty()) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => {}
        Err(e) => return Err(Error::from(std::io::Error::from(e)).context("the old socket cannot be removed")),
    }
    let fd = iov_net::socket::listen(dir, iov_net::SOCKET)?;
    rustix::fs::chmodat(dir, iov_net::SOCKET, rustix::fs::Mode::from_raw_mode(0o600), rustix::fs::AtFlags::empty())
        .map_err(|e| Error::from(std::io::Error::from(e)).context("the socket's mode cannot be set"))?;
    Ok(fd)
}
