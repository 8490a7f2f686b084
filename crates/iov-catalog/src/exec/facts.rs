//! Length and times of the bytes: from the record, or from the target while somebody may be writing (C1, C7).

use iov_types::{Capability, Clause, Error, Evidence, Kind, ObjectId, Outcome, Place, Result, State, Uuid};

use super::{Exec, records::missing};
use crate::{
    core::Core,
    keys,
    record::{Facts, Record, written_at},
};

/// What is known of the bytes of a collection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Live {
    pub(crate) size: u64,
    pub(crate) allocated: u64,
    pub(crate) mtime_ns: i64,
    /// When the bytes were last changed, whatever was set.
    pub(crate) changed_ns: i64,
    pub(crate) version: u64,
}

impl Live {
    /// What a record says.
    pub(crate) fn of(record: &Record) -> Live {
        Live {
            size: record.size,
            allocated: record.allocated,
            mtime_ns: record.mtime_ns,
            changed_ns: written_at(record.mtime_base_ns, record.mtime_ns),
            version: record.version,
        }
    }

    /// What a target says, in front of what is recorded; `mtime_ns` is its time, corrected by what was set.
    pub(crate) fn with(self, found: &Evidence, mtime_ns: i64) -> Live {
        Live {
            size: found.size,
            allocated: found.allocated,
            mtime_ns: if found.mtime_ns == 0 { self.mtime_ns } else { mtime_ns },
            changed_ns: self.changed_ns.max(written_at(found.mtime_ns, mtime_ns)),
            version: self.version.max(found.version),
        }
    }
}

/// Refuses to take a collection for empty whose object is gone: that is made with the first bytes, and stays as long as the
/// collection.
pub(crate) fn check_there(core: &Core, recorded: &Recorded, found: &Evidence) -> Result<()> {
    if found.size != 0 || found.mtime_ns != 0 {
        return Ok(());
    }
    let (targets, size) = (&core.capability_at(recorded.place), recorded.size);
    let in_memory = targets.is_memory();
    // Nobody could write down how long it was.
    let unknown = in_memory
        && core.has_crashed(recorded.opened_in)
        && u64::try_from(recorded.ctime_ns).is_ok_and(|ctime| ctime < targets.incarnation);
    if size == 0 && !unknown {
        return Ok(());
    }
    let what = if size > 0 { format!("{size} bytes") } else { "bytes".to_owned() };
    let went = match targets.medium {
        Capability::SHARED_MEMORY => {
            "in shared memory, which has gone since, with the machine's restart or with iov down"
        }
        Capability::HEAP => "in the memory of the store's daemon, which has ended since",
        Capability::NULL => "in a store that keeps none, and whose daemon has ended since",
        _ if in_memory => "at a backend that does not keep them for ever",
        medium => {
            let why =
                format!("the collection has {what} on medium {medium}, and they are gone: restore them from a copy");
            return Err(Error::corrupt(why).with_clause(Clause::P2));
        }
    };
    Err(Error::lost(format!("the collection had {what} {went}: delete it, and make it again")).with_clause(Clause::P1))
}

/// What a record tells of an object that should be there.
pub(crate) struct Recorded {
    pub(crate) size: u64,
    pub(crate) ctime_ns: i64,
    pub(crate) opened_in: u64,
    pub(crate) place: Place,
}

impl From<&Facts> for Recorded {
    fn from(facts: &Facts) -> Recorded {
        let Facts { size, ctime_ns, opened_in, .. } = *facts;
        Recorded { size, ctime_ns, opened_in, place: facts.layout.place }
    }
}

impl From<&Record> for Recorded {
    fn from(record: &Record) -> Recorded {
        let Record { size, ctime_ns, opened_in, .. } = *record;
        Recorded { size, ctime_ns, opened_in, place: record.layout.place }
    }
}

