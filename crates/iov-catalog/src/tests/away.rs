//! A target of another daemon that is away when it is needed.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use iov_store::{Backend, Heap, MemoryStore, OpCx, Sink, Spread, Submitted, run_all, seam};
use iov_types::{
    Capability, Demand, Error, Health, Kind, Layout, ObjectOp, ObjectVerb, Place, Reach, Target, Uuid,
    catalog::{CatalogOp, CatalogReply},
};

use super::rig::{Client, SECOND, caller, durable_heap, kind, name, options, spec};
use crate::{Fleet, Service, anywhere, map::FIRST_ELSEWHERE};

/// A target that can be out of reach.
pub(crate) struct Away {
    inner: Heap,
    pub(crate) away: AtomicBool,
}

impl Backend for Away {
    fn capability(&self) -> &Capability {
        self.inner.capability()
    }

    fn submit(&self, cx: &OpCx, ops: Vec<Submitted>, sink: Arc<dyn Sink>) {
        if !self.away.load(Ordering::SeqCst) {
            return self.inner.submit(cx, ops, sink);
        }
        (0..ops.len()).for_each(|i| sink.complete(i, Err(Error::unavailable("it is away"))));
    }
}

/// That may be away or not.
pub(crate) fn that_may_be_away() -> Arc<Away> {
    Arc::new(Away { inner: durable_heap(), away: AtomicBool::new(false) })
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

/// A client of a store with a target of its own and one of another daemon.
struct Fixture {
    spread: Spread,
    away: Arc<Away>,
    client: Client,
}

impl Fixture {
    fn new() -> Fixture {
        let (first, away): (Arc<dyn Backend>, _) = (Arc::new(durable_heap()), that_may_be_away());
        let capability = first.capability().clone();
        let targets = vec![target(0, &capability), target(FIRST_ELSEWHERE, &capability)];
        let spread = Spread::new(first.clone(), anywhere(&targets).unwrap());
        spread.add_target(0, first.clone(), capability.clone());
        spread.add_target(FIRST_ELSEWHERE, away.clone(), capability);
        let fleet = Fleet { spread: spread.clone(), targets };
        let service = Arc::new(Service::open_fleet(Arc::new(MemoryStore::new()), fleet, options(), 0).unwrap());
        let client = Client { service, heap: first, caller: caller(1000, seam::new_uuid()), ws: seam::new_uuid() };
        client.ask(CatalogOp::WorkspaceCreate { uuid: client.ws, name: name("w"), attr: Default::default() }).unwrap();
        Fixture { spread, away, client }
    }

    /// What makes a new collection at the other daemon.
    fn create_op(&self, text: &str, controls: iov_types::Controls) -> (Uuid, CatalogOp) {
        let (uuid, mut op) = self.client.create_with(iov_types::EntryKind::Collection, Uuid::NIL, text, controls);
        let CatalogOp::Create { layout, .. } = &mut op else { unreachable!() };
        let policy = Some(format!("targets:{FIRST_ELSEWHERE}"));
        *layout = Some(Layout { targets: 1, policy, ..Layout::default() });
        (uuid, op)
    }

    /// The same, open.
    fn create(&self, text: &str) -> (Uuid, Place) {
        let (uuid, op) = self.create_op(text, Default::default());
        let CatalogReply::Opened(opened) = self.client.ask(op).unwrap() else { unreachable!() };
        (uuid, opened.layout.place)
    }

    fn write(&self, (uuid, place): (Uuid, Place), bytes: &[u8]) {
        let verb = ObjectVerb::Write { offset: 0 };
        let write = ObjectOp { object: place.whole(uuid), verb, demand: Demand::default() };
        run_all(&self.spread, &self.client.cx(), vec![(write, iov_store::Bytes::From(bytes))]).remove(0).0.unwrap();
    }

    fn is_away(&self, away: bool) {
        self.away.away.store(away, Ordering::SeqCst);
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
    let (uuid, op) = f.create_op("a", super::rig::immutable());
    let CatalogReply::Opened(opened) = f.client.ask(op).unwrap() else { unreachable!() };
    f.write((uuid, opened.layout.place), b"12345");
    f.is_away(true);
    f.client.close_written(uuid).unwrap();
    f.is_away(false);
    let other = f.client.other();
    other.open_exclusive(uuid, iov_types::EntryKind::Collection).expect("nobody has it open");
    other.close(uuid).unwrap();
    f.client.service.tick(f.client.service.core.monotonic_ns().saturating_add(2 * SECOND));
    assert_eq!(f.client.service.core.store().scan(&iov_store::KeyRange::prefix(b"A"), None, 9).unwrap().len(), 0);
    f.client.as_user(4711).stat(uuid).expect_err("the workspace is another user's");
    assert_eq!(other.stat(uuid).unwrap().bytes, 5);
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
