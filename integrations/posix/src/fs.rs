//! One file system: a workspace, how it is to behave, and the files that somebody has to do with.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use ioverbs::{
    BatchAttr, Clause, Concurrency, Consistency, Controls, Drive, Error, Kind as Failure, Lent, Mutability, Name, Op,
    Output, Result, Session, Stat, Status, Uuid, Workspace, fill, run_batch, seam, within, within_all,
};

use crate::{Attributes, Errno, Kind, Node, Outcome, Rule, behind::Tellers, early::Kept, later::Laters};

/// What holds between this file system and others on the same workspace.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Level {
    /// What was written is there for whoever opens the file after the writer has closed it (C3).
    #[default]
    Session,
    /// What was written is there for everybody at once (C1).
    Strict,
}

impl Level {
    /// What programs expect of files, where nothing else is said.
    fn complete(self, mut controls: Controls) -> Controls {
        let consistency = match self {
            Level::Session => Consistency::Session,
            Level::Strict => Consistency::Sequential,
        };
        controls.consistency = controls.consistency.or(Some(consistency));
        controls.concurrency = controls.concurrency.or(Some(Concurrency::Shared));
        controls.atomicity = controls.atomicity.or(Some(ioverbs::Atomicity::None));
        controls.mutability = controls.mutability.or(Some(Mutability::Overwrite));
        controls
    }
}

/// Hears of what the library says of a failed call, which its number does not tell.
pub type Report = Arc<dyn Fn(&str, &Error) + Send + Sync>;

/// How a file system behaves.
#[derive(Clone, Default)]
pub struct Options {
    /// Between file systems.
    pub level: Level,
    /// Nothing is changed.
    pub readonly: bool,
    /// How long what others do to names may stay unseen; zero: not at all.
    pub unseen: Duration,
    /// Further controls of the files that are created.
    pub controls: Controls,
    /// What is promised of files by where they are made, before what directories say themselves and before `controls`: later ones
    /// before earlier ones.
    pub rules: Vec<Rule>,
    /// Hears of failures of the store.
    pub report: Option<Report>,
}

impl Options {
    /// Fails where a file could not be made with what is promised, by a rule or else: each create would fail. `ws`: where it would be made, if
    /// that is known.
    pub fn check(&self, session: &Session, ws: Option<&Workspace>) -> std::result::Result<(), ioverbs::Refusal> {
        let rules = self.rules.iter().map(|rule| {
            let mut controls = rule.controls.clone();
            fill(&mut controls, &self.controls);
            controls
        });
        let general = (self.controls != Controls::default()).then(|| self.controls.clone());
        rules
            .chain(general)
            .try_for_each(|controls| session.check_controls(ws, &self.level.complete(controls)).map(drop))
    }
}

/// On whose behalf something is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Who {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// What something new is born with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Create {
    /// Permission bits as they are asked for.
    pub mode: u32,
    /// What nobody gets of them, unless the directory has a list of its own for what is made in it (`acl(5)`).
    pub umask: u32,
    /// Whose it is.
    pub who: Who,
}

/// Room, as `statfs` tells it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Space {
    /// Bytes in all.
    pub bytes: u64,
    /// Bytes free.
    pub free: u64,
    /// Files that there may be.
    pub files: u64,
    /// Files that there may still be.
    pub free_files: u64,
}

pub(crate) struct Inner {
    pub(crate) ws: Workspace,
    pub(crate) options: Options,
    /// What somebody has to do with, so that each is there once.
    nodes: Mutex<HashMap<Uuid, Weak<Node>>>,
    /// Those who have something to tell the store.
    pub(crate) tellers: Tellers,
    /// Bytes of small files that are known.
    pub(crate) kept: Kept,
    /// Files that are opened later.
    pub(crate) later: Laters,
    /// Grows when something is changed or opened here.
    pub(crate) changes: AtomicU64,
    /// Grows when a name is taken away, moved or added.
    pub(crate) names: AtomicU64,
    /// Grows when a name is about to be made in a directory of which it is not known which there are.
    pub(crate) unknown_names: AtomicU64,
    /// Grows when a file that was written here has been closed, before it counts as closed.
    closes: AtomicU64,
    /// What the store has refused, and was reported.
    told: Mutex<Vec<String>>,
    /// The store's daemon is of an older release, which removes names only of what somebody has looked at.
    pub(crate) looks_first: AtomicBool,
}

