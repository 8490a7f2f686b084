//! Workspaces as a submission sees them: those in memory, with its own changes in front.

use std::sync::Arc;

use bytes::Bytes;
use iov_types::{Clause, Error, Name, Result, Right, Rights, Uuid, Which};
use iov_wire::Wire;

use super::{Exec, Undo};
use crate::{
    access, keys,
    record::{Usage, WorkspaceRecord},
};

/// A workspace that the submission has looked at.
#[derive(Clone, Debug)]
pub(crate) struct WorkspaceState {
    pub(crate) uuid: Uuid,
    /// `None`: there is none, or none any more.
    pub(crate) record: Option<Arc<WorkspaceRecord>>,
    pub(crate) usage: Usage,
    pub(crate) rights: Rights,
    /// The record is to replace the one in memory after the commit.
    pub(crate) changed: bool,
    /// Likewise the usage.
    pub(crate) used: bool,
}

fn none() -> Error {
    Error::not_found("there is no workspace of that UUID: it may have been deleted")
}

impl Exec<'_> {
    /// The place of a workspace in `workspaces`, loaded if need be.
    fn workspace_at(&mut self, ws: Uuid) -> usize {
        if let Some(at) = self.workspaces.iter().position(|w| w.uuid == ws) {
            return at;
        }
        let found = self.shared().workspaces.get(ws).cloned();
        let rights = found.as_ref().and_then(|w| access::rights(&w.record, &self.cx.caller));
        let usage = found.as_ref().map(|w| w.usage).unwrap_or_default();
        let record = found.map(|w| w.record);
        self.workspaces.push(WorkspaceState { uuid: ws, record, usage, rights, changed: false, used: false });
        self.workspaces.len() - 1
    }

    /// A workspace in which the caller has a right: its place.
    pub(crate) fn workspace(&mut self, ws: Uuid, right: Right) -> Result<usize> {
        let at = self.workspace_at(ws);
        let state = &self.workspaces[at];
        let record = state.record.as_ref().ok_or_else(none)?;
        access::need(record, state.rights, right)?;
        Ok(at)
    }

    /// The place of a workspace in which the caller has a handle: rights were looked at when it was opened.
    pub(crate) fn workspace_of_handle(&mut self, ws: Uuid) -> Result<usize> {
        let at = self.workspace_at(ws);
        if self.workspaces[at].record.is_some() { Ok(at) } else { Err(none()) }
    }

    /// As [`Exec::workspace`], for changes that an expired workspace does not take.
    pub(crate) fn writable(&mut self, ws: Uuid) -> Result<usize> {
        let at = self.workspace(ws, Right::Write)?;
        if self.is_expired(at) {
            return Err(Error::denied(format!(
                "the workspace {:?} has expired: what is in it can be read and deleted; its owner can extend it",
                self.record(at).name
            ))
            .with_clause(Clause::O1));
        }
        Ok(at)
    }

    /// Whether a workspace has expired.
    pub(crate) fn is_expired(&self, at: usize) -> bool {
        self.record(at).expires_ns <= self.now_ns
    }

    /// Whether the caller has a right.
    pub(crate) fn has_right(&self, at: usize, right: Right) -> bool {
        self.workspaces[at].rights.is_some_and(|has| has as u8 >= right as u8)
    }

    /// The record of a workspace that [`Exec::workspace`] has found.
    pub(crate) fn record(&self, at: usize) -> &Arc<WorkspaceRecord> {
        self.workspaces[at].record.as_ref().expect("looked up by `workspace`, which fails without a record")
    }

    /// The UUID of a workspace by name or UUID.
    pub(crate) fn find_workspace(&mut self, which: &Which) -> Result<Uuid> {
        match which {
            Which::Uuid(uuid) => Ok(*uuid),
            Which::Name(name) => self.workspace_named(name).ok_or_else(|| {
                Error::not_found(format!("there is no workspace {name:?}: create it, or list those there are"))
            }),
        }
    }

    /// The workspace of a name.
    pub(crate) fn workspace_named(&mut self, name: &Name) -> Option<Uuid> {
        let named = |w: &&WorkspaceState| w.record.as_ref().is_some_and(|r| r.name == *name);
        if let Some(state) = self.workspaces.iter().find(named) {
            return Some(state.uuid);
        }
        let uuid = self.shared().workspaces.uuid(name)?;
        // Unless this submission has renamed or deleted it.
        let mine = self.workspaces.iter().any(|w| w.uuid == uuid);
        (!mine).then_some(uuid)
    }

    /// Whether a UUID is a workspace's.
    pub(crate) fn is_workspace(&self, uuid: Uuid) -> bool {
        match self.workspaces.iter().find(|w| w.uuid == uuid) {
            Some(state) => state.record.is_some(),
            None => self.shared().workspaces.get(uuid).is_some(),
        }
    }

    /// Changes, makes or (with `None`) removes a workspace's record.
    pub(crate) fn set_workspace(&mut self, ws: Uuid, record: Option<WorkspaceRecord>) {
        let at = self.workspace_at(ws);
        self.undo.push(Undo::Workspace(at, Box::new(self.workspaces[at].clone())));
        match &record {
            Some(record) => self.put(keys::workspace(ws), Bytes::from(record.to_bytes())),
            None => self.delete(keys::workspace(ws)),
        }
        let rights = record.as_ref().and_then(|r| access::rights(r, &self.cx.caller));
        let state = &mut self.workspaces[at];
        state.rights = rights;
        state.record = record.map(Arc::new);
        state.changed = true;
    }

    /// Counts collections and bytes in or out.
    pub(crate) fn use_more(&mut self, at: usize, collections: i64, bytes: i64) {
        let state = &mut self.workspaces[at];
        self.undo.push(Undo::Usage(at, state.usage));
        state.usage.collections = state.usage.collections.saturating_add_signed(collections);
        state.usage.bytes = state.usage.bytes.saturating_add_signed(bytes);
        state.used = true;
    }

    /// Writes the usage of the workspaces that were used.
    pub(crate) fn put_usage(&mut self) {
        for at in 0..self.workspaces.len() {
            let state = &self.workspaces[at];
            if state.used && state.record.is_some() {
                let (key, value) = (keys::usage(state.uuid), Bytes::from(state.usage.to_bytes()));
                self.put(key, value);
            }
        }
    }
}
