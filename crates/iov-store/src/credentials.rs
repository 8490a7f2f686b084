//! Who is on the other side of a local socket, as the kernel says.

use std::os::fd::{AsFd, AsRawFd};

/// What was true of the peer when it connected, or began to listen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Credentials {
    /// Its process; 0 = one of another process namespace, which has no number here.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
}

/// The peer of a connected socket.
pub fn peer_credentials(socket: impl AsFd) -> std::io::Result<Credentials> {
    let mut found = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    let socket = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel writes at most `len` bytes, any of which are a value of the plain numbers there.
    let done =
        unsafe { libc::getsockopt(socket, libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut found).cast(), &raw mut len) };
    match done {
        0 => Ok(Credentials { pid: u32::try_from(found.pid).unwrap_or(0), uid: found.uid, gid: found.gid }),
        _ => Err(std::io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests;
