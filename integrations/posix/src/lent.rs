//! The file below a file, lent to those who move its bytes by themselves: the kernel, for programs that have it open.

use std::{os::fd::BorrowedFd, sync::Arc};

use ioverbs::{Concurrency, Kind, LentFile, Mutability};

use crate::{File, Outcome, handle::Handle};

/// A file that is lent to be written. It stays open for as long as this lives.
pub struct LentToWrite {
    handle: Arc<Handle>,
    lent: Arc<dyn LentFile>,
}

impl std::fmt::Debug for LentToWrite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a file lent to be written")
    }
}

impl File {
    /// Whether nobody else can have it open (`concurrency=exclusive`).
    pub fn is_exclusive(&self) -> bool {
        let effective = self.joined().and_then(|handle| handle.c.effective().ok());
        effective.is_some_and(|effective| effective.concurrency == Concurrency::Exclusive)
    }

    /// Whether the store takes it for left behind where this process ends without closing it: it is immutable, and may still be written.
    pub fn may_be_left(&self) -> bool {
        let writable = self.joined().filter(|handle| handle.c.is_writable());
        let effective = writable.and_then(|handle| handle.c.effective().ok());
        effective.is_some_and(|effective| effective.mutability == Mutability::Immutable)
    }

    /// The file in which the bytes lie, each at its own offset, if it is sealed and there is one that may be lent.
    pub fn lend(&self) -> Option<Arc<dyn LentFile>> {
        // What is opened later lies in no file.
        let c = &self.joined()?.c;
        if c.is_writable() { None } else { c.lend_file().ok() }
    }

    /// The same for writing, if it is held exclusively (`concurrency=exclusive`), until [`LentToWrite::end`]. Nobody has to tell of
    /// what is written there.
    pub fn lend_to_write(&self) -> Option<LentToWrite> {
        let handle = self.joined()?;
        let c = &handle.c;
        if !c.is_writable() || !self.is_exclusive() || self.settle().is_err() {
            return None;
        }
        let lent = c.lend_file_to_write().ok()?;
        self.writes();
        Some(LentToWrite { handle: handle.clone(), lent })
    }
}

impl LentToWrite {
    /// The file.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.lent.file()
    }

    /// Whether it is that of this open file, which may have been opened again since, and still counts: once the hold has passed on,
    /// nobody reads what is written to it.
    pub fn is_of(&self, file: &File) -> bool {
        file.joined().is_some_and(|handle| Arc::ptr_eq(&self.handle, handle)) && self.lent.holds()
    }

    /// Takes it back. `false`: some process still has it open or mapped for writing. Nobody may be given it from the call on, unless
    /// it says so; an error leaves that open, as the store does not answer.
    pub fn end(&self) -> Outcome<bool> {
        match self.handle.c.take_back_file(&*self.lent) {
            Err(e) if e.kind() == Kind::Busy => Ok(false),
            Err(e) if matches!(e.kind(), Kind::Unavailable | Kind::Timeout | Kind::Exhausted) => {
                Err(self.handle.file_system().errno("close", &e))
            }
            // If there is nothing any more that was lent, it is over as well.
            _ => Ok(true),
        }
    }
}
