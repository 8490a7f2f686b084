//! Advisory range locks of one collection (O11): who holds which bytes, and who waits for them.
//!
//! An owner holds each byte shared, exclusively, or not. A new lock replaces what its owner held of the range, so that an
//! upgrade, a downgrade and a part of an unlock need no call of their own. Waiting is in the order of arrival: a request
//! waits for locks in its way and for earlier requests that it would get in the way of, so that a writer is not starved by
//! readers. It does not wait for a request that itself waits for a lock of the same owner; two owners that wait for each
//! other's locks all the same end at their deadlines.
//!
//! Locks look at no bytes and publish nothing. Times are passed in; nothing ends by itself.

mod stretches;

use std::collections::{BTreeMap, VecDeque};

use iov_types::{Clause, Error, Range, Result, Uuid, catalog::LockSpec, limits};

use stretches::{NO_END, Span, Stretches};

/// Names a waiting request; chosen by the caller, each once.
pub type Ticket = u64;

/// Whom a lock belongs to: a session, and who within it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Owner {
    /// The session.
    pub session: Uuid,
    /// Tells owners within it apart.
    pub id: u64,
}

/// What became of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Locked {
    /// The lock is held. Where it replaced a stronger one, these waiting requests are granted too.
    Granted(Vec<Ticket>),
    /// Its ticket will be among those granted.
    Waiting,
}

/// A lock that is held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Held {
    /// By whom.
    pub owner: Owner,
    /// Alone, or shared.
    pub exclusive: bool,
    /// All that the owner holds in one piece this way; `len` 0 = to the end.
    pub range: Range,
}

#[derive(Clone, Copy, Debug)]
struct Request {
    owner: Owner,
    exclusive: bool,
    span: Span,
    lease_ns: i64,
}

#[derive(Default, Debug)]
struct Life {
    /// The longest that one of the owner's locks asked for.
    lease_ns: i64,
    /// When its locks end, once it was reported dead.
    ends_ns: Option<i64>,
}

/// The locks of one collection.
#[derive(Default, Debug)]
pub struct Locks {
    held: Stretches,
    /// In the order of arrival.
    waiting: VecDeque<(Ticket, Request)>,
    /// Of all owners that hold something, and of some that did.
    owners: BTreeMap<Owner, Life>,
    /// When there are so many owners, those that hold nothing are forgotten.
    forget_at: usize,
}

impl Locks {
    /// No locks.
    pub fn new() -> Locks {
        Locks::default()
    }

    /// Takes a lock, or waits for it under the ticket. `BUSY`: it would have to wait, and `try_only` is set.
    pub fn lock(&mut self, session: Uuid, spec: &LockSpec, ticket: Ticket) -> Result<Locked> {
        if spec.try_only {
            return self.try_lock(session, spec).map(Locked::Granted);
        }
        let request = Request::new(session, spec)?;
        if self.is_free(&request, self.waiting.len()) {
            return self.grant_now(request).map(Locked::Granted);
        }
        if self.waiting.len() >= limits::LOCK_WAITERS {
            return Err(Error::exhausted(format!(
                "{} requests wait for locks of this collection already: repeat later",
                limits::LOCK_WAITERS
            ))
            .with_clause(Clause::O11));
        }
        self.waiting.push_back((ticket, request));
        Ok(Locked::Waiting)
    }

    /// Takes a lock or fails with `BUSY`; the waiting requests that are granted because it replaced a stronger one.
    pub fn try_lock(&mut self, session: Uuid, spec: &LockSpec) -> Result<Vec<Ticket>> {
        let request = Request::new(session, spec)?;
        if self.is_free(&request, self.waiting.len()) {
            return self.grant_now(request);
        }
        let why = match self.find(&request) {
            Some(held) => {
                let how = if held.exclusive { "exclusively" } else { "shared" };
                format!(
                    "{} is locked {how} by session {}, owner {}",
                    text(held.range),
                    held.owner.session,
                    held.owner.id
                )
            }
            None => format!("others wait for a part of {}", text(spec.range)),
        };
        Err(Error::busy(format!("{why}: wait for it, or repeat later")).with_clause(Clause::O11))
    }

    /// Whether the owner holds all of a range, so that nobody can be in the way of such a lock.
    pub fn holds(&self, session: Uuid, spec: &LockSpec) -> Result<bool> {
        let request = Request::new(session, spec)?;
        Ok(self.held.covers(request.owner, request.exclusive, request.span))
    }

    /// Gives back what the owner holds of a range; the requests that are granted now.
    pub fn unlock(&mut self, session: Uuid, spec: &LockSpec) -> Result<Vec<Ticket>> {
        let request = Request::new(session, spec)?;
        self.held.release(request.owner, request.span);
        Ok(self.grant_waiting())
    }

    /// The first lock in the way of this one.
    pub fn query(&self, session: Uuid, spec: &LockSpec) -> Result<Option<Held>> {
        Ok(self.find(&Request::new(session, spec)?))
    }

    /// Forgets a waiting request; the requests that are granted now. One that was granted before stays granted.
    pub fn cancel(&mut self, ticket: Ticket) -> Vec<Ticket> {
        self.waiting.retain(|(t, _)| *t != ticket);
        self.grant_waiting()
    }

    /// Ends all locks and requests of a session; the requests of others that are granted now.
    pub fn drop_session(&mut self, session: Uuid) -> Vec<Ticket> {
        let before = self.waiting.len();
        self.waiting.retain(|(_, r)| r.owner.session != session);
        let owners = self.owners_of(session);
        if owners.is_empty() && self.waiting.len() == before {
            return Vec::new();
        }
        owners.into_iter().for_each(|owner| self.end(owner));
        self.grant_waiting()
    }

