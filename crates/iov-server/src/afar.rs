//! Sessions that have no lease page, written down by their names, so that a daemon which comes in place of one that crashed knows
//! who may come back to it: those over a network, those of another process namespace, and those that no page could be made for.
//! (Of all other clients on its own host the lease pages tell that, and whether they live.)

use std::{
    collections::HashSet,
    fs,
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
};

use iov_store::seam;
use iov_types::{Error, Result, Uuid};

/// The sessions without lease pages of a daemon and of the one before it.
#[derive(Debug)]
pub struct Afar {
    dir: PathBuf,
    /// Those of the one before, who have not come back yet.
    earlier: Mutex<HashSet<Uuid>>,
    /// Until when they may, on the monotonic clock.
    until_ns: i64,
}

impl Afar {
    /// Reads who was there, from a directory that is made if there is none; they may come back for so long.
    pub fn open(dir: PathBuf, grace_ns: i64) -> Result<Afar> {
        let of = |e| Error::from(e).context("the store's list of sessions over a network");
        match fs::create_dir(&dir) {
            Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => return Err(of(e)),
            _ => {}
        }
        let mut earlier = HashSet::new();
        for entry in fs::read_dir(&dir).map_err(of)? {
            let name = entry.map_err(of)?.file_name();
            // Anything else is none of ours.
            earlier.extend(name.to_str().and_then(|name| Uuid::parse(name).ok()));
        }
        Ok(Afar { dir, earlier: Mutex::new(earlier), until_ns: seam::monotonic_ns().saturating_add(grace_ns) })
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<Uuid>> {
        self.earlier.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether somebody may still come back.
    pub fn awaits(&self) -> bool {
        !self.lock().is_empty() && seam::monotonic_ns() < self.until_ns
    }

    /// A session is there.
    pub(crate) fn begins(&self, session: Uuid) {
        // Without it the session goes on, but not over the end of this daemon.
        let _ = fs::File::create(self.dir.join(session.to_string()));
    }

    /// It is back, and has said what it had.
    pub(crate) fn came_back(&self, session: Uuid) {
        self.lock().remove(&session);
    }

    /// It has ended.
    pub(crate) fn ends(&self, session: Uuid) {
        self.lock().remove(&session);
        // One with a lease page has none.
        let _ = fs::remove_file(self.dir.join(session.to_string()));
    }

    /// Nobody comes back any more: those who have not are forgotten.
    pub(crate) fn end_grace(&self, is_here: impl Fn(Uuid) -> bool) {
        let gone = std::mem::take(&mut *self.lock());
        gone.into_iter().filter(|session| !is_here(*session)).for_each(|session| self.ends(session));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_there_is_awaited_for_a_while() {
        let dir = tempfile::tempdir().unwrap();
        let open = |grace| Afar::open(dir.path().join("network"), grace).unwrap();
        let (a, b, c) = (Uuid([1; 16]), Uuid([2; 16]), Uuid([3; 16]));
        let first = open(i64::MAX);
        assert!(!first.awaits());
        [a, b, c].into_iter().for_each(|session| first.begins(session));
        first.ends(c);
        drop(first);
        let second = open(i64::MAX);
        assert!(second.awaits());
        second.begins(a);
        second.came_back(a);
        assert!(second.awaits(), "another is missing");
        second.end_grace(|session| session == a);
        assert!(!second.awaits());
        drop(second);
        let third = open(i64::MAX);
        third.came_back(a);
        assert!(!third.awaits(), "one that did not come back is forgotten");
        assert!(!open(0).awaits(), "there is an end to it");
    }
}
