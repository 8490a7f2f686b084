//! Bytes that live beside their record: small collections cost no object at a target, and move there when they grow.
//!
//! They are read and written here alone, in turns, so that every level of consistency and every unit of atomicity is
//! given. Whoever needs more than that (direct access, stages, holes) has them moved out first.

use bytes::Bytes;
use iov_store::{Bytes as Payload, OpCx};
use iov_types::{
    Atomicity, Clause, Effective, EntryKind, Error, Evidence, Kind, Mutability, ObjectVerb, Outcome, Persistence,
    Result, Right, State, Uuid, catalog::CatalogReply, limits,
};

use super::{
    Reply,
    seal::{need_collection, not_for_groups},
};
use crate::{
    exec::{Exec, Mode, facts::over_quota, records::FIRST_EPOCH},
    keys,
    record::Record,
    targets::op,
};

/// Whether a new collection begins with its bytes in the record: it may stay small, and asks for nothing that only a
/// target can give.
pub(crate) fn begins_inline(x: &Exec<'_>, uuid: Uuid, kind: EntryKind, effective: &Effective) -> bool {
    let limit = x.core.capability().inline_bytes;
    let staged = match x.mode {
        Mode::Dry => true,
        Mode::All => x.staged.binary_search(&uuid).is_ok(),
        Mode::Read | Mode::Each => false,
    };
    limit > 0
        && kind == EntryKind::Collection
        && !staged
        && effective.atomicity != Atomicity::Publication
        && effective.mutability != Mutability::Append
        && effective.request_size.min <= limit
        && effective.collection_size.min <= limit
}

fn collection(kind: EntryKind) -> Result<()> {
    if kind == EntryKind::Group { Err(not_for_groups("read or written")) } else { Ok(()) }
}

pub(crate) fn read(x: &mut Exec<'_>, ws: Uuid, uuid: Uuid, offset: u64, len: u64) -> Reply {
    let at = x.workspace(ws, Right::Read)?;
    need_collection(uuid)?;
    let facts = x.usable_facts(at, uuid)?;
    collection(facts.kind)?;
    if !facts.inline {
        return Ok(CatalogReply::Moved);
    }
    let bytes = stored(x, ws, uuid, facts.size)?;
    let from = offset.min(bytes.len() as u64) as usize;
    let to = offset.saturating_add(len).min(bytes.len() as u64) as usize;
    Ok(CatalogReply::Bytes(bytes.get(from..to).unwrap_or_default().to_vec()))
}

/// The record of a collection whose bytes this session may change, and the place of its workspace.
fn changing(x: &mut Exec<'_>, ws: Uuid, uuid: Uuid) -> Result<(usize, Record)> {
    let at = x.writable(ws)?;
    need_collection(uuid)?;
    if x.mode != Mode::Each {
        return Err(
            Error::invalid("bytes of a batch that applies as a whole are staged at a target").with_clause(Clause::B3)
        );
    }
    let record = x.usable_record(at, uuid)?;
    collection(record.kind)?;
    x.may_change(ws, uuid, &record.names)?;
    if record.state == State::Sealed {
        return Err(Error::immutable("the collection is sealed: write to a new one").with_clause(Clause::M2));
    }
    let session = x.cx.caller.session;
    if x.entry(uuid).is_none_or(|e| e.slot(session).is_none_or(|s| s.writers == 0)) {
        return Err(Error::stale("the collection is not open for writing in this session: open it again")
            .with_clause(Clause::O10));
    }
    Ok((at, record))
}

/// Bytes that may lie beside a record. None where the medium of the records has little room: deleting them would give back no space until tables are
/// merged, and at a target it does at once. But who promised that a collection stays small has no target asked (H2).
fn limit(x: &Exec<'_>, record: &Record) -> u64 {
    let limit = x.core.capability().inline_bytes;
    let max = record.effective.collection_size.max;
    if (max == 0 || max > limit) && x.core.is_scarce() { 0 } else { limit }
}

/// Makes room for bytes up to `end`; `false`: they are at a target now.
fn reach(x: &mut Exec<'_>, at: usize, uuid: Uuid, record: &mut Record, end: u64) -> Result<bool> {
    check_max(record, end)?;
    // What lies in the record already takes no more room there.
    let limit = if end <= record.size { x.core.capability().inline_bytes } else { limit(x, record) };
    if end > limit {
        // Whoever has it moved changes it next, perhaps within the same tick of the target's clock, which would tell that of nobody then.
        (record.mtime_ns, record.changed_ns) = (x.now_ns, x.now_ns);
        move_record_out(x, at, uuid, record)?;
        return Ok(false);
    }
    check_room(x, at, record, end)?;
    Ok(true)
}

fn check_max(record: &Record, end: u64) -> Result<()> {
    let max = record.effective.collection_size.max;
    if max != 0 && end > max {
        return Err(Error::file_too_big(format!(
            "byte {end} is beyond collection_size.max = {max}; use a collection with a larger limit"
        ))
        .with_clause(Clause::H1));
    }
    Ok(())
}

