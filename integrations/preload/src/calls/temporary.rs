//! Directories of this user below that of temporary files, for what the kernel has to find.

use std::{
    ffi::{CStr, CString, OsStr, c_int},
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    sync::atomic::{AtomicU32, Ordering},
};

use iov_posix::{Errno, Outcome};

use crate::{raw::kernel, world::report};

/// Who makes and looks for them: as the kernel takes this process.
fn user() -> u32 {
    // SAFETY: it asks the kernel for a number.
    unsafe { libc::geteuid() }
}

/// Where what is called so is. It is not looked for by a variable: programs with other ones are to find it too.
pub(super) fn directory(name: &str) -> Outcome<CString> {
    CString::new(format!("/tmp/{name}-{}", user())).map_err(|_| Errno::EINVAL)
}

/// Whether that directory is there, and this user's alone.
pub(super) fn is_own(dir: &CStr) -> Outcome<()> {
    // SAFETY: all of it may be zero, and the call fills it.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    let flags = libc::AT_SYMLINK_NOFOLLOW;
    if kernel!(libc::SYS_newfstatat, libc::AT_FDCWD, dir.as_ptr(), &raw mut stat, flags) != 0 {
        return Err(Errno::ENOENT);
    }
    // Somebody else may have made it, who would read along.
    if stat.st_mode & libc::S_IFMT != libc::S_IFDIR || stat.st_uid != user() {
        return Err(Errno::EACCES);
    }
    // Its user's mask may have been in the way when it was made.
    match stat.st_mode & 0o7777 {
        0o700 => Ok(()),
        _ if kernel!(libc::SYS_fchmodat, libc::AT_FDCWD, dir.as_ptr(), 0o700) == 0 => Ok(()),
        _ => Err(Errno::EACCES),
    }
}

/// Sees to it that it is there; what is told of where it cannot be.
pub(super) fn made(name: &str, of: &str) -> Outcome<CString> {
    let dir = directory(name)?;
    kernel!(libc::SYS_mkdirat, libc::AT_FDCWD, dir.as_ptr(), 0o700);
    is_own(&dir).inspect_err(|_| {
        let dir = dir.to_string_lossy();
        report(
            of,
            &format_args!("{dir} cannot be made, or is somebody else's: it has to be a directory of yours alone"),
        );
    })?;
    Ok(dir)
}

/// A path of the kernel for a descriptor of this process, for whoever opens it: debuggers look at what the dynamic linker has opened.
pub(super) fn path_of(fd: c_int) -> String {
    let process = std::fs::read_link("/proc/self").ok().and_then(|link| link.to_str().map(str::to_owned));
    format!("/proc/{}/fd/{fd}", process.as_deref().unwrap_or("self"))
}

/// Removes what lies in it and is older than so many seconds: directories of links, of whoever was killed before he could.
pub(super) fn sweep(dir: &CStr, seconds: i64) {
    // SAFETY: it asks the kernel for a number.
    let now = unsafe { libc::time(std::ptr::null_mut()) };
    let old = |entry: &std::fs::DirEntry| entry.metadata().is_ok_and(|data| now - data.mtime() > seconds);
    let Ok(entries) = std::fs::read_dir(OsStr::from_bytes(dir.to_bytes())) else { return };
    for entry in entries.flatten().filter(old) {
        // It is this user's, and links are removed, not followed.
        let _ = std::fs::remove_dir_all(entry.path());
    }
}

/// Makes a directory in it that nobody else has.
pub(super) fn new_in(dir: &CStr) -> Outcome<CString> {
    static MADE: AtomicU32 = AtomicU32::new(0);
    const TRIES: c_int = 64;
    for _ in 0..TRIES {
        let n = MADE.fetch_add(1, Ordering::Relaxed);
        let path = format!("{}/{}-{n}", dir.to_string_lossy(), crate::raw::pid());
        let path = CString::new(path).map_err(|_| Errno::EINVAL)?;
        match kernel!(libc::SYS_mkdirat, libc::AT_FDCWD, path.as_ptr(), 0o700) {
            0 => return Ok(path),
            e if e == -(libc::EEXIST as isize) => {}
            e => return Err(Errno(-e as c_int)),
        }
    }
    Err(Errno(libc::EEXIST))
}

#[cfg(test)]
mod tests;
