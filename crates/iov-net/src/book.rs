//! What a session has open and staged, as its daemon has confirmed: for the next daemon, should this one end.

mod locks;

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use iov_types::{
    Clause, EntryKind, Error, Kind, ObjectOp, ObjectVerb, Outcome, Result, Uuid,
    catalog::{CatalogOp, CatalogReply, LockSpec, Opened, Presented, PresentedLock, Submission},
};
use iov_wire::messages::ResumeAnswer;

#[derive(Default)]
struct Inner {
    opens: HashMap<(Uuid, Uuid), Presented>,
    locks: locks::Held,
    stages: HashSet<Uuid>,
    /// What did not come through the end of a daemon, and why.
    lost: HashMap<Uuid, Error>,
    lost_stages: HashSet<Uuid>,
}

/// The book of one session.
#[derive(Default)]
pub(crate) struct Book {
    inner: Mutex<Inner>,
    any_lost: AtomicBool,
    /// Something has been locked.
    any_locks: AtomicBool,
}

/// What a submission will change in the book, told from its operations before they are sent.
#[derive(Default)]
pub(crate) struct Entry {
    opens: bool,
    closes: Vec<(usize, (Uuid, Uuid))>,
    locks: Vec<(usize, (Uuid, Uuid), LockSpec)>,
    unlocks: Vec<(usize, (Uuid, Uuid), LockSpec)>,
    /// What the unlocks are to give back: the daemon has it still if it refuses.
    given_back: Vec<(usize, (Uuid, Uuid), LockSpec)>,
    stage: Option<Uuid>,
    ends: bool,
}

impl Entry {
    pub(crate) fn of<'a>(ops: impl Iterator<Item = &'a CatalogOp>, how: &Submission) -> Entry {
        let mut entry = Entry { opens: *how != Submission::DryRun, ..Entry::default() };
        if let Submission::All { batch, .. } = how {
            entry.stage = Some(*batch);
        }
        for (i, op) in ops.enumerate() {
            match op {
                CatalogOp::Close { ws, uuid, .. } if entry.opens => entry.closes.push((i, (*ws, *uuid))),
                CatalogOp::Lock { ws, uuid, lock } if entry.opens => entry.locks.push((i, (*ws, *uuid), lock.clone())),
                CatalogOp::Unlock { ws, uuid, lock } if entry.opens => {
                    entry.unlocks.push((i, (*ws, *uuid), lock.clone()));
                }
                CatalogOp::Goodbye => entry.ends = true,
                _ => {}
            }
        }
        entry
    }

    /// Whether it decides about a stage.
    pub(crate) fn decides(&self) -> bool {
        self.stage.is_some()
    }

    /// Whether the session ends with it.
    pub(crate) fn ends(&self) -> bool {
        self.ends
    }
}

/// Whether an operation leaves something in its stage.
fn stages(op: &ObjectOp) -> Option<Uuid> {
    op.demand.stage.filter(|_| op.verb.changes_bytes())
}

/// Whether a close came before a write that has to be made elsewhere first: what was to be closed is open.
fn was_refused(reply: &Result<CatalogReply>) -> bool {
    let refusal =
        |e: &Error| (e.kind(), e.clause(), e.outcome()) == (Kind::Busy, Some(Clause::C3), Outcome::NotApplied);
    reply.as_ref().is_err_and(refusal)
}

/// Whether a batch may not have been decided, so that its stage is still the session's.
fn may_repeat(e: &Error) -> bool {
    match e.outcome() {
        Outcome::Unknown => true,
        Outcome::NotApplied => matches!(e.kind(), Kind::Unavailable | Kind::Timeout),
        _ => false,
    }
}

impl Book {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A submission is about to be sent. What it unlocks is not presented from now on: a daemon that has done it already
    /// would take it for lost.
    pub(crate) fn asked(&self, entry: &mut Entry) {
        if entry.unlocks.is_empty() {
            return;
        }
        let mut inner = self.lock();
        for (i, key, lock) in std::mem::take(&mut entry.unlocks) {
            let given_back = inner.locks.unlocked(key, &lock);
            entry.given_back.extend(given_back.into_iter().map(|lock| (i, key, lock)));
        }
    }

