//! What others do to files that somebody has open here, where the kernel keeps pages of them until it is told not to.

use std::{
    sync::{Arc, Condvar, Mutex, PoisonError, Weak, atomic::Ordering},
    time::Duration,
};

use iov_fuse_kernel::Request;
use iov_posix::{Alone, File};
use ioverbs::seam;

use crate::{
    door::Known,
    inodes::{Content, lock},
    opened::Served,
    shown::Dropped,
};

/// How many files are looked at, at a time.
const AT_ONCE: usize = 128;
/// How often is looked whether some are due.
const PAUSE: Duration = Duration::from_secs(1);
const SHORT_PAUSE: Duration = Duration::from_millis(50);
/// Whoever has just locked or opened a file has seen to that, and what is dropped while the kernel asks how long the file is has it throw that away.
const JUST_NS: i64 = 20_000_000;
/// Pages that are to be dropped again wait for what was on its way.
const SOON: Duration = Duration::from_millis(5);

impl Known {
    /// The kernel is about to be told of this content, which was asked for at that time (monotonic clock), by the answer of a request if it is one. It drops the pages
    /// that it has first, if others have changed the bytes: who hears of another time reads what is there then.
    ///
    /// Not for answers to a change of the file's length: it waits for pages to be written, and the kernel writes none meanwhile.
    pub(crate) fn tells(&self, req: Option<&Request<'_>>, ino: u64, (content, asked_ns): (Content, i64)) {
        let Some(others) = self.inodes.hears(ino, content, asked_ns) else { return };
        if others && !self.inodes.is_alone(ino) {
            self.drop_pages(req, ino, Dropped::Others);
        }
        // Not before they are: who is told the same meanwhile drops them, too.
        self.inodes.told(ino, content, asked_ns);
    }

    /// A file has this length as somebody opens it, of which the kernel is not told by that: it asks for what it does not know to be so (C3).
    pub(crate) fn opens(&self, ino: u64, size: u64) {
        if let Some(kernel) = self.kernel.as_ref().filter(|_| self.inodes.has_another_size(ino, size)) {
            // The kernel may have nothing of it.
            let _ = kernel.forget_attributes(ino);
        }
    }

    /// Somebody opens a file, and may have pages of it: from now on what others do to it is looked at.
    pub(crate) fn shows(self: &Arc<Known>, ino: u64, content: Content, ttl: Duration) {
        self.inodes.is_shown(ino, content);
        if self.follows.is_none() || self.looks.swap(true, Ordering::AcqRel) {
            return;
        }
        let (known, wake) = (Arc::downgrade(self), self.wake.clone());
        if seam::spawn("iov-follow", move || follow(&known, &wake, ttl)).is_err() {
            // Then it is tried again with the next one.
            self.looks.store(false, Ordering::Release);
        }
    }

    /// Somebody opens it with this content, who may have pages of it himself (`shown`), and the kernel is to drop all that it has; but where it has none now that may be of before: then this
    /// says so.
    pub(crate) fn opens_anew(&self, req: &Request<'_>, file: &File, (content, shown): (Content, bool)) -> bool {
        // What is on its way to the store stays in them.
        if self.inodes.is_alone(req.node) {
            return true;
        }
        let anew = self.follows.is_some() && self.inodes.is_open(req.node, shown);
        if anew {
            self.anew(req, file, (Dropped::Others, None));
            self.inodes.are_of(req.node, content);
        }
        anew
    }

    /// A lock of this file was given. Somebody else may have had it before: what the kernel has cached is not good any more, where others may have changed that.
    /// `by`: by this owner, who had none before.
    pub(crate) fn locked(&self, req: &Request<'_>, file: &File, by: Option<u64>) {
        if !self.inodes.is_alone(req.node) {
            self.inodes.changed(req.node);
            self.anew(req, file, (Dropped::Locked, by));
        }
    }

    /// A file was made here, and the kernel has no pages of it.
    pub(crate) fn is_new(&self, ino: u64, file: &File) {
        if let Some(alone) = self.alone(file) {
            self.inodes.is_new(ino, alone);
        }
    }

    /// The kernel does something with a file: it has opened it, and kept or dropped what it had of it.
    pub(crate) fn begins(&self, ino: u64, file: &Served) {
        let Some(opening) = file.opening.take() else { return };
        if let Some(content) = opening.dropped {
            // Somebody may have been writing.
            drop(self.owners.dropping(ino, None));
            self.inodes.were_dropped(ino);
            self.inodes.are_of(ino, content);
        }
        if opening.alone.is_some() {
            self.inodes.is_since(ino, opening.alone);
        }
    }

    /// From now on, where it can be told whether others change it.
    fn alone(&self, file: &File) -> Option<Alone> {
        self.follows.as_ref().filter(|_| file.may_be_alone())?;
        file.node().file_system().alone()
    }

    /// Drops pages, so that it can be told from now on whether others have changed what comes in their place.
    fn anew(&self, req: &Request<'_>, file: &File, (why, by): (Dropped, Option<u64>)) {
        let alone = self.alone(file);
        // The last time that it is done, perhaps, and some may be writing who do not lock.
        let is_last = alone.as_ref().is_some_and(|alone| file.node().is_alone(alone));
        let why = if is_last { Dropped::Others } else { why };
        self.drop_pages_for(Some(req), req.node, (why, by));
        self.inodes.is_since(req.node, alone);
    }