    /// A session cannot be reached any more: its requests are forgotten, its locks end with their leases, counted from now.
    /// The requests of others that are granted now.
    pub fn report_dead(&mut self, session: Uuid, now_ns: i64) -> Vec<Ticket> {
        self.waiting.retain(|(_, r)| r.owner.session != session);
        for owner in self.owners_of(session) {
            if let Some(life) = self.owners.get_mut(&owner) {
                life.ends_ns.get_or_insert(now_ns.saturating_add(life.lease_ns));
            }
        }
        self.grant_waiting()
    }

    /// A session that was reported dead is back in time.
    pub fn report_alive(&mut self, session: Uuid) {
        for owner in self.owners_of(session) {
            if let Some(life) = self.owners.get_mut(&owner) {
                life.ends_ns = None;
            }
        }
    }

    /// Ends the locks of dead owners whose leases are over; the requests that are granted now.
    pub fn expire(&mut self, now_ns: i64) -> Vec<Ticket> {
        let over = |life: &Life| life.ends_ns.is_some_and(|end| end <= now_ns);
        let dead: Vec<Owner> = self.owners.iter().filter(|(_, life)| over(life)).map(|(owner, _)| *owner).collect();
        if dead.is_empty() {
            return Vec::new();
        }
        dead.into_iter().for_each(|owner| self.end(owner));
        self.grant_waiting()
    }

    /// When [`Locks::expire`] has something to do next.
    pub fn next_expiry_ns(&self) -> Option<i64> {
        self.owners.values().filter_map(|life| life.ends_ns).min()
    }

    /// Whether nothing is held and nobody waits.
    pub fn is_empty(&self) -> bool {
        self.held.len() == 0 && self.waiting.is_empty()
    }

    fn owners_of(&self, session: Uuid) -> Vec<Owner> {
        let all = Owner { session, id: 0 }..=Owner { session, id: u64::MAX };
        self.owners.range(all).map(|(owner, _)| *owner).collect()
    }

    fn end(&mut self, owner: Owner) {
        self.held.release(owner, Span { from: 0, to: NO_END });
        self.owners.remove(&owner);
    }

    fn find(&self, request: &Request) -> Option<Held> {
        let (at, owner) = self.held.obstacle(request.owner, request.exclusive, request.span)?;
        let (span, exclusive) = self.held.whole(owner, at);
        let len = if span.to == NO_END { 0 } else { span.to - span.from };
        Some(Held { owner, exclusive, range: Range { offset: span.from, len } })
    }

    /// Whether no lock and none of the first `earlier` waiting requests is in the way.
    fn is_free(&self, request: &Request, earlier: usize) -> bool {
        self.held.obstacle(request.owner, request.exclusive, request.span).is_none()
            && !self.waiting.iter().take(earlier).any(|(_, before)| {
                before.conflicts(request) && !self.held.holds_against(request.owner, before.exclusive, before.span)
            })
    }

    fn grant_now(&mut self, request: Request) -> Result<Vec<Ticket>> {
        if self.held.len() >= limits::COLLECTION_LOCKS {
            return Err(Error::exhausted(format!(
                "{} stretches of this collection are locked, the limit is {}: lock larger ranges, or unlock some",
                self.held.len(),
                limits::COLLECTION_LOCKS
            ))
            .with_clause(Clause::O11));
        }
        self.grant(request);
        Ok(self.grant_waiting())
    }

    fn grant(&mut self, request: Request) {
        self.held.hold(request.owner, request.exclusive, request.span);
        let life = self.owners.entry(request.owner).or_default();
        life.lease_ns = life.lease_ns.max(request.lease_ns);
        if self.owners.len() > self.forget_at.max(64) {
            let holders = self.held.holders();
            self.owners.retain(|owner, _| holders.contains(owner));
            // Twice as many: so that this costs little on average.
            self.forget_at = 2 * self.owners.len();
        }
    }

    /// Grants whatever is free, in the order of arrival; again until nothing is, since a grant can weaken a lock.
    fn grant_waiting(&mut self) -> Vec<Ticket> {
        let mut granted = Vec::new();
        loop {
            let before = granted.len();
            let mut at = 0;
            while let Some((ticket, request)) = self.waiting.get(at).copied() {
                if self.is_free(&request, at) {
                    self.waiting.remove(at);
                    self.grant(request);
                    granted.push(ticket);
                } else {
                    at += 1;
                }
            }
            if granted.len() == before {
                return granted;
            }
        }
    }
}

impl Request {
    fn new(session: Uuid, spec: &LockSpec) -> Result<Request> {
        let Range { offset, len } = spec.range;
        let range = Range::new(offset, len).map_err(|e| e.context("a lock").with_clause(Clause::O11))?;
        if spec.lease_ns < 0 {
            return Err(Error::invalid("the lease of a lock is negative: 0 is the default").with_clause(Clause::O11));
        }
        Ok(Request {
            owner: Owner { session, id: spec.owner },
            exclusive: spec.exclusive,
            span: Span { from: offset, to: if len == 0 { NO_END } else { range.end() } },
            lease_ns: if spec.lease_ns == 0 { limits::LEASE_NS } else { spec.lease_ns },
        })
    }

    fn conflicts(&self, other: &Request) -> bool {
        self.owner != other.owner && (self.exclusive || other.exclusive) && self.span.overlaps(other.span)
    }
}

fn text(range: Range) -> String {
    match range.len {
        0 => format!("byte {} to the end", range.offset),
        len => format!("byte {} to {}", range.offset, range.offset + (len - 1)),
    }
}

#[cfg(test)]
mod tests;