/// Whether the workspace may have the bytes by which it grows to `end`.
fn check_room(x: &Exec<'_>, at: usize, record: &Record, end: u64) -> Result<()> {
    let grown = end.saturating_sub(record.size);
    let (used, quota) = (x.workspaces[at].usage.bytes, x.record(at).quota_bytes);
    if grown > 0 && used.saturating_add(grown) > quota {
        return Err(over_quota(used.saturating_add(grown), quota).with_outcome(Outcome::NotApplied));
    }
    Ok(())
}

/// Puts bytes beside their record.
fn keep(x: &mut Exec<'_>, at: usize, uuid: Uuid, mut record: Record, bytes: Vec<u8>) -> Reply {
    let ws = x.workspaces[at].uuid;
    x.use_more(at, 0, bytes.len() as i64 - record.size as i64);
    record.size = bytes.len() as u64;
    record.allocated = record.size;
    record.mtime_ns = x.now_ns;
    record.changed_ns = x.now_ns;
    record.version += 1;
    let key = keys::bytes(ws, uuid).to_vec();
    match bytes.is_empty() {
        true => x.delete(key),
        false => x.put(key, Bytes::from(bytes)),
    }
    x.put_record(ws, uuid, &mut record);
    Ok(CatalogReply::Done)
}

pub(crate) fn write(x: &mut Exec<'_>, ws: Uuid, uuid: Uuid, offset: u64, data: &[u8]) -> Reply {
    let (at, mut record) = changing(x, ws, uuid)?;
    if !record.inline {
        return Ok(CatalogReply::Moved);
    }
    if data.is_empty() {
        return Ok(CatalogReply::Done);
    }
    let end = offset.saturating_add(data.len() as u64);
    let first = offset == 0 && record.size == 0 && end > limit(x, &record);
    // Not under a fence, for the sake of which the object would have to stay if this fails; and nobody else is waited for here.
    let here = record.epoch <= FIRST_EPOCH && !x.core.map().is_elsewhere(record.layout.place);
    if first && here && end <= limits::WRITE_THROUGH {
        return write_through(x, at, uuid, record, data);
    }
    if !reach(x, at, uuid, &mut record, end)? {
        return Ok(CatalogReply::Moved);
    }
    let old = stored(x, ws, uuid, record.size)?;
    let mut bytes = Vec::with_capacity(end.max(record.size) as usize);
    bytes.extend_from_slice(&old);
    // What lies between is a hole, which reads as zeros (O6).
    bytes.resize(end.max(record.size) as usize, 0);
    bytes[offset as usize..end as usize].copy_from_slice(data);
    keep(x, at, uuid, record, bytes)
}

/// An empty collection goes to its target with the first bytes that are written: so who writes a little more than a record takes asks once.
fn write_through(x: &mut Exec<'_>, at: usize, uuid: Uuid, mut record: Record, data: &[u8]) -> Reply {
    let (ws, end) = (x.workspaces[at].uuid, data.len() as u64);
    check_max(&record, end)?;
    check_room(x, at, &record, end)?;
    let bytes = Bytes::copy_from_slice(data);
    let found = make_object(x, ws, uuid, &record, &bytes).inspect_err(|_| forget_object(x, uuid, &record))?;
    x.note_made(record.whole(uuid));
    x.use_more(at, 0, end as i64);
    (record.size, record.allocated, record.mtime_base_ns) = (end, found.allocated, found.mtime_ns);
    (record.mtime_ns, record.changed_ns) = (x.now_ns, x.now_ns);
    record.version = found.version.max(record.version + 1);
    record.inline = false;
    x.put_record(ws, uuid, &mut record);
    x.note_moved(uuid);
    Ok(CatalogReply::Done)
}

/// The catalog changes one thing after the other, so that nobody's bytes lie on another's (M4).
pub(crate) fn append(x: &mut Exec<'_>, ws: Uuid, uuid: Uuid, data: &[u8]) -> Reply {
    let (at, mut record) = changing(x, ws, uuid)?;
    let offset = record.size;
    if !record.inline || !reach(x, at, uuid, &mut record, offset.saturating_add(data.len() as u64))? {
        return Ok(CatalogReply::Moved);
    }
    if !data.is_empty() {
        let bytes = [&stored(x, ws, uuid, offset)?[..], data].concat();
        keep(x, at, uuid, record, bytes)?;
    }
    Ok(CatalogReply::Appended(offset))
}

pub(crate) fn truncate(x: &mut Exec<'_>, ws: Uuid, uuid: Uuid, size: u64) -> Reply {
    let (at, mut record) = changing(x, ws, uuid)?;
    if !record.inline || !reach(x, at, uuid, &mut record, size)? {
        return Ok(CatalogReply::Moved);
    }
    let mut bytes = stored(x, ws, uuid, record.size)?.to_vec();
    bytes.resize(size as usize, 0);
    keep(x, at, uuid, record, bytes)
}

