//! Memory of its own: a signal may interrupt the program while that has the C library's locked, and its handler may read and write files.

#[global_allocator]
static MEMORY: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

/// To be called before anything is allocated, by one thread: a child of `fork` finds it unlocked.
pub(crate) fn prepare() {
    // SAFETY: it is called so.
    unsafe { dlmalloc::enable_alloc_after_fork() };
}
