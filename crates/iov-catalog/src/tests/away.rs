//! A target of another daemon that is away when it is needed.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use iov_store::{Backend, Heap, MemoryStore, OpCx, Sink, Spread, Submitted, run_all, seam};
use iov_types::{
    Capability, Demand, Error, Health, Kind, Layout, Lifetime, ObjectOp, ObjectVerb, Place, Reach, Target, Uuid, Which,
    catalog::{CatalogOp, CatalogReply},
};

use super::rig::{Client, SECOND, caller, durable_heap, kind, name, options, spec};
use crate::{Fleet, Options, Service, anywhere, map::FIRST_ELSEWHERE};

/// A target that can be out of reach.
pub(crate) struct Away {
    inner: Heap,
    pub(crate) away: AtomicBool,
    /// It hangs then, and has been waited for so often in vain.
    hangs: AtomicBool,
    /// It is there, and hangs in what it is to seal or publish.
    sticks: AtomicBool,
    /// Who waits for it does so for as long as he has, or the way to it.
    sleeps: AtomicBool,
    waited: AtomicUsize,
}

impl Backend for Away {
    fn capability(&self) -> &Capability {
        self.inner.capability()
    }

    fn submit(&self, cx: &OpCx, ops: Vec<Submitted>, sink: Arc<dyn Sink>) {
        let seals = |(op, _): &Submitted| matches!(op.verb, ObjectVerb::Seal | ObjectVerb::Publish { .. });
        let sticks = self.sticks.load(Ordering::SeqCst) && ops.iter().any(seals);
        if !self.away.load(Ordering::SeqCst) && !sticks {
            return self.inner.submit(cx, ops, sink);
        }
        let answer = match sticks || self.hangs.load(Ordering::SeqCst) {
            true => Error::timeout("it hangs"),
            false => Error::unavailable("it is away"),
        };
        self.waited.fetch_add(1, Ordering::SeqCst);
        if answer.kind() == Kind::Timeout && self.sleeps.load(Ordering::SeqCst) {
            seam::sleep(cx.left_ns().min(20 * SECOND) as u64);
        }
        (0..ops.len()).for_each(|i| sink.complete(i, Err(answer.clone())));
    }
}

/// That may be away or not.
pub(crate) fn that_may_be_away() -> Arc<Away> {
    let no = || AtomicBool::new(false);
    let (inner, waited) = (durable_heap(), AtomicUsize::new(0));
    Arc::new(Away { inner, away: no(), hangs: no(), sticks: no(), sleeps: no(), waited })
}

pub(crate) fn target(number: u32, capability: &Capability) -> Target {
    Target {
        number,
        uuid: Uuid::NIL,
        capability: capability.clone(),
        storage: "heap".into(),
        host: "node7".into(),
        domain: "node7".into(),
        addresses: Vec::new(),
        capacity: 1 << 30,
        free: 1 << 30,
        reach: Reach::Online,
        health: Health::Good,
        local: String::new(),
    }
}

/// The number of the target that is always there.
pub(super) const BESIDE: u32 = FIRST_ELSEWHERE + 1;

/// What is behind the store's own target, and behind the one that is always there.
type Heaps = [Arc<dyn Backend>; 2];

/// A client of a store with a target of its own, and two of other daemons: one that may be away, and one beside it.
pub(super) struct Fixture {
    store: Arc<MemoryStore>,
    spread: Spread,
    away: Arc<Away>,
    beside: Arc<dyn Backend>,
    pub(super) client: Client,
}

impl Fixture {
    pub(super) fn new() -> Fixture {
        let away = that_may_be_away();
        let heaps: Heaps = [Arc::new(durable_heap()), Arc::new(durable_heap())];
        let f = Fixture::over(Arc::new(MemoryStore::new()), heaps, away, seam::new_uuid());
        f.client
            .ask(CatalogOp::WorkspaceCreate { uuid: f.client.ws, name: name("w"), attr: Default::default() })
            .unwrap();
        f
    }

    fn over(store: Arc<MemoryStore>, heaps: Heaps, away: Arc<Away>, ws: Uuid) -> Fixture {
        Fixture::with((store, heaps, away, ws), options(), 0)
    }

    /// The same of one user, whose sessions may come back behind a crash.
    pub(super) fn of_one_user(self, grace_ns: i64) -> Fixture {
        let Fixture { store, away, beside, client, .. } = self;
        let (heap, ws) = (client.heap.clone(), client.ws);
        drop(client);
        Fixture::with((store, [heap, beside], away, ws), Options { single_user: true, ..options() }, grace_ns)
    }

    /// A client that was there before.
    pub(super) fn again(&self, caller: iov_types::Caller) -> Client {
        Client { service: self.client.service.clone(), heap: self.client.heap.clone(), caller, ws: self.client.ws }
    }

