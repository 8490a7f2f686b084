//! Searches over a small world of records on a [`MemoryStore`].

mod cursors;
mod listing;
mod order;
mod paths;
mod property;
mod ranges;
mod results;
mod world;

use iov_types::{Metadata, Name, Result, Uuid, Value, catalog::Entry, catalog::SearchSpec};

use super::{Cursor, SearchStats};
use world::World;

/// A search for everything that a predicate finds.
fn find(predicate: &str) -> SearchSpec {
    let predicate = (!predicate.is_empty()).then(|| predicate.to_owned());
    SearchSpec { predicate, page: 100, ..SearchSpec::default() }
}

fn uuid(n: u64) -> Uuid {
    let mut bytes = [0; 16];
    bytes[8..].copy_from_slice(&n.to_be_bytes());
    Uuid(bytes)
}

fn name(text: impl AsRef<[u8]>) -> Name {
    Name::new(text).unwrap()
}

fn pairs(pairs: &[(&str, Value)]) -> Metadata {
    let mut metadata = Metadata::new();
    pairs.iter().for_each(|(k, v)| metadata.set(*k, v.clone()).unwrap());
    metadata
}

fn str(s: &str) -> Value {
    Value::Str(s.to_owned())
}

/// Everything that a search finds, in pages of `page`, and what it cost.
fn all_pages(mut cursor: Cursor, page: usize) -> Result<(Vec<Entry>, SearchStats)> {
    let mut entries = Vec::new();
    loop {
        let results = cursor.next(page, u64::MAX)?;
        assert!(results.entries.len() <= page);
        entries.extend(results.entries);
        if results.done {
            return Ok((entries, *cursor.stats()));
        }
    }
}

fn search(world: &World, spec: &SearchSpec) -> Vec<Entry> {
    all_pages(world.cursor(spec).unwrap(), spec.page).unwrap().0
}

/// The last eight bytes of the UUIDs found, in the order found.
fn numbers(entries: &[Entry]) -> Vec<u64> {
    entries.iter().map(|e| u64::from_be_bytes(*e.uuid.0.last_chunk().unwrap())).collect()
}

fn sorted(entries: &[Entry]) -> Vec<u64> {
    let mut n = numbers(entries);
    n.sort_unstable();
    n
}

fn names(entries: &[Entry]) -> Vec<String> {
    entries.iter().map(|e| e.name.as_ref().map_or("-".to_owned(), Name::to_string)).collect()
}
