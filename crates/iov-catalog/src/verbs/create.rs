//! Create: makes and opens a collection or group (O2, O3).

use iov_types::{
    Attr, Clause, Concurrency, Controls, Effective, EntryKind, Error, Layout, Metadata, Mutability, Name, Place,
    Result, Right, State, Uuid,
    catalog::{CatalogReply, Opened, Told},
    posix,
};

use super::{Reply, stat};
use crate::{
    exec::{Exec, Mode, Resolved, facts::over_quota, records::FIRST_EPOCH},
    keys,
    map::Wish,
    promise,
    record::{NameIn, Record},
    state::{Entry, Hold},
};

/// Permission bits of a new collection and of a new group: the workspace's access list decides, these are for programs.
const MODES: [u32; 2] = [0o640, 0o750];

/// What a create keeps of a mode: permission bits, and of a collection what kind of file it is to POSIX front doors.
fn mode_bits(kind: EntryKind) -> u32 {
    if kind == EntryKind::Collection { 0o177_777 } else { 0o7777 }
}

/// What is to be created.
pub(crate) struct New {
    pub(crate) ws: Uuid,
    pub(crate) uuid: Uuid,
    pub(crate) kind: EntryKind,
    pub(crate) parent: Uuid,
    pub(crate) name: Option<Name>,
    pub(crate) metadata: Metadata,
    pub(crate) controls: Controls,
    pub(crate) layout: Option<Layout>,
    pub(crate) attr: Attr,
    pub(crate) tell: bool,
}

pub(crate) fn create(x: &mut Exec<'_>, new: New) -> Reply {
    // First: who finds what is there need not be allowed to make it.
    let free = match standing(x, &new) {
        Some(Standing::Taken(told)) => return Ok(told),
        standing => standing.is_some(),
    };
    let New { ws, uuid, kind, parent, name, metadata, controls, layout, attr, tell } = new;
    let at = x.writable(ws)?;
    if kind == EntryKind::Workspace || uuid.is_nil() {
        return Err(Error::invalid("a create makes a collection or a group, and its UUID is not nil"));
    }
    check_quota(x, at)?;
    check_owner(x, at, &attr)?;
    let asked = layout.is_some();
    let inherited = x.parent(ws, parent)?.map(|p| p.layout.clone()).filter(promise::is_set);
    if kind == EntryKind::Group {
        x.check_depth(ws, parent)?;
    }
    let covered = x.cover_in(ws, parent, true)?;
    if let Some(name) = name.as_ref().filter(|_| !free)
        && x.get(&keys::name(ws, parent, name))?.is_some()
    {
        return Err(
            Error::exists(format!("{name:?} is taken: look it up, or choose another name")).with_clause(Clause::O3)
        );
    }
    check_uuid(x, ws, uuid, kind)?;
    let metadata_bytes = x.pack_metadata(&metadata)?;
    let layout = layout.or(inherited).or_else(|| x.record(at).layout.clone().filter(|_| kind == EntryKind::Collection));
    let mut layout = layout.unwrap_or_default();
    layout.place = Place::FIRST;
    let effective = resolve(x, at, kind, &controls, &layout)?;
    if kind == EntryKind::Collection {
        layout = place(x, uuid, (layout, asked), &effective)?;
    }
    layout.revision = 1;

    let state = match (kind, effective.mutability) {
        (EntryKind::Collection, Mutability::Immutable) => State::Staging,
        _ => State::Open,
    };
    let held = covered || effective.concurrency == Concurrency::Exclusive;
    let epoch = if held { FIRST_EPOCH } else { 0 };
    // The daemon of a target elsewhere could not move it there when it is asked for it.
    let elsewhere = x.core.map().is_elsewhere(layout.place);
    let inline = !elsewhere && super::bytes::begins_inline(x, uuid, kind, &effective);
    let caller = &x.cx.caller;
    let mut record = Record {
        kind,
        state,
        links: u32::from(name.is_some()),
        names: name.into_iter().map(|name| NameIn { parent, name }).collect(),
        metadata: metadata_bytes,
        effective,
        asked: controls,
        layout,
        mode: posix::marked(
            attr.mode.unwrap_or(MODES[usize::from(kind == EntryKind::Group)]) & mode_bits(kind),
            &metadata,
        ),
        uid: attr.uid.unwrap_or(caller.uid),
        gid: attr.gid.unwrap_or(caller.gid),
        ctime_ns: x.now_ns,
        mtime_ns: attr.mtime_ns.unwrap_or(x.now_ns),
        mtime_base_ns: 0,
        size: 0,
        allocated: 0,
        version: 0,
        revision: 1,
        epoch,
        pending: Uuid::NIL,
        deleted: false,
        opened_in: x.core.incarnation_to_record(),
        abandoned_ns: 0,
        inline,
        lifetime: None,
        bound_to: Uuid::NIL,
        changed_ns: 0,
        atime_ns: attr.atime_ns.unwrap_or(0),
    };
    if let Some(lifetime) = attr.lifetime {
        x.bind(ws, uuid, &mut record, lifetime)?;
    }
    if !record.layout.place.is_first() && !inline && x.mode != Mode::Dry {
        // All of them together: one that is missing later has been lost (P1). If the record comes to nothing, so do they.
        x.make_objects(ws, record.whole(uuid))?;
    }
    x.put_new_record(ws, uuid, &record);
    if let Some(NameIn { name, .. }) = record.names.first() {
        x.set_name(ws, parent, name, Some((uuid, kind)));
    }
    x.reindex(at, uuid, None, Some(&metadata));
    x.use_more(at, 1, 0);
    // Before it is this session that may be ahead of the record.
    let told = if tell && x.mode == Mode::Each { told(x, at, (uuid, kind), parent)? } else { None };
    let mut entry = Entry::new(ws, kind == EntryKind::Group);
    entry.add(x.cx.caller.session, x.holder, kind == EntryKind::Collection, epoch);
    entry.inline = inline;
    entry.place = record.layout.place;
    entry.hold = held.then_some(Hold::opened(None, x.holder, epoch));
    x.note_writer(ws, uuid, state, &mut entry);
    x.set_entry(uuid, entry);
    Ok(CatalogReply::Opened(Box::new(Opened {
        ws,
        uuid,
        kind,
        state,
        effective: record.effective,
        layout: record.layout,
        epoch,
        writable: true,
        inline,
        size: None,
        told,
    })))
}

