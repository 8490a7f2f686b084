//! The plainest metadata engine that outlives its process, for the tests of the suite itself: all of it in one file,
//! rewritten by each commit. Its flaws are mutants that the suite must catch.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Mutex,
};

use bytes::Bytes;
use iov_types::{Error, Result};

use crate::{Commit, Guard, KeyRange, MetadataStore, Record, Snapshot, Txn, seam};

/// What is wrong with a store.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Flaw {
    None,
    LosesTheLastCommit,
    BeginsRevisionsAnew,
    LogsConflicts,
}

type Map = BTreeMap<Vec<u8>, Record>;

pub(super) struct Journal {
    file: PathBuf,
    flaw: Flaw,
    state: Mutex<(Map, u64)>,
}

fn push(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend((bytes.len() as u64).to_le_bytes());
    out.extend(bytes);
}

fn number(from: &mut &[u8]) -> u64 {
    let (n, rest) = from.split_at(8);
    *from = rest;
    u64::from_le_bytes(n.try_into().unwrap())
}

fn take<'a>(from: &mut &'a [u8]) -> &'a [u8] {
    let len = number(from) as usize;
    let (bytes, rest) = from.split_at(len);
    *from = rest;
    bytes
}

impl Journal {
    pub(super) fn open(at: &Path, flaw: Flaw) -> Journal {
        let file = at.join("journal");
        let (mut map, mut revision) = (Map::new(), 0);
        if let Ok(bytes) = std::fs::read(&file) {
            let mut from = &bytes[..];
            revision = number(&mut from);
            while !from.is_empty() {
                let key = take(&mut from).to_vec();
                let value = Bytes::copy_from_slice(take(&mut from));
                map.insert(key, Record { value, revision: number(&mut from) });
            }
        }
        if flaw == Flaw::BeginsRevisionsAnew {
            revision = 0;
        }
        Journal { file, flaw, state: Mutex::new((map, revision)) }
    }

    fn save(&self, map: &Map, revision: u64) {
        let mut out = revision.to_le_bytes().to_vec();
        for (key, record) in map {
            push(&mut out, key);
            push(&mut out, &record.value);
            out.extend(record.revision.to_le_bytes());
        }
        std::fs::write(&self.file, out).unwrap();
    }
}

struct View(Map);

impl Snapshot for View {
    fn get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Record>>> {
        Ok(keys.iter().map(|k| self.0.get(*k).cloned()).collect())
    }

    fn scan(&self, range: &KeyRange, after: Option<&[u8]>, limit: usize) -> Result<Vec<(Bytes, Record)>> {
        let inside = self.0.iter().filter(|(k, _)| range.contains(k) && after.is_none_or(|a| &k[..] > a));
        Ok(inside.take(limit).map(|(k, v)| (Bytes::copy_from_slice(k), v.clone())).collect())
    }
}

impl MetadataStore for Journal {
    fn get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Record>>> {
        self.snapshot()?.get(keys)
    }

    fn scan(&self, range: &KeyRange, after: Option<&[u8]>, limit: usize) -> Result<Vec<(Bytes, Record)>> {
        self.snapshot()?.scan(range, after, limit)
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot>> {
        Ok(Box::new(View(self.state.lock().unwrap().0.clone())))
    }

    fn commit(&self, txns: Vec<Txn>) -> Result<Vec<Commit>> {
        let mut state = self.state.lock().unwrap();
        let (map, revision) = &mut *state;
        if self.flaw == Flaw::LosesTheLastCommit {
            self.save(map, *revision); // what came before, now
        }
        let mut logged = map.clone();
        let commits = txns.into_iter().map(|txn| {
            let holds = txn.guards.iter().all(|guard| match guard {
                Guard::Absent(k) => !map.contains_key(k),
                Guard::Present(k) => map.contains_key(k),
                Guard::Revision(k, r) => map.get(k).is_some_and(|v| v.revision == *r),
            });
            *revision += u64::from(holds);
            let write = |map: &mut Map| {
                for (key, value) in txn.writes.clone() {
                    match value {
                        Some(value) => drop(map.insert(key, Record { value, revision: *revision })),
                        None => drop(map.remove(&key)),
                    }
                }
            };
            write(&mut logged);
            if !holds {
                return Err(Error::conflict("a guard does not hold"));
            }
            write(map);
            Ok(*revision)
        });
        let commits = commits.collect();
        match self.flaw {
            Flaw::LosesTheLastCommit => {}
            Flaw::LogsConflicts => self.save(&logged, *revision),
            Flaw::None | Flaw::BeginsRevisionsAnew => self.save(map, *revision),
        }
        Ok(commits)
    }

    fn persist(&self) -> Result<()> {
        Ok(())
    }

    fn bytes(&self) -> u64 {
        std::fs::metadata(&self.file).map_or(0, |m| m.len())
    }
}

/// A folder of this test run, removed at its end.
pub(super) struct Scratch(PathBuf);

impl Scratch {
    pub(super) fn new() -> Scratch {
        let id = seam::new_uuid().to_string().replace("uuid:", "iov-store-test-");
        let folder = std::env::temp_dir().join(id);
        std::fs::create_dir_all(&folder).unwrap();
        Scratch(folder)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}