    fn with(
        (store, [heap, beside], away, ws): (Arc<MemoryStore>, Heaps, Arc<Away>, Uuid),
        options: Options,
        grace_ns: i64,
    ) -> Fixture {
        let capability = heap.capability().clone();
        let targets = [0, FIRST_ELSEWHERE, BESIDE].map(|number| target(number, &capability)).to_vec();
        let spread = Spread::new(heap.clone(), anywhere(&targets).unwrap());
        spread.add_target(0, heap.clone(), capability.clone());
        spread.add_target(FIRST_ELSEWHERE, away.clone(), capability.clone());
        spread.add_target(BESIDE, beside.clone(), capability);
        let fleet = Fleet { spread: spread.clone(), targets };
        let service = Arc::new(Service::open_fleet(store.clone(), fleet, options, grace_ns).unwrap());
        let client = Client { service, heap, caller: caller(1000, seam::new_uuid()), ws };
        Fixture { store, spread, away, beside, client }
    }

    /// Its catalog is killed and started again.
    pub(super) fn restart(self) -> Fixture {
        let Fixture { store, away, beside, client, .. } = self;
        let (heap, ws) = (client.heap.clone(), client.ws);
        drop(client);
        Fixture::over(store, [heap, beside], away, ws)
    }

    /// What waits for a time happens.
    pub(super) fn later(&self, ns: i64) {
        self.client.service.core.ahead_ns.fetch_add(ns, Ordering::Relaxed);
        self.client.service.tick(self.client.service.core.monotonic_ns());
    }

    pub(super) fn abandoned(&self) -> usize {
        let listed = iov_store::MetadataStore::scan(&*self.store, &iov_store::KeyRange::prefix(b"A"), None, 9).unwrap();
        listed.iter().filter(|(key, _)| !key.starts_with(&crate::keys::all_in_staging())).count()
    }

    /// A new immutable collection at the other daemon, written by its creator.
    pub(super) fn staging(&self, text: &str) -> Uuid {
        let (uuid, op) = self.create_op(text, super::rig::immutable());
        let CatalogReply::Opened(opened) = self.client.ask(op).unwrap() else { unreachable!() };
        self.write((uuid, opened.layout.place), b"12345");
        uuid
    }

    /// What makes a new collection at the other daemon.
    pub(super) fn create_op(&self, text: &str, controls: iov_types::Controls) -> (Uuid, CatalogOp) {
        self.create_at(FIRST_ELSEWHERE, text, controls)
    }

    pub(super) fn create_at(&self, target: u32, text: &str, controls: iov_types::Controls) -> (Uuid, CatalogOp) {
        let (uuid, mut op) = self.client.create_with(iov_types::EntryKind::Collection, Uuid::NIL, text, controls);
        let CatalogOp::Create { layout, .. } = &mut op else { unreachable!() };
        let policy = Some(format!("targets:{target}"));
        *layout = Some(Layout { targets: 1, policy, ..Layout::default() });
        (uuid, op)
    }

    /// The same, open.
    pub(super) fn create(&self, text: &str) -> (Uuid, Place) {
        let (uuid, op) = self.create_op(text, Default::default());
        let CatalogReply::Opened(opened) = self.client.ask(op).unwrap() else { unreachable!() };
        (uuid, opened.layout.place)
    }

    pub(super) fn write(&self, (uuid, place): (Uuid, Place), bytes: &[u8]) {
        self.write_with((uuid, place), bytes, Demand::default()).unwrap();
    }

    pub(super) fn write_with(
        &self,
        (uuid, place): (Uuid, Place),
        bytes: &[u8],
        demand: Demand,
    ) -> iov_types::Result<()> {
        let write = ObjectOp { object: place.whole(uuid), verb: ObjectVerb::Write { offset: 0 }, demand };
        let written = run_all(&self.spread, &self.client.cx(), vec![(write, iov_store::Bytes::From(bytes))]).remove(0);
        written.0.map(drop)
    }

    pub(super) fn is_away(&self, away: bool) {
        self.away.away.store(away, Ordering::SeqCst);
    }

    /// It is away, as it hangs: whoever asks waits.
    pub(super) fn hangs(&self) {
        self.away.hangs.store(true, Ordering::SeqCst);
        self.is_away(true);
    }

    /// Who waits for it waits.
    pub(super) fn sleeps(&self) {
        self.away.sleeps.store(true, Ordering::SeqCst);
    }

    /// It is there, and hangs in what it is to seal or publish, or not.
    pub(super) fn sticks(&self, sticks: bool) {
        self.away.sticks.store(sticks, Ordering::SeqCst);
    }

