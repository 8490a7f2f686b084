//! Memory that a caller lends to an operation until its evidence has arrived.

use std::ptr::NonNull;

/// A stretch of somebody's memory, writable or not. Empty by default.
///
/// It is a promise, not a borrow: whoever makes one answers for its validity until the operation has completed
/// (rule 1 of `ioverbs.h`), which no lifetime can express across a C ABI.
#[derive(Debug)]
pub struct Memory {
    ptr: NonNull<u8>,
    len: usize,
    writable: bool,
}

// SAFETY: a `Memory` is used by one operation at a time, and its maker has promised that the bytes stay valid and are not
// touched by others in a conflicting way until the operation has completed, from whatever thread.
unsafe impl Send for Memory {}

impl Default for Memory {
    fn default() -> Self {
        Memory { ptr: NonNull::dangling(), len: 0, writable: false }
    }
}

impl Memory {
    /// Memory to write into.
    ///
    /// # Safety
    /// `ptr` must be valid for reads and writes of `len` bytes until the operation it goes to has completed.
    pub unsafe fn writable(ptr: *mut u8, len: usize) -> Memory {
        Memory { ptr: NonNull::new(ptr).unwrap_or(NonNull::dangling()), len, writable: true }
    }

    /// Memory to read from.
    ///
    /// # Safety
    /// `ptr` must be valid for reads of `len` bytes until the operation it goes to has completed.
    pub unsafe fn readable(ptr: *const u8, len: usize) -> Memory {
        Memory { ptr: NonNull::new(ptr.cast_mut()).unwrap_or(NonNull::dangling()), len, writable: false }
    }

    /// Bytes that stay valid for ever, to read from.
    pub fn constant(bytes: &'static [u8]) -> Memory {
        Memory { ptr: NonNull::from(bytes).cast(), len: bytes.len(), writable: false }
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes to store.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: promised by the maker; see the type.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }

    /// The bytes to fill; empty if the memory was lent for reading only.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let len = if self.writable { self.len } else { 0 };
        // SAFETY: promised by the maker; see the type.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), len) }
    }

    /// A part of it, as a loan of its own. The caller must not let two writable parts overlap.
    pub fn part(&self, from: usize, len: usize) -> Memory {
        assert!(from.checked_add(len).is_some_and(|end| end <= self.len), "part {from}+{len} of {} bytes", self.len);
        // SAFETY: inside the allocation by the assertion.
        Memory { ptr: unsafe { self.ptr.add(from) }, len, writable: self.writable }
    }
}
