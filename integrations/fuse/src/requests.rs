//! The requests of the kernel, one method each.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt, path::Path, sync::Arc};

use fuser::{
    BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLock, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr,
    Request, TimeOrNow, WriteFlags,
};
use iov_posix::{Change, Directory, File, Flags, LockRange, Rename, SetXattr, Tag};

use crate::{
    convert::{self, errno},
    door::{Door, O_APPEND, answer_xattr, born, by_identity, done, flags, lower_rights, or_error},
    folders::{self, Stream},
    locks,
    passing::{Passing, Way},
};

/// Most bytes of one request: what the kernel sends at most.
const REQUEST: u32 = 1 << 20;

const O_EXCL: i32 = 0o200;

const XATTR_CREATE: i32 = 1;
const XATTR_REPLACE: i32 = 2;

impl Filesystem for Door {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        let _ = config.set_max_write(REQUEST);
        let _ = config.set_max_readahead(REQUEST);
        let _ = config.set_max_background(64);
        let wanted = [
            InitFlags::FUSE_POSIX_LOCKS,
            InitFlags::FUSE_FLOCK_LOCKS,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
            InitFlags::FUSE_ATOMIC_O_TRUNC,
            InitFlags::FUSE_ASYNC_DIO,
            InitFlags::FUSE_AUTO_INVAL_DATA,
            InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
            // Without it the kernel asks before each write whether the file has rights to be taken from it.
            InitFlags::FUSE_HANDLE_KILLPRIV_V2,
        ];
        for flag in wanted {
            // An older kernel does without.
            let _ = config.add_capabilities(flag);
        }
        // Files below are told by who may do anything on this machine. One depth is enough: they are of no stacked file system.
        if self.passthrough
            && rustix::process::geteuid().is_root()
            && config.add_capabilities(InitFlags::FUSE_PASSTHROUGH).is_ok()
            && config.set_max_stack_depth(1).is_ok()
        {
            self.passing = Passing::new(true);
        }
        let root = self.fs.root();
        self.known.inodes.tell(&root);
        Ok(())
    }

    fn destroy(&mut self) {
        self.passing.end();
        self.files.clear();
        self.streams.clear();
    }

    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if let Some(tag) = self.find_tag(parent, name.as_bytes()) {
            let attr = or_error!(reply, tag.and_then(|tag| self.tell_tag(tag)));
            return reply.entry(&self.ttl, &attr, Generation(0));
        }
        let parent = or_error!(reply, self.node(parent));
        self.entry(reply, self.paths.lookup(&parent, name.as_bytes()));
    }

    fn forget(&self, _req: &Request, ino: INodeNo, nlookup: u64) {
        self.known.inodes.forget(ino.0, nlookup);
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        if let Some(tag) = self.tag(ino) {
            let attr = or_error!(reply, self.attributes_of(&tag, ino.0));
            return reply.attr(&self.ttl, &attr);
        }
        let node = or_error!(reply, self.node(ino));
        let (attributes, left) = or_error!(reply, self.attributes_now(&node));
        reply.attr(&left, &convert::attr(ino.0, &attributes));
    }

    fn setattr(
        &self,
        req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<std::time::SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<std::time::SystemTime>,
        _chgtime: Option<std::time::SystemTime>,
        _bkuptime: Option<std::time::SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let (atime, mtime) = (atime.map(convert::set_time), mtime.map(convert::set_time));
        let change = Change { mode, uid, gid, size, atime, mtime };
        let node = or_error!(reply, self.node(ino));
        if size.is_some() {
            self.known.inodes.changed(ino.0);
            or_error!(reply, by_identity(lower_rights(req, &node)));
        }
        let attributes = or_error!(reply, by_identity(node.change(&change)));
        reply.attr(&self.ttl, &convert::attr(ino.0, &attributes));
    }

    fn readlink(&self, _req: &Request, ino: INodeNo, reply: ReplyData) {
        if let Some(Tag::Link(_, target)) = self.tag(ino).as_deref() {
            return reply.data(target);
        }
        let target = or_error!(reply, by_identity(self.node(ino).and_then(|node| node.read_link())));
        reply.data(&target);
    }

    fn mknod(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let Some(kind) = convert::kind(mode) else { return reply.error(Errno::EINVAL) };
        let parent = or_error!(reply, self.node(parent));
        let rdev = convert::rdev_from_kernel(rdev);
        let made = self.fs.mknod(&parent, name.as_bytes(), kind, rdev, born(req, mode));
        self.entry(reply, made);
    }

    fn mkdir(&self, req: &Request, parent: INodeNo, name: &OsStr, mode: u32, _umask: u32, reply: ReplyEntry) {
        let parent = or_error!(reply, self.node(parent));
        self.entry(reply, self.fs.mkdir(&parent, name.as_bytes(), born(req, mode)));
    }

    fn unlink(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let outcome = self.node(parent).and_then(|parent| self.fs.unlink(&parent, name.as_bytes()));
        done(reply, outcome);
    }

    fn rmdir(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let outcome = self.node(parent).and_then(|parent| self.fs.rmdir(&parent, name.as_bytes()));
        done(reply, outcome);
    }

    fn symlink(&self, req: &Request, parent: INodeNo, link_name: &OsStr, target: &Path, reply: ReplyEntry) {
        let parent = or_error!(reply, self.node(parent));
        let target = target.as_os_str().as_bytes();
        let made = self.fs.symlink(&parent, link_name.as_bytes(), target, born(req, 0o777));
        self.entry(reply, made);
    }

    fn rename(
        &self,
        _req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let rename = match flags {
            f if f.is_empty() => Rename::Replace,
            RenameFlags::RENAME_NOREPLACE => Rename::NoReplace,
            RenameFlags::RENAME_EXCHANGE => Rename::Exchange,
            _ => return reply.error(Errno::EINVAL),
        };
        if self.find_tag(newparent, newname.as_bytes()).is_some() {
            return reply.error(Errno::EROFS);
        }
        let (from, to) = (or_error!(reply, self.node(parent)), or_error!(reply, self.node(newparent)));
        let renamed = self.fs.rename((&from, name.as_bytes()), (&to, newname.as_bytes()), rename);
        done(reply, renamed);
    }

    fn link(&self, _req: &Request, ino: INodeNo, newparent: INodeNo, newname: &OsStr, reply: ReplyEntry) {
        let (node, parent) = (or_error!(reply, self.node(ino)), or_error!(reply, self.node(newparent)));
        let linked = by_identity(self.fs.link(&node, &parent, newname.as_bytes()));
        self.entry(reply, linked.map(|attributes| (node, attributes)));
    }

    fn open(&self, req: &Request, ino: INodeNo, flags_: OpenFlags, reply: ReplyOpen) {
        let flags = flags(flags_.0);
        let opened = self.node(ino).and_then(|node| File::open(&node, Flags { truncate: false, ..flags }));
        let (file, mut attributes) = or_error!(reply, by_identity(opened));
        if self.passing.is_lost(ino.0, &file) {
            return reply.error(Errno::EBUSY);
        }
        if flags.truncate {
            self.known.inodes.changed(ino.0);
            or_error!(reply, by_identity(file.truncate(0)));
            attributes.size = 0;
            if attributes.mode & 0o6000 != 0 {
                or_error!(reply, lower_rights(req, file.node()));
            }
        }
        let way = self.passing.opened(ino.0, &file, &attributes, flags.truncate, |below| reply.open_backing(below));
        let caching = self.caching(ino.0, &attributes, &way);
        match way {
            Way::Passed(backing) => reply.opened_passthrough(self.files.put(file), caching, &backing.id),
            Way::Cached => reply.opened(self.files.put(file), caching),
            Way::Lost => {
                self.passing.closed(ino.0);
                reply.error(Errno::EBUSY);
            }
        }
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        raw: i32,
        reply: ReplyCreate,
    ) {
        let parent = or_error!(reply, self.node(parent));
        let made = match self.fs.create(&parent, name.as_bytes(), born(req, mode), flags(raw)) {
            // Somebody else was faster. The kernel looks again, and checks who may open it.
            Err(iov_posix::Errno::EEXIST) if raw & O_EXCL == 0 => Err(iov_posix::Errno::ESTALE),
            other => other,
        };
        let (file, node, attributes) = or_error!(reply, made);
        let ino = self.known.inodes.tell(&node);
        let way = self.passing.opened(ino, &file, &attributes, true, |below| reply.open_backing(below));
        let caching = self.caching(ino, &attributes, &way);
        let (attr, fh) = (convert::attr(ino, &attributes), self.files.put(file));
        match way {
            Way::Passed(backing) => {
                reply.created_passthrough(&self.ttl, &attr, Generation(0), fh, caching, &backing.id);
            }
            // What is new was not lost before.
            Way::Cached | Way::Lost => reply.created(&self.ttl, &attr, Generation(0), fh, caching),
        }
    }

    fn read(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let file = or_error!(reply, self.file_or_open(ino, fh, false));
        thread_local! {
            /// What is read goes through here, once: the kernel copies it from there.
            static ROOM: std::cell::RefCell<Vec<u8>> = const { std::cell::RefCell::new(Vec::new()) };
        }
        ROOM.with_borrow_mut(|room| {
            let size = size as usize;
            if room.len() < size {
                room.resize(size, 0);
            }
            match file.read(offset, &mut room[..size]) {
                Ok(n) => reply.data(&room[..n]),
                Err(e) => reply.error(errno(e)),
            }
        });
    }

    fn write(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let file = or_error!(reply, self.file_or_open(ino, fh, true));
        self.known.inodes.changed(ino.0);
        if write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID) {
            or_error!(reply, file.node().lower_rights());
        }
        // Pages that were mapped go where they lie, and whether others go to the end may change while it is open.
        let at_place = write_flags.contains(WriteFlags::FUSE_WRITE_CACHE) || flags.0 & O_APPEND == 0;
        let n = or_error!(reply, if at_place { file.write_at(offset, data) } else { file.append(data) });
        reply.written(n as u32);
    }

    fn flush(&self, _req: &Request, ino: INodeNo, fh: FileHandle, lock_owner: LockOwner, reply: ReplyEmpty) {
        let file = or_error!(reply, self.file(fh));
        let flushed = file.flush();
        self.unlock_all(ino, &file, lock_owner);
        done(reply, flushed);
    }

    fn release(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        let Some(file) = self.files.take(fh) else { return reply.ok() };
        for owner in self.known.owners.take_all_of(ino.0, fh) {
            // What cannot be told ends with the mount.
            let _ = file.unlock_all(owner);
        }
        self.passing.closed(ino.0);
        // Another request on it may be under way, and ends it then.
        done(reply, Arc::try_unwrap(file).map_or(Ok(()), File::close));
    }

    fn fsync(&self, _req: &Request, ino: INodeNo, fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        done(reply, self.file_or_open(ino, fh, false).and_then(|file| file.sync()));
    }

    fn opendir(&self, _req: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let stream = match self.tag(ino).as_deref() {
            Some(Tag::View(view)) => self.open_view(view),
            Some(Tag::Link(..)) => Err(iov_posix::Errno::ENOTDIR),
            None => by_identity(self.node(ino).and_then(|node| Directory::open(&node))).map(Stream::Directory),
        };
        let stream = or_error!(reply, stream);
        reply.opened(self.streams.put(stream), FopenFlags::empty());
    }

    fn readdir(&self, _req: &Request, ino: INodeNo, fh: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let Some(stream) = self.streams.get(fh) else { return reply.error(Errno::EBADF) };
        self.rewound(&stream, offset);
        or_error!(reply, folders::fill(&stream, ino.0, offset, &mut reply));
        reply.ok();
    }

    fn readdirplus(&self, _req: &Request, ino: INodeNo, fh: FileHandle, offset: u64, mut reply: ReplyDirectoryPlus) {
        let Some(stream) = self.streams.get(fh) else { return reply.error(Errno::EBADF) };
        self.rewound(&stream, offset);
        or_error!(reply, folders::fill_plus(self, &stream, ino.0, offset, &mut reply));
        reply.ok();
    }

    fn releasedir(&self, _req: &Request, _ino: INodeNo, fh: FileHandle, _flags: OpenFlags, reply: ReplyEmpty) {
        drop(self.streams.take(fh));
        reply.ok();
    }

    fn fsyncdir(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        done(reply, self.fs.sync());
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        let space = or_error!(reply, self.fs.space());
        let (blocks, free) = (space.bytes / 4096, space.free / 4096);
        reply.statfs(blocks, free, free, space.files, space.free_files, 4096, 255, 4096);
    }

    fn setxattr(
        &self,
        _req: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let how = match flags {
            XATTR_CREATE => SetXattr::Create,
            XATTR_REPLACE => SetXattr::Replace,
            _ => SetXattr::Either,
        };
        done(reply, self.node(ino).and_then(|node| node.set_xattr(name.as_bytes(), value, how)));
    }

    fn getxattr(&self, _req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        if self.tag(ino).is_some() {
            return reply.error(Errno::EOPNOTSUPP);
        }
        let value = or_error!(reply, self.node(ino).and_then(|node| node.xattr(name.as_bytes())));
        answer_xattr(reply, &value, size);
    }

    fn listxattr(&self, _req: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let names = match self.tag(ino) {
            Some(_) => Vec::new(),
            None => or_error!(reply, self.node(ino).and_then(|node| node.xattrs())),
        };
        let mut list = names.join(&0);
        if !names.is_empty() {
            list.push(0);
        }
        answer_xattr(reply, &list, size);
    }

    fn removexattr(&self, _req: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        done(reply, self.node(ino).and_then(|node| node.remove_xattr(name.as_bytes())));
    }

    fn getlk(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        lock_owner: LockOwner,
        start: u64,
        end: u64,
        typ: i32,
        _pid: u32,
        reply: ReplyLock,
    ) {
        let Some(kind) = locks::kind(typ) else { return reply.error(Errno::EINVAL) };
        let file = or_error!(reply, self.file(fh));
        self.tell_lock(ino, (file, lock_owner.0, LockRange::Bytes(start, end), kind), reply);
    }

    fn setlk(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        lock_owner: LockOwner,
        start: u64,
        end: u64,
        typ: i32,
        pid: u32,
        sleep: bool,
        reply: ReplyEmpty,
    ) {
        let Some(kind) = locks::kind(typ) else { return reply.error(Errno::EINVAL) };
        let file = or_error!(reply, self.file(fh));
        self.lock(req, (ino, fh, pid), (file, lock_owner.0, LockRange::Bytes(start, end), kind), sleep, reply);
    }

    fn fallocate(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        self.known.inodes.changed(ino.0);
        let file = or_error!(reply, self.file(fh));
        done(reply, lower_rights(req, file.node()).and_then(|()| file.allocate(offset, length, mode)));
    }

    fn lseek(&self, _req: &Request, _ino: INodeNo, fh: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        let Some(what) = convert::seek(whence) else { return reply.error(Errno::EINVAL) };
        let Ok(offset) = u64::try_from(offset) else { return reply.error(Errno::ENXIO) };
        let found = or_error!(reply, self.file(fh).and_then(|file| file.seek(offset, what)));
        reply.offset(i64::try_from(found).unwrap_or(i64::MAX));
    }

    fn copy_file_range(
        &self,
        req: &Request,
        _ino_in: INodeNo,
        fh_in: FileHandle,
        offset_in: u64,
        ino_out: INodeNo,
        fh_out: FileHandle,
        offset_out: u64,
        len: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let (from, to) = (or_error!(reply, self.file(fh_in)), or_error!(reply, self.file(fh_out)));
        self.known.inodes.changed(ino_out.0);
        or_error!(reply, lower_rights(req, to.node()));
        // The answer has 32 bits; programs ask again for the rest.
        let copied = or_error!(reply, from.copy_to(offset_in, &to, offset_out, len.min(1 << 30)));
        reply.written(copied as u32);
    }
}
