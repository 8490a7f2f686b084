//! Whose stages there are: what a session staged and did not publish goes with it (B3, M1).

use std::{
    collections::{HashMap, HashSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use iov_types::Uuid;

use crate::GrantBook;

#[derive(Default)]
struct Book {
    /// The session that used a stage last: a batch may be repeated by another one.
    owners: HashMap<Uuid, Uuid>,
    /// Of the daemon before this one, waiting for their sessions.
    earlier: HashSet<Uuid>,
}

/// The stages of all sessions.
#[derive(Default)]
pub(crate) struct Stages(Mutex<Book>);

impl Stages {
    fn lock(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// With those of an earlier daemon, whose sessions may come back.
    pub(crate) fn with_earlier(stages: impl IntoIterator<Item = Uuid>) -> Stages {
        Stages(Mutex::new(Book { owners: HashMap::new(), earlier: stages.into_iter().collect() }))
    }

    /// A session uses a stage.
    pub(crate) fn enter(&self, session: Uuid, stage: Uuid) {
        let mut book = self.lock();
        book.earlier.remove(&stage);
        book.owners.insert(stage, session);
    }

    /// A stage was published or dropped, if it is not there any more.
    pub(crate) fn leave(&self, stage: Uuid, target: &dyn GrantBook) {
        if !target.has_stage(stage) {
            self.lock().owners.remove(&stage);
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
        let mut book = self.lock();
        book.owners.retain(|stage, owner| {
            if *owner == session {
                target.abandon_stage(*stage);
            }
            *owner != session
        });
    }

    /// Drops what sessions of an earlier daemon have staged: none of them comes back any more.
    pub(crate) fn end_earlier(&self, target: &dyn GrantBook) {
        // Under the lock: nobody may begin to use one meanwhile.
        let mut book = self.lock();
        std::mem::take(&mut book.earlier).into_iter().for_each(|stage| target.abandon_stage(stage));
    }
}
