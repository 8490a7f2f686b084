//! A file system as the kernel sees it.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use fuser::{
    FileHandle, FopenFlags, Generation, INodeNo, LockOwner, Notifier, ReplyEmpty, ReplyEntry, ReplyXattr, Request,
};
use iov_posix::{Attributes, Create, File, FileSystem, Flags, Level, Node, Outcome, Paths, Tag, Tags, Who};

use crate::{
    convert::{self, errno},
    folders::Stream,
    inodes::{self, Content, Inodes},
    locks::{Owners, Taken},
    opened::Opened,
    passing::{Passing, Way},
};

const O_ACCMODE: i32 = 0o3;
const O_TRUNC: i32 = 0o1000;
pub(crate) const O_APPEND: i32 = 0o2000;

/// What the kernel knows, and who has locks.
#[derive(Default)]
pub(crate) struct Known {
    pub(crate) inodes: Inodes,
    pub(crate) owners: Owners,
    /// Tells the kernel what it has to forget, where it may keep anything and once it is mounted.
    pub(crate) notifier: OnceLock<Notifier>,
}

impl Known {
    /// A lock was given. Somebody else may have had it before: what the kernel has cached is not good any more.
    pub(crate) fn locked(&self, ino: u64, owner: u64, taken: Taken) {
        self.owners.add(ino, owner, taken);
        self.inodes.changed(ino);
        if let Some(notifier) = self.notifier.get() {
            // The kernel may have nothing of it.
            let _ = notifier.inval_inode(INodeNo(ino), 0, 0);
        }
    }
}

/// A file system as the kernel sees it.
pub(crate) struct Door {
    pub(crate) fs: FileSystem,
    /// What it remembers of names, beside the kernel.
    pub(crate) paths: Paths,
    /// How long the kernel may take names and attributes for true.
    pub(crate) ttl: Duration,
    pub(crate) known: Arc<Known>,
    pub(crate) files: Opened<File>,
    pub(crate) streams: Opened<Stream>,
    /// The kernel may read sealed files by itself, if it can.
    pub(crate) passthrough: bool,
    pub(crate) passing: Arc<Passing>,
    /// The view of metadata, if there is one.
    pub(crate) tags: Option<Tags>,
}

/// Answers with an error where there is one.
macro_rules! or_error {
    ($reply:ident, $outcome:expr) => {
        match $outcome {
            Ok(value) => value,
            Err(e) => return $reply.error(errno(e)),
        }
    };
}
pub(crate) use or_error;

/// What comes of asking for something by its identity. If it is gone the kernel has a name for it that is not good any more: told
/// so, it looks the name up again before it tells the program anything.
pub(crate) fn by_identity<T>(outcome: Outcome<T>) -> Outcome<T> {
    outcome.map_err(|e| if e == iov_posix::Errno::ENOENT { iov_posix::Errno::ESTALE } else { e })
}

pub(crate) fn done(reply: ReplyEmpty, outcome: Outcome<()>) {
    match outcome {
        Ok(()) => reply.ok(),
        Err(e) => reply.error(errno(e)),
    }
}

pub(crate) fn flags(flags: i32) -> Flags {
    Flags { write: flags & O_ACCMODE != 0, append: flags & O_APPEND != 0, truncate: flags & O_TRUNC != 0 }
}

/// What is to be done before bytes are changed, other than by a write: all but root take from a file what rights it gives to
/// who runs it (`FUSE_HANDLE_KILLPRIV_V2`). The kernel marks such requests, but the library does not pass the mark on.
pub(crate) fn lower_rights(req: &Request, node: &Node) -> Outcome<()> {
    if req.uid() == 0 { Ok(()) } else { node.lower_rights() }
}

pub(crate) fn born(req: &Request, mode: u32) -> Create {
    Create { mode: mode & 0o7777, who: Who { uid: req.uid(), gid: req.gid() } }
}

