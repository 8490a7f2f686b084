//! What lies on targets is compared with what the catalog knows, after an end that was not in order: a crash may have left an
//! object for whose collection no record was written. Reverse, a directory may have come back without something.
//!
//! Both are in order of UUID, so that a page of a target's objects meets each workspace's records of the same stretch. Nothing is
//! held meanwhile. What looks wrong is looked at again later, one by one: it may have been under way.

use std::{collections::HashSet, sync::atomic::Ordering::Relaxed};

use iov_store::{Backend, Bytes, KeyRange, run_all};
use iov_types::{Capability, Kind, ObjectId, ObjectVerb, Priority, Result, Uuid};

use crate::{Service, core::CheckCounts, keys, record::Facts, targets::op};

/// Objects compared at a time.
const PAGE: usize = 1024;

/// Most objects that are looked at again, of each kind; more are counted by a later check.
const SUSPECTS: usize = 65_536;

/// One that is on a target without a record, or has a record and is not there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Suspect {
    target: u32,
    object: ObjectId,
    /// The workspace of its record; nil = it has none.
    ws: Uuid,
}

/// What a check has found. Each kind at most 65,536 times.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Checked {
    /// Objects on targets that were compared.
    pub objects: u64,
    /// Empty ones of no collection, which were removed.
    pub removed: u64,
    /// Others of no collection, on their targets, and their bytes. They are left where they are: the catalog may be an old copy.
    pub unknown: Vec<(u32, ObjectId, u64)>,
    /// Collections that have bytes according to their records, and lack an object: target, workspace, collection.
    pub missing: Vec<(u32, Uuid, Uuid)>,
    /// Targets that could not be asked.
    pub unasked: Vec<u32>,
}

impl Service {
    /// Whether the catalog before this one ended without order, so that there is something to check.
    pub fn needs_check(&self) -> bool {
        self.core.crashed().last().is_some_and(|last| last + 1 == self.core.incarnation())
    }

    /// Compares all targets with the catalog, in the calling thread. `pause` is called twice: before the first look, and before
    /// what looked wrong is looked at again; it should let some seconds pass, so that what was under way is over. If it, or
    /// `stop` now and then, says so the check ends early, with `None`.
    pub fn check(&self, pause: &dyn Fn() -> bool, stop: &dyn Fn() -> bool) -> Option<Checked> {
        if pause() {
            return None;
        }
        let mut checked = Checked::default();
        let mut suspects = Vec::new();
        for target in self.numbers() {
            match self.compare(target, &mut checked, &mut suspects, stop) {
                Ok(true) => {}
                Ok(false) => return None,
                Err(_) => checked.unasked.push(target),
            }
        }
        if !suspects.is_empty() && pause() {
            return None;
        }
        for suspect in suspects {
            if stop() {
                return None;
            }
            // What cannot be asked now is no finding.
            let _ = self.look_again(suspect, &mut checked);
        }
        let CheckCounts { objects, unknown, missing } = &self.core.checked;
        objects.store(checked.objects, Relaxed);
        unknown.store(checked.unknown.len() as u64, Relaxed);
        missing.store(checked.missing.len() as u64, Relaxed);
        Some(checked)
    }

    fn numbers(&self) -> Vec<u32> {
        let map = self.core.map();
        if map.is_one() { vec![0] } else { map.tell(0).targets.iter().map(|target| target.number).collect() }
    }

    fn with_target<T>(&self, target: u32, work: impl FnOnce(&dyn Backend) -> T) -> T {
        let backend = self.core.map().backend(target);
        match &backend {
            Some(backend) => work(&**backend),
            None => work(self.core.targets().backend()),
        }
    }

    fn ask_target(&self, target: u32, object: ObjectId, verb: ObjectVerb) -> Result<iov_types::Evidence> {
        let (ask, cx) = ((op(object, verb, 0), Bytes::None), self.own_cx(Uuid::NIL).at(Priority::Background));
        self.with_target(target, |backend| run_all(backend, &cx, vec![ask])).swap_remove(0).0
    }

    /// Whether a target's list tells only what is there, and not what batches have staged for what is to be.
    fn lists_exactly(&self, target: u32) -> bool {
        let medium = self.with_target(target, |backend| backend.capability().medium);
        [Capability::FILES, Capability::SHARED_MEMORY].contains(&medium)
    }

