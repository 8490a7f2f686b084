//! The listening sockets, the workers behind them, and the end of an idle daemon.

use std::{
    collections::HashMap,
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    },
};

use iov_net::{secret::Secret, stream::Stream, tcp, tls::ServerTls};
use iov_store::{Catalog, seam};
use iov_types::{Error, Priority, Result, Uuid};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::{
    Afar, Target,
    buffers::Buffers,
    connection::Connection,
    elsewhere::{Members, Toward},
    facts::Facts,
    parked::Lot,
    served::AllServed,
    sessions::{Ending, Left, Sessions},
    turns::{self, Turns},
    watch::Watch,
    workers::Workers,
};

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
    /// Whom to let in over a network.
    pub entrance: Entrance,
    /// Over a network only by TLS, as this one; `None` = in the clear.
    pub tls: Option<ServerTls>,
    /// How daemons are reached that join with their targets; `None`: none can.
    pub toward: Option<Toward>,
    /// Where it can be reached over a network, as `HOST:PORT`, the best first.
    pub addresses: Vec<String>,
    /// Most threads that move bytes for clients over a network.
    pub data_workers: usize,
}

/// Whom to let in over a network (A2).
#[derive(Clone, Debug)]
pub enum Entrance {
    /// Who proves to have the store's secret.
    Secret(Secret),
    /// Anybody who reaches the port, as the owner has said.
    Anybody,
}

/// What a server listens on.
#[derive(Debug)]
pub struct Doors {
    /// The socket in the store's directory.
    pub local: OwnedFd,
    /// TCP sockets.
    pub network: Vec<OwnedFd>,
}

/// A served store.
pub struct Server {
    pub(crate) options: Options,
    pub(crate) facts: Facts,
    pub(crate) members: Members,
    /// A target is there that was not: what had to wait for it goes on.
    pub(crate) returns: AtomicBool,
    /// Somebody sees to that just now.
    goes_on: AtomicBool,
    pub(crate) lot: Lot,
    pub(crate) targets: AllServed,
    pub(crate) afar: Afar,
    pub(crate) buffers: Arc<Buffers>,
    pub(crate) started_ns: i64,
    pub(crate) requests: AtomicU64,
    /// Those of them that gave way.
    pub(crate) background: AtomicU64,
    pub(crate) object_bytes: AtomicU64,
    pub(crate) turns: Turns,
    pub(crate) watch: Watch,
    connections: Mutex<HashMap<u64, Arc<Connection>>>,
    control: Arc<Workers>,
    data: Arc<Workers>,
    gentle: Arc<Workers>,
    sessions: Sessions,
    next: AtomicU64,
    last_busy_ns: AtomicI64,
    stopping: AtomicBool,
    over: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How often the listener looks whether it is time to end, and lets the catalog look at its deadlines.
const TICK_NS: i64 = 50_000_000;
/// How often it looks for peers that have fallen silent.
const EXPIRY_NS: i64 = 1_000_000_000;
/// Most connections of a session besides its first.
pub(crate) const MAX_CHANNELS: u32 = 64;
/// Most connections over a network whose peers have not proved yet who they are.
const STRANGERS: usize = 256;
/// Most threads that serve requests.
const CONTROL_WORKERS: usize = 1024;
/// How often leftovers of ended processes are swept.
const SWEEP_NS: i64 = 5_000_000_000;

impl Server {
    /// A server over the two sides of a store. Stages of batches that are `unfinished` are the catalog's.
    pub fn new(
        options: Options,
        facts: Facts,
        targets: Vec<Target>,
        unfinished: &[Uuid],
        afar: Afar,
    ) -> Result<Arc<Server>> {
        let targets = AllServed::new(targets, unfinished)?;
        targets.note(&facts);
        let control = Arc::new(Workers::new("iov-control", options.connections.min(CONTROL_WORKERS))?);
        let data = Arc::new(Workers::new("iov-data", options.data_workers.max(1))?);
        let gentle = Arc::new(Workers::in_background("iov-background", turns::WORKERS)?);
        Ok(Arc::new(Server {
            members: Members::new(options.toward.clone(), facts.has_others()),
            returns: AtomicBool::new(false),
            goes_on: AtomicBool::new(false),
            lot: Lot::default(),
            options,
            facts,
            targets,
            afar,
            buffers: Arc::default(),
            started_ns: seam::monotonic_ns(),
            requests: AtomicU64::new(0),
            background: AtomicU64::new(0),
            turns: Turns::default(),
            watch: Watch::default(),
            object_bytes: AtomicU64::new(0),
            connections: Mutex::default(),
            control,
            data,
            gentle,
            sessions: Sessions::default(),
            next: AtomicU64::new(1),
            last_busy_ns: AtomicI64::new(seam::monotonic_ns()),
            stopping: AtomicBool::new(false),
            over: AtomicBool::new(false),
        }))
    }