    /// How often somebody has asked it in vain since this was last asked.
    pub(super) fn waited(&self) -> usize {
        self.away.waited.swap(0, Ordering::SeqCst)
    }
}

/// What was written and closed while its target was away is as long as it is once that is back (C3).
#[test]
fn c3_a_close_whose_target_is_away_loses_no_length() {
    let f = Fixture::new();
    let one = f.create("one");
    f.write(one, b"12345");
    f.is_away(true);
    f.client.close_written(one.0).unwrap();
    assert_eq!(kind(f.client.close(one.0)), Kind::Stale, "it is closed");
    let other = f.client.other();
    assert_eq!(kind(other.stat(one.0)), Kind::Unavailable, "it is not said to be empty");
    f.is_away(false);
    assert_eq!(other.stat(one.0).unwrap().bytes, 5);
    f.client.service.tick(f.client.service.core.monotonic_ns().saturating_add(2 * SECOND));
    f.is_away(true);
    assert_eq!(other.stat(one.0).unwrap().bytes, 5, "it is written down");
    assert_eq!(f.client.stat_workspace().bytes, 5);
    f.is_away(false);
    assert!(!f.client.service.has_open(Uuid::NIL), "nobody has it open");
}

/// Nobody stands in the way of others for who has closed it so, and nothing is taken for left by a writer that died (M2, X1).
#[test]
fn m2_what_was_closed_while_its_target_was_away_is_not_abandoned() {
    let f = Fixture::new();
    let uuid = f.staging("a");
    f.is_away(true);
    f.client.close_written(uuid).unwrap();
    f.is_away(false);
    let other = f.client.other();
    other.open_exclusive(uuid, iov_types::EntryKind::Collection).expect("nobody has it open");
    other.close(uuid).unwrap();
    f.later(2 * SECOND);
    assert_eq!(f.abandoned(), 0);
    f.client.as_user(4711).stat(uuid).expect_err("the workspace is another user's");
    assert_eq!(other.stat(uuid).unwrap().bytes, 5);
}

/// Also behind a crash: who has closed it has not died with the catalog.
#[test]
fn m2_what_was_closed_while_its_target_was_away_is_not_abandoned_by_a_crash() {
    let f = Fixture::new();
    let uuid = f.staging("a");
    f.is_away(true);
    f.client.close_written(uuid).unwrap();
    f.is_away(false);
    let f = f.restart();
    assert_eq!(f.abandoned(), 0);
    f.later(25 * 3600 * SECOND);
    f.later(25 * 3600 * SECOND);
    assert_eq!(f.client.stat(uuid).unwrap().bytes, 5);
}

/// Who dies while it writes is not taken for one of those who have closed it.
#[test]
fn m2_a_writer_that_dies_beside_one_whose_target_was_away_is_told_of() {
    let f = Fixture::new();
    let uuid = f.staging("a");
    let other = f.client.other();
    other.open(uuid).unwrap();
    f.is_away(true);
    f.client.close_written(uuid).unwrap();
    f.is_away(false);
    f.client.service.end_session(other.caller.session);
    f.later(2 * SECOND);
    assert_eq!(f.abandoned(), 1, "it was left unsealed");
}

/// What was closed while its target was away is used by nobody: its lease is over when its time is, though the target stays away.
#[test]
fn a_lease_goes_on_although_the_target_is_away_for_good() {
    let f = Fixture::new();
    let (uuid, mut op) = f.create_op("leased", Default::default());
    let CatalogOp::Create { attr, .. } = &mut op else { unreachable!() };
    attr.lifetime = Some(Lifetime::lease(60 * SECOND as u64));
    let CatalogReply::Opened(opened) = f.client.ask(op).unwrap() else { unreachable!() };
    f.write((uuid, opened.layout.place), b"12345");
    f.is_away(true);
    f.client.close_written(uuid).unwrap();
    f.later(59 * SECOND);
    assert_eq!(f.client.stat_workspace().entries, 1);
    f.later(2 * SECOND);
    assert_eq!(kind(f.client.lookup(Uuid::NIL, "leased")), Kind::NotFound);
    f.later(2 * SECOND);
    assert_eq!(kind(f.client.stat(uuid)), Kind::NotFound);
    assert_eq!(f.client.stat_workspace().entries, 0);
}

