//! What `stat` tells, and what of it can be set.

use ioverbs::{
    EntryKind, Stat, Uuid,
    posix::{MODE_ACL, MODE_DEFAULT_ACL},
};

/// The bits of a mode that say what kind of file it is.
pub(crate) const TYPE: u32 = 0o170_000;

/// What kind of file something is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Kind {
    /// A named pipe.
    Fifo = 0o010_000,
    /// A device of characters.
    CharDevice = 0o020_000,
    /// A directory.
    Directory = 0o040_000,
    /// A device of blocks.
    BlockDevice = 0o060_000,
    /// A regular file.
    File = 0o100_000,
    /// A symbolic link.
    Symlink = 0o120_000,
    /// A socket.
    Socket = 0o140_000,
}

impl Kind {
    /// Of what the store keeps: its kind of entry and its mode.
    pub(crate) fn of(entry: EntryKind, mode: u32) -> Kind {
        match (entry, mode & TYPE) {
            (EntryKind::Collection, 0o010_000) => Kind::Fifo,
            (EntryKind::Collection, 0o020_000) => Kind::CharDevice,
            (EntryKind::Collection, 0o060_000) => Kind::BlockDevice,
            (EntryKind::Collection, 0o120_000) => Kind::Symlink,
            (EntryKind::Collection, 0o140_000) => Kind::Socket,
            (EntryKind::Collection, _) => Kind::File,
            _ => Kind::Directory,
        }
    }

    /// The bits of `st_mode`.
    pub fn bits(self) -> u32 {
        self as u32
    }

    /// Whether it is a device, which has a number.
    pub(crate) fn is_device(self) -> bool {
        matches!(self, Kind::CharDevice | Kind::BlockDevice)
    }
}

/// What `stat` tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attributes {
    /// Identity.
    pub uuid: Uuid,
    /// Number for programs, made from the identity: see [`number`].
    pub ino: u64,
    /// Kind of file.
    pub kind: Kind,
    /// Permission bits, with those for set-user-id, set-group-id and sticky.
    pub mode: u32,
    /// Names. Directories have one, which tells programs that it says nothing about the directories below.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Owning group.
    pub gid: u32,
    /// Device number, as the C library packs it.
    pub rdev: u64,
    /// Length in bytes.
    pub size: u64,
    /// Space taken, in units of 512 bytes.
    pub blocks: u64,
    /// Last access as somebody set it, else when it was made; nanoseconds since 1970 like all times here.
    pub atime_ns: i64,
    /// Last change of the bytes.
    pub mtime_ns: i64,
    /// Last change of anything.
    pub ctime_ns: i64,
    /// Made at.
    pub btime_ns: i64,
    /// Grows when the bytes change.
    pub version: u64,
    /// It has an access control list, of which `mode` says a part.
    pub acl: bool,
    /// It has a list for what is made in it.
    pub default_acl: bool,
}

/// The number under which programs know something: 1 for the root, else the random part of its identity.
pub fn number(uuid: Uuid) -> u64 {
    if uuid.is_nil() {
        return 1;
    }
    let half = |from: usize| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&uuid.0[from..from + 8]);
        u64::from_be_bytes(bytes)
    };
    // The time in front distinguishes what one generator makes, the random bits all else.
    let number = half(8).rotate_left(2) ^ half(0).rotate_left(17);
    // 0 and 1 mean something else, and some programs read numbers as signed.
    (number & (u64::MAX >> 1)).max(2)
}

impl Attributes {
    pub(crate) fn new(stat: &Stat, rdev: u64) -> Attributes {
        let kind = Kind::of(stat.kind, stat.mode);
        let directory = kind == Kind::Directory;
        let size = if directory { 4096 } else { stat.bytes };
        Attributes {
            uuid: stat.uuid,
            ino: number(stat.uuid),
            kind,
            mode: stat.mode & 0o7777,
            links: if directory { 1 } else { stat.links },
            uid: stat.uid,
            gid: stat.gid,
            rdev,
            size,
            blocks: if directory { 8 } else { stat.allocated.max(u64::from(stat.bytes > 0)).div_ceil(512) },
            // Reading changes none: nobody has set it since it was made.
            atime_ns: if stat.atime_ns == 0 { stat.ctime_ns } else { stat.atime_ns },
            mtime_ns: stat.mtime_ns,
            ctime_ns: stat.changed_ns.max(stat.ctime_ns),
            btime_ns: stat.ctime_ns,
            version: stat.version,
            acl: stat.mode & MODE_ACL != 0,
            default_acl: stat.mode & MODE_DEFAULT_ACL != 0,
        }
    }
}

/// A time to set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetTime {
    /// That of this moment.
    Now,
    /// This one, in nanoseconds since 1970.
    At(i64),
}

impl SetTime {
    /// In nanoseconds since 1970, given what time it is.
    pub(crate) fn ns(self, now_ns: i64) -> i64 {
        match self {
            SetTime::Now => now_ns,
            SetTime::At(ns) => ns,
        }
    }
}

/// What `chmod`, `chown`, `truncate` and `utimens` set; `None` leaves one as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Change {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Owning group.
    pub gid: Option<u32>,
    /// Length.
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<SetTime>,
    /// Last change of the bytes.
    pub mtime: Option<SetTime>,
}
