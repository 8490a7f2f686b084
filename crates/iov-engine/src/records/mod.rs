//! What a session knows of sealed collections (M3): enough to open one again by its UUID, and to read it, without asking.
//!
//! Bytes, size, layout and controls of a sealed collection are fixed, so that only two things can have changed since the
//! catalog was asked: whether it still exists, and whether the caller may still read it. For the length of a lease (30 s,
//! or what the daemon says if that is less), counted from before the request was sent, both are taken for granted:
//!
//! - Deleted meanwhile, a reader gets the sealed bytes or `NotFound`. Bytes that lived in the record are kept here; of
//!   others the target says that they are gone. No UUID is used twice, so that there are none but the sealed ones.
//! - A record gives what the reply gave that it comes from, and nothing more (A1). A changed access list, another's
//!   exclusive hold (X1), an expiry are seen by opens at the latest when the lease is over, however often it was renewed:
//!   a record lasts no longer than the lease of the last time the catalog would have opened the collection. The other way
//!   round, a hold is granted although somebody reads by a handle opened from a record: the bytes are fixed.
//!
//! Names may move, and whoever writes must be known to the catalog: opens by name, for writing, of what is not sealed, or
//! with controls that ask for more than reading are none of this cache's business.
//!
//! **Renewal.** Whenever a request goes to the catalog anyway, records that were used and are near the end of their lease
//! are renewed along with it, by a dry run of all their opens: only an open says whether an open would be granted. It needs
//! no verb of its own, no thread and no timer; a program that only opens what it knows sends two requests for all of it,
//! once in a lease.
//!
//! **Delete.** What this session itself deletes stays readable through handles that it has open (O10), as from the catalog:
//! those that the catalog does not know of are opened there first ([`Detached`]). Which collection a name stands for is not
//! known here, so that for a delete by name, or a rename that replaces one, it is those of the whole workspace.

mod detached;
mod watch;

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{Arc, Mutex},
};

pub(crate) use detached::Detached;
use iov_types::{
    Atomicity, Concurrency, Controls, Counters, EntryKind, Kind, Result, State, Temporality, Uuid, Which,
    catalog::{CatalogOp, CatalogReply, Opened},
    limits,
};
pub(crate) use watch::Watched;

use crate::session::lock;

/// Most records kept; each takes about half a KiB.
const RECORDS: usize = 4096;
/// Most bytes of small collections kept, unless the session was opened with a limit of its own.
const BYTES: u64 = 16 << 20;
/// Most changes remembered while opens are under way.
const CHANGES: usize = 1024;

/// What a request changes of what is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    /// One collection.
    One(Uuid),
    /// A workspace, or something in it that only the catalog can tell, as it goes by name.
    Workspace(Uuid),
    /// Anything.
    All,
}

impl Change {
    fn covers(&self, ws: Uuid, uuid: Uuid) -> bool {
        match self {
            Change::One(one) => *one == uuid,
            Change::Workspace(one) => *one == ws,
            Change::All => true,
        }
    }
}

/// What an operation changes of what is known.
pub(crate) fn change(op: &CatalogOp) -> Option<Change> {
    match op {
        CatalogOp::Delete { which: Which::Uuid(uuid), .. }
        | CatalogOp::Discard { uuid, .. }
        | CatalogOp::Set { uuid, .. }
        | CatalogOp::SetAttr { uuid, .. }
        | CatalogOp::Link { uuid, .. }
        | CatalogOp::MetaPut { uuid, .. }
        | CatalogOp::MetaRemove { uuid, .. } => Some(Change::One(*uuid)),
        CatalogOp::Delete { ws, which: Which::Name(_), .. }
        | CatalogOp::Unlink { ws, .. }
        | CatalogOp::Rename { ws, .. }
        | CatalogOp::WorkspaceSet { ws, .. } => Some(Change::Workspace(*ws)),
        CatalogOp::WorkspaceDelete { .. } | CatalogOp::TokenJoin { .. } | CatalogOp::Goodbye => Some(Change::All),
        _ => None,
    }
}

/// Whether an open that asks for this may be answered from a record: it wants to read, and nothing that the catalog or a
/// target would have to do for it.
fn only_reads(controls: &Controls) -> bool {
    controls.concurrency != Some(Concurrency::Exclusive) && controls.persistence.is_none()
}

/// Whether what an open has told can be told again.
fn is_known_by(controls: &Controls, opened: &Opened) -> bool {
    opened.kind == EntryKind::Collection
        && opened.state == State::Sealed
        && opened.size.is_some()
        && only_reads(controls)
        // A hold is the catalog's to give (X1).
        && opened.epoch == 0
        // Leaves no trace (H2).
        && opened.effective.temporality != Temporality::Once
        // Bytes that a handle looks for at a target, the catalog brings there for who has it open.
        && !(opened.inline && opened.effective.atomicity == Atomicity::Publication)
}