/// A workspace as a file system. May be used by many threads.
#[derive(Clone)]
pub struct FileSystem(pub(crate) Arc<Inner>);

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How many refusals are remembered.
const TOLD: usize = 16;
/// Between attempts to reach a store.
const PAUSE_NS: u64 = 20_000_000;

/// A name in a directory, if it can be one.
pub(crate) fn name(bytes: &[u8]) -> Outcome<Name> {
    match bytes {
        [] => Err(Errno::ENOENT),
        [b'.'] | [b'.', b'.'] => Err(Errno::EINVAL),
        _ if bytes.len() > ioverbs::limits::NAME_BYTES => Err(Errno::ENAMETOOLONG),
        _ => Name::new(bytes).map_err(|_| Errno::EINVAL),
    }
}

impl FileSystem {
    /// The files of a workspace.
    pub fn new(ws: Workspace, options: Options) -> FileSystem {
        FileSystem(Arc::new(Inner {
            ws,
            options,
            nodes: Mutex::default(),
            tellers: Tellers::default(),
            kept: Kept::default(),
            later: Laters::default(),
            changes: AtomicU64::new(0),
            names: AtomicU64::new(0),
            unknown_names: AtomicU64::new(0),
            closes: AtomicU64::new(0),
            told: Mutex::default(),
            looks_first: AtomicBool::new(false),
        }))
    }

    /// The workspace.
    pub fn workspace(&self) -> &Workspace {
        &self.0.ws
    }

    /// To be taken before it is asked what a file is like, and compared once it is seen that it is not open here: where another was closed
    /// meanwhile, the answer may be older than what it was closed with.
    pub(crate) fn closes(&self) -> u64 {
        self.0.closes.load(Ordering::Acquire)
    }

    /// The store knows what was written to a file that is being closed: what was asked before is not remembered.
    pub(crate) fn closes_written(&self, uuid: Option<Uuid>) {
        match uuid {
            // Others may have it open still, and have found it before.
            Some(uuid) => self.touch(uuid),
            None => drop(self.0.changes.fetch_add(1, Ordering::AcqRel)),
        }
        self.0.closes.fetch_add(1, Ordering::AcqRel);
    }

    /// What holds between this one and others.
    pub fn level(&self) -> Level {
        self.0.options.level
    }

    /// Its root.
    pub fn root(&self) -> Arc<Node> {
        self.node(Uuid::NIL, Kind::Directory)
    }

    /// The one node of an identity.
    pub(crate) fn node(&self, uuid: Uuid, kind: Kind) -> Arc<Node> {
        let mut nodes = lock(&self.0.nodes);
        if let Some(node) = nodes.get(&uuid).and_then(Weak::upgrade) {
            return node;
        }
        let node = Arc::new(Node::new(self.clone(), uuid, kind));
        nodes.insert(uuid, Arc::downgrade(&node));
        node
    }

    /// What was known of something does not hold any more, if anything was.
    pub(crate) fn touch(&self, uuid: Uuid) {
        let node = lock(&self.0.nodes).get(&uuid).and_then(Weak::upgrade);
        match node {
            Some(node) => node.touch(),
            // Something was changed here all the same.
            None => drop(self.0.changes.fetch_add(1, Ordering::AcqRel)),
        }
    }

    /// What was told of directories does not hold any more.
    pub(crate) fn untell_all(&self) {
        let nodes: Vec<Arc<Node>> = lock(&self.0.nodes).values().filter_map(Weak::upgrade).collect();
        nodes.iter().for_each(|node| {
            node.untell();
            node.may_have_any();
        });
        // Not under the lock: they may be the last.
        drop(nodes);
    }

