//! From operations to catalog operations, and from replies to statuses.

use iov_types::{
    Attr, Clause, Concurrency, Controls, Error, Kind, Layout, Outcome, Result,
    catalog::{CatalogOp, CatalogReply},
};

use super::Exec;
use crate::{
    Collection, Op,
    op::{Output, Status, parent_uuid},
};

/// What later operations of the batch say about a collection that it creates: it is born like that.
#[derive(Default)]
pub(super) struct Birth {
    pub(super) controls: Option<Controls>,
    pub(super) layout: Option<Layout>,
    pub(super) attr: Attr,
}

fn ids(c: &Collection) -> Result<(iov_types::Uuid, iov_types::Uuid)> {
    Ok((c.workspace().uuid(), c.uuid()?))
}

impl Exec {
    /// The operation for the catalog; `None` where the catalog has nothing to do for it.
    pub(super) fn catalog_op(&self, i: usize) -> Result<Option<CatalogOp>> {
        let op = self.any_catalog_op(i)?;
        self.check_attached(i)?;
        Ok(op)
    }

    fn any_catalog_op(&self, i: usize) -> Result<Option<CatalogOp>> {
        let op = &self.ops[i];
        if let Some(c) = op.handle() {
            self.check_handle(c)?;
        }
        for group in op.parents() {
            self.check_handle(group)?;
            if !group.is_group() {
                return Err(Error::invalid("the parent is a collection, not a group"));
            }
        }
        let changes = !matches!(
            op,
            Op::Open { .. }
                | Op::Search { .. }
                | Op::Stat { .. }
                | Op::Look { .. }
                | Op::MetaGet { .. }
                | Op::MetaList { .. }
                | Op::LockQuery { .. }
                | Op::WorkspaceStat { .. }
                | Op::WorkspaceCommit { .. }
                | Op::Close { .. }
                | Op::Lock { .. }
                | Op::Unlock { .. }
        );
        if changes {
            self.session.refuse_if_readonly()?;
        }
        Ok(Some(match op {
            Op::Create { out, parent, name, metadata, controls } => {
                let birth = self.births.get(&i);
                // What `set` says of it in the same batch comes later, so it wins.
                let mut asked = birth.and_then(|b| b.controls.clone()).unwrap_or_default();
                iov_semantics::fill(&mut asked, controls);
                CatalogOp::Create {
                    ws: out.workspace().uuid(),
                    uuid: out.uuid()?,
                    kind: out.kind(),
                    parent: parent_uuid(parent)?,
                    name: name.clone(),
                    metadata: metadata.clone(),
                    controls: asked,
                    layout: birth.and_then(|b| b.layout.clone()),
                    attr: birth.map(|b| b.attr.clone()).unwrap_or_default(),
                    // Where something waits for its success, a name that is taken is a failure.
                    tell: out.tell().is_some() && self.apart,
                }
            }
            Op::Set { .. } | Op::SetAttr { .. } if self.born_with.contains_key(&i) => return Ok(None),
            Op::Open { out, parent, which, controls } => CatalogOp::Open {
                ws: out.workspace().uuid(),
                parent: parent_uuid(parent)?,
                which: which.clone(),
                kind: out.kind(),
                controls: controls.clone(),
                tell: out.tell(),
            },
            Op::Search { w, group, spec, .. } => {
                let mut spec = spec.clone();
                spec.group = group.as_ref().map(|g| g.uuid()).transpose()?.or(spec.group);
                spec.page = crate::cursor::first_page(spec.limit);
                CatalogOp::Search { ws: w.uuid(), spec }
            }
            Op::Delete { w, parent, which } => {
                CatalogOp::Delete { ws: w.uuid(), parent: parent_uuid(parent)?, which: which.clone() }
            }
            Op::Unlink { w, parent, name, group } => {
                CatalogOp::Unlink { ws: w.uuid(), parent: parent_uuid(parent)?, name: name.clone(), group: *group }
            }
            Op::Discard { w, uuid } => CatalogOp::Discard { ws: w.uuid(), uuid: *uuid },
            Op::Look { w, parent, which, ahead, tell } => {
                let (parent, which) = (parent_uuid(parent)?, which.clone());
                CatalogOp::Look { ws: w.uuid(), parent, which, ahead: *ahead, tell: *tell }
            }
            Op::Rename { w, from_parent, from, to_parent, to, mode } => CatalogOp::Rename {
                ws: w.uuid(),
                from_parent: parent_uuid(from_parent)?,
                from: from.clone(),
                to_parent: parent_uuid(to_parent)?,
                to: to.clone(),
                mode: *mode,
            },
            Op::WorkspaceStat { w } => CatalogOp::WorkspaceStat { ws: w.uuid() },
            Op::WorkspaceSet { w, attr } => CatalogOp::WorkspaceSet { ws: w.uuid(), attr: attr.clone() },
            Op::WorkspaceRename { w, name } => CatalogOp::WorkspaceRename { ws: w.uuid(), name: name.clone() },
            // Creates, deletes, renames and puts are published when their batch completes, at every level: stronger than
            // the weak ones ask (C7). What this session has not told the catalog yet, there is none of.
            Op::WorkspaceCommit { w } => {
                w.check()?;
                return Ok(None);
            }
            Op::WorkspacePersist { w } => {
                CatalogOp::WorkspacePersist { ws: w.uuid(), durable: self.store_is_durable() }
            }
            _ => return self.collection_op(op),
        }))
    }

