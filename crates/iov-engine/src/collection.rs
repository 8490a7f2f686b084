//! A collection or group handle: pending until the operation that makes it has completed.

use std::sync::{
    Arc, Mutex, OnceLock,
    atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
};

use iov_semantics::Contract;
use iov_store::{Memory, OpCx, Sink, seam};
use iov_types::{
    Capability, Concurrency, Demand, EntryKind, Error, Evidence, Layout, ObjectId, ObjectOp, ObjectVerb, Persistence,
    Place, Point, Range, Result, Stat, Uuid,
    catalog::{CatalogOp, LockSpec, Opened, Published, Submission, Told},
    limits,
};

use crate::{Session, Workspace, session::lock};

mod marks;

/// What is known of a handle once it is open.
pub(crate) struct Ready {
    pub(crate) opened: Opened,
    pub(crate) contract: Arc<Contract>,
}

pub(crate) struct CollectionInner {
    pub(crate) workspace: Workspace,
    kind: EntryKind,
    /// What its open is to tell besides, and what it has told.
    tell: Option<u64>,
    told: Mutex<Option<Box<Told>>>,
    /// Set by a create at once, by a lookup on completion.
    uuid: OnceLock<Uuid>,
    ready: OnceLock<Result<Ready>>,
    /// Where it lies, as soon as that is known.
    place: AtomicU64,
    /// Bytes or length were changed through this handle since it last told the catalog.
    dirty: AtomicBool,
    /// Others write it: nobody knows what they have changed since.
    lent: AtomicBool,
    /// Something was written since the last sync that the contract wants synced.
    changes: AtomicU64,
    /// How many of them are synced.
    synced: AtomicU64,
    /// The stage that collects the changes of `atomicity=publication` until commit or close.
    stage: Mutex<Option<Uuid>>,
    /// A publication has failed, and may have taken effect all the same.
    undecided: AtomicBool,
    /// Its bytes live in the record, as far as the handle knows; once they have moved to a target they stay there.
    inline: AtomicBool,
    /// How often these were changed by it.
    inline_changes: AtomicU32,
    /// Something that may have changed the collection was started with it.
    used: AtomicBool,
    /// A target has acknowledged bytes that were written through it.
    written: AtomicBool,
    /// Why persistence failed once: it stays failed (P8).
    broken: OnceLock<Error>,
    closed: AtomicBool,
    /// The catalog was asked to end the open, so that it must not be asked again.
    returned: AtomicBool,
    /// It was asked to publish besides.
    owed: AtomicBool,
    /// Opened from a record that the session has kept: the catalog does not know of it (M3).
    detached: AtomicBool,
    /// All bytes, which are sealed.
    kept: OnceLock<Arc<[u8]>>,
}

/// A collection or group. Clones are the same handle; any thread, any time.
#[derive(Clone)]
pub struct Collection(pub(crate) Arc<CollectionInner>);

impl Collection {
    pub(crate) fn pending(workspace: &Workspace, kind: EntryKind) -> Collection {
        Collection::new(workspace, kind, None)
    }

    /// The same; with `tell`, whatever opens it is to tell more (see [`Workspace::pending_told`]).
    pub(crate) fn new(workspace: &Workspace, kind: EntryKind, tell: Option<u64>) -> Collection {
        Collection(Arc::new(CollectionInner {
            workspace: workspace.clone(),
            kind,
            tell,
            told: Mutex::default(),
            uuid: OnceLock::new(),
            ready: OnceLock::new(),
            place: AtomicU64::new(Place::FIRST.0),
            dirty: AtomicBool::new(false),
            lent: AtomicBool::new(false),
            changes: AtomicU64::new(0),
            synced: AtomicU64::new(0),
            stage: Mutex::default(),
            undecided: AtomicBool::new(false),
            inline: AtomicBool::new(false),
            inline_changes: AtomicU32::new(0),
            used: AtomicBool::new(false),
            written: AtomicBool::new(false),
            broken: OnceLock::new(),
            closed: AtomicBool::new(false),
            returned: AtomicBool::new(false),
            owed: AtomicBool::new(false),
            detached: AtomicBool::new(false),
            kept: OnceLock::new(),
        }))
    }

