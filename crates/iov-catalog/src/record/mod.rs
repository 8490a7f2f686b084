//! What the catalog stores, field by field. `docs/format.md` documents the tags, which are for ever.
//!
//! Records are strict: a field that this release does not know was written by a newer one, and dropping it at the next
//! change would lose it.

mod batch;
mod store;
mod workspace;

pub(crate) use batch::{BatchRecord, Staging};
pub(crate) use store::{FORMAT, RemovedRecord, StoreRecord, TemporaryRecord, ToSealRecord};
pub(crate) use workspace::{Usage, WorkspaceRecord};

use iov_types::{
    Controls, Effective, EntryKind, Error, Layout, Lifetime, Metadata, Name, ObjectId, Result, State, Uuid,
};
use iov_wire::{
    Wire,
    codec::{Field, Implicit, kind},
    message,
};

/// A name and the group it is in; nil = the root.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct NameIn {
    pub(crate) parent: Uuid,
    pub(crate) name: Name,
}

message! { NameIn { 1 => parent: uuid, 2 => name: required name } }

/// User metadata as a message of its own, so that a record can be changed without taking them apart.
struct Pairs {
    pairs: Metadata,
}

message! { Pairs { 1 => pairs: pairs } }

/// Encodes user metadata for a record, without a copy of them.
pub(crate) fn pack(metadata: &Metadata) -> Vec<u8> {
    if metadata.is_empty() {
        return Vec::new();
    }
    let mut packed = Vec::with_capacity(metadata.payload_len() + 16 * metadata.len() + 8);
    <Implicit<kind::pairs> as Field<Metadata>>::put(metadata, 1, &mut packed);
    packed
}

/// A collection or group.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Record {
    pub(crate) kind: EntryKind,
    pub(crate) state: State,
    pub(crate) names: Vec<NameIn>,
    /// The number of names, for readers that skip them.
    pub(crate) links: u32,
    /// What [`pack`] made.
    pub(crate) metadata: Vec<u8>,
    pub(crate) effective: Effective,
    /// What was asked of it at create, before defaults.
    pub(crate) asked: Controls,
    /// Of a group: the default for what is created in it.
    pub(crate) layout: Layout,
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) ctime_ns: i64,
    pub(crate) mtime_ns: i64,
    /// The target's time of the last change when `mtime_ns` was set: while the target still says so, `mtime_ns` holds.
    pub(crate) mtime_base_ns: i64,
    pub(crate) size: u64,
    pub(crate) allocated: u64,
    pub(crate) version: u64,
    /// Grows with each change of the record.
    pub(crate) revision: u64,
    /// The fencing epoch of the last exclusive hold (X1).
    pub(crate) epoch: u64,
    /// The last batch that staged changes of it (B3).
    pub(crate) pending: Uuid,
    /// Its last name is gone; it lives on for those who have it open (O10).
    pub(crate) deleted: bool,
    /// The last incarnation of the catalog in which it was opened for writing.
    pub(crate) opened_in: u64,
    /// When its writer died without sealing it; 0 = no (M2).
    pub(crate) abandoned_ns: i64,
    /// Its bytes are beside the record and not at a target.
    pub(crate) inline: bool,
    /// It goes by itself.
    pub(crate) lifetime: Option<Lifetime>,
    /// The holder whose processes keep it, if those do.
    pub(crate) bound_to: Uuid,
    /// Names, owner, mode or metadata last changed at; 0 = not since it was made.
    pub(crate) changed_ns: i64,
    /// Last accessed at, as somebody set it.
    pub(crate) atime_ns: i64,
}

message! {
    strict Record {
        1 => kind: required number,
        2 => state: required number,
        3 => names: repeated message,
        4 => links: uint,
        5 => metadata: bytes,
        6 => effective: required message,
        7 => asked: message,
        8 => layout: message,
        9 => mode: uint,
        10 => uid: uint,
        11 => gid: uint,
        12 => ctime_ns: sint,
        13 => mtime_ns: sint,
        14 => size: uint,
        15 => allocated: uint,
        16 => version: uint,
        17 => revision: uint,
        18 => epoch: uint,
        19 => pending: uuid,
        20 => deleted: boolean,
        21 => opened_in: uint,
        22 => mtime_base_ns: sint,
        23 => abandoned_ns: sint,
        24 => inline: boolean,
        25 => lifetime: optional message,
        26 => bound_to: uuid,
        27 => changed_ns: sint,
        28 => atime_ns: sint,
    }
}

