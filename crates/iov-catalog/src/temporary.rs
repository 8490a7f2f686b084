//! Collections that go by themselves: with the process that they are bound to, or when nobody has used them for the time
//! of a lease.

use std::collections::{BTreeSet, HashMap, HashSet};

use bytes::Bytes;
use iov_store::OpCx;
use iov_types::{EntryKind, Error, Lifetime, Result, Scope, Uuid};
use iov_wire::Wire;

use crate::{
    Service,
    exec::{Exec, Mode},
    hash::Seeded,
    keys,
    record::{Record, TemporaryRecord},
    recovery,
    service::Writer,
};

/// How often it is looked for what is over.
const LOOK_NS: i64 = 1_000_000_000;

/// Removed at a time, so that nobody waits long.
const PORTION: usize = 1024;

/// One collection that goes by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Bound {
    ws: Uuid,
    lifetime: Lifetime,
    /// The holder whose processes keep it.
    to: Uuid,
    /// It stays until then, on the monotonic clock, whatever else is the case.
    stays_until_ns: i64,
}

/// All of them, as far as this catalog was told: what is over is compared with its record before it goes.
#[derive(Default, Debug)]
pub(crate) struct Temporary {
    all: HashMap<Uuid, Bound, Seeded>,
    /// Leases, by when they are over if nobody uses the collection.
    due: BTreeSet<(i64, Uuid)>,
    by_holder: HashMap<Uuid, HashSet<Uuid, Seeded>, Seeded>,
    looked_ns: i64,
}

impl Temporary {
    /// What a submission has committed.
    pub(crate) fn apply(&mut self, changes: Vec<(Uuid, Option<Bound>)>) {
        for (uuid, bound) in changes {
            self.remove(uuid);
            if let Some(bound) = bound {
                self.insert(uuid, bound);
            }
        }
    }

    fn insert(&mut self, uuid: Uuid, bound: Bound) {
        match bound.lifetime.scope {
            Scope::Process => drop(self.by_holder.entry(bound.to).or_default().insert(uuid)),
            _ => drop(self.due.insert((bound.stays_until_ns, uuid))),
        }
        self.all.insert(uuid, bound);
    }

    fn remove(&mut self, uuid: Uuid) {
        let Some(bound) = self.all.remove(&uuid) else { return };
        self.due.remove(&(bound.stays_until_ns, uuid));
        if let Some(of_holder) = self.by_holder.get_mut(&bound.to) {
            of_holder.remove(&uuid);
            if of_holder.is_empty() {
                self.by_holder.remove(&bound.to);
            }
        }
    }

    /// Somebody has just closed these, or has them open still.
    pub(crate) fn used(&mut self, uuids: &[Uuid], now_ns: i64) {
        if self.all.is_empty() {
            return;
        }
        for uuid in uuids {
            let Some(mut bound) = self.all.get(uuid).copied().filter(|b| b.lifetime.scope == Scope::Lease) else {
                continue;
            };
            self.due.remove(&(bound.stays_until_ns, *uuid));
            bound.renew(now_ns);
            self.insert(*uuid, bound);
        }
    }

    fn is_due(&self, now_ns: i64) -> bool {
        !self.all.is_empty() && now_ns.saturating_sub(self.looked_ns) >= LOOK_NS
    }

    /// Those whose time is over, at most so many, unless they are in use.
    fn over(&self, now_ns: i64, is_there: impl Fn(Uuid) -> bool) -> Vec<Uuid> {
        let leases = self.due.range(..=(now_ns, Uuid([0xff; 16]))).map(|(_, uuid)| *uuid);
        let gone =
            self.by_holder.iter().filter(|(holder, _)| !is_there(**holder)).flat_map(|(_, of)| of.iter().copied());
        let stays = |uuid: &Uuid| self.all.get(uuid).is_none_or(|bound| bound.stays_until_ns > now_ns);
        leases.chain(gone).filter(|uuid| !stays(uuid)).take(PORTION).collect()
    }
}

