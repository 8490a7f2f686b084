//! Named pipes of workspaces, for the processes of one user on one machine: bytes go through a pipe of the kernel, which has the
//! number of the one in the store for a name. As on NFS, who opens it on another machine waits there.

use std::ffi::{CStr, CString, c_int};

use iov_posix::{Errno, Kind, Node, Outcome, Way};

use super::Here;
use crate::raw::kernel;

/// Flags that are not of a pipe that is there.
const OF_MAKING: c_int = libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC;

/// The directory of this user's pipes. It is not looked for by a variable: programs with other ones are to find it too.
fn directory_name() -> String {
    // SAFETY: it asks the kernel for a number.
    format!("/tmp/iov-pipes-{}", unsafe { libc::getuid() })
}

/// Makes that directory.
fn make_directory() -> Outcome<()> {
    // SAFETY: it asks the kernel for a number.
    let uid = unsafe { libc::getuid() };
    let path = CString::new(directory_name()).map_err(|_| Errno::EINVAL)?;
    kernel!(libc::SYS_mkdirat, libc::AT_FDCWD, path.as_ptr(), 0o700);
    // SAFETY: all of it may be zero, and the call fills it.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    let found = kernel!(libc::SYS_newfstatat, libc::AT_FDCWD, path.as_ptr(), &raw mut stat, libc::AT_SYMLINK_NOFOLLOW);
    // Somebody else may have made it, who would read along.
    let own = stat.st_mode & libc::S_IFMT == libc::S_IFDIR && stat.st_uid == uid && stat.st_mode & 0o077 == 0;
    if found == 0 && own { Ok(()) } else { Err(Errno::EACCES) }
}

/// The pipe of the kernel for one of these, where this user has such pipes; none: there is nothing to remove for what has no name any more.
pub(super) fn of_last_name(here: &Here) -> Option<CString> {
    let dir = CString::new(directory_name()).ok()?;
    if kernel!(libc::SYS_faccessat, libc::AT_FDCWD, dir.as_ptr(), libc::F_OK) != 0 {
        return None;
    }
    let (node, attributes) = here.find(false).ok().filter(|(node, _)| node.kind() == Kind::Fifo)?;
    (attributes.links <= 1).then(|| path_of(&node)).flatten()
}

/// Removes such a pipe. Who has it open keeps it.
pub(super) fn remove(pipe: &CStr) {
    kernel!(libc::SYS_unlinkat, libc::AT_FDCWD, pipe.as_ptr(), 0);
}

fn path_of(node: &Node) -> Option<CString> {
    CString::new(format!("{}/{}", directory_name(), node.uuid())).ok()
}

/// Opens what is no file, as the kernel answers it. `ENXIO`: it can only be opened where the kernel knows it.
pub(super) fn open(here: &Here, flags: c_int) -> Way<isize> {
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
    make_directory()?;
    let path = path_of(&node).ok_or(Errno::EINVAL)?;
    let made = kernel!(libc::SYS_mknodat, libc::AT_FDCWD, path.as_ptr(), libc::S_IFIFO | 0o600, 0);
    if made < 0 && made != -(libc::EEXIST as isize) {
        return Err(Errno(-made as c_int).into());
    }
    Ok(kernel!(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags & !OF_MAKING, 0))
}