/// How long a program's call takes, from the look at a name to the question for attributes, nearly always.
const ONE_CALL: Duration = Duration::from_secs(1);

impl Door {
    pub(crate) fn node(&self, ino: INodeNo) -> Outcome<Arc<Node>> {
        match self.known.inodes.get(ino.0) {
            Some(inodes::Known::Node(node)) => Ok(node),
            // Everything that can be done to them has been.
            Some(inodes::Known::Tag(_)) => Err(iov_posix::Errno::EROFS),
            None => Err(iov_posix::Errno::ESTALE),
        }
    }

    /// The attributes of something that the kernel asks for by its number, and for how long it may take them for true.
    pub(crate) fn attributes_now(&self, node: &Arc<Node>) -> Outcome<(Attributes, Duration)> {
        // The kernel asks for a directory anew with each name that is made or taken away.
        if let Some(told) = node.told_within(self.ttl) {
            return Ok(told);
        }
        match node.told_still().map_or_else(|| by_identity(node.attributes()), Ok) {
            // Somebody has replaced it since its name was looked up, for the same call of a program.
            Err(iov_posix::Errno::ESTALE) => {
                node.told_before(ONE_CALL).map(|told| (told, Duration::ZERO)).ok_or(iov_posix::Errno::ESTALE)
            }
            attributes => Ok((attributes?, self.ttl)),
        }
    }

    /// A part of the view of metadata.
    pub(crate) fn tag(&self, ino: INodeNo) -> Option<Arc<Tag>> {
        match self.known.inodes.get(ino.0) {
            Some(inodes::Known::Tag(tag)) => Some(tag),
            _ => None,
        }
    }

    pub(crate) fn file(&self, fh: FileHandle) -> Outcome<Arc<File>> {
        self.files.get(fh).ok_or(iov_posix::Errno::EBADF)
    }

    /// The open file of a request that may come without one.
    pub(crate) fn file_or_open(&self, ino: INodeNo, fh: FileHandle, write: bool) -> Outcome<Arc<File>> {
        match self.files.get(fh) {
            Some(file) => Ok(file),
            None => File::open(&self.node(ino)?, Flags { write, ..Flags::default() }).map(|(file, _)| Arc::new(file)),
        }
    }

    pub(crate) fn entry(&self, reply: ReplyEntry, found: Outcome<(Arc<Node>, Attributes)>) {
        let (node, attributes) = or_error!(reply, found);
        let ino = self.known.inodes.tell(&node);
        reply.entry(&self.ttl, &convert::attr(ino, &attributes), Generation(0));
    }

    /// How the kernel is to cache what it reads of a file that was opened, of which these are the attributes.
    pub(crate) fn caching(&self, ino: u64, attributes: &Attributes, way: &Way) -> FopenFlags {
        match way {
            Way::Passed(_) | Way::Lost => {
                // Its bytes change past the kernel's cache of this file.
                self.known.inodes.changed(ino);
                return FopenFlags::empty();
            }
            Way::Cached if self.fs.level() == Level::Session => {}
            Way::Cached => {
                return FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
            }
        }
        let keeps = self.known.inodes.keeps_pages(ino, Content::of(attributes));
        if keeps { FopenFlags::FOPEN_KEEP_CACHE } else { FopenFlags::empty() }
    }

    /// A process has closed a descriptor of a file: its locks on that end.
    pub(crate) fn unlock_all(&self, ino: INodeNo, file: &File, owner: LockOwner) {
        if let Some(taken) = self.known.owners.take(ino.0, owner.0)
            && file.unlock_all(owner.0).is_err()
        {
            self.known.owners.add(ino.0, owner.0, taken);
        }
    }
}

/// A value, or its length for who has no room yet.
pub(crate) fn answer_xattr(reply: ReplyXattr, value: &[u8], size: u32) {
    match size as usize {
        0 => reply.size(value.len() as u32),
        room if room < value.len() => reply.error(fuser::Errno::ERANGE),
        _ => reply.data(value),
    }
}
