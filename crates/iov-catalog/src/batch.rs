//! Batches that apply as a whole (B3), and publications, which are the same with few operations (M1).
//!
//! ```text
//! run on the view ─ freeze at targets ─ commit ═ P ═ publish at targets ─ forget the list of what to publish
//!        └── any failure: discard at targets, forget the view
//! ```
//!
//! A frozen object lets nobody in, so whoever sees the commit waits for the bytes, and whoever sees the bytes comes
//! after the commit. The commit holds the list of what is still to be published: a catalog that dies behind P goes on
//! with it when it is opened again, one that dies before P leaves stages that no committed batch names.

use bytes::Bytes;
use iov_store::{Answer, OpCx, seam};
use iov_types::{
    Clause, EntryKind, Error, Kind, ObjectId, ObjectVerb, Outcome, Result, Stat, State, Uuid,
    catalog::{CatalogOp, CatalogReply, Opened, Presented, Removed, Staged},
    limits,
};
use iov_wire::Wire;

use crate::{
    Service,
    exec::{Exec, Mode, holds::fenced, records::missing},
    keys,
    patience::{PATIENCE_NS, until},
    record::{BatchRecord, Staging},
    redo::{self, Redo},
    service::{Writer, room_for},
    state::Entry,
    targets::op,
    verbs::resume::take_up,
};

/// Runs a batch that applies as a whole.
pub(crate) fn run(
    service: &Service,
    cx: &OpCx,
    holder: Uuid,
    ops: Vec<CatalogOp>,
    batch: Uuid,
    remember: bool,
    staged: Vec<Staged>,
) -> Answer {
    let mut writer = service.core.writer();
    service.may_write(&writer)?;
    service.settle_for(&mut writer, cx, &ops);
    if remember {
        if let Some(answer) = remembered(service, &mut writer, cx, holder, batch, &staged)? {
            return Ok(answer);
        }
        check_age(service, batch)?;
    } else if batch.is_nil() && !staged.is_empty() {
        return Err(Error::invalid("staged changes need the id of their batch").with_clause(Clause::B3));
    }
    let batch = if batch.is_nil() { seam::new_uuid() } else { batch };
    let mut staged = staged;
    staged.sort_by_key(|s| s.collection);
    staged.dedup_by_key(|s| s.collection);
    check_published(service, &mut writer, cx, &staged)?;

    let mut x = service.start(&mut writer, cx, holder, Mode::All);
    x.stage = Some(batch);
    x.room = room_for(&ops);
    let prepared = prepare(&mut x, ops, batch, remember, &staged);
    let mut prepared = match prepared {
        Ok(prepared) => prepared,
        Err(refused) => {
            if refused.is_away() {
                x.keep_staged_objects();
            }
            x.undo_all();
            service.recycle(&mut writer, x);
            if refused.is_away() {
                thaw(service, &mut writer, cx, batch, &staged);
            } else {
                discard(service, &mut writer, cx, batch, &staged);
            }
            // Whatever a target did: it comes to nothing.
            return match refused {
                Refused::ByOperation(mut replies) => {
                    let last = replies.pop();
                    replies.extend(last.map(|last| last.map_err(|e| e.with_outcome(Outcome::NotApplied))));
                    Ok(replies)
                }
                Refused::AsAWhole(e) => Err(e.with_outcome(Outcome::NotApplied)),
            };
        }
    };
    let committed = service.commit(&mut writer, &mut x, true);
    let after = std::mem::take(&mut x.after);
    service.recycle(&mut writer, x);
    if let Err(e) = committed {
        if e.outcome() == Outcome::NotApplied {
            discard(service, &mut writer, cx, batch, &staged);
        } else {
            after_failed_commit(service, &mut writer, cx, batch);
        }
        return Err(e);
    }
    // What was not thawed after an earlier try must not be now.
    writer.thaw.retain(|(_, stage)| *stage != batch);
    discard(service, &mut writer, cx, batch, &prepared.dropped);
    let mut unpublished = None;
    if let Some(record) = prepared.redo {
        writer.redo.push(Redo { batch, record, mtime_set: after.mtime_set.clone(), late: false });
        let mut failed = redo::finish(service, &mut writer, cx, Some(batch));
        // What will never be durable is told to nobody but who has just committed it.
        failed.sort_by_key(|(_, e)| e.clause() != Some(Clause::P8));
        unpublished = failed.into_iter().next();
    }
    service.follow_up(&mut writer, cx, after, &mut prepared.replies);
    match unpublished {
        None => Ok(prepared.replies),
        Some((_, e)) => Err(e
            .with_outcome(Outcome::Applied)
            .context("the batch is committed; a target could not publish it yet, which is tried again")),
    }
}