/// What a name that is wanted stands for.
enum Standing {
    Nothing,
    /// This, as it is told.
    Taken(CatalogReply),
}

/// What stands for the name of something that is to tell of it; `None`: that is not to be told, or cannot be, and the create says why.
fn standing(x: &mut Exec<'_>, new: &New) -> Option<Standing> {
    let name = new.name.as_ref().filter(|_| new.tell && x.mode == Mode::Each)?;
    let at = x.workspace(new.ws, Right::Read).ok()?;
    x.parent(new.ws, new.parent).ok()?;
    match x.find_name(new.ws, new.parent, name).ok()? {
        None => Some(Standing::Nothing),
        Some(_) => stat::look_for(x, at, new.parent, name).ok().map(Standing::Taken),
    }
}

/// The facts of what was just made, and of the group in which it has a name.
fn told(x: &mut Exec<'_>, at: usize, (uuid, kind): (Uuid, EntryKind), parent: Uuid) -> Result<Option<Box<Told>>> {
    let stat = match kind {
        EntryKind::Group => {
            x.is_without_members(uuid);
            stat::of_group(x, at, uuid)?
        }
        _ => stat::at_hand(x, at, uuid)?.map(|(_, stat)| stat),
    };
    let Some(stat) = stat else { return Ok(None) };
    let group = if stat.links > 0 { stat::of_group(x, at, parent)? } else { None };
    Ok(Some(Box::new(Told { stat, bytes: None, group, may_keep: false })))
}