    /// A node has gone, unless there is a new one already.
    pub(crate) fn forget(&self, uuid: Uuid) {
        let mut nodes = lock(&self.0.nodes);
        if nodes.get(&uuid).is_some_and(|node| node.strong_count() == 0) {
            nodes.remove(&uuid);
        }
    }

    /// How many nodes there are.
    #[cfg(test)]
    pub(crate) fn known(&self) -> usize {
        lock(&self.0.nodes).len()
    }

    pub(crate) fn session(&self) -> &Session {
        self.0.ws.session()
    }

    /// The number for a failure, which is reported if it is the store's. What the store refuses by its rules, of which a number says nothing,
    /// is reported once: programs go on trying.
    pub(crate) fn errno(&self, what: &str, e: &Error) -> Errno {
        let errno = Errno::from(e);
        let Some(report) = &self.0.options.report else { return errno };
        let refuses = match e.kind() {
            Failure::Refused | Failure::Unsupported => true,
            // A workspace that has expired, or is full.
            Failure::Denied | Failure::Exhausted => e.clause() == Some(Clause::O1),
            _ => false,
        };
        if matches!(errno, Errno::EIO | Errno::ESTALE) || refuses && self.is_news(e) {
            report(what, e);
        }
        errno
    }

    /// Whether that was not reported yet, as far as is remembered.
    fn is_news(&self, e: &Error) -> bool {
        let mut told = lock(&self.0.told);
        let text = e.detail();
        if told.iter().any(|other| other == text) {
            return false;
        }
        if told.len() == TOLD {
            told.remove(0);
        }
        told.push(text.to_owned());
        true
    }

    /// Fails where nothing may be changed.
    pub(crate) fn check_writable(&self) -> Outcome<()> {
        if self.0.options.readonly { Err(Errno::EROFS) } else { Ok(()) }
    }

    /// Runs one operation.
    pub(crate) fn run(&self, op: Op) -> Outcome<Status> {
        let verb = op.verb();
        ioverbs::run(self.session(), op).map_err(|e| self.errno(verb, &e))
    }

    /// Does something of several operations, such as telling what was written and closing: all of it takes no longer than one may (O8), but for a moment for
    /// each of those that come behind one that has waited in vain.
    pub(crate) fn in_time<T>(&self, work: impl FnOnce() -> T) -> T {
        within_all(self.session().deadline_ns(), work)
    }

    /// Does what comes to the same when it is done twice; again where the store could not be reached, as while its daemon starts
    /// anew, until the session's deadline.
    pub(crate) fn again<T>(&self, verb: &str, mut work: impl FnMut() -> Result<T>) -> Outcome<T> {
        let until = seam::monotonic_ns().saturating_add(self.session().deadline_ns());
        loop {
            // All of it takes no longer than one attempt may (O8).
            match within(until - seam::monotonic_ns(), &mut work) {
                Err(e) if e.kind() == Failure::Unavailable && seam::monotonic_ns() < until => seam::sleep(PAUSE_NS),
                other => return other.map_err(|e| self.errno(verb, &e)),
            }
        }
    }

    /// Does what must not be done twice; again where it is known that nothing of it has arrived.
    pub(crate) fn at_most_once<T>(&self, verb: &str, mut work: impl FnMut() -> Result<T>) -> Outcome<T> {
        self.again(verb, || match work() {
            Err(e) if e.outcome() != ioverbs::Outcome::NotApplied => Ok(Err(e)),
            other => other.map(Ok),
        })?
        .map_err(|e| self.errno(verb, &e))
    }

    /// Does what changes names, again where the store could not be reached; also whether an earlier attempt may have come through,
    /// so that the last one found its work done.
    pub(crate) fn once<T>(&self, mut work: impl FnMut() -> Result<T>) -> (Result<T>, bool) {
        let until = seam::monotonic_ns().saturating_add(self.session().deadline_ns());
        let mut perhaps = false;
        loop {
            match within(until - seam::monotonic_ns(), &mut work) {
                Err(e) if e.kind() == Failure::Unavailable && seam::monotonic_ns() < until => {
                    perhaps |= e.outcome() != ioverbs::Outcome::NotApplied;
                    seam::sleep(PAUSE_NS);
                }
                other => return (other, perhaps),
            }
        }
    }

