//! Locks (O11): advisory, on ranges, owned by who has the collection open.
//!
//! A request that may wait is a submission of its own, which [`crate::Service`] takes past the writers: nobody else waits
//! with it. Among other operations a lock is taken at once or fails.

use iov_types::{
    Clause, Error, Range, Result, Right, Uuid,
    catalog::{CatalogReply, LockSpec},
};

use super::{
    Reply,
    seal::{need_collection, not_for_groups},
};
use crate::exec::{Exec, Mode, holds::fenced, records::missing};

/// Fails unless the session has the collection open, and may lock it like that.
pub(crate) fn check(x: &mut Exec<'_>, ws: Uuid, uuid: Uuid, exclusive: bool) -> Result<()> {
    x.workspace(ws, if exclusive { Right::Write } else { Right::Read })?;
    need_collection(uuid)?;
    let entry = x.entry(uuid).filter(|e| e.ws == ws);
    let slot = entry.as_ref().and_then(|e| e.slot(x.cx.caller.session));
    match (&entry, slot) {
        (Some(entry), _) if entry.group => Err(not_for_groups("locked")),
        (_, Some(slot)) if slot.fenced => Err(fenced()),
        (_, Some(_)) => Ok(()),
        _ => {
            Err(Error::stale(format!("{uuid} is not open in this session: open it, then lock"))
                .with_clause(Clause::O11))
        }
    }
}

fn refuse_in_rollback(x: &Exec<'_>) -> Result<()> {
    if x.mode == Mode::All {
        return Err(Error::refused(
            Clause::B3,
            "a lock cannot be taken back with the rest of a rollback batch; offer: lock before the batch, unlock after it",
        ));
    }
    Ok(())
}

pub(crate) fn lock(x: &mut Exec<'_>, ws: Uuid, uuid: Uuid, spec: &LockSpec) -> Reply {
    refuse_in_rollback(x)?;
    check(x, ws, uuid, spec.exclusive)?;
    let session = x.cx.caller.session;
    if x.mode == Mode::Dry {
        return match x.core.locks().query(uuid, session, spec)? {
            None => Ok(CatalogReply::Done),
            Some(_) => Err(Error::busy("others hold a part of the range").with_clause(Clause::O11)),
        };
    }
    let locked = x.core.locks().try_lock(uuid, session, spec, x.monotonic_ns);
    locked.map(|()| CatalogReply::Done).map_err(|e| match spec.try_only {
        true => e,
        false => e.context("a lock that is to wait goes into a request of its own"),
    })
}

pub(crate) fn unlock(x: &mut Exec<'_>, ws: Uuid, uuid: Uuid, spec: &LockSpec) -> Reply {
    refuse_in_rollback(x)?;
    check(x, ws, uuid, false)?;
    if x.mode != Mode::Dry {
        x.core.locks().unlock(uuid, x.cx.caller.session, spec, x.monotonic_ns)?;
    }
    Ok(CatalogReply::Done)
}

pub(crate) fn query(x: &mut Exec<'_>, ws: Uuid, uuid: Uuid, spec: &LockSpec) -> Reply {
    x.workspace(ws, Right::Read)?;
    need_collection(uuid)?;
    let held = x.core.locks().query(uuid, x.cx.caller.session, spec)?;
    let held = held.ok_or_else(|| missing("lock in the way").with_clause(Clause::O11))?;
    Ok(CatalogReply::Lock(LockSpec {
        exclusive: held.exclusive,
        try_only: false,
        range: Range { offset: held.range.offset, len: held.range.len },
        owner: held.owner.id,
        lease_ns: 0,
    }))
}
