//! Open files. All who have one open in a file system share a handle, so that they see what each other writes at once.

use std::sync::{Arc, atomic::Ordering};

use ioverbs::{Collection, Op, Output, Persistence, Point, Range};

use crate::{Attributes, Errno, Kind, Node, Outcome, early::Early, fs::stat_of, handle::Handle};

/// `fallocate`: the length stays.
const KEEP_SIZE: i32 = 0x01;
/// `fallocate`: what is there goes, and reads as zeros.
const PUNCH_HOLE: i32 = 0x02;
/// `fallocate`: it reads as zeros, and has space.
const ZERO_RANGE: i32 = 0x10;

/// How a file is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flags {
    /// Bytes are written.
    pub write: bool,
    /// Each write goes to the end, wherever that is then (`O_APPEND`).
    pub append: bool,
    /// What is there goes (`O_TRUNC`).
    pub truncate: bool,
}

/// A file that is open. Dropping it closes it; [`File::close`] also says whether that came through.
pub struct File {
    node: Arc<Node>,
    handle: Arc<Handle>,
    flags: Flags,
    /// What came along as it was opened.
    pub(crate) early: Option<Early>,
}

impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "open {:?}", self.node)
    }
}

impl File {
    /// Opens a file; also its attributes as of then.
    pub fn open(node: &Arc<Node>, flags: Flags) -> Outcome<(File, Attributes)> {
        match node.kind() {
            Kind::File => {}
            Kind::Directory => return Err(Errno::EISDIR),
            Kind::Symlink => return Err(Errno::ELOOP),
            // The kernel, or the C library, opens those.
            _ => return Err(Errno::ENXIO),
        }
        if flags.write || flags.truncate {
            node.file_system().check_writable()?;
        }
        let (handle, mut attributes, early) = node.join_for(flags)?;
        let file = File { node: node.clone(), handle, flags, early };
        file.begin(&mut attributes)?;
        Ok((file, attributes))
    }

    /// A file that was just opened, as nobody else here has it open; [`File::begin`] comes next.
    pub(crate) fn of_opened(node: &Arc<Node>, c: Collection, flags: Flags, early: Option<Early>) -> File {
        let handle = node.share(Handle::new(node.file_system(), c));
        File { node: node.clone(), handle, flags, early }
    }

    /// What its flags say is done as it is opened.
    pub(crate) fn begin(&self, attributes: &mut Attributes) -> Outcome<()> {
        if self.flags.write && !self.handle.c.is_writable() {
            return Err(Errno::EPERM);
        }
        if self.flags.truncate {
            self.truncate(0)?;
            attributes.size = 0;
        }
        Ok(())
    }

    /// A file that was just made, with these attributes. Somebody may have found it by its name meanwhile.
    pub(crate) fn of_new(node: &Arc<Node>, c: Collection, flags: Flags, attributes: &Attributes) -> File {
        node.tell(attributes);
        let handle = Handle::new(node.file_system(), c);
        handle.begin_behind(attributes);
        let handle = node.share(handle);
        node.file_system().0.tellers.add(&handle);
        File { node: node.clone(), handle, flags, early: None }
    }

    /// What it is open on.
    pub fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// That of all who have it open.
    pub(crate) fn handle(&self) -> &Arc<Handle> {
        &self.handle
    }

    /// The collection that it is.
    pub fn collection(&self) -> &Collection {
        &self.handle.c
    }

    /// It has no name yet, and goes when it is closed unless it gets one.
    pub(crate) fn set_temporary(&self) {
        self.handle.temporary.store(true, Ordering::Relaxed);
    }

    /// Whether anybody has written here who has it open.
    pub(crate) fn is_written(&self) -> bool {
        self.handle.written.load(Ordering::Acquire)
    }

    /// Somebody is about to.
    pub(crate) fn writes(&self) {
        self.handle.written.store(true, Ordering::Release);
    }

    /// The store knows all that was written here.
    pub(crate) fn settle(&self) -> Outcome<()> {
        self.handle.settle()
    }

    /// Runs what comes to the same when it is done twice.
    fn again(&self, verb: &str, op: impl Fn() -> Op) -> Outcome<ioverbs::Status> {
        self.settle()?;
        self.node.file_system().again(verb, || ioverbs::run(self.collection().session(), op()))
    }

    /// Reads; short only at the end.
    pub fn read(&self, offset: u64, out: &mut [u8]) -> Outcome<usize> {
        if let Some(n) = self.read_early(offset, out) {
            return Ok(n);
        }
        self.settle()?;
        self.node.file_system().again("read", || ioverbs::read_at(self.collection(), offset, out))
    }

    /// Writes all of it: at the offset, or where the file was opened so at its end.
    pub fn write(&self, offset: u64, data: &[u8]) -> Outcome<usize> {
        if self.flags.append { self.append(data) } else { self.write_at(offset, data) }
    }

    /// Writes all of it at the end, wherever that is then, however the file was opened.
    pub fn append(&self, data: &[u8]) -> Outcome<usize> {
        if data.is_empty() {
            return Ok(0);
        }
        self.writes();
        self.settle()?;
        // The system gives the offset, so that nobody's bytes lie on another's (M4).
        self.node.file_system().at_most_once("write", || ioverbs::append(self.collection(), data))?;
        Ok(data.len())
    }

