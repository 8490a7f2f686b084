//! The cursors that sessions have open, each until it is closed, unused for a lease, or its session ends.

use std::collections::HashMap;

use iov_types::{Clause, Error, Result, Uuid, limits};

use super::Cursor;

/// Open cursors by session and id. Times are passed in. A cursor is taken out for each page, so that a table behind a lock
/// is not held while a search runs.
#[derive(Default)]
pub struct Cursors {
    sessions: HashMap<Uuid, HashMap<Uuid, Slot>>,
}

struct Slot {
    expires_ns: i64,
    /// `None` while a page is made.
    cursor: Option<Box<Cursor>>,
}

impl Slot {
    fn is_over(&self, now_ns: i64) -> bool {
        self.cursor.is_some() && self.expires_ns <= now_ns
    }
}

impl Cursors {
    /// No cursors.
    pub fn new() -> Cursors {
        Cursors::default()
    }

    /// Keeps a cursor of a session under a new id. `EXHAUSTED`: the session has too many.
    pub fn insert(&mut self, session: Uuid, id: Uuid, cursor: Cursor, now_ns: i64) -> Result<()> {
        let slots = self.sessions.entry(session).or_default();
        slots.retain(|_, s| !s.is_over(now_ns));
        if slots.len() >= limits::SESSION_CURSORS {
            return Err(Error::exhausted(format!(
                "this session has {} open cursors, the limit is {}: close some, or read them to their end",
                slots.len(),
                limits::SESSION_CURSORS
            ))
            .with_clause(Clause::O5));
        }
        slots.insert(id, Slot { expires_ns: lease(now_ns), cursor: Some(Box::new(cursor)) });
        Ok(())
    }

    /// Takes a cursor out to make a page; [`Cursors::put_back`] follows, or [`Cursors::close`] if that was the last page.
    /// `STALE`: it is over, or another session's. `BUSY`: it is taken out already.
    pub fn take(&mut self, session: Uuid, id: Uuid, now_ns: i64) -> Result<Box<Cursor>> {
        let slot = self.sessions.get_mut(&session).and_then(|slots| slots.get_mut(&id));
        let slot = slot.filter(|s| !s.is_over(now_ns)).ok_or_else(|| {
            Error::stale("the cursor is over: closed, read to its end, or not used for 30 s; search again")
                .with_clause(Clause::O5)
        })?;
        let taken =
            || Error::busy("the cursor is making a page for another call: one at a time").with_clause(Clause::O5);
        slot.cursor.take().ok_or_else(taken)
    }

    /// Puts a cursor back, for another lease. One that was closed meanwhile is dropped.
    pub fn put_back(&mut self, session: Uuid, id: Uuid, cursor: Box<Cursor>, now_ns: i64) {
        if let Some(slot) = self.sessions.get_mut(&session).and_then(|slots| slots.get_mut(&id)) {
            *slot = Slot { expires_ns: lease(now_ns), cursor: Some(cursor) };
        }
    }

    /// Ends a cursor; one that is over already is fine.
    pub fn close(&mut self, session: Uuid, id: Uuid) {
        if let Some(slots) = self.sessions.get_mut(&session) {
            slots.remove(&id);
            if slots.is_empty() {
                self.sessions.remove(&session);
            }
        }
    }

    /// Ends all cursors of a session.
    pub fn drop_session(&mut self, session: Uuid) {
        self.sessions.remove(&session);
    }

    /// Ends the cursors that were not used for a lease, and lets go of their snapshots.
    pub fn expire(&mut self, now_ns: i64) {
        self.sessions.retain(|_, slots| {
            slots.retain(|_, s| !s.is_over(now_ns));
            !slots.is_empty()
        });
    }

    /// The number of open cursors.
    pub fn len(&self) -> usize {
        self.sessions.values().map(HashMap::len).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }
}

fn lease(now_ns: i64) -> i64 {
    now_ns.saturating_add(limits::LEASE_NS)
}
