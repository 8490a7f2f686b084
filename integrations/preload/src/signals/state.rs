//! What a thread is doing, as a handler of a signal has to know it.
//!
//! It lies in the memory that each thread has from its beginning on. Where the compiler puts variables of threads by itself, a look at them may allocate once another library
//! has been loaded, and a handler may have interrupted the allocator.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, compiler_fence};

/// See the module. All of it is zero at the beginning, and is this thread's alone; a handler that interrupts it has changed nothing when it returns, but for what was put back.
#[repr(C)]
#[derive(Default)]
pub(super) struct State {
    held: AtomicU32,
    inside: AtomicU32,
    put_back: AtomicU64,
}

#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    ".pushsection .tbss.iov_preload_state,\"awT\",@nobits",
    ".globl iov_preload_state",
    ".hidden iov_preload_state",
    ".type iov_preload_state,@object",
    ".size iov_preload_state,16",
    ".p2align 3",
    "iov_preload_state:",
    ".zero 16",
    ".popsection",
);

/// Does something with that of this thread.
#[cfg(target_arch = "x86_64")]
fn with<T>(work: impl FnOnce(&State) -> T) -> T {
    const { assert!(size_of::<State>() == 16 && align_of::<State>() == 8) };
    let state: *const State;
    // SAFETY: it computes the address of the variable above, as the linker has laid it out (initial exec).
    unsafe {
        std::arch::asm!(
            "mov {0}, qword ptr fs:[0]",
            "add {0}, qword ptr [rip + iov_preload_state@GOTTPOFF]",
            out(reg) state,
            options(pure, readonly, nostack),
        );
    }
    // SAFETY: it is there for as long as the thread, of atomics that are zero at first.
    work(unsafe { &*state })
}

#[cfg(not(target_arch = "x86_64"))]
fn with<T>(work: impl FnOnce(&State) -> T) -> T {
    thread_local! {
        static STATE: State = const {
            State { held: AtomicU32::new(0), inside: AtomicU32::new(0), put_back: AtomicU64::new(0) }
        };
    }
    STATE.with(work)
}

/// How many things the thread does that no handler may interrupt.
pub(super) fn held() -> u32 {
    with(|state| state.held.load(Ordering::Relaxed))
}

/// What was counted before a change holds for all that the program does behind it, and nothing of what it did before it is left to do.
pub(super) fn set_held(n: u32) {
    compiler_fence(Ordering::SeqCst);
    with(|state| state.held.store(n, Ordering::Relaxed));
    compiler_fence(Ordering::SeqCst);
}

/// How often the thread has gone into the store's library, and not come back.
pub(crate) fn inside() -> u32 {
    with(|state| state.inside.load(Ordering::Relaxed))
}

pub(crate) fn set_inside(n: u32) {
    with(|state| state.inside.store(n, Ordering::Relaxed));
}

/// Signals that were put back, and are blocked until the thread leaves the library.
pub(super) fn put_back() -> u64 {
    compiler_fence(Ordering::SeqCst);
    with(|state| state.put_back.load(Ordering::Relaxed))
}

/// The same, of which from now on others are.
pub(super) fn set_put_back(set: u64) -> u64 {
    compiler_fence(Ordering::SeqCst);
    with(|state| state.put_back.swap(set, Ordering::Relaxed))
}
