//! SetAttr: owner, mode, mtime and lifetime, by the owner (O4).

use iov_types::{Attr, Clause, EntryKind, Error, Right, State, Uuid, catalog::CatalogReply};

use super::Reply;
use crate::{
    access,
    exec::{Exec, Mode},
    state::Touch,
};

fn not_owner() -> Error {
    Error::denied("only its owner, or an administrator of the workspace, may set owner, mode, mtime and lifetime")
        .with_clause(Clause::A1)
}

pub(crate) fn setattr(x: &mut Exec<'_>, ws: Uuid, uuid: Uuid, attr: &Attr) -> Reply {
    let at = x.workspace(ws, Right::Write)?;
    let admin = x.has_right(at, Right::Admin);
    if uuid.is_nil() {
        return set_root(x, at, attr);
    }
    let mut record = x.usable_record(at, uuid)?;
    let caller = &x.cx.caller;
    let gives_away = attr.uid.is_some_and(|uid| uid != record.uid)
        || attr.gid.is_some_and(|gid| gid != record.gid && gid != caller.gid && !caller.groups.contains(&gid));
    if !admin && (record.uid != caller.uid || gives_away) {
        return Err(not_owner());
    }
    x.may_change(ws, uuid, &record.names)?;
    // What kind of file it is stays, and whether it has lists of who may do what.
    record.mode = attr.mode.map_or(record.mode, |mode| record.mode & !0o7777 | mode & 0o7777);
    record.uid = attr.uid.unwrap_or(record.uid);
    record.atime_ns = attr.atime_ns.unwrap_or(record.atime_ns);
    record.gid = attr.gid.unwrap_or(record.gid);
    if let Some(mtime_ns) = attr.mtime_ns {
        record.mtime_ns = mtime_ns;
        if record.kind == EntryKind::Group {
            x.after.touched.push(Touch { ws, group: uuid, at_ns: None });
        }
        if record.kind == EntryKind::Collection
            && !record.inline
            && x.may_be_behind(uuid, record.state, record.opened_in)
        {
            // It holds until the bytes change again.
            record.mtime_base_ns = x.stat_bytes(uuid, &record)?.mtime_ns;
        }
        if x.mode == Mode::All && record.state != State::Sealed {
            x.after.mtime_set.push(uuid);
        }
    }
    if let Some(lifetime) = attr.lifetime {
        x.bind(ws, uuid, &mut record, lifetime)?;
    }
    x.change_record(ws, uuid, &mut record);
    Ok(CatalogReply::Done)
}

fn set_root(x: &mut Exec<'_>, at: usize, attr: &Attr) -> Reply {
    if !x.has_right(at, Right::Admin) {
        return Err(not_owner());
    }
    if attr.lifetime.is_some() {
        return Err(crate::temporary::only_collections());
    }
    let ws = x.workspaces[at].uuid;
    x.may_change(ws, ws, &[])?;
    let mut record = (**x.record(at)).clone();
    record.mode = attr.mode.map_or(record.mode, |mode| record.mode & !0o7777 | mode & 0o7777);
    record.changed_ns = x.now_ns;
    record.owner = attr.uid.unwrap_or(record.owner);
    record.gid = attr.gid.unwrap_or(record.gid);
    if let Some(mtime_ns) = attr.mtime_ns {
        record.mtime_ns = mtime_ns;
        x.after.touched.push(Touch { ws, group: ws, at_ns: None });
    }
    if x.core.is_single_user() {
        access::check_single_user(x.core.uid(), record.owner, &record.access)?;
    }
    record.revision += 1;
    x.set_workspace(ws, Some(record));
    Ok(CatalogReply::Done)
}
