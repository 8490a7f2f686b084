//! Sealed files whose bytes the kernel reads by itself (`FUSE_PASSTHROUGH`, Linux 6.9), without a request to this process.
//!
//! The kernel wants all who have a file open at a time to have it so, through the same file below, or all through its cache of
//! pages; what is open past the cache (`FOPEN_DIRECT_IO`) goes with either. So the first who opens a file decides for all until
//! the last has closed it.

use std::{
    collections::HashMap,
    os::fd::BorrowedFd,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use fuser::BackingId;
use iov_posix::{Attributes, File};
use ioverbs::LentFile;
use rustix::io::Errno;

use crate::inodes::lock;

/// Sealed files smaller than this are read by requests: there are not more of them than it takes to have a file passed.
const LEAST: u64 = 1 << 20;

/// A file below, as the kernel knows it.
pub(crate) struct Backing {
    pub(crate) id: BackingId,
    _lent: Arc<dyn LentFile>,
}

/// How programs get at the bytes of a file that was opened.
pub(crate) enum Way {
    /// By requests, with the kernel's cache.
    Cached,
    /// By themselves.
    Passed(Arc<Backing>),
}

#[derive(Default)]
enum Decided {
    #[default]
    Not,
    Cached,
    Passed(Arc<Backing>),
}

#[derive(Default)]
struct Opens {
    count: usize,
    /// Who opens it at the same time waits until that is decided.
    decided: Arc<Mutex<Decided>>,
}

/// How each file is open, by its number.
#[derive(Default)]
pub(crate) struct Passing {
    allowed: bool,
    /// The kernel has said that it passes no files of this store, and is not asked again.
    refused: AtomicBool,
    files: Mutex<HashMap<u64, Opens>>,
}

impl Passing {
    /// The kernel passes files on.
    pub(crate) fn allow(&mut self) {
        self.allowed = true;
    }

    /// A file was opened. Has it passed if it may be, by telling the kernel.
    pub(crate) fn opened(
        &self,
        ino: u64,
        file: &File,
        attributes: &Attributes,
        tell: impl FnOnce(BorrowedFd<'_>) -> std::io::Result<BackingId>,
    ) -> Way {
        if !self.allowed {
            return Way::Cached;
        }
        let decided = {
            let mut files = lock(&self.files);
            let opens = files.entry(ino).or_default();
            opens.count += 1;
            opens.decided.clone()
        };
        let mut decided = lock(&decided);
        if matches!(*decided, Decided::Not) {
            let may = attributes.size >= LEAST && !self.refused.load(Ordering::Relaxed);
            let lent = if may { file.lend() } else { None };
            let backing = lent.and_then(|lent| {
                match tell(lent.file()) {
                    Ok(id) => Some(Arc::new(Backing { id, _lent: lent })),
                    Err(e) => {
                        // Without the right to, over a file system that stands on others, or on one that cannot.
                        if matches!(Errno::from_io_error(&e), Some(Errno::PERM | Errno::LOOP | Errno::OPNOTSUPP)) {
                            self.refused.store(true, Ordering::Relaxed);
                        }
                        None
                    }
                }
            });
            *decided = backing.map_or(Decided::Cached, Decided::Passed);
        }
        match &*decided {
            Decided::Passed(backing) => Way::Passed(backing.clone()),
            Decided::Not | Decided::Cached => Way::Cached,
        }
    }

    /// It was closed, by one of those who had opened it.
    pub(crate) fn closed(&self, ino: u64) {
        if !self.allowed {
            return;
        }
        let mut files = lock(&self.files);
        let Some(opens) = files.get_mut(&ino) else { return };
        opens.count -= 1;
        let gone = if opens.count == 0 { files.remove(&ino) } else { None };
        drop(files);
        // Not under the lock: the kernel is told.
        drop(gone);
    }
}
