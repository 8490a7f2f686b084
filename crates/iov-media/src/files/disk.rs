//! Open files, the least recently used closed first.

use std::{
    collections::{BTreeMap, HashMap},
    os::fd::OwnedFd,
    sync::{Arc, Mutex, PoisonError},
};

use iov_types::{Error, Result};
use rustix::io::Errno;

use super::{
    io,
    tree::{FileName, Tree},
};

struct Open {
    file: Arc<OwnedFd>,
    write: bool,
    used: u64,
}

#[derive(Default)]
struct Lru {
    open: HashMap<FileName, Open>,
    order: BTreeMap<u64, FileName>,
    clock: u64,
}

impl Lru {
    fn touch(&mut self, name: FileName, write: bool) -> Option<Arc<OwnedFd>> {
        let open = self.open.get_mut(&name).filter(|open| open.write || !write)?;
        self.order.remove(&open.used);
        self.clock += 1;
        open.used = self.clock;
        self.order.insert(open.used, name);
        Some(open.file.clone())
    }

    fn insert(&mut self, name: FileName, file: Arc<OwnedFd>, write: bool) {
        self.remove(name);
        self.clock += 1;
        self.order.insert(self.clock, name);
        self.open.insert(name, Open { file, write, used: self.clock });
    }

    fn remove(&mut self, name: FileName) -> Option<Open> {
        let open = self.open.remove(&name)?;
        self.order.remove(&open.used);
        Some(open)
    }

    /// Takes out the oldest until at most `keep` are left. The caller closes them outside of the lock.
    fn shrink(&mut self, keep: usize) -> Vec<Open> {
        let mut out = Vec::new();
        while self.open.len() > keep {
            let Some((_, name)) = self.order.pop_first() else { break };
            out.extend(self.open.remove(&name));
        }
        out
    }
}

/// The files of a target, opened when they are needed.
pub(super) struct Disk {
    pub(super) tree: Tree,
    limit: usize,
    lru: Mutex<Lru>,
}

impl Disk {
    pub(super) fn new(tree: Tree, limit: usize) -> Disk {
        Disk { tree, limit, lru: Mutex::default() }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Lru> {
        self.lru.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A file, opened if need be; `None` if it is not there.
    pub(super) fn get(&self, name: FileName, write: bool) -> Result<Option<Arc<OwnedFd>>> {
        if let Some(file) = self.lock().touch(name, write) {
            return Ok(Some(file));
        }
        let file = self.sparing(|| self.tree.open_file(name, write))?;
        Ok(file.map(|file| self.keep(name, file, write)))
    }

    /// A new file.
    pub(super) fn create(&self, name: FileName) -> Result<Arc<OwnedFd>> {
        let file = self.sparing(|| self.tree.create_file(name))?;
        Ok(self.keep(name, file, true))
    }

    /// A file to write to, made if it is not there.
    pub(super) fn get_or_create(&self, name: FileName) -> Result<Arc<OwnedFd>> {
        match self.get(name, true)? {
            Some(file) => Ok(file),
            None => self.create(name),
        }
    }

    /// A file that must be there.
    pub(super) fn must(&self, name: FileName, write: bool) -> Result<Arc<OwnedFd>> {
        self.get(name, write)?.ok_or_else(|| Error::corrupt(format!("{} of the target is missing", name.path())))
    }

    /// Removes a file; whether it was there.
    pub(super) fn remove(&self, name: FileName) -> Result<bool> {
        self.forget(name);
        self.tree.remove(name)
    }

    /// Gives a file another name, over the one that has it.
    pub(super) fn rename(&self, from: FileName, to: FileName) -> Result<()> {
        self.tree.rename(from, to)?;
        self.forget(from);
        self.forget(to);
        Ok(())
    }

    fn keep(&self, name: FileName, file: OwnedFd, write: bool) -> Arc<OwnedFd> {
        let file = Arc::new(file);
        let mut lru = self.lock();
        lru.insert(name, file.clone(), write);
        let closed = lru.shrink(self.limit);
        drop(lru);
        drop(closed);
        file
    }

    /// Opens something; if the process has no descriptor left, all of ours are closed first.
    pub(super) fn sparing<T>(&self, open: impl Fn() -> rustix::io::Result<T>) -> Result<T> {
        match open() {
            Err(Errno::MFILE | Errno::NFILE) => {
                let closed = self.lock().shrink(0);
                drop(closed);
                open()
            }
            other => other,
        }
        .map_err(|e| match e {
            Errno::MFILE | Errno::NFILE => {
                io::os("no descriptor is left: raise RLIMIT_NOFILE of the daemon, or close handles")(e)
            }
            Errno::LOOP => io::os("a file of the target is a symbolic link, which no daemon has made")(e),
            e => io::os("opening a file of the target")(e),
        })
    }

    /// Closes a file: its name belongs to another one now, or to none.
    pub(super) fn forget(&self, name: FileName) {
        let closed = self.lock().remove(name);
        drop(closed);
    }

    /// How many are open.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.lock().open.len()
    }
}
