//! A file system as the kernel sees it.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    time::Duration,
};

use iov_fuse_kernel::{Entry, Kernel, Request, open};
use iov_posix::{Attributes, Create, Errno, File, FileSystem, Flags, Level, Node, Outcome, Paths, Tag, Tags, Who};
use ioverbs::seam;

use crate::{
    convert,
    folders::Stream,
    following::Wake,
    inodes::{self, Content, Inodes},
    opened::{Opened, Opening, Served},
    owners::Owners,
    passing::{Passing, Way},
    retried::Retried,
};

const O_ACCMODE: i32 = 0o3;
const O_WRONLY: i32 = 0o1;
const O_TRUNC: i32 = 0o1000;
pub(crate) const O_APPEND: i32 = 0o2000;
pub(crate) const O_DSYNC: i32 = 0o10000;

/// What the kernel knows, and who has locks.
#[derive(Default)]
pub(crate) struct Known {
    pub(crate) inodes: Inodes,
    pub(crate) owners: Owners,
    /// Tells the kernel what it has to forget, where it may keep anything and once it is mounted.
    pub(crate) kernel: Option<Kernel>,
    /// The same where it keeps pages of what is open until it is told, but for other lengths.
    pub(crate) follows: Option<Kernel>,
    /// Somebody looks at what others do, who can be woken.
    pub(crate) looks: AtomicBool,
    pub(crate) wake: Arc<Wake>,
}

/// A file system as the kernel sees it.
pub(crate) struct Door {
    pub(crate) fs: FileSystem,
    /// What it remembers of names, beside the kernel.
    pub(crate) paths: Paths,
    /// How long the kernel may take names and attributes for true.
    pub(crate) ttl: Duration,
    pub(crate) known: Arc<Known>,
    pub(crate) files: Opened<Served>,
    pub(crate) streams: Opened<Stream>,
    /// The kernel may read sealed files by itself, if it can.
    pub(crate) passthrough: bool,
    pub(crate) passing: Arc<Passing>,
    /// Who has a file mapped sees what is written past the kernel's cache.
    pub(crate) coherent: bool,
    pub(crate) retried: Retried,
    /// When a directory, or what a name stood for, was taken away last (monotonic clock).
    pub(crate) gone_ns: AtomicI64,
    /// The view of metadata, if there is one.
    pub(crate) tags: Option<Tags>,
    /// What is mounted, and how, for who asks for [`crate::running::ATTRIBUTE`].
    pub(crate) running: Vec<u8>,
    /// The program that asks the mount for something.
    pub(crate) looker: Option<PathBuf>,
}

/// What comes of asking for something by its identity. If it is gone the kernel has a name for it that is not good any more: told
/// so, it looks the name up again before it tells the program anything.
pub(crate) fn by_identity<T>(outcome: Outcome<T>) -> Outcome<T> {
    outcome.map_err(|e| if e == Errno::ENOENT { Errno::ESTALE } else { e })
}

pub(crate) fn flags(flags: i32) -> Flags {
    let access = flags & O_ACCMODE;
    Flags {
        write: access != 0,
        append: flags & O_APPEND != 0,
        truncate: flags & O_TRUNC != 0,
        blind: access == O_WRONLY,
    }
}

pub(crate) fn born(req: &Request<'_>, mode: u32) -> Create {
    Create { mode: mode & 0o7777, umask: req.umask, who: Who { uid: req.uid, gid: req.gid } }
}

/// How long a program's call takes, from the look at a name to the question for attributes, nearly always.
const ONE_CALL: Duration = Duration::from_secs(1);

impl Door {
    /// What is to be done before bytes are changed, where the kernel says so of a write or a cut, and else for all but root: what rights a
    /// file gives to who runs it are taken from it (`FUSE_HANDLE_KILLPRIV_V2`). The kernel, which would go by the old ones for as long as it takes them for true, hears of it before it hears that the
    /// bytes are there.
    pub(crate) fn lower_rights(&self, is_asked: bool, ino: u64, node: &Node) -> Outcome<()> {
        if is_asked
            && node.lower_rights()?
            && let Some(kernel) = &self.known.kernel
        {
            // The kernel may have nothing of it.
            let _ = kernel.forget_attributes(ino);
        }
        Ok(())
    }

