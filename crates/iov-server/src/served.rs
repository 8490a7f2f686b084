//! The targets that a daemon serves, each with its grants and its stages.

use std::sync::{Arc, atomic::AtomicU64};

use iov_store::{Backend, Bytes, OpCx, run_all};
use iov_types::{Demand, Error, ObjectOp, ObjectVerb, Result, Uuid};

use crate::{GrantBook, facts::Facts, stages::Stages};

/// How many bytes a target has room for, and how many are free.
pub type Room = Box<dyn Fn() -> Option<(u64, u64)> + Send + Sync>;

/// A target to be served.
pub struct Target {
    /// Its number in the store.
    pub number: u32,
    /// Its bytes.
    pub target: Arc<dyn Backend>,
    /// Direct access to them.
    pub grants: Arc<dyn GrantBook>,
    /// Whether bytes may be moved past this process, where the medium allows it.
    pub direct: bool,
    /// How much room there is; `None`: that has no bounds of its own.
    pub room: Room,
}

/// A target that is served.
pub(crate) struct Served {
    pub(crate) number: u32,
    pub(crate) target: Arc<dyn Backend>,
    pub(crate) grants: Arc<dyn GrantBook>,
    pub(crate) direct: bool,
    pub(crate) stages: Stages,
    /// Operations on its objects that came over sockets, and the bytes that they moved.
    pub(crate) operations: AtomicU64,
    pub(crate) bytes: AtomicU64,
    room: Room,
}

impl Served {
    /// Those stages of it that an earlier daemon had are its sessions', which may come back; batches of `unfinished` are the
    /// catalog's.
    pub(crate) fn new(target: Target, unfinished: &[Uuid]) -> Served {
        let Target { number, target, grants, direct, room } = target;
        let earlier = grants.stages().into_iter().filter(|stage| !unfinished.contains(stage));
        let stages = Stages::with_earlier(earlier, unfinished);
        Served { number, target, grants, direct, stages, operations: AtomicU64::new(0), bytes: AtomicU64::new(0), room }
    }

    /// How many bytes it has room for, and how many are free.
    pub(crate) fn space(&self) -> Option<(u64, u64)> {
        (self.room)()
    }
}

/// Longest that is waited for a medium.
const PATIENCE_NS: i64 = 30_000_000_000;

/// All of them; the first is number 0.
pub(crate) struct AllServed(Vec<Served>);

impl AllServed {
    pub(crate) fn new(targets: Vec<Target>, unfinished: &[Uuid]) -> Result<AllServed> {
        if targets.is_empty() {
            return Err(Error::internal("a daemon without a target"));
        }
        Ok(AllServed(targets.into_iter().map(|target| Served::new(target, unfinished)).collect()))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Served> {
        self.0.iter()
    }

    /// By its place among them.
    pub(crate) fn at(&self, index: usize) -> &Served {
        &self.0[index]
    }

    /// By its number: where it is among them.
    pub(crate) fn find(&self, number: u32) -> Option<usize> {
        self.0.iter().position(|served| served.number == number)
    }

    /// Tells the catalog what there is of them.
    pub(crate) fn note(&self, facts: &Facts) {
        self.iter().for_each(|served| facts.note_target(served.number, served.space()));
    }

    /// Drops what a catalog that was opened before has frozen and not committed.
    pub(crate) fn settle(&self, catalog: Uuid, committed: &[Uuid]) {
        for served in self.iter() {
            let op =
                |object, stage| ObjectOp { object, verb: ObjectVerb::Discard { stage }, demand: Demand::default() };
            let undecided = served.stages.undecided(catalog, committed);
            let stages: Vec<Uuid> = undecided.iter().map(|(stage, _)| *stage).collect();
            let all = undecided.into_iter();
            let ops = all.flat_map(|(stage, objects)| objects.into_iter().map(move |object| op(object, stage)));
            // What cannot be dropped now is found at the next start.
            drop(run_all(&*served.target, &OpCx::own(PATIENCE_NS), ops.map(|op| (op, Bytes::None)).collect()));
            stages.iter().for_each(|stage| served.grants.abandon_stage(*stage));
            served.stages.were_dropped(stages.into_iter());
        }
    }

    /// A batch has been decided: its stages are nobody's where they are gone.
    pub(crate) fn leave(&self, stage: Uuid) {
        self.iter().for_each(|served| served.stages.leave(stage, &*served.grants));
    }

    pub(crate) fn awaits_clients(&self) -> bool {
        self.iter().any(|served| served.grants.awaits_clients())
    }

    pub(crate) fn end_earlier(&self) {
        for served in self.iter() {
            served.stages.end_earlier(&*served.grants);
            served.grants.end_waiting();
        }
    }

    pub(crate) fn came_back(&self, session: Uuid) {
        self.iter().for_each(|served| served.grants.came_back(session));
    }

    pub(crate) fn has_stages(&self, session: Uuid) -> bool {
        self.iter().any(|served| served.stages.has_any(session))
    }

    pub(crate) fn end_session(&self, session: Uuid) {
        for served in self.iter() {
            served.stages.end_session(session, &*served.grants);
            served.grants.end_session(session);
        }
    }

    pub(crate) fn sweep(&self) {
        self.iter().for_each(|served| served.grants.sweep());
    }
}
