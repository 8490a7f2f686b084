//! Numbers of the kernel's interface.

/// The version that this side speaks; the kernel and it use what both know.
pub(crate) const MAJOR: u32 = 7;
pub(crate) const MINOR: u32 = 45;
/// The oldest version whose structures are the ones here.
pub(crate) const OLDEST: u32 = 23;

/// Bytes before each request and each answer.
pub(crate) const IN_HEADER: usize = 40;
pub(crate) const OUT_HEADER: usize = 16;

/// What is asked for.
pub(crate) mod op {
    pub(crate) const LOOKUP: u32 = 1;
    pub(crate) const FORGET: u32 = 2;
    pub(crate) const GETATTR: u32 = 3;
    pub(crate) const SETATTR: u32 = 4;
    pub(crate) const READLINK: u32 = 5;
    pub(crate) const SYMLINK: u32 = 6;
    pub(crate) const MKNOD: u32 = 8;
    pub(crate) const MKDIR: u32 = 9;
    pub(crate) const UNLINK: u32 = 10;
    pub(crate) const RMDIR: u32 = 11;
    pub(crate) const RENAME: u32 = 12;
    pub(crate) const LINK: u32 = 13;
    pub(crate) const OPEN: u32 = 14;
    pub(crate) const READ: u32 = 15;
    pub(crate) const WRITE: u32 = 16;
    pub(crate) const STATFS: u32 = 17;
    pub(crate) const RELEASE: u32 = 18;
    pub(crate) const FSYNC: u32 = 20;
    pub(crate) const SETXATTR: u32 = 21;
    pub(crate) const GETXATTR: u32 = 22;
    pub(crate) const LISTXATTR: u32 = 23;
    pub(crate) const REMOVEXATTR: u32 = 24;
    pub(crate) const FLUSH: u32 = 25;
    pub(crate) const INIT: u32 = 26;
    pub(crate) const OPENDIR: u32 = 27;
    pub(crate) const READDIR: u32 = 28;
    pub(crate) const RELEASEDIR: u32 = 29;
    pub(crate) const FSYNCDIR: u32 = 30;
    pub(crate) const GETLK: u32 = 31;
    pub(crate) const SETLK: u32 = 32;
    pub(crate) const SETLKW: u32 = 33;
    pub(crate) const CREATE: u32 = 35;
    pub(crate) const INTERRUPT: u32 = 36;
    pub(crate) const BATCH_FORGET: u32 = 42;
    pub(crate) const FALLOCATE: u32 = 43;
    pub(crate) const READDIRPLUS: u32 = 44;
    pub(crate) const RENAME2: u32 = 45;
    pub(crate) const LSEEK: u32 = 46;
    pub(crate) const COPY_FILE_RANGE: u32 = 47;
    pub(crate) const TMPFILE: u32 = 51;
    pub(crate) const STATX: u32 = 52;
    pub(crate) const COPY_FILE_RANGE_64: u32 = 53;
}

/// The length of the structure with which a request begins; names and bytes follow. `longer`: [`init::SETXATTR_EXT`] was agreed to.
pub(crate) fn head_len(opcode: u32, longer: bool) -> usize {
    match opcode {
        op::SETXATTR if longer => 16,
        op::FORGET | op::MKDIR | op::RENAME | op::LINK | op::OPEN | op::OPENDIR | op::INTERRUPT | op::BATCH_FORGET => 8,
        op::SETXATTR | op::GETXATTR | op::LISTXATTR => 8,
        op::GETATTR | op::MKNOD | op::FSYNC | op::FSYNCDIR | op::CREATE | op::TMPFILE | op::RENAME2 => 16,
        op::RELEASE | op::RELEASEDIR | op::FLUSH | op::LSEEK | op::STATX => 24,
        op::FALLOCATE => 32,
        op::READ | op::WRITE | op::READDIR | op::READDIRPLUS => 40,
        op::GETLK | op::SETLK | op::SETLKW => 48,
        op::COPY_FILE_RANGE | op::COPY_FILE_RANGE_64 => 56,
        op::SETATTR => 88,
        _ => 0,
    }
}