impl Bound {
    fn new(ws: Uuid, record: &Record, lifetime: Lifetime, now_ns: i64) -> Bound {
        let mut bound = Bound { ws, lifetime, to: record.bound_to, stays_until_ns: i64::MIN };
        bound.renew(now_ns);
        bound
    }

    /// Whether a record says the same.
    fn is_of(&self, record: &Record) -> bool {
        record.lifetime == Some(self.lifetime) && record.bound_to == self.to
    }

    fn renew(&mut self, now_ns: i64) {
        if self.lifetime.scope == Scope::Lease {
            self.stays_until_ns = now_ns.saturating_add(i64::try_from(self.lifetime.lease_ns).unwrap_or(i64::MAX));
        }
    }
}

/// The refusal for groups and roots.
pub(crate) fn only_collections() -> Error {
    Error::unsupported("a lifetime is a collection's: set it on the members, or delete the group when it is empty")
}

impl Exec<'_> {
    /// Binds the life of a collection, whose record the caller writes.
    pub(crate) fn bind(&mut self, ws: Uuid, uuid: Uuid, record: &mut Record, lifetime: Lifetime) -> Result<()> {
        if record.kind != EntryKind::Collection {
            return Err(only_collections());
        }
        if !lifetime.is_valid() {
            return Err(Error::invalid("lifetime: a lease needs a time, and nothing else has one"));
        }
        if !lifetime.is_temporary() && record.lifetime.is_none() {
            return Ok(());
        }
        record.lifetime = lifetime.is_temporary().then_some(lifetime);
        record.bound_to = if lifetime.scope == Scope::Process { self.holder } else { Uuid::NIL };
        if lifetime.is_temporary() && !record.deleted {
            let entry = TemporaryRecord { ws, until_ns: 0 };
            self.put(keys::temporary(uuid), Bytes::from(entry.to_bytes()));
        }
        let bound = record.lifetime.map(|lifetime| Bound::new(ws, record, lifetime, self.monotonic_ns));
        if bound.is_none() {
            self.delete(keys::temporary(uuid));
        }
        self.after.bound.push((uuid, bound));
        Ok(())
    }

    /// A collection goes: so does what is noted of its life.
    pub(crate) fn unbind(&mut self, uuid: Uuid, record: &Record) {
        if record.lifetime.is_some() {
            self.delete(keys::temporary(uuid));
            self.after.bound.push((uuid, None));
        }
    }
}

impl Service {
    /// Reads which collections go by themselves. Their processes have the time of a lease to come back. Leases go on where
    /// the last catalog noted them, and begin anew if it did not: nobody knows what was used at its end.
    pub(crate) fn load_temporary(&self, writer: &mut Writer) -> Result<()> {
        let now_ns = self.core.monotonic_ns();
        let mut found = Vec::new();
        recovery::for_each(self, keys::TEMPORARY, |key, value| {
            found.push((keys::uuid_at(key, 1)?, TemporaryRecord::decode(value)?));
            Ok(())
        })?;
        let noted = !self.needs_check();
        for (uuid, TemporaryRecord { ws, until_ns }) in found {
            let Some(stored) = self.core.store().get(&[&keys::record(ws, uuid)])?.pop().flatten() else { continue };
            // What cannot be read stays: whoever uses it hears why.
            let Ok(record) = Record::parse(&stored.value) else { continue };
            let Some(lifetime) = record.lifetime else { continue };
            let mut bound = Bound::new(ws, &record, lifetime, now_ns);
            if noted && until_ns != 0 && lifetime.scope == Scope::Lease {
                let left_ns = until_ns.saturating_sub(self.core.now_ns()).max(0);
                bound.stays_until_ns = bound.stays_until_ns.min(now_ns.saturating_add(left_ns));
            }
            let to_come_back = now_ns.saturating_add(self.core.sessions().lease_ns());
            if lifetime.scope == Scope::Process {
                bound.stays_until_ns = to_come_back;
            }
            writer.temporary.insert(uuid, bound);
        }
        Ok(())
    }

