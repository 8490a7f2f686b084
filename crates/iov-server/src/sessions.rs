//! Which sessions are connected, and how often. A session that ends is not begun anew before all of it has ended: the end
//! of the old connection would take from the new one what that has just taken up again.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{Mutex, MutexGuard, PoisonError},
};

use iov_types::{Error, Result, Uuid};

/// The connected sessions.
#[derive(Default)]
pub(crate) struct Sessions {
    /// Connections of each; 0 = its last one is gone, and it is ending.
    connections: Mutex<HashMap<Uuid, u32>>,
}

/// A session that is ending, until this is dropped.
pub(crate) struct Ending<'a> {
    sessions: &'a Sessions,
    session: Uuid,
}

impl Sessions {
    fn lock(&self) -> MutexGuard<'_, HashMap<Uuid, u32>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more connection. `Exists`: the session is ending, to be repeated.
    pub(crate) fn begin(&self, session: Uuid) -> Result<()> {
        match self.lock().entry(session) {
            Entry::Vacant(first) => _ = first.insert(1),
            Entry::Occupied(ending) if *ending.get() == 0 => {
                return Err(Error::exists("the session's last connection is still ending: connect again"));
            }
            Entry::Occupied(mut more) => *more.get_mut() += 1,
        }
        Ok(())
    }

    /// One connection less; if it was the last one, the session is to be ended now.
    pub(crate) fn end(&self, session: Uuid) -> Option<Ending<'_>> {
        let mut connections = self.lock();
        let n = connections.get_mut(&session).filter(|n| **n > 0)?;
        *n -= 1;
        (*n == 0).then(|| Ending { sessions: self, session })
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
