//! `syscall`, by which programs call what their C library has no function for: those of files lead to what the functions do.

use std::ffi::{c_int, c_long};

use super::{attributes, bytes, descriptors, directories, facts, mapping, names, open, process};
use crate::raw::{answer, syscall};

/// `syscall(2)`
///
/// # Safety
/// As the function that it stands for.
pub(crate) unsafe extern "C" fn by_number(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    let fd = |n: usize| n as c_int;
    // SAFETY: the arguments are those of the call of this number, as the program gives them.
    unsafe {
        match number {
            libc::SYS_openat => open::openat(fd(a), b as _, c as _, d as _) as c_long,
            libc::SYS_read => bytes::read(fd(a), b as _, c) as c_long,
            libc::SYS_write => bytes::write(fd(a), b as _, c) as c_long,
            libc::SYS_pread64 => bytes::pread(fd(a), b as _, c, d as _) as c_long,
            libc::SYS_pwrite64 => bytes::pwrite(fd(a), b as _, c, d as _) as c_long,
            libc::SYS_readv => bytes::readv(fd(a), b as _, fd(c)) as c_long,
            libc::SYS_writev => bytes::writev(fd(a), b as _, fd(c)) as c_long,
            libc::SYS_lseek => bytes::lseek(fd(a), b as _, fd(c)) as c_long,
            libc::SYS_ftruncate => bytes::ftruncate(fd(a), b as _) as c_long,
            libc::SYS_fallocate => bytes::fallocate(fd(a), fd(b), c as _, d as _) as c_long,
            libc::SYS_copy_file_range => bytes::copy_file_range(fd(a), b as _, fd(c), d as _, e, f as _) as c_long,
            libc::SYS_sendfile => bytes::sendfile(fd(a), fd(b), c as _, d) as c_long,
            libc::SYS_fsync => bytes::fsync(fd(a)) as c_long,
            libc::SYS_fdatasync => bytes::fdatasync(fd(a)) as c_long,
            libc::SYS_close => descriptors::close(fd(a)) as c_long,
            libc::SYS_close_range => descriptors::close_range(a as _, b as _, fd(c)) as c_long,
            libc::SYS_dup => descriptors::dup(fd(a)) as c_long,
            libc::SYS_dup3 => descriptors::dup3(fd(a), fd(b), fd(c)) as c_long,
            libc::SYS_fcntl => descriptors::fcntl(fd(a), fd(b), c) as c_long,
            libc::SYS_flock => descriptors::flock(fd(a), fd(b)) as c_long,
            libc::SYS_getdents64 => directories::getdents64(fd(a), b as _, c) as c_long,
            libc::SYS_fstat => facts::fstat(fd(a), b as _) as c_long,
            libc::SYS_statx => facts::statx(fd(a), b as _, fd(c), d as _, e as _) as c_long,
            libc::SYS_newfstatat => facts::fstatat(fd(a), b as _, c as _, fd(d)) as c_long,
            libc::SYS_faccessat => facts::faccessat(fd(a), b as _, fd(c), 0) as c_long,
            libc::SYS_faccessat2 => facts::faccessat(fd(a), b as _, fd(c), fd(d)) as c_long,
            libc::SYS_readlinkat => facts::readlinkat(fd(a), b as _, c as _, d) as c_long,
            libc::SYS_mkdirat => names::mkdirat(fd(a), b as _, c as _) as c_long,
            libc::SYS_unlinkat => names::unlinkat(fd(a), b as _, fd(c)) as c_long,
            libc::SYS_renameat2 => names::renameat2(fd(a), b as _, fd(c), d as _, e as _) as c_long,
            libc::SYS_utimensat => attributes::utimensat(fd(a), b as _, c as _, fd(d)) as c_long,
            libc::SYS_mmap => mapping::mmap(a as _, b, fd(c), fd(d), fd(e), f as _) as c_long,
            libc::SYS_execve => process::execve(a as _, b as _, c as _) as c_long,
            libc::SYS_exit_group => process::exit(fd(a)) as c_long,
            // Programs do without: it says more than can be kept here.
            libc::SYS_openat2 if super::is_inside(fd(a), b as _) => answer(-(libc::ENOSYS as isize)) as c_long,
            #[cfg(target_arch = "x86_64")]
            libc::SYS_open => open::open(a as _, b as _, c as _) as c_long,
            #[cfg(target_arch = "x86_64")]
            libc::SYS_stat => facts::stat(a as _, b as _) as c_long,
            #[cfg(target_arch = "x86_64")]
            libc::SYS_lstat => facts::lstat(a as _, b as _) as c_long,
            #[cfg(target_arch = "x86_64")]
            libc::SYS_access => facts::access(a as _, fd(b)) as c_long,
            #[cfg(target_arch = "x86_64")]
            libc::SYS_dup2 => descriptors::dup2(fd(a), fd(b)) as c_long,
            #[cfg(target_arch = "x86_64")]
            libc::SYS_unlink => names::unlink(a as _) as c_long,
            #[cfg(target_arch = "x86_64")]
            libc::SYS_rename => names::rename(a as _, b as _) as c_long,
            _ => answer(syscall(number, [a, b, c, d, e, f])) as c_long,
        }
    }
}
