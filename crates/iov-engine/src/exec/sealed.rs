//! Sealed collections (M3): opened from a record that the session has kept, and read from bytes that it has kept, they cost
//! no request to the catalog.
//!
//! The catalog does not know of a handle that is opened so. What it has to know for (locks, what the target does with the
//! collection as a whole or with bytes that live in its record, a rollback batch) opens the handle there first, when it is
//! about to be sent: a handle that is pending at the start of a batch may be opened from a record by then. So does a delete
//! in the same session, for what is open of the collection (O10).

use std::{collections::HashSet, sync::Arc};

use iov_store::{Answer, Memory};
use iov_types::{
    Clause, Controls, Counters, EntryKind, Error, Kind, Outcome, Result, Uuid, Which,
    catalog::{CatalogOp, RenameMode, Submission},
};

use super::{Exec, Phase};
use crate::{
    Collection, Op, Status,
    collection::pending,
    op::{Chunk, Output},
    records::Change,
    request::RequestInner,
};

/// The handles that must be open in the catalog for an operation; for a read, if it is bound for a target.
fn needs_open(op: &Op, rollback: bool) -> impl Iterator<Item = &Collection> {
    let (one, two) = match op {
        Op::Lock { c, .. } | Op::Unlock { c, .. } | Op::Extents { c, .. } => (Some(c), None),
        Op::Copy { src, dst, .. } => (Some(src), Some(dst)),
        // They are brought to the target for who has it open.
        Op::Read { c, .. } if c.is_inline() => (Some(c), None),
        op if rollback => (op.handle(), None),
        _ => (None, None),
    };
    one.into_iter().chain(two)
}

/// What may be gone after an operation: in which workspace, and which collection, where that is known.
pub(super) fn deletes(op: &Op) -> Option<(Uuid, Option<Uuid>)> {
    match op {
        Op::Delete { w, which: Which::Uuid(uuid), .. } | Op::Discard { w, uuid } => Some((w.uuid(), Some(*uuid))),
        Op::Delete { w, which: Which::Name(_), .. }
        | Op::Unlink { w, .. }
        | Op::Rename { w, mode: RenameMode::Replace | RenameMode::ReplaceAlike, .. } => Some((w.uuid(), None)),
        _ => None,
    }
}

/// Copies what a read asks for out of all bytes, and tells how many that were.
pub(super) fn copy_out(all: &[u8], chunks: &mut [Chunk]) -> u64 {
    let mut copied = 0;
    for (offset, memory) in chunks {
        let from = usize::try_from(*offset).map_or(all.len(), |offset| offset.min(all.len()));
        let len = memory.len().min(all.len() - from);
        memory.bytes_mut()[..len].copy_from_slice(&all[from..from + len]);
        copied += len as u64;
    }
    copied
}

fn deleted() -> Error {
    Error::not_found("the collection was deleted after this session had learned of it").with_clause(Clause::M3)
}

fn lacking(bytes: u64, expected: u64) -> Error {
    let why = format!(
        "{bytes} bytes are left of {expected} that were sealed: restore the collection from a copy of the store"
    );
    Error::corrupt(why).with_clause(Clause::M2)
}

impl Exec {
    /// Opens in the catalog what operations that are about to be sent need to be open there, and what they may delete;
    /// `true`: the present phase begins again when that is done.
    pub(super) fn attach_first(&mut self, ops: &[usize], request: &Arc<RequestInner>) -> bool {
        let most = self.session.0.sides.catalog.capability().max_ops;
        let (mut seen, mut seen_deletes) = (HashSet::new(), HashSet::new());
        let mut asked = Vec::new();
        for op in ops.iter().map(|i| &self.ops[*i]) {
            let deleted = deletes(op).filter(|deleted| seen_deletes.insert(*deleted));
            let deleted = deleted.map(|(ws, uuid)| self.session.0.detached.of(ws, uuid)).unwrap_or_default();
            let deleted = deleted.iter().filter(|c| !c.has_ended());
            for c in needs_open(op, self.stage.is_some()).chain(deleted) {
                let Some(uuid) = c.uuid().ok().filter(|_| c.is_detached()) else { continue };
                if asked.len() == most || self.why_unattached(c).is_some() || !seen.insert(Arc::as_ptr(&c.0)) {
                    continue;
                }
                let (ws, which) = (c.workspace().uuid(), Which::Uuid(uuid));
                let (kind, controls) = (EntryKind::Collection, Controls::default());
                asked.push(CatalogOp::Open { ws, parent: Uuid::NIL, which, kind, controls, tell: None });
                self.attaching.push(c.clone());
            }
        }
        if asked.is_empty() {
            return false;
        }
        let then = std::mem::replace(&mut self.phase, Phase::Next);
        self.phase = Phase::Attach(Box::new(then));
        self.submit_facts(asked, Submission::Each, request);
        true
    }

