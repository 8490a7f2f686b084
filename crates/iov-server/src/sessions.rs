//! Which sessions are connected. A session has one connection over which it asks for facts, and may have others that only move
//! bytes: those end with the first. What is still on its way over old connections must not take effect behind what comes over
//! new ones. Nor is a session begun anew before all of it has ended: the end of the old one would take from it what it has
//! just taken up again.
//!
//! A connection over a network may break while both sides live. Its session is kept for as long as its leases last, and goes
//! on when it comes back.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use iov_types::{Error, Uuid};

/// What there is of a session.
#[derive(Debug, Default)]
struct Session {
    /// Its first connection.
    control: Option<u64>,
    /// The others, by their channels.
    channels: HashMap<u32, u64>,
    /// Until when it may come back; only without a first connection.
    kept_until_ns: Option<i64>,
    /// All of it is being ended.
    ending: bool,
    /// Of a client that has another one besides, for one target.
    second: bool,
}

/// How the first connection of a session ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Left {
    /// The peer has ended it, or is gone.
    Ended,
    /// It broke; the session may come back until then.
    Broke(i64),
}

/// What a connection that wants to begin finds in its way.
#[derive(Debug)]
pub(crate) struct InTheWay {
    /// For its peer.
    pub(crate) error: Error,
    /// The connection that it wants to replace.
    pub(crate) old: Option<u64>,
}

/// What follows from the end of a connection.
#[derive(Debug, Default)]
pub(crate) struct Follows<'a> {
    /// These connections of the same session are to be shut.
    pub(crate) shut: Vec<u64>,
    /// The session is to be ended now, before this is dropped.
    pub(crate) ends: Option<Ending<'a>>,
}

/// The connected sessions.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    all: Mutex<HashMap<Uuid, Session>>,
}

/// A session that is ending, until this is dropped.
#[derive(Debug)]
pub(crate) struct Ending<'a> {
    sessions: &'a Sessions,
    /// Which one.
    pub(crate) session: Uuid,
}

fn in_the_way(old: Option<u64>) -> InTheWay {
    InTheWay { error: Error::exists("the session's last connection has not ended yet: connect again"), old }
}

impl Sessions {
    fn lock(&self) -> MutexGuard<'_, HashMap<Uuid, Session>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection is there. `Exists`: an old one still is, or is ending; to be repeated.
    pub(crate) fn begin(&self, session: Uuid, channel: u32, connection: u64) -> std::result::Result<(), InTheWay> {
        let mut all = self.lock();
        if channel > 0 {
            let known = all.get_mut(&session).filter(|s| s.control.is_some() && !s.ending);
            let Some(known) = known else {
                let error = Error::stale("the session is not connected: its first connection comes first");
                return Err(InTheWay { error, old: None });
            };
            return match known.channels.get(&channel) {
                Some(old) => Err(in_the_way(Some(*old))),
                None => {
                    known.channels.insert(channel, connection);
                    Ok(())
                }
            };
        }
        let known = all.entry(session).or_default();
        if known.ending || known.control.is_some() || !known.channels.is_empty() {
            return Err(in_the_way(known.control));
        }
        known.control = Some(connection);
        known.kept_until_ns = None;
        Ok(())
    }

    /// A connection is gone, with all that was being done for it.
    pub(crate) fn end(&self, session: Uuid, channel: u32, connection: u64, left: Left) -> Follows<'_> {
        let mut all = self.lock();
        let Some(known) = all.get_mut(&session) else { return Follows::default() };
        let mut shut = Vec::new();
        if channel > 0 {
            if known.channels.get(&channel) == Some(&connection) {
                known.channels.remove(&channel);
            }
        } else if known.control == Some(connection) {
            known.control = None;
            known.kept_until_ns = match left {
                Left::Ended => Some(i64::MIN),
                Left::Broke(until_ns) => Some(until_ns),
            };
            shut = known.channels.values().copied().collect();
        }
        let over = known.kept_until_ns == Some(i64::MIN) && known.channels.is_empty() && !known.ending;
        known.ending |= over;
        Follows { shut, ends: over.then(|| Ending { sessions: self, session }) }
    }

    /// Those that have not come back in time.
    pub(crate) fn expired(&self, now_ns: i64) -> Vec<Ending<'_>> {
        let mut all = self.lock();
        let over = |s: &Session| {
            s.channels.is_empty() && !s.ending && s.control.is_none() && s.kept_until_ns.is_some_and(|t| t <= now_ns)
        };
        all.iter_mut()
            .filter_map(|(session, known)| {
                over(known).then(|| {
                    known.ending = true;
                    Ending { sessions: self, session: *session }
                })
            })
            .collect()
    }

    /// Whether it is connected.
    pub(crate) fn is_connected(&self, session: Uuid) -> bool {
        self.lock().get(&session).is_some_and(|s| s.control.is_some())
    }

    /// Whether one may still come back.
    pub(crate) fn any_kept(&self) -> bool {
        self.lock().values().any(|s| s.control.is_none())
    }

    /// It is for one target, of a client that has another one for the store.
    pub(crate) fn is_second(&self, session: Uuid) {
        self.lock().entry(session).and_modify(|known| known.second = true);
    }

    /// How many clients there are.
    pub(crate) fn count(&self) -> usize {
        self.lock().values().filter(|known| !known.second).count()
    }
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.sessions.lock().remove(&self.session);
    }
}

#[cfg(test)]
mod tests;
