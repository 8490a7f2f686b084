//! Facts of records that were looked at lately, so that a stat of them asks no store.

use std::collections::HashMap;

use iov_types::{EntryKind, Stat, State, Uuid};

use crate::{hash::Seeded, record::Facts};

/// Most records whose facts are kept: about 150 MB when all are in use.
const CAPACITY: usize = 1 << 20;

/// What a stat tells of a record, packed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HotFacts {
    ws: Uuid,
    uuid: Uuid,
    ctime_ns: i64,
    mtime_ns: i64,
    atime_ns: i64,
    changed_ns: i64,
    size: u64,
    allocated: u64,
    version: u64,
    revision: u64,
    mode: u32,
    links: u32,
    uid: u32,
    gid: u32,
    kind: EntryKind,
    state: State,
}

impl HotFacts {
    /// The facts of a record that everybody with access may see.
    pub(crate) fn new(ws: Uuid, uuid: Uuid, facts: &Facts) -> HotFacts {
        HotFacts {
            ws,
            uuid,
            ctime_ns: facts.ctime_ns,
            mtime_ns: facts.mtime_ns,
            atime_ns: facts.atime_ns,
            changed_ns: facts.changed(),
            size: facts.size,
            allocated: facts.allocated,
            version: facts.version,
            revision: facts.layout.revision,
            mode: facts.mode,
            links: facts.links,
            uid: facts.uid,
            gid: facts.gid,
            kind: facts.kind,
            state: facts.state,
        }
    }

    /// As a reply, but for the members of a group.
    pub(crate) fn stat(&self) -> Stat {
        let mut stat = Stat::new(self.kind, self.uuid);
        stat.ctime_ns = self.ctime_ns;
        stat.mtime_ns = self.mtime_ns;
        stat.atime_ns = self.atime_ns;
        stat.changed_ns = self.changed_ns;
        stat.revision = self.revision;
        stat.mode = self.mode;
        stat.links = self.links;
        stat.uid = self.uid;
        stat.gid = self.gid;
        if self.kind == EntryKind::Collection {
            stat.state = Some(self.state);
            stat.bytes = self.size;
            stat.allocated = self.allocated;
            stat.version = self.version;
        }
        stat
    }
}

/// The facts that are kept; the oldest make room for new ones.
#[derive(Default, Debug)]
pub(crate) struct Hot {
    places: HashMap<Uuid, u32, Seeded>,
    facts: Vec<HotFacts>,
    free: Vec<u32>,
    /// The place to overwrite next, once all are taken.
    hand: usize,
}

impl Hot {
    /// What is kept of a record.
    pub(crate) fn get(&self, ws: Uuid, uuid: Uuid) -> Option<HotFacts> {
        let facts = self.facts[*self.places.get(&uuid)? as usize];
        (facts.ws == ws).then_some(facts)
    }

    /// Keeps facts.
    pub(crate) fn learn(&mut self, facts: HotFacts) {
        self.learn_within(facts, CAPACITY);
    }

    fn learn_within(&mut self, facts: HotFacts, capacity: usize) {
        if let Some(place) = self.places.get(&facts.uuid) {
            self.facts[*place as usize] = facts;
            return;
        }
        let place = match self.free.pop() {
            Some(place) => place as usize,
            None if self.facts.len() < capacity => {
                self.facts.push(facts);
                self.facts.len() - 1
            }
            None => {
                self.hand = (self.hand + 1) % self.facts.len();
                self.places.remove(&self.facts[self.hand].uuid);
                self.hand
            }
        };
        self.facts[place] = facts;
        self.places.insert(facts.uuid, place as u32);
    }

    /// Forgets a record that was changed.
    pub(crate) fn forget(&mut self, uuid: Uuid) {
        if let Some(place) = self.places.remove(&uuid) {
            self.free.push(place);
        }
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        *self = Hot::default();
    }
}

#[cfg(test)]
mod tests;
