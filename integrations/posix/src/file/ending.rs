//! What was written is told to others, made last, and closed.

use std::sync::Arc;

use ioverbs::{Collection, Op, Persistence, Point};

use super::File;
use crate::{Outcome, handle::Handle, later::Slot};

impl File {
    /// What was written survives what the store survives (`fsync`).
    pub fn sync(&self) -> Outcome<()> {
        self.persist()?;
        // What was told before, and has found no room, does not survive.
        self.joined().map_or(Ok(()), |handle| handle.failure())
    }

    /// The same, whatever has failed before.
    pub fn persist(&self) -> Outcome<()> {
        // Also what others have written, by whichever descriptor.
        let Some(handle) = self.handle_of_what_is()? else { return Ok(()) };
        let persist = |c: &Collection| Op::Persist { c: c.clone() };
        self.in_time(|| match handle.settle_with(Some(&persist))? {
            true => Ok(()),
            false => self.again("sync", persist).map(drop),
        })
    }

    /// Whether there is something of what was written that the store has not been told, perhaps.
    pub fn has_untold(&self) -> bool {
        self.joined().is_some_and(|handle| handle.has_untold())
    }

    /// One of its descriptors is closed: what was written is published (C2, C3), and survives what it is to survive from its close
    /// on, so that the program hears of it if that fails. Where nothing was written nobody is asked.
    pub fn flush(&self) -> Outcome<()> {
        // One that reads alone may have made it, or changed its attributes.
        // What has found no room its writer hears of, if there is one besides.
        let is_own = |handle: &Arc<Handle>| !handle.is_stuck() || Arc::strong_count(handle) == 1;
        let tells = |handle: &&Arc<Handle>| self.flags.write || (handle.has_untold() && is_own(handle));
        match self.joined().filter(tells) {
            Some(handle) => {
                let (published, failed) = (self.publish(), handle.take_failure());
                published.and(failed)
            }
            None => Ok(()),
        }
    }

    /// What anybody has written who has it open is published.
    pub(crate) fn publish(&self) -> Outcome<()> {
        let Some(handle) = self.joined().filter(|handle| handle.c.is_writable()) else { return Ok(()) };
        let effective = handle.c.effective().map_err(|e| self.node.file_system().errno("close", &e))?;
        if effective.point == Point::Close && effective.persistence >= Persistence::Durable {
            return self.sync();
        }
        let commit = |c: &Collection| Op::Commit { c: c.clone() };
        self.in_time(|| match handle.settle_with(Some(&commit))? {
            true => Ok(()),
            false => self.again("commit", commit).map(drop),
        })
    }

    /// Closes it for a program that is to hear of all that fails: what was written is published, also where others have it open. It is
    /// closed, whatever this says.
    pub fn finish(self) -> Outcome<()> {
        let fs = self.node.file_system().clone();
        fs.in_time(|| self.publish_and_close())
    }

    fn publish_and_close(self) -> Outcome<()> {
        // The last one publishes as it closes.
        let is_shared = self.joined().is_some_and(|handle| Arc::strong_count(handle) > 1);
        let published = if is_shared { self.flush() } else { Ok(()) };
        let closed = self.close();
        published.and(closed)
    }

    /// Closes it. It is closed, whatever this says.
    pub fn close(self) -> Outcome<()> {
        let fs = self.node.file_system().clone();
        fs.in_time(|| self.close_now())
    }

    fn close_now(self) -> Outcome<()> {
        let Some(handle) = Slot::into_handle(self.slot) else { return Ok(()) };
        if self.node.ends(&handle) {
            // What was written goes in one request with the close.
            return handle.end_now();
        }
        // Here, as whoever else holds it for a moment hears of no failure.
        let told = handle.settle();
        let is_anothers = !self.flags.write && handle.is_stuck();
        // Others who have it open go on.
        match Arc::into_inner(handle) {
            Some(handle) => handle.end().and(told),
            None if is_anothers => Ok(()),
            None => told,
        }
    }
}
