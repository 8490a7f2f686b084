//! A part of a file that nobody changes any more, in the memory of this process.

use std::{
    os::fd::{AsFd, AsRawFd},
    ptr::NonNull,
};

use iov_types::{Error, Result};

/// A mapping for reading. Where the medium fails, whoever reads it gets SIGBUS, as with every mapped file.
pub struct FileMap {
    base: NonNull<u8>,
    mapped: usize,
    /// Where the first byte that was asked for lies, from the base on.
    skip: usize,
    len: usize,
}

// SAFETY: it is read only, and keeps its memory for as long as it lives.
unsafe impl Send for FileMap {}
// SAFETY: as above.
unsafe impl Sync for FileMap {}

fn os(what: &str) -> Error {
    Error::from(std::io::Error::last_os_error()).context(what)
}

impl FileMap {
    /// Maps at most `len` bytes from `offset` on, as far as the file reaches; `None`: nothing is there. The file must not become
    /// shorter for as long as the mapping lives, or reading it ends the program.
    pub fn map(file: impl AsFd, offset: u64, len: u64) -> Result<Option<FileMap>> {
        let file = file.as_fd();
        // SAFETY: an all-zero `stat` is a valid one to be overwritten.
        let mut stat: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: a live descriptor and a live `stat`.
        if unsafe { libc::fstat(file.as_raw_fd(), &mut stat) } != 0 {
            return Err(os("mapping a file"));
        }
        let len = (stat.st_size as u64).saturating_sub(offset).min(len) as usize;
        if len == 0 {
            return Ok(None);
        }
        // SAFETY: it takes no pointer.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.max(1) as u64;
        let skip = (offset % page) as usize;
        let mapped = skip + len;
        let (protection, flags) = (libc::PROT_READ, libc::MAP_SHARED);
        // SAFETY: a mapping of its own, wherever there is room.
        let base = unsafe {
            libc::mmap(std::ptr::null_mut(), mapped, protection, flags, file.as_raw_fd(), (offset - skip as u64) as i64)
        };
        let base = NonNull::new(base.cast::<u8>()).filter(|_| base != libc::MAP_FAILED);
        let base = base.ok_or_else(|| os("mapping a file"))?;
        Ok(Some(FileMap { base, mapped, skip, len }))
    }

    /// The first byte that was asked for.
    pub fn address(&self) -> *const u8 {
        self.base.as_ptr().wrapping_add(self.skip)
    }

    /// Bytes from there on.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Never: what is empty is not mapped.
    pub fn is_empty(&self) -> bool {
        false
    }
}

impl Drop for FileMap {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nobody has it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.mapped) };
    }
}
