//! Batches over several targets of which one is away.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use iov_store::{Backend, Bytes, Heap, MemoryStore, OpCx, Sink, Spread, Submitted, ask, run_all, seam};
use iov_types::{
    Capability, Demand, Error, Health, Kind, Layout, ObjectOp, ObjectVerb, Reach, Target, Uuid,
    catalog::{CatalogOp, CatalogReply, Staged, Submission},
};

use super::rig::{Client, caller, durable_heap, name, options};
use crate::{Fleet, Service, anywhere};

/// A target that can be out of reach.
struct Away {
    inner: Heap,
    away: AtomicBool,
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

fn target(number: u32, capability: &Capability) -> Target {
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

#[test]
fn b3_what_is_staged_for_a_new_collection_stays_where_another_of_its_targets_is_away() {
    let first: Arc<dyn Backend> = Arc::new(durable_heap());
    let second = Arc::new(Away { inner: durable_heap(), away: AtomicBool::new(false) });
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
