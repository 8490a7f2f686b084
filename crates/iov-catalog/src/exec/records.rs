//! Records of collections and groups: reading, writing, removing.

use bytes::Bytes;
use iov_types::{Clause, EntryKind, Error, Metadata, Name, Result, Right, State, Uuid, limits};
use iov_wire::Wire;

use super::Exec;
use crate::{
    index, keys,
    record::{Facts, Record, RemovedRecord, pack},
    state::Slot,
};

/// The epoch of the first hold.
pub(crate) const FIRST_EPOCH: u64 = 1;

/// The error for something that is not there.
pub(crate) fn missing(what: impl std::fmt::Display) -> Error {
    Error::not_found(format!("there is no {what}: check it, or create it"))
}

impl Exec<'_> {
    /// The encoded record of a collection or group.
    pub(crate) fn record_bytes(&mut self, ws: Uuid, uuid: Uuid) -> Result<Bytes> {
        self.get(&keys::record(ws, uuid))?.ok_or_else(|| missing(uuid))
    }

    /// A record, whoever may see it.
    pub(crate) fn any_record(&mut self, ws: Uuid, uuid: Uuid) -> Result<Record> {
        Record::parse(&self.record_bytes(ws, uuid)?)
    }

    /// A record that the caller may use: one whose last name is gone only for those who have it open, or act for the same holder
    /// as one who has (O10, X1), an unsealed one of a dead writer only for its owner (M2).
    pub(crate) fn usable_record(&mut self, at: usize, uuid: Uuid) -> Result<Record> {
        let record = self.any_record(self.workspaces[at].uuid, uuid)?;
        self.check_usable(at, uuid, record.deleted, record.abandoned_ns, record.uid)?;
        Ok(record)
    }

    /// The facts of such a record.
    pub(crate) fn usable_facts(&mut self, at: usize, uuid: Uuid) -> Result<Facts> {
        let facts = Facts::parse(&self.record_bytes(self.workspaces[at].uuid, uuid)?)?;
        self.check_usable(at, uuid, facts.deleted, facts.abandoned_ns, facts.uid)?;
        Ok(facts)
    }

    /// See [`Exec::usable_record`].
    pub(crate) fn check_usable(&self, at: usize, uuid: Uuid, deleted: bool, abandoned_ns: i64, uid: u32) -> Result<()> {
        let session = self.cx.caller.session;
        // One that has joined since has opened it for itself.
        let same = |slot: &Slot| self.is_mine(slot.holder) || self.is_mine(self.core.sessions().acts_for(slot.session));
        let has = |slot: &Slot| slot.session == session || same(slot);
        if deleted && !self.shared().opens.get(uuid).is_some_and(|e| e.slots().any(has)) {
            return Err(missing(uuid).with_clause(Clause::O10));
        }
        if abandoned_ns != 0 && uid != self.cx.caller.uid && !self.has_right(at, Right::Admin) {
            return Err(missing(uuid).with_clause(Clause::M2));
        }
        Ok(())
    }

    /// Writes a record of which somebody has changed what a program sees.
    pub(crate) fn change_record(&mut self, ws: Uuid, uuid: Uuid, record: &mut Record) {
        record.changed_ns = self.now_ns;
        self.put_record(ws, uuid, record);
    }

    /// Writes a record that was changed.
    pub(crate) fn put_record(&mut self, ws: Uuid, uuid: Uuid, record: &mut Record) {
        record.revision += 1;
        record.links = record.names.len() as u32;
        self.changed.push(uuid);
        self.put_new_record(ws, uuid, record);
    }

    /// Writes a record as it is.
    pub(crate) fn put_new_record(&mut self, ws: Uuid, uuid: Uuid, record: &Record) {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        record.encode(&mut scratch);
        let value = Bytes::copy_from_slice(&scratch);
        self.scratch = scratch;
        self.put(keys::record(ws, uuid).to_vec(), value);
        if record.kind == EntryKind::Group {
            self.forget_parent();
        }
    }

    /// Encodes user metadata for a record, within the limit.
    pub(crate) fn pack_metadata(&self, metadata: &Metadata) -> Result<Vec<u8>> {
        let bytes = metadata.payload_len();
        if bytes > limits::METADATA_BYTES {
            return Err(Error::too_big(format!(
                "the metadata would have {bytes} bytes, the limit is {}: store large values as collections",
                limits::METADATA_BYTES
            ))
            .with_clause(Clause::O4));
        }
        Ok(pack(metadata))
    }

    /// Brings the index entries of a record from its old to its new metadata.
    pub(crate) fn reindex(&mut self, at: usize, uuid: Uuid, old: Option<&Metadata>, new: Option<&Metadata>) {
        let record = self.record(at).clone();
        if record.indexes.is_empty() {
            return;
        }
        let ws = self.workspaces[at].uuid;
        let keys_of = |m: Option<&Metadata>| m.map(|m| index::keys(ws, &record.indexes, uuid, m)).unwrap_or_default();
        let (old, new) = (keys_of(old), keys_of(new));
        for key in old.iter().filter(|key| !new.contains(key)) {
            self.delete(key.clone());
        }
        for key in new.into_iter().filter(|key| !old.contains(key)) {
            self.put(key, Bytes::new());
        }
    }

    /// Takes one name of a record away, or all; the last one takes the record with it (O10).
    pub(crate) fn unname(
        &mut self,
        at: usize,
        uuid: Uuid,
        mut record: Record,
        only: Option<(Uuid, &Name)>,
    ) -> Result<()> {
        let ws = self.workspaces[at].uuid;
        let (gone, left): (Vec<_>, Vec<_>) = record
            .names
            .drain(..)
            .partition(|n| only.is_none_or(|(parent, name)| n.parent == parent && n.name == *name));
        record.names = left;
        for name in &gone {
            self.set_name(ws, name.parent, &name.name, None);
        }
        if only.is_some() && !record.names.is_empty() {
            self.change_record(ws, uuid, &mut record);
            return Ok(());
        }
        if !self.record(at).indexes.is_empty() {
            let metadata = record.pairs()?;
            self.reindex(at, uuid, Some(&metadata), None);
        }
        self.use_more(at, -1, 0);
        self.unbind(uuid, &record);
        let open = self.shared().opens.get(uuid).is_some_and(|e| !e.is_unused());
        // Those who had it open before a crash may come back, and go on with it (O10). Where there is hardly any room, who deletes it needs that more.
        if open || (self.core.in_grace() && !self.core.is_short()) {
            record.deleted = true;
            self.change_record(ws, uuid, &mut record);
            let removed = RemovedRecord { ws, place: record.layout.place };
            self.put(keys::removed(uuid), Bytes::from(removed.to_bytes()));
            self.change_entry(uuid, |entry| entry.deleted = true);
            return Ok(());
        }
        self.remove_record(at, uuid, &record);
        Ok(())
    }

    /// Removes a record that nobody has open, and its object.
    pub(crate) fn remove_record(&mut self, at: usize, uuid: Uuid, record: &Record) {
        let ws = self.workspaces[at].uuid;
        self.delete(keys::record(ws, uuid).to_vec());
        self.changed.push(uuid);
        if record.abandoned_ns != 0 {
            self.delete(keys::abandoned(record.abandoned_ns, uuid));
        }
        if record.state == State::Staging {
            self.delete(keys::in_staging(uuid));
            self.no_more_to_seal(uuid);
        }
        if record.kind == EntryKind::Group {
            self.forget_parent();
            self.delete(keys::removed(uuid));
            return;
        }
        self.use_more(at, 0, -(record.size as i64));
        if record.inline && record.size > 0 {
            self.delete(keys::bytes(ws, uuid).to_vec());
        }
        if record.inline && record.epoch <= FIRST_EPOCH && !self.core.has_crashed(record.opened_in) {
            // No target has ever heard of it: only a passed on hold, or a move that was cut off, leaves an object.
            return;
        }
        let removed = RemovedRecord { ws, place: record.layout.place };
        self.put(keys::removed(uuid), Bytes::from(removed.to_bytes()));
        self.after.remove.push(record.whole(uuid));
    }
}
