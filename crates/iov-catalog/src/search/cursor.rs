//! A search under way: one snapshot, one path, one position.

use std::{collections::VecDeque, sync::Arc};

use iov_store::Snapshot;
use iov_types::{
    Clause, EntryKind, Error, Result, Uuid,
    catalog::{Entry, Page, SearchSpec},
    limits,
};

use super::{
    SearchStats,
    collect::{Collected, Match},
    places::Places,
    plan::{Path, Plan},
    query::{Query, Scope, entry_bytes},
    source::{Row, Source, record_key},
    walk::{Candidate, Walk},
};

/// Fewest and most candidates read at once: a first match must come fast, a scan must not cost a call per record.
const BATCH: (usize, usize) = (16, 256);

/// A search under way. Because it reads one snapshot, a record that matched throughout comes exactly once (O5).
pub struct Cursor {
    snapshot: Box<dyn Snapshot>,
    source: Arc<dyn Source>,
    query: Query,
    plan: Plan,
    stage: Stage,
    places: Places,
    /// Results that did not fit the last page.
    ready: VecDeque<Entry>,
    /// Results made or counted so far.
    results: u64,
    stats: SearchStats,
    failed: Option<Error>,
}

enum Stage {
    /// Each match is a result at once.
    Stream(Walk),
    /// All matches first.
    Collect(Walk, Collected),
    /// Then in order, the next one last.
    Sorted(Vec<Match>),
    Finished,
}

/// What one step brought.
#[derive(Debug)]
pub struct Results {
    /// Matches; there may be none although the search is not done.
    pub entries: Vec<Entry>,
    /// The number of matches, once a search that counts is done.
    pub count: Option<u64>,
    /// Whether that was all.
    pub done: bool,
}

impl Results {
    /// As a page, of which `cursor` is the rest.
    pub fn into_page(self, cursor: Uuid) -> Page {
        Page { entries: self.entries, cursor: (!self.done).then_some(cursor), count: self.count }
    }
}

impl Cursor {
    /// Reads and checks what is asked for, and chooses the path. `INVALID`: the detail has the position. `NOTFOUND`: the
    /// group to search.
    pub fn start(snapshot: Box<dyn Snapshot>, source: Arc<dyn Source>, spec: &SearchSpec) -> Result<Cursor> {
        let query = Query::new(spec)?;
        if let Scope::Group(group) | Scope::Below(group) = query.scope
            && !group.is_nil()
        {
            check_group(&*source, &*snapshot, group)?;
        }
        let mut stats = SearchStats::default();
        let plan = Plan::choose(&query, &*source, &*snapshot, &mut stats)?;
        let walk = Walk::new(&plan, &*source);
        let in_order = query.order.as_ref().is_none_or(|o| o.is_by_name() && matches!(plan.path, Path::Names(_)));
        let stage =
            if in_order || query.count { Stage::Stream(walk) } else { Stage::Collect(walk, Collected::default()) };
        Ok(Cursor {
            snapshot,
            source,
            query,
            plan,
            stage,
            places: Places::default(),
            ready: VecDeque::new(),
            results: 0,
            stats,
            failed: None,
        })
    }

    /// Up to `page` results. Looks at about `budget` keys at most: a caller with a deadline asks again if there is no
    /// result yet. An error is final.
    pub fn next(&mut self, page: usize, budget: u64) -> Result<Results> {
        if let Some(e) = &self.failed {
            return Err(e.clone());
        }
        let results = self.fill(page.clamp(1, limits::PAGE_ENTRIES), budget);
        let results = results.and_then(|results| self.source.check().map(|()| results));
        self.failed = results.as_ref().err().cloned();
        results
    }

    /// What it has cost so far.
    pub fn stats(&self) -> &SearchStats {
        &self.stats
    }

    /// How it finds its matches, for people.
    pub fn explain(&self) -> String {
        let mut text = self.plan.to_string();
        if let Some(predicate) = &self.query.predicate {
            text.push_str(&format!("; check {predicate}"));
        }
        if let (Some(order), false) = (&self.query.order, self.query.count) {
            let how = if matches!(self.stage, Stage::Stream(_)) { "already sorted by" } else { "sort by" };
            text.push_str(&format!("; {how} {order}"));
        }
        if self.query.limit != u64::MAX {
            text.push_str(&format!("; at most {}", self.query.limit));
        }
        text
    }

    fn fill(&mut self, page: usize, budget: u64) -> Result<Results> {
        let stop = self.stats.keys().saturating_add(budget.max(1));
        let (mut entries, mut bytes) = (Vec::new(), 0);
        loop {
            while entries.len() < page
                && bytes < limits::PAGE_BYTES
                && let Some(entry) = self.ready.pop_front()
            {
                bytes += entry_bytes(&entry);
                entries.push(entry);
            }
            let done = self.ready.is_empty() && matches!(self.stage, Stage::Finished);
            let full = entries.len() == page || bytes >= limits::PAGE_BYTES;
            if done || full || self.stats.keys() >= stop {
                let count = (done && self.query.count).then_some(self.results);
                return Ok(Results { entries, count, done });
            }
            self.step(page - entries.len())?;
        }
    }

