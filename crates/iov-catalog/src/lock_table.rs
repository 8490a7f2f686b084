//! The locks of all collections, and the answers that wait for them (O11).

use std::collections::{BTreeMap, HashMap, HashSet};

use iov_store::{Answer, OnAnswer};
use iov_types::{Clause, Error, Result, Uuid, catalog::CatalogReply, catalog::LockSpec, limits};

use crate::{
    hash::Seeded,
    locks::{Held, Locked, Locks, Ticket},
};

struct Waiter {
    collection: Uuid,
    session: Uuid,
    /// On the monotonic clock.
    deadline_ns: i64,
    done: OnAnswer,
}

/// Who holds and who waits. Answers collect here and are given once no lock of the catalog is held.
#[derive(Default)]
pub(crate) struct LockTable {
    locks: HashMap<Uuid, Locks, Seeded>,
    waiters: BTreeMap<Ticket, Waiter>,
    finished: Vec<(OnAnswer, Answer)>,
    last: Ticket,
    /// Until when sessions of the incarnation before may come back with their locks, on the monotonic clock; 0 = none may.
    grace_ns: i64,
    /// Requests that wait for that.
    early: Vec<(LockSpec, Waiter)>,
    /// Sessions whose connection is gone; their locks end with their leases.
    gone: HashSet<Uuid>,
}

impl LockTable {
    /// Takes a lock, or waits for it; `done` hears of either.
    pub(crate) fn lock(
        &mut self,
        collection: Uuid,
        session: Uuid,
        spec: &LockSpec,
        (deadline_ns, now_ns): (i64, i64),
        done: OnAnswer,
    ) {
        self.expire(now_ns);
        if self.must_wait(collection, session, spec) {
            match spec.try_only || self.early.len() >= limits::LOCK_WAITERS {
                true => self.finished.push((done, Ok(vec![Err(may_come_back())]))),
                false => self.early.push((spec.clone(), Waiter { collection, session, deadline_ns, done })),
            }
            return;
        }
        self.lock_now(collection, session, spec, deadline_ns, done);
    }

    fn lock_now(&mut self, collection: Uuid, session: Uuid, spec: &LockSpec, deadline_ns: i64, done: OnAnswer) {
        self.last += 1;
        let ticket = self.last;
        match self.locks.entry(collection).or_default().lock(session, spec, ticket) {
            Ok(Locked::Waiting) => {
                self.waiters.insert(ticket, Waiter { collection, session, deadline_ns, done });
            }
            Ok(Locked::Granted(others)) => {
                self.finished.push((done, Ok(vec![Ok(CatalogReply::Done)])));
                self.granted(others);
            }
            Err(e) => self.finished.push((done, Ok(vec![Err(e)]))),
        }
        self.forget_if_empty(collection);
    }

    /// Takes a lock at once, or fails.
    pub(crate) fn try_lock(&mut self, collection: Uuid, session: Uuid, spec: &LockSpec, now_ns: i64) -> Result<()> {
        self.expire(now_ns);
        if self.must_wait(collection, session, spec) {
            return Err(may_come_back());
        }
        let locked = self.locks.entry(collection).or_default().try_lock(session, spec);
        self.forget_if_empty(collection);
        locked.map(|others| self.granted(others))
    }

    /// Sessions of the incarnation before may come back with their locks, until then.
    pub(crate) fn begin_grace(&mut self, until_ns: i64) {
        self.grace_ns = until_ns;
    }

    /// None comes back any more: who waited for that is served in the order of arrival.
    pub(crate) fn end_grace(&mut self) {
        self.grace_ns = 0;
        for (spec, w) in std::mem::take(&mut self.early) {
            self.lock_now(w.collection, w.session, &spec, w.deadline_ns, w.done);
        }
    }

    /// A session comes back with a lock. One that it does not hold here is given to it as long as nobody else can have
    /// had it meanwhile.
    pub(crate) fn resume(&mut self, collection: Uuid, session: Uuid, spec: &LockSpec, now_ns: i64) -> Result<()> {
        self.expire(now_ns);
        let locks = self.locks.entry(collection).or_default();
        let resumed = match locks.holds(session, spec) {
            Ok(true) => Ok(Vec::new()),
            Ok(false) if self.grace_ns != 0 => locks.try_lock(session, spec),
            Ok(false) => Err(Error::busy("its lease was over")),
            Err(e) => Err(e),
        };
        self.forget_if_empty(collection);
        self.granted(resumed.map_err(lost)?);
        Ok(())
    }

    /// Whether a lock could be in the way of one that is still to be presented. What one owner holds alone, nobody else
    /// had.
    fn must_wait(&self, collection: Uuid, session: Uuid, spec: &LockSpec) -> bool {
        let alone = |locks: &Locks| {
            let alone = LockSpec { exclusive: true, ..spec.clone() };
            [&alone, spec].into_iter().any(|spec| locks.holds(session, spec).unwrap_or(false))
        };
        self.grace_ns != 0 && !self.locks.get(&collection).is_some_and(alone)
    }

    /// Gives back what an owner holds of a range.
    pub(crate) fn unlock(&mut self, collection: Uuid, session: Uuid, spec: &LockSpec, now_ns: i64) -> Result<()> {
        self.expire(now_ns);
        let granted = self.locks.entry(collection).or_default().unlock(session, spec);
        self.forget_if_empty(collection);
        granted.map(|others| self.granted(others))
    }

