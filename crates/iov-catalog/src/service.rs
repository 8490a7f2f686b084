//! The catalog: the one owner of its facts. Writers take turns, readers pass them by.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
};

use bytes::Bytes;
use iov_store::{Answer, Backend, Catalog, CatalogCapability, Fact, MetadataStore, OnAnswer, OpCx, Room, Txn};
use iov_types::{
    Caller, Clause, Error, Kind, ObjectId, Outcome, Result, Uuid,
    catalog::{CatalogOp, CatalogReply, LockSpec, Submission},
};

use crate::{
    batch,
    changes::facts_of,
    core::{Core, Found, Options, ServiceStats, count},
    exec::{After, Exec, Mode, parted::Sealing},
    map::{Fleet, Map},
    patience::Hung,
    recovery,
    redo::Redo,
    state::{Workspace, Workspaces},
    targets::Targets,
    temporary::Temporary,
    verbs,
    view::Pending,
};

/// Pending writes whose memory is kept for the next submission.
const KEPT_WRITES: usize = 1 << 16;

/// What only the present writer touches.
#[derive(Default)]
pub(crate) struct Writer {
    pending: Pending,
    /// Writes that nobody waits for: they go with the next commit.
    pub(crate) lazy: Vec<(Vec<u8>, Option<Bytes>)>,
    /// Batches that are committed but not everywhere published.
    pub(crate) redo: Vec<Redo>,
    /// Targets that are left alone, as they did not answer in time: of these, of what is to be removed, and of what is to be thawed.
    pub(crate) hung: Hung,
    pub(crate) keeps: Hung,
    pub(crate) frozen: Hung,
    /// Objects that a target has not removed yet.
    pub(crate) remove: Vec<ObjectId>,
    /// Objects and the stages that have frozen them for batches which came to nothing, at targets that were away.
    pub(crate) thaw: BTreeSet<(ObjectId, Uuid)>,
    /// Not before this time, on the monotonic clock, is tried again to remove objects of other daemons.
    pub(crate) again_ns: i64,
    /// Collections that go by themselves.
    pub(crate) temporary: Temporary,
    /// What was closed behind a crash and is to be sealed.
    pub(crate) sealing: Sealing,
    /// Sessions that are gone, and whose end could not be written down, as a target was away.
    pub(crate) unended: Vec<Uuid>,
    pub(crate) end_again_ns: i64,
    /// The catalog was closed.
    pub(crate) closed: bool,
}

/// A catalog over a metadata store and targets.
pub struct Service {
    pub(crate) core: Arc<Core>,
    /// When [`Service::tick`] last looked through the store.
    pub(crate) swept_ns: AtomicI64,
    /// When the catalog was opened, in milliseconds since 1970.
    pub(crate) began_ms: u64,
}

impl Service {
    /// Opens a catalog and finishes what a crash left half done. A newer format is refused.
    pub fn open(store: Arc<dyn MetadataStore>, targets: Arc<dyn Backend>, options: Options) -> Result<Service> {
        Service::open_after(store, targets, options, 0)
    }

    /// The same where sessions of the incarnation before live: for `grace_ns` they may come back with what they have
    /// open, see [`Service::resume`], and nobody takes it over.
    pub fn open_after(
        store: Arc<dyn MetadataStore>,
        targets: Arc<dyn Backend>,
        options: Options,
        grace_ns: i64,
    ) -> Result<Service> {
        let found = recovery::enter(&*store, &options, grace_ns > 0)?;
        Service::begin(store, targets, (Map::default(), found), options, grace_ns)
    }

    /// The same over several targets.
    pub fn open_fleet(store: Arc<dyn MetadataStore>, fleet: Fleet, options: Options, grace_ns: i64) -> Result<Service> {
        // A store of a newer format stays as it is.
        let found = recovery::enter(&*store, &options, grace_ns > 0)?;
        let targets = Arc::new(fleet.spread.clone());
        let map = Map::open(&*store, fleet)?;
        Service::begin(store, targets, (map, found), options, grace_ns)
    }