    /// Compares one target; `false`: it was stopped.
    fn compare(
        &self,
        target: u32,
        checked: &mut Checked,
        found: &mut Vec<Suspect>,
        stop: &dyn Fn() -> bool,
    ) -> Result<bool> {
        let mut after: Option<ObjectId> = None;
        let (mut unknown, mut missing) = (0, 0);
        loop {
            if stop() {
                return Ok(false);
            }
            let list = ObjectVerb::List { after, max: PAGE };
            let page = self.ask_target(target, ObjectId { collection: Uuid::NIL, slot: 0 }, list)?.objects;
            checked.objects += page.len() as u64;
            let last = page.last().copied();
            let (from, to) = (after.map(|id| id.collection), last.map(|id| id.collection));
            let mut known = HashSet::new();
            let there: HashSet<ObjectId> = page.iter().copied().collect();
            self.records_between(from, to, &mut |ws, uuid, facts| {
                known.insert(uuid);
                if facts.size == 0 || facts.inline || facts.deleted {
                    return;
                }
                let Some(object) = self.core.map().object_on(facts.layout.place, uuid, target) else { return };
                if !there.contains(&object) && missing < SUSPECTS {
                    missing += 1;
                    found.push(Suspect { target, object, ws });
                }
            })?;
            // What was made since this catalog began may have its record still to come, and be staged until then.
            let old =
                |object: &ObjectId| object.collection.unix_ms() < self.began_ms || object.collection.version() != 7;
            let unknown_there = page.into_iter().filter(|object| !known.contains(&object.collection));
            for object in unknown_there.filter(old) {
                if unknown < SUSPECTS {
                    unknown += 1;
                    found.push(Suspect { target, object, ws: Uuid::NIL });
                }
            }
            if last.is_none() {
                return Ok(true);
            }
            after = last;
        }
    }

    /// The records of all workspaces behind a UUID, up to another.
    fn records_between(
        &self,
        from: Option<Uuid>,
        to: Option<Uuid>,
        each: &mut dyn FnMut(Uuid, Uuid, &Facts),
    ) -> Result<()> {
        let workspaces: Vec<Uuid> = self.core.shared().workspaces.uuids().collect();
        for ws in workspaces {
            let all = KeyRange::prefix(&keys::records(ws));
            let end = to.map(|to| [&keys::record(ws, to)[..], &[0]].concat());
            let range = KeyRange { from: all.from, to: end.or(all.to) };
            let mut after = from.map(|from| keys::record(ws, from).to_vec());
            loop {
                let page = self.core.store().scan(&range, after.as_deref(), PAGE)?;
                let Some((last, _)) = page.last() else { break };
                after = Some(last.to_vec());
                for (key, stored) in &page {
                    each(ws, keys::uuid_at(key, 17)?, &Facts::parse(&stored.value)?);
                }
            }
        }
        Ok(())
    }

    fn look_again(&self, suspect: Suspect, checked: &mut Checked) -> Result<()> {
        let Suspect { target, object, ws } = suspect;
        let uuid = object.collection;
        let found = match self.ask_target(target, object, ObjectVerb::Stat) {
            Ok(found) if found.mtime_ns == 0 && found.size == 0 && !ws.is_nil() => None,
            Ok(found) => Some(found),
            Err(e) if e.kind() == Kind::NotFound => None,
            Err(e) => return Err(e),
        };
        if !ws.is_nil() {
            let key = keys::record(ws, uuid);
            let facts = self.core.store().get(&[&key])?.pop().flatten().map(|r| Facts::parse(&r.value)).transpose()?;
            let lacks = facts.is_some_and(|facts| facts.size > 0 && !facts.inline && !facts.deleted);
            if found.is_none() && lacks {
                checked.missing.push((target, ws, uuid));
            }
            return Ok(());
        }
        let Some(found) = found else { return Ok(()) };
        if self.is_known(uuid)? {
            return Ok(());
        }
        if found.size == 0 {
            if !self.lists_exactly(target) {
                return Ok(());
            }
            self.ask_target(target, object, ObjectVerb::Remove)?;
            checked.removed += 1;
        } else {
            checked.unknown.push((target, object, found.size));
        }
        Ok(())
    }

    /// Whether any record speaks for a collection, or its removal is on its way.
    fn is_known(&self, uuid: Uuid) -> Result<bool> {
        let (workspaces, removed) = {
            let shared = self.core.shared();
            (
                shared.workspaces.uuids().collect::<Vec<_>>(),
                shared.is_being_removed(uuid) || shared.opens.get(uuid).is_some(),
            )
        };
        let records: Vec<_> = workspaces.into_iter().map(|ws| keys::record(ws, uuid)).collect();
        let entry = keys::removed(uuid);
        let wanted: Vec<&[u8]> = records.iter().map(|key| &key[..]).chain([&entry[..]]).collect();
        Ok(removed || self.core.store().get(&wanted)?.iter().any(Option::is_some))
    }
}