    /// Some more results, or a stage further.
    fn step(&mut self, wanted: usize) -> Result<()> {
        let (source, snapshot) = (self.source.clone(), &*self.snapshot);
        let candidates = match &mut self.stage {
            Stage::Finished => return Ok(()),
            Stage::Sorted(matches) => {
                let rest = matches.len().saturating_sub(wanted.min(BATCH.1));
                let next: Vec<Match> = matches.drain(rest..).rev().collect();
                return self.read_again(&next);
            }
            Stage::Stream(walk) => {
                let wanted = if self.query.count { BATCH.1 } else { wanted };
                let left = usize::try_from(self.query.limit - self.results).unwrap_or(usize::MAX);
                walk.next(&*source, snapshot, wanted.min(left).clamp(BATCH.0, BATCH.1), &mut self.stats)?
            }
            Stage::Collect(walk, _) => walk.next(&*source, snapshot, BATCH.1, &mut self.stats)?,
        };
        if candidates.is_empty() {
            self.stage = match std::mem::replace(&mut self.stage, Stage::Finished) {
                Stage::Collect(_, collected) => Stage::Sorted(collected.into_reversed()),
                _ => Stage::Finished,
            };
            return Ok(());
        }
        let by_name = matches!(self.stage, Stage::Stream(_)) && candidates.iter().all(|c| c.place.is_some());
        if by_name && self.query.needs_no_record() && !source.hides_names() {
            return self.take_names(candidates);
        }
        self.take_records(candidates)
    }

    fn take_names(&mut self, candidates: Vec<Candidate>) -> Result<()> {
        for candidate in candidates {
            let (group, name) = candidate.place.unzip();
            let entry = Entry {
                kind: candidate.kind.unwrap_or(EntryKind::Collection),
                uuid: candidate.uuid,
                group: group.unwrap_or(Uuid::NIL),
                name,
                metadata: None,
            };
            if !self.add(|_| entry) {
                break;
            }
        }
        Ok(())
    }

    fn take_records(&mut self, mut candidates: Vec<Candidate>) -> Result<()> {
        let source = self.source.clone();
        let missing: Vec<Vec<u8>> =
            candidates.iter().filter(|c| c.record.is_none()).map(|c| record_key(&*source, c.uuid)).collect();
        if !missing.is_empty() {
            let keys: Vec<&[u8]> = missing.iter().map(|k| &k[..]).collect();
            let records = self.snapshot.get(&keys)?;
            for (candidate, record) in candidates.iter_mut().filter(|c| c.record.is_none()).zip(records) {
                candidate.record = record;
            }
        }
        for candidate in candidates {
            let record = candidate.record.as_ref().ok_or_else(|| lost(candidate.uuid))?;
            self.stats.records += 1;
            let Some(found) = source.decode(candidate.uuid, record)? else { continue };
            let places = self.places.of(&self.query, &candidate, &*found, &*source, &*self.snapshot)?;
            for place in places {
                if let (Stage::Collect(_, collected), Some(order)) = (&mut self.stage, &self.query.order) {
                    let sort_key = order.sort_key(&Row { found: &*found, place: place.as_ref() });
                    collected.push(Match { sort_key, uuid: candidate.uuid, place }, self.query.limit)?;
                    self.stats.matches += 1;
                } else if !self.add(|query| query.entry(candidate.uuid, &*found, place.as_ref())) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Sorted matches as results.
    fn read_again(&mut self, matches: &[Match]) -> Result<()> {
        let source = self.source.clone();
        let keys: Vec<Vec<u8>> = matches.iter().map(|m| record_key(&*source, m.uuid)).collect();
        let records = self.snapshot.get(&keys.iter().map(|k| &k[..]).collect::<Vec<_>>())?;
        for (m, record) in matches.iter().zip(records) {
            let record = record.ok_or_else(|| lost(m.uuid))?;
            if let Some(found) = source.decode(m.uuid, &record)? {
                self.ready.push_back(self.query.entry(m.uuid, &*found, m.place.as_ref()));
            }
        }
        if matches!(&self.stage, Stage::Sorted(rest) if rest.is_empty()) {
            self.stage = Stage::Finished;
        }
        Ok(())
    }

    /// Takes a result; false if it was the last that is wanted.
    fn add(&mut self, entry: impl FnOnce(&Query) -> Entry) -> bool {
        self.results += 1;
        self.stats.matches += 1;
        if !self.query.count {
            self.ready.push_back(entry(&self.query));
        }
        if self.results == self.query.limit {
            self.stage = Stage::Finished;
        }
        self.results < self.query.limit
    }
}

fn lost(uuid: Uuid) -> Error {
    Error::corrupt(format!("a name or an index entry of {uuid} has no record: check the store (iov fsck)"))
}

fn check_group(source: &dyn Source, snapshot: &dyn Snapshot, group: Uuid) -> Result<()> {
    let key = record_key(source, group);
    let record = snapshot.get(&[&key])?.pop().flatten();
    let found = record.map(|r| source.decode(group, &r)).transpose()?.flatten();
    match found.map(|f| f.kind()) {
        Some(EntryKind::Group) => Ok(()),
        Some(_) => {
            Err(Error::invalid(format!("{group} is no group: only groups have members")).with_clause(Clause::O3))
        }
        None => Err(Error::not_found(format!("there is no group {group}")).with_clause(Clause::O3)),
    }
}
