//! From an address to what it names, by searches: nothing is opened, so that a hold of somebody else is no obstacle.

use ioverbs::{
    Clause, Collection, EntryKind, Error, Name, Op, Parent, Session, Uuid, Value, Which, Workspace, catalog::SearchSpec,
};

use crate::{
    address::Address,
    ctx::Ctx,
    facts::{self, Facts, everything, members, name_value},
    failure::{Done, Failure, Next},
};

/// What an address names.
pub(crate) struct Located {
    pub(crate) ws: Workspace,
    pub(crate) address: Address,
    /// The group that holds it, or would; nil = the root.
    pub(crate) group: Uuid,
    pub(crate) what: What,
}

/// What is there.
pub(crate) enum What {
    /// The workspace itself.
    Root,
    /// A collection or group.
    Found(Box<Facts>),
    /// Nothing of this name.
    Missing(Name),
}

/// Where to open something: under its name, so that an open that comes while the name passes from one collection to
/// another gets one of the two (T22).
#[derive(Clone)]
pub(crate) struct Spot {
    pub(crate) ws: Workspace,
    /// The group, open; `None` = the root.
    pub(crate) parent: Parent,
    pub(crate) which: Which,
}

impl Spot {
    /// The operation that opens it.
    pub(crate) fn op(&self, out: &Collection) -> Op {
        let (parent, which) = (self.parent.clone(), self.which.clone());
        Op::Open { out: out.clone(), parent, which, controls: Default::default() }
    }

    /// Opens it.
    pub(crate) fn open(&self, kind: EntryKind) -> Done<Collection> {
        let out = self.ws.pending(kind);
        ioverbs::run(self.ws.session(), self.op(&out))?;
        Ok(out)
    }
}

impl Located {
    /// Where to open it.
    pub(crate) fn spot(&self, ctx: &mut Ctx) -> Done<Spot> {
        let ws = self.ws.clone();
        Ok(match self.address.path.last() {
            Some(Which::Name(name)) => {
                Spot { parent: ctx.open_group(&ws, self.group)?, which: Which::Name(name.clone()), ws }
            }
            Some(which) => Spot { parent: None, which: which.clone(), ws },
            None => Spot { parent: None, which: Which::Uuid(Uuid::NIL), ws },
        })
    }

    /// The group that it is: nil for the root.
    pub(crate) fn as_group(&self) -> Option<Uuid> {
        match &self.what {
            What::Root => Some(Uuid::NIL),
            What::Found(facts) if facts.is_group() => Some(facts.uuid),
            _ => None,
        }
    }

    /// Its facts; fails for the root and for what is not there.
    pub(crate) fn facts(&self) -> Done<&Facts> {
        match &self.what {
            What::Found(facts) => Ok(facts),
            What::Root => {
                Err(Error::invalid(format!("{} is a workspace; here a collection or group is meant", self.address))
                    .into())
            }
            What::Missing(name) => Err(self.missing(name)),
        }
    }

    /// Its facts, if it is a collection.
    pub(crate) fn collection(&self) -> Done<&Facts> {
        let facts = self.facts()?;
        if facts.is_group() {
            return Err(Error::invalid(format!("{} is a group; here a collection is meant", self.address))
                .with_clause(Clause::O3)
                .into());
        }
        Ok(facts)
    }

    fn missing(&self, name: &Name) -> Failure {
        missing(&self.ws, &self.address.parent(), self.group, name)
    }
}

fn missing(ws: &Workspace, parent: &Address, group: Uuid, name: &Name) -> Failure {
    let error = Error::not_found(format!("there is no {name:?} in {parent}")).with_clause(Clause::O3);
    let next = match nearest_name(ws, group, name) {
        Some(near) => {
            let near = parent.join(Which::Name(near)).quoted();
            format!("did you mean {near}? `iov ls {}` shows all", parent.quoted())
        }
        None => format!("iov ls {}", parent.quoted()),
    };
    Failure::Error { error: Box::new(error), next: Some(next) }
}

impl Ctx {
    /// Finds what an address names, with all its facts.
    pub(crate) fn locate(&mut self, address: &Address) -> Done<Located> {
        let ws = self.workspace(address)?;
        let mut located = Located { ws, address: address.clone(), group: Uuid::NIL, what: What::Root };
        let mut so_far = Address { path: Vec::new(), ..address.clone() };
        for (i, part) in address.path.iter().enumerate() {
            let last = i + 1 == address.path.len();
            let found = find_in(&located.ws, located.group, part, if last { facts::KEYS } else { &[] })?;
            match (found, part) {
                (Some(found), _) if last => {
                    located.group = found.group;
                    located.what = What::Found(Box::new(found));
                }
                (Some(found), _) if found.is_group() => located.group = found.uuid,
                (Some(_), _) => {
                    let here = so_far.join(part.clone());
                    let error =
                        Error::invalid(format!("{here} is a collection: it holds no names")).with_clause(Clause::O3);
                    return Err(error.into());
                }
                (None, Which::Name(name)) if last => located.what = What::Missing(name.clone()),
                (None, Which::Name(name)) => return Err(missing(&located.ws, &so_far, located.group, name)),
                (None, Which::Uuid(uuid)) => {
                    let error = Error::not_found(format!("there is no {uuid} in {so_far}")).with_clause(Clause::O2);
                    return Err(error).next(|| format!("iov find {} lists what is there", so_far.workspace_quoted()));
                }
            }
            so_far = so_far.join(part.clone());
        }
        if address.slash && matches!(&located.what, What::Found(facts) if !facts.is_group()) {
            return Err(Error::invalid(format!(
                "{address} is a collection, and the address ends with '/', as a group's does"
            ))
            .with_clause(Clause::O3)
            .into());
        }
        Ok(located)
    }

