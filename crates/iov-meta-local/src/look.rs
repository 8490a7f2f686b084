//! Looking at a store without changing it: for who reads one that nobody serves, perhaps from a medium that takes no writes.
//!
//! What a start would do on the medium is left out: the log is read and not cut, what it holds stays in memory, and tables
//! are opened by links from a directory elsewhere, since the library removes files that it does not need.

use std::{path::Path, sync::Arc};

use bytes::Bytes;
use iov_store::{Commit, KeyRange, MetadataStore, Record, Snapshot, Txn};
use iov_types::{Error, Result};

use crate::{
    buffer::Buffer,
    cache::Cache,
    engine::Counts,
    files::{APPLIED_FILE, Applied, FORMAT_FILE, Home},
    hooks::Hooks,
    log::{self, Tail},
    options::Options,
    tables::{FAMILIES, Pin, Tables},
    view::{Parts, Seed, Shared, View},
};

/// A store as it lies on the medium. Nothing can be written to it, and nobody else can have it open for that.
pub struct ReadOnly {
    parts: Arc<Parts>,
    bytes: u64,
}

impl ReadOnly {
    /// Opens the store in a directory; `None`: none has been made there to its end. What was torn by a kill or a loss of
    /// power is left out, as at any start, and damage is an error, but the log stays as it is.
    pub fn open(dir: &Path, options: Options) -> Result<Option<ReadOnly>> {
        let there = dir.join(FORMAT_FILE).try_exists();
        if !there.map_err(|e| Error::from(e).context(format_args!("the metadata engine's {}", dir.display())))? {
            return Ok(None);
        }
        let home = Home::look(dir)?;
        home.check_format()?;
        let applied = Applied::read(&home)?.ok_or_else(|| {
            Error::corrupt(format!("{} is missing: restore it, or the store from a copy", home.shown(APPLIED_FILE)))
        })?;
        let recovered = log::recover(&home, applied, &Hooks::default())?;
        let tables = Tables::open(home.mirror(&FAMILIES.map(|family| family.name()))?, options.table_cache, false)?;
        let pin = Arc::new(Pin::new(&tables, applied.generation));
        let cache = Cache::new(options.record_cache, pin.epoch);
        let shared = Arc::new(Shared { seed: Seed::random(), cache, counts: Counts::default() });
        let mut before = Tail { offset: 0, sequence: applied.sequence, revision: applied.revision };
        let mut buffers = Vec::new();
        for loaded in recovered.segments {
            let buffer = Buffer::new(loaded.generation, shared.seed.clone(), before.revision);
            for ([first, last], frame, writes) in loaded.frames {
                buffer.add(frame, &writes, first, last);
            }
            before = loaded.tail;
            buffers.push(Arc::new(buffer));
        }
        let active = buffers.pop().ok_or_else(|| Error::internal("a log without segments"))?;
        buffers.reverse();
        let bytes = tables.trees().iter().map(|tree| tree.bytes()).sum();
        Ok(Some(ReadOnly { parts: Arc::new(Parts { shared, active, sealed: buffers, pin }), bytes }))
    }

    fn view(&self) -> View {
        View::new(self.parts.clone())
    }
}

impl MetadataStore for ReadOnly {
    fn get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Record>>> {
        self.view().get(keys)
    }

    fn scan(&self, range: &KeyRange, after: Option<&[u8]>, limit: usize) -> Result<Vec<(Bytes, Record)>> {
        self.view().scan(range, after, limit)
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot>> {
        Ok(Box::new(self.view()))
    }

    fn commit(&self, _: Vec<Txn>) -> Result<Vec<Commit>> {
        Err(Error::denied("the metadata engine is open for reading only"))
    }

    fn persist(&self) -> Result<()> {
        Ok(())
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }
}