    /// What was written past the kernel's pages is not in those that others have; so many bytes, 0: nobody knows which.
    pub(crate) fn was_written_past(&self, req: &Request<'_>, bytes: (u64, u64)) {
        if self.follows.is_some() && self.inodes.has_shown(req.node) {
            self.drop_bytes(req, bytes, None);
        }
    }

    /// Has the kernel drop its pages of so many bytes at an offset, 0: of all behind it, and waits for those that are being read or written. `by`: for this owner of
    /// locks, who is writing nothing.
    pub(crate) fn drop_bytes(&self, req: &Request<'_>, (offset, len): (u64, u64), by: Option<u64>) {
        let Some(kernel) = &self.kernel else { return };
        {
            let (_dropping, _waiting) = (self.owners.dropping(req.node, by), req.waits());
            // The kernel may have nothing of it.
            let _ = kernel.forget_bytes(req.node, offset, len);
        }
        self.inodes.were_dropped(req.node);
    }

    /// Has the kernel drop its pages of a file, and waits for those that are being read or written.
    pub(crate) fn drop_pages(&self, req: Option<&Request<'_>>, ino: u64, why: Dropped) {
        self.drop_pages_for(req, ino, (why, None));
    }

    fn drop_pages_for(&self, req: Option<&Request<'_>>, ino: u64, (why, by): (Dropped, Option<u64>)) {
        let Some(kernel) = &self.kernel else { return };
        let began_ns = seam::monotonic_ns();
        {
            let (_dropping, _waiting) = (self.owners.dropping(ino, by), req.map(Request::waits));
            // The kernel may have nothing of it.
            let _ = kernel.forget_content(ino);
        }
        if self.inodes.was_dropped(ino, why, began_ns) {
            self.wake.now();
        }
    }

    /// Bytes of a file are being changed here until what is returned is dropped; up to `end`, as far as that is known.
    pub(crate) fn changes(&self, ino: u64, end: u64) -> Changes<'_> {
        let (noted, again) = self.inodes.changes(ino, end);
        if again {
            self.wake.now();
        }
        Changes { known: self, ino, noted }
    }

    /// Looks at what others have done to files that are open.
    fn look(&self, ttl: Duration, pause: Duration) {
        // Those that will have been looked at longer ago than that by the next time.
        let age_ns = i64::try_from((ttl.max(pause) - pause).as_nanos()).unwrap_or(i64::MAX);
        let began_ns = seam::monotonic_ns();
        let before_ns = began_ns.saturating_sub(age_ns).min(began_ns.saturating_sub(JUST_NS));
        loop {
            let due = self.inodes.to_look_at(AT_ONCE, before_ns);
            let more = due.len() == AT_ONCE && seam::monotonic_ns() - began_ns < PAUSE.as_nanos() as i64;
            for (ino, node) in due {
                let is_alone = self.inodes.is_alone(ino);
                if self.inodes.is_in_doubt(ino, is_alone, pause) {
                    self.drop_pages(None, ino, Dropped::Others);
                }
                let asked_ns = seam::monotonic_ns();
                // Who does not answer is asked again.
                if let Ok(attributes) = node.attributes() {
                    // Of another length nobody has told the kernel.
                    self.opens(ino, attributes.size);
                    self.tells(None, ino, (Content::of(&attributes), asked_ns));
                }
            }
            if !more {
                return;
            }
        }
    }

    /// Whether somebody goes on looking: something is open.
    fn goes_on(&self) -> bool {
        if self.inodes.any_shown() {
            return true;
        }
        self.looks.store(false, Ordering::Release);
        // Who has opened one meanwhile has found somebody looking.
        self.inodes.any_shown() && !self.looks.swap(true, Ordering::AcqRel)
    }
}

/// Bytes of a file are being changed.
pub(crate) struct Changes<'a> {
    known: &'a Known,
    ino: u64,
    noted: bool,
}

impl Drop for Changes<'_> {
    fn drop(&mut self) {
        self.known.inodes.has_changed(self.ino, self.noted);
    }
}

/// For who looks: something is due before long.
#[derive(Default)]
pub(crate) struct Wake {
    is_due: Mutex<bool>,
    woken: Condvar,
}

impl Wake {
    pub(crate) fn now(&self) {
        *lock(&self.is_due) = true;
        self.woken.notify_one();
    }

    /// Waits for that, or so long.
    fn wait(&self, pause: Duration) {
        let waited = self.woken.wait_timeout_while(lock(&self.is_due), pause, |due| !*due);
        *waited.unwrap_or_else(PoisonError::into_inner).0 = false;
    }
}

/// Looks as long as files are open. The mount may end meanwhile.
fn follow(known: &Weak<Known>, wake: &Wake, ttl: Duration) {
    let pause = ttl.clamp(SHORT_PAUSE, PAUSE);
    let mut next_ns = seam::monotonic_ns().saturating_add(pause.as_nanos() as i64);
    let mut waits = false;
    loop {
        if waits {
            seam::sleep(SOON.as_nanos() as u64);
        } else {
            wake.wait(Duration::from_nanos(next_ns.saturating_sub(seam::monotonic_ns()).max(0) as u64));
        }
        let Some(known) = known.upgrade() else { return };
        let again;
        (again, waits) = known.inodes.to_drop_again();
        again.into_iter().for_each(|ino| known.drop_pages(None, ino, Dropped::Again));
        if seam::monotonic_ns() >= next_ns {
            known.look(ttl, pause);
            next_ns = seam::monotonic_ns().saturating_add(pause.as_nanos() as i64);
        }
        if !known.goes_on() {
            return;
        }
    }
}
