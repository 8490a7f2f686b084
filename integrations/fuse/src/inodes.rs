//! What the kernel knows: each file that it has looked up, until it forgets it.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use iov_posix::{Attributes, Node};

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// By which a cached page is told from one that is not good any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Content {
    size: u64,
    mtime_ns: i64,
    version: u64,
}

impl Content {
    pub(crate) fn of(a: &Attributes) -> Content {
        Content { size: a.size, mtime_ns: a.mtime_ns, version: a.version }
    }
}

struct Inode {
    node: Arc<Node>,
    /// How often the kernel was told of it, less how often it has forgotten.
    lookups: u64,
    /// What its cached pages are of.
    cached: Option<Content>,
}

/// The files that the kernel knows, by number.
#[derive(Default)]
pub(crate) struct Inodes(Mutex<HashMap<u64, Inode>>);

impl Inodes {
    /// The file of a number.
    pub(crate) fn get(&self, ino: u64) -> Option<Arc<Node>> {
        lock(&self.0).get(&ino).map(|inode| inode.node.clone())
    }

    /// The kernel is told of a file: the number to tell. Two identities with one number get different ones.
    pub(crate) fn tell(&self, node: &Arc<Node>) -> u64 {
        let mut inodes = lock(&self.0);
        let mut ino = node.ino();
        while let Some(inode) = inodes.get_mut(&ino) {
            if inode.node.uuid() == node.uuid() {
                inode.lookups += 1;
                return ino;
            }
            ino = ino.wrapping_add(1).max(2);
        }
        inodes.insert(ino, Inode { node: node.clone(), lookups: 1, cached: None });
        ino
    }

    /// The kernel has forgotten it so often.
    pub(crate) fn forget(&self, ino: u64, times: u64) {
        let gone = {
            let mut inodes = lock(&self.0);
            let Some(inode) = inodes.get_mut(&ino) else { return };
            inode.lookups = inode.lookups.saturating_sub(times);
            if inode.lookups == 0 { inodes.remove(&ino) } else { None }
        };
        // Not under the lock: its last handle may close with it.
        drop(gone);
    }

    /// Whether the pages that are cached of it are of this content; from now on they are.
    pub(crate) fn keeps_pages(&self, ino: u64, content: Content) -> bool {
        let mut inodes = lock(&self.0);
        let Some(inode) = inodes.get_mut(&ino) else { return false };
        inode.cached.replace(content) == Some(content)
    }

    /// Its bytes were changed here: what is cached is as new as can be, but nobody knows what that is.
    pub(crate) fn changed(&self, ino: u64) {
        if let Some(inode) = lock(&self.0).get_mut(&ino) {
            inode.cached = None;
        }
    }
}
