//! Where checksums lie: a metadata engine of the target's own, beside the bytes, opened when the first object needs it.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bytes::Bytes;
use iov_store::{KeyRange, MetadataStore, Room, Txn};
use iov_types::{Error, ObjectId, Result};

use super::run::{Blocks, Run};

/// Opens the engine that keeps checksums: the one that is there, or with `true` also a new one.
pub type OpenSums = Box<dyn Fn(bool) -> Result<Option<Arc<dyn MetadataStore>>> + Send + Sync>;

/// The object is kept by checksums, and has at least so many bytes; written with the last of the first ones.
const KEPT: u8 = b'O';
/// Blocks of a run that may have changed since.
const OPEN: u8 = b'I';
/// Checksums of a run.
const SUMS: u8 = b'S';

/// Records read at once.
const PAGE: usize = 1024;
/// Records of one transaction: some MiB.
const RECORDS: usize = 2048;

fn prefix(kind: u8, id: ObjectId) -> Vec<u8> {
    let mut key = Vec::with_capacity(33);
    key.push(kind);
    key.extend(id.collection.0);
    key.extend(id.slot.to_be_bytes());
    key
}

fn key(kind: u8, id: ObjectId, run: u64) -> Vec<u8> {
    let mut key = prefix(kind, id);
    key.extend(run.to_be_bytes());
    key
}

fn run_of(key: &[u8]) -> Result<u64> {
    let number = key.last_chunk::<8>().filter(|_| key.len() == 33);
    number.map(|n| u64::from_be_bytes(*n)).ok_or_else(|| Error::corrupt("a record of checksums has a strange key"))
}

/// An object that is kept.
pub(super) struct Found {
    /// It has at least so many bytes.
    pub(super) length: u64,
    /// Which of its blocks may have changed since, by run.
    pub(super) open: Vec<(u64, Blocks)>,
}

/// Changes that are made together.
#[derive(Default)]
pub(super) struct Changes(Vec<(Vec<u8>, Option<Bytes>)>);

impl Changes {
    pub(super) fn kept(&mut self, id: ObjectId, length: u64) {
        self.0.push((prefix(KEPT, id), Some(Bytes::copy_from_slice(&length.to_le_bytes()))));
    }

    pub(super) fn open(&mut self, id: ObjectId, run: u64, blocks: Option<Blocks>) {
        self.0.push((key(OPEN, id, run), blocks.map(|b| Bytes::copy_from_slice(&b.encode()))));
    }

    pub(super) fn sums(&mut self, id: ObjectId, run: u64, sums: &Run) {
        self.0.push((key(SUMS, id, run), (!sums.present.is_empty()).then(|| sums.encode().into())));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.0.len() >= RECORDS
    }
}

/// The records of all objects.
pub(in crate::files) struct SumStore {
    open: Option<Mutex<OpenSums>>,
    store: OnceLock<Arc<dyn MetadataStore>>,
}

impl SumStore {
    /// Without `open`, no object is kept by checksums.
    pub(in crate::files) fn new(open: Option<OpenSums>) -> Result<SumStore> {
        let there = open.as_ref().map_or(Ok(None), |open| open(false))?;
        let store = SumStore { open: open.map(Mutex::new), store: OnceLock::new() };
        there.into_iter().for_each(|engine| drop(store.store.set(engine)));
        Ok(store)
    }

    /// Whether objects are kept by checksums here.
    pub(in crate::files) fn is_kept(&self) -> bool {
        self.open.is_some()
    }

    /// The engine, if there is one already.
    fn get(&self) -> Option<&Arc<dyn MetadataStore>> {
        self.store.get()
    }

    fn must(&self) -> Result<&Arc<dyn MetadataStore>> {
        if let (None, Some(open)) = (self.get(), &self.open) {
            let open = open.lock().unwrap_or_else(PoisonError::into_inner);
            if self.get().is_none()
                && let Some(engine) = open(true)?
            {
                let _ = self.store.set(engine);
            }
        }
        self.get().ok_or_else(|| Error::internal("a target without room for checksums"))
    }

