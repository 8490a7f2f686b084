//! The file below a file, lent to those who move its bytes by themselves: the kernel, for programs that have it open.

use std::sync::{Arc, Weak};

use ioverbs::LentFile;

use crate::{Errno, File, Outcome, fs::lock, handle::Handle};

impl File {
    /// The file in which the bytes lie, each at its own offset, if there is one that may be lent: for reading where it is sealed; with
    /// `write`, for both where this file system alone has it, to be overwritten. Everybody in the file system who has it open is to
    /// use it then, and whoever does not still reads and writes the same bytes.
    ///
    /// What is written through it is published when the file is closed, as everything is. Should the store have taken the bytes
    /// back meanwhile, `fsync` and `close` say `EIO`.
    pub fn lend(&self, write: bool) -> Option<Arc<dyn LentFile>> {
        let handle = &self.handle;
        if !handle.c.is_writable() {
            return handle.c.lend_file(false).ok();
        }
        if !write || self.settle().is_err() {
            return None;
        }
        let lent = handle.c.lend_file(true).ok()?;
        *lock(&handle.lent) = Some(Arc::downgrade(&lent));
        Some(lent)
    }

    /// Whether what was written through the file that [`File::lend`] has lent is there; `EIO` if the store has taken it back.
    pub fn check_lent(&self) -> Outcome<()> {
        self.handle.check_lent()
    }

    /// Appends where others may write by themselves: nobody is beside this file system, and the store's own appends would take
    /// the file back.
    pub(crate) fn append_beside(&self, data: &[u8]) -> Option<Outcome<()>> {
        let lent = self.handle.lent_for_writing()?;
        // One after the other; those of the kernel go to the end by themselves.
        let _one = lock(&self.handle.appends);
        let done = self.size().and_then(|size| self.write_at(size, data).map(drop));
        Some(done.and_then(|()| if lent.holds() { Ok(()) } else { Err(Errno::EIO) }))
    }
}

impl Handle {
    /// The file, while others may write to it.
    pub(crate) fn lent_for_writing(&self) -> Option<Arc<dyn LentFile>> {
        lock(&self.lent).as_ref().and_then(Weak::upgrade)
    }

    /// Whether what others have written through the file that was lent to them is there.
    pub(crate) fn check_lent(&self) -> Outcome<()> {
        match self.lent_for_writing() {
            Some(lent) if !lent.holds() => Err(Errno::EIO),
            _ => Ok(()),
        }
    }
}