    /// A lock in the way.
    pub(crate) fn query(&self, collection: Uuid, session: Uuid, spec: &LockSpec) -> Result<Option<Held>> {
        match self.locks.get(&collection) {
            Some(locks) => locks.query(session, spec),
            None => Locks::new().query(session, spec),
        }
    }

    /// A session has closed a collection: nobody there owns its locks any more.
    pub(crate) fn close(&mut self, collection: Uuid, session: Uuid) {
        let granted = self.locks.get_mut(&collection).map(|locks| locks.drop_session(session)).unwrap_or_default();
        self.give_up(|w| w.session == session && w.collection == collection);
        self.granted(granted);
        self.forget_if_empty(collection);
    }

    /// A session has ended. The locks of one whose connection is gone end with their leases.
    pub(crate) fn end_session(&mut self, session: Uuid) {
        if self.gone.contains(&session) {
            return;
        }
        self.of_all(|locks| locks.drop_session(session));
        self.give_up(|w| w.session == session);
    }

    /// A session's connection is gone: its locks end with their leases.
    pub(crate) fn report_dead(&mut self, session: Uuid, now_ns: i64) {
        self.gone.insert(session);
        self.of_all(|locks| locks.report_dead(session, now_ns));
        self.give_up(|w| w.session == session);
    }

    /// A session asks for something. Locks whose lease was over before are gone.
    pub(crate) fn report_alive(&mut self, session: Uuid, now_ns: i64) {
        if self.gone.contains(&session) {
            self.expire(now_ns);
        }
        if self.gone.remove(&session) {
            self.locks.values_mut().for_each(|locks| locks.report_alive(session));
        }
    }

    /// Ends requests whose deadline has passed, and locks of the dead whose lease has.
    pub(crate) fn expire(&mut self, now_ns: i64) {
        if !self.gone.is_empty() {
            self.of_all(|locks| locks.expire(now_ns));
            if self.locks.values().all(|locks| locks.next_expiry_ns().is_none()) {
                self.gone.clear();
            }
        }
        if self.grace_ns != 0 && self.grace_ns <= now_ns {
            self.end_grace();
        }
        self.give_up_early(|w| w.deadline_ns <= now_ns, too_late);
        if self.waiters.is_empty() {
            return;
        }
        let late: Vec<Ticket> =
            self.waiters.iter().filter(|(_, w)| w.deadline_ns <= now_ns).map(|(ticket, _)| *ticket).collect();
        for ticket in late {
            let Some(waiter) = self.waiters.remove(&ticket) else { continue };
            let others = self.locks.get_mut(&waiter.collection).map(|l| l.cancel(ticket)).unwrap_or_default();
            self.finished.push((waiter.done, Ok(vec![Err(too_late())])));
            self.granted(others);
            self.forget_if_empty(waiter.collection);
        }
    }

    /// The catalog goes: nobody is left waiting.
    pub(crate) fn give_up_all(&mut self) {
        let closed =
            || Error::unavailable("the catalog was closed while the lock was waited for").with_clause(Clause::O11);
        for (_, waiter) in std::mem::take(&mut self.waiters) {
            self.finished.push((waiter.done, Ok(vec![Err(closed())])));
        }
        self.give_up_early(|_| true, closed);
    }

    /// The answers to give.
    pub(crate) fn take_finished(&mut self) -> Vec<(OnAnswer, Answer)> {
        std::mem::take(&mut self.finished)
    }

    fn of_all(&mut self, mut each: impl FnMut(&mut Locks) -> Vec<Ticket>) {
        let granted: Vec<Ticket> = self.locks.values_mut().flat_map(&mut each).collect();
        self.granted(granted);
        self.locks.retain(|_, locks| !locks.is_empty());
    }

    fn granted(&mut self, tickets: Vec<Ticket>) {
        for ticket in tickets {
            if let Some(waiter) = self.waiters.remove(&ticket) {
                self.finished.push((waiter.done, Ok(vec![Ok(CatalogReply::Done)])));
            }
        }
    }

    /// Requests that their locks have forgotten already.
    fn give_up(&mut self, whose: impl Fn(&Waiter) -> bool) {
        let tickets: Vec<Ticket> = self.waiters.iter().filter(|(_, w)| whose(w)).map(|(ticket, _)| *ticket).collect();
        for ticket in tickets {
            if let Some(waiter) = self.waiters.remove(&ticket) {
                self.finished.push((waiter.done, Ok(vec![Err(ended())])));
            }
        }
        self.give_up_early(whose, ended);
    }

    fn give_up_early(&mut self, whose: impl Fn(&Waiter) -> bool, why: impl Fn() -> Error) {
        for (_, waiter) in self.early.extract_if(.., |(_, w)| whose(w)) {
            self.finished.push((waiter.done, Ok(vec![Err(why())])));
        }
    }

    fn forget_if_empty(&mut self, collection: Uuid) {
        if self.locks.get(&collection).is_some_and(Locks::is_empty) {
            self.locks.remove(&collection);
        }
    }
}

fn may_come_back() -> Error {
    Error::busy("whoever has locked it may still come back, as the server has just started anew: wait, or repeat later")
        .with_clause(Clause::O11)
}

fn lost(why: Error) -> Error {
    Error::fenced(format!(
        "a lock did not outlast the break of the connection ({}), so that others may have changed what it covered: close, \
         then open and lock anew",
        why.detail()
    ))
    .with_clause(Clause::O11)
}

fn too_late() -> Error {
    Error::timeout("the lock was not given back in time: repeat, or allow more time").with_clause(Clause::O11)
}

fn ended() -> Error {
    Error::stale("the session or its handle ended while the lock was waited for").with_clause(Clause::O11)
}