    /// How it serves.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Serves connections until it is told to end, `asked` says so, or it has been idle for long enough.
    pub fn run(self: &Arc<Self>, doors: &Doors, asked: &dyn Fn() -> bool) -> Result<()> {
        self.control.start(self)?;
        if !doors.network.is_empty() {
            self.data.start(self)?;
        }
        let mut swept = seam::monotonic_ns();
        let mut looked = swept;
        let mut awaits = true;
        while !self.is_stopping() && !asked() {
            // Before anybody is let in, where nobody is waited for. At most for a lease: one that lives and has no use for this daemon does not come back.
            let late = seam::monotonic_ns().saturating_sub(self.started_ns) > self.lease_ns() as i64;
            if awaits && (late || !self.awaits_clients()) {
                awaits = false;
                self.end_grace();
            }
            self.wait_at(doors);
            self.facts.tick(seam::monotonic_ns());
            self.look_at_members();
            if seam::monotonic_ns() - swept > SWEEP_NS {
                swept = seam::monotonic_ns();
                self.targets.sweep();
            }
            self.watch.check();
            let now = seam::monotonic_ns();
            if now - looked > EXPIRY_NS {
                looked = now;
                self.targets.note(&self.facts);
                self.afar.write_rest();
                let patience_ns = self.lease_ns() as i64;
                self.all().iter().for_each(|connection| connection.expire(now, patience_ns));
                self.sessions.expired(now).into_iter().for_each(|ending| self.end_with(ending));
                // One that was about to leave may have been counted as waiting.
                self.control.stand_in(self);
                if self.gentle.is_used() {
                    self.gentle.stand_in(self);
                }
                if !doors.network.is_empty() {
                    self.data.stand_in(self);
                }
            }
            if !lock(&self.connections).is_empty() || self.sessions.any_kept() {
                self.last_busy_ns.store(now, Ordering::Relaxed);
            } else if now.saturating_sub(self.last_busy_ns.load(Ordering::Relaxed)) > self.options.idle_ns {
                break;
            }
        }
        self.stop();
        self.give_up_parked(true);
        // The workers finish the requests that have arrived; nothing acknowledged depends on it.
        let wait = |ended: &dyn Fn() -> bool, hundredths: u32| {
            for _ in 0..hundredths {
                if ended() {
                    break;
                }
                seam::sleep(10_000_000);
            }
        };
        wait(&|| self.is_idle(), 100);
        // A peer that goes on sending over a network does not hear that nothing is taken any more.
        self.over.store(true, Ordering::Release);
        self.all().iter().for_each(|connection| connection.shut());
        wait(&|| self.is_idle(), 400);
        self.control.ring();
        self.data.ring();
        self.gentle.ring();
        let all = [&self.control, &self.data, &self.gentle];
        wait(&|| all.iter().all(|workers| workers.threads() == 0), 500);
        Ok(())
    }

    /// Waits a moment for somebody to connect.
    fn wait_at(self: &Arc<Self>, doors: &Doors) {
        let all: Vec<(&OwnedFd, bool)> =
            std::iter::once((&doors.local, false)).chain(doors.network.iter().map(|fd| (fd, true))).collect();
        let mut fds: Vec<PollFd<'_>> = all.iter().map(|(fd, _)| PollFd::new(*fd, PollFlags::IN)).collect();
        let moment = Timespec { tv_sec: 0, tv_nsec: TICK_NS as _ };
        if !poll(&mut fds, Some(&moment)).is_ok_and(|n| n > 0) {
            return;
        }
        for (ready, (fd, network)) in fds.iter().zip(&all) {
            if !ready.revents().contains(PollFlags::IN) {
                continue;
            }
            match rustix::net::accept_with(*fd, rustix::net::SocketFlags::CLOEXEC) {
                Ok(fd) => self.accept(fd, *network),
                // Descriptors or memory are short for now: the next round tries again.
                Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => seam::sleep(TICK_NS as u64),
                // The peer went away.
                Err(_) => {}
            }
        }
    }

