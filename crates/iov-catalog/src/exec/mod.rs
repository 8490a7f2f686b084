//! One submission while it runs: what it has read and written so far, and how to take it back.
//!
//! Operations see the store through the writes of those before them (O9). Changes of memory are made at once and undone
//! from a list, so that an operation that fails, a dry run or a rolled back batch leaves nothing behind. Every
//! operation checks all before it changes anything.

mod ahead;
mod dispatch;
pub(crate) mod facts;
pub(crate) mod groups;
pub(crate) mod holds;
mod opens;
pub(crate) mod parted;
pub(crate) mod records;
mod staging;
mod workspaces;

use groups::Parent;
use workspaces::WorkspaceState;

use std::{
    collections::HashMap,
    sync::{Arc, RwLockReadGuard, RwLockWriteGuard},
};

use bytes::Bytes;
use iov_store::{KeyRange, OpCx, Record as Stored, Room, Snapshot};
use iov_types::{
    Controls, Effective, EntryKind, Layout, ObjectId, Outcome, Place, Result, Uuid,
    catalog::{CatalogOp, CatalogReply},
    limits,
};

use crate::{
    batch::is_away,
    changes::Changing,
    core::Core,
    record::{Staging, Usage},
    state::{Ended, Entry, HotFacts, Shared, Touch},
    temporary::Bound,
    view::Pending,
};
use ahead::Ahead;

/// Most bytes that go along with the answers of one submission.
const ALONG: usize = 4 << 20;

/// How the operations will end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    /// Nothing changes, and no turn as writer is needed.
    Read,
    /// Each by itself.
    Each,
    /// Nothing is kept.
    Dry,
    /// Together or not at all.
    All,
}

/// What to do once the writes are committed.
#[derive(Default)]
pub(crate) struct After {
    /// What anybody remembers of anything does not hold any more.
    pub(crate) all_changes: bool,
    /// Objects to remove.
    pub(crate) remove: Vec<ObjectId>,
    /// Collections to seal at the target once the records say so, and the operations that do so.
    pub(crate) seal: Vec<Staging>,
    pub(crate) seal_of: Vec<usize>,
    /// Sessions that stand for who has no more open what a target could not be asked for: to be ended once it can.
    pub(crate) heirs: Vec<Uuid>,
    /// Holds that have ended while sessions of the catalog before may come back, or that go on behind that.
    pub(crate) ended_holds: Vec<(Uuid, Option<Ended>)>,
    /// Collections whose mtime was set, in such a batch.
    pub(crate) mtime_set: Vec<Uuid>,
    /// Make the commit durable; the operations that wait for it.
    pub(crate) persist: Vec<usize>,
    /// Collections that the session has open no more.
    pub(crate) closed: Vec<Uuid>,
    /// The same, without its having closed them.
    pub(crate) left: Vec<Uuid>,
    /// The session has ended.
    pub(crate) ended: bool,
    /// Collections whose life is bound to something from now on, or no more.
    pub(crate) bound: Vec<(Uuid, Option<Bound>)>,
    /// Groups in which names were changed, or whose time was set.
    pub(crate) touched: Vec<Touch>,
}

enum Undo {
    Entry(Uuid, Option<Box<Entry>>),
    Workspace(usize, Box<WorkspaceState>),
    Usage(usize, Usage),
    Members(Uuid, Option<u64>),
    /// The objects of a collection were made.
    Made(ObjectId),
}

/// What was resolved last: many creates in a row ask for the same.
pub(crate) struct Resolved {
    pub(crate) ws: Uuid,
    pub(crate) kind: EntryKind,
    pub(crate) asked: Controls,
    pub(crate) layout: Layout,
    pub(crate) effective: Effective,
}

/// A running submission.
pub(crate) struct Exec<'a> {
    pub(crate) core: &'a Arc<Core>,
    pub(crate) cx: &'a OpCx,
    /// For whom the session acts.
    pub(crate) holder: Uuid,
    pub(crate) mode: Mode,
    /// What room it may take where the medium is full.
    pub(crate) room: Room,
    /// The batch: its operations see what it has staged (O9).
    pub(crate) stage: Option<Uuid>,
    /// Collections of which the batch has staged changes at targets, sorted.
    pub(crate) staged: Vec<Uuid>,
    /// Where those are, if it is not the first target.
    pub(crate) places: HashMap<Uuid, Place>,
    pub(crate) now_ns: i64,
    pub(crate) monotonic_ns: i64,
    pub(crate) after: After,
    pub(crate) resolved: Option<Resolved>,
    pub(crate) workspaces: Vec<WorkspaceState>,
    pending: Pending,
    ahead: Ahead,
    /// The index of the running operation.
    op: usize,
    undo: Vec<Undo>,
    /// What readers may see changed before the commit: until all of it is over nobody relies on it.
    marks: Vec<Changing>,
    /// Entries that may be unused once the submission is committed.
    loose: Vec<Uuid>,
    /// Facts to be kept in memory.
    learned: Vec<HotFacts>,
    /// Records that were changed.
    changed: Vec<Uuid>,
    /// Collections whose bytes were moved to their target: others may ask that once the commit says so.
    moved: Vec<Uuid>,
    /// Those for which the client was sent to their target.
    pub(crate) sent_on: Vec<Uuid>,
    /// Bytes that go along with answers, unasked for.
    along: usize,
    /// The group looked at last, in its workspace.
    parent: Option<((Uuid, Uuid), Parent)>,
    /// The failing operation took effect all the same.
    keep: bool,
    pub(crate) scratch: Vec<u8>,
}

