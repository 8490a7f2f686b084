//! The requests of the kernel, one method each.

use std::{
    os::unix::process::CommandExt,
    path::Path,
    process::Command,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use iov_fuse_kernel::{
    Attr, Entry, Filesystem, Granted, Kernel, Lock, LockAsked, Moved, Names, Opened, Request, Room, SetAttr, Space,
    Written, open,
};
use iov_posix::{Attributes, Directory, Errno, File, Flags, Node, Outcome, Rename, SetXattr, Tag, acl};
use ioverbs::seam;

use crate::{
    convert,
    door::{Door, Known, O_APPEND, O_DSYNC, born, by_identity, flags},
    folders::{self, Stream},
    inodes::Content,
    opened::{Begun, Opening, Served},
    passing::{Passing, Way},
    running,
    tagged::ROOT,
};

const O_EXCL: i32 = 0o200;
/// Of `fallocate(2)`.
const KEEP_SIZE: i32 = 1;

const RENAME_NOREPLACE: u32 = 1 << 0;
const RENAME_EXCHANGE: u32 = 1 << 1;

/// Where a program is told by its environment to find its libraries.
const LIBRARIES: &str = "LD_LIBRARY_PATH";

/// How often what has gone is looked for again.
const RACES: usize = 16;

const XATTR_CREATE: i32 = 1;
const XATTR_REPLACE: i32 = 2;

impl Filesystem for Door {
    type Error = Errno;

    fn looks_by(&self, at: &Path) -> Option<Box<dyn Fn() -> Command + Send + Sync>> {
        let (program, at, libraries) = (self.looker.clone()?, at.to_owned(), std::env::var_os(LIBRARIES));
        Some(Box::new(move || {
            let mut command = Command::new(&program);
            // What ends or stops the one who mounted it in front is the mount's to hear. It takes nothing along but where its libraries are.
            command.arg0("iov").arg("look-at").arg(&at).current_dir("/").env_clear().process_group(0);
            command.envs(libraries.as_ref().map(|at| (LIBRARIES, at)));
            command
        }))
    }

    fn start(&mut self, kernel: &Kernel, granted: Granted) {
        // Files below are told by who may do anything on this machine.
        let passes = self.passthrough && granted.passthrough && rustix::process::geteuid().is_root();
        self.passing = Passing::new(passes.then(|| kernel.clone()));
        self.coherent = granted.coherent;
        // Another attempt to mount may come behind one.
        self.known = Arc::new(Known {
            kernel: (!self.ttl.is_zero()).then(|| kernel.clone()),
            follows: granted.keeps.then(|| kernel.clone()),
            ..Known::default()
        });
        self.known.inodes.tell(&self.fs.root());
    }

    fn end(&self) {
        self.passing.end();
        self.retried.end();
        self.files.clear();
        self.known.inodes.hide_all();
        self.streams.clear();
    }

    fn lookup(&self, req: &Request<'_>, name: &[u8]) -> Outcome<Entry> {
        if let Some(tag) = self.find_tag(req.node, name) {
            return Ok(Entry { ttl: self.ttl, attr: self.tell_tag(tag?)? });
        }
        let parent = self.node(req.node)?;
        let mut asked_ns = seam::monotonic_ns();
        let mut found = self.paths.lookup(&parent, name)?;
        for _ in 0..RACES {
            if self.retried.keep(req.pid, &found.0) {
                break;
            }
            asked_ns = seam::monotonic_ns();
            found = self.paths.lookup(&parent, name)?;
        }
        self.entry((req, asked_ns), Ok(found))
    }

    fn forget(&self, node: u64, times: u64) {
        self.known.inodes.forget(node, times);
    }

    fn getattr(&self, req: &Request<'_>) -> Outcome<(Attr, Duration)> {
        if let Some(tag) = self.tag(req.node) {
            return Ok((self.attributes_of(&tag, req.node)?, self.ttl));
        }
        let asked_ns = seam::monotonic_ns();
        let (attributes, left) = self.attributes_now(&self.node(req.node)?)?;
        self.known.tells(Some(req), req.node, (Content::of(&attributes), asked_ns));
        Ok((convert::attr(req.node, &attributes), left))
    }

    fn setattr(&self, req: &Request<'_>, set: &SetAttr) -> Outcome<(Attr, Duration)> {
        let node = self.node(req.node)?;
        let _changes = set.size.map(|size| self.known.changes(req.node, size));
        if set.size.is_some() {
            by_identity(self.lower_rights(set.lowers_rights, req.node, &node))?;
        }
        let change = convert::change(set);
        // When it was changed the store says as it is told, behind which the kernel has to ask.
        let ttl = self.ttl_of(&node);
        let asked_ns = seam::monotonic_ns();
        let attributes = self.retried.asked(req.pid, by_identity(node.change(&change)))?;
        match Content::of(&attributes) {
            content if change.size.is_some() || change.mtime.is_some() => self.known.inodes.was_set(req.node, content),
            content => self.known.tells(Some(req), req.node, (content, asked_ns)),
        }
        Ok((convert::attr(req.node, &attributes), ttl))
    }

    fn readlink(&self, req: &Request<'_>) -> Outcome<Vec<u8>> {
        if let Some(Tag::Link(_, target)) = self.tag(req.node).as_deref() {
            return Ok(target.clone());
        }
        by_identity(self.node(req.node).and_then(|node| node.read_link()))
    }

    fn mknod(&self, req: &Request<'_>, name: &[u8], mode: u32, (major, minor): (u32, u32)) -> Outcome<Entry> {
        let kind = convert::kind(mode).ok_or(Errno::EINVAL)?;
        let rdev = rustix::fs::makedev(major, minor);
        self.entry(
            (req, seam::monotonic_ns()),
            self.fs.mknod(&*self.node(req.node)?, name, kind, rdev, born(req, mode)),
        )
    }

    fn mkdir(&self, req: &Request<'_>, name: &[u8], mode: u32) -> Outcome<Entry> {
        self.entry((req, seam::monotonic_ns()), self.fs.mkdir(&*self.node(req.node)?, name, born(req, mode)))
    }

    fn unlink(&self, req: &Request<'_>, name: &[u8]) -> Outcome<()> {
        self.fs.unlink(&*self.node(req.node)?, name)
    }

    fn rmdir(&self, req: &Request<'_>, name: &[u8]) -> Outcome<()> {
        self.fs.rmdir(&*self.node(req.node)?, name)?;
        self.gone_ns.store(seam::monotonic_ns(), Ordering::Relaxed);
        Ok(())
    }

    fn symlink(&self, req: &Request<'_>, name: &[u8], target: &[u8]) -> Outcome<Entry> {
        self.entry((req, seam::monotonic_ns()), self.fs.symlink(&*self.node(req.node)?, name, target, born(req, 0o777)))
    }

    fn rename(&self, req: &Request<'_>, name: &[u8], (to, new): (u64, &[u8]), flags: u32) -> Outcome<()> {
        let rename = match flags {
            0 => Rename::Replace,
            RENAME_NOREPLACE => Rename::NoReplace,
            RENAME_EXCHANGE => Rename::Exchange,
            _ => return Err(Errno::EINVAL),
        };
        if self.find_tag(to, new).is_some() {
            return Err(Errno::EROFS);
        }
        self.fs.rename((&*self.node(req.node)?, name), (&*self.node(to)?, new), rename)?;
        // What was moved has another ctime as well.
        self.gone_ns.store(seam::monotonic_ns(), Ordering::Relaxed);
        Ok(())
    }

    fn link(&self, req: &Request<'_>, of: u64, name: &[u8]) -> Outcome<Entry> {
        let (node, parent) = (self.node(of)?, self.node(req.node)?);
        let asked_ns = seam::monotonic_ns();
        // What has lost its last name gets no other, which kernels call by that error.
        let linked = by_identity(self.fs.link(&node, &parent, name));
        let linked = self.retried.asked_or(req.pid, Errno::ENOENT, linked);
        self.entry((req, asked_ns), linked.map(|attributes| (node, attributes)))
    }

    fn open(&self, req: &Request<'_>, raw: i32, lowers_rights: bool) -> Outcome<Opened> {
        let flags = flags(raw);
        let alone = self.known.follows.as_ref().and_then(|_| self.fs.alone());
        let opened = self.node(req.node).and_then(|node| File::open(&node, Flags { truncate: false, ..flags }));
        let (file, mut attributes) = self.retried.asked(req.pid, by_identity(opened))?;
        if self.passing.is_lost(req.node, &file) {
            return Err(Errno::EBUSY);
        }
        if !flags.blind && !flags.truncate {
            self.paths.opened(file.node());
        }
        if flags.truncate {
            let _changes = self.known.changes(req.node, 0);
            by_identity(file.truncate(0))?;
            attributes.size = 0;
            self.known.inodes.was_set(req.node, Content::of(&attributes));
            if attributes.mode & 0o6000 != 0 {
                self.lower_rights(lowers_rights, req.node, file.node())?;
            }
        } else {
            self.known.opens(req.node, attributes.size);
        }
        let way = self.passing.opened(req.node, &file, &attributes, flags.truncate);
        // Before it is said whether pages of it are kept: what others do from here on is seen.
        let (cached, content) = (matches!(way, Way::Cached), Content::of(&attributes));
        let past = flags.append || (flags.blind && flags.truncate);
        let shown = cached && (!flags.blind || self.goes_through_pages(past));
        if shown {
            self.known.shows(req.node, content, self.ttl);
        }
        let cut = flags.truncate;
        let mut flags = self.caching(req.node, &attributes, &way, past);
        // What it has of a file that was cut the kernel drops by itself, and without writing first what somebody has changed by a mapping: that would come behind the cut.
        if cached && !cut && flags & open::KEEP_CACHE == 0 && self.known.opens_anew(req, &file, (content, shown)) {
            flags |= open::KEEP_CACHE;
        }
        // What is kept otherwise is what was told of the file, which was asked for behind that moment, and else the kernel drops all as it opens it.
        let opening = Opening::new(Begun {
            alone: alone.filter(|_| cached && file.may_be_alone()),
            dropped: (cached && flags & open::KEEP_CACHE == 0).then_some(content),
        });
        let backing = match way {
            Way::Passed(backing) => Some(backing.id.id()),
            Way::Cached => None,
            Way::Lost => {
                self.passing.closed(req.node);
                return Err(Errno::EBUSY);
            }
        };
        Ok(Opened { handle: self.serve(file, flags, (shown, opening)), flags, backing })
    }

    fn create(&self, req: &Request<'_>, name: &[u8], mode: u32, raw: i32) -> Outcome<(Entry, Opened)> {
        let parent = self.node(req.node)?;
        for _ in 0..RACES {
            match self.fs.create(&parent, name, born(req, mode), flags(raw)) {
                Err(Errno::EEXIST) if raw & O_EXCL == 0 => {}
                other => return other.map(|made| self.made(made, flags(raw))),
            }
            // Somebody else was faster. The kernel looks again, and checks who may open it, if it has not gone by now.
            if !matches!(self.paths.lookup(&parent, name), Err(Errno::ENOENT)) {
                break;
            }
        }
        self.retried.asked(req.pid, Err(Errno::ESTALE))
    }

    fn tmpfile(&self, req: &Request<'_>, mode: u32, raw: i32) -> Outcome<(Entry, Opened)> {
        let parent = self.node(req.node)?;
        self.fs.create_unnamed(&parent, born(req, mode), flags(raw)).map(|made| self.made(made, flags(raw)))
    }

    fn read(&self, req: &Request<'_>, handle: u64, offset: u64, room: &mut [u8]) -> Outcome<usize> {
        let file = self.file_or_open(req.node, handle, false)?;
        self.known.begins(req.node, &file);
        file.read(offset, room)
    }

    fn write(&self, req: &Request<'_>, what: &Written<'_>) -> Outcome<usize> {
        let file = self.file_or_open(req.node, what.handle, true)?;
        self.known.begins(req.node, &file);
        let _changes = self.known.changes(req.node, what.offset.saturating_add(what.data.len() as u64));
        if what.from_cache {
            self.known.inodes.is_mapped(req.node);
        }
        self.lower_rights(what.lowers_rights, req.node, file.node())?;
        // Pages that were mapped go where they lie, and whether others go to the end may change while it is open.
        let (appends, past) = (!what.from_cache && what.flags & O_APPEND != 0, file.past_cache && !what.from_cache);
        // The kernel does not see to pages that were read anew while an asynchronous request went past them. To drop such as it has locked for this request would never
        // end.
        let past_pages = what.past_pages && !what.from_cache;
        let written = match (appends, what.from_cache) {
            (true, _) => file.append(what.data),
            // Of pages the kernel looks at errors alone, and takes what was not written for written.
            (_, true) => file.write_all_at(what.offset, what.data).map(|()| what.data.len()),
            (..) => file.write_at(what.offset, what.data),
        };
        if past_pages {
            // The kernel has dropped them before, where it took the bytes to go: somebody may have read them anew meanwhile.
            let bytes = if appends { (0, 0) } else { (what.offset, what.data.len() as u64) };
            self.known.was_written_past(req, bytes);
        }
        let written = written?;
        // The kernel asks for that by itself where the bytes go through its cache.
        if what.flags & O_DSYNC != 0 && past {
            file.sync()?;
        }
        Ok(written)
    }

    fn flush(&self, req: &Request<'_>, handle: u64, owner: u64) -> Outcome<()> {
        let file = self.file(handle)?;
        let flushed = file.flush();
        self.unlock_all(req, &file, owner);
        self.known.owners.closes(req.node, handle);
        flushed
    }

    fn release(&self, req: &Request<'_>, handle: u64) -> Outcome<()> {
        let Some(file) = self.files.take(handle) else { return Ok(()) };
        self.end_locks(req, handle, &file);
        self.passing.closed(req.node);
        if file.shown {
            self.known.inodes.is_hidden(req.node);
        }
        // Another request on it may be under way, and ends it then.
        Arc::try_unwrap(file).map_or(Ok(()), |served| served.file.close())
    }

    fn fsync(&self, req: &Request<'_>, handle: u64) -> Outcome<()> {
        self.file_or_open(req.node, handle, false)?.sync()
    }

    fn opendir(&self, req: &Request<'_>) -> Outcome<Opened> {
        let stream = match self.tag(req.node).as_deref() {
            Some(Tag::View(view)) => self.open_view(view)?,
            Some(Tag::Link(..)) => return Err(Errno::ENOTDIR),
            None => Stream::Directory(by_identity(self.node(req.node).and_then(|node| Directory::open(&node)))?),
        };
        Ok(Opened { handle: self.streams.put(stream), ..Opened::default() })
    }

    fn readdir(&self, req: &Request<'_>, handle: u64, offset: u64, names: &mut Names<'_>) -> Outcome<()> {
        let stream = self.streams.get(handle).ok_or(Errno::EBADF)?;
        self.rewound(&stream, offset);
        folders::fill(&stream, req.node, offset, names)
    }

    fn readdirplus(&self, req: &Request<'_>, handle: u64, offset: u64, names: &mut Names<'_>) -> Outcome<()> {
        let stream = self.streams.get(handle).ok_or(Errno::EBADF)?;
        self.rewound(&stream, offset);
        folders::fill_plus(self, req, &stream, offset, names)
    }

    fn releasedir(&self, _req: &Request<'_>, handle: u64) -> Outcome<()> {
        drop(self.streams.take(handle));
        Ok(())
    }

    fn fsyncdir(&self, _req: &Request<'_>, _handle: u64) -> Outcome<()> {
        self.fs.sync()
    }

    fn statfs(&self, _req: &Request<'_>) -> Outcome<Space> {
        let space = self.fs.space()?;
        let (blocks, free) = (space.bytes / 4096, space.free / 4096);
        Ok(Space { blocks, free, files: space.files, free_files: space.free_files })
    }

    fn setxattr(&self, req: &Request<'_>, name: &[u8], value: &[u8], (flags, lowers): (i32, bool)) -> Outcome<()> {
        let how = match flags {
            XATTR_CREATE => SetXattr::Create,
            XATTR_REPLACE => SetXattr::Replace,
            _ => SetXattr::Either,
        };
        let node = self.node(req.node)?;
        self.retried.asked(req.pid, by_identity(node.set_xattr(name, value, how)))?;
        // Of a list for what is made there the kernel says it as well.
        if lowers && name == acl::ACCESS { by_identity(node.take_group_right()) } else { Ok(()) }
    }

    fn getxattr(&self, req: &Request<'_>, name: &[u8], room: &mut Room<'_>) -> Outcome<()> {
        if req.node == ROOT && name == running::ATTRIBUTE.as_bytes() {
            room.give(&self.running);
            return Ok(());
        }
        if self.tag(req.node).is_some() {
            // Of lists the kernel asks where it wants to know who may do what: only that there is none lets it go by the mode.
            return Err(if acl::is_list(name) { Errno::ENODATA } else { Errno::EOPNOTSUPP });
        }
        let node = self.node(req.node)?;
        // Programs that list a directory ask so of all that is in it, which the kernel has just been told of.
        let value = if acl::is_list(name) { node.list_within(name, self.ttl) } else { node.xattr(name) };
        let value = match self.told(req.pid, value) {
            // What has gone is somebody's directory all the same.
            Err(Errno::ESTALE | Errno::ENOENT) if acl::is_list(name) => Err(Errno::ENODATA),
            value => value,
        };
        room.give(&value?);
        Ok(())
    }

    fn listxattr(&self, req: &Request<'_>, room: &mut Room<'_>) -> Outcome<()> {
        let names = match self.tag(req.node) {
            Some(_) => Vec::new(),
            None => self.told(req.pid, self.node(req.node)?.xattrs())?,
        };
        let mut list = names.join(&0);
        if !names.is_empty() {
            list.push(0);
        }
        room.give(&list);
        Ok(())
    }

    fn removexattr(&self, req: &Request<'_>, name: &[u8]) -> Outcome<()> {
        self.retried.asked(req.pid, by_identity(self.node(req.node)?.remove_xattr(name)))
    }

    fn getlk(&self, req: &Request<'_>, asked: &LockAsked) -> Outcome<Lock> {
        self.lock_in_the_way(req, asked)
    }

    fn setlk(&self, req: &Request<'_>, asked: &LockAsked, sleep: bool) -> Outcome<()> {
        self.lock(req, asked, sleep)
    }

    fn fallocate(&self, req: &Request<'_>, handle: u64, (offset, len): (u64, u64), mode: i32) -> Outcome<()> {
        // Where the length stays, the kernel knows no other one.
        let end = if mode & KEEP_SIZE == 0 { offset.saturating_add(len) } else { 0 };
        let _changes = self.known.changes(req.node, end);
        let file = self.file(handle)?;
        self.lower_rights(req.uid != 0, req.node, file.node())?;
        file.allocate(offset, len, mode)
    }

    fn lseek(&self, _req: &Request<'_>, handle: u64, offset: u64, whence: u32) -> Outcome<u64> {
        let what = convert::seek(whence).ok_or(Errno::EINVAL)?;
        self.file(handle)?.seek(offset, what)
    }

    fn copy_file_range(&self, req: &Request<'_>, moved: &Moved) -> Outcome<u64> {
        let ((from, offset), (node, to, to_offset)) = (moved.from, moved.to);
        let (from, to) = (self.file(from)?, self.file(to)?);
        let _changes = self.known.changes(node, to_offset.saturating_add(moved.len));
        self.lower_rights(req.uid != 0, node, to.node())?;
        from.copy_to(offset, &to, to_offset, moved.len)
    }
}

impl Door {
    /// What a thread is told of something by its identity. The kernel asks for some of it by itself, behind a look at a name and before what the program wants.
    fn told<T>(&self, thread: u32, outcome: Outcome<T>) -> Outcome<T> {
        match by_identity(outcome) {
            Err(Errno::ESTALE) => self.retried.asked(thread, Err(Errno::ESTALE)),
            told => told,
        }
    }

    /// What the kernel is told of a file that was made.
    fn made(&self, (file, node, attributes): (File, Arc<Node>, Attributes), flags: Flags) -> (Entry, Opened) {
        let ino = self.known.inodes.tell(&node);
        let way = self.passing.opened(ino, &file, &attributes, true);
        let _ = self.known.inodes.hears(ino, Content::of(&attributes), i64::MIN);
        let shown = !flags.blind && matches!(way, Way::Cached);
        if shown {
            self.known.shows(ino, Content::of(&attributes), self.ttl);
            self.known.is_new(ino, &file);
        }
        let flags = self.caching(ino, &attributes, &way, flags.append || flags.blind);
        let backing = match way {
            Way::Passed(backing) => Some(backing.id.id()),
            // What is new was not lost before.
            Way::Cached | Way::Lost => None,
        };
        let entry = Entry { ttl: self.ttl, attr: convert::attr(ino, &attributes) };
        (entry, Opened { handle: self.serve(file, flags, (shown, Opening::default())), flags, backing })
    }

    /// A number for a file that was opened, which the kernel is to treat so; `shown`: programs may have pages of it.
    fn serve(&self, file: File, flags: u32, (shown, opening): (bool, Opening)) -> u64 {
        self.files.put(Served { file, past_cache: flags & open::DIRECT_IO != 0, shown, opening })
    }
}