    pub(crate) fn all(&self) -> Vec<Arc<Connection>> {
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

    /// Whether nobody is served any more: it was told to end, and has waited for those who had something under way.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    fn accept(self: &Arc<Self>, fd: OwnedFd, network: bool) {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let tls = self.options.tls.as_ref().filter(|_| network);
        let stream = match tls {
            Some(tls) => tls.accept(fd),
            None => Ok(Stream::from(fd)),
        };
        // Without the memory for it the peer finds the connection closed, and tries again.
        let Ok(stream) = stream else { return };
        let connection = Arc::new(Connection::new(id, stream, network));
        if network {
            // What cannot be set costs time, not promises.
            let _ = tcp::tune(&*connection);
        }
        if lock(&self.connections).len() >= self.options.connections {
            let most = self.options.connections;
            return connection
                .refuse(&Error::exhausted(format!("the store's daemon serves at most {most} connections")));
        }
        if network {
            // Who does not say who he is must not keep out those who do: the oldest goes.
            let strangers: Vec<_> = self.all().into_iter().filter(|c| c.is_network() && c.is_greeting()).collect();
            if strangers.len() >= STRANGERS.min(self.options.connections / 4) {
                strangers.iter().min_by_key(|stranger| stranger.id()).inspect(|oldest| oldest.shut());
            }
        }
        lock(&self.connections).insert(id, connection.clone());
        if connection.served_by(&self.control).is_err() {
            // Nobody would answer: dropping the socket tells the peer to try again.
            self.ended(id);
        }
    }

    /// Whether somebody whom an earlier daemon served may still come back.
    fn awaits_clients(&self) -> bool {
        self.targets.awaits_clients() || self.afar.awaits()
    }

    /// None of those whom an earlier daemon served comes back any more.
    fn end_grace(&self) {
        self.targets.end_earlier();
        self.facts.end_grace();
        self.afar.end_grace(|session| self.sessions.is_connected(session));
    }

    /// A session is here, with what it had. The last one that was waited for ends the waiting before it asks anything.
    pub(crate) fn came_back(&self, session: Uuid) {
        self.targets.came_back(session);
        self.afar.came_back(session);
        if self.facts.in_grace() && !self.awaits_clients() {
            self.end_grace();
        }
    }

    /// A connection of a session is there, unless an old one still is or is ending just now.
    pub(crate) fn session_begins(&self, session: Uuid, of: Option<Uuid>, channel: u32, connection: u64) -> Result<()> {
        let begun = self.sessions.begin_of(session, of, channel, connection);
        let Err(in_the_way) = begun else {
            let moved = self.move_bytes(channel, connection);
            return moved.inspect_err(|_| self.session_never_began(session, channel, connection));
        };
        let old = in_the_way.old.and_then(|old| self.connection(old));
        // Its client has given it up, although the network has not told us yet. One of this host would have.
        old.filter(|old| old.is_network()).inspect(|old| old.shut());
        Err(in_the_way.error)
    }

    /// Has those serve a connection that move bytes, if it is for that.
    fn move_bytes(&self, channel: u32, connection: u64) -> Result<()> {
        match self.connection(connection) {
            Some(connection) if channel > 0 => connection.served_by(&self.data),
            _ => Ok(()),
        }
    }

    /// Those who serve requests of a priority.
    pub(crate) fn workers(&self, priority: Priority, channel: u32) -> &Arc<Workers> {
        match priority {
            Priority::Background => &self.gentle,
            Priority::Foreground if channel > 0 => &self.data,
            Priority::Foreground => &self.control,
        }
    }

    /// A connection could not begin after all.
    pub(crate) fn session_never_began(&self, session: Uuid, channel: u32, connection: u64) {
        let follows = self.sessions.end(session, channel, connection, Left::Ended);
        follows.seconds.into_iter().for_each(|second| self.end_with(second));
    }

    /// A connection of a session has ended, and nothing is being done for it any more.
    pub(crate) fn connection_ended(&self, session: Uuid, channel: u32, connection: u64, broke: bool) {
        let left = match broke && !self.is_stopping() {
            true => Left::Broke(seam::monotonic_ns().saturating_add(self.lease_ns() as i64)),
            false => Left::Ended,
        };
        let follows = self.sessions.end(session, channel, connection, left);
        let others: Vec<_> = follows.shut.iter().filter_map(|id| self.connection(*id)).collect();
        others.iter().for_each(|other| other.shut());
        follows.seconds.into_iter().chain(follows.ends).for_each(|ending| self.end_with(ending));
    }

