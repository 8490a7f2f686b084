//! Which functions of the C library lead where.

use std::ffi::c_void;

use super::{
    attributes, bytes, clones, copies, descriptors, directories, facts, limits, locks, mapping, names, numbers, open,
    pipes, place, process, sockets, spawn, syncs, threads, walks,
};
use crate::{patch::Hook, signals};

/// A list of [`Hook`]s: names of the C library, and the function of ours.
macro_rules! hooks {
    ($($($name:literal)+ => $to:path;)*) => {
        vec![$(Hook { names: &[$($name),+], to: $to as *const () as *const c_void },)*]
    };
}

/// All of them.
pub(crate) fn hooks() -> Vec<Hook> {
    // Locks come by `fcntl` and `flock`.
    let _ = locks::flock;
    let mut hooks = hooks! {
        c"open" c"open64" c"__open_nocancel" c"__open64_nocancel" => open::open;
        c"openat" c"openat64" c"__openat_nocancel" c"__openat64_nocancel" => open::openat;
        c"creat" c"creat64" => open::creat;
        c"umask" => open::umask;
        c"read" c"__read_nocancel" => bytes::read;
        c"write" c"__write_nocancel" => bytes::write;
        c"pread" c"pread64" c"__pread64_nocancel" => bytes::pread;
        c"pwrite" c"pwrite64" => bytes::pwrite;
        c"readv" => bytes::readv;
        c"writev" => bytes::writev;
        c"preadv" c"preadv64" => bytes::preadv;
        c"pwritev" c"pwritev64" => bytes::pwritev;
        c"preadv2" c"preadv64v2" => bytes::preadv2;
        c"pwritev2" c"pwritev64v2" => bytes::pwritev2;
        c"lseek" c"lseek64" => bytes::lseek;
        c"ftruncate" c"ftruncate64" => bytes::ftruncate;
        c"fallocate" c"fallocate64" => bytes::fallocate;
        c"posix_fallocate" c"posix_fallocate64" => bytes::posix_fallocate;
        c"posix_fadvise" c"posix_fadvise64" => bytes::posix_fadvise;
        c"fsync" => syncs::fsync;
        c"fdatasync" => syncs::fdatasync;
        c"sync_file_range" => bytes::sync_file_range;
        c"syncfs" => syncs::syncfs;
        c"sync" => syncs::sync;
        c"readahead" => bytes::readahead;
        c"copy_file_range" => copies::copy_file_range;
        c"sendfile" c"sendfile64" => copies::sendfile;
        c"splice" => pipes::splice;
        c"close" c"__close_nocancel" => descriptors::close;
        c"close_range" => descriptors::close_range;
        c"closefrom" => descriptors::closefrom;
        c"dup" => descriptors::dup;
        c"dup2" => descriptors::dup2;
        c"dup3" => descriptors::dup3;
        c"fcntl" c"fcntl64" => descriptors::fcntl;
        c"ioctl" => descriptors::ioctl;
        c"flock" => descriptors::flock;
        c"getdents64" => directories::getdents64;
        c"nftw" c"nftw64" => walks::nftw;
        c"ftw" c"ftw64" => walks::ftw;
        c"scandirat" c"scandirat64" => walks::scandirat;
        c"stat" c"stat64" => facts::stat;
        c"lstat" c"lstat64" => facts::lstat;
        c"fstat" c"fstat64" => facts::fstat;
        c"fstatat" c"fstatat64" => facts::fstatat;
        c"__xstat" c"__xstat64" => facts::xstat;
        c"__lxstat" c"__lxstat64" => facts::lxstat;
        c"__fxstat" c"__fxstat64" => facts::fxstat;
        c"__fxstatat" c"__fxstatat64" => facts::fxstatat;
        c"statx" => facts::statx;
        c"access" => facts::access;
        c"euidaccess" c"eaccess" => facts::euidaccess;
        c"faccessat" => facts::faccessat;
        c"readlink" => facts::readlink;
        c"readlinkat" => facts::readlinkat;
        c"statfs" c"statfs64" => facts::statfs;
        c"fstatfs" c"fstatfs64" => facts::fstatfs;
        c"chmod" => attributes::chmod;
        c"fchmod" => attributes::fchmod;
        c"fchmodat" => attributes::fchmodat;
        c"chown" => attributes::chown;
        c"lchown" => attributes::lchown;
        c"fchown" => attributes::fchown;
        c"fchownat" => attributes::fchownat;
        c"truncate" c"truncate64" => attributes::truncate;
        c"utimensat" => attributes::utimensat;
        c"futimens" => attributes::futimens;
        c"utimes" => attributes::utimes;
        c"lutimes" => attributes::lutimes;
        c"futimes" => attributes::futimes;
        c"futimesat" => attributes::futimesat;
        c"utime" => attributes::utime;
        c"setxattr" => attributes::setxattr;
        c"lsetxattr" => attributes::lsetxattr;
        c"fsetxattr" => attributes::fsetxattr;
        c"getxattr" => attributes::getxattr;
        c"lgetxattr" => attributes::lgetxattr;
        c"fgetxattr" => attributes::fgetxattr;
        c"listxattr" => attributes::listxattr;
        c"llistxattr" => attributes::llistxattr;
        c"flistxattr" => attributes::flistxattr;
        c"removexattr" => attributes::removexattr;
        c"lremovexattr" => attributes::lremovexattr;
        c"fremovexattr" => attributes::fremovexattr;
        c"mkdir" => names::mkdir;
        c"mkdirat" => names::mkdirat;
        c"mknod" => names::mknod;
        c"mknodat" => names::mknodat;
        c"unlink" => names::unlink;
        c"unlinkat" => names::unlinkat;
        c"rmdir" => names::rmdir;
        c"symlink" => names::symlink;
        c"symlinkat" => names::symlinkat;
        c"link" => names::link;
        c"linkat" => names::linkat;
        c"rename" => names::rename;
        c"renameat" => names::renameat;
        c"renameat2" => names::renameat2;
        c"chdir" => place::chdir;
        c"fchdir" => place::fchdir;
        c"name_to_handle_at" => place::name_to_handle_at;
        c"inotify_add_watch" => place::inotify_add_watch;
        c"getcwd" => place::getcwd;
        c"setrlimit" c"setrlimit64" => limits::setrlimit;
        c"prlimit" c"prlimit64" => limits::prlimit;
        c"mmap" c"mmap64" => mapping::mmap;
        c"syscall" => numbers::by_number;
        c"wait4" => process::wait4;
        c"waitpid" => process::waitpid;
        c"wait" => process::wait;
        c"wait3" => process::wait3;
        c"waitid" => process::waitid;
        c"execve" => process::execve;
        c"execveat" => process::execveat;
        c"fexecve" => process::fexecve;
        c"vfork" => clones::vfork;
        c"bind" => sockets::bind;
        c"posix_spawn" => spawn::posix_spawn;
        c"posix_spawnp" => spawn::posix_spawnp;
        c"_exit" c"_Exit" => process::exit;
        c"sigaction" c"__sigaction" => signals::sigaction;
        c"__pthread_get_minstack" => threads::least_stack;
    };
    #[cfg(target_arch = "x86_64")]
    hooks.extend(hooks! { c"clone" => clones::clone; });
    hooks
}