/// Everything up to P.
struct Prepared {
    replies: Vec<Result<CatalogReply>>,
    /// What is to be done at targets once it is committed.
    redo: Option<BatchRecord>,
    /// Staged changes of collections that the batch itself deletes.
    dropped: Vec<Staged>,
}

enum Refused {
    ByOperation(Vec<Result<CatalogReply>>),
    AsAWhole(Error),
}

impl Refused {
    /// Whether a target could not be asked: it may be back soon, and the batch repeated.
    fn is_away(&self) -> bool {
        match self {
            Refused::ByOperation(replies) => matches!(replies.last(), Some(Err(e)) if is_away(e)),
            Refused::AsAWhole(e) => is_away(e),
        }
    }
}

impl From<Error> for Refused {
    fn from(e: Error) -> Refused {
        Refused::AsAWhole(e)
    }
}

fn prepare(
    x: &mut Exec<'_>,
    ops: Vec<CatalogOp>,
    batch: Uuid,
    remember: bool,
    staged: &[Staged],
) -> std::result::Result<Prepared, Refused> {
    check_staged(x, staged)?;
    x.staged = staged.iter().map(|s| s.collection).collect();
    x.places = staged.iter().filter(|s| !s.place.is_first()).map(|s| (s.collection, s.place)).collect();
    let mut replies = x.run(ops, true);
    if replies.last().is_some_and(Result::is_err) {
        return Err(Refused::ByOperation(replies));
    }
    let (mut publish, mut dropped) = (Vec::new(), Vec::new());
    for s in staged {
        let exists = x.get(&keys::record(s.workspace, s.collection))?.is_some();
        if exists { publish.push(s.clone()) } else { dropped.push(s.clone()) }
    }
    let freeze = |s: &Staged| {
        let mut freeze = op(whole(s), ObjectVerb::Freeze { stage: batch }, s.epoch);
        freeze.demand.domain = Some(s.workspace);
        freeze
    };
    let freeze = publish.iter().map(freeze).collect();
    let mut frozen = Vec::with_capacity(publish.len());
    for evidence in x.core.targets().run(x.cx, freeze) {
        frozen.push(evidence?);
    }
    for (s, evidence) in publish.iter().zip(&frozen) {
        let at = x.workspace_of_handle(s.workspace)?;
        let mut record = x.any_record(s.workspace, s.collection)?;
        let mtime_set = x.after.mtime_set.contains(&s.collection).then_some(record.mtime_ns);
        x.record_bytes_of(at, &mut record, evidence).map_err(|e| e.with_outcome(Outcome::NotApplied))?;
        record.mtime_ns = mtime_set.unwrap_or(record.mtime_ns);
        record.pending = batch;
        x.put_record(s.workspace, s.collection, &mut record);
    }
    let seal = x.after.seal.clone();
    let staging = |s: Staged| Staging { ws: s.workspace, collection: s.collection, place: s.place };
    let publish: Vec<Staging> = publish.into_iter().map(staging).collect();
    for (s, evidence) in publish.iter().zip(&frozen) {
        // Behind the replies: the size from which the appends of the batch know their place (M4).
        let stat = Stat { bytes: evidence.size, ..Stat::new(EntryKind::Collection, s.collection) };
        replies.push(Ok(CatalogReply::Stat(Box::new(stat))));
    }
    let to_do = !publish.is_empty() || !seal.is_empty();
    if !to_do && !remember {
        return Ok(Prepared { replies, redo: None, dropped });
    }
    let record = BatchRecord {
        uid: x.cx.caller.uid,
        expires_ns: if remember { x.now_ns.saturating_add(limits::BATCH_MEMORY_NS) } else { 0 },
        publish,
        seal,
        replies: if remember { replies.iter().flatten().map(kept).collect() } else { Vec::new() },
    };
    x.put(keys::batch(batch), Bytes::from(record.to_bytes()));
    Ok(Prepared { replies, redo: to_do.then_some(record), dropped })
}

