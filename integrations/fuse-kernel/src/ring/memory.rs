//! The memory of a place, which is the kernel's while it waits for a request and ours while we answer.
#![allow(unsafe_code)]

use std::{io::Result, ptr};

use io_uring::squeue;
use rustix::mm::{MapFlags, ProtFlags};

use crate::{abi::RING_HEADER, handshake::REQUEST};

/// Where the bytes begin, behind the header and the places of both.
const PAYLOAD: usize = 4096;
const ALL: usize = PAYLOAD + REQUEST;
/// Where the places of both stand: `struct iovec[2]`.
const AREAS: usize = 1024;

/// The length of an entry of the ring, and where in it the number of areas stands (`struct io_uring_sqe`).
const ENTRY: usize = 128;
const ENTRY_LEN: usize = 24;

/// A header and room for the bytes of a request or an answer.
pub(super) struct Memory {
    at: *mut u8,
    is_gone: bool,
}

// SAFETY: it is memory that only this value leads to.
unsafe impl Send for Memory {}

impl Memory {
    pub(super) fn new() -> Result<Memory> {
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: new memory, at no place that anything has. Pages of it come into being when they are used.
        let at = unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), ALL, protection, flags) }?.cast::<u8>();
        let areas = [(at as usize, RING_HEADER), (at as usize + PAYLOAD, REQUEST)];
        // SAFETY: it is within the memory, which is aligned for it.
        unsafe { at.add(AREAS).cast::<[(usize, usize); 2]>().write(areas) };
        Ok(Memory { at, is_gone: false })
    }

    /// Where the kernel finds the two areas.
    pub(super) fn areas(&self) -> u64 {
        self.at as u64 + AREAS as u64
    }

    /// From now on the kernel may write here.
    pub(super) fn gone(&mut self) {
        self.is_gone = true;
    }

    /// The kernel has given it back.
    pub(super) fn back(&mut self) {
        self.is_gone = false;
    }

    /// `fuse_uring_req_header`.
    pub(super) fn header(&mut self) -> &mut [u8; RING_HEADER] {
        assert!(!self.is_gone, "the memory of a request that is answered is used");
        // SAFETY: the kernel does not use it, and the borrow is the only one.
        unsafe { &mut *self.at.cast::<[u8; RING_HEADER]>() }
    }

    /// What follows the structure of a request, or the whole answer.
    pub(super) fn payload(&mut self) -> &mut [u8] {
        assert!(!self.is_gone, "the memory of a request that is answered is used");
        // SAFETY: the kernel does not use it, and the borrow is the only one.
        unsafe { std::slice::from_raw_parts_mut(self.at.add(PAYLOAD), REQUEST) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // What the kernel may still write to stays.
        if !self.is_gone {
            // SAFETY: nothing refers to it any more.
            let _ = unsafe { rustix::mm::munmap(self.at.cast(), ALL) };
        }
    }
}

/// An entry that says that its address leads to two areas, for which the library has no way.
pub(super) fn with_areas(mut entry: squeue::Entry128) -> squeue::Entry128 {
    const { assert!(size_of::<squeue::Entry128>() == ENTRY) };
    // SAFETY: an entry is the 128 bytes that the kernel reads, in which this number stands there.
    unsafe { (&raw mut entry).cast::<u8>().add(ENTRY_LEN).cast::<u32>().write_unaligned(2) };
    entry
}