    /// What was written of an object, if it is kept.
    pub(super) fn load(&self, id: ObjectId) -> Result<Option<Found>> {
        let Some(store) = self.get() else { return Ok(None) };
        let record = store.get(&[&prefix(KEPT, id)])?.into_iter().next().flatten();
        let Some(record) = record else { return Ok(None) };
        let length = record.value[..].try_into().map(u64::from_le_bytes);
        let length = length.map_err(|_| Error::corrupt("a length beside checksums has a strange form"))?;
        let mut open = Vec::new();
        self.scan(OPEN, id, |run, value| {
            open.push((run, Blocks::decode(value)?));
            Ok(())
        })?;
        Ok(Some(Found { length, open }))
    }

    fn scan(&self, kind: u8, id: ObjectId, found: impl FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
        self.scan_in(KeyRange::prefix(&prefix(kind, id)), found)
    }

    fn scan_in(&self, range: KeyRange, mut found: impl FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
        let Some(store) = self.get() else { return Ok(()) };
        let mut after: Option<Bytes> = None;
        loop {
            let page = store.scan(&range, after.as_deref(), PAGE)?;
            for (key, record) in &page {
                found(run_of(key)?, &record.value)?;
            }
            let full = page.len() == PAGE;
            match page.into_iter().last() {
                Some((key, _)) if full => after = Some(key),
                _ => return Ok(()),
            }
        }
    }

    /// The checksums of some runs, in the order asked for.
    pub(super) fn runs(&self, id: ObjectId, runs: &[u64]) -> Result<Vec<Run>> {
        let Some(store) = self.get() else { return Ok(vec![Run::default(); runs.len()]) };
        let keys: Vec<Vec<u8>> = runs.iter().map(|run| key(SUMS, id, *run)).collect();
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let records = store.get(&keys)?;
        records.iter().map(|r| r.as_ref().map_or(Ok(Run::default()), |r| Run::decode(&r.value))).collect()
    }

    /// The runs among some that have checksums.
    pub(super) fn runs_within(&self, id: ObjectId, range: std::ops::Range<u64>) -> Result<Vec<u64>> {
        let mut out = Vec::new();
        self.scan_in(KeyRange { from: key(SUMS, id, range.start), to: Some(key(SUMS, id, range.end)) }, |run, _| {
            out.push(run);
            Ok(())
        })?;
        Ok(out)
    }

    /// Makes changes, as one; `vital` ones also where the medium is full, as they make room.
    pub(super) fn commit(&self, changes: Changes, vital: bool) -> Result<()> {
        if changes.is_empty() {
            return Ok(());
        }
        let (store, txns) = (self.must()?, vec![Txn { guards: Vec::new(), writes: changes.0 }]);
        let done = store.commit_with(txns, if vital { Room::Kept } else { Room::Free });
        done?.into_iter().try_for_each(|done| done.map(drop))
    }

    /// Keeps room again for when the medium is full.
    pub(in crate::files) fn keep_room(&self) {
        self.get().into_iter().for_each(|store| store.keep_room());
    }

    /// Makes everything committed survive power loss.
    pub(super) fn persist(&self) -> Result<()> {
        self.must()?.persist()
    }

    /// Forgets an object: first that it is kept, so that half of its checksums is never taken for all.
    pub(in crate::files) fn forget(&self, id: ObjectId) -> Result<()> {
        let Some(store) = self.get() else { return Ok(()) };
        let mut changes = Changes::default();
        changes.0.push((prefix(KEPT, id), None));
        for kind in [OPEN, SUMS] {
            let mut keys = Vec::new();
            self.scan(kind, id, |run, _| {
                keys.push((key(kind, id, run), None));
                Ok(())
            })?;
            changes.0.extend(keys);
        }
        for part in changes.0.chunks(RECORDS) {
            let txn = Txn { guards: Vec::new(), writes: part.to_vec() };
            store.commit_with(vec![txn], Room::Freeing)?.into_iter().try_for_each(|done| done.map(drop))?;
        }
        Ok(())
    }
}
