//! From what the kernel says to what `iov-posix` does, and back.

use iov_fuse_kernel::{Attr, SetAttr, SetTime};
use iov_posix::{Attributes, Change, Kind, Seek};

/// The kind of file that a mode says; `None`: none that there is.
pub(crate) fn kind(mode: u32) -> Option<Kind> {
    let kinds =
        [Kind::Fifo, Kind::CharDevice, Kind::Directory, Kind::BlockDevice, Kind::File, Kind::Symlink, Kind::Socket];
    match mode & 0o170_000 {
        0 => Some(Kind::File),
        bits => kinds.into_iter().find(|kind| kind.bits() == bits),
    }
}

fn set_time(time: SetTime) -> iov_posix::SetTime {
    match time {
        SetTime::Now => iov_posix::SetTime::Now,
        SetTime::At(ns) => iov_posix::SetTime::At(ns),
    }
}

/// What is to be changed of a file.
pub(crate) fn change(set: &SetAttr) -> Change {
    let SetAttr { mode, uid, gid, size, .. } = *set;
    Change { mode, uid, gid, size, atime: set.atime.map(set_time), mtime: set.mtime.map(set_time) }
}

/// Attributes for the kernel, under the number by which it knows the file.
pub(crate) fn attr(ino: u64, a: &Attributes) -> Attr {
    Attr {
        ino,
        size: a.size,
        blocks: a.blocks,
        atime_ns: a.atime_ns,
        mtime_ns: a.mtime_ns,
        ctime_ns: a.ctime_ns,
        btime_ns: a.btime_ns,
        mode: a.kind.bits() | a.mode & 0o7777,
        links: a.links,
        uid: a.uid,
        gid: a.gid,
        rdev: (rustix::fs::major(a.rdev), rustix::fs::minor(a.rdev)),
    }
}

/// `SEEK_DATA` and `SEEK_HOLE`, as on Linux; all else the kernel does itself.
pub(crate) fn seek(whence: u32) -> Option<Seek> {
    match whence {
        3 => Some(Seek::Data),
        4 => Some(Seek::Hole),
        _ => None,
    }
}
