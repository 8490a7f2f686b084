//! Structs that begin with `size`: older and newer programs may have shorter and longer ones.

use ioverbs::{Error, Result, limits};

use super::check_pointer;
use crate::abi::CStruct;

/// No struct of the header will ever be as large; a larger size is an uninitialised field.
const MAX: usize = 4096;

/// `const T *` of a struct that begins with `size`; NULL where the header allows it.
#[repr(transparent)]
pub struct In<T>(*const T);

impl<T: CStruct> In<T> {
    /// # Safety
    /// `p` must be what the C parameter demands; see the module.
    pub unsafe fn new(p: *const T) -> Self {
        In(p)
    }

    /// A copy of it, fields that it does not have zero; `None` for NULL.
    pub(crate) fn read(&self) -> Result<Option<T>> {
        copy_in(self.0)
    }

    /// The same, where NULL is not allowed.
    pub(crate) fn required(&self) -> Result<T> {
        self.read()?.ok_or_else(|| Error::invalid(format!("{} is NULL", T::NAME)))
    }
}

/// `const T *` of an array of such structs, with a count beside it; the size of the first is the stride of all.
#[repr(transparent)]
pub struct StructArray<T>(*const T);

impl<T: CStruct> StructArray<T> {
    /// # Safety
    /// `p` must be what the C parameter demands; see the module.
    pub unsafe fn new(p: *const T) -> Self {
        StructArray(p)
    }

    /// Copies of its elements.
    pub(crate) fn items(&self, n: usize) -> Result<Vec<T>> {
        if n == 0 {
            return Ok(Vec::new());
        }
        if n > limits::BATCH_OPS {
            let why = format!("{n} elements of {}, at most {} are taken", T::NAME, limits::BATCH_OPS);
            return Err(Error::too_big(why));
        }
        let stride = stride_of(self.0)?;
        // SAFETY: the array has `n` elements of `stride` bytes by the promise of the caller.
        (0..n).map(|i| copy_sized(unsafe { self.0.byte_add(i * stride) }, stride)).collect()
    }
}

/// The size that a struct says it has, if that makes sense.
pub(crate) fn stride_of<T: CStruct>(p: *const T) -> Result<usize> {
    check_pointer(p, T::NAME)?;
    // SAFETY: not NULL, aligned, and the first four bytes are its size by the promise of the caller.
    let size = unsafe { p.cast::<u32>().read() } as usize;
    check_size::<T>(size)?;
    Ok(size)
}

/// Whether a struct may have this size.
pub(crate) fn check_size<T: CStruct>(size: usize) -> Result<()> {
    // Every struct is a number of 8-byte words, and no field lies in two of them: a part of a field is never read.
    if (T::MIN..=MAX).contains(&size) && size.is_multiple_of(8) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "{}.size is {size}: start from the IOV_*_INIT of that struct; this library knows {} bytes",
        T::NAME,
        size_of::<T>()
    )))
}

/// A copy of a struct of the caller; `None` for NULL.
pub(crate) fn copy_in<T: CStruct>(p: *const T) -> Result<Option<T>> {
    if p.is_null() {
        return Ok(None);
    }
    copy_sized(p, stride_of(p)?).map(Some)
}

fn copy_sized<T: CStruct>(p: *const T, size: usize) -> Result<T> {
    let known = size.min(size_of::<T>());
    // SAFETY: all zero is a valid `CStruct`.
    let mut value: T = unsafe { std::mem::zeroed() };
    // SAFETY: the caller has `size` bytes there, `value` has at least `known`, and they do not overlap.
    unsafe { std::ptr::copy_nonoverlapping(p.cast::<u8>(), (&raw mut value).cast::<u8>(), known) };
    // SAFETY: the bytes from `known` to `size` belong to the caller's struct.
    let beyond = unsafe { std::slice::from_raw_parts(p.cast::<u8>().add(known), size - known) };
    if let Some(at) = beyond.iter().position(|b| *b != 0) {
        return Err(Error::version(format!(
            "{}: byte {} is set, but this library knows {known} bytes of it: update the library, or leave the new fields zero",
            T::NAME,
            known + at
        )));
    }
    Ok(value)
}

/// Reserved fields that must be zero.
pub(crate) fn reserved(name: &str, bytes: &[u8]) -> Result<()> {
    if bytes.iter().any(|b| *b != 0) {
        return Err(Error::invalid(format!("{name}: a reserved field is not zero; start from IOV_*_INIT")));
    }
    Ok(())
}
