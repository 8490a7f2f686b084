//! `io_uring`, by which programs hand the kernel descriptors in memory that it shares with them: of those that stand for files of a workspace it would read and write
//! what stands there. So there is no `io_uring` in `iov run`, as on systems that do not allow it, and programs go their other way.

use std::ffi::{CStr, c_int, c_uint, c_void};

use crate::{patch::address, world::world};

/// What functions of `liburing` return where a kernel has none.
const NONE: c_int = -libc::ENOSYS;

/// Functions of `liburing` that set one up: refused where there are workspaces, and its own where there are none.
macro_rules! of_liburing {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $kind:ty),* $(,)?), $text:expr;)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Safety
            /// As the function of `liburing` that it stands for.
            #[unsafe(no_mangle)]
            pub(crate) unsafe extern "C" fn $name($($arg: $kind),*) -> c_int {
                const NAME: &CStr = $text;
                let own = address(NAME);
                if world().is_some() || own.is_null() {
                    return NONE;
                }
                // SAFETY: it is the function of this name, which takes the same.
                unsafe {
                    let own: unsafe extern "C" fn($($kind),*) -> c_int = std::mem::transmute(own);
                    own($($arg),*)
                }
            }
        )*
    };
}

of_liburing! {
    /// `io_uring_queue_init(3)`
    fn io_uring_queue_init(entries: c_uint, ring: *mut c_void, flags: c_uint), c"io_uring_queue_init";
    /// `io_uring_queue_init_params(3)`
    fn io_uring_queue_init_params(entries: c_uint, ring: *mut c_void, how: *mut c_void), c"io_uring_queue_init_params";
    /// `io_uring_queue_init_mem(3)`
    fn io_uring_queue_init_mem(entries: c_uint, ring: *mut c_void, how: *mut c_void, at: *mut c_void, len: usize),
        c"io_uring_queue_init_mem";
    /// `io_uring_setup(2)`
    fn io_uring_setup(entries: c_uint, how: *mut c_void), c"io_uring_setup";
}
