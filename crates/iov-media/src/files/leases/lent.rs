//! Files that are lent to others to be written: the kernel, for programs of a mount. Nobody tells this process when those have
//! ended, but the file system knows whether anybody has a file open or mapped for writing (G2).

use iov_types::{ObjectId, Uuid};

use super::{HeldState, Leases, Place, Session};
use crate::{
    file_lease,
    files::{disk::Disk, tree::FileName},
};

/// What is to be done with a file that was lent, and is wanted back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::files) enum Lending {
    /// Nothing: it is not lent, or to nobody who is concerned.
    None,
    /// Its holder lives, and his hold has not passed on: it stays where it is.
    Stays,
    /// Whoever had it has ended, for so many nanoseconds at least, but for those to whom the kernel goes on to give it.
    Left(u64),
    /// Its holder lives, and may hand it on at any time, although it is not his any more.
    Lost,
}

/// How long after the end of a process the kernel may still be about to open for a program what that process has said last: it
/// is scheduled by then.
pub(in crate::files) const AFTER_END_NS: u64 = 250_000_000;

/// Whether nobody has the file of an object open or mapped for writing. Those of this process are closed first; where somebody uses
/// one just now, or that cannot be told, the answer is no.
pub(in crate::files) fn is_let_go(disk: &Disk, object: ObjectId) -> bool {
    let name = FileName::Data(object);
    disk.forget(name);
    match disk.sparing(|| disk.tree.open_file(name, false)) {
        Ok(Some(file)) => file_lease::is_written_by_nobody(&file).unwrap_or(false),
        Ok(None) => true,
        Err(_) => false,
    }
}

impl Leases {
    /// How an object is lent, for who takes back grants of an epoch below `below`, if it is given.
    pub(in crate::files) fn lending(&self, object: ObjectId, below: Option<u64>) -> Lending {
        let book = self.lock();
        let mut lending = Lending::None;
        for (page, slot) in book.by_object.get(&object).into_iter().flatten() {
            let Some(session) = book.sessions.get(page).filter(|s| s.is_lent(*slot)) else { continue };
            let Some(held) = session.held.get(slot) else { continue };
            lending = match (session.process.gone_for_ns(), below, lending) {
                (None, Some(below), _) if held.epoch >= below => continue,
                (None, None, _) if held.state == HeldState::Granted => return Lending::Stays,
                (None, ..) | (_, _, Lending::Lost) => Lending::Lost,
                (Some(ns), _, Lending::Left(before)) => Lending::Left(ns.min(before)),
                (Some(ns), ..) => Lending::Left(ns),
            };
        }
        lending
    }

    /// Whether an object is lent to this session, whichever daemon has lent it; perhaps no more.
    pub(in crate::files) fn has_lent_to(&self, session: Uuid, object: ObjectId) -> bool {
        !self.lent(object, |of| of.id == session).is_empty()
    }

    /// The same, but still.
    pub(in crate::files) fn lends_to(&self, session: Uuid, object: ObjectId) -> bool {
        let places = self.lent(object, |of| of.id == session);
        let mut book = self.lock();
        places.into_iter().any(|place| book.take(place).is_some_and(|(_, held)| held.state == HeldState::Granted))
    }

    /// Ends what is lent of an object to a session.
    pub(in crate::files) fn end_lent_to(&self, session: Uuid, object: ObjectId) {
        self.end_lent(object, |of| of.id == session);
    }

    /// Ends what is lent of an object to processes that have ended, or are not seen here.
    pub(in crate::files) fn end_left(&self, object: ObjectId) {
        self.end_lent(object, |of| of.process.gone_for_ns().is_some());
    }

    /// The bytes of an object were moved away from those to whom it is lent no more.
    pub(in crate::files) fn end_moved(&self, object: ObjectId) {
        let places = self.lent(object, |_| true);
        let mut book = self.lock();
        for place in places {
            if book.take(place).is_some_and(|(_, held)| held.state == HeldState::Revoked) {
                book.free(place);
            }
        }
    }

    /// Whether an object is lent to anybody.
    pub(in crate::files) fn is_lent(&self, object: ObjectId) -> bool {
        !self.lent(object, |_| true).is_empty()
    }

    fn end_lent(&self, object: ObjectId, of: impl Fn(&Session) -> bool) {
        let places = self.lent(object, of);
        let mut book = self.lock();
        places.into_iter().for_each(|place| book.free(place));
    }

    fn lent(&self, object: ObjectId, of: impl Fn(&Session) -> bool) -> Vec<Place> {
        let book = self.lock();
        let mut places = book.by_object.get(&object).cloned().unwrap_or_default();
        places.retain(|(page, slot)| book.sessions.get(page).is_some_and(|s| s.is_lent(*slot) && of(s)));
        places
    }
}
