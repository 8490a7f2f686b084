//! What a daemon of targets knows of the catalog's, which is another one: by what to check tickets, and what to keep (A1).

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use iov_store::seam;
use iov_types::{Clause, Error, Outcome, Result, Ticket, Uuid, limits};
use iov_wire::{messages::JoinAnswer, ticket::TicketKey};

use crate::lately::Lately;

#[derive(Default)]
struct Known {
    store: Uuid,
    /// The session in which the catalog comes that was opened last.
    catalog: Uuid,
    key: Option<TicketKey>,
    lease_ns: u64,
    /// What the catalog's clock is ahead of ours.
    ahead_ns: i64,
    /// When it answered last, on the monotonic clock.
    heard_ns: i64,
    /// Whoever comes back and finds a stage gone must hear that it has not been lost.
    published: Lately,
}

/// How a daemon of targets is bound to its catalog.
#[derive(Default)]
pub struct Bound(RwLock<Known>);

impl Bound {
    fn read(&self) -> RwLockReadGuard<'_, Known> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Known> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The catalog's daemon has told this, with this key.
    pub fn learn(&self, answer: &JoinAnswer, key: TicketKey) {
        let mut known = self.write();
        (known.store, known.key, known.lease_ns) = (answer.store, Some(key), answer.lease_ns);
        known.catalog = answer.catalog;
        known.ahead_ns = answer.now_ns.saturating_sub(seam::now_ns());
        known.heard_ns = seam::monotonic_ns();
    }

    /// How long nothing has come from it.
    pub(crate) fn silent_ns(&self) -> u64 {
        seam::monotonic_ns().saturating_sub(self.read().heard_ns).max(0) as u64
    }

    /// How long sessions that break may stay away.
    pub(crate) fn lease_ns(&self) -> u64 {
        match self.read().lease_ns {
            0 => limits::LEASE_NS as u64,
            ns => ns.min(i64::MAX as u64),
        }
    }

    /// What a ticket says, if it is good now and was given to this session.
    pub(crate) fn check(&self, signed: &[u8], session: Uuid) -> Result<Ticket> {
        let known = self.read();
        let key = known.key.as_ref().ok_or_else(|| Error::unavailable("this daemon has not joined its store yet"))?;
        let ticket = key.check(signed)?;
        let refuse = |why: &str| Err(Error::denied(format!("a ticket {why}")).with_clause(Clause::A1));
        if ticket.store != known.store {
            return refuse("is of another store");
        }
        if ticket.session != session {
            return refuse("was given to another session: each asks for its own");
        }
        if ticket.gives(Ticket::CATALOG) && session != known.catalog {
            // What one before has sent may come late: it does not count any more.
            return Err(Error::unavailable("another catalog was opened, or this daemon has not heard of this one yet")
                .with_outcome(Outcome::NotApplied));
        }
        if ticket.expires_ns != i64::MAX && ticket.expires_ns < seam::now_ns().saturating_add(known.ahead_ns) {
            return refuse("has run out: ask the catalog for a new one");
        }
        Ok(ticket)
    }

    /// A stage was published.
    pub(crate) fn published(&self, stage: Uuid) {
        self.write().published.note(stage);
    }

    /// Whether a stage that is gone was published.
    pub(crate) fn remembers(&self, stage: Uuid) -> bool {
        self.read().published.has(stage)
    }
}

#[cfg(test)]
mod tests;
