//! Sessions over targets that do something in between.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use iov_engine::{BatchAttr, Collection, Op, Session, SessionAttr, Sides, Workspace};
use iov_store::{
    Answer, AtOnce, Backend, Bytes, Catalog, CatalogCapability, Heap, Now, OnAnswer, OpCx, Sink, Submitted, run_all,
};
use iov_types::{
    Capability, Controls, Demand, EntryKind, Error, Evidence, Kind, Name, ObjectId, ObjectOp, ObjectVerb, OnError,
    Which,
    catalog::{CatalogOp, Submission},
};

use crate::Lent;

mod rollback;

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

/// A target that says it is durable, notes what is synced, and lets somebody in while it syncs. It may have forgotten everything.
struct Syncing {
    heap: Heap,
    forgets: AtomicBool,
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
        let done =
            Evidence { durability, version: u64::from(!self.forgets.load(Ordering::SeqCst)), ..Evidence::default() };
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
    let (forgets, during, synced) = Default::default();
    let target = Arc::new(Syncing { heap: Heap::new(capability), forgets, during, synced });
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
    crate::run(&session, crate::Op::Persist { c: a.clone() }).map(drop).unwrap();
    assert_eq!(synced(), 1);
    persist();
    assert_eq!(synced(), 1, "what was written meanwhile");
    persist();
    assert_eq!(synced(), 0, "nothing is left");
    crate::run(&session, crate::Op::Persist { c: a.clone() }).map(drop).unwrap();
    assert_eq!(synced(), 1, "others may have written it");
}

/// What is persisted survives whoever has written it, also through a handle that is closed, or in another session (P5).
#[test]
fn p5_a_persist_covers_what_others_have_written() {
    let mut capability = iov_semantics::stores::mem(1);
    capability.durability = iov_types::Persistence::Durable;
    let heap = Heap::new(capability);
    let (forgets, during, synced) = Default::default();
    let backend = Arc::new(Syncing { heap, forgets, during, synced });
    let catalog = crate::mem::catalog(backend.clone()).unwrap();
    let session = || {
        let sides = Sides { catalog: catalog.clone(), backend: backend.clone() };
        Session::new("mem:", sides, crate::identity::caller(), Default::default(), Arc::default())
    };
    let one = session();
    let ws = one.create_workspace(Name::new("w").unwrap(), Default::default()).unwrap();
    let mut durable = Controls::default();
    crate::text::parse(&mut durable, "persistence=durable").unwrap();
    crate::text::parse(&mut durable, "point=explicit").unwrap();
    let c = crate::create(&ws, None, Some("c"), Default::default(), durable.clone()).unwrap();
    crate::write_at(&c, 0, &[1; 100_000]).unwrap();
    crate::close(&c).unwrap();
    assert!(backend.synced.lock().unwrap().is_empty());
    let other = session().load_workspace(Which::Name(Name::new("w").unwrap())).unwrap();
    for ws in [&ws, &other] {
        let c = crate::lookup(ws, None, "c", Default::default()).unwrap();
        crate::run(c.session(), Op::Persist { c: c.clone() }).unwrap();
        assert_eq!(std::mem::take(&mut *backend.synced.lock().unwrap()).len(), 1);
    }
    let (out, name) = (ws.pending(EntryKind::Group), Some(Name::new("g").unwrap()));
    let group = Op::Create { out: out.clone(), parent: None, name, metadata: Default::default(), controls: durable };
    crate::run(&one, group).unwrap();
    crate::run(&one, Op::Persist { c: out }).unwrap();
    assert!(backend.synced.lock().unwrap().is_empty(), "a group has no bytes");
}

/// Bytes that others have moved from the record to a target are synced there, also through a handle that still takes them for small;
/// while they are small nobody asks a target (P5, H2).
#[test]
fn p5_a_persist_covers_what_others_have_moved_to_a_target() {
    let mut capability = iov_semantics::stores::mem(1);
    capability.durability = iov_types::Persistence::Durable;
    let (forgets, during, synced) = Default::default();
    let backend = Arc::new(Syncing { heap: Heap::new(capability), forgets, during, synced });
    let uid = crate::identity::caller().uid;
    let store_uuid = iov_store::seam::new_uuid();
    let options = iov_catalog::Options { single_user: true, lease_ns: i64::MAX, inline_bytes: 4096, store_uuid, uid };
    let memory = Arc::new(iov_store::MemoryStore::new());
    let catalog = Arc::new(iov_catalog::Service::open(memory, backend.clone(), options).unwrap());
    let session = || {
        let sides = Sides { catalog: catalog.clone(), backend: backend.clone() };
        Session::new("mem:", sides, crate::identity::caller(), Default::default(), Arc::default())
    };
    let (one, w) = (session(), Name::new("w").unwrap());
    let ws = one.create_workspace(w.clone(), Default::default()).unwrap();
    let mut durable = Controls::default();
    crate::text::parse(&mut durable, "persistence=durable@explicit").unwrap();
    let c = crate::create(&ws, None, Some("c"), Default::default(), durable).unwrap();
    crate::write_at(&c, 0, b"small").unwrap();
    let other = session().load_workspace(Which::Name(w)).unwrap();
    let there = crate::lookup(&other, None, "c", Default::default()).unwrap();
    let requests = || one.counters().metadata_requests.load(Ordering::Relaxed);
    let persist = || {
        let before = requests();
        crate::run(&one, Op::Persist { c: c.clone() }).unwrap();
        (std::mem::take(&mut *backend.synced.lock().unwrap()).len(), requests() - before)
    };
    assert_eq!(persist(), (0, 1), "it is in the record");
    // As a daemon does before it lets somebody write at the target.
    let cx = OpCx::new(crate::identity::caller(), 1_000_000_000);
    catalog.at_target(&cx, there.uuid().unwrap()).unwrap();
    crate::write_at(&there, 0, &[1; 100_000]).unwrap();
    backend.synced.lock().unwrap().clear();
    assert_eq!(persist(), (1, 2), "others have moved it");
    assert_eq!(persist(), (1, 1), "and that is known");
}

