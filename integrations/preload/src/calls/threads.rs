//! Stacks of threads. What is done here on a program's thread needs more of it than a call of the kernel, and some threads have hardly any: those that
//! the C library makes for asynchronous I/O (`aio_read`), and those of programs that ask for little.

use std::{
    ffi::{c_int, c_void},
    sync::atomic::{AtomicUsize, Ordering},
};

use crate::patch::address;

/// Bytes that may be needed here, of which only what is used takes up memory. Most that was seen: 20 KiB, and 65 KiB in a build that is not optimized.
const ROOM: usize = 256 << 10;

/// Bytes of a stack that the C library takes for the least, of itself.
static LEAST: AtomicUsize = AtomicUsize::new(0);

type LeastStack = unsafe extern "C" fn(*const c_void) -> usize;

/// Asks the C library, as long as its own function is there.
pub(crate) fn learn() {
    let own = address(c"__pthread_get_minstack");
    if own.is_null() {
        return;
    }
    // SAFETY: it is the function of this name, which does not look at the attributes that it is given.
    let least = unsafe {
        let own: LeastStack = std::mem::transmute(own);
        own(std::ptr::null())
    };
    LEAST.store(least, Ordering::Relaxed);
}

/// What the C library asks for the least stack of its own threads.
pub(crate) extern "C" fn least_stack(_attributes: *const c_void) -> usize {
    LEAST.load(Ordering::Relaxed) + ROOM
}

/// `pthread_attr_setstacksize(3)`
///
/// # Safety
/// As the function that it stands for.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pthread_attr_setstacksize(attributes: *mut c_void, size: usize) -> c_int {
    let own = address(c"pthread_attr_setstacksize");
    if own.is_null() {
        return libc::ENOSYS;
    }
    // As wrong as the program has it, or more than it asked for.
    let size = if size < libc::PTHREAD_STACK_MIN { size } else { size.saturating_add(ROOM) };
    // SAFETY: it is the function of this name, and the program gives it so.
    unsafe {
        let own: unsafe extern "C" fn(*mut c_void, usize) -> c_int = std::mem::transmute(own);
        own(attributes, size)
    }
}
