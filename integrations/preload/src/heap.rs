//! Memory of its own: a signal may interrupt the program while that has the C library's locked, and its handler may read and write files.

use std::{
    alloc::{GlobalAlloc, Layout},
    cell::UnsafeCell,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
};

use dlmalloc::Dlmalloc;

use crate::raw::this_thread;

struct Heap {
    lock: UnsafeCell<libc::pthread_mutex_t>,
    memory: UnsafeCell<Dlmalloc>,
    /// The thread that has it locked while it makes a copy of the process; 0: none.
    for_fork: AtomicUsize,
    /// It is not the one with which the process began: what it is given back may be of another one.
    is_second: AtomicBool,
}

// SAFETY: the one is for any thread to lock, and who has it alone uses the other.
unsafe impl Sync for Heap {}

#[global_allocator]
static HEAP: Heap = Heap {
    lock: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER),
    memory: UnsafeCell::new(Dlmalloc::new()),
    for_fork: AtomicUsize::new(0),
    is_second: AtomicBool::new(false),
};

impl Heap {
    fn lock(&self) {
        // SAFETY: it is a mutex that stays.
        unsafe { libc::pthread_mutex_lock(self.lock.get()) };
    }

    fn unlock(&self) {
        // SAFETY: as above.
        unsafe { libc::pthread_mutex_unlock(self.lock.get()) };
    }

    fn with<T>(&self, work: impl FnOnce(&mut Dlmalloc) -> T) -> T {
        self.lock();
        // SAFETY: nobody else has it until it is let go of, and the allocator calls nothing that would come here.
        let done = work(unsafe { &mut *self.memory.get() });
        self.unlock();
        done
    }
}

/// Nobody allocates until [`let_go`], while this thread makes a copy of the process.
pub(crate) extern "C" fn hold() {
    HEAP.lock();
    HEAP.for_fork.store(this_thread(), Ordering::Relaxed);
}

/// See [`hold`]. Also in the copy, by whoever is there first; nothing, if that has been done.
pub(crate) extern "C" fn let_go() {
    if HEAP.for_fork.load(Ordering::Relaxed) == this_thread() {
        HEAP.for_fork.store(0, Ordering::Relaxed);
        HEAP.unlock();
    }
}

/// In a copy of the process: somebody may have been at work with it who is not here, and does not let go of it. Then another one begins, and what has been there stays as it is.
pub(crate) fn begin_anew_if_held() {
    // SAFETY: it is a mutex that stays.
    if unsafe { libc::pthread_mutex_trylock(HEAP.lock.get()) } == 0 {
        HEAP.unlock();
        return;
    }
    // SAFETY: there is no other thread in this process that would use either.
    unsafe {
        HEAP.memory.get().write(Dlmalloc::new());
        HEAP.lock.get().write(libc::PTHREAD_MUTEX_INITIALIZER);
    }
    HEAP.for_fork.store(0, Ordering::Relaxed);
    HEAP.is_second.store(true, Ordering::Relaxed);
}

// SAFETY: it is a whole allocator, to which each call is led under the lock, with what it was given.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller says so, of this and of the others.
        self.with(|memory| unsafe { memory.malloc(layout.size(), layout.align()) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        self.with(|memory| unsafe { memory.calloc(layout.size(), layout.align()) })
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        if !self.is_second.load(Ordering::Relaxed) {
            // SAFETY: as above.
            self.with(|memory| unsafe { memory.free(at, layout.size(), layout.align()) });
        }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if self.is_second.load(Ordering::Relaxed) {
            // SAFETY: as above; both are as long as is copied, and the new one is nobody else's.
            unsafe {
                let new = self.with(|memory| memory.malloc(size, layout.align()));
                if !new.is_null() {
                    new.copy_from_nonoverlapping(at, layout.size().min(size));
                }
                return new;
            }
        }
        // SAFETY: as above.
        self.with(|memory| unsafe { memory.realloc(at, layout.size(), layout.align(), size) })
    }
}

/// To be called before another thread is there: a child of `fork` finds it unlocked.
pub(crate) fn prepare() {
    // SAFETY: the functions stay.
    unsafe { libc::pthread_atfork(Some(hold), Some(let_go), Some(let_go)) };
}
