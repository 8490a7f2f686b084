//! What the kernel knows: each file that it has looked up, until it forgets it.

use std::{
    collections::HashMap,
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use iov_posix::{Attributes, Node, Tag};

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

/// What a number stands for.
#[derive(Clone)]
pub(crate) enum Known {
    /// Something with an identity.
    Node(Arc<Node>),
    /// A part of the view of metadata.
    Tag(Arc<Tag>),
}

impl Known {
    fn is(&self, other: &Known) -> bool {
        match (self, other) {
            (Known::Node(one), Known::Node(other)) => one.uuid() == other.uuid(),
            (Known::Tag(one), Known::Tag(other)) => one == other,
            _ => false,
        }
    }

    /// The number that it gets if no other has it.
    fn number(&self) -> u64 {
        match self {
            Known::Node(node) => node.ino(),
            Known::Tag(tag) => number_of(tag),
        }
    }
}

/// The number of a part of the view.
pub(crate) fn number_of(tag: &Tag) -> u64 {
    let number = BuildHasherDefault::<DefaultHasher>::default().hash_one(tag);
    (number & (u64::MAX >> 1)).max(2)
}

struct Inode {
    known: Known,
    /// How often the kernel was told of it, less how often it has forgotten.
    lookups: u64,
    /// What its cached pages are of.
    cached: Option<Content>,
}

/// The files that the kernel knows, by number.
#[derive(Default)]
pub(crate) struct Inodes(Mutex<HashMap<u64, Inode>>);

impl Inodes {
    /// What a number stands for.
    pub(crate) fn get(&self, ino: u64) -> Option<Known> {
        lock(&self.0).get(&ino).map(|inode| inode.known.clone())
    }

    /// The kernel is told of a file: the number to tell.
    pub(crate) fn tell(&self, node: &Arc<Node>) -> u64 {
        self.tell_of(Known::Node(node.clone()))
    }

    /// The kernel is told of something: the number to tell. Two with one number get different ones.
    pub(crate) fn tell_of(&self, known: Known) -> u64 {
        let mut inodes = lock(&self.0);
        let mut ino = known.number();
        while let Some(inode) = inodes.get_mut(&ino) {
            if inode.known.is(&known) {
                inode.lookups += 1;
                return ino;
            }
            ino = ino.wrapping_add(1).max(2);
        }
        inodes.insert(ino, Inode { known, lookups: 1, cached: None });
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
