//! Stat: the facts (C1: never older than a completed write). Look: the same by name, of what is not open.

use iov_store::KeyRange;
use iov_types::{
    Clause, EntryKind, Kind, Name, Result, Right, Stat, Uuid, Which,
    catalog::{CatalogReply, Looked, Named},
};

use super::Reply;
use crate::{
    exec::{Exec, groups::group_key, records::missing},
    keys,
    record::Facts,
};

/// Names behind one that are looked at along with it, at most.
const MOST_AHEAD: usize = 1024;
/// Bytes of them that are told at most, and a few more, as none is told in part: what a local socket takes without waiting for who reads it.
const MOST_TOLD: usize = 96 << 10;
/// What each of them takes in memory and in the answer, roughly.
const NAMED_BYTES: usize = 512;

pub(crate) fn stat(x: &mut Exec<'_>, ws: Uuid, uuid: Uuid) -> Reply {
    let at = x.workspace(ws, Right::Read)?;
    if uuid.is_nil() {
        return stat_root(x, at);
    }
    if let Some(hot) = x.hot() {
        let mut stat = hot.stat();
        if stat.kind == EntryKind::Group {
            names_of(x, ws, uuid, &mut stat)?;
        }
        return Ok(CatalogReply::Stat(Box::new(stat)));
    }
    facts(x, at, uuid, false)
}

pub(crate) fn look(x: &mut Exec<'_>, ws: Uuid, parent: Uuid, which: &Which, (ahead, tell): (u32, u64)) -> Reply {
    let at = x.workspace(ws, Right::Read)?;
    let name = match which {
        Which::Uuid(uuid) if uuid.is_nil() => return stat_root(x, at),
        Which::Uuid(uuid) => return look_at(x, at, *uuid),
        Which::Name(name) => name,
    };
    x.parent(ws, parent)?;
    match look_for(x, at, parent, name)? {
        CatalogReply::Stat(stat) if ahead > 0 && x.only_reads() => {
            let room = x.room_along(MOST_AHEAD * NAMED_BYTES) / NAMED_BYTES;
            let told = if tell > 0 { with_bytes(x, at, stat.uuid, tell) } else { None };
            let (stat, told) = told.unwrap_or((*stat, None));
            let mut entries = vec![named(name.clone(), stat, told)];
            behind(x, at, (parent, name), ((ahead as usize).min(room), tell), &mut entries)?;
            x.goes_along(entries.len() * NAMED_BYTES);
            Ok(CatalogReply::Looked(Looked { entries }))
        }
        found => Ok(found),
    }
}

/// What the names behind one stand for, as far as nobody has to be asked for it.
fn behind(
    x: &mut Exec<'_>,
    at: usize,
    (parent, name): (Uuid, &Name),
    (ahead, tell): (usize, u64),
    entries: &mut Vec<Named>,
) -> Result<()> {
    let mut told: usize = 0;
    let ws = x.workspaces[at].uuid;
    let names = keys::names(ws, parent);
    let from = keys::name(ws, parent, name);
    for (key, value) in x.scan(&KeyRange::prefix(&names), Some(&from), ahead)? {
        let Ok(name) = Name::new(&key[names.len()..]) else { continue };
        // What is wrong with it is for who asks for it.
        let Ok((uuid, _)) = keys::read_name_value(&value.value) else { continue };
        // Before the record is read, as in `look_at`.
        if x.shared().opens.get(uuid).is_some_and(|e| e.may_be_ahead()) {
            continue;
        }
        if tell > 0 {
            let Some((stat, kept)) = with_bytes(x, at, uuid, tell) else { continue };
            told += kept.as_ref().map_or(0, |(bytes, _)| bytes.len());
            entries.push(named(name, stat, kept));
            if told >= MOST_TOLD {
                break;
            }
            continue;
        }
        let hot = x.shared().hot.get(ws, uuid);
        match hot {
            Some(hot) if hot.stat().kind == EntryKind::Collection => {
                entries.push(named(name, hot.stat(), None));
            }
            // It may have gone since its name was read, or be hidden.
            _ => {
                let found = at_hand(x, at, uuid).ok().flatten();
                entries.extend(found.map(|(_, stat)| named(name, stat, None)));
            }
        }
    }
    Ok(())
}

/// Bytes, and whether they can be written.
type Kept = (Vec<u8>, bool);

fn named(name: Name, stat: Stat, kept: Option<Kept>) -> Named {
    let (bytes, writable) = kept.map_or((None, false), |(bytes, writable)| (Some(bytes), writable));
    Named { name, stat, bytes, writable }
}

/// The facts of something, and its bytes and whether they can be written where they may be told; none: as of [`at_hand`].
fn with_bytes(x: &mut Exec<'_>, at: usize, uuid: Uuid, tell: u64) -> Option<(Stat, Option<Kept>)> {
    // It may have gone since its name was read, or be hidden.
    let (facts, stat) = at_hand(x, at, uuid).ok().flatten()?;
    let bytes = super::open::kept(x, at, uuid, &facts, tell);
    Some((stat, bytes))
}

