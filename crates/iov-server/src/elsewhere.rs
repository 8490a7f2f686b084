//! Targets of other daemons, as the catalog's daemon sees them: the way to each, and whether anything is heard of it.
//!
//! One that is not heard of fails at once: the catalog's writers take turns, and must not wait for a machine that is gone.

use std::{
    collections::HashMap,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering},
    },
};

use iov_net::{Address, Link, Place, RemoteBackend, RemoteCatalog, Trust, tcp::Host, tls::ClientTls};
use iov_store::{Backend, Catalog, CatalogCapability, OpCx, Sink, Submitted, seam};
use iov_types::{Capability, Error, Evidence, Outcome, Reach, Result, Target, Uuid};

/// How often daemons of targets tell that they are there.
pub(crate) const BEAT_NS: i64 = 1_000_000_000;
/// One that was not heard of for so long is probably gone, …
const DOUBT_NS: i64 = 4 * BEAT_NS;
/// … and after so long it is.
const GONE_NS: i64 = 15 * BEAT_NS;
/// Longest that the catalog waits for one operation at a target of another daemon.
const PATIENCE_NS: i64 = 10_000_000_000;
/// Longest between two looks whether it is still heard of.
const LOOK_NS: i64 = 50_000_000;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How the catalog's daemon reaches others.
#[derive(Clone, Debug)]
pub struct Toward {
    /// By what they are known.
    pub trust: Trust,
    /// By TLS only, with whom this believes; `None` = in the clear.
    pub tls: Option<ClientTls>,
}

/// A daemon of targets.
struct Member {
    incarnation: u64,
    heard_ns: i64,
    reach: Reach,
    /// The numbers of its targets, and the way to each.
    targets: Vec<(u32, Arc<Elsewhere>)>,
}

/// All of them.
pub(crate) struct Members {
    /// The session in which the catalog comes to targets.
    pub(crate) session: Uuid,
    toward: Option<Toward>,
    all: Mutex<HashMap<Uuid, Member>>,
}

/// What came of a daemon's telling that it is there.
pub(crate) struct Heard {
    /// It was not, as far as anybody knew.
    pub(crate) is_new: bool,
    /// Targets that it had, and has no more.
    pub(crate) gone: Vec<u32>,
}

impl Members {
    pub(crate) fn new(toward: Option<Toward>) -> Members {
        Members { session: seam::new_uuid(), toward, all: Mutex::default() }
    }

    /// The way to a target, and whether it was made anew: its daemon or its addresses are not those that were known.
    pub(crate) fn way(
        &self,
        daemon: (Uuid, u64),
        number: u32,
        target: &Target,
        link: impl FnOnce(Address) -> Result<Arc<Link>>,
    ) -> Result<(Arc<Elsewhere>, bool)> {
        let all = lock(&self.all);
        let member = all.get(&daemon.0).filter(|member| member.incarnation == daemon.1);
        let known = member.and_then(|member| member.targets.iter().find(|(n, _)| *n == number));
        if let Some((_, way)) = known.filter(|(_, way)| way.addresses == target.addresses) {
            return Ok((way.clone(), false));
        }
        drop(all);
        let toward = self.toward.clone().ok_or_else(|| {
            Error::unsupported(
                "this daemon listens on no network, so that it knows no secret to reach others with: --listen",
            )
        })?;
        let hosts = target.addresses.iter().map(|text| Host::parse(text)).collect::<Result<_>>()?;
        let place = Place::Network { hosts, trust: toward.trust, tls: toward.tls };
        // Each of a daemon's targets has a session of its own, which belongs to the catalog's.
        let address = Address::new(place, seam::new_uuid(), "iovd".into()).of_target(number, self.session);
        let way = Elsewhere::start(link(address)?, target.capability.clone(), target.addresses.clone());
        way.map(|way| (way, true))
    }

    /// A daemon has said that it is there, with these targets.
    pub(crate) fn heard(&self, daemon: Uuid, incarnation: u64, targets: Vec<(u32, Arc<Elsewhere>)>) -> Heard {
        let mut all = lock(&self.all);
        let now_ns = seam::monotonic_ns();
        targets.iter().for_each(|(_, way)| way.is_there(true));
        let member = Member { incarnation, heard_ns: now_ns, reach: Reach::Online, targets };
        let numbers: Vec<u32> = member.targets.iter().map(|(number, _)| *number).collect();
        let before = all.insert(daemon, member);
        let is_new = before.as_ref().is_none_or(|b| b.incarnation != incarnation || b.reach != Reach::Online);
        let before = before.into_iter().flat_map(|before| before.targets);
        let gone = before.map(|(number, _)| number).filter(|number| !numbers.contains(number)).collect();
        Heard { is_new, gone }
    }