/// Bytes that a target has taken and has not got any more are not called durable, whatever it says of what it finds (P8).
#[test]
fn p8_a_persist_of_what_its_target_has_lost_fails() {
    let capability = Capability { durability: iov_types::Persistence::Durable, ..iov_semantics::stores::mem(1) };
    let (forgets, during, synced) = Default::default();
    let target = Arc::new(Syncing { heap: Heap::new(capability), forgets, during, synced });
    let sides = Sides { catalog: crate::mem::catalog(target.clone()).unwrap(), backend: target.clone() };
    let session = Session::new("mem:", sides, crate::identity::caller(), Default::default(), Arc::default());
    let ws = session.create_workspace(Name::new("w").unwrap(), Default::default()).unwrap();
    let mut asked = Controls::default();
    crate::text::parse(&mut asked, "persistence=durable@explicit").unwrap();
    let c = crate::create(&ws, None, Some("c"), Default::default(), asked).unwrap();
    let persist = || crate::run(&session, Op::Persist { c: c.clone() }).map(drop);
    target.forgets.store(true, Ordering::SeqCst);
    crate::write_at(&c, 0, b"").unwrap();
    persist().expect("nothing was written");
    crate::write_at(&c, 0, b"bytes").unwrap();
    let lost = persist().unwrap_err();
    assert_eq!((lost.kind(), lost.clause()), (Kind::Lost, Some(iov_types::Clause::P8)), "{lost}");
    target.forgets.store(false, Ordering::SeqCst);
    assert_eq!(persist().unwrap_err().kind(), Kind::Lost, "it stays lost");
}

/// A catalog that keeps answers to opens to itself for a while.
struct Slow {
    inner: Arc<dyn Catalog>,
    holds: AtomicBool,
    held: Arc<Mutex<Vec<(OnAnswer, Answer)>>>,
    goodbyes: AtomicUsize,
}

impl Catalog for Slow {
    fn capability(&self) -> &CatalogCapability {
        self.inner.capability()
    }

    fn submit(&self, cx: &OpCx, ops: Vec<CatalogOp>, how: Submission, done: OnAnswer) {
        let opens = ops.iter().any(|op| matches!(op, CatalogOp::Open { .. } | CatalogOp::Create { .. }));
        let goodbyes = ops.iter().filter(|op| matches!(op, CatalogOp::Goodbye)).count();
        self.goodbyes.fetch_add(goodbyes, Ordering::SeqCst);
        if !opens || !self.holds.load(Ordering::SeqCst) {
            return self.inner.submit(cx, ops, how, done);
        }
        let held = self.held.clone();
        let keep = Box::new(move |answer| held.lock().unwrap().push((done, answer)));
        self.inner.submit(cx, ops, how, keep);
    }
}

/// Two sessions; the answers to what the first one opens can be late.
struct Late {
    slow: Arc<Slow>,
    one: Session,
    other: Session,
    ws: Workspace,
}

fn alone() -> Controls {
    let mut alone = Controls::default();
    crate::text::parse(&mut alone, "concurrency=exclusive").unwrap();
    alone
}

impl Late {
    fn new() -> Late {
        let heap = Arc::new(Heap::new(iov_semantics::stores::mem(1)));
        let inner = crate::mem::catalog(heap.clone()).unwrap();
        let (holds, held, goodbyes) = Default::default();
        let slow = Arc::new(Slow { inner: inner.clone(), holds, held, goodbyes });
        let session = |catalog: Arc<dyn Catalog>| {
            let sides = Sides { catalog, backend: heap.clone() };
            let attr = SessionAttr { nocache: true, ..SessionAttr::default() };
            Session::new("mem:", sides, crate::identity::caller(), attr, Arc::default())
        };
        let (one, other) = (session(slow.clone()), session(inner));
        let ws = one.create_workspace(Name::new("w").unwrap(), Default::default()).unwrap();
        let c = crate::create(&ws, None, Some("c"), Default::default(), Default::default()).unwrap();
        crate::close(&c).unwrap();
        Late { slow, one, other, ws }
    }