/// Flags of `INIT`.
pub(crate) mod init {
    pub(crate) const ASYNC_READ: u64 = 1 << 0;
    pub(crate) const POSIX_LOCKS: u64 = 1 << 1;
    pub(crate) const ATOMIC_O_TRUNC: u64 = 1 << 3;
    pub(crate) const BIG_WRITES: u64 = 1 << 5;
    pub(crate) const DONT_MASK: u64 = 1 << 6;
    pub(crate) const FLOCK_LOCKS: u64 = 1 << 10;
    pub(crate) const AUTO_INVAL_DATA: u64 = 1 << 12;
    pub(crate) const DO_READDIRPLUS: u64 = 1 << 13;
    pub(crate) const READDIRPLUS_AUTO: u64 = 1 << 14;
    pub(crate) const ASYNC_DIO: u64 = 1 << 15;
    pub(crate) const PARALLEL_DIROPS: u64 = 1 << 18;
    pub(crate) const POSIX_ACL: u64 = 1 << 20;
    pub(crate) const MAX_PAGES: u64 = 1 << 22;
    pub(crate) const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    pub(crate) const SETXATTR_EXT: u64 = 1 << 29;
    pub(crate) const INIT_EXT: u64 = 1 << 30;
    pub(crate) const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
    pub(crate) const PASSTHROUGH: u64 = 1 << 37;
    pub(crate) const OVER_IO_URING: u64 = 1 << 41;
}

/// `fuse_setattr_in.valid`.
pub(crate) mod set {
    pub(crate) const MODE: u32 = 1 << 0;
    pub(crate) const UID: u32 = 1 << 1;
    pub(crate) const GID: u32 = 1 << 2;
    pub(crate) const SIZE: u32 = 1 << 3;
    pub(crate) const ATIME: u32 = 1 << 4;
    pub(crate) const MTIME: u32 = 1 << 5;
    pub(crate) const ATIME_NOW: u32 = 1 << 7;
    pub(crate) const MTIME_NOW: u32 = 1 << 8;
    pub(crate) const KILL_SUIDGID: u32 = 1 << 11;
}

/// `fuse_lk_in.lk_flags`.
pub(crate) const LK_FLOCK: u32 = 1 << 0;
pub(crate) const OPEN_KILL_SUIDGID: u32 = 1 << 0;
pub(crate) const SETXATTR_KILL_SGID: u32 = 1 << 0;
pub(crate) const WRITE_CACHE: u32 = 1 << 0;
/// With an owner of locks: as the kernel says of what goes past its pages, and of nothing else.
pub(crate) const WRITE_LOCKOWNER: u32 = 1 << 1;
pub(crate) const WRITE_KILL_SUIDGID: u32 = 1 << 2;

/// What the kernel is told without having asked.
pub(crate) const NOTIFY_INVAL_INODE: i32 = 2;

/// `FUSE_DEV_IOC_BACKING_OPEN` and `FUSE_DEV_IOC_BACKING_CLOSE`: `_IOW` of 16 and of 4 bytes.
pub(crate) const BACKING_OPEN: u32 = 0x4010_e501;
pub(crate) const BACKING_CLOSE: u32 = 0x4004_e502;

/// `FUSE_IO_URING_CMD_REGISTER` and `FUSE_IO_URING_CMD_COMMIT_AND_FETCH`.
pub(crate) const RING_REGISTER: u32 = 1;
pub(crate) const RING_COMMIT_AND_FETCH: u32 = 2;
/// `fuse_uring_req_header`: the header, the structure of the request, and what the ring itself says, one behind the other.
pub(crate) const RING_HEADER: usize = 288;
pub(crate) const RING_OP: usize = 128;
pub(crate) const RING_ENTRY: usize = 256;

/// An attribute that nothing has, by which a queue is given something to answer ([`crate::watch`]): no file system is asked.
pub(crate) const NOTHING: &str = "system.iov.nothing";
pub(crate) const ENODATA: i32 = 61;
pub(crate) const EIO: i32 = 5;
pub(crate) const ENXIO: i32 = 6;
pub(crate) const ENOSYS: i32 = 38;
pub(crate) const ERANGE: i32 = 34;