    /// A daemon ends in order: the numbers of its targets.
    pub(crate) fn leaves(&self, daemon: Uuid) -> Vec<u32> {
        let gone = lock(&self.all).remove(&daemon);
        let targets = gone.map(|member| member.targets).unwrap_or_default();
        targets.iter().for_each(|(_, way)| way.is_there(false));
        targets.into_iter().map(|(number, _)| number).collect()
    }

    /// Whose state has changed, as nothing was heard of them.
    pub(crate) fn silent(&self) -> Vec<(u32, Reach)> {
        let now_ns = seam::monotonic_ns();
        let mut changed = Vec::new();
        for member in lock(&self.all).values_mut() {
            let reach = match now_ns.saturating_sub(member.heard_ns) {
                ns if ns >= GONE_NS => Reach::Offline,
                ns if ns >= DOUBT_NS => Reach::ProbablyOffline,
                _ => Reach::Online,
            };
            if std::mem::replace(&mut member.reach, reach) != reach {
                member.targets.iter().for_each(|(_, way)| way.is_there(reach == Reach::Online));
                changed.extend(member.targets.iter().map(|(number, _)| (*number, reach)));
            }
        }
        changed
    }
}

/// A target of another daemon.
pub(crate) struct Elsewhere {
    remote: RemoteBackend,
    capability: Capability,
    addresses: Vec<String>,
    there: AtomicBool,
    under_way: Arc<UnderWay>,
}

/// Operations that are waited for: somebody has to receive their answers.
#[derive(Default)]
struct UnderWay {
    count: AtomicUsize,
    last_ns: AtomicI64,
    idle: Mutex<bool>,
    begins: Condvar,
}

struct Counted {
    sink: Arc<dyn Sink>,
    under_way: Arc<UnderWay>,
}

impl Sink for Counted {
    fn complete(&self, index: usize, evidence: Result<Evidence>) {
        self.sink.complete(index, evidence);
        self.under_way.count.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Elsewhere {
    fn start(link: Arc<Link>, capability: Capability, addresses: Vec<String>) -> Result<Arc<Elsewhere>> {
        let under_way = Arc::<UnderWay>::default();
        let way = Elsewhere {
            remote: RemoteBackend(link.clone()),
            capability,
            addresses,
            there: AtomicBool::new(true),
            under_way: under_way.clone(),
        };
        let way = Arc::new(way);
        let alive = Arc::downgrade(&way);
        seam::spawn("iov-elsewhere", move || {
            let catalog = RemoteCatalog(link);
            while alive.strong_count() > 0 {
                under_way.wait();
                while under_way.count.load(Ordering::Acquire) > 0 {
                    if !catalog.drive(LOOK_NS) {
                        // What was waited for has just come, or is just being sent.
                        seam::sleep(20_000);
                    }
                }
            }
        })
        .map_err(|e| Error::from(e).context("a thread for a target of another daemon"))?;
        Ok(way)
    }

    /// Whether it is heard of.
    fn is_there(&self, there: bool) {
        self.there.store(there, Ordering::Release);
    }
}

impl UnderWay {
    /// Waits until there is something, or a while.
    fn wait(&self) {
        let mut idle = lock(&self.idle);
        if self.count.load(Ordering::Acquire) > 0 {
            return;
        }
        *idle = true;
        let wait = std::time::Duration::from_nanos(BEAT_NS as u64);
        let (mut idle, _) = self.begins.wait_timeout(idle, wait).unwrap_or_else(PoisonError::into_inner);
        *idle = false;
    }

    fn begin(&self, ops: usize) {
        self.count.fetch_add(ops, Ordering::AcqRel);
        self.last_ns.store(seam::monotonic_ns(), Ordering::Relaxed);
        if *lock(&self.idle) {
            self.begins.notify_all();
        }
    }
}

impl Backend for Elsewhere {
    fn capability(&self) -> &Capability {
        &self.capability
    }

    fn submit(&self, cx: &OpCx, ops: Vec<Submitted>, sink: Arc<dyn Sink>) {
        if !self.there.load(Ordering::Acquire) {
            let e = Error::unavailable(format!(
                "nothing is heard of the daemon of a target at {}: start it again (iov targets)",
                self.addresses.join(", ")
            ))
            .with_outcome(Outcome::NotApplied);
            return (0..ops.len()).for_each(|i| sink.complete(i, Err(e.clone())));
        }
        self.under_way.begin(ops.len());
        let latest = seam::monotonic_ns().saturating_add(PATIENCE_NS);
        let cx = OpCx { deadline_ns: cx.deadline_ns.min(latest), ..cx.clone() };
        self.remote.submit(&cx, ops, Arc::new(Counted { sink, under_way: self.under_way.clone() }));
    }

    fn may_wait(&self) -> bool {
        true
    }
}

/// What a link of the catalog to a target needs to know of it.
pub(crate) fn capability_of(of_store: &CatalogCapability, target: &Target) -> CatalogCapability {
    CatalogCapability { targets: target.capability.clone(), ..of_store.clone() }
}
