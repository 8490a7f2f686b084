//! Which sessions are connected. A session has one connection over which it asks for facts, and may have others that only move
//! bytes: those end with the first. What is still on its way over old connections must not take effect behind what comes over
//! new ones. Nor is a session begun anew before all of it has ended: the end of the old one would take from it what it has
//! just taken up again.
//!
//! A connection over a network may break while both sides live. Its session is kept for as long as its leases last, and goes
//! on when it comes back.

use std::{
    collections::{HashMap, HashSet},
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
    /// It is for one target, of a client whose session for the store is this one.
    of: Option<Uuid>,
    /// The sessions for one target of this client: they end before it does.
    seconds: HashSet<Uuid>,
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
    /// Sessions for targets of its client, which were only kept, are to be ended before that.
    pub(crate) seconds: Vec<Ending<'a>>,
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
    /// The session for the store of a client, if this is one for a target.
    pub(crate) of: Option<Uuid>,
}

fn in_the_way(old: Option<u64>) -> InTheWay {
    InTheWay { error: Error::exists("the session's last connection has not ended yet: connect again"), old }
}

impl Sessions {
    fn lock(&self) -> MutexGuard<'_, HashMap<Uuid, Session>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection is there. `Exists`: an old one still is, or is ending; to be repeated.
    #[cfg(test)]
    pub(crate) fn begin(&self, session: Uuid, channel: u32, connection: u64) -> std::result::Result<(), InTheWay> {
        self.begin_of(session, None, channel, connection)
    }

    /// The same for a session for one target: that for the store must be there (X1, O11: what it holds is known then).
    pub(crate) fn begin_of(
        &self,
        session: Uuid,
        of: Option<Uuid>,
        channel: u32,
        connection: u64,
    ) -> std::result::Result<(), InTheWay> {
        let mut all = self.lock();
        if let Some(main) = of.filter(|_| channel == 0) {
            let there = all.get(&main).is_some_and(|main| main.control.is_some() && !main.ending && main.of.is_none());
            if !there || main == session {
                let error = Error::stale("the client's session for the store is not connected: that comes first");
                return Err(InTheWay { error, old: None });
            }
        }
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
        known.of = of;
        if let Some(main) = of.and_then(|main| all.get_mut(&main)) {
            main.seconds.insert(session);
        }
        Ok(())
    }

    /// A connection is gone, with all that was being done for it.
    pub(crate) fn end(&self, session: Uuid, channel: u32, connection: u64, left: Left) -> Follows<'_> {
        let mut all = self.lock();
        let Some(known) = all.get(&session) else { return Follows::default() };
        // With a client that has ended all of it has, also what this daemon has shut itself.
        let ended = |main: &Uuid| all.get(main).is_none_or(|main| main.kept_until_ns == Some(i64::MIN));
        let left = if known.of.as_ref().is_some_and(ended) { Left::Ended } else { left };
        let Some(known) = all.get_mut(&session) else { return Follows::default() };
        let (mut shut, mut kept) = (Vec::new(), Vec::new());
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
            let seconds: Vec<Uuid> = known.seconds.iter().copied().collect();
            shut.extend(seconds.iter().filter_map(|second| all.get(second)?.control));
            if left == Left::Ended {
                kept = seconds;
                kept.retain(|second| all.get(second).is_some_and(|second| second.control.is_none()));
            }
        }
        let end = |second| {
            all.get_mut(&second)?.kept_until_ns = Some(i64::MIN);
            self.over_of(&mut all, second)
        };
        let seconds = kept.into_iter().filter_map(end).collect();
        Follows { shut, seconds, ends: self.over_of(&mut all, session) }
    }

    /// A session of which nothing is left.
    fn over_of(&self, all: &mut HashMap<Uuid, Session>, session: Uuid) -> Option<Ending<'_>> {
        let known = all.get_mut(&session)?;
        let nothing_left = known.channels.is_empty() && known.seconds.is_empty();
        let over = known.kept_until_ns == Some(i64::MIN) && nothing_left && !known.ending;
        known.ending |= over;
        over.then(|| Ending { sessions: self, session, of: known.of })
    }

    /// The same, asked when a session for one of its targets has ended.
    pub(crate) fn over(&self, session: Uuid) -> Option<Ending<'_>> {
        self.over_of(&mut self.lock(), session)
    }

    /// Those that have not come back in time.
    pub(crate) fn expired(&self, now_ns: i64) -> Vec<Ending<'_>> {
        let mut all = self.lock();
        let over = |s: &Session| {
            let nothing_left = s.channels.is_empty() && s.seconds.is_empty();
            nothing_left && !s.ending && s.control.is_none() && s.kept_until_ns.is_some_and(|t| t <= now_ns)
        };
        all.iter_mut()
            .filter_map(|(session, known)| {
                over(known).then(|| {
                    known.ending = true;
                    Ending { sessions: self, session: *session, of: known.of }
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

    /// How many clients there are.
    pub(crate) fn count(&self) -> usize {
        self.lock().values().filter(|known| known.of.is_none()).count()
    }
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        let mut all = self.sessions.lock();
        all.remove(&self.session);
        if let Some(main) = self.of.and_then(|main| all.get_mut(&main)) {
            main.seconds.remove(&self.session);
        }
    }
}

#[cfg(test)]
mod tests;
