//! What a rollback batch leaves to be told and synced.

use super::*;
use iov_types::Persistence;

/// A target that says it is durable, and notes what is synced, of stages and besides, or fails to.
struct Noting {
    heap: Heap,
    synced: Mutex<Vec<ObjectId>>,
    stages: Mutex<Vec<ObjectId>>,
    fails: AtomicBool,
}

impl Backend for Noting {
    fn capability(&self) -> &Capability {
        self.heap.capability()
    }

    fn submit(&self, cx: &OpCx, ops: Vec<Submitted>, sink: Arc<dyn Sink>) {
        if !ops.iter().all(|(op, _)| op.verb == ObjectVerb::Sync) {
            return self.heap.submit(cx, ops, sink);
        }
        for (i, (op, _)) in ops.into_iter().enumerate() {
            let plain = op.demand.stage.is_none();
            let noted = if plain { &self.synced } else { &self.stages };
            noted.lock().unwrap().push(op.object);
            sink.complete(
                i,
                match plain && self.fails.load(Ordering::SeqCst) {
                    true => Err(Error::corrupt("the medium has failed")),
                    false => Ok(Evidence { durability: Some(Persistence::Durable), version: 1, ..Evidence::default() }),
                },
            );
        }
    }
}

/// A catalog that lets somebody in between a batch's point P and its answer.
struct Meanwhile {
    inner: Arc<dyn Catalog>,
    behind_p: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Catalog for Meanwhile {
    fn capability(&self) -> &CatalogCapability {
        self.inner.capability()
    }

    fn submit(&self, cx: &OpCx, ops: Vec<CatalogOp>, how: Submission, done: OnAnswer) {
        let behind_p = match how {
            Submission::All { .. } => self.behind_p.lock().unwrap().take(),
            _ => None,
        };
        let answer = move |answer| {
            if let Some(behind_p) = behind_p {
                iov_store::seam::spawn("meanwhile", behind_p).unwrap().join().unwrap();
            }
            done(answer);
        };
        self.inner.submit(cx, ops, how, Box::new(answer));
    }
}

struct Durable {
    backend: Arc<Noting>,
    catalog: Arc<Meanwhile>,
    session: Session,
    ws: Workspace,
}

impl Durable {
    /// `inline_bytes`: what of a collection may lie in its record.
    fn new(inline_bytes: u64) -> Durable {
        let capability = Capability { durability: Persistence::Durable, ..iov_semantics::stores::mem(1) };
        let (synced, stages, fails) = Default::default();
        let backend = Arc::new(Noting { heap: Heap::new(capability), synced, stages, fails });
        let uid = crate::identity::caller().uid;
        let store_uuid = iov_store::seam::new_uuid();
        let options = iov_catalog::Options { single_user: true, lease_ns: i64::MAX, inline_bytes, store_uuid, uid };
        let memory = Arc::new(iov_store::MemoryStore::new());
        let inner = Arc::new(iov_catalog::Service::open(memory, backend.clone(), options).unwrap());
        let catalog = Arc::new(Meanwhile { inner, behind_p: Mutex::default() });
        let sides = Sides { catalog: catalog.clone(), backend: backend.clone() };
        let session = Session::new("mem:", sides, crate::identity::caller(), Default::default(), Arc::default());
        let ws = session.create_workspace(Name::new("w").unwrap(), Default::default()).unwrap();
        Durable { backend, catalog, session, ws }
    }

    fn create(&self, name: &str, point: &str) -> Collection {
        crate::create(&self.ws, None, Some(name), Default::default(), durable(point)).unwrap()
    }

    /// Runs a batch; the error of the first operation that has one of its own.
    fn rollback(&self, ops: Vec<Lent<'_>>) -> iov_types::Result<()> {
        let attr = BatchAttr { on_error: Some(OnError::Rollback), ..BatchAttr::default() };
        let all = crate::run_batch(&self.session, attr, ops).unwrap();
        let culprit = all.iter().find(|status| status.state == iov_engine::OpState::Failed);
        culprit.or(all.first()).map_or(Ok(()), |status| status.result())
    }

    /// The operation that makes a collection, and its handle.
    fn make(&self, name: &str) -> (Collection, Op) {
        let out = self.ws.pending(EntryKind::Collection);
        let (name, controls) = (Some(Name::new(name).unwrap()), durable("explicit"));
        (out.clone(), Op::Create { out, parent: None, name, metadata: Default::default(), controls })
    }

