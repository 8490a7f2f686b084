//! Changes of whose a process is. The store is that of the user who has started the program: a process that came from it reaches the store
//! for as long as it is that user, and uses what it has reached afterwards.
//!
//! The C library changes all threads of a process, and so does it itself. Programs find these functions before its own.

use std::{
    ffi::{CStr, c_int, c_long, c_void},
    sync::atomic::{AtomicBool, Ordering},
};

use crate::{
    patch::address,
    raw::{answer, failed, kernel},
    world::world,
};

/// The C library's own function, behind what has to be done before.
fn real(name: &CStr) -> *const c_void {
    if let Some(world) = world() {
        world.before_another_user();
    }
    address(name)
}

macro_rules! passed_on {
    ($($(#[$doc:meta])* fn $name:ident = $text:literal ($($arg:ident),*);)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Safety
            /// As the function that it stands for.
            #[unsafe(no_mangle)]
            pub(crate) unsafe extern "C" fn $name($($arg: libc::uid_t),*) -> c_int {
                type Real = unsafe extern "C" fn($($arg: libc::uid_t),*) -> c_int;
                let real = real($text);
                if real.is_null() {
                    return crate::raw::answer(failed(iov_posix::Errno(libc::ENOSYS))) as c_int;
                }
                // SAFETY: the C library has this function under this name.
                unsafe { std::mem::transmute::<*const c_void, Real>(real)($($arg),*) }
            }
        )*
    };
}

passed_on! {
    /// `setuid(2)`
    fn setuid = c"setuid"(uid);
    /// `seteuid(3)`
    fn seteuid = c"seteuid"(uid);
    /// `setreuid(2)`
    fn setreuid = c"setreuid"(real_uid, uid);
    /// `setresuid(2)`
    fn setresuid = c"setresuid"(real_uid, uid, saved_uid);
}

/// A thread of this process may meet files as somebody else than does all the rest.
static SOMEBODY_ELSE: AtomicBool = AtomicBool::new(false);

/// As whom this thread meets files, where some may do so as somebody else. `number`: `setfsuid` or `setfsgid`.
pub(crate) fn for_files(number: c_long) -> Option<u32> {
    if !SOMEBODY_ELSE.load(Ordering::Relaxed) {
        return None;
    }
    // Whom nobody is nobody becomes: it tells who it is.
    u32::try_from(kernel!(number, u32::MAX)).ok()
}

/// `setfsuid(2)` or `setfsgid(2)`, by its number.
pub(super) fn become_for_files(number: c_long, id: libc::uid_t) -> isize {
    if let Some(world) = world() {
        world.before_another_user();
    }
    SOMEBODY_ELSE.store(true, Ordering::Relaxed);
    kernel!(number, id)
}

/// `setfsuid(2)`
#[unsafe(no_mangle)]
pub(crate) extern "C" fn setfsuid(uid: libc::uid_t) -> c_int {
    answer(become_for_files(libc::SYS_setfsuid, uid)) as c_int
}

/// `setfsgid(2)`
#[unsafe(no_mangle)]
pub(crate) extern "C" fn setfsgid(gid: libc::gid_t) -> c_int {
    answer(become_for_files(libc::SYS_setfsgid, gid)) as c_int
}
