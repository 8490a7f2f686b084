//! `syscall`, by which programs call what their C library has no function for: those of files lead to what the functions do.

use std::ffi::{c_int, c_long};

use super::{
    aio, attributes, bytes, copies, descriptors, directories, facts, forks, limits, mapping, names, open, pipes, place,
    process, syncs, users,
};
use crate::raw::{answer, syscall};

/// Those that [`by_number`] does something about.
#[cfg(target_arch = "x86_64")]
const OF_FILES: [c_long; 95] = [
    libc::SYS_openat,
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_lseek,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_copy_file_range,
    libc::SYS_sendfile,
    libc::SYS_fsync,
    libc::SYS_sync_file_range,
    libc::SYS_syncfs,
    libc::SYS_sync,
    libc::SYS_readahead,
    libc::SYS_splice,
    libc::SYS_fdatasync,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_fcntl,
    libc::SYS_flock,
    libc::SYS_getdents64,
    libc::SYS_fstat,
    libc::SYS_statx,
    libc::SYS_newfstatat,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlinkat,
    libc::SYS_statfs,
    libc::SYS_fstatfs,
    libc::SYS_truncate,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchmodat2,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_getxattr,
    libc::SYS_lgetxattr,
    libc::SYS_fgetxattr,
    libc::SYS_listxattr,
    libc::SYS_llistxattr,
    libc::SYS_flistxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    libc::SYS_chdir,
    libc::SYS_fchdir,
    libc::SYS_umask,
    libc::SYS_getcwd,
    libc::SYS_mkdirat,
    libc::SYS_unlinkat,
    libc::SYS_mknodat,
    libc::SYS_linkat,
    libc::SYS_symlinkat,
    libc::SYS_renameat2,
    libc::SYS_utimensat,
    libc::SYS_mmap,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_openat2,
    libc::SYS_inotify_add_watch,
    libc::SYS_name_to_handle_at,
    libc::SYS_io_uring_setup,
    libc::SYS_open,
    libc::SYS_creat,
    libc::SYS_readlink,
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_lchown,
    libc::SYS_utime,
    libc::SYS_utimes,
    libc::SYS_futimesat,
    libc::SYS_mkdir,
    libc::SYS_rmdir,
    libc::SYS_mknod,
    libc::SYS_link,
    libc::SYS_symlink,
    libc::SYS_renameat,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_dup2,
    libc::SYS_unlink,
    libc::SYS_rename,
];