    pub(crate) fn node(&self, ino: u64) -> Outcome<Arc<Node>> {
        match self.known.inodes.get(ino) {
            Some(inodes::Known::Node(node)) => Ok(node),
            // Everything that can be done to them has been.
            Some(inodes::Known::Tag(_)) => Err(Errno::EROFS),
            None => Err(Errno::ESTALE),
        }
    }

    /// The attributes of something that the kernel asks for by its number, and for how long it may take them for true.
    pub(crate) fn attributes_now(&self, node: &Arc<Node>) -> Outcome<(Attributes, Duration)> {
        // The kernel asks for a directory anew with each name that is made or taken away. It may be the one that was.
        let gone_ns = seam::monotonic_ns().saturating_sub(self.gone_ns.load(Ordering::Relaxed));
        if let Some(told) = node.told_within(self.ttl.min(Duration::from_nanos(gone_ns.max(0) as u64))) {
            return Ok(told);
        }
        let ttl = self.ttl_of(node);
        match node.told_still().map_or_else(|| by_identity(node.attributes()), Ok) {
            // Somebody has replaced it since its name was looked up, for the same call of a program; or a program is in a directory that has gone.
            Err(Errno::ESTALE) => {
                let told = node.told_if_removed().or_else(|| node.told_before(ONE_CALL));
                told.map(|told| (told, Duration::ZERO)).ok_or(Errno::ESTALE)
            }
            attributes => Ok((attributes?, ttl)),
        }
    }

    /// For how long the kernel may take for true what it is told of something from now on: not at all where the store is still to be told of it, and then says when it was changed.
    pub(crate) fn ttl_of(&self, node: &Node) -> Duration {
        if node.is_untold() { Duration::ZERO } else { self.ttl }
    }

    /// A part of the view of metadata.
    pub(crate) fn tag(&self, ino: u64) -> Option<Arc<Tag>> {
        match self.known.inodes.get(ino) {
            Some(inodes::Known::Tag(tag)) => Some(tag),
            _ => None,
        }
    }

    pub(crate) fn file(&self, handle: u64) -> Outcome<Arc<Served>> {
        self.files.get(handle).ok_or(Errno::EBADF)
    }

    /// The open file of a request that may come without one.
    pub(crate) fn file_or_open(&self, ino: u64, handle: u64, write: bool) -> Outcome<Arc<Served>> {
        if let Some(file) = self.files.get(handle) {
            return Ok(file);
        }
        let (file, _) = File::open(&self.node(ino)?, Flags { write, ..Flags::default() })?;
        Ok(Arc::new(Served { file, past_cache: false, shown: false, opening: Opening::default() }))
    }

    /// Tells the kernel of what was found or made; it was asked for then (monotonic clock).
    pub(crate) fn entry(
        &self,
        (req, asked_ns): (&Request<'_>, i64),
        found: Outcome<(Arc<Node>, Attributes)>,
    ) -> Outcome<Entry> {
        let (node, attributes) = found?;
        let ino = self.known.inodes.tell(&node);
        self.known.tells(Some(req), ino, (Content::of(&attributes), asked_ns));
        Ok(Entry { ttl: self.ttl, attr: convert::attr(ino, &attributes) })
    }

    /// Whether what programs read and write goes through the kernel's pages, but for who is to go past them where that can be.
    pub(crate) fn goes_through_pages(&self, past: bool) -> bool {
        self.fs.level() == Level::Session && !(past && self.coherent)
    }

    /// How the kernel is to cache what goes through a file that was opened, of which these are the attributes; `past`: nothing, where that can be, as it is empty
    /// and was opened only to be written, or as each write goes to the end: through its pages the kernel would make several writes of one, each of which gets a
    /// place by itself.
    pub(crate) fn caching(&self, ino: u64, attributes: &Attributes, way: &Way, past: bool) -> u32 {
        match way {
            Way::Passed(_) | Way::Lost => {
                // Its bytes change past the kernel's cache of this file.
                self.known.inodes.changed(ino);
                return 0;
            }
            // Nobody has pages of it, and who opens it next does not take those for true that were written (`Inodes::changed`). The kernel
            // would ask for an attribute first, and end each write that begins within a page with that page.
            Way::Cached if self.goes_through_pages(past) => {}
            Way::Cached => {
                return open::DIRECT_IO | open::PARALLEL_DIRECT_WRITES;
            }
        }
        let keeps = self.known.inodes.keeps_pages(ino, Content::of(attributes));
        if keeps { open::KEEP_CACHE } else { 0 }
    }
}