    fn begin(
        store: Arc<dyn MetadataStore>,
        targets: Arc<dyn Backend>,
        (map, found): (Map, Found),
        options: Options,
        grace_ns: i64,
    ) -> Result<Service> {
        let core = Arc::new(Core::new(store, Targets::new(targets), map, options, found));
        core.shared_mut().workspaces = Workspaces::load(core.store())?;
        let swept_ns = AtomicI64::new(core.monotonic_ns());
        if grace_ns > 0 {
            let until_ns = core.monotonic_ns().saturating_add(grace_ns);
            core.grace_ns.store(until_ns, Relaxed);
            core.locks().begin_grace(until_ns);
        }
        let began_ms = u64::try_from(core.now_ns() / 1_000_000).unwrap_or(0);
        let service = Service { core, swept_ns, began_ms };
        recovery::recover(&service)?;
        Ok(service)
    }

    /// What it has done so far.
    pub fn stats(&self) -> ServiceStats {
        self.core.stats()
    }

    /// The identity of the store.
    pub fn store_uuid(&self) -> Uuid {
        self.core.store_uuid()
    }

    /// A context for what the catalog does by itself, or for a session that is gone.
    pub(crate) fn own_cx(&self, session: Uuid) -> OpCx {
        let caller = Caller { uid: self.core.uid(), gid: 0, groups: Vec::new(), session, holder: session };
        OpCx::new(caller, iov_types::limits::DEFAULT_DEADLINE_NS)
    }

    pub(crate) fn answer(&self, cx: &OpCx, ops: Vec<CatalogOp>, how: Submission) -> Answer {
        let holder = self.admit(cx, ops.len())?;
        let is_known = |op: &CatalogOp| matches!(op, CatalogOp::TokenExport) && !self.core.is_alone();
        let reads = ops.iter().all(|op| only_reads(op) || is_known(op));
        match how {
            Submission::Each | Submission::UntilFailure if reads => {
                Ok(self.read(cx, holder, ops, how != Submission::Each))
            }
            Submission::Each => self.write(cx, holder, ops, false),
            Submission::UntilFailure => self.write(cx, holder, ops, true),
            // Of a batch that was applied already, the answer is the one it got (B3).
            Submission::DryRun => match batch::applied(self, cx)? {
                Some(replies) => Ok(replies),
                None => self.dry_run(cx, holder, ops),
            },
            Submission::All { batch, remember, staged } => batch::run(self, cx, holder, ops, batch, remember, staged),
        }
    }

    /// Lets a submission in and tells for whom it acts.
    pub(crate) fn admit(&self, cx: &OpCx, ops: usize) -> Result<Uuid> {
        count(&self.core.counts.submissions, 1);
        count(&self.core.counts.operations, ops);
        if ops > self.core.capability().max_ops {
            return Err(Error::too_big(format!(
                "{ops} operations in one request, the limit is {}: split the batch",
                self.core.capability().max_ops
            ))
            .with_clause(Clause::B4));
        }
        if self.core.is_single_user() && cx.caller.uid != self.core.uid() {
            return Err(
                Error::denied(format!("this store serves the user {} alone", self.core.uid())).with_clause(Clause::A2)
            );
        }
        let now = self.core.monotonic_ns();
        self.core.locks().report_alive(cx.caller.session, now);
        Ok(self.core.sessions().touch(&cx.caller, now))
    }

    pub(crate) fn read(
        &self,
        cx: &OpCx,
        holder: Uuid,
        ops: Vec<CatalogOp>,
        until_failure: bool,
    ) -> Vec<Result<CatalogReply>> {
        Exec::new(&self.core, cx, holder, Mode::Read, Pending::default()).run(ops, until_failure)
    }

