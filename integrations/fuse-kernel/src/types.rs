//! What requests bring and answers say.

use std::time::Duration;

use crate::{
    crew::{Crew, Waiting},
    fields::Writer,
};

/// Who asks, and of what.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// The number of the request; no two of one session have the same.
    pub unique: u64,
    /// The number of the file that it is about, as [`Entry::node`] told it; 1 is the root.
    pub node: u64,
    /// The user of the program that asks.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// The thread that asks; 0 where this process cannot see it.
    pub pid: u32,
    /// Where something is made: the permission bits that the program gives to nobody, unless the directory has a list for what is made in it. They are not taken from the mode.
    pub umask: u32,
    pub(crate) crew: &'a Crew,
}

impl<'a> Request<'a> {
    /// To be said by who may wait for long, for somebody else's lock for instance: others are served meanwhile, however many wait.
    pub fn waits(&self) -> Waiting<'a> {
        self.crew.waits(self.unique)
    }
}

/// Attributes of a file. Times are nanoseconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Attr {
    /// Its number.
    pub ino: u64,
    /// Bytes.
    pub size: u64,
    /// Space, in units of 512 bytes.
    pub blocks: u64,
    /// When it was read.
    pub atime_ns: i64,
    /// When its bytes were changed.
    pub mtime_ns: i64,
    /// When it was changed.
    pub ctime_ns: i64,
    /// When it was made.
    pub btime_ns: i64,
    /// Kind and rights, as of `stat`.
    pub mode: u32,
    /// Names.
    pub links: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// Of a device: its number, major and minor.
    pub rdev: (u32, u32),
}

/// What `st_blksize` says.
const BLOCK: u32 = 4096;
/// `STATX_BASIC_STATS` and `STATX_BTIME`.
const STATX: u32 = 0xfff;

fn seconds(ns: i64) -> u64 {
    ns.div_euclid(1_000_000_000) as u64
}

fn rest(ns: i64) -> u32 {
    ns.rem_euclid(1_000_000_000) as u32
}

impl Attr {
    /// `fuse_attr`.
    pub(crate) fn write(&self, to: &mut Writer<'_>) {
        let (major, minor) = self.rdev;
        for number in [self.ino, self.size, self.blocks] {
            to.u64(number);
        }
        for time in [self.atime_ns, self.mtime_ns, self.ctime_ns] {
            to.u64(seconds(time));
        }
        for time in [self.atime_ns, self.mtime_ns, self.ctime_ns] {
            to.u32(rest(time));
        }
        let rdev = (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12);
        for number in [self.mode, self.links, self.uid, self.gid, rdev, BLOCK, 0] {
            to.u32(number);
        }
    }

    /// `fuse_statx`.
    pub(crate) fn write_statx(&self, to: &mut Writer<'_>) {
        to.u32(STATX).u32(BLOCK).u64(0).u32(self.links).u32(self.uid).u32(self.gid);
        to.u16(self.mode as u16).u16(0).u64(self.ino).u64(self.size).u64(self.blocks).u64(0);
        for time in [self.atime_ns, self.btime_ns, self.ctime_ns, self.mtime_ns] {
            to.u64(seconds(time)).u32(rest(time)).u32(0);
        }
        to.u32(self.rdev.0).u32(self.rdev.1).zeros(8 + 14 * 8);
    }
}

/// A name that was found or made, and what it stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// How long the kernel may take name and attributes for true.
    pub ttl: Duration,
    /// The attributes, with the number by which the kernel is to ask for it from now on. Each entry told counts as one that the
    /// kernel has to forget (`Filesystem::forget`).
    pub attr: Attr,
}

impl Entry {
    /// `fuse_entry_out`.
    pub(crate) fn write(&self, to: &mut Writer<'_>) {
        let (seconds, rest) = (self.ttl.as_secs(), self.ttl.subsec_nanos());
        to.u64(self.attr.ino).u64(0).u64(seconds).u64(seconds).u32(rest).u32(rest);
        self.attr.write(to);
    }
}

