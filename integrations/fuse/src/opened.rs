//! Numbers for what is open.

use std::{
    collections::HashMap,
    ops::Deref,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use iov_posix::{Alone, File};

use crate::inodes::{Content, lock};

/// A file that programs have open.
pub(crate) struct Served {
    pub(crate) file: File,
    /// What they read and write goes past the kernel's cache.
    pub(crate) past_cache: bool,
    /// They may have pages of it.
    pub(crate) shown: bool,
    /// What is so once the kernel has opened it.
    pub(crate) opening: Opening,
}

/// What is so once the kernel has opened a file.
#[derive(Default)]
pub(crate) struct Begun {
    /// All pages that it has are of then, or of later, as far as that can be told.
    pub(crate) alone: Option<Alone>,
    /// It has dropped all that it had before, and what it has is of this content.
    pub(crate) dropped: Option<Content>,
}

/// That, until it has.
#[derive(Default)]
pub(crate) struct Opening {
    begun: Mutex<Option<Begun>>,
    is_due: AtomicBool,
}

impl Opening {
    pub(crate) fn new(begun: Begun) -> Opening {
        Opening { begun: Mutex::new(Some(begun)), is_due: AtomicBool::new(true) }
    }

    /// The kernel does something with the file, so that it is open there: tells that once.
    pub(crate) fn take(&self) -> Option<Begun> {
        if self.is_due.load(Ordering::Relaxed) && self.is_due.swap(false, Ordering::Relaxed) {
            lock(&self.begun).take()
        } else {
            None
        }
    }
}

impl Deref for Served {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

/// What is open, by number.
pub(crate) struct Opened<T> {
    next: AtomicU64,
    all: Mutex<HashMap<u64, Arc<T>>>,
}

impl<T> Default for Opened<T> {
    fn default() -> Opened<T> {
        Opened { next: AtomicU64::new(1), all: Mutex::default() }
    }
}

impl<T> Opened<T> {
    pub(crate) fn put(&self, what: T) -> u64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        lock(&self.all).insert(number, Arc::new(what));
        number
    }

    pub(crate) fn get(&self, number: u64) -> Option<Arc<T>> {
        lock(&self.all).get(&number).cloned()
    }

    pub(crate) fn take(&self, number: u64) -> Option<Arc<T>> {
        lock(&self.all).remove(&number)
    }

    /// Ends all.
    pub(crate) fn clear(&self) {
        let all = std::mem::take(&mut *lock(&self.all));
        drop(all);
    }
}