    pub(crate) fn write(&self, cx: &OpCx, holder: Uuid, ops: Vec<CatalogOp>, until_failure: bool) -> Answer {
        let mut writer = self.core.writer();
        self.may_write(&writer)?;
        self.settle_for(&mut writer, cx, &ops);
        self.end_temporary(&mut writer, cx, false);
        let mut x = self.start(&mut writer, cx, holder, Mode::Each);
        x.room = room_for(&ops);
        let mut replies = x.run(ops, until_failure);
        let seals = batch::to_seal(&mut x);
        let committed = self.commit(&mut writer, &mut x, false);
        let after = std::mem::take(&mut x.after);
        self.recycle(&mut writer, x);
        committed?;
        if let Some(seals) = seals {
            self.seal_now(&mut writer, cx, seals, &mut replies);
        }
        self.follow_up(&mut writer, cx, after, &mut replies);
        Ok(replies)
    }

    /// A lock takes no turn as writer: it may wait until a writer gives it back.
    fn lock_or_wait(&self, cx: &OpCx, ws: Uuid, uuid: Uuid, lock: &LockSpec, done: OnAnswer) {
        let holder = match self.admit(cx, 1) {
            Ok(holder) => holder,
            Err(e) => return done(Err(e)),
        };
        let mut x = Exec::new(&self.core, cx, holder, Mode::Read, Pending::default());
        let allowed = verbs::lock::check(&mut x, ws, uuid, lock.exclusive);
        let now_ns = x.monotonic_ns;
        // Whoever closes the collection changes what is open first and takes the locks away second.
        let shared = self.core.shared();
        let is_open = shared.opens.get(uuid).is_some_and(|e| e.slot(cx.caller.session).is_some());
        match allowed {
            Ok(()) if is_open => {
                self.core.locks().lock(uuid, cx.caller.session, lock, (cx.deadline_ns, now_ns), done);
            }
            Ok(()) => {
                drop(shared);
                done(Ok(vec![Err(Error::stale("the handle was closed meanwhile").with_clause(Clause::O11))]));
            }
            Err(e) => {
                drop(shared);
                done(Ok(vec![Err(e)]));
            }
        }
    }

    fn dry_run(&self, cx: &OpCx, holder: Uuid, ops: Vec<CatalogOp>) -> Answer {
        let mut writer = self.core.writer();
        self.may_write(&writer)?;
        let mut x = self.start(&mut writer, cx, holder, Mode::Dry);
        x.stage = (!cx.batch.is_nil()).then_some(cx.batch);
        let replies = x.run(ops, true);
        x.undo_all();
        self.recycle(&mut writer, x);
        Ok(replies)
    }

    pub(crate) fn may_write(&self, writer: &Writer) -> Result<()> {
        if writer.closed { Err(Error::unavailable("the catalog is closed: open the store again")) } else { Ok(()) }
    }

    /// A submission that writes.
    pub(crate) fn start<'a>(&'a self, writer: &mut Writer, cx: &'a OpCx, holder: Uuid, mode: Mode) -> Exec<'a> {
        Exec::new(&self.core, cx, holder, mode, std::mem::take(&mut writer.pending))
    }

    /// Keeps the memory of a submission for the next one.
    pub(crate) fn recycle(&self, writer: &mut Writer, mut x: Exec<'_>) {
        let pending = std::mem::take(x.pending());
        if pending.capacity() <= KEPT_WRITES {
            writer.pending = pending;
        }
    }

