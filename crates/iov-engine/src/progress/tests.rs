//! The thread and the end of its session.

use std::sync::Arc;

use iov_catalog::{Options, Service};
use iov_store::{Backend, Catalog, Heap, MemoryStore, seam};
use iov_types::{Caller, Counters, Uuid};

use crate::{Batch, BatchAttr, Drive, Op, Session, Sides, Workspace, leases::Renewal, session::lock};

fn session() -> (Session, Workspace) {
    let heap: Arc<dyn Backend> = Arc::new(Heap::new(iov_semantics::stores::mem(1)));
    let options = Options { single_user: true, uid: 1, lease_ns: 1 << 40, inline_bytes: 0, store_uuid: Uuid::NIL };
    let catalog: Arc<dyn Catalog> =
        Arc::new(Service::open(Arc::new(MemoryStore::new()), heap.clone(), options).unwrap());
    let id = seam::new_uuid();
    let caller = Caller { uid: 1, gid: 1, groups: Vec::new(), session: id, holder: id };
    let sides = Sides { catalog: catalog.clone(), backend: heap };
    let session = Session::new("mem:", sides, caller.clone(), Default::default(), Arc::new(Counters::default()));
    session.0.leases.keep(Renewal { catalog, caller, counters: session.0.counters.clone(), every_ns: 1 << 40 });
    let ws = session.create_workspace(iov_types::Name::new("w").unwrap(), Default::default()).unwrap();
    (session, ws)
}

fn started(session: &Session, ws: &Workspace) -> crate::Request {
    let attr = BatchAttr { drive: Drive::Background, ..Default::default() };
    let mut batch = Batch::new(session, attr).unwrap();
    batch.push(Op::WorkspaceStat { w: ws.clone() }).unwrap();
    batch.start().unwrap()
}

#[test]
fn the_thread_ends_with_its_session_whoever_has_the_lock_then() {
    let (mut left, mut leases) = (Vec::new(), Vec::new());
    for _ in 0..100 {
        let (session, ws) = session();
        let request = started(&session, &ws);
        while !request.is_done() {
            std::hint::spin_loop();
        }
        // The thread, which may be the last to have the request, or this one ends the session.
        let shared = session.0.progress.0.clone();
        leases.push(Arc::downgrade(&session.0.leases.0));
        let queue = lock(&shared.queue);
        drop((request, ws, session));
        drop(queue);
        left.push(Arc::downgrade(&shared));
    }
    let until = seam::monotonic_ns() + 30_000_000_000;
    while left.iter().any(|s| s.strong_count() > 0) || leases.iter().any(|s| s.strong_count() > 0) {
        assert!(seam::monotonic_ns() < until, "a thread goes on without its session");
        seam::sleep(1_000_000);
    }
}