    /// Runs several in one request; the first that failed decides.
    pub(crate) fn all_of(&self, ops: Vec<Lent<'_>>) -> Result<Vec<Status>> {
        let statuses = self.try_all(ops)?;
        match statuses.iter().find_map(|status| status.result().err()) {
            Some(e) => Err(e),
            None => Ok(statuses),
        }
    }

    /// Runs several in one request, each by itself.
    pub(crate) fn try_all(&self, ops: Vec<Lent<'_>>) -> Result<Vec<Status>> {
        run_batch(self.session(), BatchAttr { drive: Drive::Caller, ..BatchAttr::default() }, ops)
    }

    /// Attributes from facts; of devices their number is asked for.
    pub(crate) fn attributes(&self, stat: &Stat) -> Outcome<Attributes> {
        let rdev = match Kind::of(stat.kind, stat.mode).is_device() {
            true => self.device_number(stat.uuid)?,
            false => 0,
        };
        Ok(Attributes::new(stat, rdev))
    }

    /// The controls of a new file.
    pub(crate) fn controls(&self, parent: &Node, name: Option<&[u8]>) -> Outcome<Controls> {
        // This first: it looks where the directory is by now, and rules go by that, too.
        let promised = self.promised(parent)?;
        let mut controls = self.ruled(parent, name);
        fill(&mut controls, &promised);
        fill(&mut controls, &self.0.options.controls);
        Ok(self.0.options.level.complete(controls))
    }

    /// Fails where files could not be made with what a directory is to say.
    pub(crate) fn check_promise(&self, mut controls: Controls) -> std::result::Result<(), ioverbs::Refusal> {
        fill(&mut controls, &self.0.options.controls);
        let controls = self.0.options.level.complete(controls);
        self.session().check_controls(Some(&self.0.ws), &controls).map(drop)
    }

    /// The process ends, with all that is open: a store on another host is told so, as that takes a connection that ends by itself for one that broke if an answer
    /// was still on its way. Nothing can be done with the file system any more.
    pub fn leave(&self) {
        if self.session().url().starts_with("iov:") {
            self.session().leave();
        }
    }

    /// Names that were made and taken away survive what the store survives (`fsync` of a directory, `sync`).
    pub fn sync(&self) -> Outcome<()> {
        self.run(Op::WorkspacePersist { w: self.0.ws.clone() }).map(drop)
    }

    /// How much room there is: within the workspace's quota, or of the store's targets.
    pub fn space(&self) -> Outcome<Space> {
        let status = self.run(Op::WorkspaceStat { w: self.0.ws.clone() })?;
        let Output::Stat(stat) = status.output else { return Err(Errno::EIO) };
        let map = self.session().store_map().map_err(|e| self.errno("space", &e))?;
        let sum = |of: fn(&ioverbs::Target) -> u64| map.targets.iter().map(of).fold(0, u64::saturating_add);
        let (capacity, free) = (sum(|t| t.capacity), sum(|t| t.free));
        // Where no medium says how much it holds, there is no end in sight.
        let (capacity, free) = if capacity == 0 { (1 << 50, 1 << 50) } else { (capacity, free) };
        let left = |quota: u64, used: u64| quota.saturating_sub(used);
        let files = if stat.quota_collections == u64::MAX { 1 << 40 } else { stat.quota_collections };
        Ok(Space {
            bytes: if stat.quota_bytes == u64::MAX { capacity } else { stat.quota_bytes },
            free: free.min(left(stat.quota_bytes, stat.bytes)),
            files,
            free_files: left(files, stat.entries),
        })
    }
}

/// The facts that an operation has brought.
pub(crate) fn stat_of(status: Option<&Status>) -> Outcome<&Stat> {
    match status.map(|status| &status.output) {
        Some(Output::Stat(stat)) => Ok(stat),
        _ => Err(Errno::EIO),
    }
}
