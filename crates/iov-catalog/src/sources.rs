//! The records as a search sees them: collections and groups of a workspace, and the workspaces of a store.

use std::{
    cell::OnceCell,
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
};

use iov_store::{OpCx, Record as Stored, Snapshot};
use iov_types::{Caller, Consistency, EntryKind, Error, Kind, Metadata, Name, Result, Right, State, Uuid, Value};
use iov_wire::Wire;

use crate::{
    access,
    core::Core,
    exec::{Exec, facts::Live},
    keys,
    predicate::{Facts, SystemKey},
    record::{Record, Usage, WorkspaceRecord},
    search::{Found, Source},
    system,
};

/// Most collections open for writing that a search notes at its start.
const NOTED: usize = 4096;

/// The collections and groups of a workspace.
pub(crate) struct Collections {
    looks: Arc<Looks>,
    ws: Uuid,
    indexes: Vec<String>,
    /// The caller sees what others left unsealed.
    admin: bool,
}

/// How what is fresher than a record is had.
struct Looks {
    core: Arc<Core>,
    cx: OpCx,
    /// The batch that searches: it sees what it has staged (O9).
    stage: Option<Uuid>,
    /// Collections that were open for writing when the snapshot was taken: their records there are behind, also once
    /// they are closed.
    behind: HashSet<Uuid>,
    /// Why a fact could not be had that was asked for.
    failed: Mutex<Option<Error>>,
}

impl Collections {
    /// Those of a workspace that the caller may look into. To be made before the snapshot is taken.
    pub(crate) fn new(x: &Exec<'_>, at: usize) -> Collections {
        let ws = x.workspaces[at].uuid;
        let shared = x.shared();
        let written = shared.opens.iter().filter(|(_, e)| e.may_be_ahead() && e.ws == ws).map(|(uuid, _)| uuid);
        let looks = Looks {
            core: x.core.clone(),
            cx: x.cx.clone(),
            stage: x.stage,
            behind: written.take(NOTED).collect(),
            failed: Mutex::default(),
        };
        let (indexes, admin) = (x.record(at).indexes.clone(), x.has_right(at, Right::Admin));
        Collections { looks: Arc::new(looks), ws, indexes, admin }
    }

    /// Leaves out indexes that are not declared any more in the snapshot that is searched: they have no entries there.
    pub(crate) fn limit_indexes(&mut self, snapshot: &dyn Snapshot) -> Result<()> {
        if !self.indexes.is_empty()
            && let Some(stored) = snapshot.get(&[&keys::workspace(self.ws)])?.pop().flatten()
        {
            let declared = WorkspaceRecord::decode(&stored.value)?.indexes;
            self.indexes.retain(|key| declared.contains(key));
        }
        Ok(())
    }
}

impl Looks {
    /// Length and times now, of what somebody may be writing; search sees them at most a second late where the collection
    /// is `sequential`, else as of the last publication (C7).
    fn live(&self, uuid: Uuid, record: &Record) -> Live {
        let mut recorded = Live::of(record);
        if record.kind == EntryKind::Group
            && let Some(at_ns) = self.core.shared().touched.get(uuid)
        {
            recorded.mtime_ns = at_ns;
        }
        let fresh = record.kind == EntryKind::Collection
            && record.state != State::Sealed
            && record.effective.consistency == Consistency::Sequential
            && ((!record.inline && self.core.has_crashed(record.opened_in))
                || self.behind.contains(&uuid)
                || self.core.shared().opens.get(uuid).is_some_and(|e| e.may_be_ahead()));
        if !fresh {
            return recorded;
        }
        match self.core.targets().stat(&self.cx, record.whole(uuid), self.stage) {
            Ok(found) => recorded.with(&found, record.mtime(found.mtime_ns)),
            // What is damaged is told to whoever uses it. It must not hide all others, nor itself from who removes it.
            Err(e) if matches!(e.kind(), Kind::NotFound | Kind::Corrupt | Kind::Lost) => recorded,
            Err(e) => {
                self.failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(e);
                recorded
            }
        }
    }
}

impl Source for Collections {
    fn record_prefix(&self) -> Vec<u8> {
        keys::records(self.ws)
    }

