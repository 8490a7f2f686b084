//! Leases of the file system (`fcntl(2)`, `F_SETLEASE`), by which it tells whether anybody writes to a file.
#![allow(unsafe_code)] // no library wraps them

use std::os::fd::{AsFd, AsRawFd};

use rustix::io::{Errno, Result};

/// Of `asm-generic/fcntl.h`; the library has it for other systems only.
const F_SETSIG: libc::c_int = 10;

fn set(file: &impl AsFd, what: libc::c_int, value: libc::c_int) -> Result<()> {
    // SAFETY: the descriptor lives as long as it is borrowed, and none of these commands takes a pointer.
    match unsafe { libc::fcntl(file.as_fd().as_raw_fd(), what, value) } {
        -1 => Err(std::io::Error::last_os_error().raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error)),
        _ => Ok(()),
    }
}

/// Whether nobody has the file of this descriptor, which is for reading only, open or mapped for writing at this moment: no process
/// of this machine, nor the kernel for one. An error: the file system or the rights of this process do not allow to tell.
pub(crate) fn is_written_by_nobody(file: &impl AsFd) -> Result<bool> {
    // Whoever opens it at the same moment has the lease broken, which is told by a signal: the usual one would end this process,
    // this one is ignored by those who do not wait for it.
    set(file, F_SETSIG, libc::SIGURG)?;
    match set(file, libc::F_SETLEASE, libc::F_RDLCK) {
        Ok(()) => {
            // It ends with the descriptor at the latest.
            let _ = set(file, libc::F_SETLEASE, libc::F_UNLCK);
            Ok(true)
        }
        Err(Errno::AGAIN) => Ok(false),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{File, OpenOptions},
        os::fd::{AsFd, AsRawFd},
    };

    use super::is_written_by_nobody;

    /// A child that another test makes has all files open until it runs its program.
    fn is_soon_written_by_nobody(look: &File) -> bool {
        (0..1000).any(|_| {
            let is_free = is_written_by_nobody(look) == Ok(true);
            if !is_free {
                iov_store::seam::sleep(5_000_000);
            }
            is_free
        })
    }

    #[test]
    fn who_has_a_file_open_or_mapped_for_writing_is_known() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, "bytes").unwrap();
        let look = File::open(&path).unwrap();
        assert!(is_soon_written_by_nobody(&look));
        // Who reads does not matter, and looking changes nothing.
        let _reader = File::open(&path).unwrap();
        assert!(is_soon_written_by_nobody(&look));
        let writer = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        assert_eq!(is_written_by_nobody(&look), Ok(false));
        let flags = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, which is not looked into.
        let at =
            unsafe { libc::mmap(std::ptr::null_mut(), 4096, flags, libc::MAP_SHARED, writer.as_fd().as_raw_fd(), 0) };
        assert_ne!(at, libc::MAP_FAILED);
        drop(writer);
        assert_eq!(is_written_by_nobody(&look), Ok(false), "it is mapped");
        // SAFETY: what was mapped above; nothing refers to it.
        unsafe { libc::munmap(at, 4096) };
        assert!(is_soon_written_by_nobody(&look));
    }
}
