//! The targets of the store, their states, and the patterns in which collections lie on them.
//!
//! A pattern is written down before anything lies in it, in a commit of its own, and never changes: whoever knows it need not
//! ask again.

mod choose;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use bytes::Bytes;
use iov_store::{Backend, MetadataStore, Room, Spread, Txn, seam};
use iov_types::{Capability, Error, Health, Layout, ObjectId, Pattern, Place, Reach, Result, StoreMap, Target, Uuid};
use iov_wire::Wire;

use crate::keys;

use choose::LEAST_CHUNK;
pub(crate) use choose::Wish;

/// The targets that a catalog begins with.
pub struct Fleet {
    /// All of them as one; the catalog tells it the patterns.
    pub spread: Spread,
    /// What is known of each. A nil UUID is one that the catalog is to give.
    pub targets: Vec<Target>,
}

/// The numbers of targets of other daemons begin here: below are those of the catalog's own.
pub(crate) const FIRST_ELSEWHERE: u32 = 64;
/// Those of the catalog's own, as one.
pub(crate) const HERE: [u32; 1] = [0];
/// Most targets of a store.
const TARGETS: usize = 4096;
/// Most patterns in one answer.
const PATTERNS: usize = 4096;

/// What the catalog knows of targets.
#[derive(Default)]
pub(crate) struct Map {
    spread: Option<Spread>,
    targets: BTreeMap<u32, Target>,
    patterns: BTreeMap<u32, Vec<u32>>,
    by_targets: HashMap<Vec<u32>, u32>,
    /// What all targets can do, each of it somewhere; none if there is but one.
    together: Option<Capability>,
    /// Whose turn it is where targets take turns.
    turn: u64,
}

/// What targets can do together, as it is told to those who ask for something in the store: each of it somewhere.
pub fn anywhere(targets: &[Target]) -> Option<Capability> {
    let more = |a: Capability, b: &Capability| Capability {
        // The first one's: it is where things are if nobody says anything.
        medium: a.medium,
        durability: a.durability.max(b.durability),
        max_unit: a.max_unit.max(b.max_unit),
        staging: a.staging || b.staging,
        stage_bytes: a.stage_bytes.max(b.stage_bytes),
        once: a.once || b.once,
        bursty: a.bursty || b.bursty,
        targets: a.targets + 1,
        incarnation: a.incarnation,
    };
    let (first, others) = targets.split_first()?;
    let first = Capability { targets: 1, ..first.capability.clone() };
    Some(others.iter().fold(first, |all, target| more(all, &target.capability)))
}

impl Map {
    /// Reads what is written down, brings it together with the targets that there are, and tells the spread.
    pub(crate) fn open(store: &dyn MetadataStore, fleet: Fleet) -> Result<Map> {
        let mut map = Map { spread: Some(fleet.spread.clone()), ..Map::default() };
        for (_, value) in scan(store, keys::TARGET)? {
            let known = Target::decode(&value)?;
            // Until it says something.
            map.targets.insert(known.number, Target { reach: Reach::Offline, ..known });
        }
        for (_, value) in scan(store, keys::PATTERN)? {
            let pattern = Pattern::decode(&value)?;
            if pattern.number == 0 || pattern.targets.is_empty() {
                return Err(Error::corrupt("a pattern of the store has no number, or no targets: check the store"));
            }
            map.learn(pattern);
        }
        for target in fleet.targets {
            map.put(store, target)?;
        }
        Ok(map)
    }

    fn learn(&mut self, pattern: Pattern) {
        if let Some(spread) = &self.spread {
            spread.add_pattern(pattern.number, pattern.targets.clone());
        }
        self.by_targets.insert(pattern.targets.clone(), pattern.number);
        self.patterns.insert(pattern.number, pattern.targets);
    }