    fn name_prefix(&self, group: Uuid) -> Option<Vec<u8>> {
        Some(keys::names(self.ws, group))
    }

    fn workspace(&self) -> Uuid {
        self.ws
    }

    fn indexes(&self) -> &[String] {
        &self.indexes
    }

    fn decode(&self, uuid: Uuid, stored: &Stored) -> Result<Option<Box<dyn Found>>> {
        let mut record = Record::parse(&stored.value)?;
        let hidden = record.abandoned_ns != 0 && record.uid != self.looks.cx.caller.uid && !self.admin;
        if record.deleted || hidden {
            return Ok(None);
        }
        let metadata = record.pairs()?;
        let names = std::mem::take(&mut record.names).into_iter().map(|n| (n.parent, n.name)).collect();
        let (looks, live) = (self.looks.clone(), OnceCell::new());
        Ok(Some(Box::new(FoundRecord { uuid, record, looks, live, metadata, names })))
    }

    fn check(&self) -> Result<()> {
        let failed = self.looks.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.clone().map_or(Ok(()), Err)
    }
}

struct FoundRecord {
    uuid: Uuid,
    record: Record,
    looks: Arc<Looks>,
    /// Asked for when somebody wants to know: a target that is away hides no names.
    live: OnceCell<Live>,
    metadata: Metadata,
    names: Vec<(Uuid, Name)>,
}

impl Facts for FoundRecord {
    fn user(&self, key: &str) -> Option<&Value> {
        self.metadata.get(key)
    }

    fn system(&self, key: SystemKey) -> Option<Value> {
        let live = match key {
            SystemKey::Size | SystemKey::Mtime => *self.live.get_or_init(|| self.looks.live(self.uuid, &self.record)),
            _ => Live::of(&self.record),
        };
        system::of_record(self.uuid, &self.record, &live, key)
    }

    fn names(&self) -> &[(Uuid, Name)] {
        &self.names
    }
}

impl Found for FoundRecord {
    fn kind(&self) -> EntryKind {
        self.record.kind
    }

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }
}

/// The workspaces that a caller may see (A1).
pub(crate) struct Workspaces {
    core: Arc<Core>,
    caller: Caller,
}

impl Workspaces {
    pub(crate) fn new(core: &Arc<Core>, caller: &Caller) -> Workspaces {
        Workspaces { core: core.clone(), caller: caller.clone() }
    }
}

impl Source for Workspaces {
    fn record_prefix(&self) -> Vec<u8> {
        keys::WORKSPACE.to_vec()
    }

    fn name_prefix(&self, _: Uuid) -> Option<Vec<u8>> {
        None
    }

    fn workspace(&self) -> Uuid {
        Uuid::NIL
    }

    fn indexes(&self) -> &[String] {
        &[]
    }

    fn decode(&self, uuid: Uuid, stored: &Stored) -> Result<Option<Box<dyn Found>>> {
        let record = WorkspaceRecord::decode(&stored.value)?;
        let rights = access::rights(&record, &self.caller);
        if access::need(&record, rights, Right::Read).is_err() {
            return Ok(None);
        }
        let usage = self.core.shared().workspaces.get(uuid).map(|w| w.usage).unwrap_or_default();
        let names = [(Uuid::NIL, record.name.clone())];
        Ok(Some(Box::new(FoundWorkspace { uuid, record, usage, names })))
    }
}

struct FoundWorkspace {
    uuid: Uuid,
    record: WorkspaceRecord,
    usage: Usage,
    names: [(Uuid, Name); 1],
}

impl Facts for FoundWorkspace {
    fn user(&self, key: &str) -> Option<&Value> {
        self.record.metadata.get(key)
    }

    fn system(&self, key: SystemKey) -> Option<Value> {
        system::of_workspace(self.uuid, &self.record, self.usage, EntryKind::Workspace, key)
    }

    fn names(&self) -> &[(Uuid, Name)] {
        &self.names
    }
}

impl Found for FoundWorkspace {
    fn kind(&self) -> EntryKind {
        EntryKind::Workspace
    }

    fn metadata(&self) -> &Metadata {
        &self.record.metadata
    }
}
