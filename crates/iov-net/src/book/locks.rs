//! The locks that a session's daemon has confirmed (O11), to be presented to the next one.

use std::collections::{BTreeMap, HashMap};

use iov_types::{
    Range, Uuid,
    catalog::{LockSpec, PresentedLock},
};

/// How a stretch is locked: alone or not, and for how long a dead owner keeps it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct How {
    exclusive: bool,
    lease_ns: i64,
}

/// What one owner has locked of one collection: stretches by their first byte, apart from each other.
#[derive(Default)]
struct Stretches(BTreeMap<u64, (u64, How)>);

/// The first byte of a range, and the one behind its last.
fn ends(range: Range) -> (u64, u64) {
    let to = if range.len == 0 { u64::MAX } else { range.offset.saturating_add(range.len) };
    (range.offset, to)
}

impl Stretches {
    /// Takes a range out; what was locked of it.
    fn cut(&mut self, (from, to): (u64, u64)) -> Vec<(u64, u64, How)> {
        let overlap = self.0.range(..to).rev().take_while(|(_, (end, _))| *end > from);
        let found: Vec<_> = overlap.map(|(first, (end, how))| (*first, *end, *how)).collect();
        for (first, end, how) in &found {
            self.0.remove(first);
            if *first < from {
                self.0.insert(*first, (from, *how));
            }
            if *end > to {
                self.0.insert(to, (*end, *how));
            }
        }
        found.into_iter().map(|(first, end, how)| (first.max(from), end.min(to), how)).collect()
    }

    /// Locks a range in place of what was locked of it.
    fn put(&mut self, (mut from, mut to): (u64, u64), how: How) {
        self.cut((from, to));
        if let Some((first, (end, before))) = self.0.range(..from).next_back()
            && *end == from
            && *before == how
        {
            from = *first;
        }
        if let Some((end, after)) = self.0.get(&to).copied()
            && after == how
        {
            self.0.remove(&to);
            to = end;
        }
        self.0.insert(from, (to, how));
    }
}

/// All locks of a session, by collection and owner.
#[derive(Default)]
pub(super) struct Held(HashMap<(Uuid, Uuid), BTreeMap<u64, Stretches>>);

impl Held {
    /// A lock was confirmed.
    pub(super) fn locked(&mut self, key: (Uuid, Uuid), lock: &LockSpec) {
        let how = How { exclusive: lock.exclusive, lease_ns: lock.lease_ns };
        self.0.entry(key).or_default().entry(lock.owner).or_default().put(ends(lock.range), how);
    }

    /// What an owner has locked of a range is given back; what that was.
    pub(super) fn unlocked(&mut self, key: (Uuid, Uuid), lock: &LockSpec) -> Vec<LockSpec> {
        let Some(owners) = self.0.get_mut(&key) else { return Vec::new() };
        let Some(stretches) = owners.get_mut(&lock.owner) else { return Vec::new() };
        let cut = stretches.cut(ends(lock.range));
        if stretches.0.is_empty() {
            owners.remove(&lock.owner);
        }
        if owners.is_empty() {
            self.0.remove(&key);
        }
        cut.into_iter().map(|(from, to, how)| spec(lock.owner, from, to, how)).collect()
    }

    /// A collection was closed.
    pub(super) fn closed(&mut self, key: &(Uuid, Uuid)) {
        self.0.remove(key);
    }

    /// Whether there are any of a collection.
    pub(super) fn has(&self, collection: Uuid) -> bool {
        self.0.keys().any(|(_, uuid)| *uuid == collection)
    }

    /// All of them.
    pub(super) fn to_present(&self) -> Vec<PresentedLock> {
        let mut all = Vec::new();
        for ((ws, uuid), owners) in &self.0 {
            for (owner, stretches) in owners {
                let locks = stretches.0.iter().map(|(from, (to, how))| spec(*owner, *from, *to, *how));
                all.extend(locks.map(|lock| PresentedLock { ws: *ws, uuid: *uuid, lock }));
            }
        }
        all
    }
}

fn spec(owner: u64, from: u64, to: u64, how: How) -> LockSpec {
    let len = if to == u64::MAX { 0 } else { to - from };
    let How { exclusive, lease_ns } = how;
    LockSpec { exclusive, try_only: true, range: Range { offset: from, len }, owner, lease_ns }
}