/// A reply as it is kept for who repeats the batch: what went along with it is of that moment.
fn kept(reply: &CatalogReply) -> CatalogReply {
    match reply {
        CatalogReply::Opened(opened) => CatalogReply::Opened(Box::new(Opened { told: None, ..(**opened).clone() })),
        CatalogReply::Removed(removed) => {
            CatalogReply::Removed(Box::new(Removed { group: None, ..(**removed).clone() }))
        }
        reply => reply.clone(),
    }
}

/// Fails while an earlier batch has still to publish one of these collections: its target would keep this one waiting for that, and
/// that for the catalog, which is this one's until it is done. Nothing else is asked of a target, and what is staged there stays.
fn check_published(service: &Service, writer: &mut Writer, cx: &OpCx, staged: &[Staged]) -> Result<()> {
    let is_staged = |owed: &Staging| staged.iter().any(|s| s.collection == owed.collection);
    let unpublished = |redo: &Redo| redo.record.publish.iter().any(is_staged);
    redo::finish_needed(service, writer, cx, unpublished);
    if writer.redo.iter().any(unpublished) {
        let why = "an earlier batch is committed, and a target could not publish it yet: repeat this one";
        return Err(Error::unavailable(why).with_clause(Clause::B3).with_outcome(Outcome::NotApplied));
    }
    Ok(())
}

/// What holds before the batch: nobody else holds or has sealed what it has staged.
fn check_staged(x: &mut Exec<'_>, staged: &[Staged]) -> Result<()> {
    for s in staged {
        x.workspace(s.workspace, iov_types::Right::Write)?;
        x.core.map().check(s.place)?;
        let session = x.cx.caller.session;
        if x.entry(s.collection).is_some_and(|e| e.slot(session).is_some_and(|slot| slot.fenced)) {
            return Err(fenced());
        }
        if x.get(&keys::record(s.workspace, s.collection))?.is_none() {
            continue; // the batch may create it
        }
        let record = x.any_record(s.workspace, s.collection)?;
        if record.deleted && x.entry(s.collection).is_none_or(|e| e.slot(session).is_none()) {
            return Err(missing(s.collection).with_clause(Clause::O10));
        }
        x.may_change(s.workspace, s.collection, &record.names)?;
        if record.layout.place != s.place {
            return Err(Error::stale("the changes are staged where the collection does not lie: repeat the batch"));
        }
        if record.inline {
            return Err(Error::invalid("nothing of it is staged at a target: its bytes are in the record"));
        }
        if record.state == State::Sealed {
            return Err(Error::immutable("the collection is sealed: what is staged for it cannot be published")
                .with_clause(Clause::M2));
        }
    }
    Ok(())
}

/// All objects of a collection that has staged changes.
fn whole(staged: &Staged) -> ObjectId {
    staged.place.whole(staged.collection)
}

/// Drops what is staged. Where a target cannot be asked now, what was frozen is let go when it is back: then it is its session's, and
/// goes with that.
fn discard(service: &Service, writer: &mut Writer, cx: &OpCx, batch: Uuid, staged: &[Staged]) {
    let ops = staged.iter().map(|s| op(whole(s), ObjectVerb::Discard { stage: batch }, 0)).collect();
    let dropped = service.core.targets().run(cx, ops);
    let left = staged.iter().zip(dropped).filter(|(_, done)| done.as_ref().is_err_and(is_away));
    writer.thaw.extend(left.map(|(s, _)| (whole(s), batch)));
}