    /// Ends a session, and that for the store of its client if that has only waited for this one.
    fn end_with(&self, ending: Ending<'_>) {
        let main = ending.of;
        self.end_session(&ending);
        drop(ending);
        let over = main.and_then(|main| self.sessions.over(main));
        if let Some(main) = over {
            self.end_session(&main);
        }
    }

    /// How long a session that does not renew keeps what it holds, in nanoseconds.
    pub(crate) fn lease_ns(&self) -> u64 {
        self.facts.lease_ns()
    }

    /// Ends a session: opens, holds, locks, cursors, grants, stages.
    fn end_session(&self, ending: &Ending<'_>) {
        let session = ending.session;
        let client = ending.of.unwrap_or(session);
        if self.is_stopping() && (self.facts.has_open(client) || self.targets.has_stages(client)) {
            // It is not the session that ends but the daemon: it will come back to the next one.
            return;
        }
        self.lot.forget(session);
        self.targets.end_session(session);
        // Where the daemon ends the process may live, and keep what is bound to it.
        self.facts.end_session(session, !self.is_stopping());
        self.afar.ends(session);
    }

    pub(crate) fn counts(&self) -> (u32, u32) {
        // Daemons of targets are no clients.
        let members = self.members.count(|session| self.sessions.is_connected(session));
        (self.sessions.count().saturating_sub(members) as u32, lock(&self.connections).len() as u32)
    }

    /// What a session for a target is told: the first one's is for the whole store.
    pub(crate) fn capability(&self, target: usize) -> iov_wire::messages::StoreCapability {
        let own = self.targets.at(target).target.capability();
        let Some(catalog) = self.facts.catalog() else {
            let (max_ops, single_user) = (iov_types::limits::BATCH_OPS as u64, true);
            return iov_wire::messages::StoreCapability { targets: own.into(), max_ops, single_user, inline_bytes: 0 };
        };
        let (c, anywhere) = (catalog.capability(), catalog.capability_anywhere());
        let targets = if target == 0 { &anywhere } else { own };
        iov_wire::messages::StoreCapability {
            targets: targets.into(),
            max_ops: c.max_ops as u64,
            single_user: c.single_user,
            inline_bytes: c.inline_bytes,
        }
    }

    /// Notes of which daemons of targets nothing is heard, and goes on with what waited for one that is back.
    fn look_at_members(self: &Arc<Self>) {
        let Some(catalog) = self.facts.catalog().filter(|_| !self.members.is_empty()) else { return };
        for (number, reach) in self.members.silent() {
            catalog.note_target(number, reach, None);
        }
        self.give_up_parked(false);
        if !self.returns.load(Ordering::Acquire) || self.goes_on.swap(true, Ordering::AcqRel) {
            return;
        }
        let server = self.clone();
        // It may have to wait for targets, and whoever connects must not.
        let go_on = move || {
            if server.returns.swap(false, Ordering::AcqRel) {
                server.facts.catalog().iter().for_each(|catalog| catalog.go_on());
                server.unpark();
            }
            server.goes_on.store(false, Ordering::Release);
        };
        if seam::spawn("iov-return", go_on).is_err() {
            self.goes_on.store(false, Ordering::Release);
        }
    }

    /// The catalog was opened anew, and comes in this session: what it had frozen before, and not committed, is dropped.
    pub fn settle(&self, catalog: Uuid, committed: &[Uuid]) {
        self.targets.settle(catalog, committed);
    }

    /// How many bytes each target has room for, and how many are free.
    pub fn rooms(&self) -> Vec<Option<(u64, u64)>> {
        self.targets.iter().map(|served| served.space()).collect()
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
        Ok(()) | Err(Errno::NOENT) => {}
        Err(e) => return Err(Error::from(std::io::Error::from(e)).context("the old socket cannot be removed")),
    }
    let fd = iov_net::socket::listen(dir, iov_net::SOCKET)?;
    rustix::fs::chmodat(dir, iov_net::SOCKET, rustix::fs::Mode::from_raw_mode(0o600), rustix::fs::AtFlags::empty())
        .map_err(|e| Error::from(std::io::Error::from(e)).context("the socket's mode cannot be set"))?;
    Ok(fd)
}