/// What was closed while its target was away, and deleted then, keeps no workspace (O11): nobody has it open.
#[test]
fn o11_what_only_waits_for_its_target_keeps_no_workspace() {
    let f = Fixture::new();
    let [one, held] = ["one", "held"].map(|text| f.create(text));
    f.write(one, b"12345");
    let other = f.client.other();
    other.open(held.0).unwrap();
    f.is_away(true);
    f.client.close_written(one.0).unwrap();
    f.client.close_written(held.0).unwrap();
    f.client.delete(Uuid::NIL, "one").unwrap();
    f.client.delete(Uuid::NIL, "held").unwrap();
    let delete = || f.client.ask(CatalogOp::WorkspaceDelete { which: Which::Uuid(f.client.ws) });
    assert_eq!(kind(delete()), Kind::Busy, "somebody has one of them open");
    other.close(held.0).unwrap();
    delete().unwrap();
    f.later(2 * SECOND);
    f.is_away(false);
    f.later(2 * SECOND);
    assert!(!f.client.service.has_open(Uuid::NIL) && f.client.service.core.writer().unended.is_empty());
    let Fixture { store, away, .. } = f.restart();
    let key = |prefix: &[u8]| {
        iov_store::MetadataStore::scan(&*store, &iov_store::KeyRange::prefix(prefix), None, 9).unwrap().len()
    };
    assert_eq!([b"R", b"E"].map(|prefix| key(prefix)), [0, 0], "no record is left");
    let list = ObjectOp {
        object: one.1.whole(one.0),
        verb: ObjectVerb::List { after: None, max: 9 },
        demand: Demand::default(),
    };
    let left =
        run_all(&away.inner, &OpCx::new(caller(1000, seam::new_uuid()), SECOND), vec![(list, iov_store::Bytes::None)]);
    assert_eq!(left[0].0.as_ref().unwrap().objects, [], "nor any byte");
}

/// A store whose clients have all closed what they had ends in order.
#[test]
fn o7_nobody_has_open_what_only_waits_for_its_target() {
    let f = Fixture::new();
    let one = f.create("one");
    f.write(one, b"12345");
    f.is_away(true);
    f.client.close_written(one.0).unwrap();
    assert!(!f.client.service.has_open(Uuid::NIL));
    f.client.service.close().unwrap();
    f.is_away(false);
    let f = f.restart();
    assert_eq!(f.client.stat(one.0).unwrap().bytes, 5, "its target is asked");
}

/// What waits for a target that stays away holds nobody else back (O7).
#[test]
fn o7_ends_that_wait_for_a_target_do_not_wait_for_others() {
    let f = Fixture::new();
    let mut closed: Vec<_> = (0..9).map(|n| f.create(&format!("closed{n}"))).collect();
    closed.iter().for_each(|one| f.write(*one, b"12345"));
    let other = f.client.other();
    let (held, op) = f.create_op("held", Default::default());
    other.ask(op).unwrap();
    other.close(held).unwrap();
    f.is_away(true);
    closed.drain(..).for_each(|one| drop(f.client.close_written(one.0).unwrap()));
    f.later(2 * SECOND);
    let (here, op) = f.create_at(0, "here", Default::default());
    other.ask(op).unwrap();
    other.delete(Uuid::NIL, "here").unwrap();
    f.client.service.core.writer().unended.push(other.caller.session);
    f.later(2 * SECOND);
    assert!(!f.client.service.has_open(other.caller.session), "{here} is closed");
}

/// Names and metadata are found whether or not a target says how long everything is by now (O5).
#[test]
fn o5_a_target_that_is_away_hides_no_names() {
    let f = Fixture::new();
    let (one, _) = f.create("one");
    let (two, _) = f.create("two");
    f.client.close(two).unwrap();
    f.is_away(true);
    let listed = f.client.page(CatalogOp::Search {
        ws: f.client.ws,
        spec: iov_types::catalog::SearchSpec { group: Some(Uuid::NIL), names: true, ..spec(None) },
    });
    let mut found: Vec<_> = listed.entries.iter().map(|entry| entry.uuid).collect();
    found.sort_unstable();
    let mut all = vec![one, two];
    all.sort_unstable();
    assert_eq!(found, all);
    let sized = f.client.ask(CatalogOp::Search { ws: f.client.ws, spec: spec(Some("iov.size > 3")) });
    assert_eq!(kind(sized), Kind::Unavailable, "who asks for lengths hears that they are not known");
    f.is_away(false);
    assert!(f.client.find("iov.size > 3").is_empty());
}

/// A pattern names a target once: of two parts at one target only one would be found (O2).
#[test]
fn o2_a_policy_names_each_target_once() {
    let f = Fixture::new();
    let (_, mut op) = f.client.create_op(Uuid::NIL, "a");
    let CatalogOp::Create { layout, .. } = &mut op else { unreachable!() };
    let policy = Some(format!("targets:{FIRST_ELSEWHERE},{FIRST_ELSEWHERE}"));
    *layout = Some(Layout { targets: 2, policy, ..Layout::default() });
    assert_eq!(kind(f.client.ask(op)), Kind::Invalid);
}
