//! Targets of other daemons, as the catalog's daemon sees them: the way to each, and whether anything is heard of it.
//!
//! One that is not heard of fails at once: the catalog's writers take turns, and must not wait for a machine that is gone.

use std::{
    collections::HashMap,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use iov_net::{Address, Link, Networks, Place, RemoteBackend, RemoteCatalog, Trust, tcp::Host, tls::ClientTls};
use iov_store::{Backend, Catalog, CatalogCapability, OpCx, Sink, Submitted, seam};
use iov_types::{Capability, Error, Evidence, ObjectVerb, Outcome, Priority, Reach, Result, Target, Uuid};

/// How often daemons of targets tell that they are there.
pub(crate) const BEAT_NS: i64 = 1_000_000_000;
/// One that was not heard of for so long is probably gone, …
const DOUBT_NS: i64 = 4 * BEAT_NS;
/// … and after so long it is.
pub(crate) const GONE_NS: i64 = 15 * BEAT_NS;
/// Longest that the catalog waits for one operation at a target of another daemon.
const PATIENCE_NS: i64 = 20_000_000_000;
/// Longest that it tries to connect to one.
const AWAY_NS: i64 = 500_000_000;
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
    /// Which of their addresses are tried first.
    pub networks: Networks,
}

/// A daemon of targets.
struct Member {
    /// The session in which it tells that it is there.
    session: Uuid,
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
    /// Held while a daemon is let in.
    pub(crate) joining: Mutex<()>,
    /// The store has targets of other daemons, whether anything was heard of them or not.
    any: AtomicBool,
}

/// What came of a daemon's telling that it is there.
pub(crate) struct Heard {
    /// It was not, as far as anybody knew.
    pub(crate) is_back: bool,
    /// Targets that it had, and has no more.
    pub(crate) gone: Vec<u32>,
}

impl Members {
    pub(crate) fn new(toward: Option<Toward>, any: bool) -> Members {
        let (all, joining) = Default::default();
        Members { session: seam::new_uuid(), toward, all, joining, any: AtomicBool::new(any) }
    }

    /// The way to a target, and whether it was made anew: its daemon or its addresses are not those that were known.
    pub(crate) fn way(
        &self,
        daemon: (Uuid, u64),
        number: u32,
        target: &Target,
        link: impl Fn(Address) -> Result<Arc<Link>>,
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
        let hosts: Vec<Host> = target.addresses.iter().map(|text| Host::parse(text)).collect::<Result<_>>()?;
        let place =
            || Place::Network { hosts: Vec::clone(&hosts), trust: toward.trust.clone(), tls: toward.tls.clone() };
        // Each of a daemon's targets has sessions of its own, which belong to the catalog's.
        let address = || {
            let address = Address::new(place(), seam::new_uuid(), "iovd".into()).of_target(number, self.session);
            address.preferring(toward.networks.clone())
        };
        let links = [link(address())?, link(address())?];
        let way = Elsewhere::start(links, target.capability.clone(), target.addresses.clone());
        way.map(|way| (way, true))
    }

    /// Whether a daemon that began later is known under the same identity.
    pub(crate) fn is_outdated(&self, daemon: Uuid, incarnation: u64) -> bool {
        lock(&self.all).get(&daemon).is_some_and(|member| member.incarnation > incarnation)
    }

    /// Whether something is heard of all that have joined.
    pub(crate) fn are_there(&self) -> bool {
        let there = |(_, way): &(u32, Arc<Elsewhere>)| way.there.load(Ordering::Acquire);
        lock(&self.all).values().all(|member| member.reach == Reach::Online && member.targets.iter().all(there))
    }

    /// How many of these sessions are of daemons.
    pub(crate) fn count(&self, is_connected: impl Fn(Uuid) -> bool) -> usize {
        lock(&self.all).values().filter(|member| is_connected(member.session)).count()
    }

    /// Whether no other daemon has ever joined.
    pub(crate) fn is_empty(&self) -> bool {
        !self.any.load(Ordering::Acquire)
    }

    /// A daemon has said that it is there, with these targets.
    pub(crate) fn heard(
        &self,
        (daemon, session): (Uuid, Uuid),
        incarnation: u64,
        targets: Vec<(u32, Arc<Elsewhere>)>,
    ) -> Heard {
        self.any.store(true, Ordering::Release);
        let mut all = lock(&self.all);
        let now_ns = seam::monotonic_ns();
        let was_away = targets.iter().fold(false, |away, (_, way)| !way.is_there(true) | away);
        let member = Member { session, incarnation, heard_ns: now_ns, reach: Reach::Online, targets };
        let numbers: Vec<u32> = member.targets.iter().map(|(number, _)| *number).collect();
        let before = all.insert(daemon, member);
        let is_back =
            was_away || before.as_ref().is_none_or(|b| b.incarnation != incarnation || b.reach != Reach::Online);
        let before = before.into_iter().flat_map(|before| before.targets);
        let gone = before.map(|(number, _)| number).filter(|number| !numbers.contains(number)).collect();
        Heard { is_back, gone }
    }