/// Where a new collection lies. What a batch has staged for it lies there already.
fn place(x: &mut Exec<'_>, uuid: Uuid, (layout, asked): (Layout, bool), effective: &Effective) -> Result<Layout> {
    let core = x.core;
    let mut map = core.map();
    if map.is_one() {
        return Ok(layout);
    }
    let chosen = map.choose(core.store(), &Wish { uuid, layout: &layout, effective, asked })?;
    match x.mode {
        Mode::All if x.staged.binary_search(&uuid).is_ok() => {
            map.stay(chosen, x.places.get(&uuid).copied().unwrap_or_default())
        }
        _ => Ok(chosen),
    }
}

fn check_quota(x: &Exec<'_>, at: usize) -> Result<()> {
    let (usage, record) = (x.workspaces[at].usage, x.record(at));
    if usage.collections >= record.quota_collections {
        return Err(Error::exhausted(format!(
            "the workspace holds {} collections and groups, which is its quota: delete some, or have the quota raised",
            usage.collections
        ))
        .with_clause(Clause::O1));
    }
    if usage.bytes >= record.quota_bytes {
        return Err(over_quota(usage.bytes, record.quota_bytes));
    }
    Ok(())
}

/// Only an administrator makes things that belong to others.
fn check_owner(x: &Exec<'_>, at: usize, attr: &Attr) -> Result<()> {
    let caller = &x.cx.caller;
    let own_user = attr.uid.is_none_or(|uid| uid == caller.uid);
    let own_group = attr.gid.is_none_or(|gid| gid == caller.gid || caller.groups.contains(&gid));
    if (own_user && own_group) || x.has_right(at, Right::Admin) {
        return Ok(());
    }
    Err(Error::denied("only an administrator of the workspace creates what belongs to another user or group")
        .with_clause(Clause::A1))
}

/// So long after it was made nobody takes a UUID for new: one second, in milliseconds.
const NEW_MS: u64 = 1000;

/// Whether a UUID was made just now, so that nothing else can have it. One that comes from elsewhere, as from an export, is old.
fn is_new(uuid: Uuid, now_ns: i64) -> bool {
    let now_ms = u64::try_from(now_ns / 1_000_000).unwrap_or(0);
    uuid.version() == 7 && uuid.unix_ms().abs_diff(now_ms) < NEW_MS
}

/// An identity is used once. Names of members lie under the group's alone, and objects of different workspaces share
/// targets: groups are compared with every workspace, collections where users cannot trust each other, or where they bring an
/// identity that was made before.
fn check_uuid(x: &mut Exec<'_>, ws: Uuid, uuid: Uuid, kind: EntryKind) -> Result<()> {
    let taken = || {
        Error::exists(format!("{uuid} is in use: every collection and group needs a UUID of its own"))
            .with_clause(Clause::O2)
    };
    if x.get(&keys::record(ws, uuid))?.is_some() || x.is_workspace(uuid) || x.shared().is_being_removed(uuid) {
        return Err(taken());
    }
    if kind == EntryKind::Group || !x.core.is_single_user() || !is_new(uuid, x.now_ns) {
        let others: Vec<Uuid> = x.shared().workspaces.uuids().filter(|other| *other != ws).collect();
        for other in others {
            if x.get(&keys::record(other, uuid))?.is_some() {
                return Err(taken());
            }
        }
    }
    Ok(())
}

fn resolve(x: &mut Exec<'_>, at: usize, kind: EntryKind, asked: &Controls, layout: &Layout) -> Result<Effective> {
    let ws = x.workspaces[at].uuid;
    if let Some(last) = &x.resolved
        && last.ws == ws
        && last.kind == kind
        && last.asked == *asked
        && last.layout == *layout
    {
        return Ok(last.effective.clone());
    }
    let record = x.record(at).clone();
    let capability = &x.core.capability_anywhere();
    let effective = if kind == EntryKind::Group {
        // The workspace's default is meant for collections: groups that are exclusive without being asked to be would
        // shut everybody out (X2).
        let defaults = Controls { concurrency: None, ..record.controls.clone() };
        promise::at_create(&defaults, asked, layout, capability)?
    } else {
        promise::at_create(&record.controls, asked, layout, capability)?
    };
    x.resolved =
        Some(Resolved { ws, kind, asked: asked.clone(), layout: layout.clone(), effective: effective.clone() });
    Ok(effective)
}
