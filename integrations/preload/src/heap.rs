//! Memory of its own: a signal may interrupt the program while that has the C library's locked, and its handler may read and write files.

use std::{
    alloc::{GlobalAlloc, Layout},
    cell::UnsafeCell,
};

use dlmalloc::Dlmalloc;

struct Heap {
    lock: UnsafeCell<libc::pthread_mutex_t>,
    memory: UnsafeCell<Dlmalloc>,
}

// SAFETY: the one is for any thread to lock, and who has it alone uses the other.
unsafe impl Sync for Heap {}

#[global_allocator]
static HEAP: Heap =
    Heap { lock: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER), memory: UnsafeCell::new(Dlmalloc::new()) };

impl Heap {
    fn with<T>(&self, work: impl FnOnce(&mut Dlmalloc) -> T) -> T {
        hold();
        // SAFETY: nobody else has it until it is let go of, and the allocator calls nothing that would come here.
        let done = work(unsafe { &mut *self.memory.get() });
        let_go();
        done
    }
}

/// Nobody allocates until [`let_go`], this thread neither.
pub(crate) extern "C" fn hold() {
    // SAFETY: it is a mutex that stays.
    unsafe { libc::pthread_mutex_lock(HEAP.lock.get()) };
}

/// See [`hold`]. Also in a child of the thread that has held it.
pub(crate) extern "C" fn let_go() {
    // SAFETY: as above.
    unsafe { libc::pthread_mutex_unlock(HEAP.lock.get()) };
}

/// Whether nobody allocates just now. In a copy of the process nobody may be there who lets go of it.
pub(crate) fn is_free() -> bool {
    // SAFETY: as above.
    let free = unsafe { libc::pthread_mutex_trylock(HEAP.lock.get()) } == 0;
    if free {
        let_go();
    }
    free
}

// SAFETY: it is a whole allocator, to which each call is led under the lock, with what it was given.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller says so, of this and of the other three.
        self.with(|memory| unsafe { memory.malloc(layout.size(), layout.align()) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        self.with(|memory| unsafe { memory.calloc(layout.size(), layout.align()) })
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as above.
        self.with(|memory| unsafe { memory.free(at, layout.size(), layout.align()) });
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        self.with(|memory| unsafe { memory.realloc(at, layout.size(), layout.align(), size) })
    }
}

/// To be called before another thread is there: a child of `fork` finds it unlocked.
pub(crate) fn prepare() {
    // SAFETY: the functions stay.
    unsafe { libc::pthread_atfork(Some(hold), Some(let_go), Some(let_go)) };
}
