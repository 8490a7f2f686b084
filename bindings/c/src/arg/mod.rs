//! What a program passes in: texts, structs, arrays and memory, checked before anything else looks at them.
//!
//! Each type is one pointer wide and stands for a C parameter. Only C code and the `unsafe` constructors make values of
//! them; both promise what `ioverbs.h` demands: a pointer is NULL, or leads to live memory of the stated kind and size,
//! which does not change during the call.

mod structs;
mod text;

use std::ffi::c_void;

use ioverbs::{Error, Memory, Result, limits};

pub use structs::{In, StructArray};
pub(crate) use structs::{check_size, copy_in, reserved, stride_of};
pub use text::Text;
pub(crate) use text::utf8;

/// An array of plain values: `const T *`, with a count beside it.
#[repr(transparent)]
pub struct Array<T>(*const T);

impl<T: Copy> Array<T> {
    /// # Safety
    /// `p` must be what the C parameter demands; see the module.
    pub unsafe fn new(p: *const T) -> Self {
        Array(p)
    }

    /// Its elements.
    pub(crate) fn items(&self, n: usize, what: &str) -> Result<&[T]> {
        if n == 0 {
            return Ok(&[]);
        }
        if n > limits::BATCH_OPS {
            return Err(Error::too_big(format!(
                "{what}: {n} elements, at most {} are taken: split it",
                limits::BATCH_OPS
            )));
        }
        check_pointer(self.0, what)?;
        // SAFETY: not NULL, aligned, and `n` elements by the promise of the caller; `n` is small.
        Ok(unsafe { std::slice::from_raw_parts(self.0, n) })
    }
}

/// Not NULL, and aligned for what it should lead to.
pub(crate) fn check_pointer<T>(p: *const T, what: &str) -> Result<()> {
    if p.is_null() {
        return Err(Error::invalid(format!("{what} is NULL")));
    }
    if !p.is_aligned() {
        return Err(Error::invalid(format!("{what} {p:p} is not aligned to {} bytes", align_of::<T>())));
    }
    Ok(())
}

/// Memory to read from: `const void *`, with a length beside it.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Bytes(*const c_void);

/// Memory to write into: `void *`, with a length beside it.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct BytesMut(*mut c_void);

fn check_memory(p: *const c_void, len: usize) -> Result<()> {
    if len > isize::MAX as usize {
        return Err(Error::invalid(format!("a length of {len} bytes: no memory is that large")));
    }
    if p.is_null() && len > 0 {
        return Err(Error::invalid(format!("the buffer is NULL, its length {len}")));
    }
    Ok(())
}

impl Bytes {
    /// # Safety
    /// `p` must be what the C parameter demands; see the module.
    pub unsafe fn new(p: *const c_void) -> Self {
        Bytes(p)
    }

    /// Lends it to an operation.
    pub(crate) fn lend(self, len: usize) -> Result<Memory> {
        check_memory(self.0, len)?;
        // SAFETY: rule 1: the buffer is lent until the request has completed.
        Ok(unsafe { Memory::readable(self.0.cast(), len) })
    }

    /// Its bytes, for the time of the call.
    pub(crate) fn bytes(&self, len: usize) -> Result<&[u8]> {
        check_memory(self.0, len)?;
        if len == 0 {
            return Ok(&[]);
        }
        // SAFETY: not NULL, and `len` bytes by the promise of the caller.
        Ok(unsafe { std::slice::from_raw_parts(self.0.cast(), len) })
    }

    pub(crate) fn address(self) -> usize {
        self.0 as usize
    }
}

impl BytesMut {
    /// # Safety
    /// `p` must be what the C parameter demands; see the module.
    pub unsafe fn new(p: *mut c_void) -> Self {
        BytesMut(p)
    }

    /// Lends it to an operation.
    pub(crate) fn lend(self, len: usize) -> Result<Memory> {
        check_memory(self.0, len)?;
        // SAFETY: rule 1: the buffer is lent until the request has completed.
        Ok(unsafe { Memory::writable(self.0.cast(), len) })
    }

    /// Copies into it what fits; both lengths are checked against each other by the caller.
    pub(crate) fn fill(self, cap: usize, with: &[u8]) -> Result<()> {
        check_memory(self.0, cap)?;
        let n = with.len().min(cap);
        if n > 0 {
            // SAFETY: not NULL, `cap` writable bytes by the promise of the caller, and `n` is not more.
            unsafe { std::ptr::copy_nonoverlapping(with.as_ptr(), self.0.cast(), n) };
        }
        Ok(())
    }

    pub(crate) fn address(self) -> usize {
        self.0 as usize
    }
}

/// Flags of which all are known.
pub(crate) fn flags(value: u32, known: u32, what: &str) -> Result<u32> {
    if value & !known != 0 {
        return Err(Error::invalid(format!("{what}: unknown flags {:#x}; known are {known:#x}", value & !known)));
    }
    Ok(value)
}
