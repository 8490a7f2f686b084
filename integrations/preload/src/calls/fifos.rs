//! Named pipes of workspaces, for the processes of one user on one machine: bytes go through a pipe of the kernel, which has the
//! number of the one in the store for a name. As on NFS, who opens it on another machine waits there.

use std::ffi::{CStr, CString, c_int};

use iov_posix::{Errno, Gone, Kind, Outcome, Way};
use ioverbs::Uuid;

use super::Here;
use crate::{raw::kernel, world::report};

/// Flags that are not of a pipe that is there.
const OF_MAKING: c_int = libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC;

/// Who makes and looks for pipes: as the kernel takes this process.
fn user() -> u32 {
    // SAFETY: it asks the kernel for a number.
    unsafe { libc::geteuid() }
}

/// The directory of this user's pipes. It is not looked for by a variable: programs with other ones are to find it too.
fn directory() -> Outcome<CString> {
    CString::new(format!("/tmp/iov-pipes-{}", user())).map_err(|_| Errno::EINVAL)
}

/// Whether that directory is there, and this user's alone.
fn is_own(dir: &CStr) -> Outcome<()> {
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

fn path_of(dir: &CStr, uuid: Uuid) -> Outcome<CString> {
    CString::new(format!("{}/{}", dir.to_string_lossy(), uuid)).map_err(|_| Errno::EINVAL)
}

/// The pipe of the kernel for what is no file. `ENXIO`: it can only be opened where the kernel knows it.
pub(super) fn find(here: &Here, flags: c_int) -> Way<CString> {
    let (node, attributes) = here.find(flags & libc::O_NOFOLLOW == 0)?;
    if node.kind() != Kind::Fifo {
        return Err(Errno::ENXIO.into());
    }
    let wanted = match flags & libc::O_ACCMODE {
        libc::O_RDONLY => libc::R_OK,
        libc::O_WRONLY => libc::W_OK,
        _ => libc::R_OK | libc::W_OK,
    };
    if !here.caller.may(&attributes, wanted as u32) {
        return Err(Errno::EACCES.into());
    }
    let dir = directory()?;
    kernel!(libc::SYS_mkdirat, libc::AT_FDCWD, dir.as_ptr(), 0o700);
    is_own(&dir).inspect_err(|_| {
        let dir = dir.to_string_lossy();
        report(
            "a named pipe",
            &format_args!("{dir} cannot be made, or is somebody else's: it has to be a directory of yours alone"),
        );
    })?;
    let path = path_of(&dir, node.uuid())?;
    let made = kernel!(libc::SYS_mknodat, libc::AT_FDCWD, path.as_ptr(), libc::S_IFIFO | 0o600, 0);
    if made < 0 && made != -(libc::EEXIST as isize) {
        return Err(Errno(-made as c_int).into());
    }
    Ok(path)
}

/// Opens it, as the kernel answers it.
pub(super) fn open(pipe: &CStr, flags: c_int) -> isize {
    kernel!(libc::SYS_openat, libc::AT_FDCWD, pipe.as_ptr(), flags & !OF_MAKING, 0)
}

/// Something has lost a name: with the last one goes the pipe. Who has it open keeps it.
pub(super) fn unnamed(gone: &Gone) {
    if gone.kind != Kind::Fifo || gone.links > 0 {
        return;
    }
    let path = directory().and_then(|dir| is_own(&dir).and_then(|()| path_of(&dir, gone.uuid)));
    if let Ok(path) = path {
        kernel!(libc::SYS_unlinkat, libc::AT_FDCWD, path.as_ptr(), 0);
    }
}
