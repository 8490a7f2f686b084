//! The store's door.

use std::{path::Path, sync::Arc, thread::JoinHandle};

use bytes::Bytes;
use iov_store::{Commit, KeyRange, MetadataStore, Record, Room, Snapshot, Txn, seam};
use iov_types::{Error, Result};

use crate::{
    apply, compact,
    engine::{Engine, lock},
    hooks::Hooks,
    open::{is_made, open},
    options::{Options, Stats},
};

/// A metadata engine in a directory. One process at a time can have it open.
pub struct LocalStore {
    engine: Arc<Engine>,
    threads: Vec<JoinHandle<()>>,
}

impl LocalStore {
    /// Opens the store in a directory, and makes it if there is none. The path is only used here: it may be one of
    /// `/proc/self/fd`, and the directory may be renamed afterwards.
    pub fn open(dir: &Path, options: Options) -> Result<LocalStore> {
        LocalStore::open_with(dir, options, Hooks::default())
    }

    /// Opens the store in a directory, if one has been made there to its end.
    pub fn open_made(dir: &Path, options: Options) -> Result<Option<LocalStore>> {
        if is_made(dir)? { LocalStore::open(dir, options).map(Some) } else { Ok(None) }
    }

    pub(crate) fn open_with(dir: &Path, options: Options, hooks: Hooks) -> Result<LocalStore> {
        let mut store = LocalStore { engine: Arc::new(open(dir, options, hooks)?), threads: Vec::new() };
        for (name, run) in [("iov-meta-apply", apply::run as fn(&Arc<Engine>)), ("iov-meta-merge", compact::run)] {
            let engine = store.engine.clone();
            let thread = seam::spawn(name, move || run(&engine));
            store.threads.push(thread.map_err(|e| Error::from(e).context(format_args!("starting the thread {name}")))?);
        }
        store.engine.keep_room();
        Ok(store)
    }

    /// What it has done so far, and holds now.
    pub fn stats(&self) -> Stats {
        self.engine.stats()
    }

    #[cfg(test)]
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }
}

impl Drop for LocalStore {
    /// Ends the background work where it is: what has not been moved into tables is in the log.
    fn drop(&mut self) {
        lock(&self.engine.progress).stop = true;
        self.engine.changed.notify_all();
        for thread in self.threads.drain(..) {
            // A panic there was reported when it happened, and the log has everything.
            let _ = thread.join();
        }
        // Losing nothing does not depend on this; but after it, damage cannot pass for a loss of power.
        self.engine.close();
    }
}

impl MetadataStore for LocalStore {
    fn get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Record>>> {
        self.engine.view().get(keys)
    }

    fn scan(&self, range: &KeyRange, after: Option<&[u8]>, limit: usize) -> Result<Vec<(Bytes, Record)>> {
        self.engine.view().scan(range, after, limit)
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot>> {
        Ok(Box::new(self.engine.view()))
    }

    fn commit(&self, txns: Vec<Txn>) -> Result<Vec<Commit>> {
        self.engine.commit_with(&txns, Room::Free)
    }

    fn commit_with(&self, txns: Vec<Txn>, room: Room) -> Result<Vec<Commit>> {
        self.engine.commit_with(&txns, room)
    }

    fn keep_room(&self) {
        self.engine.keep_room();
    }

    fn is_full(&self) -> bool {
        self.engine.is_full()
    }

    fn is_scarce(&self) -> bool {
        self.engine.is_scarce()
    }

    fn persist(&self) -> Result<()> {
        self.engine.persist()
    }

    fn bytes(&self) -> u64 {
        self.engine.bytes()
    }
}