/// Whether a target of another daemon could not be asked: it may be back soon.
pub(crate) fn is_away(e: &Error) -> bool {
    matches!(e.kind(), Kind::Unavailable | Kind::Timeout)
}

/// Lets everybody pass what the batch has frozen, and leaves what it has staged: its session may repeat it. What cannot be done
/// now is done when the target is back.
fn thaw(service: &Service, writer: &mut Writer, cx: &OpCx, batch: Uuid, staged: &[Staged]) {
    writer.thaw.extend(staged.iter().map(|s| (whole(s), batch)));
    thaw_all(service, writer, cx);
}

/// Goes on with what could not be thawed before, but where a target has lately kept everybody waiting.
pub(crate) fn thaw_all(service: &Service, writer: &mut Writer, cx: &OpCx) {
    let begun_ns = service.core.monotonic_ns();
    let targets = |object: ObjectId| service.core.map().waited_for_at_object(object);
    let all = std::mem::take(&mut writer.thaw).into_iter().map(|(object, stage)| (object, stage, targets(object)));
    let (left, all): (Vec<_>, Vec<_>) = all.partition(|(_, _, at)| writer.frozen.rests(at, begun_ns));
    let ops = all.iter().map(|(object, stage, _)| op(*object, ObjectVerb::Thaw { stage: *stage }, 0)).collect();
    let thawed = service.core.targets().run(&until(cx, PATIENCE_NS), ops);
    let now_ns = service.core.monotonic_ns();
    writer.thaw.extend(left.into_iter().map(|(object, stage, _)| (object, stage)));
    for ((_, _, at), _) in all.iter().zip(&thawed).filter(|(_, done)| !done.as_ref().is_err_and(is_away)) {
        writer.frozen.goes_on(at);
    }
    for ((object, stage, at), done) in all.into_iter().zip(thawed) {
        let Err(e) = done else { continue };
        if e.kind() == Kind::Timeout {
            writer.frozen.hangs(&at, now_ns.saturating_sub(begun_ns), now_ns);
        }
        if is_away(&e) {
            writer.thaw.insert((object, stage));
        }
    }
}

/// The commit may or may not be in the log. If the store shows it, the batch is committed and goes on. If not, the
/// objects stay frozen: dropping the stage of a batch that turns out to be committed would lose bytes. The next open
/// of the catalog decides, or the batch's retry.
fn after_failed_commit(service: &Service, writer: &mut Writer, cx: &OpCx, batch: Uuid) {
    if let Ok(Some(record)) = known(service, batch) {
        writer.redo.push(Redo { batch, record, mtime_set: Vec::new(), late: true });
        redo::finish(service, writer, cx, Some(batch));
    }
}

/// What operations that stand each by itself still have to seal at targets of other daemons: it is written down with them. And
/// the places of those operations.
pub(crate) fn to_seal(x: &mut Exec<'_>) -> Option<(Redo, Vec<usize>)> {
    let (seal, at) = (std::mem::take(&mut x.after.seal), std::mem::take(&mut x.after.seal_of));
    if seal.is_empty() {
        return None;
    }
    let (batch, uid) = (seam::new_uuid(), x.cx.caller.uid);
    let record = BatchRecord { uid, expires_ns: 0, publish: Vec::new(), seal, replies: Vec::new() };
    x.put(keys::batch(batch), Bytes::from(record.to_bytes()));
    Some((Redo { batch, record, mtime_set: Vec::new(), late: false }, at))
}

/// What is remembered of a batch.
pub(crate) fn known(service: &Service, batch: Uuid) -> Result<Option<BatchRecord>> {
    let found = service.core.store().get(&[&keys::batch(batch)])?.pop().flatten();
    found.map(|record| BatchRecord::decode(&record.value)).transpose()
}

