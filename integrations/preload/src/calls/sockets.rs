//! Sockets with names. In a workspace they are only names: the kernel, which would make one in its own directory, is not asked for them.

use std::ffi::{CString, c_int, c_void};

use iov_posix::Errno;

use super::{at, bytes_of, export};
use crate::{
    memory,
    raw::{failed, kernel},
    signals::Quiet,
};

/// Bytes of an address before its path.
const FAMILY: usize = size_of::<libc::sa_family_t>();
/// The longest address of a socket with a name.
const LONGEST: usize = size_of::<libc::sockaddr_un>();

/// The path that an address names; none: it names none, or is for the kernel to refuse.
fn path_of(address: *const c_void, len: u32) -> Option<CString> {
    let len = usize::try_from(len).ok().filter(|len| (FAMILY + 1..=LONGEST).contains(len))?;
    let byte = |at: usize| memory::given(address.cast::<u8>().wrapping_add(at)).ok();
    let bytes: Vec<u8> = (0..len).map(byte).collect::<Option<_>>()?;
    let (family, path) = bytes.split_at(FAMILY);
    if family != (libc::AF_UNIX as libc::sa_family_t).to_ne_bytes() {
        return None;
    }
    let path = path.split(|b| *b == 0).next().unwrap_or_default();
    // One without a path is in the abstract name space.
    CString::new(path).ok().filter(|path| !path.is_empty())
}

fn named(fd: c_int, address: *const c_void, len: u32) -> isize {
    let _quiet = Quiet::enter();
    let Some(path) = path_of(address, len) else { return kernel!(libc::SYS_bind, fd, address, len) };
    // As of file systems that have no sockets.
    let never = Errno::EPERM;
    at(
        libc::AT_FDCWD,
        path.as_ptr(),
        // It may lead out.
        &mut |_, here| here.walker().last(&here.from, &here.path).and(Err(never.into())),
        &mut |_, _| failed(never),
        &mut |_, there| {
            if there == path.as_ptr() {
                return kernel!(libc::SYS_bind, fd, address, len);
            }
            let bytes = bytes_of(there).unwrap_or_default();
            // SAFETY: all of it may be zero.
            let mut elsewhere: libc::sockaddr_un = unsafe { std::mem::zeroed() };
            elsewhere.sun_family = libc::AF_UNIX as libc::sa_family_t;
            if bytes.len() >= elsewhere.sun_path.len() {
                return failed(Errno::ENAMETOOLONG);
            }
            for (to, from) in elsewhere.sun_path.iter_mut().zip(bytes) {
                *to = *from as _;
            }
            kernel!(libc::SYS_bind, fd, &raw const elsewhere, LONGEST)
        },
    )
}

export! {
    /// `bind(2)`
    fn bind(fd: c_int, address: *const c_void, len: u32) -> c_int = named(fd, address, len);
}
