//! From what the kernel says to what `iov-posix` does, and back.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{Errno, FileAttr, FileType, INodeNo, TimeOrNow};
use iov_posix::{Attributes, Kind, Seek, SetTime};

pub(crate) fn errno(e: iov_posix::Errno) -> Errno {
    Errno::from_i32(e.0)
}

pub(crate) fn file_type(kind: Kind) -> FileType {
    match kind {
        Kind::Fifo => FileType::NamedPipe,
        Kind::CharDevice => FileType::CharDevice,
        Kind::Directory => FileType::Directory,
        Kind::BlockDevice => FileType::BlockDevice,
        Kind::File => FileType::RegularFile,
        Kind::Symlink => FileType::Symlink,
        Kind::Socket => FileType::Socket,
    }
}

/// The kind of file that a mode says; `None`: none that there is.
pub(crate) fn kind(mode: u32) -> Option<Kind> {
    let kinds =
        [Kind::Fifo, Kind::CharDevice, Kind::Directory, Kind::BlockDevice, Kind::File, Kind::Symlink, Kind::Socket];
    match mode & 0o170_000 {
        0 => Some(Kind::File),
        bits => kinds.into_iter().find(|kind| kind.bits() == bits),
    }
}

fn time(ns: i64) -> SystemTime {
    let span = Duration::from_nanos(ns.unsigned_abs());
    if ns < 0 { UNIX_EPOCH - span } else { UNIX_EPOCH + span }
}

/// A time to set; times that nanoseconds since 1970 cannot say become the nearest that they can.
pub(crate) fn set_time(time: TimeOrNow) -> SetTime {
    match time {
        TimeOrNow::Now => SetTime::Now,
        TimeOrNow::SpecificTime(time) => SetTime::At(match time.duration_since(UNIX_EPOCH) {
            Ok(span) => i64::try_from(span.as_nanos()).unwrap_or(i64::MAX),
            // The kernel counts nanoseconds forward from a negative second. `fuser` (0.18) takes them off instead.
            Err(e) => {
                let (seconds, ns) = (i128::from(e.duration().as_secs()), i128::from(e.duration().subsec_nanos()));
                i64::try_from(ns - seconds * 1_000_000_000).unwrap_or(i64::MIN)
            }
        }),
    }
}

/// A device number as the kernel sends and takes it in 32 bits, from the 64 bits of the C library, and back.
pub(crate) fn rdev_to_kernel(rdev: u64) -> u32 {
    let (major, minor) = (rustix::fs::major(rdev), rustix::fs::minor(rdev));
    (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12)
}

pub(crate) fn rdev_from_kernel(rdev: u32) -> u64 {
    let (major, minor) = ((rdev >> 8) & 0xfff, (rdev & 0xff) | ((rdev >> 12) & 0xfff00));
    rustix::fs::makedev(major, minor)
}

/// Attributes for the kernel, under the number by which it knows the file.
pub(crate) fn attr(ino: u64, a: &Attributes) -> FileAttr {
    FileAttr {
        ino: INodeNo(ino),
        size: a.size,
        blocks: a.blocks,
        atime: time(a.atime_ns),
        mtime: time(a.mtime_ns),
        ctime: time(a.ctime_ns),
        crtime: time(a.btime_ns),
        kind: file_type(a.kind),
        perm: (a.mode & 0o7777) as u16,
        nlink: a.links,
        uid: a.uid,
        gid: a.gid,
        rdev: rdev_to_kernel(a.rdev),
        blksize: 4096,
        flags: 0,
    }
}

/// `SEEK_DATA` and `SEEK_HOLE`, as on Linux; all else the kernel does itself.
pub(crate) fn seek(whence: i32) -> Option<Seek> {
    match whence {
        3 => Some(Seek::Data),
        4 => Some(Seek::Hole),
        _ => None,
    }
}