/// The part of a [`Record`] that a stat needs: reading it allocates nothing.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Facts {
    pub(crate) kind: EntryKind,
    pub(crate) state: State,
    pub(crate) links: u32,
    pub(crate) layout: Layout,
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) ctime_ns: i64,
    pub(crate) mtime_ns: i64,
    pub(crate) mtime_base_ns: i64,
    pub(crate) size: u64,
    pub(crate) allocated: u64,
    pub(crate) version: u64,
    pub(crate) deleted: bool,
    pub(crate) opened_in: u64,
    pub(crate) abandoned_ns: i64,
    pub(crate) inline: bool,
    pub(crate) lifetime: Option<Lifetime>,
    pub(crate) changed_ns: i64,
    pub(crate) atime_ns: i64,
}

message! {
    Facts {
        1 => kind: required number,
        2 => state: required number,
        4 => links: uint,
        8 => layout: message,
        9 => mode: uint,
        10 => uid: uint,
        11 => gid: uint,
        12 => ctime_ns: sint,
        13 => mtime_ns: sint,
        14 => size: uint,
        15 => allocated: uint,
        16 => version: uint,
        20 => deleted: boolean,
        21 => opened_in: uint,
        22 => mtime_base_ns: sint,
        23 => abandoned_ns: sint,
        24 => inline: boolean,
        25 => lifetime: optional message,
        27 => changed_ns: sint,
        28 => atime_ns: sint,
    }
}

/// The part of a [`Record`] that a look at a group as a parent needs.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Lineage {
    pub(crate) kind: EntryKind,
    pub(crate) names: Vec<NameIn>,
    pub(crate) layout: Layout,
    pub(crate) deleted: bool,
}

message! { Lineage { 1 => kind: required number, 3 => names: repeated message, 8 => layout: message, 20 => deleted: boolean } }

/// The part of a [`Record`] that tells its metadata.
struct MetadataOf {
    metadata: Vec<u8>,
}

message! { MetadataOf { 5 => metadata: bytes } }

impl Record {
    /// Reads a record and checks what every other part of the catalog takes for granted.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Record> {
        let record = Record::decode(bytes)?;
        check_kind(record.kind)?;
        if record.links as usize != record.names.len() {
            return Err(Error::corrupt(format!(
                "a record has {} names and counts {}: check the store",
                record.names.len(),
                record.links
            )));
        }
        Ok(record)
    }

    /// The name of its objects together.
    pub(crate) fn whole(&self, uuid: Uuid) -> ObjectId {
        self.layout.place.whole(uuid)
    }

    /// The user metadata.
    pub(crate) fn pairs(&self) -> Result<Metadata> {
        Ok(Pairs::decode(&self.metadata)?.pairs)
    }

    /// The time of the last change, given what the target says; 0 = the target knows of none.
    pub(crate) fn mtime(&self, target_ns: i64) -> i64 {
        if target_ns == self.mtime_base_ns { self.mtime_ns } else { target_ns }
    }
}

impl Facts {
    /// When anything of it was last changed, as far as the record knows.
    pub(crate) fn changed(&self) -> i64 {
        self.changed_ns.max(written_at(self.mtime_base_ns, self.mtime_ns)).max(self.ctime_ns)
    }

    /// Reads the facts of a record.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Facts> {
        let facts = Facts::decode(bytes)?;
        check_kind(facts.kind)?;
        Ok(facts)
    }

    /// As [`Record::mtime`].
    pub(crate) fn mtime(&self, target_ns: i64) -> i64 {
        if target_ns == self.mtime_base_ns { self.mtime_ns } else { target_ns }
    }
}

/// When a target was written to, given its own time and the one that the record tells of that; 0 = that says nothing. Where the two differ the latter was set
/// behind it, which `changed_ns` tells, or bytes were moved to the target as they were, which nobody is to see.
pub(crate) fn written_at(target_ns: i64, mtime_ns: i64) -> i64 {
    if target_ns == mtime_ns { target_ns } else { 0 }
}

/// The user metadata of an encoded record.
pub(crate) fn pairs_of(bytes: &[u8]) -> Result<Metadata> {
    Ok(Pairs::decode(&MetadataOf::decode(bytes)?.metadata)?.pairs)
}

fn check_kind(kind: EntryKind) -> Result<()> {
    match kind {
        EntryKind::Group | EntryKind::Collection => Ok(()),
        EntryKind::Workspace => Err(Error::corrupt("a record says that it is a workspace: check the store")),
    }
}

#[cfg(test)]
mod tests;
