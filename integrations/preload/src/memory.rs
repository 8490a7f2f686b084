//! Memory that a program hands over: whether it has it. The kernel says of a wrong address that it is one (`EFAULT`); who only uses it ends
//! the program.
//!
//! The kernel is asked once for each page, and a few pages are remembered by each thread: programs use the same ones again and again. A
//! page that is unmapped after that, and used all the same, still ends the program.

use std::{
    cell::Cell,
    ffi::{c_char, c_int, c_void},
};

use iov_posix::{Errno, Outcome};

use crate::raw::{failed, kernel};

/// Bytes of a page, at least.
const PAGE: usize = 4096;
/// Pages that a thread remembers.
const KNOWN: usize = 64;
/// Longest text that is looked at: a path has fewer bytes, and one that has as many is refused.
const TEXT: usize = 2 * PAGE;

const EFAULT: Errno = Errno(libc::EFAULT);

thread_local! {
    /// Numbers of pages, twice; one more: they may be written. Each at a place that its number says; none is `usize::MAX`.
    static PAGES: [Cell<usize>; KNOWN] = const { [const { Cell::new(usize::MAX) }; KNOWN] };
}

/// What somebody wants of memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// Bytes are taken from it.
    Read,
    /// Bytes are put into it.
    Write,
}

/// Has the kernel read eight bytes, and do nothing with them: as a mask of signals, with which nothing is to be done that it knows.
fn may_read(at: usize) -> bool {
    const NOTHING: c_int = -1;
    kernel!(libc::SYS_rt_sigprocmask, NOTHING, at & !7, 0, 8) != failed(EFAULT)
}

/// Has the kernel write four bytes as they are, at once: whatever another thread writes there stays.
fn may_write(at: usize) -> bool {
    // `*at |= 0`. Somebody may be woken who waits there, as anybody who waits for such a word may be at any time.
    const OR_NOTHING: u32 = (2 << 28) | (2 << 24) | 0x800;
    let (at, op) = (at & !3, libc::FUTEX_WAKE_OP | libc::FUTEX_PRIVATE_FLAG);
    kernel!(libc::SYS_futex, at, op, 0, 0, at, OR_NOTHING) != failed(EFAULT)
}

/// Whether the page of an address can be used so.
fn may_use(at: usize, how: Use) -> bool {
    let page = at / PAGE;
    // Nobody has the first one, and its beginning would be none to the calls below.
    if page == 0 {
        return false;
    }
    let known = page * 2 + usize::from(how == Use::Write);
    PAGES.with(|pages| {
        let place = &pages[(page ^ (page / KNOWN)) % KNOWN];
        if place.get() == known || (how == Use::Read && place.get() == known + 1) {
            return true;
        }
        let may = match how {
            Use::Read => may_read(at),
            Use::Write => may_write(at),
        };
        if may {
            place.set(known);
        }
        may
    })
}

/// `EFAULT`: a program has no such memory at its beginning, or at its end where bytes are taken from it. What is put there may be less
/// than there is said to be room for.
pub(crate) fn check(at: *const c_void, len: usize, how: Use) -> Outcome<()> {
    if len == 0 {
        return Ok(());
    }
    let (first, last) = (at as usize, (at as usize).checked_add(len - 1).ok_or(EFAULT)?);
    let ends = how == Use::Write || last / PAGE == first / PAGE || may_use(last, how);
    if may_use(first, how) && ends { Ok(()) } else { Err(EFAULT) }
}

/// A structure that a program gives; `EFAULT`: it does not.
pub(crate) fn given<T: Copy>(at: *const T) -> Outcome<T> {
    check(at.cast(), size_of::<T>(), Use::Read)?;
    // SAFETY: it can be read; what programs give to the calls that ask for one is one, wherever it lies.
    Ok(unsafe { at.read_unaligned() })
}

/// Puts a structure where a program wants it; `EFAULT`: it has no room there.
pub(crate) fn give<T: Copy>(at: *mut T, value: T) -> Outcome<()> {
    room(at.cast(), size_of::<T>())?;
    // SAFETY: all of it can be written, and is the program's for this call.
    unsafe { at.write_unaligned(value) };
    Ok(())
}

/// Puts bytes where a program wants them; `EFAULT`: it has no room there.
pub(crate) fn give_bytes(at: *mut c_void, bytes: &[u8]) -> Outcome<()> {
    room(at, bytes.len())?;
    // SAFETY: it can be written at both ends, and is the program's for this call.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), at.cast(), bytes.len()) };
    Ok(())
}

/// Room of which all is used.
fn room(at: *mut c_void, len: usize) -> Outcome<()> {
    check(at, len, Use::Write)?;
    match len {
        0 => Ok(()),
        _ => check(at.wrapping_byte_add(len - 1), 1, Use::Write),
    }
}

/// The bytes of a text that ends with NUL; none: there is no such text. One that is longer than a path can be is cut.
pub(crate) fn text<'a>(at: *const c_char) -> Option<&'a [u8]> {
    text_of(at, TEXT)
}

/// The same of other lengths.
pub(crate) fn text_of<'a>(at: *const c_char, most: usize) -> Option<&'a [u8]> {
    let (start, mut len) = (at as usize, 0);
    while len < most {
        let next = start.checked_add(len).filter(|next| may_use(*next, Use::Read))?;
        let rest = PAGE - next % PAGE;
        // SAFETY: the page can be read, and is to its end.
        let end = unsafe { libc::memchr(next as *const c_void, 0, rest) };
        if !end.is_null() {
            len = end as usize - start;
            break;
        }
        len += rest;
    }
    // SAFETY: these bytes were just read, and the program keeps them for the call.
    Some(unsafe { std::slice::from_raw_parts(at.cast(), len) })
}
