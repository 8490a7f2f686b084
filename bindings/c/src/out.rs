//! Where results go: the out-arguments of a call, checked on the way in, written when the result is there.

use std::ffi::{c_char, c_void};

use ioverbs::{Error, Result};

use crate::{
    abi::CStruct,
    arg::{check_pointer, check_size, stride_of},
};

/// `T *` of a plain value: a number, a pointer, a handle.
#[repr(transparent)]
pub struct Out<T>(*mut T);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Out<T> {}

// SAFETY: the place is lent to the library until the request has completed (rule 1), and one thread at a time uses it.
unsafe impl<T> Send for Out<T> {}

impl<T> Out<T> {
    /// # Safety
    /// `p` must be NULL or lead to memory for a `T` that is the library's until the request has completed.
    pub unsafe fn new(p: *mut T) -> Self {
        Out(p)
    }

    /// Fails if it is NULL or misaligned.
    pub(crate) fn required(self, what: &str) -> Result<Self> {
        check_pointer(self.0, what)?;
        Ok(self)
    }

    /// Fails if it is misaligned; NULL means that the program does not want it.
    pub(crate) fn optional(self, what: &str) -> Result<Self> {
        if self.0.is_null() { Ok(self) } else { self.required(what) }
    }

    /// What is there now: for numbers that are read and written.
    pub(crate) fn read(self) -> T
    where
        T: Copy + Default,
    {
        // SAFETY: aligned and readable, by `required` and the promise of the caller.
        if self.0.is_null() { T::default() } else { unsafe { self.0.read() } }
    }

    /// Writes the result, unless the program does not want it.
    pub(crate) fn write(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: aligned and writable, by `required` or `optional` and the promise of the caller.
            unsafe { self.0.write(value) };
        }
    }

    /// Writes the elements of an array.
    pub(crate) fn write_items(self, values: impl Iterator<Item = T>, max: usize) -> usize {
        let mut n = 0;
        for value in values.take(max) {
            // SAFETY: the array has `max` elements by the promise of the caller, and `n` is smaller.
            unsafe { self.0.add(n).write(value) };
            n += 1;
        }
        n
    }
}

/// `T *` of a struct that begins with `size`, or an array of them.
#[repr(transparent)]
pub struct OutStruct<T>(*mut T);

impl<T> Clone for OutStruct<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for OutStruct<T> {}

impl<T: CStruct> OutStruct<T> {
    /// # Safety
    /// `p` must be NULL or lead to a struct that is the library's until the request has completed.
    pub unsafe fn new(p: *mut T) -> Self {
        OutStruct(p)
    }

    /// The place of a result; fails if it is NULL or its size makes no sense.
    pub(crate) fn place(self) -> Result<OutPlace<T>> {
        let size = stride_of(self.0)?;
        Ok(OutPlace { p: self.0, size })
    }

    /// The place of a result in a struct whose size the call says, and which is not initialised yet.
    pub(crate) fn place_of(self, size: usize) -> Result<OutPlace<T>> {
        check_pointer(self.0, T::NAME)?;
        check_size::<T>(size)?;
        Ok(OutPlace { p: self.0, size })
    }

    /// What is there now: for structs that are read and written.
    pub(crate) fn read(&self) -> Result<T> {
        crate::arg::copy_in(self.0)?.ok_or_else(|| Error::invalid(format!("{} is NULL", T::NAME)))
    }
}

/// Where a struct, or an array of them, is to be written.
pub(crate) struct OutPlace<T> {
    p: *mut T,
    size: usize,
}

// SAFETY: as for `Out`.
unsafe impl<T> Send for OutPlace<T> {}

impl<T: CStruct> OutPlace<T> {
    /// Whether everything that is set in the result fits into the program's struct.
    pub(crate) fn holds(&self, value: &T) -> bool {
        let known = self.size.min(size_of::<T>());
        // SAFETY: `value` is a live struct without padding that was not written: `CStruct` values begin as zeros.
        let bytes = unsafe { std::slice::from_raw_parts((&raw const *value).cast::<u8>(), size_of::<T>()) };
        bytes[known..].iter().all(|b| *b == 0)
    }

    /// Writes the result, as much of it as the program knows; what it knows beyond becomes zero.
    pub(crate) fn write(&self, value: T) {
        self.write_at(0, value);
    }

    /// Writes element `i` of an array; the stride is the size of the first.
    pub(crate) fn write_at(&self, i: usize, value: T) {
        let known = self.size.min(size_of::<T>());
        // SAFETY: the caller has arrays of `size` bytes each; `value` is as long as `known`; neither overlaps.
        unsafe {
            let to = self.p.cast::<u8>().add(i * self.size);
            std::ptr::copy_nonoverlapping((&raw const value).cast::<u8>(), to, known);
            to.add(known).write_bytes(0, self.size - known);
            // The size stays the program's; elements behind the first get it.
            to.cast::<u32>().write_unaligned(self.size as u32);
        }
    }
}

/// `char *` or `void *` with its capacity, and where the size that is needed goes.
pub(crate) struct OutBuffer {
    pub(crate) memory: crate::arg::BytesMut,
    pub(crate) cap: usize,
    pub(crate) needed: Out<usize>,
}

impl OutBuffer {
    /// Writes all of it, or says how much room it needs.
    pub(crate) fn write(self, bytes: &[u8], what: &str) -> Result<()> {
        let needed = self.needed.optional("needed")?;
        // Checks the buffer also where nothing fits, so that a wrong one shows at once.
        self.memory.fill(self.cap, &[])?;
        needed.write(bytes.len());
        if bytes.len() > self.cap {
            let why = format!("{what} needs {} bytes, the buffer has {}", bytes.len(), self.cap);
            return Err(Error::too_big(why));
        }
        self.memory.fill(self.cap, bytes)
    }

    /// The same for a text, which gets its NUL.
    pub(crate) fn write_text(self, text: &str, what: &str) -> Result<()> {
        let mut bytes = text.as_bytes().to_vec();
        bytes.push(0);
        self.write(&bytes, what)
    }
}

/// A pointer that a program reads: text or opaque.
pub(crate) type CText = *const c_char;
/// Memory of the program or for it.
pub(crate) type CMemory = *mut c_void;
