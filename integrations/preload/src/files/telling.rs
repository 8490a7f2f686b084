//! What was written is told to everybody else, and what became of that.

use std::sync::atomic::Ordering;

use iov_posix::{Errno, Outcome};

use super::{Open, What};
use crate::world::lock;

/// Why others could not be told something.
pub(super) struct Failed {
    pub(super) errno: Errno,
    /// It is lost; else it is told another time.
    pub(super) is_final: bool,
    /// The program has heard of it, and is to hear of it again from the close.
    pub(super) is_known: bool,
}

impl Open {
    /// Everybody else is told what was written, for who hears also of what has failed before.
    pub(crate) fn publish(&self) -> Outcome<()> {
        self.publish_early();
        lock(&self.failed).take().map_or(Ok(()), |failed| Err(failed.errno))
    }

    /// The same where the program does not hear of it: whoever closes it does. What has found no room, or no answer, is told another time.
    pub(crate) fn publish_early(&self) {
        let Some(What::File(file)) = self.what.get().filter(|_| self.dirty.swap(false, Ordering::Relaxed)) else {
            return;
        };
        let told = file.flush();
        let is_final = !file.has_untold();
        let mut failed = lock(&self.failed);
        match told {
            Ok(()) => drop(failed.take_if(|failed| !failed.is_final)),
            Err(errno) => {
                self.dirty.fetch_or(!is_final, Ordering::Relaxed);
                *failed = Some(Failed { errno, is_final, is_known: false });
            }
        }
    }

    /// The same for who wants to know as well, besides who closes it: of each failure once.
    pub(crate) fn publish_for_others(&self) -> Outcome<()> {
        self.publish_early();
        let mut failed = lock(&self.failed);
        let new = failed.as_mut().filter(|failed| !failed.is_known);
        new.map_or(Ok(()), |failed| {
            failed.is_known = true;
            Err(failed.errno)
        })
    }

    /// Whether others could not be told, as the store did not answer.
    pub(super) fn has_waited(&self) -> bool {
        lock(&self.failed).as_ref().is_some_and(|failed| !failed.is_final && failed.errno == Errno::EIO)
    }

    /// Why others have not been told all that was written, if so.
    pub(crate) fn untold(&self) -> Option<Errno> {
        let failed = lock(&self.failed).as_ref().map(|failed| failed.errno);
        failed.or_else(|| self.dirty.load(Ordering::Relaxed).then_some(Errno::EIO))
    }

    /// Makes last what found no room, or no answer, as it was told before.
    pub(crate) fn sync_untold(&self) -> Outcome<()> {
        match self.what.get() {
            Some(What::File(file)) if file.has_untold() => file.persist(),
            _ => Ok(()),
        }
    }
}
