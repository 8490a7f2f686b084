//! Sessions over targets that do something in between.

use std::sync::{Arc, Mutex};

use iov_engine::{Session, Sides};
use iov_store::{AtOnce, Backend, Bytes, Heap, Now, OpCx, Sink, Submitted, run_all};
use iov_types::{Capability, Demand, Name, ObjectId, ObjectOp, ObjectVerb};

/// A target in this process that moves bytes at once, and lets somebody in just before.
struct Meanwhile {
    heap: Arc<Heap>,
    before: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Backend for Meanwhile {
    fn capability(&self) -> &Capability {
        self.heap.capability()
    }

    fn submit(&self, cx: &OpCx, ops: Vec<Submitted>, sink: Arc<dyn Sink>) {
        self.heap.submit(cx, ops, sink);
    }

    fn at_once(&self, object: ObjectId, epoch: u64, offset: u64, bytes: Now<'_>) -> AtOnce {
        let Now::Write(bytes) = bytes else { return AtOnce::No };
        let before = self.before.lock().unwrap().take();
        before.into_iter().for_each(|before| before());
        let demand = Demand { epoch, ..Demand::default() };
        let op = ObjectOp { object, verb: ObjectVerb::Write { offset }, demand };
        let cx = OpCx::new(crate::identity::caller(), 1_000_000_000);
        let mut done = run_all(&*self.heap, &cx, vec![(op, Bytes::From(bytes))]);
        AtOnce::Done(done.pop().unwrap().0.map(|evidence| evidence.bytes))
    }
}

/// A commit that does not see the bytes of a write under way must not take them for published.
#[test]
fn c2_a_write_that_a_commit_meets_half_way_is_published_by_the_next() {
    let heap = Arc::new(Heap::new(iov_semantics::stores::mem(1)));
    let catalog = crate::mem::catalog(heap.clone()).unwrap();
    let backend = Arc::new(Meanwhile { heap, before: Mutex::default() });
    let sides = Sides { catalog, backend: backend.clone() };
    let session = Session::new("mem:", sides, crate::identity::caller(), Default::default(), Arc::default());
    let ws = session.create_workspace(Name::new("w").unwrap(), Default::default()).unwrap();
    let c = crate::create(&ws, None, Some("c"), Default::default(), Default::default()).unwrap();
    crate::write_at(&c, 0, b"first").unwrap();
    let other = c.clone();
    *backend.before.lock().unwrap() = Some(Box::new(move || crate::commit(&other).unwrap()));
    crate::write_at(&c, 5, b", second").unwrap();
    assert!(backend.before.lock().unwrap().is_none(), "it went the short way");
    let publications = || session.counters().publications.load(std::sync::atomic::Ordering::Relaxed);
    let before = publications();
    crate::commit(&c).unwrap();
    assert_eq!(publications(), before + 1, "the second write was not published by the first commit");
    crate::close(&c).unwrap();
    let again = crate::lookup(&ws, None, "c", Default::default()).unwrap();
    assert_eq!(crate::stat(&again).unwrap().bytes, 13);
}
