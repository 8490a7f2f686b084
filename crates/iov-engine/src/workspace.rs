//! A workspace handle.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, RwLock,
        atomic::{AtomicBool, Ordering},
    },
};

use iov_types::{
    Controls, EntryKind, Error, Layout, Name, ObjectId, Result, Uuid, Which,
    catalog::{CatalogReply, OpenedWorkspace},
};

use crate::{Collection, Session, session::lock};

/// Changes that are to be synced yet.
#[derive(Default)]
struct Unsynced {
    /// How many changes there have been.
    changes: u64,
    /// The objects, and by which of them each was changed last.
    objects: HashMap<ObjectId, u64>,
}

pub(crate) struct WorkspaceInner {
    pub(crate) session: Session,
    opened: RwLock<OpenedWorkspace>,
    uuid: Uuid,
    closed: AtomicBool,
    /// Collections whose bytes this session changed under a durable level and has not synced since.
    unsynced: Mutex<Unsynced>,
}

/// An open workspace. Clones are the same handle; any thread, any time.
#[derive(Clone)]
pub struct Workspace(pub(crate) Arc<WorkspaceInner>);

impl Workspace {
    pub(crate) fn from_reply(session: &Session, reply: CatalogReply) -> Result<Workspace> {
        match reply {
            CatalogReply::Workspace(opened) => Ok(Workspace(Arc::new(WorkspaceInner {
                session: session.clone(),
                uuid: opened.uuid,
                opened: RwLock::new(*opened),
                closed: AtomicBool::new(false),
                unsynced: Mutex::default(),
            }))),
            _ => Err(Error::internal("a workspace was not answered by one")),
        }
    }

    /// The session.
    pub fn session(&self) -> &Session {
        &self.0.session
    }

    /// Its identity.
    pub fn uuid(&self) -> Uuid {
        self.0.uuid
    }

    /// Its name when it was opened.
    pub fn name(&self) -> Name {
        self.read().name.clone()
    }

    /// Default controls of what is created in it.
    pub fn defaults(&self) -> Controls {
        self.read().controls.clone()
    }

    /// Default layout of what is created in it, when it was opened.
    pub fn layout(&self) -> Option<Layout> {
        self.read().layout.clone()
    }

    /// Whether the caller may change what is in it.
    pub fn writable(&self) -> bool {
        self.read().writable
    }

    /// Metadata keys of which an index was kept when it was opened, or set through this handle (O5).
    pub fn indexes(&self) -> Vec<String> {
        self.read().indexes.clone()
    }

    pub(crate) fn set_defaults(&self, controls: Controls, indexes: Vec<String>) {
        let mut opened = self.0.opened.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        (opened.controls, opened.indexes) = (controls, indexes);
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, OpenedWorkspace> {
        self.0.opened.read().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub(crate) fn note_unsynced(&self, object: ObjectId) {
        let mut unsynced = lock(&self.0.unsynced);
        unsynced.changes += 1;
        let now = unsynced.changes;
        unsynced.objects.insert(object, now);
    }

    /// An object is synced as it was so many changes of any in: what came since is not.
    pub(crate) fn note_synced(&self, object: ObjectId, changes: u64) {
        let objects = &mut lock(&self.0.unsynced).objects;
        if objects.get(&object).is_some_and(|changed| *changed <= changes) {
            objects.remove(&object);
        }
    }

    /// What a persist of the workspace must sync, and how many changes there have been.
    pub(crate) fn unsynced(&self) -> (Vec<ObjectId>, u64) {
        let unsynced = lock(&self.0.unsynced);
        (unsynced.objects.keys().copied().collect(), unsynced.changes)
    }

    /// How many changes there have been.
    pub(crate) fn changes(&self) -> u64 {
        lock(&self.0.unsynced).changes
    }

    /// Ends the handle, not the workspace.
    pub fn close(&self) {
        self.0.closed.store(true, Ordering::Relaxed);
    }

    /// Fails after close, and in a forked child.
    pub fn check(&self) -> Result<()> {
        self.0.session.0.check_fork()?;
        if self.0.closed.load(Ordering::Relaxed) {
            return Err(Error::invalid("the workspace handle is closed"));
        }
        Ok(())
    }

    /// A pending handle for a collection or group of it, to be the `out` of a create or lookup.
    pub fn pending(&self, kind: EntryKind) -> Collection {
        Collection::pending(self, kind)
    }

    /// The same, for an open of a collection that is to tell its facts as well, and its bytes if the catalog has them and they are no more
    /// than so many: [`Collection::take_told`] gives them. It saves who looks and reads at once two questions.
    pub fn pending_told(&self, bytes: u64) -> Collection {
        Collection::new(self, EntryKind::Collection, Some(bytes))
    }

    /// The same, for a create that is to give it an identity that it had elsewhere. A store takes one that nothing in it has.
    pub fn pending_as(&self, kind: EntryKind, uuid: Uuid) -> Collection {
        let out = self.pending(kind);
        out.choose_uuid(uuid);
        out
    }

    /// The same, to tell the facts of what was made, and of the group it is in as it then is; where the name is taken, which is `Exists`, the
    /// facts of what that stands for.
    pub fn pending_as_told(&self, kind: EntryKind, uuid: Uuid) -> Collection {
        let out = Collection::new(self, kind, Some(0));
        out.choose_uuid(uuid);
        out
    }

    /// A handle that names something without opening it. By it facts, metadata, names and attributes are asked for and changed,
    /// and what is in a group is found and made; bytes are `Busy`. It need not be closed.
    pub fn unopened(&self, kind: EntryKind, uuid: Uuid) -> Collection {
        self.pending_as(kind, uuid)
    }

    /// Reads a name or UUID.
    pub fn which(text: impl AsRef<[u8]>) -> Result<Which> {
        Which::parse(text)
    }
}
