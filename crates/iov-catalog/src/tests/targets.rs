//! Batches where a target is away, or cannot publish yet.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use iov_store::{Backend, Bytes, Heap, MemoryStore, OpCx, Sink, Spread, Submitted, ask, run_all, seam};
use iov_types::{
    Capability, Demand, Error, Kind, Layout, ObjectOp, ObjectVerb, Outcome, Uuid,
    catalog::{CatalogOp, CatalogReply, Staged, Submission},
};

use super::{
    away::{target, that_may_be_away},
    rig::{Client, Rig, caller, durable_heap, name, options},
};
use crate::{Fleet, Service, anywhere};

#[test]
fn b3_what_is_staged_for_a_new_collection_stays_where_another_of_its_targets_is_away() {
    let first: Arc<dyn Backend> = Arc::new(durable_heap());
    let second = that_may_be_away();
    let capability = first.capability().clone();
    let targets = vec![target(0, &capability), target(1, &capability)];
    let spread = Spread::new(first.clone(), anywhere(&targets).unwrap());
    spread.add_target(0, first.clone(), capability.clone());
    spread.add_target(1, second.clone(), capability);
    let fleet = Fleet { spread: spread.clone(), targets };
    let service = Arc::new(Service::open_fleet(Arc::new(MemoryStore::new()), fleet, options(), 0).unwrap());
    let ws = seam::new_uuid();
    let client = Client { service, heap: first, caller: caller(1000, seam::new_uuid()), ws };
    client.ask(CatalogOp::WorkspaceCreate { uuid: ws, name: name("w"), attr: Default::default() }).unwrap();
    let over_both = |text: &str| {
        let (uuid, mut op) = client.create_op(Uuid::NIL, text);
        let CatalogOp::Create { layout, .. } = &mut op else { unreachable!() };
        *layout = Some(Layout { targets: 2, chunk_size: 1 << 16, ..Layout::default() });
        (uuid, op)
    };
    let CatalogReply::Opened(opened) = client.ask(over_both("one").1).unwrap() else { unreachable!() };
    let place = opened.layout.place;
    // A batch stages bytes of another one, at both.
    let (batch, (uuid, create)) = (seam::new_uuid(), over_both("two"));
    let bytes: Vec<u8> = (0..200_000u32).map(|i| (i / 1000) as u8).collect();
    let demand = Demand { stage: Some(batch), ..Demand::default() };
    let write = ObjectOp { object: place.whole(uuid), verb: ObjectVerb::Write { offset: 0 }, demand };
    run_all(&spread, &client.cx(), vec![(write, Bytes::From(&bytes))]).remove(0).0.unwrap();
    let commit = || {
        let staged = vec![Staged { workspace: ws, collection: uuid, epoch: 0, place }];
        let how = Submission::All { batch, remember: true, staged };
        ask(&*client.service, &client.cx(), vec![create.clone()], how)
    };
    second.away.store(true, Ordering::SeqCst);
    let e = match commit() {
        Ok(replies) => replies.into_iter().find_map(Result::err).expect("a target is away"),
        Err(e) => e,
    };
    assert_eq!(e.kind(), Kind::Unavailable, "{e}");
    second.away.store(false, Ordering::SeqCst);
    client.service.go_on();
    commit().unwrap().into_iter().for_each(|reply| drop(reply.unwrap()));
    let read = ObjectOp { object: place.whole(uuid), verb: ObjectVerb::Read { offset: 0 }, demand: Demand::default() };
    let (found, there) = run_all(&spread, &client.cx(), vec![(read, Bytes::Into(300_000))]).remove(0);
    assert_eq!(found.unwrap().bytes, bytes.len() as u64);
    assert!(there == bytes);
}

/// A target that cannot publish for so many times.
struct Slow {
    inner: Heap,
    refuses: AtomicU32,
}

impl Backend for Slow {
    fn capability(&self) -> &Capability {
        self.inner.capability()
    }

    fn submit(&self, cx: &OpCx, ops: Vec<Submitted>, sink: Arc<dyn Sink>) {
        let publishes = ops.iter().any(|(op, _)| matches!(op.verb, ObjectVerb::Publish { .. }));
        let one_less = |left: u32| left.checked_sub(1);
        if !publishes || self.refuses.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_err() {
            return self.inner.submit(cx, ops, sink);
        }
        (0..ops.len()).for_each(|i| sink.complete(i, Err(Error::unavailable("it is starting"))));
    }
}

/// The next publication of a collection would wait for this one at the target, and this one for the catalog, which that one holds.
#[test]
fn b3_a_batch_waits_for_no_publication_that_only_the_catalog_can_do() {
    let heap = Arc::new(Slow { inner: durable_heap(), refuses: AtomicU32::new(0) });
    let rig = Rig::over(Arc::new(MemoryStore::new()), heap.clone(), options()).unwrap();
    let client = rig.in_workspace();
    let a = client.create("a");
    let (first, second) = (seam::new_uuid(), seam::new_uuid());
    client.bytes(a).staged(first).write(0, b"first").unwrap();
    client.bytes(a).staged(second).write(0, b"second").unwrap();
    let publish = |batch: Uuid| client.all(vec![client.publish_op(a)], batch, &[a]);
    heap.refuses.store(2, Ordering::SeqCst);
    let e = publish(first).unwrap_err();
    assert_eq!((e.kind(), e.outcome()), (Kind::Unavailable, Outcome::Applied), "{e}");
    // It is tried once more, and still cannot be done.
    let e = publish(second).unwrap_err();
    assert_eq!((e.kind(), e.outcome()), (Kind::Unavailable, Outcome::NotApplied), "{e}");
    // The target is back: what was committed first comes first, and nothing that was staged is lost.
    publish(second).unwrap();
    assert_eq!(client.bytes(a).read().unwrap(), b"second");
    assert_eq!(client.stat(a).unwrap().bytes, 6);
}
