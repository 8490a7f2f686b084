//! Under which of its names a record is a match. Each name is looked at by itself: a predicate sees one at a time.

use std::collections::{HashMap, HashSet};

use iov_store::Snapshot;
use iov_types::{Clause, Error, Name, Result, Uuid, limits};

use super::{
    query::{Query, Scope},
    source::{Found, Source, record_key},
    walk::Candidate,
};

/// Answers kept about groups; beyond it they are worked out again.
const CACHED_GROUPS: usize = 1 << 16;

/// What has to be remembered from one candidate to the next.
#[derive(Default)]
pub(super) struct Places {
    /// Records with several names that were returned under one of them.
    seen: HashSet<Uuid>,
    /// Whether a group is the searched one or below it.
    below: HashMap<Uuid, bool>,
}

impl Places {
    /// The names for which a candidate is a result; `[None]` for one without a name.
    pub(super) fn of(
        &mut self,
        query: &Query,
        candidate: &Candidate,
        found: &dyn Found,
        source: &dyn Source,
        snapshot: &dyn Snapshot,
    ) -> Result<Vec<Option<(Uuid, Name)>>> {
        let names = found.names();
        if let Some(place) = &candidate.place {
            let matches = query.matches(found, Some(place));
            // The other names come by themselves, or did already.
            let first = query.names || names.len() <= 1 || matches && self.is_new(candidate.uuid)?;
            return Ok(if matches && first { vec![Some(place.clone())] } else { Vec::new() });
        }
        if names.is_empty() {
            let result = query.scope == Scope::Everything && !query.names && query.matches(found, None);
            return Ok(if result { vec![None] } else { Vec::new() });
        }
        let mut places = Vec::new();
        for place in names {
            let within = match query.scope {
                Scope::Everything => true,
                Scope::Group(group) => place.0 == group,
                Scope::Below(group) => self.is_below(place.0, group, source, snapshot)?,
            };
            if within && query.matches(found, Some(place)) {
                places.push(place);
            }
        }
        if !query.names {
            places = places.into_iter().min().into_iter().collect();
        }
        Ok(places.into_iter().cloned().map(Some).collect())
    }

    fn is_new(&mut self, uuid: Uuid) -> Result<bool> {
        if self.seen.len() == limits::SORTED_RESULTS {
            return Err(Error::too_big(format!(
                "more than {} results with several names are too many to return each once: search for less at a time",
                limits::SORTED_RESULTS
            ))
            .with_clause(Clause::O5));
        }
        Ok(self.seen.insert(uuid))
    }

    /// Whether a group is `top` or below it: upwards from group to group.
    fn is_below(&mut self, group: Uuid, top: Uuid, source: &dyn Source, snapshot: &dyn Snapshot) -> Result<bool> {
        let mut way = Vec::new();
        let mut at = group;
        let below = loop {
            if at == top || top.is_nil() {
                break true;
            }
            if at.is_nil() {
                break false;
            }
            if let Some(known) = self.below.get(&at) {
                break *known;
            }
            if way.len() == limits::GROUP_DEPTH {
                return Err(Error::too_big(format!("groups are nested more than {} deep", limits::GROUP_DEPTH))
                    .with_clause(Clause::O5));
            }
            way.push(at);
            let key = record_key(source, at);
            let record = snapshot.get(&[&key])?.pop().flatten();
            let record = record.ok_or_else(|| Error::corrupt(format!("the group {at} has names but no record")))?;
            match source.decode(at, &record)?.and_then(|found| found.names().first().map(|(parent, _)| *parent)) {
                Some(parent) => at = parent, // a group has one name
                None => break false,         // deleted, and nobody's parent any more
            }
        };
        if self.below.len() + way.len() > CACHED_GROUPS {
            self.below.clear();
        }
        self.below.extend(way.into_iter().map(|group| (group, below)));
        Ok(below)
    }
}
