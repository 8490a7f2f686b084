//! The list of all streams of the C library, which it takes when it flushes them all, and when it forks.

use std::{
    mem::transmute,
    sync::atomic::{AtomicUsize, Ordering},
};

use crate::patch::address;

/// Functions of the C library that take the list, for a thread as often as it likes, let go of it, and make it nobody's in a copy of the process.
static TAKE: AtomicUsize = AtomicUsize::new(0);
static LET_GO: AtomicUsize = AtomicUsize::new(0);
static RESET: AtomicUsize = AtomicUsize::new(0);
/// Where the C library says that there has been one thread only; 0: it does not.
static SINGLE: AtomicUsize = AtomicUsize::new(0);

/// Finds them. Where there are none, nobody is waited for.
pub(crate) fn learn() {
    let names = [c"_IO_list_lock", c"_IO_list_unlock", c"_IO_list_resetlock"].map(|name| address(name) as usize);
    if !names.contains(&0) {
        for (place, at) in [&TAKE, &LET_GO, &RESET].into_iter().zip(names) {
            place.store(at, Ordering::Relaxed);
        }
        SINGLE.store(address(c"__libc_single_threaded") as usize, Ordering::Relaxed);
    }
}

fn call(place: &AtomicUsize) {
    let at = place.load(Ordering::Relaxed);
    if at != 0 {
        // SAFETY: it is a function of the C library, which takes nothing.
        unsafe { transmute::<usize, extern "C" fn()>(at)() };
    }
}

pub(super) fn hold() {
    call(&TAKE);
}

pub(super) fn let_go() {
    call(&LET_GO);
}

/// In a copy of the process whose parent has taken it.
pub(super) fn begin_anew() {
    let single = SINGLE.load(Ordering::Relaxed) as *const u8;
    // SAFETY: it is a byte of the C library.
    let is_single = !single.is_null() && unsafe { single.read_volatile() } != 0;
    // Where there were more, the C library has done that in its own forks, too. Else the thread itself may have it, which a handler of a signal has interrupted.
    call(if is_single { &LET_GO } else { &RESET });
}