    /// A daemon ends in order: the numbers of its targets.
    pub(crate) fn leaves(&self, daemon: Uuid) -> Vec<u32> {
        let gone = lock(&self.all).remove(&daemon);
        let targets = gone.map(|member| member.targets).unwrap_or_default();
        for (_, way) in &targets {
            way.is_there(false);
        }
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
                // What it was asked before may never be answered.
                member.targets.iter().for_each(|(_, way)| {
                    way.is_there(reach == Reach::Online);
                    way.remote.0.break_off();
                    way.looks.0.break_off();
                });
                changed.extend(member.targets.iter().map(|(number, _)| (*number, reach)));
            }
        }
        changed
    }
}

/// A target of another daemon.
pub(crate) struct Elsewhere {
    /// Over this it is asked for changes, …
    remote: RemoteBackend,
    /// … and over this one looks at it: that may have to wait for a publication, which must not wait behind it.
    looks: RemoteBackend,
    capability: Capability,
    addresses: Vec<String>,
    there: AtomicBool,
    under_way: [Arc<UnderWay>; 2],
}

/// Operations that are waited for: somebody has to receive their answers.
#[derive(Default)]
struct UnderWay {
    count: AtomicUsize,
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
    fn start(links: [Arc<Link>; 2], capability: Capability, addresses: Vec<String>) -> Result<Arc<Elsewhere>> {
        let under_way: [Arc<UnderWay>; 2] = Default::default();
        let [remote, looks] = links.clone().map(RemoteBackend);
        let there = AtomicBool::new(true);
        let way = Arc::new(Elsewhere { remote, looks, capability, addresses, there, under_way: under_way.clone() });
        for (link, under_way) in links.into_iter().zip(under_way) {
            let driven = Arc::downgrade(&way);
            seam::spawn("iov-elsewhere", move || drive(&link, &driven, &under_way))
                .map_err(|e| Error::from(e).context("a thread for a target of another daemon"))?;
        }
        Ok(way)
    }

    /// Says whether it is heard of; whether it was before.
    fn is_there(&self, there: bool) -> bool {
        self.there.swap(there, Ordering::AcqRel)
    }
}

/// Receives the answers of a target's daemon for as long as somebody wants them.
fn drive(link: &Arc<Link>, way: &Weak<Elsewhere>, under_way: &UnderWay) {
    let catalog = RemoteCatalog(link.clone());
    let mut away_since = None;
    while way.strong_count() > 0 {
        under_way.wait();
        while under_way.count.load(Ordering::Acquire) > 0 {
            if !catalog.drive(LOOK_NS) {
                // What was waited for has just come, or is just being sent.
                seam::sleep(20_000);
            }
            if !link.is_mending() {
                away_since = None;
                continue;
            }
            let now_ns = seam::monotonic_ns();
            if now_ns - *away_since.get_or_insert(now_ns) > AWAY_NS {
                // Until it says that it is there.
                if let Some(way) = way.upgrade() {
                    way.is_there(false);
                }
                link.give_up();
            }
        }
        away_since = None;
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
        let looks = |(op, _): &Submitted| {
            matches!(
                op.verb,
                ObjectVerb::Read { .. } | ObjectVerb::Stat | ObjectVerb::Extents { .. } | ObjectVerb::List { .. }
            )
        };
        let (remote, under_way) = match ops.iter().all(looks) {
            true => (&self.looks, &self.under_way[1]),
            false => (&self.remote, &self.under_way[0]),
        };
        let priority = priority_of(&ops, cx.priority);
        under_way.begin(ops.len());
        let latest = seam::monotonic_ns().saturating_add(PATIENCE_NS);
        let cx = OpCx { deadline_ns: cx.deadline_ns.min(latest), priority, ..cx.clone() };
        remote.submit(&cx, ops, Arc::new(Counted { sink, under_way: under_way.clone() }));
    }

    fn may_wait(&self) -> bool {
        true
    }
}

/// What is asked of another daemon's target, whoever it is for, gives way to nobody there: all others wait meanwhile for what the
/// catalog changes, or for what its change keeps them from. But for lists, which are long and hold nobody up.
fn priority_of(ops: &[Submitted], asked: Priority) -> Priority {
    match ops.iter().all(|(op, _)| matches!(op.verb, ObjectVerb::List { .. })) {
        true => asked,
        false => Priority::Foreground,
    }
}

/// What a link of the catalog to a target needs to know of it.
pub(crate) fn capability_of(of_store: &CatalogCapability, target: &Target) -> CatalogCapability {
    CatalogCapability { targets: target.capability.clone(), ..of_store.clone() }
}

#[cfg(test)]
mod tests;