    pub(super) fn attach_arrived(&mut self, then: Phase, answer: Answer) {
        let handles = std::mem::take(&mut self.attaching);
        let mut replies = match answer {
            Ok(replies) => replies.into_iter(),
            Err(e) => vec![Err(e); handles.len()].into_iter(),
        };
        for c in handles {
            match replies.next() {
                Some(Ok(_)) if c.attach() => {}
                // Another batch was faster: this open is one too many.
                Some(Ok(_)) => self.close_open(&c),
                Some(Err(e)) => {
                    if e.kind() == Kind::NotFound {
                        c.forget_detached();
                    }
                    // Whatever has become of the open, the operation that needs it was not begun.
                    self.unattached.push((c, e.with_outcome(Outcome::NotApplied)));
                }
                None => self.unattached.push((c, Error::internal("the catalog left out a reply"))),
            }
        }
        self.phase = then;
        if matches!(self.phase, Phase::Unasked | Phase::Unsent)
            && let Some(error) = self.give_up()
        {
            self.unanswered(self.wave_ops()).into_iter().for_each(|i| self.end(i, Status::failed(error.clone())));
            self.phase = Phase::Next;
        }
    }

    fn why_unattached(&self, c: &Collection) -> Option<&Error> {
        self.unattached.iter().find(|(other, _)| Arc::ptr_eq(&other.0, &c.0)).map(|(_, e)| e)
    }

    /// Fails where an operation needs its handle to be open in the catalog, and it is not.
    pub(super) fn check_attached(&self, i: usize) -> Result<()> {
        match needs_open(&self.ops[i], self.stage.is_some()).find(|c| c.is_detached()) {
            // Where there is no error, it was pending when the operation was looked at.
            Some(c) => Err(self.why_unattached(c).cloned().unwrap_or_else(pending)),
            None => Ok(()),
        }
    }

    /// Opens a handle from a record, if there is one that holds; `false`: the catalog is to be asked.
    pub(super) fn open_from_record(&mut self, i: usize, op: &CatalogOp) -> bool {
        let Op::Open { out, .. } = &self.ops[i] else { return false };
        let session = &self.session.0;
        let known = session.records.as_ref().and_then(|r| r.find(op, || session.sides.catalog.connection()));
        let Some((opened, bytes)) = known else { return false };
        let status = match out.fulfil_from_record(opened, bytes) {
            Ok(()) => Status::ok(0, Output::None),
            Err(e) => Status::failed(e),
        };
        self.end(i, status);
        true
    }

    /// Reads what is kept, and returns the operations that are left.
    pub(super) fn read_kept(&mut self, mut ops: Vec<usize>) -> Vec<usize> {
        ops.retain(|i| !self.read_one_kept(*i));
        ops
    }

    fn read_one_kept(&mut self, i: usize) -> bool {
        let Op::Read { c, .. } = &self.ops[i] else { return false };
        let Some(all) = c.kept().cloned() else { return false };
        let status = match self.data_handle(&c.clone(), false) {
            Ok(_) => {
                let Op::Read { chunks, .. } = &mut self.ops[i] else { return false };
                let bytes = copy_out(&all, chunks);
                let counters = self.session.counters();
                Counters::add(&counters.bytes_read, bytes);
                Counters::add(&counters.cache_hits, 1);
                Status::ok(bytes, Output::None)
            }
            Err(e) => Status::failed(e),
        };
        self.end(i, status);
        true
    }

    /// The length of a sealed collection that lives in its record, where all of it is read at once to be kept: it takes one
    /// operation, like any part of it, and it is the last one.
    pub(super) fn whole(&self, c: &Collection) -> Option<u64> {
        let size = c.ready().ok()?.opened.size?;
        let keeps = self.session.0.records.is_some() && self.contract(c).is_ok_and(|contract| contract.cacheable);
        keeps.then_some(size)
    }

    /// All bytes of it have come.
    pub(super) fn keep_whole(&self, c: &Collection, size: u64, bytes: Vec<u8>) -> Result<Arc<[u8]>> {
        if bytes.len() as u64 != size {
            let why = format!("the catalog has {} bytes of a sealed collection of {size}", bytes.len());
            return Err(Error::internal(why));
        }
        let bytes: Arc<[u8]> = bytes.into();
        c.keep(bytes.clone());
        if let (Some(records), Ok(uuid)) = (&self.session.0.records, c.uuid()) {
            records.keep_bytes(uuid, &bytes);
        }
        Counters::add(&self.session.counters().cache_misses, 1);
        Ok(bytes)
    }

    /// A sealed collection keeps its length; a target takes one that is gone for one that is empty.
    pub(super) fn expect_all(&mut self, i: usize, c: &Collection) {
        let (Op::Read { chunks, .. }, Some(size)) = (&self.ops[i], c.ready().ok().and_then(|r| r.opened.size)) else {
            return;
        };
        let there = |offset: u64, memory: &Memory| size.saturating_sub(offset).min(memory.len() as u64);
        self.expected.insert(i, chunks.iter().map(|(offset, memory)| there(*offset, memory)).sum());
    }

    /// Whether a read has found all that was sealed: fewer bytes mean that the rest is gone.
    pub(super) fn check_all(&mut self, i: usize, bytes: u64, error: Option<Error>) -> Option<Error> {
        let Some(expected) = self.expected.remove(&i) else { return error };
        let detached = self.ops[i].handle().is_some_and(Collection::is_detached);
        // Through a handle that the catalog does not know of it may just be gone.
        let missing = || if detached { deleted() } else { lacking(bytes, expected) };
        let error = error.or_else(|| (bytes < expected).then(missing));
        if error.as_ref().is_some_and(|e| e.kind() == Kind::NotFound)
            && let (Some(records), Some(Ok(uuid))) =
                (&self.session.0.records, self.ops[i].handle().map(Collection::uuid))
        {
            records.forget(Change::One(uuid));
        }
        error
    }
}
