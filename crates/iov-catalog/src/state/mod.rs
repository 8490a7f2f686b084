//! What the catalog keeps in memory: workspaces, who has what open, who holds what.

mod hot;
mod opens;
mod sessions;
mod touched;

pub(crate) use hot::{Hot, HotFacts};
pub(crate) use opens::{Ended, Entry, Hold, Opens, Slot, Writers};
pub(crate) use sessions::Sessions;
pub(crate) use touched::{Touch, Touched};

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use iov_store::{KeyRange, MetadataStore};
use iov_types::{Error, Name, Result, Uuid};
use iov_wire::Wire;

use crate::{
    hash::Seeded,
    keys,
    record::{Usage, WorkspaceRecord},
};

/// Workspaces read from the store at a time.
const PAGE: usize = 1024;

/// A workspace in memory.
#[derive(Clone, Debug)]
pub(crate) struct Workspace {
    pub(crate) record: Arc<WorkspaceRecord>,
    pub(crate) usage: Usage,
}

/// Every workspace, by UUID and by name.
#[derive(Default, Debug)]
pub(crate) struct Workspaces {
    all: HashMap<Uuid, Workspace, Seeded>,
    by_name: HashMap<Name, Uuid, Seeded>,
}

impl Workspaces {
    /// Reads them all from the store.
    pub(crate) fn load(store: &dyn MetadataStore) -> Result<Workspaces> {
        let mut found = Workspaces::default();
        let mut after: Option<Vec<u8>> = None;
        loop {
            let page = store.scan(&KeyRange::prefix(keys::WORKSPACE), after.as_deref(), PAGE)?;
            let Some((last, _)) = page.last() else { return Ok(found) };
            after = Some(last.to_vec());
            for (key, value) in page {
                let uuid = keys::uuid_at(&key, 1)?;
                let record = WorkspaceRecord::decode(&value.value)?;
                let usage = match store.get(&[&keys::usage(uuid)])?.pop().flatten() {
                    Some(value) => Usage::decode(&value.value)?,
                    None => Usage::default(),
                };
                if found.uuid(&record.name).is_some() {
                    return Err(Error::corrupt(format!(
                        "two workspaces are called {:?}: check the store",
                        record.name
                    )));
                }
                found.set(uuid, Some(Workspace { record: Arc::new(record), usage }));
            }
        }
    }

    /// One of them.
    pub(crate) fn get(&self, uuid: Uuid) -> Option<&Workspace> {
        self.all.get(&uuid)
    }

    /// The UUID behind a name.
    pub(crate) fn uuid(&self, name: &Name) -> Option<Uuid> {
        self.by_name.get(name).copied()
    }

    /// All UUIDs.
    pub(crate) fn uuids(&self) -> impl Iterator<Item = Uuid> + '_ {
        self.all.keys().copied()
    }

    /// Puts a workspace in place of what was there, or takes it away.
    pub(crate) fn set(&mut self, uuid: Uuid, workspace: Option<Workspace>) {
        if let Some(before) = self.all.get(&uuid)
            && workspace.as_ref().is_none_or(|w| w.record.name != before.record.name)
        {
            // Another one may have taken the name over in the same submission.
            if self.by_name.get(&before.record.name) == Some(&uuid) {
                self.by_name.remove(&before.record.name);
            }
        }
        match workspace {
            Some(workspace) => {
                if self.by_name.get(&workspace.record.name) != Some(&uuid) {
                    self.by_name.insert(workspace.record.name.clone(), uuid);
                }
                self.all.insert(uuid, workspace);
            }
            None => drop(self.all.remove(&uuid)),
        }
    }
}

/// Most groups whose number of members is remembered.
const MEMBERS: usize = 1 << 16;

/// Numbers of members of groups that somebody asked for, kept up from then on.
#[derive(Default, Debug)]
pub(crate) struct Members(HashMap<Uuid, u64, Seeded>);

impl Members {
    /// What is remembered of a group; the root has the workspace's UUID.
    pub(crate) fn get(&self, group: Uuid) -> Option<u64> {
        self.0.get(&group).copied()
    }

    /// Remembers a number, or forgets it.
    pub(crate) fn set(&mut self, group: Uuid, members: Option<u64>) {
        match members {
            None => drop(self.0.remove(&group)),
            Some(n) => {
                if self.0.len() >= MEMBERS {
                    self.0.clear();
                }
                self.0.insert(group, n);
            }
        }
    }

    /// Whether nothing is remembered.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

/// Everything that readers look at without holding up writers. Only the writer changes it.
#[derive(Default, Debug)]
pub(crate) struct Shared {
    pub(crate) workspaces: Workspaces,
    pub(crate) opens: Opens,
    pub(crate) members: Members,
    pub(crate) touched: Touched,
    pub(crate) hot: Hot,
    /// Grows with each commit: what was read from the store before one must not be kept after it.
    pub(crate) commits: u64,
    /// Objects whose records are gone and which a target may still have.
    pub(crate) being_removed: HashSet<Uuid, Seeded>,
    /// Holds that have ended while sessions of the catalog before could come back.
    pub(crate) ended: BTreeMap<Uuid, Ended>,
}

impl Shared {
    /// Takes note of how holds have ended, or that they go on.
    pub(crate) fn end_holds(&mut self, holds: impl Iterator<Item = (Uuid, Option<Ended>)>) {
        for (key, ended) in holds {
            match ended {
                Some(ended) => drop(self.ended.insert(key, ended)),
                None => drop(self.ended.remove(&key)),
            }
        }
    }

    /// Of holds that have ended only such matter that are still to seal something.
    pub(crate) fn nobody_comes_back(&mut self) {
        self.ended.retain(|_, ended| matches!(ended, Ended::Here(_, hold) if hold.to_seal));
    }

    /// Whether an identity cannot be used yet, because its object is still to be removed.
    pub(crate) fn is_being_removed(&self, uuid: Uuid) -> bool {
        !self.being_removed.is_empty() && self.being_removed.contains(&uuid)
    }
}
