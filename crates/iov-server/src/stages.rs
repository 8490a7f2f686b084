//! Whose stages there are: what a session staged and did not publish goes with it (B3, M1).

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use iov_store::seam;
use iov_types::{Clause, Error, ObjectId, Outcome, Result, Uuid};

use crate::{GrantBook, lately::Lately};

/// A stage that a catalog of another daemon has frozen: it alone decides what becomes of it.
struct Held {
    /// The catalog's session.
    by: Uuid,
    objects: BTreeSet<ObjectId>,
}

struct Book {
    /// The session that used a stage last: a batch may be repeated by another one.
    owners: HashMap<Uuid, Uuid>,
    /// Of the daemon before this one, waiting for their sessions.
    earlier: HashSet<Uuid>,
    held: HashMap<Uuid, Held>,
    /// Those that are being dropped just now.
    dropping: HashSet<Uuid>,
    /// Those whose sessions have gone, so that what they held has gone too.
    dropped: Lately,
    began_ms: u64,
}

impl Default for Book {
    fn default() -> Book {
        let began_ms = (seam::now_ns() / 1_000_000).max(0) as u64;
        let (owners, earlier, held, dropping, dropped) = Default::default();
        Book { owners, earlier, held, dropping, dropped, began_ms }
    }
}

/// The stages of all sessions.
#[derive(Default)]
pub(crate) struct Stages(Mutex<Book>);

impl Stages {
    fn lock(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// With those of an earlier daemon, whose sessions may come back; what is committed is the catalog's.
    pub(crate) fn with_earlier(stages: impl IntoIterator<Item = Uuid>, committed: &[Uuid]) -> Stages {
        let held = |stage: &Uuid| (*stage, Held { by: Uuid::NIL, objects: BTreeSet::new() });
        let held = committed.iter().map(held).collect();
        Stages(Mutex::new(Book { earlier: stages.into_iter().collect(), held, ..Book::default() }))
    }

    /// Whether only a catalog decides what becomes of a stage.
    pub(crate) fn is_held(&self, stage: Uuid) -> bool {
        self.lock().held.contains_key(&stage)
    }

    /// A session uses a stage.
    pub(crate) fn enter(&self, session: Uuid, stage: Uuid) {
        let mut book = self.lock();
        book.earlier.remove(&stage);
        // A batch that is repeated stages everything anew.
        book.dropped.forget(stage);
        book.owners.insert(stage, session);
    }

    /// A stage was published or dropped, if it is not there any more.
    pub(crate) fn leave(&self, stage: Uuid, target: &dyn GrantBook) {
        if !target.has_stage(stage) {
            let mut book = self.lock();
            book.owners.remove(&stage);
            book.held.remove(&stage);
        }
    }

    /// A catalog of another daemon freezes an object for a stage, in its session. From then on the end of the stage's session
    /// takes nothing away: either all of the batch is published, or none (B3).
    ///
    /// Fails if something of the stage may be gone already; `volatile`: with the daemon before this one.
    pub(crate) fn freeze(
        &self,
        by: Uuid,
        (stage, object): (Uuid, ObjectId),
        target: &dyn GrantBook,
        volatile: bool,
    ) -> Result<()> {
        let mut book = self.lock();
        let lost = |why: &str| {
            let e = Error::lost(format!("what the batch staged at a target is gone, as {why}: run the batch again"));
            Err(e.with_clause(Clause::B3).with_outcome(Outcome::NotApplied))
        };
        if book.dropping.contains(&stage) || book.dropped.has(stage) {
            return lost("its session has ended there");
        }
        let may_be_lost = volatile && !book.held.contains_key(&stage) && !target.has_stage(stage);
        if may_be_lost && stage.unix_ms() < book.began_ms {
            return lost("its daemon was started anew");
        }
        book.earlier.remove(&stage);
        let held = book.held.entry(stage).or_insert_with(|| Held { by, objects: BTreeSet::new() });
        held.by = by;
        held.objects.insert(object);
        Ok(())
    }

    /// The catalog has let go of an object of a stage; with the last of them it is its session's again, or nobody's if that has
    /// ended.
    pub(crate) fn thawed(&self, stage: Uuid, object: ObjectId, target: &dyn GrantBook) {
        let mut book = self.lock();
        if let Some(held) = book.held.get_mut(&stage) {
            held.objects.remove(&object);
            if !held.objects.is_empty() {
                return;
            }
        }
        book.held.remove(&stage);
        if !book.owners.contains_key(&stage) && !book.earlier.contains(&stage) && target.has_stage(stage) {
            book.dropped.note(stage);
            target.abandon_stage(stage);
        }
    }

    /// The catalog was opened anew, and comes in this session: what one before has frozen and not committed is to be discarded.
    pub(crate) fn undecided(&self, catalog: Uuid, committed: &[Uuid]) -> Vec<(Uuid, Vec<ObjectId>)> {
        let mut book = self.lock();
        let undecided = |(stage, held): (&Uuid, &Held)| {
            (held.by != catalog && !committed.contains(stage)).then(|| (*stage, held.objects.iter().copied().collect()))
        };
        let found: Vec<(Uuid, Vec<ObjectId>)> = book.held.iter().filter_map(undecided).collect();
        for (stage, _) in &found {
            book.held.remove(stage);
            book.owners.remove(stage);
            book.dropping.insert(*stage);
        }
        found
    }

    /// What was undecided is dropped.
    pub(crate) fn were_dropped(&self, stages: impl Iterator<Item = Uuid>) {
        let mut book = self.lock();
        for stage in stages {
            book.dropping.remove(&stage);
            // Also what a session has staged meanwhile, as it repeats the batch: it has to do so once more.
            book.dropped.note(stage);
        }
    }

    /// A session comes back to its stages; those that are gone.
    pub(crate) fn claim(&self, session: Uuid, stages: Vec<Uuid>, target: &dyn GrantBook) -> Vec<Uuid> {
        let (there, lost) = stages.into_iter().partition(|stage| target.has_stage(*stage));
        let there: Vec<Uuid> = there;
        there.into_iter().for_each(|stage| self.enter(session, stage));
        lost
    }

    /// Whether a session has any.
    pub(crate) fn has_any(&self, session: Uuid) -> bool {
        self.lock().owners.values().any(|owner| *owner == session)
    }

    /// Drops what a session has staged: it is gone.
    pub(crate) fn end_session(&self, session: Uuid, target: &dyn GrantBook) {
        let mut guard = self.lock();
        let book = &mut *guard;
        book.owners.retain(|stage, owner| {
            if *owner == session && !book.held.contains_key(stage) {
                book.dropped.note(*stage);
                target.abandon_stage(*stage);
            }
            *owner != session
        });
    }

    /// Drops what sessions of an earlier daemon have staged: none of them comes back any more.
    pub(crate) fn end_earlier(&self, target: &dyn GrantBook) {
        // Under the lock: nobody may begin to use one meanwhile.
        let mut book = self.lock();
        for stage in std::mem::take(&mut book.earlier) {
            book.dropped.note(stage);
            target.abandon_stage(stage);
        }
    }
}