    /// A target is there: a new one, or one that is known.
    pub(crate) fn put(&mut self, store: &dyn MetadataStore, mut target: Target) -> Result<Uuid> {
        let known = self.targets.get(&target.number);
        match known {
            Some(known) if !target.uuid.is_nil() && known.uuid != target.uuid => {
                return Err(Error::conflict(format!(
                    "target {} of this store is another one ({}): each has a number of its own",
                    target.number, known.uuid
                )));
            }
            Some(known) => target.uuid = known.uuid,
            None if target.uuid.is_nil() => target.uuid = seam::new_uuid(),
            None => {}
        }
        // What changes from moment to moment is not worth a write.
        let lasting = |t: &Target| Target { free: 0, reach: Reach::Online, ..t.clone() };
        let changes = known.map(lasting) != Some(lasting(&target));
        if changes {
            commit(store, keys::target(target.number), lasting(&target).to_bytes())?;
        }
        let uuid = target.uuid;
        self.targets.insert(target.number, target);
        if changes || self.together.is_none() {
            let all: Vec<Target> = self.targets.values().cloned().collect();
            self.together = anywhere(&all).filter(|_| all.len() > 1);
        }
        Ok(uuid)
    }

    /// A target of another daemon is there; its number, which it gets at the first time.
    pub(crate) fn join(&mut self, store: &dyn MetadataStore, target: Target) -> Result<u32> {
        if target.uuid.is_nil() {
            return Err(Error::invalid("a target has a UUID, which its medium has written down"));
        }
        if target.addresses.is_empty() {
            return Err(Error::invalid("a target of another daemon has an address at which that listens"));
        }
        let known = self.targets.values().find(|known| known.uuid == target.uuid);
        // Whether it is there says whoever hears of it.
        let (reach, free) = known.map_or((Reach::Offline, 0), |known| (known.reach, known.free));
        let known = known.map(|known| known.number);
        if known.is_some_and(|number| number < FIRST_ELSEWHERE) {
            return Err(Error::conflict(
                "a target of the catalog's own daemon has the same UUID: one of them is a copy",
            ));
        }
        if known.is_none() && self.targets.len() >= TARGETS {
            return Err(Error::exhausted(format!("a store has at most {TARGETS} targets")));
        }
        let next = || self.targets.last_key_value().map_or(0, |(last, _)| last + 1).max(FIRST_ELSEWHERE);
        let number = known.unwrap_or_else(next);
        self.put(store, Target { number, reach, free, ..target }).map(|_| number)
    }

    /// Tells the spread the way to a target.
    pub(crate) fn reach_by(&self, number: u32, backend: Arc<dyn Backend>, capability: Capability) {
        if let Some(spread) = &self.spread {
            spread.add_target(number, backend, capability);
        }
    }

    /// Whether anything at this place lies at another daemon.
    pub(crate) fn is_elsewhere(&self, place: Place) -> bool {
        self.elsewhere(place).next().is_some()
    }