/// The same, of a collection that nobody keeps from being removed meanwhile.
pub(crate) fn check_still_there(
    core: &Core,
    ws: Uuid,
    uuid: Uuid,
    recorded: &Recorded,
    found: &Evidence,
) -> Result<()> {
    let Err(lost) = check_there(core, recorded, found) else { return Ok(()) };
    // Records go before objects do.
    match core.store().get(&[&keys::record(ws, uuid)])?.pop().flatten() {
        Some(record) if !Facts::parse(&record.value)?.deleted => Err(lost),
        _ => Err(missing(uuid).with_clause(Clause::O10)),
    }
}

impl Exec<'_> {
    /// What the target says of a collection; one that nobody wrote has no object and is empty.
    pub(crate) fn target_stat(&mut self, object: ObjectId) -> Result<Evidence> {
        match self.core.targets().stat(self.cx, object, self.stage) {
            Err(e) if e.kind() == Kind::NotFound => Ok(Evidence::default()),
            other => other,
        }
    }

    /// What is known of the bytes of a collection: from its target, or of those beside the record from that.
    pub(crate) fn stat_bytes(&mut self, uuid: Uuid, record: &Record) -> Result<Evidence> {
        if !record.inline {
            return self.target_stat(record.whole(uuid));
        }
        Ok(Evidence {
            size: record.size,
            allocated: record.allocated,
            mtime_ns: record.mtime_base_ns,
            version: record.version,
            ..Evidence::default()
        })
    }

    /// Whether the record may be behind the target: somebody has it open for writing, or had when the catalog crashed.
    pub(crate) fn may_be_behind(&self, uuid: Uuid, state: State, opened_in: u64) -> bool {
        state != State::Sealed
            && (self.ahead.was_written(self.op)
                || self.core.has_crashed(opened_in)
                || self.shared().opens.get(uuid).is_some_and(|e| e.may_be_ahead()))
    }

    /// The facts about the bytes as of now; `written`: somebody had them open for writing before the record was read.
    pub(crate) fn live(&mut self, ws: Uuid, uuid: Uuid, facts: &Facts, written: bool) -> Result<Live> {
        let recorded = Live {
            size: facts.size,
            allocated: facts.allocated,
            mtime_ns: facts.mtime_ns,
            changed_ns: written_at(facts.mtime_base_ns, facts.mtime_ns),
            version: facts.version,
        };
        if facts.inline || !(written || self.may_be_behind(uuid, facts.state, facts.opened_in)) {
            return Ok(recorded);
        }
        let found = self.target_stat(facts.layout.place.whole(uuid))?;
        check_still_there(self.core, ws, uuid, &facts.into(), &found)?;
        Ok(recorded.with(&found, facts.mtime(found.mtime_ns)))
    }

    /// Records what a target says. Beyond the quota that fails, and is recorded all the same: the bytes are there. Of bytes
    /// that are lost the record goes on to tell.
    pub(crate) fn record_bytes_of(&mut self, at: usize, record: &mut Record, found: &Evidence) -> Result<()> {
        check_there(self.core, &(&*record).into(), found)?;
        let size = found.size.min(i64::MAX as u64);
        let grown = size as i64 - record.size as i64;
        record.size = size;
        record.allocated = found.allocated;
        if found.mtime_ns != 0 {
            record.mtime_ns = record.mtime(found.mtime_ns);
            record.mtime_base_ns = found.mtime_ns;
        }
        record.version = found.version.max(record.version + 1);
        if grown != 0 {
            self.use_more(at, 0, grown);
        }
        let (used, quota) = (self.workspaces[at].usage.bytes, self.record(at).quota_bytes);
        if grown > 0 && used > quota {
            self.keep_effects();
            return Err(over_quota(used, quota).with_outcome(Outcome::Applied));
        }
        Ok(())
    }
}

/// The error for bytes beyond the quota.
pub(crate) fn over_quota(used: u64, quota: u64) -> Error {
    Error::exhausted(format!(
        "the workspace holds {used} bytes and its quota is {quota}: delete something, or have the quota raised"
    ))
    .with_clause(Clause::O1)
}
