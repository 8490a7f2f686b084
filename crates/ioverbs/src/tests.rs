//! Sessions over targets that do something in between.

use std::sync::{Arc, Mutex};

use iov_engine::{Session, Sides};
use iov_store::{AtOnce, Backend, Bytes, Heap, Now, OpCx, Sink, Submitted, run_all};
use iov_types::{Capability, Demand, Evidence, Name, ObjectId, ObjectOp, ObjectVerb};

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

/// A target that says it is durable, notes what is synced, and lets somebody in while it syncs.
struct Syncing {
    heap: Heap,
    during: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    synced: Mutex<Vec<ObjectId>>,
}

impl Backend for Syncing {
    fn capability(&self) -> &Capability {
        self.heap.capability()
    }

    fn submit(&self, cx: &OpCx, ops: Vec<Submitted>, sink: Arc<dyn Sink>) {
        let syncs: Vec<ObjectId> =
            ops.iter().filter(|(op, _)| op.verb == ObjectVerb::Sync).map(|(op, _)| op.object).collect();
        if syncs.is_empty() {
            return self.heap.submit(cx, ops, sink);
        }
        let durability = Some(iov_types::Persistence::Durable);
        let done = Evidence { durability, ..Evidence::default() };
        let n = syncs.len();
        self.synced.lock().unwrap().extend(syncs);
        let during = self.during.lock().unwrap().take();
        if let Some(during) = during {
            iov_store::seam::spawn("meanwhile", during).unwrap().join().unwrap();
        }
        (0..n).for_each(|i| sink.complete(i, Ok(done.clone())));
    }
}

/// A persist of the workspace covers what was written when it was sent: what is written meanwhile is the next one's (P3, P5).
#[test]
fn p5_what_is_written_during_a_persist_is_synced_by_the_next() {
    let capability = Capability { durability: iov_types::Persistence::Durable, ..iov_semantics::stores::mem(1) };
    let (during, synced) = Default::default();
    let target = Arc::new(Syncing { heap: Heap::new(capability), during, synced });
    let sides = Sides { catalog: crate::mem::catalog(target.clone()).unwrap(), backend: target.clone() };
    let session = Session::new("mem:", sides, crate::identity::caller(), Default::default(), Arc::default());
    let ws = session.create_workspace(Name::new("w").unwrap(), Default::default()).unwrap();
    let mut asked = iov_types::Controls::default();
    crate::text::parse(&mut asked, "persistence=durable@explicit").unwrap();
    let make = |name: &str| crate::create(&ws, None, Some(name), Default::default(), asked.clone()).unwrap();
    let (a, b) = (make("a"), make("b"));
    let synced = || std::mem::take(&mut *target.synced.lock().unwrap()).len();
    crate::write_at(&a, 0, b"first").unwrap();
    let other = b.clone();
    let write = move || crate::write_at(&other, 0, b"meanwhile").unwrap();
    *target.during.lock().unwrap() = Some(Box::new(write));
    let persist = || crate::run(&session, crate::Op::WorkspacePersist { w: ws.clone() }).map(drop).unwrap();
    persist();
    assert_eq!(synced(), 1, "what was written before");
    persist();
    assert_eq!(synced(), 1, "what was written meanwhile");
    persist();
    assert_eq!(synced(), 0, "nothing is left");
    // The same of one handle.
    let again = a.clone();
    crate::write_at(&a, 0, b"second").unwrap();
    *target.during.lock().unwrap() = Some(Box::new(move || crate::write_at(&again, 0, b"third").unwrap()));
    let persist = || crate::run(&session, crate::Op::Persist { c: a.clone() }).map(drop).unwrap();
    persist();
    assert_eq!(synced(), 1);
    persist();
    assert_eq!(synced(), 1, "what was written meanwhile");
    persist();
    assert_eq!(synced(), 0, "nothing is left");
}
