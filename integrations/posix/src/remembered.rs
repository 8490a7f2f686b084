//! What is known of names and attributes, and whether it still holds: the store's catalog says which facts change, as they change, where
//! its daemon is on this host (C1). So what was found once is found again without a question, also by a file system that is
//! sequential with all others.

use std::sync::Arc;

use ioverbs::{ChangeView, Fact, Moment, Uuid};

use crate::{File, FileSystem, Node};

/// Before when something was asked for.
#[derive(Clone, Debug)]
pub(crate) struct Since {
    view: Arc<ChangeView>,
    moment: Moment,
}

impl Since {
    /// Whether it was taken behind another one, or at the same time.
    pub(crate) fn follows(&self, before: &Since) -> bool {
        Arc::ptr_eq(&self.view, &before.view) && before.moment <= self.moment
    }
}

/// Since when nobody but one file system may write a file.
#[derive(Clone, Debug)]
pub struct Alone(Since);

impl FileSystem {
    /// To be taken before a question. `None`: nobody says when its answer does not hold any more.
    pub(crate) fn since(&self) -> Option<Since> {
        let view = self.session().changes()?;
        Some(Since { moment: view.now(), view })
    }

    /// From now on, as [`Node::is_alone`] says of a file by then: to be taken before it is opened. `None`: nobody can tell.
    pub fn alone(&self) -> Option<Alone> {
        self.since().map(Alone)
    }

    /// Whether nothing of this has changed since.
    pub(crate) fn holds(&self, since: &Since, facts: &[Fact]) -> bool {
        // One that was taken by way of an earlier connection may be of another page.
        let now = self.session().changes();
        now.is_some_and(|now| Arc::ptr_eq(&now, &since.view) && now.holds(since.moment, facts))
    }

    /// How often somebody has begun to change this, as far as it is known by way of the same page; else none.
    pub(crate) fn begun(&self, since: &Since, fact: Fact) -> Option<u32> {
        let now = self.session().changes().filter(|now| Arc::ptr_eq(now, &since.view))?;
        Some(now.begun(fact))
    }

    /// By which the catalog says that something changes: the root is its workspace.
    fn changing(&self, uuid: Uuid) -> Uuid {
        if uuid.is_nil() { self.workspace().uuid() } else { uuid }
    }
}

impl Node {
    /// What is told of it.
    pub(crate) fn itself(&self) -> Fact {
        Fact::Itself(self.file_system().changing(self.uuid()))
    }

    /// Whether nobody but this file system could write it since then, nor can now, where this one may since then or since later and it has not been closed: what is known of its
    /// bytes since then, and of what was written here, is all.
    pub fn is_alone(&self, since: &Alone) -> bool {
        self.file_system().holds(&since.0, &[Fact::Writers(self.uuid())])
    }

    /// Which names are in it.
    pub(crate) fn names_in_it(&self) -> Fact {
        Fact::Names(self.file_system().changing(self.uuid()))
    }
}

impl File {
    /// Whether others who may write it are told from this file system, which may as well.
    pub fn may_be_alone(&self) -> bool {
        self.joined().is_some_and(|handle| handle.c.is_writable())
    }
}