    /// Writes all of it at the offset, however the file was opened (`pwritev2` with `RWF_NOAPPEND`).
    pub fn write_at(&self, offset: u64, data: &[u8]) -> Outcome<usize> {
        if data.is_empty() {
            return Ok(0);
        }
        if offset.checked_add(data.len() as u64).is_none_or(|end| end > i64::MAX as u64) {
            return Err(Errno::EFBIG);
        }
        self.writes();
        if self.handle.write_behind(offset, data)? {
            return Ok(data.len());
        }
        self.node.file_system().again("write", || ioverbs::write_at(self.collection(), offset, data))?;
        Ok(data.len())
    }

    /// Sets the length.
    pub fn truncate(&self, size: u64) -> Outcome<()> {
        if size > i64::MAX as u64 {
            return Err(Errno::EFBIG);
        }
        self.writes();
        self.again("truncate", || Op::Truncate { c: self.collection().clone(), size }).map(drop)
    }

    /// Its length as of now.
    pub fn size(&self) -> Outcome<u64> {
        let status = self.again("stat", || Op::Stat { c: self.collection().clone() })?;
        stat_of(Some(&status)).map(|stat| stat.bytes)
    }

    /// `fallocate` with the modes of Linux: space for a range, or none any more.
    pub fn allocate(&self, offset: u64, len: u64, mode: i32) -> Outcome<()> {
        let range = Range::new(offset, len).map_err(|_| Errno::EFBIG)?;
        if len == 0 {
            return Err(Errno::EINVAL);
        }
        if range.end() > i64::MAX as u64 {
            return Err(Errno::EFBIG);
        }
        let keep_size = mode & KEEP_SIZE != 0;
        let (punches, allocates) = match mode & !KEEP_SIZE {
            0 => (false, true),
            PUNCH_HOLE if keep_size => (true, false),
            ZERO_RANGE => (true, true),
            _ => return Err(Errno::EOPNOTSUPP),
        };
        self.writes();
        if punches {
            self.again("punch", || Op::Punch { c: self.collection().clone(), range })?;
        }
        if allocates {
            self.again("allocate", || Op::Allocate { c: self.collection().clone(), range, keep_size })?;
        }
        Ok(())
    }

    /// Copies within the store; tells how much there was to copy. Both may be the same file if the ranges lie apart.
    pub fn copy_to(&self, offset: u64, to: &File, to_offset: u64, len: u64) -> Outcome<u64> {
        let len = len.min(self.size()?.saturating_sub(offset));
        if len == 0 {
            return Ok(0);
        }
        if to_offset.checked_add(len).is_none_or(|end| end > i64::MAX as u64) {
            return Err(Errno::EFBIG);
        }
        to.writes();
        to.settle()?;
        self.again("copy", || {
            let (src, dst) = (self.collection().clone(), to.collection().clone());
            Op::Copy { src, src_offset: offset, dst, dst_offset: to_offset, len }
        })?;
        Ok(len)
    }

    /// What was written survives what the store survives (`fsync`).
    pub fn sync(&self) -> Outcome<()> {
        let persist = |c: &Collection| Op::Persist { c: c.clone() };
        match self.handle.settle_with(Some(&persist))? {
            true => Ok(()),
            false => self.again("sync", || persist(self.collection())).map(drop),
        }
    }

    /// One of its descriptors is closed: what was written is published (C2, C3), and survives what it is to survive from its close
    /// on, so that the program hears of it if that fails. Where nothing was written nobody is asked.
    pub fn flush(&self) -> Outcome<()> {
        if self.flags.write { self.publish().and(self.handle.take_failure()) } else { Ok(()) }
    }

    /// What anybody has written who has it open is published.
    pub(crate) fn publish(&self) -> Outcome<()> {
        if !self.collection().is_writable() {
            return Ok(());
        }
        let effective = self.collection().effective().map_err(|e| self.node.file_system().errno("close", &e))?;
        if effective.point == Point::Close && effective.persistence >= Persistence::Durable {
            return self.sync();
        }
        let commit = |c: &Collection| Op::Commit { c: c.clone() };
        match self.handle.settle_with(Some(&commit))? {
            true => Ok(()),
            false => self.again("commit", || commit(self.collection())).map(drop),
        }
    }

    /// Closes it for a program that is to hear of all that fails: what was written is published, also where others have it open. It is
    /// closed, whatever this says.
    pub fn finish(self) -> Outcome<()> {
        // The last one publishes as it closes.
        let published = if Arc::strong_count(&self.handle) > 1 { self.flush() } else { Ok(()) };
        let closed = self.close();
        published.and(closed)
    }

    /// Closes it. It is closed, whatever this says.
    pub fn close(self) -> Outcome<()> {
        if self.node.ends(&self.handle) {
            // What was written goes in one request with the close.
            return self.handle.end_now();
        }
        // Here, as whoever else holds it for a moment hears of no failure.
        let told = self.handle.settle();
        // Others who have it open go on.
        match Arc::into_inner(self.handle) {
            Some(handle) => handle.end().and(told),
            None => told,
        }
    }
}

/// Stretches of bytes, as the library lists them.
pub(crate) fn extents_of(output: &Output) -> Outcome<&[ioverbs::Extent]> {
    match output {
        Output::Extents(extents) => Ok(extents),
        _ => Err(Errno::EIO),
    }
}
