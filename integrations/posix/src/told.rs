//! What was told of something last, and for how long that holds.

use std::{sync::atomic::Ordering, time::Duration};

use ioverbs::seam;

use crate::{Attributes, Change, Kind, Node, fs::lock, remembered::Since};

/// The time at which that was told which does not hold any more.
const UNTOLD: i64 = 0;

/// What was told of something.
pub(crate) struct Told {
    attributes: Attributes,
    /// When, on the monotonic clock.
    at_ns: i64,
    /// Before when it was asked for, if it is known until when that holds.
    since: Option<Since>,
}

impl Node {
    /// Notes what was told of it. Answers may come in another order than they were given.
    pub(crate) fn tell(&self, attributes: &Attributes) {
        self.tell_since(attributes, None);
    }

    /// The same, where it is known before when that was asked for.
    pub(crate) fn tell_since(&self, attributes: &Attributes, since: Option<Since>) {
        let mut told = lock(&self.told);
        let older = |known: &Told| match (&known.since, &since) {
            (Some(before), Some(now)) if now.follows(before) => true,
            _ => known.at_ns == UNTOLD || known.attributes.ctime_ns <= attributes.ctime_ns,
        };
        if told.as_ref().is_none_or(older) {
            self.gives_rights.store(attributes.mode & 0o6000 != 0, Ordering::Relaxed);
            *told = Some(Told { attributes: *attributes, at_ns: seam::monotonic_ns(), since });
        }
    }

    /// Something has happened to it, nobody knows what.
    pub(crate) fn untell(&self) {
        let mut told = lock(&self.told);
        match &mut *told {
            // Who has it open when it is removed is told that still.
            Some(told) if self.kind() != Kind::File => (told.at_ns, told.since) = (UNTOLD, None),
            _ => *told = None,
        }
    }

    /// What was told of a directory, if that was within this time, and for how long it still will have been: with each name that is
    /// made or taken away by this file system it is told anew.
    pub fn told_within(&self, span: Duration) -> Option<(Attributes, Duration)> {
        if self.kind() != Kind::Directory {
            return None;
        }
        let (attributes, at_ns) = lock(&self.told).as_ref().map(|told| (told.attributes, told.at_ns))?;
        if at_ns == UNTOLD {
            return None;
        }
        let age = Duration::from_nanos(u64::try_from(seam::monotonic_ns() - at_ns).ok()?);
        span.checked_sub(age).filter(|left| !left.is_zero()).map(|left| (attributes, left))
    }

    /// What was told of it within this time, whatever has become of it since.
    pub fn told_before(&self, span: Duration) -> Option<Attributes> {
        let told = lock(&self.told);
        let age = |told: &&Told| u64::try_from(seam::monotonic_ns() - told.at_ns).map(Duration::from_nanos);
        told.as_ref().filter(|told| age(told).is_ok_and(|age| age <= span)).map(|told| told.attributes)
    }

    /// What is left of a directory, a pipe or a link that somebody has open and that has been removed: what was told of it last, without names.
    pub fn told_at_the_end(&self) -> Option<Attributes> {
        let told = self.told_before(Duration::MAX).filter(|_| self.kind() != Kind::File);
        told.map(|told| Attributes { links: 0, ..told })
    }

    /// The same for who may have it open, or be about to look what stands for its name: of a link only where it was removed here. Others may have replaced it.
    pub fn told_if_removed(&self) -> Option<Attributes> {
        let is_left = self.kind() != Kind::Symlink || self.removed.load(Ordering::Relaxed);
        self.told_at_the_end().filter(|_| is_left)
    }

    /// Changes what is left of it, if it was removed here: nobody else sees that. Where others have removed it, or given its name to something else, that may be what
    /// is meant.
    pub(crate) fn change_at_the_end(&self, change: &Change) -> Option<Attributes> {
        let mut told = lock(&self.told);
        let told = told.as_mut().filter(|_| self.removed.load(Ordering::Relaxed))?;
        let (a, now_ns) = (&mut told.attributes, seam::now_ns());
        a.mode = change.mode.map_or(a.mode, |mode| mode & 0o7777);
        (a.uid, a.gid) = (change.uid.unwrap_or(a.uid), change.gid.unwrap_or(a.gid));
        a.mtime_ns = change.mtime.map_or(a.mtime_ns, |time| time.ns(now_ns));
        a.atime_ns = change.atime.map_or(a.atime_ns, |time| time.ns(now_ns));
        (a.ctime_ns, a.links) = (now_ns, 0);
        Some(*a)
    }

    /// What was told of it, if that still holds.
    pub fn told_still(&self) -> Option<Attributes> {
        if self.is_open() { None } else { self.told_as_it_is() }
    }

    /// The same, where the store knows all that was written here: as long as its bytes lie at a target and anybody may write them it counts as being changed.
    pub(crate) fn told_as_it_is(&self) -> Option<Attributes> {
        let told = lock(&self.told).as_ref().map(|told| (told.attributes, told.since.clone()));
        let (attributes, since) = told?;
        self.file_system().holds(&since?, &[self.itself()]).then_some(attributes)
    }
}
