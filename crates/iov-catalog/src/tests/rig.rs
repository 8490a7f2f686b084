//! A store, its catalog, and clients that ask it.

use std::sync::{Arc, Mutex, mpsc};

use iov_store::{Answer, Backend, Bytes, Catalog, Heap, MemoryStore, MetadataStore, OpCx, ask, run_all, seam};
use iov_types::{
    Caller, Capability, Concurrency, Controls, EntryKind, Kind, Metadata, Mutability, Name, Persistence, Result, Stat,
    Uuid, Value, Which, WorkspaceAttr,
    catalog::{CatalogOp, CatalogReply, Opened, Page, Published, SearchSpec, Submission},
};

use crate::{Options, Service};

pub(crate) const UID: u32 = 1000;
pub(crate) const SECOND: i64 = 1_000_000_000;

/// A heap that claims to be durable, so that the catalog records what it would on a disk.
pub(crate) fn durable_heap() -> Heap {
    let capability = Capability { durability: Persistence::Durable, ..iov_semantics::stores::mem(1) };
    Heap::new(capability)
}

pub(crate) fn options() -> Options {
    Options { single_user: false, uid: UID, lease_ns: 30 * SECOND, inline_bytes: 0, store_uuid: Uuid::NIL }
}

pub(crate) struct Rig {
    pub(crate) store: Arc<dyn MetadataStore>,
    pub(crate) heap: Arc<dyn Backend>,
    pub(crate) service: Arc<Service>,
}

impl Rig {
    pub(crate) fn new() -> Rig {
        Rig::over(Arc::new(MemoryStore::new()), Arc::new(durable_heap()), options()).unwrap()
    }

    pub(crate) fn over(store: Arc<dyn MetadataStore>, heap: Arc<dyn Backend>, options: Options) -> Result<Rig> {
        let service = Arc::new(Service::open(store.clone(), heap.clone(), options)?);
        Ok(Rig { store, heap, service })
    }

    /// The catalog dies and is opened again.
    pub(crate) fn crash(self) -> Rig {
        Rig::over(self.store, self.heap, options()).unwrap()
    }

    /// The clock of the catalog goes on.
    pub(crate) fn later(&self, ns: i64) {
        self.service.core.ahead_ns.fetch_add(ns, std::sync::atomic::Ordering::Relaxed);
    }

    pub(crate) fn client(&self) -> Client {
        self.client_of(UID)
    }

    pub(crate) fn client_of(&self, uid: u32) -> Client {
        let session = seam::new_uuid();
        Client { service: self.service.clone(), heap: self.heap.clone(), caller: caller(uid, session), ws: Uuid::NIL }
    }

    /// A client in a new workspace.
    pub(crate) fn in_workspace(&self) -> Client {
        self.in_workspace_with(WorkspaceAttr::default())
    }

    pub(crate) fn in_workspace_with(&self, attr: WorkspaceAttr) -> Client {
        let mut client = self.client();
        client.ws = seam::new_uuid();
        let name = Name::new(format!("ws-{}", client.ws)).unwrap();
        client.ask(CatalogOp::WorkspaceCreate { uuid: client.ws, name, attr }).unwrap();
        client
    }

    /// All keys of the store with a tag.
    pub(crate) fn keys(&self, tag: u8) -> Vec<Vec<u8>> {
        let range = iov_store::KeyRange::prefix(&[tag]);
        self.store.scan(&range, None, usize::MAX).unwrap().into_iter().map(|(key, _)| key.to_vec()).collect()
    }
}

pub(crate) fn caller(uid: u32, session: Uuid) -> Caller {
    Caller { uid, gid: uid, groups: Vec::new(), session, holder: session }
}

/// A session in a workspace.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) service: Arc<Service>,
    pub(crate) heap: Arc<dyn Backend>,
    pub(crate) caller: Caller,
    pub(crate) ws: Uuid,
}

impl Client {
    /// Another session of the same user, or of another, in the same workspace.
    pub(crate) fn other(&self) -> Client {
        self.as_user(self.caller.uid)
    }

    pub(crate) fn as_user(&self, uid: u32) -> Client {
        Client { caller: caller(uid, seam::new_uuid()), ..self.clone() }
    }

    pub(crate) fn cx(&self) -> OpCx {
        OpCx::new(self.caller.clone(), 10 * SECOND)
    }

    pub(crate) fn submit(&self, ops: Vec<CatalogOp>, how: Submission) -> Answer {
        ask(&*self.service, &self.cx(), ops, how)
    }

    /// One operation, by itself.
    pub(crate) fn ask(&self, op: CatalogOp) -> Result<CatalogReply> {
        self.submit(vec![op], Submission::Each)?.pop().unwrap()
    }

    pub(crate) fn all(&self, ops: Vec<CatalogOp>, batch: Uuid, staged: &[Uuid]) -> Answer {
        let staged = staged
            .iter()
            .map(|c| iov_types::catalog::Staged {
                workspace: self.ws,
                collection: *c,
                epoch: 0,
                place: Default::default(),
            })
            .collect();
        self.submit(ops, Submission::All { batch, remember: true, staged })
    }

