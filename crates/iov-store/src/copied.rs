//! Whether a process is a copy of another one, by whichever call it was made.
//!
//! `fork` of the C library tells those who watch forks (`pthread_atfork`); the calls of the kernel that copy a process (`clone` and `clone3` without
//! `CLONE_VM`) tell nobody. A page that the kernel empties in a copy (`MADV_WIPEONFORK`, since Linux 4.14) says it for all of them.

use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

/// Of this length a part of memory is asked for.
const PAGE: usize = 4096;

/// Nobody has asked yet in this process; what there is to do in it has been done. Else the number of the thread that sees to it.
const NEW: i32 = 0;
const SEEN: i32 = -1;

/// See the module. For any thread.
#[derive(Debug)]
pub struct Copied(AtomicPtr<AtomicI32>);

impl Copied {
    /// Nobody looks yet.
    #[allow(clippy::new_without_default, reason = "it is for statics")]
    pub const fn new() -> Copied {
        Copied(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// From now on copies are found. Where the kernel cannot do that, they are not. Each call takes a page, which stays.
    pub fn watch(&self) {
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new page, of which nobody knows, is asked for.
        let page = unsafe { libc::mmap(std::ptr::null_mut(), PAGE, access, flags, -1, 0) };
        if page == libc::MAP_FAILED {
            return;
        }
        // SAFETY: it is that page, which nobody else has.
        if unsafe { libc::madvise(page, PAGE, libc::MADV_WIPEONFORK) } != 0 {
            // SAFETY: as above.
            unsafe { libc::munmap(page, PAGE) };
            return;
        }
        let page = page.cast::<AtomicI32>();
        // SAFETY: it is as long and as aligned as it has to be, and zero.
        unsafe { &*page }.store(SEEN, Ordering::Relaxed);
        self.0.store(page, Ordering::Release);
    }

    /// Has the first who comes here in a copy do what there is to do in it, for which others wait; but not what he calls for that. `false`: copies are not found here.
    pub fn see(&self, to_do: impl FnOnce()) -> bool {
        let page = self.0.load(Ordering::Acquire);
        // SAFETY: it was made by `watch`, and stays.
        let Some(page) = (unsafe { page.as_ref() }) else { return false };
        if page.load(Ordering::Acquire) != SEEN {
            see(page, to_do);
        }
        true
    }
}

#[cold]
fn see(page: &AtomicI32, to_do: impl FnOnce()) {
    // SAFETY: it asks the kernel for a number.
    let me = unsafe { libc::syscall(libc::SYS_gettid) } as i32;
    if page.compare_exchange(NEW, me, Ordering::Acquire, Ordering::Acquire).is_ok() {
        to_do();
        page.store(SEEN, Ordering::Release);
        return;
    }
    while ![SEEN, me].contains(&page.load(Ordering::Acquire)) {
        std::thread::yield_now();
    }
}

#[cfg(test)]
mod tests;
