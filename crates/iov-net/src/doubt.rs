//! What a session has locked while the store's daemon cannot be reached, and other targets can: it may be somebody else's by now (O11).

use std::sync::{Arc, atomic::Ordering};

use iov_store::seam;
use iov_types::{Clause, Error, Outcome, Result, Uuid};

use crate::link::{Link, lock};

/// For how long nothing is in doubt once a connection has turned out to be broken: that takes 25 s at most, and a daemon keeps what a session has for 30,
/// unless it is told otherwise.
const SURE_NS: i64 = 5_000_000_000;
/// The same where it keeps that for less: so many parts of it.
const PARTS: u64 = 6;

/// How often it is looked whether a connection has broken over which nobody asks for anything.
const LOOK_NS: i64 = 200_000_000;

/// For how long nothing is in doubt, where leases last so long (ns); 0 = the daemon has not said.
pub(crate) fn sure_ns(lease_ns: u64) -> i64 {
    match lease_ns {
        0 => SURE_NS,
        lease_ns => i64::try_from(lease_ns / PARTS).unwrap_or(SURE_NS).min(SURE_NS),
    }
}

impl Link {
    /// Of a link to another target: the link to the store, if that has been broken for so long that others may have got what this session has locked of one of these
    /// collections.
    pub(crate) fn in_doubt(&self, mut collections: impl Iterator<Item = Uuid>) -> Option<Arc<Link>> {
        let main = self.main.as_ref()?.upgrade()?;
        if !main.book().has_locks() {
            return None;
        }
        let up = lock(&main.up).clone()?;
        // Nobody else may have asked for anything over it.
        if !up.connection.is_broken() && main.is_to_be_looked_at() {
            up.connection.look();
        }
        let broke_ns = up.connection.broke_ns()?;
        let is_long = seam::monotonic_ns() - broke_ns >= up.connection.sure_ns;
        (is_long && collections.any(|collection| main.book().has_locked(collection))).then_some(main)
    }

    /// Once in a while.
    fn is_to_be_looked_at(&self) -> bool {
        let (now, last) = (seam::monotonic_ns(), self.looked_ns.load(Ordering::Relaxed));
        let is_due = now - last >= LOOK_NS;
        if is_due {
            self.looked_ns.store(now, Ordering::Relaxed);
        }
        is_due
    }

    /// Fails for a collection that is in doubt.
    pub(crate) fn check_doubt(&self, collection: Uuid) -> Result<()> {
        match self.in_doubt(std::iter::once(collection)) {
            None => Ok(()),
            Some(_) => Err(Error::unavailable(
                "what is locked may be somebody else's by now, as the store's daemon has not been reached for long: try \
                 again once it can be",
            )
            .with_clause(Clause::O11)
            .with_outcome(Outcome::NotApplied)),
        }
    }
}