/// The answer to a batch that was committed before.
fn remembered(
    service: &Service,
    writer: &mut Writer,
    cx: &OpCx,
    holder: Uuid,
    batch: Uuid,
    staged: &[Staged],
) -> Result<Option<Vec<Result<CatalogReply>>>> {
    if batch.version() != 7 {
        return Err(Error::invalid(format!(
            "{batch} is no batch id: it must be a UUID of version 7, as iov_uuid_new makes"
        ))
        .with_clause(Clause::B3));
    }
    let Some(record) = known(service, batch)? else { return Ok(None) };
    if record.uid != cx.caller.uid {
        return Err(Error::denied(format!("{batch} is another user's batch: make a new id")).with_clause(Clause::B3));
    }
    let is_this = |redo: &Redo| redo.batch == batch;
    redo::finish_needed(service, writer, cx, is_this);
    if writer.redo.iter().any(is_this) {
        return Err(Error::unavailable("the batch is committed, but a target cannot publish it yet: repeat later")
            .with_clause(Clause::B3)
            .with_outcome(Outcome::Applied));
    }
    // What the retry has staged once more is in the collections already.
    discard(service, writer, cx, batch, staged);
    // Whatever becomes of its handles, the batch has been applied.
    reopen(service, writer, cx, holder, &record.replies).map_err(|e| e.with_outcome(Outcome::Applied))?;
    Ok(Some(record.replies.into_iter().map(Ok).collect()))
}

/// The replies of the batch of a dry run, if it was applied before.
pub(crate) fn applied(service: &Service, cx: &OpCx) -> Result<Option<Vec<Result<CatalogReply>>>> {
    if cx.batch.is_nil() {
        return Ok(None);
    }
    let record = known(service, cx.batch)?.filter(|record| record.uid == cx.caller.uid);
    Ok(record.map(|record| record.replies.into_iter().map(Ok).collect()))
}

/// A session that repeats a batch has the handles that the batch opened, also if it is another session now.
fn reopen(service: &Service, writer: &mut Writer, cx: &OpCx, holder: Uuid, replies: &[CatalogReply]) -> Result<()> {
    let mut x = service.start(writer, cx, holder, Mode::Each);
    for reply in replies {
        let CatalogReply::Opened(opened) = reply else { continue };
        let key = if opened.uuid.is_nil() { opened.ws } else { opened.uuid };
        let record = x.any_record(opened.ws, opened.uuid).ok();
        let exists = opened.uuid.is_nil() || record.is_some();
        let inline = record.as_ref().is_some_and(|r| r.inline);
        let place = record.as_ref().map(|r| r.layout.place).unwrap_or_default();
        let entry = x.entry(key);
        let fresh = entry.is_none();
        if !exists || entry.as_ref().is_some_and(|e| e.slot(cx.caller.session).is_some()) {
            continue;
        }
        let group = opened.kind == iov_types::EntryKind::Group;
        let mut entry = entry.unwrap_or_else(|| Entry::new(opened.ws, group));
        entry.add(cx.caller.session, holder, opened.writable && !group, opened.epoch);
        if fresh {
            (entry.inline, entry.place) = (inline, place);
        }
        if let (Some(record), true) = (record, opened.writable && !group) {
            // As any open for writing: it has a writer again, and may get longer than its record says.
            let (ws, uuid, kind, epoch) = (opened.ws, opened.uuid, opened.kind, opened.epoch);
            let as_opened = Presented { ws, uuid, kind, handles: 1, writers: 1, epoch };
            let noted = x.workspace_of_handle(ws).and_then(|at| take_up(&mut x, at, &as_opened, record, &mut entry));
            if let Err(e) = noted {
                x.undo_all();
                service.recycle(writer, x);
                return Err(e);
            }
        }
        x.set_entry(key, entry);
    }
    service.commit_own(writer, cx, x)
}

/// An id that is not remembered must be young enough that it cannot have been forgotten.
fn check_age(service: &Service, batch: Uuid) -> Result<()> {
    let made_ns = i64::try_from(batch.unix_ms()).unwrap_or(i64::MAX).saturating_mul(1_000_000);
    if made_ns.saturating_add(limits::BATCH_MEMORY_NS) < service.core.now_ns() {
        return Err(Error::stale(format!(
            "the batch id {batch} is older than 24 h: whether it was applied is forgotten; look, then use a new id"
        ))
        .with_clause(Clause::B3));
    }
    Ok(())
}
