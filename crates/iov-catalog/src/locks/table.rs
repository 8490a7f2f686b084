//! The locks of all collections: those that have none take no room.

use std::collections::HashMap;

use iov_types::{Result, Uuid, catalog::LockSpec};

use super::{Held, Locked, Locks, Ticket};

/// Locks by collection. Tickets are unique over all of them.
#[derive(Default, Debug)]
pub struct LockTable {
    collections: HashMap<Uuid, Locks>,
}

impl LockTable {
    /// See [`Locks::lock`].
    pub fn lock(&mut self, collection: Uuid, session: Uuid, spec: &LockSpec, ticket: Ticket) -> Result<Locked> {
        self.of(collection, |locks| locks.lock(session, spec, ticket))
    }

    /// See [`Locks::unlock`].
    pub fn unlock(&mut self, collection: Uuid, session: Uuid, spec: &LockSpec) -> Result<Vec<Ticket>> {
        self.of(collection, |locks| locks.unlock(session, spec))
    }

    /// See [`Locks::query`].
    pub fn query(&mut self, collection: Uuid, session: Uuid, spec: &LockSpec) -> Result<Option<Held>> {
        self.of(collection, |locks| locks.query(session, spec))
    }

    /// See [`Locks::cancel`].
    pub fn cancel(&mut self, collection: Uuid, ticket: Ticket) -> Vec<Ticket> {
        self.of(collection, |locks| locks.cancel(ticket))
    }

    /// See [`Locks::drop_session`].
    pub fn end_session(&mut self, session: Uuid) -> Vec<Ticket> {
        self.all(|locks| locks.drop_session(session))
    }

    /// See [`Locks::report_dead`].
    pub fn report_dead(&mut self, session: Uuid, now_ns: i64) -> Vec<Ticket> {
        self.all(|locks| locks.report_dead(session, now_ns))
    }

    /// See [`Locks::report_alive`].
    pub fn report_alive(&mut self, session: Uuid) {
        self.collections.values_mut().for_each(|locks| locks.report_alive(session));
    }

    /// See [`Locks::expire`].
    pub fn expire(&mut self, now_ns: i64) -> Vec<Ticket> {
        self.all(|locks| locks.expire(now_ns))
    }

    /// See [`Locks::next_expiry_ns`].
    pub fn next_expiry_ns(&self) -> Option<i64> {
        self.collections.values().filter_map(Locks::next_expiry_ns).min()
    }

    /// Whether nothing is held and nobody waits.
    pub fn is_empty(&self) -> bool {
        self.collections.is_empty()
    }

    fn of<T>(&mut self, collection: Uuid, what: impl FnOnce(&mut Locks) -> T) -> T {
        let locks = self.collections.entry(collection).or_default();
        let result = what(locks);
        if locks.is_empty() {
            self.collections.remove(&collection);
        }
        result
    }

    fn all(&mut self, mut what: impl FnMut(&mut Locks) -> Vec<Ticket>) -> Vec<Ticket> {
        let mut granted = Vec::new();
        self.collections.retain(|_, locks| {
            granted.extend(what(locks));
            !locks.is_empty()
        });
        granted
    }
}