    pub(crate) fn create_op(&self, parent: Uuid, text: &str) -> (Uuid, CatalogOp) {
        self.create_with(EntryKind::Collection, parent, text, Controls::default())
    }

    pub(crate) fn create_with(
        &self,
        kind: EntryKind,
        parent: Uuid,
        text: &str,
        controls: Controls,
    ) -> (Uuid, CatalogOp) {
        let uuid = seam::new_uuid();
        let op = CatalogOp::Create {
            ws: self.ws,
            uuid,
            kind,
            parent,
            name: (!text.is_empty()).then(|| name(text)),
            metadata: Metadata::new(),
            controls,
            layout: None,
            attr: Default::default(),
            tell: false,
        };
        (uuid, op)
    }

    /// A new collection in the root, open.
    pub(crate) fn create(&self, text: &str) -> Uuid {
        let (uuid, op) = self.create_op(Uuid::NIL, text);
        self.ask(op).unwrap();
        uuid
    }

    /// A new collection in a group, closed.
    pub(crate) fn create_in(&self, parent: Uuid, text: &str) -> Uuid {
        let (uuid, op) = self.create_op(parent, text);
        self.ask(op).unwrap();
        self.close(uuid).unwrap();
        uuid
    }

    /// A new group, closed.
    pub(crate) fn group(&self, parent: Uuid, text: &str) -> Uuid {
        let (uuid, op) = self.create_with(EntryKind::Group, parent, text, Controls::default());
        self.ask(op).unwrap();
        self.close(uuid).unwrap();
        uuid
    }

    pub(crate) fn open_with(&self, which: Which, kind: EntryKind, controls: Controls) -> Result<Opened> {
        let op = CatalogOp::Open { ws: self.ws, parent: Uuid::NIL, which, kind, controls, tell: None };
        match self.ask(op)? {
            CatalogReply::Opened(opened) => Ok(*opened),
            other => panic!("an open was answered by {other:?}"),
        }
    }

    pub(crate) fn open(&self, uuid: Uuid) -> Result<Opened> {
        self.open_with(Which::Uuid(uuid), EntryKind::Collection, Controls::default())
    }

    pub(crate) fn open_exclusive(&self, uuid: Uuid, kind: EntryKind) -> Result<Opened> {
        self.open_with(Which::Uuid(uuid), kind, exclusive())
    }

    pub(crate) fn lookup(&self, parent: Uuid, text: &str) -> Result<Uuid> {
        let which = Which::Name(name(text));
        for kind in [EntryKind::Collection, EntryKind::Group] {
            let controls = Controls::default();
            let op = CatalogOp::Open { ws: self.ws, parent, which: which.clone(), kind, controls, tell: None };
            match self.ask(op) {
                Ok(CatalogReply::Opened(opened)) => {
                    self.close(opened.uuid).unwrap();
                    return Ok(opened.uuid);
                }
                Err(e) if e.kind() == Kind::Invalid => {}
                Err(e) => return Err(e),
                Ok(other) => panic!("an open was answered by {other:?}"),
            }
        }
        panic!("neither a collection nor a group")
    }

    pub(crate) fn close(&self, uuid: Uuid) -> Result<CatalogReply> {
        self.ask(CatalogOp::Close { ws: self.ws, uuid, published: None })
    }

    pub(crate) fn close_written(&self, uuid: Uuid) -> Result<CatalogReply> {
        self.ask(CatalogOp::Close { ws: self.ws, uuid, published: Some(Published::default()) })
    }

    pub(crate) fn publish_op(&self, uuid: Uuid) -> CatalogOp {
        CatalogOp::Publish { ws: self.ws, uuid, published: Published::default() }
    }

    pub(crate) fn seal(&self, uuid: Uuid) -> Result<CatalogReply> {
        self.ask(CatalogOp::Seal { ws: self.ws, uuid, published: Published::default() })
    }

    pub(crate) fn delete_op(&self, parent: Uuid, text: &str) -> CatalogOp {
        CatalogOp::Delete { ws: self.ws, parent, which: Which::Name(name(text)) }
    }

    pub(crate) fn delete(&self, parent: Uuid, text: &str) -> Result<CatalogReply> {
        self.ask(self.delete_op(parent, text))
    }

    pub(crate) fn delete_uuid(&self, uuid: Uuid) -> Result<CatalogReply> {
        self.ask(CatalogOp::Delete { ws: self.ws, parent: Uuid::NIL, which: Which::Uuid(uuid) })
    }

    pub(crate) fn stat(&self, uuid: Uuid) -> Result<Stat> {
        match self.ask(CatalogOp::Stat { ws: self.ws, uuid })? {
            CatalogReply::Stat(stat) => Ok(*stat),
            other => panic!("a stat was answered by {other:?}"),
        }
    }

