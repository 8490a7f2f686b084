//! Space that files of the kernel are to take up.

use std::ffi::c_int;

use iov_posix::Errno;

use crate::raw::{failed, kernel};

/// Has a file of the kernel take up space, where its file system knows no other way: as the C library does it.
pub(super) fn fill(fd: c_int, at: i64, len: i64) -> isize {
    const BLOCK: i64 = 4096;
    // SAFETY: all of it may be zero, and the call fills it.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    let asked = kernel!(libc::SYS_fstat, fd, &raw mut stat);
    if asked < 0 {
        return asked;
    }
    // Each byte would go to the end, behind what is there.
    let modes = kernel!(libc::SYS_fcntl, fd, libc::F_GETFL);
    if modes < 0 || modes as c_int & libc::O_APPEND != 0 {
        return failed(Errno::EBADF);
    }
    let zero = 0_u8;
    let mut last = (at + (len - 1) % BLOCK).min(at + len - 1);
    while last < at + len {
        let mut there = 0_u8;
        // What has a byte already that is not zero has its block.
        let n = if last < stat.st_size { kernel!(libc::SYS_pread64, fd, &raw mut there, 1, last) } else { 0 };
        if n < 0 {
            // Nobody knows what is there.
            return n;
        }
        if n < 1 || there == 0 {
            let wrote = kernel!(libc::SYS_pwrite64, fd, &raw const zero, 1, last);
            if wrote < 0 {
                return wrote;
            }
        }
        last += BLOCK;
    }
    0
}
