//! A search as it was asked for, read and checked once.

use iov_types::{
    Clause, Error, Name, Result, Uuid, Value,
    catalog::{Entry, SearchSpec},
};

use super::{
    order::Order,
    source::{Found, Row},
};
use crate::predicate::{Facts, Key, Predicate, SystemKey};

/// Where a search looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Scope {
    /// All records, also those without a name.
    Everything,
    /// The members of a group; nil = the root.
    Group(Uuid),
    /// The members of a group and of all groups below it.
    Below(Uuid),
}

/// Metadata to return.
#[derive(Clone, Debug, Default)]
struct Wanted {
    all: bool,
    keys: Vec<Key>,
}

pub(super) struct Query {
    pub(super) predicate: Option<Predicate>,
    pub(super) scope: Scope,
    pub(super) order: Option<Order>,
    /// Most results; `u64::MAX` = all.
    pub(super) limit: u64,
    pub(super) count: bool,
    /// One result per name instead of one per record.
    pub(super) names: bool,
    wanted: Option<Wanted>,
}

impl Query {
    pub(super) fn new(spec: &SearchSpec) -> Result<Query> {
        let predicate = spec.predicate.as_deref().map(|text| Predicate::parse(text, &spec.params)).transpose()?;
        if predicate.is_none() && !spec.params.is_empty() {
            return Err(Error::invalid("parameters are given, but no predicate with a '?'").with_clause(Clause::O5));
        }
        let scope = match (spec.group, spec.deep) {
            (None, _) => Scope::Everything,
            (Some(group), false) => Scope::Group(group),
            (Some(group), true) => Scope::Below(group),
        };
        // A listing is in the order of names, also where an index is the shorter way.
        let listing = spec.names && matches!(scope, Scope::Group(_));
        let order = spec.order.as_deref().or(listing.then_some(SystemKey::Name.text()));
        Ok(Query {
            predicate,
            scope,
            order: order.map(Order::parse).transpose()?,
            limit: if spec.limit == 0 { u64::MAX } else { spec.limit },
            count: spec.count,
            names: spec.names,
            wanted: Wanted::new(&spec.keys)?,
        })
    }

    /// Whether a record under one of its names is a match.
    pub(super) fn matches(&self, found: &dyn Found, place: Option<&(Uuid, Name)>) -> bool {
        self.predicate.as_ref().is_none_or(|p| p.matches(&Row { found, place }))
    }

    /// Whether a name alone makes a result, so that the record need not be read.
    pub(super) fn needs_no_record(&self) -> bool {
        self.names && self.predicate.is_none() && (self.wanted.is_none() || self.count)
    }

    /// A match as it is returned.
    pub(super) fn entry(&self, uuid: Uuid, found: &dyn Found, place: Option<&(Uuid, Name)>) -> Entry {
        Entry {
            kind: found.kind(),
            uuid,
            group: place.map_or(Uuid::NIL, |(group, _)| *group),
            name: place.map(|(_, name)| name.clone()),
            metadata: self.wanted.as_ref().map(|w| w.pairs(&Row { found, place })),
        }
    }
}

impl Wanted {
    fn new(keys: &[String]) -> Result<Option<Wanted>> {
        if keys.is_empty() {
            return Ok(None);
        }
        let mut wanted = Wanted::default();
        for text in keys {
            if text == "*" {
                wanted.all = true;
                continue;
            }
            let key = Key::parse(text)
                .map_err(|why| Error::invalid(format!("metadata to return: {why}")).with_clause(Clause::O4))?;
            if !wanted.keys.contains(&key) {
                wanted.keys.push(key);
            }
        }
        Ok(Some(wanted))
    }

    fn pairs(&self, row: &Row<'_>) -> Vec<(String, Value)> {
        let mut pairs: Vec<(String, Value)> = Vec::new();
        if self.all {
            pairs.extend(row.found.metadata().iter().map(|(k, v)| (k.to_owned(), v.clone())));
        }
        for key in &self.keys {
            match key {
                Key::User(_) if self.all => {}
                Key::User(k) => pairs.extend(row.user(k).map(|v| (k.clone(), v.clone()))),
                Key::System(k) => pairs.extend(row.system(*k).map(|v| (k.text().to_owned(), v))),
            }
        }
        pairs
    }
}

/// Bytes that an entry takes in an answer, about.
pub(super) fn entry_bytes(entry: &Entry) -> usize {
    let pairs = entry.metadata.iter().flatten().map(|(k, v)| k.len() + v.payload_len() + 16);
    64 + entry.name.as_ref().map_or(0, |n| n.as_bytes().len()) + pairs.sum::<usize>()
}
