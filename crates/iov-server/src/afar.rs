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
    /// Those that are here and could not be written down yet: what a page could not be made for, such as for want of space, a
    /// name is often lacking, too.
    unwritten: Mutex<HashSet<Uuid>>,
    /// Takes a line for the log.
    tell: fn(&str),
}

impl Afar {
    /// Reads who was there, from a directory that is made if there is none; they may come back for so long. `tell` takes a line
    /// for the log.
    pub fn open(dir: PathBuf, grace_ns: i64, tell: fn(&str)) -> Result<Afar> {
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
        let until_ns = seam::monotonic_ns().saturating_add(grace_ns);
        Ok(Afar { dir, earlier: Mutex::new(earlier), until_ns, unwritten: Mutex::default(), tell })
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<Uuid>> {
        self.earlier.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unwritten(&self) -> MutexGuard<'_, HashSet<Uuid>> {
        self.unwritten.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether somebody may still come back.
    pub fn awaits(&self) -> bool {
        !self.lock().is_empty() && seam::monotonic_ns() < self.until_ns
    }

    /// A session is there.
    pub(crate) fn begins(&self, session: Uuid) {
        let mut unwritten = self.unwritten();
        // Without it the session goes on, but not over the end of this daemon.
        if let Err(e) = self.write(session)
            && unwritten.insert(session)
            && unwritten.len() == 1
        {
            let why = format!("a session cannot be written down for the next daemon yet: {e}");
            (self.tell)(&why);
        }
    }

    /// Writes down those that could not be yet.
    pub(crate) fn write_rest(&self) {
        let mut unwritten = self.unwritten();
        let waited = !unwritten.is_empty();
        unwritten.retain(|session| self.write(*session).is_err());
        if waited && unwritten.is_empty() {
            (self.tell)("every session is written down for the next daemon again");
        }
    }

    fn write(&self, session: Uuid) -> std::io::Result<()> {
        fs::File::create(self.dir.join(session.to_string())).map(drop)
    }

    /// It is back, and has said what it had.
    pub(crate) fn came_back(&self, session: Uuid) {
        self.lock().remove(&session);
    }

    /// It has ended.
    pub(crate) fn ends(&self, session: Uuid) {
        self.lock().remove(&session);
        self.unwritten().remove(&session);
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
        let open = |grace| Afar::open(dir.path().join("network"), grace, |_| {}).unwrap();
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

    #[test]
    fn x1_who_cannot_be_written_down_is_so_later() {
        static TOLD: Mutex<Vec<String>> = Mutex::new(Vec::new());
        let dir = tempfile::tempdir().unwrap();
        let network = dir.path().join("network");
        let open = || Afar::open(network.clone(), i64::MAX, |line| TOLD.lock().unwrap().push(line.into())).unwrap();
        let first = open();
        // As with a full disk.
        fs::rename(&network, dir.path().join("aside")).unwrap();
        [1, 2, 3].into_iter().for_each(|n| first.begins(Uuid([n; 16])));
        first.write_rest();
        first.ends(Uuid([3; 16]));
        fs::rename(dir.path().join("aside"), &network).unwrap();
        first.write_rest();
        assert_eq!(TOLD.lock().unwrap().len(), 2, "once that it cannot be, once that it is");
        drop(first);
        let second = open();
        second.came_back(Uuid([1; 16]));
        assert!(second.awaits());
        second.came_back(Uuid([2; 16]));
        assert!(!second.awaits(), "who had ended is not awaited");
    }
}
