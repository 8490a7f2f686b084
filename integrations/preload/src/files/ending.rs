//! The end of what is open: of a descriptor, and of what is to be sealed with the process.

use std::{
    mem::forget,
    sync::{Arc, atomic::Ordering},
};

use iov_posix::{Errno, Outcome};
use ioverbs::{limits, moment_ns, seam, within};

use super::{Files, Locked, Open, What};
use crate::{
    standing::Standing,
    world::{Inside, World, lock, report},
};

/// How long a process that ends, or makes another, waits for a store that cannot be reached: for one of its files as ever, and for all others
/// together as long again. Each of these has a moment: only the daemon of the first one may be away.
pub(crate) struct Patience {
    deadline_ns: i64,
    /// Something has been waited for in vain: so long is waited for the others.
    left_ns: Option<i64>,
}

impl Patience {
    pub(crate) fn new(world: &World) -> Patience {
        let told = world.settings.deadline_ns;
        Patience { deadline_ns: if told > 0 { told } else { limits::DEFAULT_DEADLINE_NS }, left_ns: None }
    }

    /// Something has been waited for in vain before.
    pub(crate) fn was_over(&mut self) {
        self.left_ns.get_or_insert(self.deadline_ns);
    }

    /// Does something, or as much of it as time is left for.
    pub(crate) fn with<T>(&mut self, work: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
        let begun_ns = seam::monotonic_ns();
        let took_ns = || seam::monotonic_ns() - begun_ns;
        match &mut self.left_ns {
            None => {
                let done = work();
                let is_in_vain = matches!(done, Err(Errno::EIO)) && took_ns() >= self.deadline_ns;
                self.left_ns = is_in_vain.then_some(self.deadline_ns);
                done
            }
            Some(left_ns) if *left_ns > 0 => {
                let done = within(moment_ns(self.deadline_ns).min(*left_ns), work);
                *left_ns -= took_ns();
                done
            }
            Some(_) => Err(Errno::EIO),
        }
    }

    /// Whether something has been waited for in vain.
    pub(crate) fn is_over(&self) -> bool {
        self.left_ns.is_some()
    }

    /// Whether there is no time left for anything.
    pub(crate) fn is_up(&self) -> bool {
        self.left_ns.is_some_and(|left_ns| left_ns <= 0)
    }
}

impl Open {
    /// Closes it, for the last descriptor.
    fn close(mut self) -> Outcome<()> {
        self.finish()
    }

    fn finish(&mut self) -> Outcome<()> {
        let what = self.what.take();
        if let Some(What::File(file)) = &what {
            let _ = crate::calls::locks::ended(self, file);
        }
        let failed = lock(&self.failed).take().map_or(Ok(()), |failed| Err(failed.errno));
        let closed = match what {
            Some(What::File(file)) if self.dirty.load(Ordering::Relaxed) => file.finish(),
            Some(What::File(file)) => file.close(),
            _ => Ok(()),
        };
        failed.and(closed)
    }

    /// Whether others have got it who could not open it by themselves, and nobody keeps it for them: that the process ends is no close of theirs.
    fn lives_on(&self) -> bool {
        let is_exclusive = || matches!(self.what.get(), Some(What::File(file)) if file.is_exclusive());
        let got = self.shared.load(Ordering::Relaxed) && self.record.token.is_empty();
        got && !self.kept.load(Ordering::Relaxed) && is_exclusive()
    }

    /// Whether the store would take it for left behind by a writer that has died.
    fn may_be_left(&self) -> bool {
        matches!(self.what.get(), Some(What::File(file)) if file.may_be_left())
    }

    /// Whether it is to be closed before another program runs here, and can be opened again without anybody noticing: not what is held, or has no name that is known.
    fn can_pause(&self) -> bool {
        let Some(What::File(file)) = self.what.get().filter(|_| self.may_be_left()) else { return false };
        let by_itself =
            || !file.is_exclusive() && file.node().attributes().is_ok_and(|attributes| attributes.links > 0);
        let alone = self.locked() == Locked::No && !self.kept.load(Ordering::Relaxed);
        self.standing.is_own() && alone && by_itself()
    }
}

/// Another thread was in the middle of something with it when its last descriptor was closed: it ends behind that, and so do its locks. What was written before the close
/// was published by that.
impl Drop for Open {
    fn drop(&mut self) {
        if self.is_opened() {
            let (errno, _inside) = (crate::raw::errno(), Inside::enter());
            let _ = self.finish();
            crate::raw::set_errno(errno);
        }
    }
}

impl Files {
    /// One descriptor less for an open file: what was written is published, and the last one closes it.
    pub(crate) fn close(&self, world: &World, open: Arc<Open>) -> Outcome<()> {
        let _ = self.unlock(world, &open);
        match Arc::try_unwrap(open) {
            Ok(open) => open.close(),
            Err(open) => open.publish(),
        }
    }

    /// A process loses its locks on a file when it closes any descriptor of it.
    pub(crate) fn unlock(&self, world: &World, open: &Open) -> Outcome<()> {
        // But not what was never opened (`O_PATH`).
        if open.is_path() {
            return Ok(());
        }
        let mut locked = lock(&self.locked);
        let before = locked.len();
        locked.retain(|uuid| *uuid != open.record.uuid);
        let had = locked.len() < before;
        drop(locked);
        // What cannot be told ends with this process.
        if had { open.file(world)?.unlock_all(crate::calls::lock_owner(world)) } else { Ok(()) }
    }

    /// The process ends: what is to be sealed is closed, as the kernel does it. Of a process that dies the store is not told what was closed, and takes that for
    /// abandoned. All else was published.
    pub(crate) fn end(&self, patience: &mut Patience) {
        // Who has the table for long was interrupted by what ends the process. It is not held while files are closed: the library looks into it for each file of its own.
        let Some(mut table) = self.hold_soon() else { return };
        let left = |open: &&mut Option<Arc<Open>>| open.as_ref().is_some_and(|open| open.may_be_left());
        let opens: Vec<Arc<Open>> = table.iter_mut().filter(left).filter_map(Option::take).collect();
        drop(table);
        for open in opens {
            if open.lives_on() {
                forget(open);
                continue;
            }
            // Another thread is in the middle of something with it, or it has more descriptors.
            let Some(open) = Arc::into_inner(open) else { continue };
            let path = open.record.path.clone();
            let closed = match patience.is_up() {
                true => {
                    forget(open);
                    Err(Errno::EIO)
                }
                false => patience.with(|| open.close()),
            };
            if let Err(e) = closed {
                report(&String::from_utf8_lossy(&path), &e);
            }
        }
    }

    /// Another program is about to run here: what is to be sealed is closed, and what the program gets of it it opens by itself. If it cannot be run, this one
    /// opens it anew as it is used.
    pub(crate) fn pause(&self) {
        let locked = lock(&self.locked).clone();
        let mut done: Vec<(u64, Arc<Open>)> = Vec::new();
        for (fd, open) in self.all() {
            let anew = match done.iter().find(|(id, _)| *id == open.id) {
                Some((_, anew)) => anew.clone(),
                None if locked.contains(&open.record.uuid) || !open.can_pause() => continue,
                None => {
                    let append = open.appends(fd);
                    let anew = self.opened(open.record.clone(), None, Standing::own(), append);
                    anew.shared.store(true, Ordering::Relaxed);
                    open.proves(&anew);
                    done.push((open.id, anew.clone()));
                    anew
                }
            };
            self.replace(fd, &open, anew);
            // Who hears of it is there no more if the program runs.
            if let Some(open) = Arc::into_inner(open) {
                let _ = open.close();
            }
        }
    }
}
