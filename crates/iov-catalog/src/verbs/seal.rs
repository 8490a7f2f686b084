//! Seal: fixes bytes and size for good, atomically against writes at the target (M2).

use iov_types::{Clause, EntryKind, Error, Result, Right, State, Uuid, catalog::CatalogReply};

use super::Reply;
use crate::{
    exec::{Exec, Mode, facts::check_there},
    keys,
    record::{Record, Staging},
};

pub(crate) fn seal(x: &mut Exec<'_>, ws: Uuid, uuid: Uuid) -> Reply {
    let at = x.workspace(ws, Right::Write)?;
    need_collection(uuid)?;
    let record = x.usable_record(at, uuid)?;
    if record.kind == EntryKind::Group {
        return Err(not_for_groups("sealed"));
    }
    x.may_change(ws, uuid, &record.names)?;
    if record.state != State::Sealed {
        let session = x.cx.caller.session;
        let epoch = x.entry(uuid).and_then(|e| e.slot(session).map(|s| s.epoch)).unwrap_or(0);
        seal_record(x, at, uuid, record, epoch)?;
    }
    Ok(CatalogReply::Done)
}

/// The error for an operation that groups do not know.
pub(crate) fn not_for_groups(what: &str) -> Error {
    Error::invalid(format!("a group has no bytes and cannot be {what}")).with_clause(Clause::O3)
}

/// Fails for the root, which has no bytes.
pub(crate) fn need_collection(uuid: Uuid) -> Result<()> {
    if uuid.is_nil() {
        return Err(
            Error::invalid("the nil UUID is the root of the workspace, which has no bytes").with_clause(Clause::O3)
        );
    }
    Ok(())
}

/// Seals at the target, then in the record. In a batch that applies as a whole the record comes first, at point P, and
/// the target right behind what the batch publishes there. So it does where another daemon has a part of it: that may die with
/// the seal in its hand, and nobody would know whether it holds.
pub(crate) fn seal_record(x: &mut Exec<'_>, at: usize, uuid: Uuid, mut record: Record, epoch: u64) -> Result<()> {
    let ws = x.workspaces[at].uuid;
    if !record.inline && (record.size > 0 || x.core.has_crashed(record.opened_in)) {
        // Sealing makes an empty object where there is none.
        check_there(x.core, &(&record).into(), &x.target_stat(record.whole(uuid))?)?;
    }
    let later = x.mode == Mode::All || x.core.map().is_elsewhere(record.layout.place);
    let found = match x.mode {
        // Bytes beside the record are sealed with it.
        _ if record.inline => x.stat_bytes(uuid, &record)?,
        Mode::Each if !later => x.core.targets().seal(x.cx, ws, record.whole(uuid), epoch)?,
        _ => x.target_stat(record.whole(uuid))?,
    };
    if later && matches!(x.mode, Mode::All | Mode::Each) && !record.inline {
        x.after.seal.push(Staging { ws, collection: uuid, place: record.layout.place });
        x.after.seal_of.push(x.index());
    }
    x.not_abandoned(uuid, &mut record);
    if record.state == State::Staging {
        x.delete(keys::in_staging(uuid));
    }
    x.no_more_to_seal(uuid);
    record.state = State::Sealed;
    let within_quota = x.record_bytes_of(at, &mut record, &found);
    x.change_record(ws, uuid, &mut record);
    within_quota
}