    /// A submission was answered. What a lost handle says at its close is why it was lost.
    pub(crate) fn answered(&self, entry: &Entry, answer: &mut Result<Vec<Result<CatalogReply>>>) {
        let mut inner = self.lock();
        inner.locks_answered(entry, answer);
        if !entry.locks.is_empty() {
            self.any_locks.store(true, Ordering::Relaxed);
        }
        // Of what is done together or not at all one that has failed leaves nothing done.
        if entry.stage.is_some() && answer.as_ref().is_ok_and(|replies| replies.iter().any(Result::is_err)) {
            return inner.decided(entry, answer);
        }
        for (i, key) in &entry.closes {
            if answer.as_ref().is_ok_and(|replies| replies.get(*i).is_some_and(was_refused)) {
                continue;
            }
            if let Some(open) = inner.opens.get_mut(key)
                && open.handles > 1
            {
                open.handles -= 1;
                open.writers = open.writers.min(open.handles);
                continue;
            }
            inner.opens.remove(key);
            inner.locks.closed(key);
            if let (Some(why), Ok(replies)) = (inner.lost.remove(&key.1), &mut *answer)
                && let Some(Err(e)) = replies.get_mut(*i)
                && e.kind() == Kind::Stale
            {
                *e = why;
            }
        }
        if entry.opens
            && let Ok(replies) = &*answer
        {
            for reply in replies {
                if let Ok(CatalogReply::Opened(opened)) = reply {
                    inner.opened(opened);
                }
            }
        }
        inner.decided(entry, answer);
        if entry.ends {
            *inner = Inner::default();
        }
    }

    /// Whether it has something in a stage, as far as is known.
    pub(crate) fn has_stage(&self, stage: Uuid) -> bool {
        let inner = self.lock();
        inner.stages.contains(&stage) || inner.lost_stages.contains(&stage)
    }

    /// A batch was answered of which there may be something at this target.
    pub(crate) fn decided(&self, entry: &Entry, answer: &Result<Vec<Result<CatalogReply>>>) {
        self.lock().decided(entry, answer);
    }