/// The facts of a group, in a writer's turn.
pub(super) fn of_group(x: &mut Exec<'_>, at: usize, group: Uuid) -> Result<Option<Stat>> {
    let told = if group.is_nil() { stat_root(x, at)? } else { facts(x, at, group, false)? };
    Ok(match told {
        CatalogReply::Stat(stat) => Some(*stat),
        _ => None,
    })
}

/// The facts of something; none: somebody would have to be asked for them, or much would have to be read.
pub(super) fn at_hand(x: &mut Exec<'_>, at: usize, uuid: Uuid) -> Result<Option<(Facts, Stat)>> {
    let facts = x.usable_facts(at, uuid)?;
    let at_target = !facts.inline && x.may_be_behind(uuid, facts.state, facts.opened_in);
    let counted = facts.kind == EntryKind::Collection || x.shared().members.get(uuid).is_some();
    if at_target || !counted {
        return Ok(None);
    }
    let stat = of_record(x, at, uuid, &facts, false)?;
    Ok(Some((facts, stat)))
}

/// What has a name.
pub(super) fn look_for(x: &mut Exec<'_>, at: usize, parent: Uuid, name: &Name) -> Reply {
    let ws = x.workspaces[at].uuid;
    let mut found = x.find_name(ws, parent, name)?;
    loop {
        let (uuid, _) = found.ok_or_else(|| missing(format_args!("{name:?} here")).with_clause(Clause::O3))?;
        let looked = look_at(x, at, uuid);
        if !looked.as_ref().is_err_and(|e| e.kind() == Kind::NotFound) {
            return looked;
        }
        // Readers take no turn: what had the name when it was read may have lost it to another before its record was.
        let now = x.find_name_now(ws, parent, name)?;
        if now == found {
            return looked;
        }
        found = now;
    }
}

/// What has an identity.
fn look_at(x: &mut Exec<'_>, at: usize, uuid: Uuid) -> Reply {
    // Before the record is read, as in `read_ahead`: a length older than a completed write is never told (C1).
    let written = x.shared().opens.get(uuid).is_some_and(|e| e.may_be_ahead());
    facts(x, at, uuid, written)
}

/// What is known of a record; `written`: somebody had it open for writing before that was read.
fn facts(x: &mut Exec<'_>, at: usize, uuid: Uuid, written: bool) -> Reply {
    let facts = x.usable_facts(at, uuid)?;
    Ok(CatalogReply::Stat(Box::new(of_record(x, at, uuid, &facts, written)?)))
}

fn of_record(x: &mut Exec<'_>, at: usize, uuid: Uuid, facts: &Facts, written: bool) -> Result<Stat> {
    let ws = x.workspaces[at].uuid;
    x.learn(ws, uuid, facts);
    let mut stat = Stat::new(facts.kind, uuid);
    stat.ctime_ns = facts.ctime_ns;
    stat.atime_ns = facts.atime_ns;
    stat.changed_ns = facts.changed();
    stat.revision = facts.layout.revision;
    stat.mode = facts.mode;
    stat.links = facts.links;
    stat.uid = facts.uid;
    stat.gid = facts.gid;
    stat.lifetime = facts.lifetime;
    if facts.kind == EntryKind::Group {
        stat.mtime_ns = facts.mtime_ns;
        names_of(x, ws, uuid, &mut stat)?;
    } else {
        let live = x.live(ws, uuid, facts, written)?;
        stat.state = Some(facts.state);
        stat.bytes = live.size;
        stat.allocated = live.allocated;
        stat.mtime_ns = live.mtime_ns;
        stat.version = live.version;
        stat.changed_ns = stat.changed_ns.max(live.changed_ns);
    }
    Ok(stat)
}

/// What is known of the names in a group: how many there are, and when they were last changed.
fn names_of(x: &mut Exec<'_>, ws: Uuid, group: Uuid, stat: &mut Stat) -> Result<()> {
    stat.entries = x.members(ws, group)?;
    if let Some(at_ns) = x.touched(group_key(ws, group)) {
        stat.mtime_ns = at_ns;
        stat.changed_ns = stat.changed_ns.max(at_ns);
    }
    Ok(())
}

fn stat_root(x: &mut Exec<'_>, at: usize) -> Reply {
    let ws = x.workspaces[at].uuid;
    let record = x.record(at).clone();
    let mut stat = Stat::new(EntryKind::Group, Uuid::NIL);
    stat.ctime_ns = record.ctime_ns;
    stat.mtime_ns = record.mtime_ns;
    stat.changed_ns = record.ctime_ns.max(record.mtime_ns).max(record.changed_ns);
    names_of(x, ws, Uuid::NIL, &mut stat)?;
    stat.mode = record.mode;
    stat.links = 1;
    stat.uid = record.owner;
    stat.gid = record.gid;
    Ok(CatalogReply::Stat(Box::new(stat)))
}
