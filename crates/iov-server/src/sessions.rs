//! Which sessions are connected. A session has one connection: what is still on its way over an old one must not take
//! effect behind what comes over the new one. Nor is it begun anew before all of it has ended: the end of the old one would
//! take from it what it has just taken up again.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use iov_types::{Error, Result, Uuid};

/// The connected sessions.
#[derive(Default)]
pub(crate) struct Sessions {
    /// Whether its connection lives; else it is ending.
    connected: Mutex<HashMap<Uuid, bool>>,
}

/// A session that is ending, until this is dropped.
pub(crate) struct Ending<'a> {
    sessions: &'a Sessions,
    session: Uuid,
}

impl Sessions {
    fn lock(&self) -> MutexGuard<'_, HashMap<Uuid, bool>> {
        self.connected.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its connection is there. `Exists`: an old one still is, or is ending; to be repeated.
    pub(crate) fn begin(&self, session: Uuid) -> Result<()> {
        let mut connected = self.lock();
        if connected.contains_key(&session) {
            return Err(Error::exists("the session's last connection has not ended yet: connect again"));
        }
        connected.insert(session, true);
        Ok(())
    }

    /// Its connection is gone: it is to be ended now.
    pub(crate) fn end(&self, session: Uuid) -> Option<Ending<'_>> {
        let mut connected = self.lock();
        let lives = connected.get_mut(&session).filter(|lives| **lives)?;
        *lives = false;
        Some(Ending { sessions: self, session })
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.sessions.lock().remove(&self.session);
    }
}

#[cfg(test)]
mod tests;