    /// Object operations were carried out.
    pub(crate) fn done<'a>(&self, ops: impl Iterator<Item = (&'a ObjectOp, bool)>) {
        let mut inner = None;
        for (op, ok) in ops {
            match (stages(op), op.verb.clone()) {
                (Some(stage), _) if ok => drop(inner.get_or_insert_with(|| self.lock()).stages.insert(stage)),
                (None, ObjectVerb::Discard { stage }) => {
                    let inner = inner.get_or_insert_with(|| self.lock());
                    inner.stages.remove(&stage);
                    inner.lost_stages.remove(&stage);
                }
                _ => {}
            }
        }
    }

    /// What there is to be taken up again.
    pub(crate) fn to_present(&self) -> (Vec<Presented>, Vec<Uuid>) {
        let inner = self.lock();
        (inner.opens.values().copied().collect(), inner.stages.iter().copied().collect())
    }

    /// Whether something of a collection is locked.
    pub(crate) fn has_locked(&self, collection: Uuid) -> bool {
        self.lock().locks.has(collection)
    }

    /// Whether anything has been locked.
    pub(crate) fn has_locks(&self) -> bool {
        self.any_locks.load(Ordering::Relaxed)
    }

    /// The locks to be taken up again.
    pub(crate) fn locks_to_present(&self) -> Vec<PresentedLock> {
        self.lock().locks.to_present()
    }

    /// What has become of them; an error for all, or one result for each. A collection is not used any more where a lock
    /// is gone: others may rely on theirs.
    pub(crate) fn locks_resumed(&self, presented: &[PresentedLock], answer: Result<ResumeAnswer>) {
        let mut inner = self.lock();
        let mut results = match answer {
            Ok(answer) => answer.locks.into_iter().map(|result| result.err()).collect(),
            Err(e) => vec![Some(e); presented.len()],
        };
        let unsaid = || Some(Error::fenced("the daemon does not say what became of a lock").with_clause(Clause::O11));
        results.resize_with(presented.len(), unsaid);
        for (p, why) in presented.iter().zip(results) {
            if let Some(why) = why {
                inner.locks.unlocked((p.ws, p.uuid), &p.lock);
                inner.lost.entry(p.uuid).or_insert(why);
                self.any_lost.store(true, Ordering::Release);
            }
        }
    }

    /// What has become of it.
    pub(crate) fn resumed(&self, presented: &[Presented], answer: ResumeAnswer) {
        let mut inner = self.lock();
        for (open, result) in presented.iter().zip(answer.opens) {
            if let Err(e) = result {
                inner.lost.insert(open.uuid, e);
            }
        }
        for stage in answer.lost {
            inner.stages.remove(&stage);
            inner.lost_stages.insert(stage);
        }
        let any = !inner.lost.is_empty() || !inner.lost_stages.is_empty();
        self.any_lost.store(any, Ordering::Release);
    }

    /// Which operations on facts are not to be sent, as what they are about did not come through, and why.
    pub(crate) fn check_ops<'a>(&self, ops: impl Iterator<Item = &'a CatalogOp>) -> Vec<(usize, Error)> {
        if !self.any_lost.load(Ordering::Acquire) {
            return Vec::new();
        }
        let inner = self.lock();
        let lost = |op: &CatalogOp| match op {
            CatalogOp::Read { uuid, .. }
            | CatalogOp::Write { uuid, .. }
            | CatalogOp::Append { uuid, .. }
            | CatalogOp::Truncate { uuid, .. }
            | CatalogOp::Lock { uuid, .. }
            | CatalogOp::Unlock { uuid, .. } => inner.lost.get(uuid).cloned(),
            _ => None,
        };
        let lost = ops.enumerate().filter_map(|(i, op)| Some((i, lost(op)?.with_outcome(Outcome::NotApplied))));
        lost.collect()
    }

    /// Fails for an object whose handle did not come through, or a stage that did not.
    pub(crate) fn check(&self, collection: Uuid, stage: Option<Uuid>) -> Result<()> {
        if !self.any_lost.load(Ordering::Acquire) {
            return Ok(());
        }
        let inner = self.lock();
        if let Some(why) = inner.lost.get(&collection) {
            return Err(why.clone().with_outcome(Outcome::NotApplied));
        }
        if stage.is_some_and(|stage| inner.lost_stages.contains(&stage)) {
            return Err(lost_stage());
        }
        Ok(())
    }
}

/// The error for changes that waited for their publication.
fn lost_stage() -> Error {
    Error::lost("the store's daemon ended, and what was written since the last commit went with it: commit (which says so once more), then write it again")
        .with_clause(Clause::M1)
}

impl Inner {
    fn decided(&mut self, entry: &Entry, answer: &Result<Vec<Result<CatalogReply>>>) {
        if let Some(stage) = entry.stage
            && !answer.as_ref().is_err_and(may_repeat)
        {
            self.stages.remove(&stage);
        }
    }

    fn locks_answered(&mut self, entry: &Entry, answer: &Result<Vec<Result<CatalogReply>>>) {
        let is_done = |i: usize| matches!(answer, Ok(replies) if matches!(replies.get(i), Some(Ok(_))));
        // In the order of the operations: the later one wins.
        for (_, key, lock) in entry.given_back.iter().filter(|(i, ..)| !is_done(*i)) {
            if self.opens.contains_key(key) {
                self.locks.locked(*key, lock);
            }
        }
        for (_, key, lock) in entry.locks.iter().filter(|(i, ..)| is_done(*i)) {
            self.locks.locked(*key, lock);
        }
    }

    fn opened(&mut self, opened: &Opened) {
        let writer = opened.writable && opened.kind == EntryKind::Collection;
        let open = self.opens.entry((opened.ws, opened.uuid)).or_insert(Presented {
            ws: opened.ws,
            uuid: opened.uuid,
            kind: opened.kind,
            handles: 0,
            writers: 0,
            epoch: 0,
        });
        open.handles += 1;
        open.writers += u32::from(writer);
        open.epoch = open.epoch.max(opened.epoch);
    }
}

#[cfg(test)]
mod tests;