    /// Commits what a submission wrote, in one call to the store, and makes memory follow. `together`: readers see memory
    /// and store change at one moment (B3).
    ///
    /// If the store fails nobody knows whether it was written: memory is read anew, the caller hears `Unknown`.
    pub(crate) fn commit(&self, writer: &mut Writer, x: &mut Exec<'_>, together: bool) -> Result<()> {
        x.put_usage();
        let mut writes = x.pending().take();
        if !writes.is_empty() {
            writes.append(&mut writer.lazy);
        }
        // Before anybody sees a part of it, until all of it is seen.
        let changing = self.changing(|| match x.after.all_changes {
            true => vec![Fact::All],
            false => facts_of(&writes, &x.after.touched),
        });
        let mut shared = together.then(|| self.core.shared_mut());
        if !writes.is_empty() {
            count(&self.core.counts.commits, 1);
            count(&self.core.counts.keys_written, writes.len());
            // Who gives back the space of an object makes room at once, unless others come along who can wait.
            let releases = x.room > Room::Free && !x.after.remove.is_empty();
            let room = if releases { x.room.max(Room::Releasing) } else { x.room };
            if let Err(e) = self.commit_writes(writes, room) {
                drop(shared);
                if e.outcome() != Outcome::NotApplied {
                    // The records may be there: so must be what they stand for.
                    x.keep_objects();
                }
                x.undo_all();
                self.reload();
                // Whatever else was read from it.
                drop(self.changing(|| vec![Fact::All]));
                return Err(e);
            }
        }
        let shared = shared.get_or_insert_with(|| self.core.shared_mut());
        shared.commits += 1;
        for uuid in x.take_changed() {
            shared.hot.forget(uuid);
        }
        for touch in x.after.touched.drain(..) {
            shared.touched.apply(touch);
        }
        shared.end_holds(x.after.ended_holds.drain(..));
        for uuid in x.take_moved() {
            shared.opens.set_moved(uuid);
        }
        for state in x.workspaces.drain(..).filter(|w| w.changed || w.used) {
            let (record, usage) = (state.record, state.usage);
            shared.workspaces.set(state.uuid, record.map(|record| Workspace { record, usage }));
        }
        for uuid in x.take_loose() {
            match shared.opens.get(uuid) {
                Some(entry) if entry.is_unused() => drop(shared.opens.set(uuid, None)),
                Some(entry) if entry.written && !entry.has_lengths() => shared.opens.set_written(uuid, false),
                _ => {}
            }
        }
        drop(changing);
        x.committed();
        writer.unended.append(&mut x.after.heirs);
        writer.temporary.apply(std::mem::take(&mut x.after.bound));
        Ok(())
    }

    /// Commits what the catalog does by itself, with all that follows.
    pub(crate) fn commit_own(&self, writer: &mut Writer, cx: &OpCx, mut x: Exec<'_>) -> Result<()> {
        let committed = self.commit(writer, &mut x, false);
        let after = std::mem::take(&mut x.after);
        self.recycle(writer, x);
        committed?;
        self.follow_up(writer, cx, after, &mut []);
        Ok(())
    }

    /// One transaction: the catalog is the only writer, so that nothing needs a guard.
    pub(crate) fn commit_writes(&self, writes: Vec<(Vec<u8>, Option<Bytes>)>, room: Room) -> Result<()> {
        let unknown = |e: Error| match (e.kind(), e.outcome()) {
            // A full medium takes nothing, and says so.
            (Kind::Exhausted, Outcome::NotApplied) => e,
            _ => e
                .with_outcome(Outcome::Unknown)
                .context("the metadata store failed at a commit; repeat with the same batch id"),
        };
        let (store, txns) = (self.core.store(), vec![Txn { guards: Vec::new(), writes }]);
        let commits = store.commit_with(txns, room).map_err(unknown)?;
        for commit in commits {
            commit.map_err(unknown)?;
        }
        Ok(())
    }

    fn reload(&self) {
        let mut shared = self.core.shared_mut();
        shared.members.clear();
        shared.hot.clear();
        shared.commits += 1;
        // A store that cannot be read any more fails every operation by itself.
        if let Ok(workspaces) = Workspaces::load(self.core.store()) {
            shared.workspaces = workspaces;
        }
    }

    /// What follows a commit.
    pub(crate) fn follow_up(&self, writer: &mut Writer, cx: &OpCx, after: After, replies: &mut [Result<CatalogReply>]) {
        if !after.persist.is_empty()
            && let Err(e) = self.core.store().persist()
        {
            for at in after.persist {
                if let Some(reply) = replies.get_mut(at) {
                    *reply = Err(e.clone());
                }
            }
        }
        if !after.remove.is_empty() {
            self.core.shared_mut().being_removed.extend(after.remove.iter().map(|object| object.collection));
            writer.remove.extend(after.remove);
            self.remove_objects(writer, cx);
        }
        let session = cx.caller.session;
        let now_ns = self.core.monotonic_ns();
        writer.temporary.used(&after.closed, now_ns);
        writer.temporary.used(&after.left, now_ns);
        if !after.closed.is_empty() {
            let mut locks = self.core.locks();
            after.closed.iter().for_each(|collection| locks.close(*collection, session));
        }
        if after.ended {
            self.core.locks().end_session(session);
            self.core.cursors().drop_session(session);
            self.core.sessions().end(session);
        }
    }

