//! What a search needs to know of the records it runs over.

use iov_store::Record;
use iov_types::{EntryKind, Error, Metadata, Name, Result, Uuid, Value};

use crate::predicate::{Facts, SystemKey};

/// A decoded record.
pub trait Found: Facts {
    /// Workspace, group or collection.
    fn kind(&self) -> EntryKind;

    /// The user's pairs.
    fn metadata(&self) -> &Metadata;
}

/// The records of one workspace, or the workspaces of a store: where they lie and how they are read.
pub trait Source: Send + Sync {
    /// What the key of every record begins with; its UUID follows.
    fn record_prefix(&self) -> Vec<u8>;

    /// What the key of every name in a group begins with (nil = the root); the name follows. The value is the UUID (16
    /// bytes) and the number of the [`EntryKind`]. `None` where names are not kept in groups.
    fn name_prefix(&self, group: Uuid) -> Option<Vec<u8>>;

    /// The workspace, for [`crate::index::prefix`]; nil where there is none.
    fn workspace(&self) -> Uuid;

    /// The declared indexes that have an entry for every record with the key.
    fn indexes(&self) -> &[String];

    /// Whether [`Source::decode`] may hide records that have a name, so that a listing has to read the records behind the
    /// names too.
    fn hides_names(&self) -> bool {
        true
    }

    /// Reads a record; `None` if it is not to be found (deleted but still open, or not the caller's to see). What is
    /// fresher than the record, such as the size, is put in here.
    fn decode(&self, uuid: Uuid, record: &Record) -> Result<Option<Box<dyn Found>>>;

    /// Fails where a fact that was asked of what was found could not be had: then nothing that was made of it holds.
    fn check(&self) -> Result<()> {
        Ok(())
    }
}

/// The key of a record.
pub(super) fn record_key(source: &dyn Source, uuid: Uuid) -> Vec<u8> {
    let mut key = source.record_prefix();
    key.extend_from_slice(&uuid.0);
    key
}

/// Reads the value of a name entry.
pub(super) fn named(value: &[u8]) -> Result<(Uuid, EntryKind)> {
    let (uuid, rest) =
        value.split_first_chunk::<16>().ok_or_else(|| Error::corrupt("the entry of a name is too short"))?;
    let kind = match rest.first() {
        Some(k) if *k == EntryKind::Group as u8 => EntryKind::Group,
        Some(k) if *k == EntryKind::Collection as u8 => EntryKind::Collection,
        _ => return Err(Error::corrupt("the entry of a name has no known kind")),
    };
    Ok((Uuid(*uuid), kind))
}

/// A record as it is seen under one of its names: what a predicate is asked about.
pub(super) struct Row<'a> {
    pub(super) found: &'a dyn Found,
    /// The group and the name; `None` for a record without name.
    pub(super) place: Option<&'a (Uuid, Name)>,
}

impl Facts for Row<'_> {
    fn user(&self, key: &str) -> Option<&Value> {
        self.found.user(key)
    }

    fn system(&self, key: SystemKey) -> Option<Value> {
        match key {
            SystemKey::Name => self.place.map(|(_, name)| text(name)),
            SystemKey::Group => self.place.map(|(group, _)| Value::Str(group.to_string())),
            key => self.found.system(key),
        }
    }

    fn names(&self) -> &[(Uuid, Name)] {
        self.place.map_or(&[], std::slice::from_ref)
    }
}

/// A name as a value.
fn text(name: &Name) -> Value {
    match std::str::from_utf8(name.as_bytes()) {
        Ok(s) => Value::Str(s.to_owned()),
        Err(_) => Value::Bytes(name.as_bytes().to_vec()),
    }
}
