//! Keys of the store. `docs/format.md` lists them; the first byte says what a key is.

use iov_types::{EntryKind, Error, Name, Result, Uuid};

/// Format, identity and incarnation of the store.
pub(crate) const STORE: &[u8] = b"M";
/// First byte of workspace records.
pub(crate) const WORKSPACE: &[u8] = b"W";
/// First byte of usage records.
pub(crate) const USAGE: &[u8] = b"U";
/// First byte of batch records.
pub(crate) const BATCH: &[u8] = b"B";
/// First byte of the list of collections to remove.
pub(crate) const REMOVED: &[u8] = b"D";
/// First byte of the list of unsealed collections whose writer died.
pub(crate) const ABANDONED: &[u8] = b"A";

/// First byte of the list of collections that go by themselves.
pub(crate) const TEMPORARY: &[u8] = b"E";

/// First byte of the list of collections that are to be sealed.
pub(crate) const TO_SEAL: &[u8] = b"S";

/// First byte of the records of targets.
pub(crate) const TARGET: &[u8] = b"T";
/// First byte of the patterns of places.
pub(crate) const PATTERN: &[u8] = b"P";

/// What tickets are signed with.
pub(crate) const TICKETS: &[u8] = b"K";

/// A collection's or group's record.
pub(crate) type RecordKey = [u8; 33];

fn tagged(tag: &[u8], uuid: Uuid) -> Vec<u8> {
    let mut key = Vec::with_capacity(17);
    key.extend_from_slice(tag);
    key.extend_from_slice(&uuid.0);
    key
}

/// The record of a workspace.
pub(crate) fn workspace(ws: Uuid) -> Vec<u8> {
    tagged(WORKSPACE, ws)
}

/// From a workspace's name to its UUID.
pub(crate) fn workspace_name(name: &Name) -> Vec<u8> {
    [b"w", name.as_bytes()].concat()
}

/// What a workspace uses.
pub(crate) fn usage(ws: Uuid) -> Vec<u8> {
    tagged(USAGE, ws)
}

fn numbered(tag: &[u8], number: u32) -> Vec<u8> {
    [tag, &number.to_be_bytes()].concat()
}

/// A target.
pub(crate) fn target(number: u32) -> Vec<u8> {
    numbered(TARGET, number)
}

/// A list of targets.
pub(crate) fn pattern(number: u32) -> Vec<u8> {
    numbered(PATTERN, number)
}

/// A committed batch.
pub(crate) fn batch(batch: Uuid) -> Vec<u8> {
    tagged(BATCH, batch)
}

/// A collection that is to be removed.
pub(crate) fn removed(uuid: Uuid) -> Vec<u8> {
    tagged(REMOVED, uuid)
}

/// A collection that goes by itself.
pub(crate) fn temporary(uuid: Uuid) -> Vec<u8> {
    tagged(TEMPORARY, uuid)
}

/// A collection that is to be sealed once nobody can come back to write it.
pub(crate) fn to_seal(uuid: Uuid) -> Vec<u8> {
    tagged(TO_SEAL, uuid)
}

/// An unsealed collection whose writer died at a time.
pub(crate) fn abandoned(since_ns: i64, uuid: Uuid) -> Vec<u8> {
    let mut key = Vec::with_capacity(25);
    key.extend_from_slice(ABANDONED);
    key.extend_from_slice(&since_ns.max(0).to_be_bytes());
    key.extend_from_slice(&uuid.0);
    key
}

/// An unsealed collection that somebody may be writing: behind all that are abandoned.
pub(crate) fn in_staging(uuid: Uuid) -> Vec<u8> {
    abandoned(i64::MAX, uuid)
}

/// What the keys of all those begin with.
pub(crate) fn all_in_staging() -> Vec<u8> {
    let mut key = in_staging(Uuid::NIL);
    key.truncate(9);
    key
}

/// The record of a collection or group.
pub(crate) fn record(ws: Uuid, uuid: Uuid) -> RecordKey {
    let mut key = [b'R'; 33];
    key[1..17].copy_from_slice(&ws.0);
    key[17..].copy_from_slice(&uuid.0);
    key
}

/// The bytes of a collection that live beside its record.
pub(crate) fn bytes(ws: Uuid, uuid: Uuid) -> RecordKey {
    let mut key = record(ws, uuid);
    key[0] = b'C';
    key
}

/// What all records of a workspace begin with.
pub(crate) fn records(ws: Uuid) -> Vec<u8> {
    tagged(b"R", ws)
}

/// What all names in a group begin with; a nil `parent` is the root, which has the workspace's UUID.
pub(crate) fn names(ws: Uuid, parent: Uuid) -> Vec<u8> {
    tagged(b"N", if parent.is_nil() { ws } else { parent })
}

/// A name in a group.
pub(crate) fn name(ws: Uuid, parent: Uuid, name: &Name) -> Vec<u8> {
    let mut key = Vec::with_capacity(17 + name.as_bytes().len());
    key.push(b'N');
    key.extend_from_slice(if parent.is_nil() { &ws.0 } else { &parent.0 });
    key.extend_from_slice(name.as_bytes());
    key
}

/// What a name stands for.
pub(crate) fn name_value(uuid: Uuid, kind: EntryKind) -> [u8; 17] {
    let mut value = [kind as u8; 17];
    value[..16].copy_from_slice(&uuid.0);
    value
}

/// Reads what [`name_value`] wrote.
pub(crate) fn read_name_value(value: &[u8]) -> Result<(Uuid, EntryKind)> {
    let wrong = || Error::corrupt("a name's value is not a UUID and a kind: check the store");
    let value: &[u8; 17] = value.try_into().map_err(|_| wrong())?;
    let kind = match value[16] {
        k if k == EntryKind::Group as u8 => EntryKind::Group,
        k if k == EntryKind::Collection as u8 => EntryKind::Collection,
        _ => return Err(wrong()),
    };
    Ok((uuid_at(value, 0)?, kind))
}

/// Sixteen bytes of a key as a UUID.
pub(crate) fn uuid_at(key: &[u8], at: usize) -> Result<Uuid> {
    key.get(at..at + 16)
        .and_then(|bytes| bytes.try_into().ok())
        .map(Uuid)
        .ok_or_else(|| Error::corrupt("a key of the store is too short: check the store"))
}