    /// Gives the answers that locks were waited for. No lock of the catalog may be held.
    pub(crate) fn deliver(&self) {
        let finished = self.core.locks().take_finished();
        for (done, answer) in finished {
            done(answer);
        }
    }
}

/// What room operations that are committed together may take where the medium is full.
pub(crate) fn room_for(ops: &[CatalogOp]) -> Room {
    let makes_room = |op: &CatalogOp| {
        use CatalogOp::{Delete, Discard, Unlink, WorkspaceDelete};
        matches!(op, Delete { .. } | Unlink { .. } | Discard { .. } | WorkspaceDelete { .. })
    };
    if ops.iter().all(|op| makes_room(op) || only_reads(op)) {
        return Room::Freeing;
    }
    if ops.iter().all(is_vital) { Room::Kept } else { Room::Free }
}

/// Whether an operation makes room, or lets somebody read or end, or changes what has its room: it must go on when the medium is full.
fn is_vital(op: &CatalogOp) -> bool {
    matches!(
        op,
        CatalogOp::Open { .. }
            | CatalogOp::Close { .. }
            | CatalogOp::Delete { .. }
            | CatalogOp::Unlink { .. }
            | CatalogOp::Discard { .. }
            | CatalogOp::MetaRemove { .. }
            | CatalogOp::SetAttr { .. }
            | CatalogOp::Rename { .. }
            | CatalogOp::Truncate { size: 0, .. }
            | CatalogOp::Publish { .. }
            | CatalogOp::Seal { .. }
            | CatalogOp::WorkspaceDelete { .. }
            | CatalogOp::WorkspacePersist { .. }
            | CatalogOp::TokenExport
            | CatalogOp::Goodbye
    ) || only_reads(op)
}

/// Whether a lock alone in a submission may wait.
fn waits(how: &Submission) -> bool {
    matches!(how, Submission::Each | Submission::UntilFailure)
}

/// Whether an operation changes nothing, so that it need not wait for writers.
fn only_reads(op: &CatalogOp) -> bool {
    matches!(
        op,
        CatalogOp::WorkspaceLoad { .. }
            | CatalogOp::WorkspaceSearch { .. }
            | CatalogOp::WorkspaceStat { .. }
            | CatalogOp::Stat { .. }
            | CatalogOp::Look { .. }
            | CatalogOp::Read { .. }
            | CatalogOp::Search { .. }
            | CatalogOp::SearchNext { .. }
            | CatalogOp::SearchClose { .. }
            | CatalogOp::MetaGet { .. }
            | CatalogOp::MetaList { .. }
            | CatalogOp::LockQuery { .. }
            | CatalogOp::TokenJoin { .. }
            | CatalogOp::Renew
            | CatalogOp::Map { .. }
            | CatalogOp::Ticket { .. }
    )
}

impl Drop for Service {
    fn drop(&mut self) {
        // Cursors hold on to the parts of the catalog that hold the cursors.
        let cursors = std::mem::take(&mut *self.core.cursors());
        drop(cursors);
        self.core.locks().give_up_all();
        self.deliver();
    }
}

impl Catalog for Service {
    fn capability(&self) -> &CatalogCapability {
        self.core.capability()
    }

    fn submit(&self, cx: &OpCx, ops: Vec<CatalogOp>, how: Submission, done: OnAnswer) {
        match &ops[..] {
            [CatalogOp::Lock { ws, uuid, lock }] if !lock.try_only && waits(&how) => {
                self.lock_or_wait(cx, *ws, *uuid, lock, done);
            }
            _ => done(self.answer(cx, ops, how)),
        }
        self.deliver();
    }

    fn drive(&self, _: i64) -> bool {
        // There is nothing to receive; who waits for a lock with a deadline keeps the clock for all who do.
        self.tick(self.core.monotonic_ns());
        false
    }
}
