//! The way of a commit: room, guards, log, buffer.

use std::sync::{Arc, MutexGuard, PoisonError, atomic::Ordering};

use bytes::Bytes;
use hashbrown::HashMap;
use iov_store::{Commit, Guard, Room, Txn};
use iov_types::{Error, Kind, Outcome, Result};

use crate::{
    buffer::Buffer,
    engine::{Engine, MAX_SEALED, lock},
    log::{Appender, FRAME_BYTES, Failure, Frame, MARK, Tail},
    tables::KEY_BYTES,
    view::{Parts, View},
};

/// Bytes by which what must go on may exceed a buffer, when it cannot be moved into tables.
const OVER: usize = 4 << 20;

/// The key that a guard is about.
fn key(guard: &Guard) -> &[u8] {
    match guard {
        Guard::Absent(key) | Guard::Present(key) | Guard::Revision(key, _) => key,
    }
}

fn holds(guard: &Guard, revision: Option<u64>) -> bool {
    match guard {
        Guard::Absent(_) => revision.is_none(),
        Guard::Present(_) => revision.is_some(),
        Guard::Revision(_, expected) => revision == Some(*expected),
    }
}

/// What must be wrong with a transaction whatever the store holds.
fn check(txn: &Txn) -> Result<()> {
    let long = txn.writes.iter().any(|(key, _)| key.len() > KEY_BYTES);
    let error = || Error::too_big(format!("a key is longer than {KEY_BYTES} bytes: use a shorter one"));
    if long { Err(error()) } else { Ok(()) }
}

impl Engine {
    /// Applies transactions in order.
    pub(crate) fn commit(&self, txns: &[Txn], room: Room) -> Result<Vec<Commit>> {
        if txns.is_empty() {
            return Ok(Vec::new());
        }
        // After a panic in a commit nobody knows whether the log and the buffer say the same.
        let broken = || Error::internal("a commit panicked");
        let mut log = self.log.lock().map_err(|_| self.fail(broken().with_outcome(Outcome::NotApplied)))?;
        self.check()?;
        self.make_room(&mut log, room)?;
        let first = log.tail.revision + 1;
        let (commits, frame) = judge(&self.view(), txns, first)?;
        if frame.txns() > 0 {
            self.write(&mut log, frame, first, room)?;
            let deletes = txns.iter().flat_map(|txn| &txn.writes).filter(|(_, value)| value.is_none()).count();
            self.deleted.fetch_add(deletes as u64, Ordering::Relaxed);
        }
        Ok(commits)
    }

    /// Writes a frame to the log and makes it visible.
    fn write(&self, log: &mut MutexGuard<'_, Appender>, frame: Frame, first: u64, room: Room) -> Result<()> {
        let mark = if log.marked { 0 } else { MARK };
        let len = (frame.len() + mark) as u64;
        if log.must_look(len) {
            self.look_at_space();
            if room == Room::Free {
                log.leave(self.home(), len, self.needed_for_tables())?;
            }
        }
        self.judge_write(|| log.make_room(self.home(), len, room))?;
        if !log.marked {
            let synced = self.synced.load(Ordering::Acquire);
            self.judge_write(|| log.mark(self.home(), synced, &self.hooks))?;
        }
        let last = first + u64::from(frame.txns()) - 1;
        let tail = Tail { offset: 0, sequence: log.tail.sequence + 1, revision: last };
        let synced = self.synced.load(Ordering::Acquire);
        let (bytes, writes) = frame.finish(tail.sequence, first, synced, log.segment.salt);
        self.judge_write(|| log.append(self.home(), &bytes, tail))?;
        log.segment.wrote(tail.sequence);
        self.committed.store(tail.sequence, Ordering::Release);
        self.shared.counts.log_writes.fetch_add(1, Ordering::Relaxed);
        // Only commits and those who wait for one change the active buffer, and the log is ours.
        let active = self.parts().active.clone();
        active.add(Bytes::from(bytes), &writes, first, last);
        if active.bytes() >= self.buffer_bytes() && self.parts().sealed.len() < MAX_SEALED {
            // The next commit tries again, and says so if it cannot.
            let _ = self.seal(log);
        }
        Ok(())
    }

    fn judge_write(&self, write: impl FnOnce() -> std::result::Result<(), Failure>) -> Result<()> {
        write().map_err(|failure| match failure {
            Failure::Full(e) => e,
            Failure::Broken(e) => self.fail(e),
        })
    }