impl<'a> Exec<'a> {
    pub(crate) fn new(core: &'a Arc<Core>, cx: &'a OpCx, holder: Uuid, mode: Mode, pending: Pending) -> Exec<'a> {
        Exec {
            core,
            cx,
            holder,
            mode,
            stage: None,
            staged: Vec::new(),
            places: HashMap::new(),
            room: Room::Freeing,
            now_ns: core.now_ns(),
            monotonic_ns: core.monotonic_ns(),
            after: After::default(),
            resolved: None,
            workspaces: Vec::new(),
            pending,
            ahead: Ahead::default(),
            op: 0,
            undo: Vec::new(),
            marks: Vec::new(),
            loose: Vec::new(),
            learned: Vec::new(),
            changed: Vec::new(),
            moved: Vec::new(),
            sent_on: Vec::new(),
            along: 0,
            parent: None,
            keep: false,
            scratch: Vec::new(),
        }
    }

    /// Runs operations in order; `until_failure` ends with the first that fails.
    pub(crate) fn run(&mut self, ops: Vec<CatalogOp>, until_failure: bool) -> Vec<Result<CatalogReply>> {
        let mut replies = Vec::with_capacity(ops.len());
        let mut ops = ops.into_iter();
        while !ops.as_slice().is_empty() {
            if let Err(e) = self.read_ahead(ops.as_slice(), replies.len()) {
                // A store that cannot be read fails them all alike.
                replies.push(Err(e));
                if until_failure {
                    break;
                }
                ops.next();
                continue;
            }
            for _ in 0..self.ahead.len() {
                let Some(op) = ops.next() else { break };
                self.op = replies.len();
                let reply = self.one(op);
                let failed = reply.is_err();
                replies.push(reply);
                if failed && until_failure {
                    self.keep_learned();
                    return replies;
                }
            }
        }
        self.keep_learned();
        replies
    }

    /// Runs one operation; a failure leaves nothing of it behind, unless it says that it took effect.
    pub(crate) fn one(&mut self, op: CatalogOp) -> Result<CatalogReply> {
        self.attempt(|x| x.dispatch(op))
    }

    /// The same for any work.
    pub(crate) fn attempt<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let marks = (self.pending.mark(), self.undo.len(), self.moved.len());
        let after = &self.after;
        let after =
            (after.remove.len(), after.seal.len(), after.mtime_set.len(), after.closed.len(), after.bound.len());
        let (touched, ended, all_changes) =
            (self.after.touched.len(), self.after.ended_holds.len(), self.after.all_changes);
        let left = self.after.left.len();
        self.keep = false;
        let reply = work(self);
        if reply.is_err() && !self.keep {
            self.pending.rollback(marks.0);
            self.undo_to(marks.1);
            self.moved.truncate(marks.2);
            self.after.all_changes = all_changes;
            self.after.remove.truncate(after.0);
            self.after.seal.truncate(after.1);
            self.after.seal_of.truncate(after.1);
            self.after.mtime_set.truncate(after.2);
            self.after.closed.truncate(after.3);
            self.after.left.truncate(left);
            self.after.bound.truncate(after.4);
            self.after.touched.truncate(touched);
            self.after.ended_holds.truncate(ended);
        }
        reply
    }

    /// The failure to come does not undo what the operation did.
    pub(crate) fn keep_effects(&mut self) {
        self.keep = true;
    }

    /// Which operation is running.
    pub(crate) fn index(&self) -> usize {
        self.op
    }

    fn undo_to(&mut self, mark: usize) {
        if self.undo.len() == mark {
            return;
        }
        self.parent = None;
        let mut made = Vec::new();
        let mut shared = self.core.shared_mut();
        while self.undo.len() > mark {
            match self.undo.pop() {
                Some(Undo::Entry(uuid, entry)) => drop(shared.opens.set(uuid, entry)),
                Some(Undo::Workspace(at, state)) => self.workspaces[at] = *state,
                Some(Undo::Usage(at, usage)) => self.workspaces[at].usage = usage,
                Some(Undo::Members(group, members)) => shared.members.set(group, members),
                Some(Undo::Made(object)) => made.push(object),
                None => break,
            }
        }
        drop(shared);
        if !made.is_empty() {
            // Also where the time of the operation is over.
            let cx = OpCx::new(self.cx.caller.clone(), limits::DEFAULT_DEADLINE_NS);
            self.core.targets().remove(&cx, made);
        }
    }

    /// An object was made, of which nothing is to stay if what says so comes to nothing.
    pub(crate) fn note_made(&mut self, object: ObjectId) {
        self.undo.push(Undo::Made(object));
    }

    /// Makes the objects of a collection, of which nothing is to stay if its record comes to nothing.
    pub(crate) fn make_objects(&mut self, ws: Uuid, object: ObjectId) -> Result<()> {
        let made = self.core.targets().make(self.cx, ws, object);
        let is_staged = self.staged.binary_search(&object.collection).is_ok();
        // See below: what is staged at those that are there would go with them.
        if !(is_staged && made.as_ref().is_err_and(is_away)) {
            self.undo.push(Undo::Made(object));
        }
        // Without its record it is nothing.
        made.map_err(|e| e.with_outcome(Outcome::NotApplied))
    }

    /// Takes back everything that the submission did to memory and wrote.
    pub(crate) fn undo_all(&mut self) {
        self.undo_to(0);
        self.pending.clear();
        self.workspaces.clear();
        self.loose.clear();
        self.moved.clear();
        self.resolved = None;
        self.after = After::default();
    }

    /// Objects for which the batch has staged something stay: that would go with them, and the batch may be repeated.
    pub(crate) fn keep_staged_objects(&mut self) {
        let staged = &self.staged;
        let is_staged = |object: &ObjectId| staged.binary_search(&object.collection).is_ok();
        self.undo.retain(|undo| !matches!(undo, Undo::Made(object) if is_staged(object)));
    }

    /// Objects that were made stay, whatever comes of the submission.
    pub(crate) fn keep_objects(&mut self) {
        self.undo.retain(|undo| !matches!(undo, Undo::Made(_)));
    }

    /// The changes of memory are here to stay.
    pub(crate) fn committed(&mut self) {
        self.undo.clear();
    }

    /// Memory as readers see it, for a moment.
    pub(crate) fn shared(&self) -> RwLockReadGuard<'a, Shared> {
        self.core.shared()
    }

    /// Memory, to change; every change needs its entry in the list of undos.
    fn shared_mut(&self) -> RwLockWriteGuard<'a, Shared> {
        self.core.shared_mut()
    }

    /// The value of a key, as the operations so far have left it.
    pub(crate) fn get(&mut self, key: &[u8]) -> Result<Option<Bytes>> {
        if let Some(value) = self.pending.get(key) {
            return Ok(value.clone());
        }
        if let Some(value) = self.ahead.get(self.op, key) {
            return Ok(value);
        }
        self.core.count_keys(1);
        Ok(self.core.store().get(&[key])?.pop().flatten().map(|record| record.value))
    }

    /// Whether all of the submission only reads, so that no writes of its own are to be seen.
    pub(crate) fn only_reads(&self) -> bool {
        self.mode == Mode::Read
    }

    /// Writes a value.
    pub(crate) fn put(&mut self, key: Vec<u8>, value: Bytes) {
        self.pending.put(key, Some(value));
    }

    /// Deletes a key.
    pub(crate) fn delete(&mut self, key: Vec<u8>) {
        self.pending.put(key, None);
    }

    /// Up to `limit` pairs of a range.
    pub(crate) fn scan(
        &mut self,
        range: &KeyRange,
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<(Bytes, Stored)>> {
        let page = self.pending.scan(self.core.store(), range, after, limit)?;
        self.core.count_keys(page.len());
        Ok(page)
    }

    /// How many bytes, of so many, may go along with an answer: those of all operations of a submission are in memory together.
    pub(crate) fn room_along(&self, wanted: usize) -> usize {
        ALONG.saturating_sub(self.along).min(wanted)
    }

    /// So many do.
    pub(crate) fn goes_along(&mut self, bytes: usize) {
        self.along += bytes;
    }

    /// The store with the writes so far.
    pub(crate) fn snapshot(&mut self) -> Result<Box<dyn Snapshot>> {
        self.pending.snapshot(self.core.store())
    }

    /// The pending writes, for the commit.
    pub(crate) fn pending(&mut self) -> &mut Pending {
        &mut self.pending
    }

    /// Records that were changed.
    pub(crate) fn take_changed(&mut self) -> Vec<Uuid> {
        std::mem::take(&mut self.changed)
    }

    /// Collections whose bytes are at their target from the commit on.
    pub(crate) fn take_moved(&mut self) -> Vec<Uuid> {
        std::mem::take(&mut self.moved)
    }

    /// Entries to look at after the commit.
    pub(crate) fn take_loose(&mut self) -> Vec<Uuid> {
        std::mem::take(&mut self.loose)
    }
}

#[cfg(test)]
mod tests;
