//! Along a path, step by step: candidates from keys, in batches.

use std::collections::VecDeque;

use iov_store::{KeyRange, Record, Snapshot};
use iov_types::{Clause, EntryKind, Error, Name, Result, Uuid, limits};

use super::{
    SearchStats,
    plan::{Path, Plan},
    source::{self, Source},
};
use crate::index;

/// A record that may match.
pub(super) struct Candidate {
    pub(super) uuid: Uuid,
    /// The name it was met under.
    pub(super) place: Option<(Uuid, Name)>,
    /// What its name entry says it is.
    pub(super) kind: Option<EntryKind>,
    /// The record, where the path runs over records.
    pub(super) record: Option<Record>,
}

/// A position on a path.
pub(super) enum Walk {
    /// Through ranges of keys.
    Keys { path: Path, prefix_len: usize, ranges: VecDeque<KeyRange>, after: Option<Vec<u8>> },
    /// Down a tree of groups: those that are entered but not finished, the deepest last.
    Tree { frames: Vec<Frame> },
}

/// A group on the way down, and which of its names comes next.
pub(super) struct Frame {
    group: Uuid,
    range: KeyRange,
    prefix_len: usize,
    after: Option<Vec<u8>>,
    ahead: VecDeque<Candidate>,
    finished: bool,
}

impl Walk {
    pub(super) fn new(plan: &Plan, source: &dyn Source) -> Walk {
        let prefix_len = match &plan.path {
            Path::Tree(group) => return Walk::Tree { frames: Frame::new(source, *group).into_iter().collect() },
            Path::Names(group) => source.name_prefix(*group).map_or(0, |p| p.len()),
            Path::Records => source.record_prefix().len(),
            Path::Index(_) => 0,
        };
        Walk::Keys { path: plan.path.clone(), prefix_len, ranges: plan.ranges.clone().into(), after: None }
    }

    /// Up to about `limit` candidates; none is the end.
    pub(super) fn next(
        &mut self,
        source: &dyn Source,
        snapshot: &dyn Snapshot,
        limit: usize,
        stats: &mut SearchStats,
    ) -> Result<Vec<Candidate>> {
        match self {
            Walk::Tree { frames } => down(frames, source, snapshot, limit, stats),
            Walk::Keys { path, prefix_len, ranges, after } => {
                let mut out = Vec::new();
                while out.len() < limit
                    && let Some(range) = ranges.front()
                {
                    let wanted = limit - out.len();
                    let pairs = snapshot.scan(range, after.as_deref(), wanted)?;
                    let more = pairs.len() == wanted;
                    *after = if more { pairs.last().map(|(key, _)| key.to_vec()) } else { None };
                    for (key, record) in pairs {
                        out.push(candidate(path, *prefix_len, &key, record, stats)?);
                    }
                    if !more {
                        ranges.pop_front();
                    }
                }
                Ok(out)
            }
        }
    }
}

fn candidate(path: &Path, prefix_len: usize, key: &[u8], record: Record, stats: &mut SearchStats) -> Result<Candidate> {
    let rest = key.get(prefix_len..).unwrap_or_default();
    match path {
        Path::Index(_) => {
            stats.index_entries += 1;
            Ok(Candidate { uuid: index::uuid_of(rest)?, place: None, kind: None, record: None })
        }
        Path::Records => {
            let uuid = rest.try_into().map_err(|_| Error::corrupt("the key of a record does not end with a UUID"))?;
            Ok(Candidate { uuid: Uuid(uuid), place: None, kind: None, record: Some(record) })
        }
        Path::Names(group) | Path::Tree(group) => {
            stats.names += 1;
            let (uuid, kind) = source::named(&record.value)?;
            let name = Name::new(rest).map_err(|e| Error::corrupt(format!("the entry of a name: {}", e.detail())))?;
            Ok(Candidate { uuid, place: Some((*group, name)), kind: Some(kind), record: None })
        }
    }
}

/// Each member, and behind a group what is in it. Without recursion: nobody bounds how deep groups are nested.
fn down(
    frames: &mut Vec<Frame>,
    source: &dyn Source,
    snapshot: &dyn Snapshot,
    limit: usize,
    stats: &mut SearchStats,
) -> Result<Vec<Candidate>> {
    let mut out = Vec::new();
    while out.len() < limit
        && let Some(frame) = frames.last_mut()
    {
        let Some(candidate) = frame.next(snapshot, limit, stats)? else {
            frames.pop();
            continue;
        };
        if candidate.kind == Some(EntryKind::Group) {
            if frames.len() == limits::GROUP_DEPTH {
                return Err(Error::too_big(format!(
                    "groups are nested more than {} deep below the searched one: search a deeper group",
                    limits::GROUP_DEPTH
                ))
                .with_clause(Clause::O5));
            }
            frames.extend(Frame::new(source, candidate.uuid));
        }
        out.push(candidate);
    }
    Ok(out)
}

impl Frame {
    fn new(source: &dyn Source, group: Uuid) -> Option<Frame> {
        let prefix = source.name_prefix(group)?;
        Some(Frame {
            group,
            range: KeyRange::prefix(&prefix),
            prefix_len: prefix.len(),
            after: None,
            ahead: VecDeque::new(),
            finished: false,
        })
    }

    fn next(&mut self, snapshot: &dyn Snapshot, limit: usize, stats: &mut SearchStats) -> Result<Option<Candidate>> {
        if self.ahead.is_empty() && !self.finished {
            let pairs = snapshot.scan(&self.range, self.after.as_deref(), limit)?;
            self.finished = pairs.len() < limit;
            self.after = pairs.last().map(|(key, _)| key.to_vec());
            for (key, record) in pairs {
                self.ahead.push_back(candidate(&Path::Tree(self.group), self.prefix_len, &key, record, stats)?);
            }
        }
        Ok(self.ahead.pop_front())
    }
}