/// Under which circumstances something is asked of the catalog.
#[derive(Clone, Copy, Debug)]
struct Asking {
    /// Before it was sent.
    now_ns: i64,
    connection: u64,
    /// The number of the next change.
    change: u64,
}

struct Known {
    opened: Opened,
    /// What the open had asked for.
    asked: Controls,
    bytes: Option<Arc<[u8]>>,
    connection: u64,
    until_ns: i64,
    /// Since it was learned or last renewed.
    used: bool,
    age: u64,
}

/// A record that is to be renewed.
struct Due {
    ws: Uuid,
    uuid: Uuid,
    asked: Controls,
}

impl Due {
    /// The open that it speaks for.
    fn open(&self) -> CatalogOp {
        let (which, kind, controls) = (Which::Uuid(self.uuid), EntryKind::Collection, self.asked.clone());
        CatalogOp::Open { ws: self.ws, parent: Uuid::NIL, which, kind, controls, tell: None }
    }
}

#[derive(Default)]
struct Inner {
    known: HashMap<Uuid, Known>,
    by_age: BTreeMap<u64, Uuid>,
    next_age: u64,
    bytes: u64,
    /// Requests under way from which something may be learned.
    asking: usize,
    /// What changed while there were any, with the number of the first: their answers may be older than that.
    changes: VecDeque<Change>,
    first_change: u64,
    /// When records to be renewed were last looked for.
    looked_ns: i64,
}

/// The records that one session has learned.
pub(crate) struct Records {
    inner: Mutex<Inner>,
    counters: Arc<Counters>,
    limit_bytes: u64,
    lease_ns: i64,
    clock: fn() -> i64,
}

impl Records {
    /// None yet. `cache_bytes` 0 = the usual limit, `lease_ns` as the daemon says.
    pub(crate) fn new(cache_bytes: u64, lease_ns: i64, counters: Arc<Counters>, clock: fn() -> i64) -> Records {
        let limit_bytes = if cache_bytes == 0 { BYTES } else { cache_bytes };
        // A store in this process has no end of leases.
        let lease_ns = lease_ns.clamp(0, limits::LEASE_NS);
        Records { inner: Mutex::default(), counters, limit_bytes, lease_ns, clock }
    }

    /// What an open would be told, if that is known; and the bytes, where they are known too.
    pub(crate) fn find(&self, op: &CatalogOp, connection: impl FnOnce() -> u64) -> Option<(Opened, Option<Arc<[u8]>>)> {
        let CatalogOp::Open { ws, which: Which::Uuid(uuid), kind: EntryKind::Collection, controls, .. } = op else {
            return None;
        };
        if !lock(&self.inner).known.contains_key(uuid) {
            return None;
        }
        // Not under the lock: whoever connects anew may be waiting for that.
        let connection = connection();
        let mut inner = lock(&self.inner);
        let known = inner.known.get_mut(uuid).filter(|k| k.opened.ws == *ws && k.asked == *controls)?;
        if (self.clock)() >= known.until_ns || known.connection != connection {
            return None;
        }
        known.used = true;
        Some((known.opened.clone(), known.bytes.clone()))
    }

    /// All bytes of a collection whose record is known.
    pub(crate) fn keep_bytes(&self, uuid: Uuid, bytes: &Arc<[u8]>) {
        let more = bytes.len() as u64;
        let mut inner = lock(&self.inner);
        let Some(known) = inner.known.get_mut(&uuid) else { return };
        if known.bytes.is_some() || known.opened.size != Some(more) || more > self.limit_bytes {
            return;
        }
        known.bytes = Some(bytes.clone());
        inner.bytes += more;
        Counters::add(&self.counters.cache_bytes, more);
        while inner.bytes > self.limit_bytes {
            let Some(oldest) = inner.oldest_with_bytes(uuid) else { break };
            self.remove(&mut inner, oldest);
        }
    }

    /// A collection is gone, or is about to change.
    pub(crate) fn forget(&self, change: Change) {
        self.forget_in(&mut lock(&self.inner), change);
    }

    fn forget_in(&self, inner: &mut Inner, change: Change) {
        let gone: Vec<Uuid> = match change {
            Change::One(uuid) => vec![uuid],
            _ => inner
                .known
                .values()
                .map(|k| &k.opened)
                .filter(|o| change.covers(o.ws, o.uuid))
                .map(|o| o.uuid)
                .collect(),
        };
        gone.into_iter().for_each(|uuid| self.remove(inner, uuid));
        if inner.asking == 0 {
            return;
        }
        if inner.changes.len() == CHANGES {
            inner.changes.pop_front();
            inner.first_change += 1;
        }
        inner.changes.push_back(change);
    }

