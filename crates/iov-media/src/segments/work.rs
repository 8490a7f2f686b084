//! What is done ahead of need: segments are made, and space that was used is zeroed.

use std::{
    sync::{Arc, PoisonError, Weak},
    time::Duration,
};

use iov_store::seam;
use iov_types::Result;

use super::{Known, Segments};

/// Most bytes made ahead.
const AHEAD: u64 = 512 << 20;
/// Bytes zeroed at once: others want the memory bus, too.
const STEP: u64 = 4 << 20;
/// How long to sleep without anything to do.
const IDLE: Duration = Duration::from_secs(5);

impl Segments {
    /// How many segments to have ready.
    pub(super) fn ahead(&self) -> usize {
        ((AHEAD.min(self.capacity / 4)) / self.len).max(1) as usize
    }

    /// Starts the thread that works ahead; it ends with the segments.
    pub(crate) fn start(self: &Arc<Segments>) -> Result<()> {
        let segments = Arc::downgrade(self);
        self.lock().works = true;
        let started = seam::spawn("iov-segments", move || {
            run(&segments);
            if let Some(segments) = segments.upgrade() {
                segments.lock().works = false;
                segments.done.notify_all();
            }
        });
        started.map(drop).map_err(|e| {
            self.lock().works = false;
            iov_types::Error::from(e).context("starting the thread that prepares segments")
        })
    }

    /// Ends the thread: from here on it makes no file.
    pub(crate) fn end(&self) {
        let mut inner = self.lock();
        inner.ending = true;
        self.work.notify_all();
        while inner.works {
            inner = self.done.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Does one thing ahead of need; `false`: there is nothing to do.
    pub(super) fn work_once(&self) -> bool {
        self.scrub() || self.prepare()
    }

    /// Zeroes some dirty space.
    fn scrub(&self) -> bool {
        let mut inner = self.lock();
        let found = inner.pools.iter_mut().find_map(|(domain, pool)| Some((*domain, pool.dirty.take_longest(STEP)?)));
        let Some((domain, piece)) = found else { return false };
        let Some(map) = inner.known.get(&piece.segment).map(|k| k.map.clone()) else { return true };
        inner.scrubbing += 1;
        drop(inner);
        map.zero(piece.at, piece.len);
        let mut inner = self.lock();
        inner.scrubbing -= 1;
        inner.pools.entry(domain).or_default().clean.add(piece);
        self.done.notify_all();
        true
    }

    /// Whether the machine has little memory left: what is made ahead then would be what others need.
    fn is_short(&self) -> bool {
        rustix::fs::fstatvfs(&self.folder).is_ok_and(|f| f.f_bavail.saturating_mul(f.f_frsize) < 2 * self.len)
    }

    /// Makes a segment, if there are few ahead.
    fn prepare(&self) -> bool {
        let mut inner = self.lock();
        if inner.spare.len() >= self.ahead() || !self.has_room(&inner) || self.is_short() {
            return false;
        }
        let number = inner.next;
        inner.next += 1;
        inner.making += 1;
        drop(inner);
        let made = self.make(number);
        let mut inner = self.lock();
        inner.making -= 1;
        self.done.notify_all();
        // What cannot be made now may be possible when it is needed, and is an error then.
        let Ok(map) = made else { return false };
        inner.known.insert(number, Known { map, domain: None });
        inner.spare.push(number);
        true
    }
}

fn run(segments: &Weak<Segments>) {
    loop {
        let Some(segments) = segments.upgrade() else { return };
        if segments.lock().ending {
            return;
        }
        if !segments.work_once() {
            let inner = segments.lock();
            if inner.ending {
                return;
            }
            drop(segments.work.wait_timeout(inner, IDLE).unwrap_or_else(PoisonError::into_inner));
        }
    }
}