    /// Opens a group to put things in; nil = the root, which needs no handle.
    pub(crate) fn open_group(&mut self, ws: &Workspace, group: Uuid) -> Done<Parent> {
        if group.is_nil() {
            return Ok(None);
        }
        self.open(ws, EntryKind::Group, group).map(Some)
    }

    /// Opens a collection or group by its UUID.
    pub(crate) fn open(&mut self, ws: &Workspace, kind: EntryKind, uuid: Uuid) -> Done<Collection> {
        let out = ws.pending(kind);
        let open = Op::Open { out: out.clone(), parent: None, which: Which::Uuid(uuid), controls: Default::default() };
        ioverbs::run(ws.session(), open)?;
        Ok(out)
    }
}

/// Looks up one name of a group, or a UUID in the workspace.
pub(crate) fn find_in(ws: &Workspace, group: Uuid, which: &Which, keys: &[&str]) -> Done<Option<Facts>> {
    let spec = match which {
        Which::Name(name) => SearchSpec {
            predicate: Some("iov.name = ?".into()),
            params: vec![name_value(name)],
            ..members(group, keys)
        },
        Which::Uuid(uuid) => SearchSpec {
            predicate: Some("iov.uuid = ?".into()),
            params: vec![Value::Str(uuid.to_string())],
            ..everything(keys)
        },
    };
    let page = facts::search(ws, SearchSpec { limit: 2, ..spec })?.next_page(2)?;
    Ok(facts::only(page)?.map(Facts::new))
}

/// Which of these names there are in a group: with their facts.
pub(crate) fn find_names(ws: &Workspace, group: Uuid, names: &[Name], keys: &[&str]) -> Done<Vec<Facts>> {
    let mut found = Vec::new();
    for some in names.chunks(256) {
        let marks = vec!["?"; some.len()].join(", ");
        let spec = SearchSpec {
            predicate: Some(format!("iov.name in ({marks})")),
            params: some.iter().map(name_value).collect(),
            ..members(group, keys)
        };
        let mut results = facts::search(ws, spec)?;
        while let Some(entry) = results.next()? {
            found.push(Facts::new(entry));
        }
    }
    Ok(found)
}

/// Which of these collections and groups there are in a workspace.
pub(crate) fn find_uuids(ws: &Workspace, uuids: &[Uuid]) -> Done<Vec<Facts>> {
    let mut found = Vec::new();
    for some in uuids.chunks(256) {
        let marks = vec!["?"; some.len()].join(", ");
        let spec = SearchSpec {
            predicate: Some(format!("iov.uuid in ({marks})")),
            params: some.iter().map(|uuid| Value::Str(uuid.to_string())).collect(),
            ..everything(&[])
        };
        let mut results = facts::search(ws, spec)?;
        while let Some(entry) = results.next()? {
            found.push(Facts::new(entry));
        }
    }
    Ok(found)
}

/// How many names are looked at for one that was meant.
const CANDIDATES: usize = 4096;

fn nearest(word: &[u8], names: impl Iterator<Item = Name>) -> Option<Name> {
    let word = String::from_utf8_lossy(word).into_owned();
    let tolerance = match word.chars().count() {
        0..=2 => 0,
        3..=5 => 1,
        _ => 2,
    };
    names
        .filter_map(|name| {
            let text = std::str::from_utf8(name.as_bytes()).ok()?.to_owned();
            let distance = if text.eq_ignore_ascii_case(&word) { 0 } else { strsim::osa_distance(&text, &word) };
            (distance <= tolerance).then_some((distance, name))
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

fn nearest_name(ws: &Workspace, group: Uuid, name: &Name) -> Option<Name> {
    let spec = SearchSpec { limit: CANDIDATES as u64, ..members(group, &[]) };
    let page = facts::search(ws, spec).and_then(|mut r| r.next_page(CANDIDATES)).ok()?;
    nearest(name.as_bytes(), page.into_iter().filter_map(|e| e.name))
}

/// The workspace whose name is most like this one.
pub(crate) fn nearest_workspace(session: &Session, which: &Which) -> Option<Name> {
    let Which::Name(name) = which else { return None };
    let spec = SearchSpec { limit: CANDIDATES as u64, ..everything(&[]) };
    let page = facts::search_workspaces(session, spec).and_then(|mut r| r.next_page(CANDIDATES)).ok()?;
    nearest(name.as_bytes(), page.into_iter().filter_map(|e| e.name))
}
