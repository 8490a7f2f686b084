//! Records, names and index entries as the catalog lays them out, without its record format: a value is a number under
//! which the record is kept aside.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use iov_store::{MemoryStore, MetadataStore, Record, Txn};
use iov_types::{EntryKind, Error, Metadata, Name, Result, Uuid, Value, catalog::SearchSpec};

use super::super::{Cursor, Found, Source};
use crate::{
    index,
    predicate::{Facts, SystemKey},
};

#[derive(Clone, Debug)]
pub(super) struct Thing {
    pub(super) uuid: Uuid,
    pub(super) kind: EntryKind,
    pub(super) metadata: Metadata,
    pub(super) names: Vec<(Uuid, Name)>,
    pub(super) size: i64,
    /// Not to be found, as what was deleted but is still open.
    pub(super) hidden: bool,
}

impl Thing {
    pub(super) fn new(uuid: Uuid, kind: EntryKind) -> Thing {
        Thing { uuid, kind, metadata: Metadata::new(), names: Vec::new(), size: 0, hidden: false }
    }
}

impl Facts for Thing {
    fn user(&self, key: &str) -> Option<&Value> {
        self.metadata.get(key)
    }

    fn system(&self, key: SystemKey) -> Option<Value> {
        match key {
            SystemKey::Uuid => Some(Value::Str(self.uuid.to_string())),
            SystemKey::Size => Some(Value::I64(self.size)),
            SystemKey::Kind => Some(Value::Str(format!("{:?}", self.kind).to_lowercase())),
            SystemKey::Name | SystemKey::Group => panic!("asked of the row"),
            _ => None,
        }
    }

    fn names(&self) -> &[(Uuid, Name)] {
        &self.names
    }
}

impl Found for Thing {
    fn kind(&self) -> EntryKind {
        self.kind
    }

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }
}

type Things = Arc<Mutex<Vec<Thing>>>;

pub(super) struct Records {
    things: Things,
    workspaces: bool,
    indexes: Vec<String>,
    hides_names: bool,
}

pub(super) const WS: Uuid = Uuid([0xab; 16]);

impl Source for Records {
    fn record_prefix(&self) -> Vec<u8> {
        if self.workspaces { b"W".to_vec() } else { [&b"R"[..], &WS.0].concat() }
    }

    fn name_prefix(&self, group: Uuid) -> Option<Vec<u8>> {
        let parent = if group.is_nil() { WS } else { group };
        (!self.workspaces).then(|| [&b"N"[..], &parent.0].concat())
    }

    fn workspace(&self) -> Uuid {
        WS
    }

    fn indexes(&self) -> &[String] {
        &self.indexes
    }

    fn hides_names(&self) -> bool {
        self.hides_names
    }

    fn decode(&self, uuid: Uuid, record: &Record) -> Result<Option<Box<dyn Found>>> {
        let number = record.value.as_ref().try_into().map(u64::from_be_bytes);
        let number = number.map_err(|_| Error::corrupt("a record of the wrong length"))?;
        let thing = self.things.lock().unwrap()[number as usize].clone();
        assert_eq!(thing.uuid, uuid);
        if thing.hidden { Ok(None) } else { Ok(Some(Box::new(thing))) }
    }
}

pub(super) struct World {
    pub(super) store: MemoryStore,
    things: Things,
    workspaces: bool,
    pub(super) indexes: Vec<String>,
    pub(super) hides_names: bool,
    /// What is there now.
    pub(super) now: std::collections::BTreeMap<Uuid, Thing>,
}

impl World {
    pub(super) fn new(indexes: &[&str]) -> World {
        World {
            store: MemoryStore::new(),
            things: Things::default(),
            workspaces: false,
            hides_names: false,
            indexes: indexes.iter().map(|i| (*i).to_owned()).collect(),
            now: Default::default(),
        }
    }

    pub(super) fn of_workspaces() -> World {
        World { workspaces: true, ..World::new(&[]) }
    }

    pub(super) fn source(&self) -> Arc<dyn Source> {
        let (things, workspaces) = (self.things.clone(), self.workspaces);
        let indexes = self.indexes.clone();
        Arc::new(Records { things, workspaces, indexes, hides_names: self.hides_names })
    }

    pub(super) fn cursor(&self, spec: &SearchSpec) -> Result<Cursor> {
        Cursor::start(self.store.snapshot().unwrap(), self.source(), spec)
    }

    fn keys(&self, thing: &Thing) -> Vec<(Vec<u8>, Vec<u8>)> {
        let source = self.source();
        let mut pairs = Vec::new();
        for (group, name) in &thing.names {
            if let Some(prefix) = source.name_prefix(*group) {
                let value = [&thing.uuid.0[..], &[thing.kind as u8]].concat();
                pairs.push(([&prefix[..], name.as_bytes()].concat(), value));
            }
        }
        let entries = index::keys(WS, &self.indexes, thing.uuid, &thing.metadata);
        pairs.extend(entries.into_iter().map(|key| (key, Vec::new())));
        pairs
    }

    /// Record, names and index entries in one transaction.
    pub(super) fn put(&mut self, mut thing: Thing) {
        thing.names.sort();
        let mut txn = Txn::default();
        if let Some(old) = self.now.get(&thing.uuid) {
            txn.writes.extend(self.keys(old).into_iter().map(|(key, _)| (key, None)));
        }
        txn.writes.extend(self.keys(&thing).into_iter().map(|(k, v)| (k, Some(Bytes::from(v)))));
        let number = {
            let mut things = self.things.lock().unwrap();
            things.push(thing.clone());
            things.len() as u64 - 1
        };
        let key = [&self.source().record_prefix()[..], &thing.uuid.0].concat();
        txn.writes.push((key, Some(Bytes::copy_from_slice(&number.to_be_bytes()))));
        self.store.commit(vec![txn]).unwrap().remove(0).unwrap();
        self.now.insert(thing.uuid, thing);
    }

    pub(super) fn remove(&mut self, uuid: Uuid) {
        let Some(old) = self.now.remove(&uuid) else { return };
        let mut writes: Vec<_> = self.keys(&old).into_iter().map(|(key, _)| (key, None)).collect();
        writes.push(([&self.source().record_prefix()[..], &uuid.0].concat(), None));
        self.store.commit(vec![Txn { guards: Vec::new(), writes }]).unwrap().remove(0).unwrap();
    }

    /// A collection with one name in the root.
    pub(super) fn collection(&mut self, n: u64, name: &str, metadata: Metadata) {
        self.member(n, Uuid::NIL, name, metadata);
    }

    pub(super) fn member(&mut self, n: u64, group: Uuid, name: &str, metadata: Metadata) {
        let mut thing = Thing::new(super::uuid(n), EntryKind::Collection);
        thing.names.push((group, super::name(name)));
        thing.metadata = metadata;
        self.put(thing);
    }

    pub(super) fn group(&mut self, n: u64, parent: Uuid, name: &str) -> Uuid {
        let mut thing = Thing::new(super::uuid(n), EntryKind::Group);
        thing.names.push((parent, super::name(name)));
        self.put(thing);
        super::uuid(n)
    }
}