    pub(crate) fn tell(&self) -> Option<u64> {
        self.0.tell
    }

    /// What its open has told besides, once: the facts, and the bytes, as of then. `None` where nothing was to be told, or its target
    /// would have had to be asked.
    pub fn take_told(&self) -> Option<Told> {
        lock(&self.0.told).take().map(|told| *told)
    }

    /// The session.
    pub fn session(&self) -> &Session {
        self.0.workspace.session()
    }

    /// The workspace.
    pub fn workspace(&self) -> &Workspace {
        &self.0.workspace
    }

    /// Collection or group.
    pub fn kind(&self) -> EntryKind {
        self.0.kind
    }

    /// Whether the operation that makes it has not completed.
    pub fn is_pending(&self) -> bool {
        self.0.ready.get().is_none()
    }

    /// Its identity; known from the start for what a batch creates.
    pub fn uuid(&self) -> Result<Uuid> {
        match self.0.ready.get() {
            Some(Err(e)) => Err(e.clone()),
            Some(Ok(ready)) => Ok(ready.opened.uuid),
            None => self.0.uuid.get().copied().ok_or_else(pending),
        }
    }

    /// What was granted; `Busy` while it is pending.
    pub fn effective(&self) -> Result<iov_types::Effective> {
        Ok(self.ready()?.contract.effective.clone())
    }

    /// The layout known to the handle.
    pub fn layout(&self) -> Result<Layout> {
        Ok(self.ready()?.opened.layout.clone())
    }

    /// Whether bytes may be changed through it: not of what is sealed, nor without the right to. `false` while it is pending.
    pub fn is_writable(&self) -> bool {
        self.ready().is_ok_and(|ready| ready.opened.writable)
    }

    /// Whether the handle is a group.
    pub fn is_group(&self) -> bool {
        self.0.kind == EntryKind::Group
    }

    /// Fails if the handle is closed, of another process, or of a failed operation.
    pub fn check(&self) -> Result<()> {
        self.session().0.check_fork()?;
        if self.has_ended() {
            return Err(Error::invalid("the collection handle is closed"));
        }
        match self.0.ready.get() {
            Some(Err(e)) => Err(e.clone()),
            _ => Ok(()),
        }
    }

    /// Gives back every lock that this owner has on it, without waiting for the answer.
    pub fn release_locks(&self, owner: u64) {
        let Some(Ok(ready)) = self.0.ready.get() else { return };
        let session = self.session();
        if session.0.check_fork().is_err() {
            return;
        }
        let range = Range { offset: 0, len: 0 };
        let lock = LockSpec { exclusive: true, try_only: true, range, owner, lease_ns: limits::LEASE_NS };
        let unlock = CatalogOp::Unlock { ws: ready.opened.ws, uuid: ready.opened.uuid, lock };
        let cx = session.cx(1_000_000_000);
        session.0.sides.catalog.submit(&cx, vec![unlock], Submission::Each, Box::new(|_| {}));
    }

    /// Marks the handle closed: from now on every use fails. `false` if it was already.
    pub fn end(&self) -> bool {
        !self.0.closed.swap(true, Ordering::Relaxed)
    }

    /// Closes the handle without waiting, where nobody has to hear how that ends: what was changed through it is published, nothing
    /// is to persist with its close, and nobody waits for it to be closed, as for what is opened exclusively. `false`: it is still
    /// open, and [`crate::Op::Close`] closes it. Nothing that was started with it may be under way.
    pub fn close_unheard(&self) -> bool {
        let Ok(ready) = self.ready() else { return false };
        let effective = &ready.contract.effective;
        let persists = effective.point == Point::Close && ready.contract.durability >= Persistence::Durable;
        let owes = self.is_dirty() || self.has_stage() || self.broken().is_err() || (persists && self.was_used());
        if owes || effective.concurrency == Concurrency::Exclusive || self.check().is_err() || !self.end() {
            return false;
        }
        if !self.is_detached() {
            let session = self.session();
            if self.was_used() && !self.is_inline() {
                session.0.sides.backend.closed(self.place().whole(ready.opened.uuid));
            }
            self.mark_returned();
            let close = CatalogOp::Close { ws: ready.opened.ws, uuid: ready.opened.uuid, published: None };
            let cx = session.cx(0).unheard();
            session.0.sides.catalog.submit(&cx, vec![close], Submission::Each, Box::new(|_| {}));
        }
        true
    }