    fn collection_op(&self, op: &Op) -> Result<Option<CatalogOp>> {
        let Some(c) = op.handle() else { return Ok(None) };
        let (ws, uuid) = ids(c)?;
        Ok(Some(match op {
            Op::Stat { .. } => CatalogOp::Stat { ws, uuid },
            Op::Set { controls, layout, .. } => {
                CatalogOp::Set { ws, uuid, controls: controls.clone(), layout: layout.clone() }
            }
            Op::SetAttr { attr, .. } => CatalogOp::SetAttr { ws, uuid, attr: attr.clone() },
            Op::Link { parent, name, .. } => {
                CatalogOp::Link { ws, uuid, parent: parent_uuid(parent)?, name: name.clone() }
            }
            Op::MetaGet { key, .. } => CatalogOp::MetaGet { ws, uuid, key: key.clone() },
            Op::MetaPut { pairs, .. } => CatalogOp::MetaPut { ws, uuid, pairs: pairs.clone() },
            Op::MetaRemove { key, .. } => CatalogOp::MetaRemove { ws, uuid, key: key.clone() },
            Op::MetaList { .. } => CatalogOp::MetaList { ws, uuid },
            Op::Lock { lock, .. } => CatalogOp::Lock { ws, uuid, lock: lock.clone() },
            Op::Unlock { lock, .. } => CatalogOp::Unlock { ws, uuid, lock: lock.clone() },
            Op::LockQuery { lock, .. } => CatalogOp::LockQuery { ws, uuid, lock: lock.clone() },
            Op::Commit { .. } | Op::Persist { .. } => match c.published() {
                Some(published) => CatalogOp::Publish { ws, uuid, published },
                None => return Ok(None),
            },
            Op::Seal { .. } => CatalogOp::Seal { ws, uuid, published: Default::default() },
            // The catalog does not know that it is open (M3).
            Op::Close { .. } if c.is_detached() => return Ok(None),
            Op::Close { .. } => CatalogOp::Close { ws, uuid, published: c.published() },
            _ => return Ok(None),
        }))
    }

    /// The catalog is asked to publish or to close: what a handle had to tell it, it has told.
    pub(super) fn telling_catalog(&self, i: usize) {
        match &self.ops[i] {
            Op::Commit { c } | Op::Persist { c } | Op::Seal { c } => c.mark_published(),
            Op::Close { c } => {
                c.mark_closing();
                if c.was_used()
                    && let Ok(object) = c.object()
                {
                    // Before the catalog hears of it: it then knows what space the collection takes.
                    self.session.0.sides.backend.closed(object);
                }
            }
            _ => {}
        }
    }

