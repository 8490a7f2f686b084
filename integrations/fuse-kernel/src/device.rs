//! `/dev/fuse`: requests, answers and what the kernel is told by calls of the system.

use std::{
    io::{Error, ErrorKind, Result},
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

use rustix::{
    io::{Errno, IoSlice},
    ioctl::{Setter, ioctl},
};

use crate::{
    abi::{BACKING_CLOSE, BACKING_OPEN, NOTIFY_INVAL_INODE, OUT_HEADER},
    fields::Writer,
};

/// The kernel, as a file system tells it something of its own accord. Clones are of the same mount.
#[derive(Clone)]
pub struct Kernel(pub(crate) Arc<OwnedFd>);

/// `fuse_backing_map`.
#[repr(C)]
struct BackingMap {
    fd: i32,
    flags: u32,
    padding: u64,
}

impl Kernel {
    /// What the kernel has cached of a file is not good any more: its attributes, and its bytes. May wait for requests on that file
    /// that are under way.
    pub fn forget_content(&self, node: u64) -> Result<()> {
        self.forget_bytes(node, 0, 0)
    }

    /// The same of its attributes and so many bytes at an offset, by whole pages; 0: all behind it.
    pub fn forget_bytes(&self, node: u64, offset: u64, len: u64) -> Result<()> {
        let mut body = [0; 24];
        Writer::new(&mut body).u64(node).u64(offset).u64(len);
        self.send(0, NOTIFY_INVAL_INODE, &body)
    }

    /// The same of its attributes alone; waits for nothing.
    pub fn forget_attributes(&self, node: u64) -> Result<()> {
        self.forget_bytes(node, u64::MAX, 0)
    }

    /// Gives the kernel a file through which it is to move bytes by itself (`FUSE_PASSTHROUGH`).
    #[allow(unsafe_code)]
    pub fn lend(&self, file: BorrowedFd<'_>) -> Result<Backing> {
        let map = BackingMap { fd: file.as_raw_fd(), flags: 0, padding: 0 };
        // SAFETY: the number is of this call, which reads the structure above and keeps nothing of it.
        let request = unsafe { Setter::<BACKING_OPEN, BackingMap>::new(map) };
        // `Setter` drops what the call returns, which is the number that is wanted.
        // SAFETY: as above.
        let id = unsafe { ioctl(&*self.0, Numbered(request)) }?;
        Ok(Backing { kernel: self.clone(), id })
    }

    /// The next request, into the room; `None`: there will be none.
    pub(crate) fn receive(&self, room: &mut [u8]) -> Result<Option<usize>> {
        loop {
            match rustix::io::read(&*self.0, &mut *room) {
                Ok(len) => return Ok(Some(len)),
                // Who made the request does not wait for it any more.
                Err(Errno::INTR | Errno::AGAIN | Errno::NOENT) => {}
                Err(Errno::NODEV | Errno::CONNABORTED) => return Ok(None),
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// Answers a request, or tells something (`unique` 0): a number of an error or of what is told, and bytes.
    pub(crate) fn send(&self, unique: u64, code: i32, body: &[u8]) -> Result<()> {
        let mut header = [0; OUT_HEADER];
        let len = OUT_HEADER + body.len();
        Writer::new(&mut header).u32(len as u32).u32(code as u32).u64(unique);
        match rustix::io::writev(&*self.0, &[IoSlice::new(&header), IoSlice::new(body)]) {
            Ok(n) if n == len => Ok(()),
            Ok(_) => Err(Error::new(ErrorKind::WriteZero, "the kernel took a part of an answer")),
            Err(e) => Err(e.into()),
        }
    }
}

impl AsFd for Kernel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A call that is told something and answers with a number.
struct Numbered(Setter<BACKING_OPEN, BackingMap>);

// SAFETY: all but the number that it answers with is as with `Setter`.
#[allow(unsafe_code)]
unsafe impl rustix::ioctl::Ioctl for Numbered {
    type Output = i32;
    const IS_MUTATING: bool = false;

    fn opcode(&self) -> rustix::ioctl::Opcode {
        self.0.opcode()
    }

    fn as_ptr(&mut self) -> *mut std::ffi::c_void {
        self.0.as_ptr()
    }

    unsafe fn output_from_ptr(
        out: rustix::ioctl::IoctlOutput,
        _: *mut std::ffi::c_void,
    ) -> rustix::io::Result<Self::Output> {
        Ok(out)
    }
}

/// A file that the kernel has been lent; dropped, it is taken back, and those who have it open through it keep it.
pub struct Backing {
    kernel: Kernel,
    id: i32,
}

impl Backing {
    /// The number for [`Opened::backing`](crate::Opened::backing).
    pub fn id(&self) -> i32 {
        self.id
    }
}

impl Drop for Backing {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: the number is of this call, which reads the four bytes of the other.
        let request = unsafe { Setter::<BACKING_CLOSE, u32>::new(self.id as u32) };
        // SAFETY: as above. What the kernel does not know it need not give back.
        let _ = unsafe { ioctl(&*self.kernel.0, request) };
    }
}
