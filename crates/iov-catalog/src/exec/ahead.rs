//! Reading ahead: the keys that operations will certainly ask for, fetched in one call to the store.

use bytes::Bytes;
use iov_types::{Result, Uuid, Which, catalog::CatalogOp};

use super::{Exec, Mode};
use crate::{keys, record::Facts, state::HotFacts};

/// Operations looked at in one go: bounds the memory that a large submission needs.
const WINDOW: usize = 1024;

struct Item {
    from: usize,
    to: usize,
    value: Option<Bytes>,
}

#[derive(Clone, Copy)]
struct Op {
    first: u32,
    items: u32,
    /// Somebody had its object open for writing before the keys were read.
    written: bool,
    /// What is kept of its record in memory, plus one; 0 = nothing.
    hot: u32,
}

/// What was read ahead.
#[derive(Default)]
pub(super) struct Ahead {
    bytes: Vec<u8>,
    items: Vec<Item>,
    ops: Vec<Op>,
    hot: Vec<HotFacts>,
    /// Of the commits before the keys were read.
    commits: u64,
    /// The index of the first operation.
    base: usize,
}

impl Ahead {
    /// How many operations it covers.
    pub(super) fn len(&self) -> usize {
        self.ops.len()
    }

    fn op(&self, op: usize) -> Option<Op> {
        self.ops.get(op.checked_sub(self.base)?).copied()
    }

    /// What was read for an operation under a key.
    pub(super) fn get(&self, op: usize, key: &[u8]) -> Option<Option<Bytes>> {
        let op = self.op(op)?;
        let items = &self.items[op.first as usize..][..op.items as usize];
        items.iter().find(|i| &self.bytes[i.from..i.to] == key).map(|i| i.value.clone())
    }

    /// Whether its object was open for writing by somebody before the keys were read.
    pub(super) fn was_written(&self, op: usize) -> bool {
        self.op(op).is_some_and(|op| op.written)
    }

    /// What is kept in memory of the record that an operation asks for.
    pub(super) fn hot(&self, op: usize) -> Option<HotFacts> {
        let place = self.op(op)?.hot.checked_sub(1)?;
        self.hot.get(place as usize).copied()
    }

    fn key(&mut self, key: &[u8]) {
        let from = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.items.push(Item { from, to: self.bytes.len(), value: None });
    }

    /// Notes the keys of an operation and returns the object whose record is among them.
    fn note(&mut self, op: &CatalogOp) -> Option<Uuid> {
        let mut by = |ws: Uuid, parent: Uuid, which: &Which| match which {
            Which::Name(name) => {
                self.key(&keys::name(ws, parent, name));
                None
            }
            Which::Uuid(uuid) if uuid.is_nil() => None,
            Which::Uuid(uuid) => {
                self.key(&keys::record(ws, *uuid));
                Some(*uuid)
            }
        };
        match op {
            CatalogOp::Create { ws, uuid, parent, name, .. } => {
                if let Some(name) = name {
                    self.key(&keys::name(*ws, *parent, name));
                }
                self.key(&keys::record(*ws, *uuid));
                None
            }
            CatalogOp::Open { ws, parent, which, .. }
            | CatalogOp::Delete { ws, parent, which }
            | CatalogOp::Look { ws, parent, which, .. } => by(*ws, *parent, which),
            CatalogOp::Unlink { ws, parent, name, .. } => {
                self.key(&keys::name(*ws, *parent, name));
                None
            }
            CatalogOp::Read { ws, uuid, .. } => {
                // Of one moment with the record, which no writer waits for.
                self.key(&keys::bytes(*ws, *uuid));
                self.key(&keys::record(*ws, *uuid));
                Some(*uuid)
            }
            CatalogOp::Stat { ws, uuid }
            | CatalogOp::Discard { ws, uuid }
            | CatalogOp::Write { ws, uuid, .. }
            | CatalogOp::Append { ws, uuid, .. }
            | CatalogOp::Truncate { ws, uuid, .. }
            | CatalogOp::MoveOut { ws, uuid }
            | CatalogOp::MetaGet { ws, uuid, .. }
            | CatalogOp::MetaList { ws, uuid }
            | CatalogOp::MetaPut { ws, uuid, .. }
            | CatalogOp::MetaRemove { ws, uuid, .. }
            | CatalogOp::Set { ws, uuid, .. }
            | CatalogOp::SetAttr { ws, uuid, .. }
            | CatalogOp::Link { ws, uuid, .. }
            | CatalogOp::Publish { ws, uuid, .. }
            | CatalogOp::Seal { ws, uuid, .. }
            | CatalogOp::Close { ws, uuid, published: Some(_) } => by(*ws, *ws, &Which::Uuid(*uuid)),
            _ => None,
        }
    }
}

impl Exec<'_> {
    /// Reads ahead for the next operations, of which the first has the index `base`.
    ///
    /// Who has what open is looked at before the records are read: a record read after the last writer has closed is up
    /// to date, so a length older than a completed write is never returned (C1).
    pub(super) fn read_ahead(&mut self, ops: &[CatalogOp], base: usize) -> Result<()> {
        self.keep_learned();
        let ahead = &mut self.ahead;
        ahead.bytes.clear();
        ahead.items.clear();
        ahead.ops.clear();
        ahead.hot.clear();
        ahead.base = base;
        let shared = self.core.shared();
        ahead.commits = shared.commits;
        for op in ops.iter().take(WINDOW) {
            let first = ahead.items.len() as u32;
            if let (Mode::Read, CatalogOp::Stat { ws, uuid }) = (self.mode, op)
                && let Some(facts) = shared.hot.get(*ws, *uuid)
                && !shared.opens.get(*uuid).is_some_and(|e| e.may_be_ahead())
            {
                ahead.hot.push(facts);
                ahead.ops.push(Op { first, items: 0, written: false, hot: ahead.hot.len() as u32 });
                continue;
            }
            let object = ahead.note(op);
            let written = object.is_some_and(|uuid| shared.opens.get(uuid).is_some_and(|e| e.may_be_ahead()));
            ahead.ops.push(Op { first, items: ahead.items.len() as u32 - first, written, hot: 0 });
        }
        drop(shared);
        if ahead.items.is_empty() {
            return Ok(());
        }
        let wanted: Vec<&[u8]> = ahead.items.iter().map(|i| &ahead.bytes[i.from..i.to]).collect();
        let found = self.core.store().get(&wanted)?;
        self.core.count_keys(wanted.len());
        for (item, record) in ahead.items.iter_mut().zip(found) {
            item.value = record.map(|record| record.value);
        }
        Ok(())
    }

    /// What memory has of the record that the running operation asks for.
    pub(crate) fn hot(&self) -> Option<HotFacts> {
        self.ahead.hot(self.op)
    }

    /// Notes facts that a reader has read and that hold for everybody, to be kept in memory.
    pub(crate) fn learn(&mut self, ws: Uuid, uuid: Uuid, facts: &Facts) {
        let settled = !facts.deleted
            && facts.abandoned_ns == 0
            && facts.lifetime.is_none()
            && (facts.inline || !self.may_be_behind(uuid, facts.state, facts.opened_in));
        if self.mode == Mode::Read && settled {
            self.learned.push(HotFacts::new(ws, uuid, facts));
        }
    }

    /// Keeps what was noted, unless something was committed since it was read.
    pub(super) fn keep_learned(&mut self) {
        if self.learned.is_empty() {
            return;
        }
        let mut shared = self.core.shared_mut();
        let fresh = shared.commits == self.ahead.commits;
        for facts in self.learned.drain(..).filter(|_| fresh) {
            shared.hot.learn(facts);
        }
    }
}