    /// Whether it was closed.
    pub(crate) fn has_ended(&self) -> bool {
        self.0.closed.load(Ordering::Relaxed)
    }

    /// Why the operation that should have made it failed.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.0.ready.get()?.as_ref().err().cloned()
    }

    pub(crate) fn ready(&self) -> Result<&Ready> {
        match self.0.ready.get() {
            Some(Ok(ready)) => Ok(ready),
            Some(Err(e)) => Err(e.clone()),
            None => Err(pending()),
        }
    }

    pub(crate) fn choose_uuid(&self, uuid: Uuid) -> Uuid {
        *self.0.uuid.get_or_init(|| uuid)
    }

    pub(crate) fn fulfil(&self, opened: Result<Opened>) -> Result<()> {
        let ready = opened.and_then(|mut opened| {
            *lock(&self.0.told) = opened.told.take();
            self.choose_place(opened.layout.place);
            // The catalog has let the layout pass.
            let contract =
                iov_semantics::admit(&opened.effective, None, &self.capability()).map_err(|refusal| refusal.error)?;
            Ok(Ready { opened, contract: Arc::new(contract) })
        });
        if let Ok(ready) = &ready {
            self.0.inline.store(ready.opened.inline && !ready.contract.staged, Ordering::Relaxed);
        }
        let result = ready.as_ref().map(drop).map_err(Clone::clone);
        // A handle is the result of one operation; a second answer would be a defect and changes nothing.
        let _ = self.0.ready.set(ready);
        result
    }

    /// It was not made, as this has its name.
    pub(crate) fn found(&self, stat: Stat, e: Error) {
        *lock(&self.0.told) = Some(Box::new(Told { stat, bytes: None, group: None, may_keep: false }));
        let _ = self.fulfil(Err(e));
    }

    /// Opens it from a record that the session has kept (M3): there is no open in the catalog to be ended.
    pub(crate) fn fulfil_from_record(&self, opened: Opened, bytes: Option<Arc<[u8]>>) -> Result<()> {
        self.0.detached.store(true, Ordering::Relaxed);
        self.mark_returned();
        if let Some(bytes) = bytes {
            let _ = self.0.kept.set(bytes);
        }
        let (ws, uuid, detached) = (opened.ws, opened.uuid, &self.session().0.detached);
        detached.add(ws, uuid, &self.0);
        self.fulfil(Ok(opened)).inspect_err(|_| detached.remove(ws, uuid, &self.0))
    }

    /// Whether the catalog does not know that it is open.
    pub(crate) fn is_detached(&self) -> bool {
        self.0.detached.load(Ordering::Relaxed)
    }

    /// The catalog has opened it after all; `false` if it had before, so that this open is one too many.
    pub(crate) fn attach(&self) -> bool {
        let first = self.0.detached.swap(false, Ordering::Relaxed);
        if first {
            self.mark_kept();
            self.forget_detached();
        }
        first
    }

    /// Nobody has to open it in the catalog for its bytes to stay: it is open there, or they are gone.
    pub(crate) fn forget_detached(&self) {
        self.0.forget_detached();
    }

    /// All bytes of a sealed collection, where they are known.
    pub(crate) fn kept(&self) -> Option<&Arc<[u8]>> {
        self.0.kept.get()
    }

    /// These are they.
    pub(crate) fn keep(&self, bytes: Arc<[u8]>) {
        let _ = self.0.kept.set(bytes);
    }

    pub(crate) fn object(&self) -> Result<ObjectId> {
        Ok(self.place().whole(self.uuid()?))
    }

    /// Where it lies.
    pub(crate) fn place(&self) -> Place {
        Place(self.0.place.load(Ordering::Relaxed))
    }

    /// It lies there.
    pub(crate) fn choose_place(&self, place: Place) {
        self.0.place.store(place.0, Ordering::Relaxed);
    }

    /// What the targets can do on which it lies.
    pub(crate) fn capability(&self) -> Capability {
        let (session, place) = (self.session(), self.place());
        if place.is_first() && session.capability().targets <= 1 {
            return session.capability().clone();
        }
        session.0.sides.backend.capability_of(place.whole(Uuid::NIL))
    }

    /// What every access through this handle demands of a target.
    pub(crate) fn demand_for(&self, opened: &Opened, contract: &Contract, changes: bool) -> Result<Demand> {
        let sync_each = changes
            && contract.durability >= Persistence::Durable
            && contract.effective.point == Point::Request
            && !contract.staged;
        Ok(Demand {
            stage: lock(&self.0.stage).filter(|_| contract.staged),
            batch: None,
            epoch: opened.epoch,
            durability: sync_each.then_some(contract.durability),
            unit: contract.unit,
            max_size: contract.max_size,
            once: contract.once,
            pattern: Some(contract.effective.spatiality).filter(|s| !changes && *s != iov_types::Spatiality::Any),
            // Whoever publishes for several targets at once has to name the workspace.
            domain: (changes && !self.place().is_first()).then_some(opened.ws),
        })
    }

    /// Starts a stage if the contract wants one and none is open.
    pub(crate) fn open_stage(&self, contract: &Contract) {
        if contract.staged {
            lock(&self.0.stage).get_or_insert_with(seam::new_uuid);
        }
    }

    /// Takes the stage, to publish or drop it.
    pub(crate) fn take_stage(&self) -> Option<Uuid> {
        lock(&self.0.stage).take()
    }

    /// Its publication has failed, so that it can be tried again. A newer stage keeps its place.
    pub(crate) fn put_stage_back(&self, stage: Uuid) {
        self.0.undecided.store(true, Ordering::Relaxed);
        lock(&self.0.stage).get_or_insert(stage);
    }

    pub(crate) fn has_stage(&self) -> bool {
        lock(&self.0.stage).is_some()
    }
}

