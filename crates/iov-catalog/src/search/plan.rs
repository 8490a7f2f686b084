//! How a search finds its matches: by the path with the fewest keys on it.

use iov_store::{KeyRange, Snapshot};
use iov_types::{Result, Uuid, Value};

use super::{
    SearchStats,
    query::{Query, Scope},
    ranges::{self, Ranges, Space, all, are_points, behind},
    source::Source,
};
use crate::{
    index,
    predicate::{Key, Node, Op, SystemKey, Test},
};

/// Keys that are counted on each path before one is chosen. What has fewer is known exactly; among those that have more,
/// the kind of condition decides.
const PROBE: usize = 128;

/// A way to come by candidates. Every match is among them, and each candidate is checked against the whole predicate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Path {
    /// Records, by UUID.
    Records,
    /// Names of one group.
    Names(Uuid),
    /// Names of a group and of all groups below it.
    Tree(Uuid),
    /// Entries of a declared index.
    Index(String),
}

/// The chosen path and the ranges of keys on it, in order.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) path: Path,
    pub(super) ranges: Ranges,
    rank: Rank,
    /// Keys counted, at most [`PROBE`]; `None` = not counted.
    keys: Option<usize>,
    scope: Scope,
}

/// Kinds of conditions, the most selective first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Lookup,
    Equality,
    Range,
    All,
    Exists,
}

impl Plan {
    pub(super) fn choose(
        query: &Query,
        source: &dyn Source,
        snapshot: &dyn Snapshot,
        stats: &mut SearchStats,
    ) -> Result<Plan> {
        let mut plans = candidates(query, source);
        if plans.len() > 1 {
            plans.sort_by_key(|p| p.rank);
            let (mut chosen, mut fewest) = (0, PROBE);
            for (i, plan) in plans.iter_mut().enumerate() {
                // What has as many keys as a better kind of condition is not looked at further.
                let keys = plan.count(snapshot, fewest, stats)?;
                if i == 0 || keys.is_some_and(|keys| keys < fewest) {
                    (chosen, fewest) = (i, keys.unwrap_or(fewest));
                }
                plan.keys = keys;
            }
            plans.swap(0, chosen);
        }
        // `candidates` returns at least the way over everything in scope.
        Ok(plans.into_iter().next().expect("there is always a way over everything"))
    }

    fn new(path: Path, prefix: &[u8], ranges: Option<Ranges>, rank: Rank, scope: Scope) -> Plan {
        let ranges = behind(prefix, &ranges.unwrap_or_else(all));
        Plan { path, ranges, rank, keys: None, scope }
    }

    /// Its keys, as far as `limit`; `None` where they cannot be counted.
    fn count(&self, snapshot: &dyn Snapshot, limit: usize, stats: &mut SearchStats) -> Result<Option<usize>> {
        if matches!(self.path, Path::Tree(_)) {
            return Ok(None);
        }
        let mut keys = 0;
        for range in &self.ranges {
            if keys == limit {
                break;
            }
            keys += snapshot.scan(range, None, limit - keys)?.len();
        }
        stats.probed += keys as u64;
        Ok(Some(keys))
    }
}

fn candidates(query: &Query, source: &dyn Source) -> Vec<Plan> {
    let root = query.predicate.as_ref().map(|p| p.root());
    let within = |space| root.and_then(|root| ranges::ranges(root, space));
    let scope = query.scope;
    let rank = |ranges: &Option<Ranges>| match ranges {
        None => Rank::All,
        Some(r) if are_points(r) => Rank::Lookup,
        Some(r) if *r == all() => Rank::All,
        Some(_) => Rank::Range,
    };
    let mut plans = Vec::new();
    let mut members = |group| {
        if let Some(prefix) = source.name_prefix(group) {
            let names = within(Space::Names);
            let by_name = rank(&names);
            plans.push(Plan::new(Path::Names(group), &prefix, names, by_name, scope));
        }
    };
    match (scope, root.and_then(demanded_group)) {
        (Scope::Group(group), _) | (Scope::Everything, Some(group)) => members(group),
        // All that has a name is below the root, and records are read faster in their own order.
        (Scope::Below(group), _) if !group.is_nil() => {
            plans.push(Plan::new(Path::Tree(group), &[], Some(Vec::new()), Rank::All, scope));
        }
        _ => {}
    }
    let uuids = within(Space::Uuids);
    let by_uuid = rank(&uuids);
    let records = Plan::new(Path::Records, &source.record_prefix(), uuids, by_uuid, scope);
    if plans.is_empty() || by_uuid < Rank::All {
        plans.push(records);
    }
    for key in source.indexes() {
        if let Some(ranges) = within(Space::Index(key)) {
            let prefix = index::prefix(source.workspace(), key);
            let rank = match &ranges[..] {
                r if *r == all()[..] => Rank::Exists,
                r if r.iter().all(is_one_value) => Rank::Equality,
                _ => Rank::Range,
            };
            plans.push(Plan::new(Path::Index(key.clone()), &prefix, Some(ranges), rank, scope));
        }
    }
    plans
}

/// Whether a range is that of the entries of one value.
fn is_one_value(range: &KeyRange) -> bool {
    index::is_whole(&range.from) && KeyRange::prefix(&range.from).to == range.to
}

/// The group that a predicate demands.
fn demanded_group(node: &Node) -> Option<Uuid> {
    match node {
        Node::And(parts) => parts.iter().find_map(demanded_group),
        Node::Condition(c) if c.key == Key::System(SystemKey::Group) => match &c.test {
            Test::Compare(Op::Eq, Value::Str(uuid)) => Uuid::parse(uuid).ok(),
            _ => None,
        },
        _ => None,
    }
}

impl std::fmt::Display for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let part = match (self.rank, self.ranges.len()) {
            (Rank::All | Rank::Exists, _) => "all".to_owned(),
            (Rank::Lookup, 1) => "look up one".to_owned(),
            (Rank::Lookup, n) => format!("look up {n}"),
            (Rank::Equality, 1) => "one value".to_owned(),
            (Rank::Equality, n) => format!("{n} values"),
            (Rank::Range, 1) => "one range".to_owned(),
            (Rank::Range, n) => format!("{n} ranges"),
        };
        let keys = match self.keys {
            Some(PROBE) => format!(" ({PROBE} keys or more)"),
            Some(1) => " (1 key)".to_owned(),
            Some(n) => format!(" ({n} keys)"),
            None => String::new(),
        };
        match &self.path {
            Path::Records => write!(f, "records: {part}{keys}"),
            Path::Names(group) => write!(f, "names in {}: {part}{keys}", Place(*group)),
            Path::Tree(group) => write!(f, "names in {} and below it: all", Place(*group)),
            Path::Index(key) => write!(f, "index {}: {part}{keys}", Key::User(key.clone())),
        }?;
        match (&self.path, self.scope) {
            (Path::Records | Path::Index(_), Scope::Group(group)) => write!(f, "; only those in {}", Place(group)),
            (Path::Records | Path::Index(_), Scope::Below(group)) => write!(f, "; only those below {}", Place(group)),
            _ => Ok(()),
        }
    }
}

struct Place(Uuid);

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_nil() { f.write_str("the root") } else { write!(f, "group {}", self.0) }
    }
}