/// Flags of what is open: how the kernel is to treat it.
pub mod open {
    /// Reads and writes go past the kernel's cache.
    pub const DIRECT_IO: u32 = 1 << 0;
    /// Pages that the kernel has of it are good.
    pub const KEEP_CACHE: u32 = 1 << 1;
    /// Several may write past the cache at a time.
    pub const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
    /// The kernel moves its bytes by itself.
    pub(crate) const PASSTHROUGH: u32 = 1 << 7;
}

/// What was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Opened {
    /// The number by which requests will name it.
    pub handle: u64,
    /// Of [`open`].
    pub flags: u32,
    /// The file through which the kernel moves its bytes, of [`Backing::id`](crate::Backing::id).
    pub backing: Option<i32>,
}

impl Opened {
    /// `fuse_open_out`.
    pub(crate) fn write(&self, to: &mut Writer<'_>) {
        let passed = if self.backing.is_some() { open::PASSTHROUGH } else { 0 };
        to.u64(self.handle).u32(self.flags | passed).u32(self.backing.unwrap_or(0) as u32);
    }
}

/// A time to set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetTime {
    /// That of this moment.
    Now,
    /// Nanoseconds since 1970; the nearest that they can say.
    At(i64),
}

/// What is to be changed of the attributes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SetAttr {
    /// Rights.
    pub mode: Option<u32>,
    /// The owner.
    pub uid: Option<u32>,
    /// The group.
    pub gid: Option<u32>,
    /// Bytes.
    pub size: Option<u64>,
    /// When it was read.
    pub atime: Option<SetTime>,
    /// When its bytes were changed.
    pub mtime: Option<SetTime>,
    /// Rights that it gives to who runs it are to be taken from it.
    pub lowers_rights: bool,
}

/// A lock, or the place of one: bytes from the first to the last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lock {
    /// The first byte.
    pub first: u64,
    /// The last byte.
    pub last: u64,
    /// `F_RDLCK`, `F_WRLCK` or `F_UNLCK`.
    pub kind: i32,
    /// The process that has it; 0: nobody knows.
    pub process: u32,
}

/// A lock that is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockAsked {
    /// The open file.
    pub handle: u64,
    /// Who is to have it: a process, or an open file.
    pub owner: u64,
    /// What is to be locked.
    pub lock: Lock,
    /// It is one of `flock`, which ends with the last descriptor of the open file.
    pub of_open_file: bool,
}

/// Bytes that were moved within the kernel's copies: from where, to where.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moved {
    /// The open file to copy from, and where.
    pub from: (u64, u64),
    /// The file to copy to, the open file, and where.
    pub to: (u64, u64, u64),
    /// How much, at most.
    pub len: u64,
}

/// Bytes to be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Written<'a> {
    /// The open file.
    pub handle: u64,
    /// Where.
    pub offset: u64,
    /// What.
    pub data: &'a [u8],
    /// The flags of `open(2)` as they are now.
    pub flags: i32,
    /// It is of the kernel's cache: a mapping was written.
    pub from_cache: bool,
    /// It goes past the pages that the kernel has of the file, which are not locked for it. Whether it does is not to be told from the flags: they may have
    /// changed since it began.
    pub past_pages: bool,
    /// Rights that the file gives to who runs it are to be taken from it.
    pub lowers_rights: bool,
}

/// The room of a file system, in blocks of 4 KiB and files.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Space {
    /// Blocks.
    pub blocks: u64,
    /// Of these free.
    pub free: u64,
    /// Files that there may be.
    pub files: u64,
    /// That may still be made.
    pub free_files: u64,
}

impl Space {
    /// `fuse_statfs_out`.
    pub(crate) fn write(&self, to: &mut Writer<'_>) {
        for number in [self.blocks, self.free, self.free, self.files, self.free_files] {
            to.u64(number);
        }
        to.u32(BLOCK).u32(255).u32(BLOCK).zeros(28);
    }
}
