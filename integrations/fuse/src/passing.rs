//! Files whose bytes the kernel moves by itself (`FUSE_PASSTHROUGH`, Linux 6.9), without a request to this process.
//!
//! The kernel wants all who have a file open at a time to have it so, through the same file below, or all through its cache of
//! pages; what is open past the cache (`FOPEN_DIRECT_IO`) goes with either. So the first who opens a file decides for all until
//! the last has closed it.

use std::{
    collections::HashMap,
    os::fd::BorrowedFd,
    sync::{Arc, Mutex},
};

use fuser::BackingId;
use iov_posix::{Attributes, File};
use ioverbs::LentFile;

use crate::inodes::lock;

/// Which files the kernel may move the bytes of by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Passthrough {
    /// None.
    Off,
    /// Sealed ones, for reading.
    #[default]
    Read,
    /// And those of `concurrency=exclusive`, for writing as well.
    Write,
}

/// Sealed files smaller than this are read by requests: there are not more of them than it takes to have a file passed.
const LEAST: u64 = 1 << 20;

/// A file below, as the kernel knows it.
pub(crate) struct Backing {
    pub(crate) id: BackingId,
    lent: Arc<dyn LentFile>,
}

/// How programs get at the bytes of a file that was opened.
pub(crate) enum Way {
    /// By requests, with the kernel's cache.
    Cached,
    /// By themselves.
    Passed(Arc<Backing>),
    /// By requests without the cache: those who opened it before have it passed, but it is not good any more.
    Direct,
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
    what: Passthrough,
    files: Mutex<HashMap<u64, Opens>>,
}

impl Passing {
    /// The kernel passes files on: those.
    pub(crate) fn allow(&mut self, what: Passthrough) {
        self.what = what;
    }

    /// A file was opened. Has it passed if it may be, by telling the kernel.
    pub(crate) fn opened(
        &self,
        ino: u64,
        file: &File,
        attributes: &Attributes,
        tell: impl FnOnce(BorrowedFd<'_>) -> std::io::Result<BackingId>,
    ) -> Way {
        if self.what == Passthrough::Off {
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
            let worth = file.collection().is_writable() || attributes.size >= LEAST;
            // The kernel tells nobody when others write to a file that runs with the rights of its owner.
            let worth = worth && attributes.mode & 0o6000 == 0;
            let lent = if worth { file.lend(self.what == Passthrough::Write) } else { None };
            let backing = lent.and_then(|lent| {
                // The file system below may not be one for that.
                let id = tell(lent.file()).ok()?;
                Some(Arc::new(Backing { id, lent }))
            });
            *decided = backing.map_or(Decided::Cached, Decided::Passed);
        }
        match &*decided {
            Decided::Passed(backing) if !file.collection().is_writable() || backing.lent.holds() => {
                Way::Passed(backing.clone())
            }
            Decided::Passed(_) => Way::Direct,
            Decided::Not | Decided::Cached => Way::Cached,
        }
    }

    /// The kernel says that all is over. What is open all the same (somebody has cut the connection) programs go on to write
    /// to: it stays announced, so that the store moves the bytes out of their reach when this process ends.
    pub(crate) fn forsake(&self) {
        let files = std::mem::take(&mut *lock(&self.files));
        for opens in files.into_values() {
            if let Decided::Passed(backing) = &*lock(&opens.decided) {
                std::mem::forget(backing.lent.clone());
            }
        }
    }

    /// It was closed, by one of those who had opened it.
    pub(crate) fn closed(&self, ino: u64) {
        if self.what == Passthrough::Off {
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
