//! Where the library itself lies: its daemon is installed beside it.

use std::{ffi::CStr, os::unix::ffi::OsStrExt, path::PathBuf};

/// The directory of the shared object (or program) that contains this code.
pub(crate) fn dir() -> Option<PathBuf> {
    // SAFETY: `info` is plain data that dladdr fills; the address is one of this very library; the name it returns lives
    // as long as the library is loaded, which is longer than this call.
    let path = unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(dir as *const libc::c_void, &mut info) == 0 || info.dli_fname.is_null() {
            return None;
        }
        PathBuf::from(std::ffi::OsStr::from_bytes(CStr::from_ptr(info.dli_fname).to_bytes()))
    };
    path.canonicalize().ok()?.parent().map(PathBuf::from)
}
