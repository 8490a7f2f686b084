//! Metadata: one value, all pairs, adding, removing (O4). The root's are the workspace's.

use iov_types::{Clause, EntryKind, Error, Metadata, Result, Right, Uuid, catalog::CatalogReply, limits, posix};

use super::Reply;
use crate::{
    exec::{Exec, facts::Live},
    predicate::SystemKey,
    record::{Facts, Record, pairs_of},
    system,
};

fn no_key(key: &str) -> Error {
    Error::not_found(format!("there is no key {key:?}: list the metadata to see those there are"))
        .with_clause(Clause::O4)
}

pub(crate) fn get(x: &mut Exec<'_>, ws: Uuid, uuid: Uuid, key: &str) -> Reply {
    let at = x.workspace(ws, Right::Read)?;
    let value = if key.starts_with("iov.") {
        let known = SystemKey::from_text(key).ok_or_else(|| {
            let all: Vec<_> = SystemKey::ALL.into_iter().map(SystemKey::text).collect();
            Error::invalid(format!("there is no system key {key:?}: they are {}", all.join(", ")))
                .with_clause(Clause::O4)
        })?;
        system_value(x, at, uuid, known)?
    } else {
        Metadata::check_key(key)?;
        user_pairs(x, at, uuid)?.get(key).cloned()
    };
    value.map(CatalogReply::Value).ok_or_else(|| no_key(key))
}

fn system_value(x: &mut Exec<'_>, at: usize, uuid: Uuid, key: SystemKey) -> Result<Option<iov_types::Value>> {
    let ws = x.workspaces[at].uuid;
    if uuid.is_nil() {
        return Ok(system::of_workspace(ws, x.record(at), x.workspaces[at].usage, EntryKind::Group, key));
    }
    let bytes = x.record_bytes(ws, uuid)?;
    let record = Record::parse(&bytes)?;
    x.check_usable(at, uuid, record.deleted, record.abandoned_ns, record.uid)?;
    let live = match key {
        SystemKey::Size | SystemKey::Mtime if record.kind == EntryKind::Collection => {
            x.live(ws, uuid, &Facts::parse(&bytes)?, false)?
        }
        SystemKey::Mtime => {
            let known = Live::of(&record);
            Live { mtime_ns: x.touched(uuid).unwrap_or(known.mtime_ns), ..known }
        }
        _ => Live::of(&record),
    };
    Ok(system::of_record(uuid, &record, &live, key))
}

fn user_pairs(x: &mut Exec<'_>, at: usize, uuid: Uuid) -> Result<Metadata> {
    if uuid.is_nil() {
        return Ok(x.record(at).metadata.clone());
    }
    let bytes = x.record_bytes(x.workspaces[at].uuid, uuid)?;
    let facts = Facts::parse(&bytes)?;
    x.check_usable(at, uuid, facts.deleted, facts.abandoned_ns, facts.uid)?;
    pairs_of(&bytes)
}

pub(crate) fn list(x: &mut Exec<'_>, ws: Uuid, uuid: Uuid) -> Reply {
    let at = x.workspace(ws, Right::Read)?;
    user_pairs(x, at, uuid).map(CatalogReply::Metadata)
}

pub(crate) fn put(x: &mut Exec<'_>, ws: Uuid, uuid: Uuid, pairs: &Metadata) -> Reply {
    change(x, ws, uuid, |metadata| {
        metadata.merge(pairs);
        Ok(())
    })
}

pub(crate) fn remove(x: &mut Exec<'_>, ws: Uuid, uuid: Uuid, key: &str) -> Reply {
    Metadata::check_key(key)?;
    change(x, ws, uuid, |metadata| metadata.remove(key).map(drop).ok_or_else(|| no_key(key)))
}

fn change(x: &mut Exec<'_>, ws: Uuid, uuid: Uuid, change: impl FnOnce(&mut Metadata) -> Result<()>) -> Reply {
    let at = x.writable(ws)?;
    if uuid.is_nil() {
        x.may_change(ws, ws, &[])?;
        let mut record = (**x.record(at)).clone();
        change(&mut record.metadata)?;
        check_size(&record.metadata)?;
        record.mode = posix::marked(record.mode, &record.metadata);
        record.changed_ns = x.now_ns;
        record.revision += 1;
        x.set_workspace(ws, Some(record));
        return Ok(CatalogReply::Done);
    }
    let mut record = x.usable_record(at, uuid)?;
    x.may_change(ws, uuid, &record.names)?;
    let before = record.pairs()?;
    let mut after = before.clone();
    change(&mut after)?;
    check_size(&after)?;
    record.mode = posix::marked(record.mode, &after);
    record.metadata = crate::record::pack(&after);
    if !record.deleted {
        x.reindex(at, uuid, Some(&before), Some(&after));
    }
    x.change_record(ws, uuid, &mut record);
    Ok(CatalogReply::Done)
}

/// Fails for more metadata than a record takes.
pub(crate) fn check_size(metadata: &Metadata) -> Result<()> {
    let bytes = metadata.payload_len();
    if bytes <= limits::METADATA_BYTES {
        return Ok(());
    }
    Err(Error::too_big(format!(
        "the metadata would have {bytes} bytes, the limit is {}: store large values as collections",
        limits::METADATA_BYTES
    ))
    .with_clause(Clause::O4))
}