pub(crate) fn pending() -> Error {
    Error::busy("the handle is pending: it can be used outside its batch once that has completed")
}

/// Takes evidence that nobody waits for.
struct Ignore;

impl Sink for Ignore {
    fn complete(&self, _: usize, _: Result<Evidence>) {}
}

impl CollectionInner {
    fn forget_detached(&self) {
        if let Some(Ok(ready)) = self.ready.get() {
            self.workspace.session().0.detached.remove(ready.opened.ws, ready.opened.uuid, self);
        }
    }
}

impl Drop for CollectionInner {
    /// A handle that was dropped instead of closed, or whose close was skipped, gives back its open; changes that
    /// `atomicity=publication` had not published are dropped.
    fn drop(&mut self) {
        let session = self.workspace.session();
        let Some(Ok(ready)) = self.ready.get() else { return };
        if session.0.check_fork().is_err() {
            return;
        }
        if self.detached.load(Ordering::Relaxed) {
            self.forget_detached();
        }
        if self.returned.load(Ordering::Relaxed) {
            return;
        }
        let cx: OpCx = session.cx(1_000_000_000);
        // What may be committed is not dropped here: the store does that with the session, if it is not.
        if let Some(stage) = lock(&self.stage).take().filter(|_| !self.undecided.load(Ordering::Relaxed)) {
            let object = ready.opened.layout.place.whole(ready.opened.uuid);
            let op = ObjectOp { object, verb: ObjectVerb::Discard { stage }, demand: Demand::default() };
            // Nobody is there to hear of a failure, or to receive the answer: the target drops stages of dead sessions
            // by itself.
            session.0.sides.backend.submit(&cx, vec![(op, Memory::default())], Arc::new(Ignore));
        }
        let changed = self.dirty.load(Ordering::Relaxed) || self.lent.load(Ordering::Relaxed);
        let published = changed.then(Published::default);
        let close = CatalogOp::Close { ws: ready.opened.ws, uuid: ready.opened.uuid, published };
        session.0.sides.catalog.submit(&cx, vec![close], Submission::Each, Box::new(|_| {}));
    }
}
