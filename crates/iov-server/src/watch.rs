//! Connections that one worker looks at besides the one that it serves.
//!
//! Who looks into the ring of a connection for what comes next ([`iov_net::polling`]) looks into those of others at the same time: into one costs no more than
//! into several, and their clients need no call of the system either, nor another thread that would have to be woken, and take its turn on a processor.
//! What has been kept here says that somebody looks, for as long as anybody does. A client of which nothing is taken for long, as the one who looks serves
//! a long request, sends a bell over the socket, and another worker takes it up.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicI64, AtomicU64, Ordering},
};

use iov_store::seam;

use crate::connection::Connection;

/// Most that are looked at.
const MOST: usize = 64;
/// Who has not looked for so long, in nanoseconds, does something that takes long.
const LATELY_NS: i64 = 200_000;

#[derive(Default)]
struct Kept {
    /// Workers that look.
    lookers: usize,
    all: Vec<Arc<Connection>>,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Watch {
    kept: Mutex<Kept>,
    /// How often it has changed what is kept.
    changes: AtomicU64,
    /// When somebody last looked, on the monotonic clock.
    looked_ns: AtomicI64,
}

/// What one worker knows of them.
#[derive(Default)]
pub(crate) struct Others {
    /// It counts as one of those who look.
    looks: bool,
    all: Vec<Arc<Connection>>,
    changes: u64,
}

impl Watch {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changed(&self) {
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// A worker looks, or looks once more: it knows then what else there is to look at.
    pub(crate) fn looks(&self, others: &mut Others) {
        self.looked_ns.store(seam::monotonic_ns(), Ordering::Relaxed);
        if others.looks && others.changes == self.changes.load(Ordering::Acquire) {
            return;
        }
        let mut kept = self.lock();
        if !others.looks {
            (others.looks, kept.lookers) = (true, kept.lookers + 1);
        }
        others.changes = self.changes.load(Ordering::Acquire);
        others.all.clone_from(&kept.all);
    }

    /// A worker looks no more. Was it the last, nobody does.
    pub(crate) fn ends(&self, others: &mut Others) {
        others.all.clear();
        if !std::mem::take(&mut others.looks) {
            return;
        }
        let mut kept = self.lock();
        kept.lookers -= 1;
        if kept.lookers > 0 {
            return;
        }
        let all = std::mem::take(&mut kept.all);
        self.changed();
        drop(kept);
        all.iter().for_each(|connection| connection.is_looked_at_no_more());
    }

    /// Has a connection looked at, if anybody looks, and not only would if it had nothing else to do.
    pub(crate) fn keep(&self, connection: &Arc<Connection>) -> bool {
        let lately = seam::monotonic_ns() - self.looked_ns.load(Ordering::Relaxed) < LATELY_NS;
        let mut kept = self.lock();
        if kept.lookers == 0 || !lately {
            return false;
        }
        let mut left = Vec::new();
        if !kept.all.iter().any(|other| Arc::ptr_eq(other, connection)) {
            if kept.all.len() >= MOST {
                left = kept.all.extract_if(.., |other| !other.is_expected()).collect();
            }
            if kept.all.len() >= MOST {
                return false;
            }
            kept.all.push(connection.clone());
            self.changed();
        }
        // As long as nobody can end it.
        connection.is_looked_at();
        drop(kept);
        left.iter().for_each(|other| other.is_looked_at_no_more());
        true
    }

    /// What has come and was not taken up, as the one who looks is busy and its client sleeps without having called, is served by others.
    pub(crate) fn check(&self) {
        let all = self.lock().all.clone();
        all.iter().filter(|connection| connection.has_come()).for_each(|connection| connection.is_looked_at_no_more());
    }

    /// Whoever serves a connection has others told of what comes, if they do not know that already.
    pub(crate) fn let_go_of(&self, connection: &Arc<Connection>) {
        if connection.may_be_looked_at() {
            self.forget(connection);
        }
    }

    /// A connection has ended, or is others' to serve.
    pub(crate) fn forget(&self, connection: &Arc<Connection>) {
        let mut kept = self.lock();
        connection.is_let_go_of();
        let before = kept.all.len();
        kept.all.retain(|other| !Arc::ptr_eq(other, connection));
        if kept.all.len() < before {
            self.changed();
        }
    }
}

/// A worker, which looks no more once it has gone.
pub(crate) struct Looker<'a> {
    pub(crate) watch: &'a Watch,
    pub(crate) others: Others,
}

impl Drop for Looker<'_> {
    fn drop(&mut self) {
        self.watch.ends(&mut self.others);
    }
}

impl Others {
    /// One of them, other than this, that has something which nobody takes up.
    pub(crate) fn ready(&self, but: &Arc<Connection>) -> Option<&Arc<Connection>> {
        // In turn, so that none is left out for others that are quicker.
        let from = self.all.iter().position(|other| Arc::ptr_eq(other, but)).map_or(0, |at| at + 1);
        let (before, behind) = self.all.split_at(from);
        behind.iter().chain(before).find(|other| !Arc::ptr_eq(other, but) && other.has_come())
    }

    /// One of them, other than this, from which something is still expected.
    pub(crate) fn expected(&self, but: &Arc<Connection>) -> Option<&Arc<Connection>> {
        self.all.iter().find(|other| !Arc::ptr_eq(other, but) && other.is_expected())
    }
}