    /// Sees to it that the active buffer can take a commit.
    fn make_room(&self, log: &mut MutexGuard<'_, Appender>, room: Room) -> Result<()> {
        let Some(over) = self.over() else { return Ok(()) };
        match self.next_buffer(log) {
            // No more than the log has room for when the medium is full. Want of descriptors does not stop it either.
            Err(e) if room != Room::Free && e.kind() == Kind::Exhausted && over < OVER => Ok(()),
            other => other,
        }
    }

    fn next_buffer(&self, log: &mut MutexGuard<'_, Appender>) -> Result<()> {
        let mut progress = lock(&self.progress);
        while self.parts().sealed.len() >= MAX_SEALED {
            if let Some(trouble) = &progress.apply {
                return Err(trouble.clone().context("commits wait for the log to be moved into tables, which fails"));
            }
            self.check()?;
            progress = self.changed.wait(progress).unwrap_or_else(PoisonError::into_inner);
        }
        drop(progress);
        self.seal(log)
    }

    /// Begins a new segment and buffer; the old ones go to the background.
    pub(crate) fn seal(&self, log: &mut MutexGuard<'_, Appender>) -> Result<()> {
        let (generation, synced) = (log.segment.generation + 1, self.synced.load(Ordering::Acquire));
        let new = Appender::create(self.home(), generation, log.tail, synced, &self.hooks)?;
        let old = std::mem::replace(&mut **log, new);
        old.segment.trim();
        lock(&self.syncing).segments.push(log.segment.clone());
        let active = Arc::new(Buffer::new(generation, self.shared.seed.clone(), log.tail.revision));
        self.change_parts(|parts| Parts {
            shared: parts.shared.clone(),
            active,
            sealed: std::iter::once(parts.active.clone()).chain(parts.sealed.iter().cloned()).collect(),
            pin: parts.pin.clone(),
        });
        // Under the lock, so that the thread that looks for work does not miss it.
        drop(lock(&self.progress));
        self.changed.notify_all();
        Ok(())
    }
}

/// Which transactions apply, and the frame of those that do.
fn judge(view: &View, txns: &[Txn], first: u64) -> Result<(Vec<Commit>, Frame)> {
    let keys: Vec<&[u8]> = txns.iter().flat_map(|txn| &txn.guards).map(key).collect();
    // Without guards nothing is read.
    let revisions = if keys.is_empty() { Vec::new() } else { view.revisions(&keys)? };
    // A guard also sees the transactions before its own. That takes following the guarded keys through the call.
    let mut known: HashMap<&[u8], Option<u64>, _> =
        HashMap::with_hasher(foldhash::fast::FixedState::with_seed(view.parts.shared.seed.hash(b"")));
    if txns.len() > 1 {
        known.extend(keys.iter().copied().zip(revisions.iter().copied()));
    }
    let body: usize = txns.iter().map(|txn| Frame::txn_bytes(&txn.writes)).sum();
    if body > FRAME_BYTES {
        return Err(Error::too_big(format!(
            "the transactions take {body} bytes in the log, of {FRAME_BYTES}: commit them in several calls"
        )));
    }
    let mut frame = Frame::with_capacity(body, txns.iter().map(|txn| txn.writes.len()).sum());
    let mut revisions = revisions.into_iter();
    let mut commits = Vec::with_capacity(txns.len());
    for txn in txns {
        // All of them are taken from the list, also behind one that does not hold.
        let broken =
            txn.guards.iter().zip(revisions.by_ref().take(txn.guards.len())).fold(None, |broken, (guard, now)| {
                let now = known.get(key(guard)).copied().unwrap_or(now);
                broken.or((!holds(guard, now)).then_some(guard))
            });
        if let Some(guard) = broken {
            let key = String::from_utf8_lossy(key(guard)).escape_debug().to_string();
            commits.push(Err(Error::conflict(format!("the record {key} was changed meanwhile: read it again"))));
            continue;
        }
        if let Err(e) = check(txn) {
            commits.push(Err(e));
            continue;
        }
        let revision = first + u64::from(frame.txns());
        frame.push(&txn.writes);
        commits.push(Ok(revision));
        if !known.is_empty() {
            for (key, value) in &txn.writes {
                if let Some(now) = known.get_mut(&key[..]) {
                    *now = value.as_ref().map(|_| revision);
                }
            }
        }
    }
    Ok((commits, frame))
}