    fn remove(&self, inner: &mut Inner, uuid: Uuid) {
        let Some(known) = inner.known.remove(&uuid) else { return };
        inner.by_age.remove(&known.age);
        let bytes = known.bytes.map_or(0, |b| b.len() as u64);
        inner.bytes -= bytes;
        Counters::sub(&self.counters.cache_bytes, bytes);
    }

    fn asking(&self, inner: &mut Inner, connection: u64) -> Asking {
        inner.asking += 1;
        Asking { now_ns: (self.clock)(), connection, change: inner.first_change + inner.changes.len() as u64 }
    }

    /// `false`: it is none of what is known.
    fn learn(&self, inner: &mut Inner, asking: &Asking, asked: &Controls, opened: &Opened) -> bool {
        let (ws, uuid) = (opened.ws, opened.uuid);
        if !is_known_by(asked, opened) || inner.has_changed(asking, ws, uuid) {
            return false;
        }
        let bytes = inner.known.get_mut(&uuid).and_then(|known| known.bytes.take());
        if let Some(before) = inner.known.remove(&uuid) {
            inner.by_age.remove(&before.age);
        }
        while inner.known.len() >= RECORDS
            && let Some((_, oldest)) = inner.by_age.first_key_value().map(|(age, uuid)| (*age, *uuid))
        {
            self.remove(inner, oldest);
        }
        let until_ns = asking.now_ns.saturating_add(self.lease_ns);
        let age = inner.new_age(uuid);
        // What was told besides is of that moment.
        let opened = Opened { told: None, ..opened.clone() };
        let (asked, connection) = (asked.clone(), asking.connection);
        inner.known.insert(uuid, Known { opened, asked, bytes, connection, until_ns, used: false, age });
        true
    }

    /// Records to be renewed along with a request over `connection`, at most `room`: those that were used and are in the last
    /// third of their lease, or not long past it. Others that are past it are forgotten.
    fn due(&self, inner: &mut Inner, connection: u64, room: usize) -> Vec<Due> {
        let now = (self.clock)();
        // Not at each request: whoever has many records would pay for all of them each time.
        if inner.known.is_empty() || now.saturating_sub(inner.looked_ns) < self.lease_ns / 16 {
            return Vec::new();
        }
        inner.looked_ns = now;
        let (mut due, mut over) = (Vec::new(), Vec::new());
        for uuid in inner.by_age.values() {
            let Some(known) = inner.known.get_mut(uuid) else { continue };
            if now < known.until_ns - self.lease_ns / 3 {
                break;
            }
            let late = now - known.until_ns;
            if known.connection != connection || late >= self.lease_ns || (late >= 0 && !known.used) {
                over.push(*uuid);
            } else if known.used && due.len() < room {
                known.used = false;
                due.push(Due { ws: known.opened.ws, uuid: *uuid, asked: known.asked.clone() });
            }
        }
        over.into_iter().for_each(|uuid| self.remove(inner, uuid));
        due
    }

    /// What a dry run of an open has said, if it came so far.
    fn renewed(&self, inner: &mut Inner, asking: &Asking, due: Due, reply: Option<Result<CatalogReply>>) {
        let Some(known) = inner.known.get_mut(&due.uuid).filter(|k| k.asked == due.asked) else { return };
        match reply {
            Some(Ok(CatalogReply::Opened(opened))) if is_known_by(&due.asked, &opened) => {
                // It may have been opened since this was asked.
                let used = known.used;
                if self.learn(inner, asking, &due.asked, &opened) {
                    inner.known.entry(due.uuid).and_modify(|known| known.used = used);
                    Counters::add(&self.counters.lease_renewals, 1);
                }
            }
            // It ended with one before, and is asked for again.
            None => known.used = true,
            // Nobody has looked: it ends with its lease.
            Some(Err(e)) if matches!(e.kind(), Kind::Unavailable | Kind::Timeout) => {}
            Some(_) => self.remove(inner, due.uuid),
        }
    }
}

impl Inner {
    fn new_age(&mut self, uuid: Uuid) -> u64 {
        self.next_age += 1;
        self.by_age.insert(self.next_age, uuid);
        self.next_age
    }

    fn oldest_with_bytes(&self, but: Uuid) -> Option<Uuid> {
        let has_bytes = |uuid: &&Uuid| **uuid != but && self.known.get(uuid).is_some_and(|k| k.bytes.is_some());
        self.by_age.values().find(has_bytes).copied()
    }

    /// Whether an answer may be older than a change that this session has seen.
    fn has_changed(&self, asking: &Asking, ws: Uuid, uuid: Uuid) -> bool {
        let Some(seen) = asking.change.checked_sub(self.first_change) else { return true };
        self.changes.iter().skip(seen as usize).any(|change| change.covers(ws, uuid))
    }

    fn answered(&mut self) {
        self.asking = self.asking.saturating_sub(1);
        if self.asking == 0 {
            self.first_change += self.changes.len() as u64;
            self.changes.clear();
        }
    }
}

#[cfg(test)]
mod tests;
