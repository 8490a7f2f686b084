//! Named pipes of workspaces, for the processes of one user on one machine: bytes go through a pipe of the kernel, which has the
//! number of the one in the store for a name. As on NFS, who opens it on another machine waits there.

use std::ffi::{CStr, CString, c_int};

use iov_posix::{Errno, Gone, Kind, Outcome, Way};
use ioverbs::Uuid;

use super::{Here, temporary};
use crate::raw::kernel;

/// Flags that are not of a pipe that is there.
const OF_MAKING: c_int = libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC;

/// The directory of this user's pipes.
const DIRECTORY: &str = "iov-pipes";

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
    here.caller.check(&node, &attributes, wanted as u32)?;
    let dir = temporary::made(DIRECTORY, "a named pipe")?;
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
    let path =
        temporary::directory(DIRECTORY).and_then(|dir| temporary::is_own(&dir).and_then(|()| path_of(&dir, gone.uuid)));
    if let Ok(path) = path {
        kernel!(libc::SYS_unlinkat, libc::AT_FDCWD, path.as_ptr(), 0);
    }
}