    /// It was asked, but had stopped before (B2).
    pub(super) fn not_started(&self, i: usize) {
        self.not_told(i);
        if let Op::Close { c } = &self.ops[i] {
            c.mark_kept();
        }
    }

    /// The submission that it was in has failed as a whole.
    pub(super) fn not_taken(&self, i: usize, e: &Error) {
        // The catalog had no room for it. The handle has ended all the same: its open is given back, and what it had to tell told, when it is dropped.
        if e.kind() == Kind::Exhausted && e.outcome() == Outcome::NotApplied {
            self.not_started(i);
        }
    }

    /// It did not do it.
    pub(super) fn not_told(&self, i: usize) {
        if let Op::Commit { c } | Op::Persist { c } | Op::Seal { c } = &self.ops[i] {
            c.mark_unpublished();
        }
    }

    /// Turns the reply to an operation into its status, and fulfils the handle that it makes.
    pub(super) fn reply(&mut self, i: usize, reply: Result<CatalogReply>) -> Status {
        let op = &self.ops[i];
        // Sent along with the operation that should have made the handle: each use tells that one's error (rule 2).
        let reply =
            reply.map_err(|e| op.handle().into_iter().chain(op.parents()).find_map(|c| c.failure()).unwrap_or(e));
        // Also where it came through all the same, as a stat does by a UUID.
        let failed = op.handle().and_then(|c| c.failure()).filter(|_| reply.is_ok());
        let reply = failed.map_or(reply, Err);
        let reply = match (reply, op) {
            (Ok(CatalogReply::Opened(opened)), Op::Create { out, .. } | Op::Open { out, .. }) => {
                if opened.effective.concurrency == Concurrency::Exclusive {
                    self.session.0.keep_leases();
                }
                return match out.fulfil(Ok(*opened)) {
                    Ok(()) => Status::ok(0, Output::None),
                    Err(e) => Status::failed(e),
                };
            }
            (Ok(CatalogReply::Stat(stat)), Op::Create { out, .. }) => {
                let e = Error::exists("the name is taken by what was told of").with_clause(Clause::O3);
                out.found(*stat, e.clone());
                return Status::failed(e);
            }
            (Err(e), Op::Create { out, .. } | Op::Open { out, .. }) => {
                // The handle tells the same error at each use.
                let _ = out.fulfil(Err(e.clone()));
                return Status::failed(e);
            }
            (Ok(CatalogReply::Page(page)), Op::Search { out, .. }) => {
                out.fulfil(Ok(page));
                return Status::ok(0, Output::None);
            }
            (Err(e), Op::Search { out, .. }) => {
                out.fulfil(Err(e.clone()));
                return Status::failed(e);
            }
            (Err(e), _) => {
                self.not_told(i);
                return Status::failed(e);
            }
            (Ok(reply), _) => reply,
        };
        if matches!(op, Op::Lock { .. }) {
            self.session.0.keep_leases();
        }
        let output = match reply {
            CatalogReply::Done
            | CatalogReply::Opened(_)
            | CatalogReply::Page(_)
            | CatalogReply::Token(_)
            | CatalogReply::Bytes(_)
            | CatalogReply::Moved
            | CatalogReply::Map(_)
            | CatalogReply::Ticket(_) => Output::None,
            CatalogReply::Workspace(w) => {
                if let Op::WorkspaceSet { w: handle, .. } = op {
                    handle.set_defaults(w.controls, w.indexes);
                }
                Output::None
            }
            CatalogReply::Stat(stat) => Output::Stat(stat),
            CatalogReply::Looked(looked) => Output::Looked(looked.entries),
            CatalogReply::Removed(removed) => Output::Removed(removed),
            CatalogReply::Appended(offset) => Output::Offset(offset),
            CatalogReply::Value(value) => Output::Value(value),
            CatalogReply::Metadata(m) => Output::Metadata(m),
            CatalogReply::Lock(lock) => Output::Lock(lock),
        };
        Status::ok(0, output)
    }
}
