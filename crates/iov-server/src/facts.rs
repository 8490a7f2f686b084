//! Whoever knows the facts behind the objects that a server serves: the catalog, if it is this daemon's; else tickets say what
//! the catalog allows.

use std::sync::Arc;

use iov_catalog::Service;
use iov_store::Catalog;
use iov_types::{Clause, Error, Reach, Result, Uuid};

use crate::Bound;

/// Where a server has its facts from.
#[derive(Clone)]
pub enum Facts {
    /// The catalog is here.
    Catalog(Arc<Service>),
    /// It is another daemon's.
    Elsewhere(Arc<Bound>),
}

impl Facts {
    /// The catalog, if it is here.
    pub(crate) fn catalog(&self) -> Option<&Arc<Service>> {
        match self {
            Facts::Catalog(catalog) => Some(catalog),
            Facts::Elsewhere(_) => None,
        }
    }

    /// The catalog, for what only it can do.
    pub(crate) fn need_catalog(&self) -> Result<&Arc<Service>> {
        self.catalog().ok_or_else(|| {
            Error::invalid("this daemon serves targets of a store whose catalog is another daemon's: ask that")
                .with_clause(Clause::A1)
        })
    }

    pub(crate) fn tick(&self, now_ns: i64) {
        self.catalog().into_iter().for_each(|catalog| catalog.tick(now_ns));
    }

    pub(crate) fn note_target(&self, number: u32, space: Option<(u64, u64)>) {
        self.catalog().into_iter().for_each(|catalog| catalog.note_target(number, Reach::Online, space));
    }

    pub(crate) fn lease_ns(&self) -> u64 {
        match self {
            Facts::Catalog(catalog) => catalog.capability().lease_ns.max(0) as u64,
            Facts::Elsewhere(bound) => bound.lease_ns(),
        }
    }

    pub(crate) fn has_open(&self, session: Uuid) -> bool {
        self.catalog().is_some_and(|catalog| catalog.has_open(session))
    }

    /// `over`: with what is bound to its process.
    pub(crate) fn end_session(&self, session: Uuid, over: bool) {
        let end = if over { Service::end_session } else { Service::leave };
        self.catalog().into_iter().for_each(|catalog| end(catalog, session));
    }

    pub(crate) fn in_grace(&self) -> bool {
        self.catalog().is_some_and(|catalog| catalog.in_grace())
    }

    pub(crate) fn end_grace(&self) {
        // What fails is tried again at the next start.
        self.catalog().into_iter().for_each(|catalog| drop(catalog.end_grace()));
    }

    /// How long nothing has come from the catalog's daemon, if that is another one.
    pub(crate) fn silent_ns(&self) -> Option<u64> {
        match self {
            Facts::Catalog(_) => None,
            Facts::Elsewhere(bound) => Some(bound.silent_ns()),
        }
    }

    /// Whether the store has targets of other daemons.
    pub(crate) fn has_others(&self) -> bool {
        self.catalog().is_some_and(|catalog| catalog.map().targets.iter().any(|target| !target.addresses.is_empty()))
    }

    /// A stage was published here.
    pub(crate) fn published(&self, stage: Uuid) {
        if let Facts::Elsewhere(bound) = self {
            bound.published(stage);
        }
    }

    /// Whether a stage that is not there any more was published.
    pub(crate) fn remembers(&self, stage: Uuid) -> bool {
        match self {
            Facts::Catalog(catalog) => catalog.remembers(stage),
            Facts::Elsewhere(bound) => bound.remembers(stage),
        }
    }
}