    /// Notes how long those stay that nobody uses: the catalog ends in order.
    pub(crate) fn note_temporary(&self, writer: &mut Writer, cx: &OpCx) -> Result<()> {
        let (now_ns, wall_ns) = (self.core.monotonic_ns(), self.core.now_ns());
        let mut x = self.start(writer, cx, Uuid::NIL, Mode::Each);
        let entries = std::mem::take(&mut writer.temporary).all;
        for (uuid, bound) in entries.into_iter().filter(|(_, bound)| bound.lifetime.scope == Scope::Lease) {
            let until_ns = wall_ns.saturating_add(bound.stays_until_ns.saturating_sub(now_ns));
            x.put(keys::temporary(uuid), Bytes::from(TemporaryRecord { ws: bound.ws, until_ns }.to_bytes()));
        }
        self.commit_own(writer, cx, x)
    }

    /// Removes those whose time is over, if it is time to look; `now`: at once.
    pub(crate) fn end_temporary(&self, writer: &mut Writer, cx: &OpCx, now: bool) {
        let now_ns = self.core.monotonic_ns();
        if writer.closed || writer.temporary.all.is_empty() || !(now || writer.temporary.is_due(now_ns)) {
            return;
        }
        writer.temporary.looked_ns = now_ns;
        if self.core.in_grace() {
            // Those who use them may come back.
            return;
        }
        let sessions = self.core.sessions();
        let due = writer.temporary.over(now_ns, |holder| sessions.is_there(holder));
        drop(sessions);
        if due.len() == PORTION {
            // The rest with the next look, at once.
            writer.temporary.looked_ns = i64::MIN;
        }
        let shared = self.core.shared();
        let is_open = |uuid: &Uuid| shared.opens.get(*uuid).is_some_and(|e| e.is_in_use());
        let scope = |uuid: &Uuid| writer.temporary.all.get(uuid).map(|bound| bound.lifetime.scope);
        let (open, over): (Vec<Uuid>, Vec<Uuid>) =
            due.into_iter().partition(|uuid| scope(uuid) == Some(Scope::Lease) && is_open(uuid));
        drop(shared);
        writer.temporary.used(&open, now_ns);
        let of = |uuid: Uuid| Some((uuid, *writer.temporary.all.get(&uuid)?));
        let over: Vec<(Uuid, Bound)> = over.into_iter().filter_map(of).collect();
        if !over.is_empty() {
            // What fails is tried again when it is next looked.
            let _ = self.remove_over(writer, cx, over);
        }
    }

    fn remove_over(&self, writer: &mut Writer, cx: &OpCx, over: Vec<(Uuid, Bound)>) -> Result<()> {
        let mut x = self.start(writer, cx, Uuid::NIL, Mode::Each);
        for (uuid, bound) in over {
            let _ = x.attempt(|x| x.end_life(uuid, &bound));
        }
        self.commit_own(writer, cx, x)
    }
}

impl Exec<'_> {
    fn end_life(&mut self, uuid: Uuid, bound: &Bound) -> Result<()> {
        let found = self.get(&keys::record(bound.ws, uuid))?.map(|bytes| Record::parse(&bytes)).transpose()?;
        match (found, self.workspace_of_handle(bound.ws)) {
            (Some(record), Ok(at)) if bound.is_of(&record) && !record.deleted => self.unname(at, uuid, record, None),
            (Some(Record { lifetime: Some(lifetime), deleted: false, bound_to, .. }), Ok(_)) => {
                // The list is behind.
                let mut bound = Bound { ws: bound.ws, lifetime, to: bound_to, stays_until_ns: i64::MIN };
                bound.renew(self.monotonic_ns);
                self.after.bound.push((uuid, Some(bound)));
                Ok(())
            }
            _ => {
                self.delete(keys::temporary(uuid));
                self.after.bound.push((uuid, None));
                Ok(())
            }
        }
    }
}
