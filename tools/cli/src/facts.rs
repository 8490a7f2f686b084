//! What a search tells about a collection or group, without opening it.

use ioverbs::{
    Controls, Cursor, EntryKind, Error, Lent, Name, Op, Result, Session, Uuid, Value, Workspace,
    catalog::{Entry, SearchSpec},
};
use serde_json::{Map, Value as Json, json};

use crate::{output::json_name, pairs, quantity};

/// The system keys that make the facts.
pub(crate) const KEYS: &[&str] =
    &["*", "iov.size", "iov.mtime", "iov.ctime", "iov.owner", "iov.mode", "iov.state", "iov.controls", "iov.layout"];

/// The facts of the last publication.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) kind: EntryKind,
    pub(crate) uuid: Uuid,
    /// Where it was found; nil = the root.
    pub(crate) group: Uuid,
    pub(crate) name: Option<Name>,
    pub(crate) size: u64,
    pub(crate) mtime_ns: i64,
    pub(crate) ctime_ns: i64,
    pub(crate) owner: Option<i64>,
    pub(crate) mode: Option<i64>,
    pub(crate) state: Option<String>,
    pub(crate) controls: Option<String>,
    pub(crate) layout: Option<String>,
    /// What programs put.
    pub(crate) user: Vec<(String, Value)>,
}

impl Facts {
    /// Sorts what a search returned.
    pub(crate) fn new(entry: Entry) -> Facts {
        let mut facts = Facts {
            kind: entry.kind,
            uuid: entry.uuid,
            group: entry.group,
            name: entry.name,
            size: 0,
            mtime_ns: 0,
            ctime_ns: 0,
            owner: None,
            mode: None,
            state: None,
            controls: None,
            layout: None,
            user: Vec::new(),
        };
        for (key, value) in entry.metadata.unwrap_or_default() {
            match (key.as_str(), value) {
                ("iov.size", Value::I64(n)) => facts.size = u64::try_from(n).unwrap_or(0),
                ("iov.mtime", Value::Time(ns)) => facts.mtime_ns = ns,
                ("iov.ctime", Value::Time(ns)) => facts.ctime_ns = ns,
                ("iov.owner", Value::I64(n)) => facts.owner = Some(n),
                ("iov.mode", Value::I64(n)) => facts.mode = Some(n),
                ("iov.state", Value::Str(s)) => facts.state = Some(s),
                ("iov.controls", Value::Str(s)) => facts.controls = Some(s),
                ("iov.layout", Value::Str(s)) => facts.layout = Some(s),
                (_, value) => facts.user.push((key, value)),
            }
        }
        facts
    }

    /// Whether it is a group.
    pub(crate) fn is_group(&self) -> bool {
        self.kind == EntryKind::Group
    }

    /// Its controls.
    pub(crate) fn read_controls(&self) -> Result<Controls> {
        let mut controls = Controls::default();
        if let Some(text) = &self.controls {
            ioverbs::text::parse(&mut controls, text)?;
        }
        Ok(controls)
    }

    /// The name, or the UUID of what has none.
    pub(crate) fn label(&self) -> Vec<u8> {
        match &self.name {
            Some(name) => name.as_bytes().to_vec(),
            None => self.uuid.to_string().into_bytes(),
        }
    }

    /// As JSON, under an address.
    pub(crate) fn json(&self, address: &[u8]) -> Map<String, Json> {
        let mut out = Map::new();
        out.insert("address".into(), json_name(address));
        out.insert("name".into(), self.name.as_ref().map_or(Json::Null, |n| json_name(n.as_bytes())));
        out.insert("kind".into(), kind_text(self.kind).into());
        out.insert("uuid".into(), self.uuid.to_string().into());
        if self.kind == EntryKind::Collection {
            out.insert("size".into(), self.size.into());
        }
        let mut text = |key: &str, value: &Option<String>| {
            if let Some(value) = value {
                out.insert(key.into(), value.as_str().into());
            }
        };
        text("state", &self.state);
        text("controls", &self.controls);
        text("layout", &self.layout);
        for (key, ns) in [("mtime", self.mtime_ns), ("ctime", self.ctime_ns)] {
            if ns != 0 {
                out.insert(key.into(), quantity::rfc3339(ns).into());
            }
        }
        out.extend(self.owner.map(|n| ("owner".to_owned(), json!(n))));
        out.extend(self.mode.map(|n| ("mode".to_owned(), json!(format!("{n:04o}")))));
        out.insert("metadata".into(), pairs_json(&self.user));
        out
    }
}

/// User pairs as JSON.
pub(crate) fn pairs_json(pairs: &[(String, Value)]) -> Json {
    Json::Object(pairs.iter().map(|(k, v)| (k.clone(), pairs::json(v))).collect())
}

/// The word for a kind.
pub(crate) fn kind_text(kind: EntryKind) -> &'static str {
    match kind {
        EntryKind::Workspace => "workspace",
        EntryKind::Group => "group",
        EntryKind::Collection => "collection",
    }
}

/// A search for everything, to be narrowed.
pub(crate) fn everything(keys: &[&str]) -> SearchSpec {
    SearchSpec { keys: keys.iter().map(|k| (*k).to_owned()).collect(), ..SearchSpec::default() }
}

/// The members of a group, one result for each name.
pub(crate) fn members(group: Uuid, keys: &[&str]) -> SearchSpec {
    SearchSpec { group: Some(group), names: true, ..everything(keys) }
}

/// A name as a parameter of a predicate.
pub(crate) fn name_value(name: &Name) -> Value {
    match std::str::from_utf8(name.as_bytes()) {
        Ok(text) => Value::Str(text.to_owned()),
        Err(_) => Value::Bytes(name.as_bytes().to_vec()),
    }
}

/// Results page by page, so that a long listing is never held.
pub(crate) struct Results {
    cursor: Cursor,
    page: std::vec::IntoIter<Entry>,
}

/// How many results are taken at a time.
const PAGE: usize = 1024;

impl Results {
    /// Of a search that has begun.
    pub(crate) fn new(cursor: Cursor) -> Results {
        Results { cursor, page: Vec::new().into_iter() }
    }

    /// The next one.
    pub(crate) fn next(&mut self) -> Result<Option<Entry>> {
        if self.page.len() == 0 {
            self.page = self.cursor.next(PAGE, 0)?.into_iter();
        }
        Ok(self.page.next())
    }

    /// The next page; empty at the end.
    pub(crate) fn next_page(&mut self, max: usize) -> Result<Vec<Entry>> {
        self.cursor.next(max, 0)
    }
}

impl Drop for Results {
    fn drop(&mut self) {
        self.cursor.close();
    }
}

/// Starts a search in a workspace.
pub(crate) fn search(ws: &Workspace, spec: SearchSpec) -> Result<Results> {
    ioverbs::find(ws, spec).map(Results::new)
}

/// Starts a search of workspaces.
pub(crate) fn search_workspaces(session: &Session, spec: SearchSpec) -> Result<Results> {
    session.search_workspaces(spec).map(Results::new)
}

/// Gives back an open whose result nobody needs.
pub(crate) fn close_op(c: &ioverbs::Collection) -> Lent<'static> {
    Lent::Plain(Op::Close { c: c.clone() })
}

/// What a search for one thing found more than once would mean.
pub(crate) fn only(found: Vec<Entry>) -> Result<Option<Entry>> {
    let mut found = found.into_iter();
    let first = found.next();
    match found.next() {
        None => Ok(first),
        Some(_) => Err(Error::internal("a name stands for two things")),
    }
}