    /// The targets of other daemons at a place.
    pub(crate) fn elsewhere(&self, place: Place) -> impl Iterator<Item = u32> + '_ {
        let pattern = if place.is_first() { None } else { self.patterns.get(&place.pattern()) };
        pattern.into_iter().flatten().copied().filter(|number| *number >= FIRST_ELSEWHERE)
    }

    /// The targets that whoever asks at a place waits for: those of other daemons, or else the catalog's own, as one.
    pub(crate) fn waited_for_at(&self, place: Place) -> Vec<u32> {
        let elsewhere: Vec<u32> = self.elsewhere(place).collect();
        if elsewhere.is_empty() { HERE.to_vec() } else { elsewhere }
    }

    /// The same for all objects of a collection.
    pub(crate) fn waited_for_at_object(&self, whole: ObjectId) -> Vec<u32> {
        self.waited_for_at(Place::of(whole).unwrap_or(Place::FIRST))
    }

    /// Whether any target is of another daemon.
    pub(crate) fn has_elsewhere(&self) -> bool {
        self.targets.last_key_value().is_some_and(|(number, _)| *number >= FIRST_ELSEWHERE)
    }

    /// Notes what a target has said of itself.
    pub(crate) fn note(&mut self, number: u32, reach: Reach, space: Option<(u64, u64)>) {
        if let Some(target) = self.targets.get_mut(&number) {
            target.reach = reach;
            if let Some((capacity, free)) = space {
                (target.capacity, target.free) = (capacity, free);
            }
        }
    }

    /// What is told to those who ask for something in the store; `None`: what its first target can do.
    pub(crate) fn together(&self) -> Option<&Capability> {
        self.together.as_ref()
    }

    /// Whether collections lie on anything but the first target.
    pub(crate) fn is_one(&self) -> bool {
        self.targets.len() <= 1
    }

    /// What is told to clients.
    pub(crate) fn tell(&self, from: u32) -> StoreMap {
        let patterns = self.patterns.range(from..).take(PATTERNS);
        let pattern = |(number, targets): (&u32, &Vec<u32>)| Pattern { number: *number, targets: targets.clone() };
        StoreMap { targets: self.targets.values().cloned().collect(), patterns: patterns.map(pattern).collect() }
    }

    /// The number of a pattern; a new one is written down.
    fn pattern(&mut self, store: &dyn MetadataStore, targets: Vec<u32>) -> Result<u32> {
        if let Some(number) = self.by_targets.get(&targets) {
            return Ok(*number);
        }
        let number = self.patterns.last_key_value().map_or(1, |(last, _)| last + 1);
        if number > Place::MAX_PATTERN {
            return Err(Error::exhausted("the store has as many patterns of targets as there are numbers"));
        }
        let pattern = Pattern { number, targets };
        commit(store, keys::pattern(number), pattern.to_bytes())?;
        self.learn(pattern);
        Ok(number)
    }

    /// Fails for a place that was never given to anybody.
    pub(crate) fn check(&self, place: Place) -> Result<()> {
        if place.is_first() || self.patterns.contains_key(&place.pattern()) {
            return Ok(());
        }
        Err(Error::invalid(format!("{} is no place of this store", place.0)))
    }

    /// Whether a collection at this place has such an object on a target.
    pub(crate) fn has(&self, place: Place, object: ObjectId, target: u32) -> bool {
        self.object_on(place, object.collection, target) == Some(object)
    }

    /// The object that a collection at this place has on a target.
    pub(crate) fn object_on(&self, place: Place, collection: Uuid, target: u32) -> Option<ObjectId> {
        if place.is_first() {
            return (target == 0).then_some(ObjectId { collection, slot: 0 });
        }
        let index = self.patterns.get(&place.pattern())?.iter().position(|number| *number == target)?;
        Some(Place::part(collection, index))
    }

    /// The way to a target, where there are several.
    pub(crate) fn backend(&self, number: u32) -> Option<Arc<dyn Backend>> {
        self.spread.as_ref()?.target(number)
    }

    /// The same layout at a place that was chosen before.
    pub(crate) fn stay(&self, layout: Layout, place: Place) -> Result<Layout> {
        self.check(place)?;
        if !place.is_first() && place.chunk() < LEAST_CHUNK {
            return Err(Error::invalid(format!("chunks of {} bytes are none of this store", place.chunk())));
        }
        let (targets, chunk_size) = match self.patterns.get(&place.pattern()) {
            Some(targets) => (targets.len() as u32, place.chunk()),
            None => (layout.targets, layout.chunk_size),
        };
        Ok(Layout { place, targets, chunk_size, ..layout })
    }

    /// What all targets of a place can do; `None`: it is the default, or there is but one target.
    pub(crate) fn capability_at(&self, place: Place) -> Option<Capability> {
        let spread = self.spread.as_ref()?;
        if place.is_first() && self.is_one() { None } else { spread.capability_at(place).ok() }
    }
}

fn scan(store: &dyn MetadataStore, tag: &[u8]) -> Result<Vec<(Bytes, Bytes)>> {
    let (range, mut after, mut all) = (iov_store::KeyRange::prefix(tag), None::<Vec<u8>>, Vec::new());
    loop {
        let page = store.scan(&range, after.as_deref(), PATTERNS)?;
        let Some((last, _)) = page.last() else { return Ok(all) };
        after = Some(last.to_vec());
        all.extend(page.into_iter().map(|(key, record)| (key, record.value)));
    }
}

fn commit(store: &dyn MetadataStore, key: Vec<u8>, value: Vec<u8>) -> Result<()> {
    let txn = Txn { guards: Vec::new(), writes: vec![(key, Some(Bytes::from(value)))] };
    for commit in store.commit_with(vec![txn], Room::Kept)? {
        commit?;
    }
    Ok(())
}

/// A target that is there and well.
pub(crate) fn is_well(target: &Target) -> bool {
    target.reach == Reach::Online && target.health == Health::Good
}

#[cfg(test)]
mod tests;