    /// How often a collection was synced since this was asked last.
    fn syncs(&self, c: &Collection) -> usize {
        let synced = std::mem::take(&mut *self.backend.synced.lock().unwrap());
        synced.iter().filter(|object| object.collection == c.uuid().unwrap()).count()
    }
}

fn durable(point: &str) -> Controls {
    let mut controls = Controls::default();
    crate::text::parse(&mut controls, &format!("persistence=durable@{point}")).unwrap();
    controls
}

/// What is written when a batch has been published and has not heard so yet is none of what that has published (P5, C7).
#[test]
fn p5_what_is_written_behind_point_p_is_left_for_the_close() {
    let store = Durable::new(0);
    let c = store.create("c", "close");
    let other = c.clone();
    let write = move || crate::write_at(&other, 5, b", behind P").unwrap();
    *store.catalog.behind_p.lock().unwrap() = Some(Box::new(write));
    store.rollback(vec![Lent::Write { c: c.clone(), offset: 0, data: b"batch" }]).unwrap();
    assert!(store.catalog.behind_p.lock().unwrap().is_none(), "it came in between");
    let publications = || store.session.counters().publications.load(Ordering::Relaxed);
    let before = publications();
    assert_eq!(store.syncs(&c), 0);
    crate::close(&c).unwrap();
    assert_eq!((store.syncs(&c), publications() - before), (1, 1), "it is synced and told");
}

/// A batch syncs what it has staged and nothing else: what was written before through the same handle is still to be synced (P5).
#[test]
fn p5_what_was_written_before_a_batch_is_left_for_the_close() {
    let store = Durable::new(0);
    let c = store.create("c", "close");
    crate::write_at(&c, 10, b"before").unwrap();
    store.rollback(vec![Lent::Write { c: c.clone(), offset: 0, data: b"batch" }]).unwrap();
    assert_eq!(store.syncs(&c), 0);
    crate::close(&c).unwrap();
    assert_eq!(store.syncs(&c), 1, "what was written before");
}

/// What only batches have written is published and survives already (P5).
#[test]
fn p5_what_a_batch_has_written_is_left_to_nobody() {
    let store = Durable::new(0);
    let c = store.create("c", "close");
    store.rollback(vec![Lent::Write { c: c.clone(), offset: 0, data: b"batch" }]).unwrap();
    let publications = || store.session.counters().publications.load(Ordering::Relaxed);
    let before = publications();
    crate::close(&c).unwrap();
    assert_eq!((store.syncs(&c), publications() - before), (0, 0));
    let again = crate::lookup(&store.ws, None, "c", Controls::default()).unwrap();
    assert_eq!(crate::stat(&again).unwrap().bytes, 5);
}

/// A persist, close or persist of the workspace in a batch has survive what was written before the batch, as one elsewhere (P5).
#[test]
fn p5_a_batch_syncs_what_its_operations_have_survive() {
    let store = Durable::new(0);
    let c = store.create("c", "explicit");
    let persist = || Op::Persist { c: c.clone() };
    crate::write_at(&c, 0, b"before").unwrap();
    store.rollback(vec![store.make("a").1.into(), persist().into()]).unwrap();
    assert_eq!(store.syncs(&c), 1, "by the persist");
    store.rollback(vec![Op::WorkspacePersist { w: store.ws.clone() }.into()]).unwrap();
    assert_eq!(store.syncs(&c), 0, "and it is known");
    crate::write_at(&c, 0, b"again").unwrap();
    store.rollback(vec![store.make("b").1.into(), Op::WorkspacePersist { w: store.ws.clone() }.into()]).unwrap();
    assert_eq!(store.syncs(&c), 1, "by the persist of the workspace");
    let closed = store.create("closed", "close");
    crate::write_at(&closed, 0, b"before").unwrap();
    store.rollback(vec![store.make("d").1.into(), Op::Close { c: closed.clone() }.into()]).unwrap();
    assert_eq!(store.syncs(&closed), 1, "by the close");
    let (made, create) = store.make("e");
    store.rollback(vec![create.into(), Op::Persist { c: made.clone() }.into()]).unwrap();
    assert_eq!(store.syncs(&made), 0, "nobody has written it before");
}

/// What a batch writes through one handle survives as the other one asks that persists it (P5).
#[test]
fn p5_a_batch_persists_what_it_writes_through_another_handle() {
    let store = Durable::new(0);
    let weak = crate::create(&store.ws, None, Some("c"), Default::default(), Controls::default()).unwrap();
    let strong = crate::lookup(&store.ws, None, "c", durable("explicit")).unwrap();
    let write = || Lent::Write { c: weak.clone(), offset: 0, data: b"batch" };
    store.rollback(vec![write()]).unwrap();
    assert!(store.backend.stages.lock().unwrap().is_empty());
    store.rollback(vec![write(), Op::Persist { c: strong.clone() }.into()]).unwrap();
    assert_eq!(store.backend.stages.lock().unwrap().len(), 1);
    store.rollback(vec![write(), Lent::Write { c: strong, offset: 5, data: b"more" }]).unwrap();
    assert_eq!(store.backend.stages.lock().unwrap().len(), 2);
}

/// Bytes that a handle takes for bytes in the record may be at a target by now (P5).
#[test]
fn p5_a_persist_in_a_batch_covers_what_others_have_moved_to_a_target() {
    let store = Durable::new(4096);
    let c = store.create("c", "explicit");
    crate::write_at(&c, 0, b"small").unwrap();
    store.rollback(vec![store.make("a").1.into(), Op::Persist { c: c.clone() }.into()]).unwrap();
    assert_eq!(store.syncs(&c), 1);
}

/// What could not be synced undoes the batch, and is never taken for safe later (P8, B3).
#[test]
fn p8_a_sync_that_fails_undoes_its_batch() {
    let store = Durable::new(0);
    let c = store.create("c", "explicit");
    crate::write_at(&c, 0, b"before").unwrap();
    store.backend.fails.store(true, Ordering::SeqCst);
    let failed = store.rollback(vec![store.make("a").1.into(), Op::Persist { c: c.clone() }.into()]).unwrap_err();
    assert_eq!((failed.kind(), failed.clause()), (Kind::Corrupt, Some(iov_types::Clause::P8)), "{failed}");
    assert_eq!(failed.outcome(), iov_types::Outcome::NotApplied);
    let made = crate::lookup(&store.ws, None, "a", Controls::default());
    assert_eq!(made.err().map(|e| e.kind()), Some(Kind::NotFound));
    store.backend.fails.store(false, Ordering::SeqCst);
    let later = crate::run(&store.session, Op::Persist { c: c.clone() }).unwrap_err();
    assert_eq!(later.clause(), Some(iov_types::Clause::P8), "{later}");
}