/// Whether a call of this number may concern files.
#[cfg(target_arch = "x86_64")]
pub(crate) fn is_of_files(number: u32) -> bool {
    OF_FILES.contains(&c_long::from(number))
}

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
            // The upper half of the offset is of systems of 32 bits.
            libc::SYS_preadv => bytes::preadv(fd(a), b as _, fd(c), d as _) as c_long,
            libc::SYS_pwritev => bytes::pwritev(fd(a), b as _, fd(c), d as _) as c_long,
            libc::SYS_preadv2 => bytes::preadv2(fd(a), b as _, fd(c), d as _, fd(f)) as c_long,
            libc::SYS_pwritev2 => bytes::pwritev2(fd(a), b as _, fd(c), d as _, fd(f)) as c_long,
            libc::SYS_lseek => bytes::lseek(fd(a), b as _, fd(c)) as c_long,
            libc::SYS_ftruncate => bytes::ftruncate(fd(a), b as _) as c_long,
            libc::SYS_fallocate => bytes::fallocate(fd(a), fd(b), c as _, d as _) as c_long,
            libc::SYS_copy_file_range => copies::copy_file_range(fd(a), b as _, fd(c), d as _, e, f as _) as c_long,
            libc::SYS_sendfile => copies::sendfile(fd(a), fd(b), c as _, d) as c_long,
            libc::SYS_fsync => syncs::fsync(fd(a)) as c_long,
            libc::SYS_sync_file_range => bytes::sync_file_range(fd(a), b as _, c as _, d as _) as c_long,
            libc::SYS_syncfs => syncs::syncfs(fd(a)) as c_long,
            libc::SYS_sync => syncs::sync() as c_long,
            libc::SYS_readahead => bytes::readahead(fd(a), b as _, c) as c_long,
            libc::SYS_splice => pipes::splice(fd(a), b as _, fd(c), d as _, e, f as _) as c_long,
            libc::SYS_fdatasync => syncs::fdatasync(fd(a)) as c_long,
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
            libc::SYS_statfs => facts::statfs(a as _, b as _) as c_long,
            libc::SYS_fstatfs => facts::fstatfs(fd(a), b as _) as c_long,
            libc::SYS_truncate => attributes::truncate(a as _, b as _) as c_long,
            libc::SYS_fchmod => attributes::fchmod(fd(a), b as _) as c_long,
            libc::SYS_fchmodat => attributes::fchmodat(fd(a), b as _, c as _, 0) as c_long,
            libc::SYS_fchmodat2 => attributes::fchmodat(fd(a), b as _, c as _, fd(d)) as c_long,
            libc::SYS_fchown => attributes::fchown(fd(a), b as _, c as _) as c_long,
            libc::SYS_fchownat => attributes::fchownat(fd(a), b as _, c as _, d as _, fd(e)) as c_long,
            libc::SYS_setxattr => attributes::setxattr(a as _, b as _, c as _, d, fd(e)) as c_long,
            libc::SYS_lsetxattr => attributes::lsetxattr(a as _, b as _, c as _, d, fd(e)) as c_long,
            libc::SYS_fsetxattr => attributes::fsetxattr(fd(a), b as _, c as _, d, fd(e)) as c_long,
            libc::SYS_getxattr => attributes::getxattr(a as _, b as _, c as _, d) as c_long,
            libc::SYS_lgetxattr => attributes::lgetxattr(a as _, b as _, c as _, d) as c_long,
            libc::SYS_fgetxattr => attributes::fgetxattr(fd(a), b as _, c as _, d) as c_long,
            libc::SYS_listxattr => attributes::listxattr(a as _, b as _, c) as c_long,
            libc::SYS_llistxattr => attributes::llistxattr(a as _, b as _, c) as c_long,
            libc::SYS_flistxattr => attributes::flistxattr(fd(a), b as _, c) as c_long,
            libc::SYS_removexattr => attributes::removexattr(a as _, b as _) as c_long,
            libc::SYS_lremovexattr => attributes::lremovexattr(a as _, b as _) as c_long,
            libc::SYS_fremovexattr => attributes::fremovexattr(fd(a), b as _) as c_long,
            libc::SYS_chdir => place::chdir(a as _) as c_long,
            libc::SYS_fchdir => place::fchdir(fd(a)) as c_long,
            libc::SYS_umask => open::umask(a as _) as c_long,
            libc::SYS_getcwd if a != 0 && b != 0 => match place::getcwd(a as _, b) {
                path if path.is_null() => -1,
                // The kernel tells how long it is, with its end.
                path => libc::strlen(path) as c_long + 1,
            },
            libc::SYS_mkdirat => names::mkdirat(fd(a), b as _, c as _) as c_long,
            libc::SYS_unlinkat => names::unlinkat(fd(a), b as _, fd(c)) as c_long,
            libc::SYS_mknodat => names::mknodat(fd(a), b as _, c as _, d as _) as c_long,
            libc::SYS_linkat => names::linkat(fd(a), b as _, fd(c), d as _, fd(e)) as c_long,
            libc::SYS_symlinkat => names::symlinkat(a as _, fd(b), c as _) as c_long,
            libc::SYS_renameat2 => names::renameat2(fd(a), b as _, fd(c), d as _, e as _) as c_long,
            libc::SYS_utimensat => attributes::utimensat(fd(a), b as _, c as _, fd(d)) as c_long,
            libc::SYS_prlimit64 => limits::prlimit(fd(a), fd(b), c as _, d as _) as c_long,
            libc::SYS_mmap => mapping::mmap(a as _, b, fd(c), fd(d), fd(e), f as _) as c_long,
            libc::SYS_execve => process::execve(a as _, b as _, c as _) as c_long,
            libc::SYS_execveat => process::execveat(fd(a), b as _, c as _, d as _, fd(e)) as c_long,
            libc::SYS_exit_group => process::exit(fd(a)) as c_long,
            libc::SYS_setfsuid | libc::SYS_setfsgid => answer(users::become_for_files(number, a as _)) as c_long,
            libc::SYS_clone | libc::SYS_clone3 => made(number, [a, b, c, d, e, f]),
            // Programs do without: it says more than can be kept here.
            libc::SYS_openat2 if super::is_inside(fd(a), b as _) => answer(-(libc::ENOSYS as isize)) as c_long,
            libc::SYS_name_to_handle_at => place::name_to_handle_at(fd(a), b as _, c as _, d as _, fd(e)) as c_long,
            libc::SYS_inotify_add_watch => place::inotify_add_watch(fd(a), b as _, c as _) as c_long,
            // As of `uring`.
            libc::SYS_io_uring_setup if crate::world::world().is_some() => answer(-(libc::ENOSYS as isize)) as c_long,
            libc::SYS_io_setup
            | libc::SYS_io_destroy
            | libc::SYS_io_submit
            | libc::SYS_io_getevents
            | aio::PGETEVENTS => {
                let done = aio::by_number(number, [a, b, c, d, e, f]);
                answer(done.unwrap_or(-(libc::ENOSYS as isize))) as c_long
            }
            #[cfg(target_arch = "x86_64")]
            old => of_old(old, [a, b, c, d, e, f]),
            #[cfg(not(target_arch = "x86_64"))]
            _ => answer(syscall(number, [a, b, c, d, e, f])) as c_long,
        }
    }
}