    pub(crate) fn stat_workspace(&self) -> Stat {
        match self.ask(CatalogOp::WorkspaceStat { ws: self.ws }).unwrap() {
            CatalogReply::Stat(stat) => *stat,
            other => panic!("a stat was answered by {other:?}"),
        }
    }

    pub(crate) fn put_op(&self, uuid: Uuid, key: &str, value: Value) -> CatalogOp {
        let mut pairs = Metadata::new();
        pairs.set(key, value).unwrap();
        CatalogOp::MetaPut { ws: self.ws, uuid, pairs }
    }

    pub(crate) fn get(&self, uuid: Uuid, key: &str) -> Result<Value> {
        match self.ask(CatalogOp::MetaGet { ws: self.ws, uuid, key: key.into() })? {
            CatalogReply::Value(value) => Ok(value),
            other => panic!("a value was answered by {other:?}"),
        }
    }

    /// UUIDs of what matches, sorted.
    pub(crate) fn find(&self, predicate: &str) -> Vec<Uuid> {
        let page = self.page(CatalogOp::Search { ws: self.ws, spec: spec(Some(predicate)) });
        assert_eq!(page.cursor, None, "all in one page");
        let mut found: Vec<Uuid> = page.entries.iter().map(|e| e.uuid).collect();
        found.sort_unstable();
        found
    }

    pub(crate) fn page(&self, op: CatalogOp) -> Page {
        match self.ask(op).unwrap() {
            CatalogReply::Page(page) => page,
            other => panic!("a search was answered by {other:?}"),
        }
    }

    /// Operations on the bytes of a collection, as an engine would do them.
    pub(crate) fn bytes(&self, uuid: Uuid) -> Data {
        Data { heap: self.heap.clone(), uuid, cx: self.cx(), demand: Default::default() }
    }
}

/// The bytes of a collection.
pub(crate) struct Data {
    heap: Arc<dyn Backend>,
    uuid: Uuid,
    cx: OpCx,
    pub(crate) demand: iov_types::Demand,
}

impl Data {
    pub(crate) fn under(mut self, epoch: u64) -> Data {
        self.demand.epoch = epoch;
        self
    }

    pub(crate) fn staged(mut self, stage: Uuid) -> Data {
        self.demand.stage = Some(stage);
        self
    }

    pub(crate) fn write(&self, offset: u64, data: &[u8]) -> Result<iov_types::Evidence> {
        self.run(iov_types::ObjectVerb::Write { offset }, Bytes::From(data)).0
    }

    pub(crate) fn read(&self) -> Result<Vec<u8>> {
        let (result, bytes) = self.run(iov_types::ObjectVerb::Read { offset: 0 }, Bytes::Into(1 << 16));
        result.map(|_| bytes)
    }

    pub(crate) fn exists(&self) -> bool {
        let list = iov_types::ObjectVerb::List { after: None, max: usize::MAX };
        self.run(list, Bytes::None).0.unwrap().objects.contains(&iov_types::Place::FIRST.whole(self.uuid))
    }

    fn run(&self, verb: iov_types::ObjectVerb, bytes: Bytes<'_>) -> (Result<iov_types::Evidence>, Vec<u8>) {
        let object = iov_types::Place::FIRST.whole(self.uuid);
        let op = iov_types::ObjectOp { object, verb, demand: self.demand.clone() };
        run_all(&*self.heap, &self.cx, vec![(op, bytes)]).pop().unwrap()
    }
}

pub(crate) fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

pub(crate) fn exclusive() -> Controls {
    Controls { concurrency: Some(Concurrency::Exclusive), ..Controls::default() }
}

pub(crate) fn immutable() -> Controls {
    Controls { mutability: Some(Mutability::Immutable), ..Controls::default() }
}

pub(crate) fn spec(predicate: Option<&str>) -> SearchSpec {
    SearchSpec {
        predicate: predicate.map(str::to_owned),
        params: Vec::new(),
        group: None,
        deep: true,
        order: None,
        limit: 0,
        keys: Vec::new(),
        count: false,
        names: false,
        page: 1000,
    }
}

pub(crate) fn kind<T: std::fmt::Debug>(result: Result<T>) -> Kind {
    result.unwrap_err().kind()
}

/// An answer that arrives later.
pub(crate) struct Later(mpsc::Receiver<Answer>);

impl Later {
    pub(crate) fn ask(client: &Client, timeout_ns: i64, op: CatalogOp) -> Later {
        let (tell, hear) = mpsc::channel();
        let tell = Mutex::new(tell);
        let cx = OpCx::new(client.caller.clone(), timeout_ns);
        let done = Box::new(move |answer| tell.lock().unwrap().send(answer).unwrap());
        client.service.submit(&cx, vec![op], Submission::Each, done);
        Later(hear)
    }

    /// The reply, if it is there.
    pub(crate) fn reply(&self) -> Option<Result<CatalogReply>> {
        self.0.try_recv().ok().map(|answer| answer.unwrap().pop().unwrap())
    }
}
