//! A metadata engine on the heap. Snapshots are free: the map is persistent in the functional sense.

use std::{
    ops::Bound,
    sync::{PoisonError, RwLock},
};

use bytes::Bytes;
use imbl::OrdMap;
use iov_types::{Error, Result};

use crate::{Commit, Guard, KeyRange, MetadataStore, Record, Snapshot, Txn};

type Map = OrdMap<Bytes, Record>;

/// An ordered map with transactions; gone with the process.
#[derive(Default)]
pub struct MemoryStore {
    state: RwLock<(Map, u64)>,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> MemoryStore {
        MemoryStore::default()
    }
}

struct View(Map);

fn get(map: &Map, keys: &[&[u8]]) -> Vec<Option<Record>> {
    keys.iter().map(|k| map.get(*k).cloned()).collect()
}

fn scan(map: &Map, range: &KeyRange, after: Option<&[u8]>, limit: usize) -> Vec<(Bytes, Record)> {
    let from = match after {
        Some(a) if a >= &range.from[..] => Bound::Excluded(a),
        _ => Bound::Included(&range.from[..]),
    };
    map.range::<_, [u8]>((from, Bound::Unbounded))
        .take_while(|(k, _)| range.contains(k))
        .take(limit)
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect()
}

impl Snapshot for View {
    fn get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Record>>> {
        Ok(get(&self.0, keys))
    }

    fn scan(&self, range: &KeyRange, after: Option<&[u8]>, limit: usize) -> Result<Vec<(Bytes, Record)>> {
        Ok(scan(&self.0, range, after, limit))
    }
}

impl MetadataStore for MemoryStore {
    fn get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Record>>> {
        Ok(get(&self.state.read().unwrap_or_else(PoisonError::into_inner).0, keys))
    }

    fn scan(&self, range: &KeyRange, after: Option<&[u8]>, limit: usize) -> Result<Vec<(Bytes, Record)>> {
        Ok(scan(&self.state.read().unwrap_or_else(PoisonError::into_inner).0, range, after, limit))
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot>> {
        Ok(Box::new(View(self.state.read().unwrap_or_else(PoisonError::into_inner).0.clone())))
    }

    fn commit(&self, txns: Vec<Txn>) -> Result<Vec<Commit>> {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        let (map, revision) = &mut *state;
        let commits = txns
            .into_iter()
            .map(|txn| {
                for guard in &txn.guards {
                    let (key, holds) = match guard {
                        Guard::Absent(k) => (k, !map.contains_key(&k[..])),
                        Guard::Present(k) => (k, map.contains_key(&k[..])),
                        Guard::Revision(k, r) => (k, map.get(&k[..]).is_some_and(|v| v.revision == *r)),
                    };
                    if !holds {
                        return Err(Error::conflict(format!("the record {key:02x?} was changed meanwhile")));
                    }
                }
                *revision += 1;
                for (key, value) in txn.writes {
                    match value {
                        Some(value) => drop(map.insert(key.into(), Record { value, revision: *revision })),
                        None => drop(map.remove(&key[..])),
                    }
                }
                Ok(*revision)
            })
            .collect();
        Ok(commits)
    }

    fn persist(&self) -> Result<()> {
        Ok(())
    }

    fn bytes(&self) -> u64 {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        state.0.iter().map(|(k, v)| (k.len() + v.value.len()) as u64).sum()
    }
}
