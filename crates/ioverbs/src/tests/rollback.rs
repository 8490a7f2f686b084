//! What a rollback batch leaves to be told and synced.

use super::*;
use iov_types::Persistence;

/// A target that says it is durable, and notes what is synced besides the stages of batches.
struct Noting {
    heap: Heap,
    synced: Mutex<Vec<ObjectId>>,
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
            if op.demand.stage.is_none() {
                self.synced.lock().unwrap().push(op.object);
            }
            sink.complete(i, Ok(Evidence { durability: Some(Persistence::Durable), ..Evidence::default() }));
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
    fn new() -> Durable {
        let capability = Capability { durability: Persistence::Durable, ..iov_semantics::stores::mem(1) };
        let backend = Arc::new(Noting { heap: Heap::new(capability), synced: Mutex::default() });
        let inner = crate::mem::catalog(backend.clone()).unwrap();
        let catalog = Arc::new(Meanwhile { inner, behind_p: Mutex::default() });
        let sides = Sides { catalog: catalog.clone(), backend: backend.clone() };
        let session = Session::new("mem:", sides, crate::identity::caller(), Default::default(), Arc::default());
        let ws = session.create_workspace(Name::new("w").unwrap(), Default::default()).unwrap();
        Durable { backend, catalog, session, ws }
    }

    fn create(&self, name: &str, point: &str) -> Collection {
        crate::create(&self.ws, None, Some(name), Default::default(), durable(point)).unwrap()
    }

    fn rollback(&self, ops: Vec<Lent<'_>>) {
        let attr = BatchAttr { on_error: Some(OnError::Rollback), ..BatchAttr::default() };
        for status in crate::run_batch(&self.session, attr, ops).unwrap() {
            status.result().unwrap();
        }
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
    let store = Durable::new();
    let c = store.create("c", "close");
    let other = c.clone();
    let write = move || crate::write_at(&other, 5, b", behind P").unwrap();
    *store.catalog.behind_p.lock().unwrap() = Some(Box::new(write));
    store.rollback(vec![Lent::Write { c: c.clone(), offset: 0, data: b"batch" }]);
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
    let store = Durable::new();
    let c = store.create("c", "close");
    crate::write_at(&c, 10, b"before").unwrap();
    store.rollback(vec![Lent::Write { c: c.clone(), offset: 0, data: b"batch" }]);
    assert_eq!(store.syncs(&c), 0);
    crate::close(&c).unwrap();
    assert_eq!(store.syncs(&c), 1, "what was written before");
}

/// What only batches have written is published and survives already (P5).
#[test]
fn p5_what_a_batch_has_written_is_left_to_nobody() {
    let store = Durable::new();
    let c = store.create("c", "close");
    store.rollback(vec![Lent::Write { c: c.clone(), offset: 0, data: b"batch" }]);
    let publications = || store.session.counters().publications.load(Ordering::Relaxed);
    let before = publications();
    crate::close(&c).unwrap();
    assert_eq!((store.syncs(&c), publications() - before), (0, 0));
    let again = crate::lookup(&store.ws, None, "c", Controls::default()).unwrap();
    assert_eq!(crate::stat(&again).unwrap().bytes, 5);
}