/// Makes another process, or a thread.
///
/// # Safety
/// As of [`by_number`].
unsafe fn made(number: c_long, arguments: [usize; 6]) -> c_long {
    // SAFETY: the caller says so.
    answer(forks::made(number, arguments).unwrap_or_else(|| unsafe { syscall(number, arguments) })) as c_long
}

/// Calls that newer machines do not have; the rest is the kernel's.
///
/// # Safety
/// As of [`by_number`].
#[cfg(target_arch = "x86_64")]
unsafe fn of_old(number: c_long, arguments: [usize; 6]) -> c_long {
    let fd = |n: usize| n as c_int;
    let [a, b, c, ..] = arguments;
    // SAFETY: as above.
    unsafe {
        match number {
            libc::SYS_fork => made(number, arguments),
            libc::SYS_open => open::open(a as _, b as _, c as _) as c_long,
            libc::SYS_setrlimit => limits::setrlimit(a as _, b as _) as c_long,
            libc::SYS_creat => open::creat(a as _, b as _) as c_long,
            libc::SYS_readlink => facts::readlink(a as _, b as _, c) as c_long,
            libc::SYS_chmod => attributes::chmod(a as _, b as _) as c_long,
            libc::SYS_chown => attributes::chown(a as _, b as _, c as _) as c_long,
            libc::SYS_lchown => attributes::lchown(a as _, b as _, c as _) as c_long,
            libc::SYS_utime => attributes::utime(a as _, b as _) as c_long,
            libc::SYS_utimes => attributes::utimes(a as _, b as _) as c_long,
            libc::SYS_futimesat => attributes::futimesat(fd(a), b as _, c as _) as c_long,
            libc::SYS_mkdir => names::mkdir(a as _, b as _) as c_long,
            libc::SYS_rmdir => names::rmdir(a as _) as c_long,
            libc::SYS_mknod => names::mknod(a as _, b as _, c as _) as c_long,
            libc::SYS_link => names::link(a as _, b as _) as c_long,
            libc::SYS_symlink => names::symlink(a as _, b as _) as c_long,
            libc::SYS_renameat => names::renameat(fd(a), b as _, fd(c), arguments[3] as _) as c_long,
            libc::SYS_stat => facts::stat(a as _, b as _) as c_long,
            libc::SYS_lstat => facts::lstat(a as _, b as _) as c_long,
            libc::SYS_access => facts::access(a as _, fd(b)) as c_long,
            libc::SYS_dup2 => descriptors::dup2(fd(a), fd(b)) as c_long,
            libc::SYS_unlink => names::unlink(a as _) as c_long,
            libc::SYS_rename => names::rename(a as _, b as _) as c_long,
            _ => answer(syscall(number, arguments)) as c_long,
        }
    }
}