    /// Has a batch make a collection and close it, whose answer comes too late.
    fn makes_and_closes_too_late(&self, name: &str) {
        let out = self.ws.pending(EntryKind::Collection);
        let name = Some(Name::new(name).unwrap());
        let (metadata, controls) = Default::default();
        let create = Op::Create { out: out.clone(), parent: None, name, metadata, controls };
        self.too_late(BatchAttr::default(), vec![create.into(), Op::Close { c: out }.into()]);
    }

    /// Runs a batch whose answer comes when its deadline has passed.
    fn too_late(&self, attr: BatchAttr, ops: Vec<Lent<'_>>) {
        self.slow.holds.store(true, Ordering::SeqCst);
        let attr = BatchAttr { deadline_ns: 500_000_000, ..attr };
        let late = crate::run_batch(&self.one, attr, ops).unwrap().remove(0);
        assert_eq!(late.result().unwrap_err().kind(), Kind::Timeout);
        self.slow.holds.store(false, Ordering::SeqCst);
    }

    fn open(&self, out: Collection, controls: Controls) -> Op {
        let which = Which::Name(Name::new("c").unwrap());
        Op::Open { out, parent: None, which, controls }
    }

    fn answer(&self) {
        let held = std::mem::take(&mut *self.slow.held.lock().unwrap());
        assert!(!held.is_empty());
        held.into_iter().for_each(|(done, answer)| done(answer));
    }

    /// Opens a collection exclusively in the other session.
    fn by_other(&self, name: &str) -> iov_types::Result<Collection> {
        let there = self.other.load_workspace(Which::Name(Name::new("w").unwrap())).unwrap();
        crate::lookup(&there, None, name, alone())
    }
}

/// What is opened by an answer that comes too late is held by nobody (X1, O10).
#[test]
fn x1_an_open_that_is_answered_too_late_is_closed_again() {
    let late = Late::new();
    let out = late.ws.pending(EntryKind::Collection);
    late.too_late(BatchAttr::default(), vec![late.open(out, alone()).into()]);
    late.answer();
    late.by_other("c").expect("nobody else holds it");
}

/// A batch that is only tried opens nothing: what the session has open stays so.
#[test]
fn x1_a_trial_that_is_answered_too_late_closes_nothing() {
    let late = Late::new();
    let held = crate::lookup(&late.ws, None, "c", alone()).unwrap();
    let out = late.ws.pending(EntryKind::Collection);
    let write = Lent::Write { c: held.clone(), offset: 0, data: b"new" };
    let rollback = BatchAttr { on_error: Some(OnError::Rollback), ..BatchAttr::default() };
    late.too_late(rollback, vec![late.open(out, Controls::default()).into(), write]);
    late.answer();
    assert_eq!(late.by_other("c").err().map(|e| e.kind()), Some(Kind::Busy));
    crate::write_at(&held, 0, b"held").unwrap();
}

/// What a batch has opened and closed is nobody's; what is opened since is not its.
#[test]
fn x1_what_was_closed_by_a_late_batch_is_not_closed_once_more() {
    let late = Late::new();
    late.makes_and_closes_too_late("n");
    let held = crate::lookup(&late.ws, None, "n", alone()).unwrap();
    late.answer();
    assert_eq!(late.by_other("n").err().map(|e| e.kind()), Some(Kind::Busy));
    crate::write_at(&held, 0, b"held").unwrap();
}

/// What a late batch has opened is given back, also where it has closed another handle of the same collection.
#[test]
fn x1_a_handle_that_a_late_batch_closed_does_not_stand_for_one_that_it_opened() {
    let late = Late::new();
    let before = crate::lookup(&late.ws, None, "c", Controls::default()).unwrap();
    let out = late.ws.pending(EntryKind::Collection);
    let open = late.open(out, Controls::default()).into();
    late.too_late(BatchAttr::default(), vec![open, Op::Close { c: before }.into()]);
    late.answer();
    late.by_other("c").expect("nobody else has it open");
}

/// A close ends its handle, whatever it says.
#[test]
fn x1_what_a_late_batch_closed_in_vain_is_not_closed_once_more() {
    let late = Late::new();
    late.makes_and_closes_too_late("n");
    for (_, answer) in &mut *late.slow.held.lock().unwrap() {
        *answer.as_mut().unwrap().get_mut(1).expect("both in one submission") = Err(Error::exhausted("the quota"));
    }
    let held = crate::lookup(&late.ws, None, "n", alone()).unwrap();
    late.answer();
    assert_eq!(late.by_other("n").err().map(|e| e.kind()), Some(Kind::Busy));
    crate::write_at(&held, 0, b"held").unwrap();
}

/// A session that nobody has any more ends, also while an answer of its is under way (O10).
#[test]
fn o10_a_late_answer_keeps_no_session() {
    let late = Late::new();
    let out = late.ws.pending(EntryKind::Collection);
    late.too_late(BatchAttr::default(), vec![late.open(out, alone()).into()]);
    let Late { slow, one, ws, .. } = late;
    drop((one, ws));
    assert_eq!(slow.goodbyes.load(Ordering::SeqCst), 1);
    let held = std::mem::take(&mut *slow.held.lock().unwrap());
    held.into_iter().for_each(|(done, answer)| done(answer));
}