/// Whoever may read it may have it moved: nobody sees a difference.
pub(crate) fn move_out(x: &mut Exec<'_>, ws: Uuid, uuid: Uuid) -> Reply {
    let at = x.workspace(ws, Right::Read)?;
    need_collection(uuid)?;
    let mut record = x.usable_record(at, uuid)?;
    collection(record.kind)?;
    if record.inline {
        move_record_out(x, at, uuid, &mut record)?;
    } else {
        // Memory does not know where nobody knew how the commit of a move had ended.
        x.note_moved(uuid);
    }
    Ok(CatalogReply::Moved)
}

/// The bytes beside a record.
pub(super) fn stored(x: &mut Exec<'_>, ws: Uuid, uuid: Uuid, size: u64) -> Result<Bytes> {
    if size == 0 {
        return Ok(Bytes::new());
    }
    let bytes = x.get(&keys::bytes(ws, uuid))?.unwrap_or_default();
    if bytes.len() as u64 != size {
        return Err(Error::corrupt(format!(
            "{uuid} has {size} bytes and {} are stored beside its record: check the store",
            bytes.len()
        )));
    }
    Ok(bytes)
}

/// The object comes first: until the record says that the bytes are there, nobody looks at it, so that a crash between
/// the two changes nothing.
fn move_record_out(x: &mut Exec<'_>, at: usize, uuid: Uuid, record: &mut Record) -> Result<()> {
    if x.mode != Mode::Each {
        return Err(Error::invalid("bytes are moved out by an operation of their own"));
    }
    let ws = x.workspaces[at].uuid;
    let bytes = stored(x, ws, uuid, record.size)?;
    let sealed = record.state == State::Sealed;
    if sealed {
        // A move that was cut off may have sealed what it made: then nothing could be put there.
        x.core.targets().remove(x.cx, vec![record.whole(uuid)]);
    }
    if !bytes.is_empty() {
        let found = make_object(x, ws, uuid, record, &bytes).inspect_err(|_| forget_object(x, uuid, record))?;
        record.allocated = found.allocated;
        record.mtime_base_ns = found.mtime_ns;
        record.version = record.version.max(found.version);
        x.delete(keys::bytes(ws, uuid).to_vec());
        if record.epoch <= FIRST_EPOCH {
            // Where the move is refused after all.
            x.note_made(record.whole(uuid));
        }
    }
    if bytes.is_empty() && record.layout.place.is_first() && x.target_stat(record.whole(uuid))?.size > 0 {
        // Of a first write of which nobody knew how it had ended.
        let cut = op(record.whole(uuid), ObjectVerb::Truncate { size: 0 }, record.epoch);
        x.core.targets().run_with(x.cx, vec![(cut, Payload::None)])?;
    }
    if bytes.is_empty() && !record.layout.place.is_first() {
        // All of them together: one that is missing later has been lost.
        x.make_objects(ws, record.whole(uuid))?;
    }
    if sealed {
        x.core.targets().seal(x.cx, ws, record.whole(uuid), 0).inspect_err(|_| forget_object(x, uuid, record))?;
    }
    record.inline = false;
    x.put_record(ws, uuid, record);
    x.note_moved(uuid);
    Ok(())
}

fn make_object(x: &Exec<'_>, ws: Uuid, uuid: Uuid, record: &Record, bytes: &Bytes) -> Result<Evidence> {
    let (targets, object) = (x.core.targets(), record.whole(uuid));
    // Where one target has all of it and nobody is to be kept out, what is written tells what the object is like then.
    let tells = record.epoch == 0 && record.layout.place.is_first();
    // What a move that was cut off has left. File systems take what was cut to nothing for something that is replaced, and write it out as it is closed.
    let left = if tells {
        targets.make_and_stat(x.cx, ws, object)?.size > 0
    } else {
        match targets.fence(x.cx, ws, object, record.epoch) {
            // An open that was to raise the epoch has failed after it had told the target.
            Err(e) if e.kind() == Kind::Conflict => {}
            fenced => fenced?,
        }
        match targets.stat(x.cx, object, None) {
            Err(e) if e.kind() == Kind::NotFound => false,
            found => found?.size > 0,
        }
    };
    let mut ops = Vec::new();
    if left {
        ops.push((op(object, ObjectVerb::Truncate { size: 0 }, 0), Payload::None));
    }
    ops.push((op(object, ObjectVerb::Write { offset: 0 }, 0), Payload::From(bytes)));
    if record.effective.persistence >= Persistence::Durable {
        let mut durable = op(object, ObjectVerb::Sync, 0);
        durable.demand.durability = Some(record.effective.persistence);
        ops.push((durable, Payload::None));
    }
    if !tells {
        ops.push((op(object, ObjectVerb::Stat, 0), Payload::None));
    }
    targets.run_with(x.cx, ops)
}

/// The move has failed. Unless a fence needs it, no object stays behind: nobody would remove it with the record.
fn forget_object(x: &Exec<'_>, uuid: Uuid, record: &Record) {
    if record.epoch <= FIRST_EPOCH {
        // Also where the time of the operation is over.
        let cx = OpCx::new(x.cx.caller.clone(), limits::DEFAULT_DEADLINE_NS);
        x.core.targets().remove(&cx, vec![record.whole(uuid)]);
    }
}
