//! Open files. All who have one open in a file system share a handle, so that they see what each other writes at once.

mod ending;

use std::{
    cell::Cell,
    sync::{Arc, atomic::Ordering},
};

use ioverbs::{Attr, Clause, Collection, Op, Output, Range, seam};

use crate::{Attributes, Errno, Kind, Node, Outcome, early::Early, fs::stat_of, handle::Handle, later::Slot};

/// `fallocate`: the length stays.
const KEEP_SIZE: i32 = 0x01;
/// `fallocate`: what is there goes, and reads as zeros.
const PUNCH_HOLE: i32 = 0x02;
/// `fallocate`: it reads as zeros, and has space.
const ZERO_RANGE: i32 = 0x10;

/// Most bytes that are copied by reading and writing them.
const SHORT: u64 = 64 << 10;
/// Bytes that are looked at once to see how much of a write is there.
const LOOK: usize = 1 << 20;
/// And in one request by the store.
const PIECE: u64 = 64 << 20;

/// How a file is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flags {
    /// Bytes are written.
    pub write: bool,
    /// Each write goes to the end, wherever that is then (`O_APPEND`).
    pub append: bool,
    /// What is there goes (`O_TRUNC`).
    pub truncate: bool,
    /// Nothing is read (`O_WRONLY`).
    pub blind: bool,
}

/// A file that is open. Dropping it closes it; [`File::close`] also says whether that came through.
pub struct File {
    node: Arc<Node>,
    slot: Arc<Slot>,
    flags: Flags,
    /// What is known of its bytes since it was opened.
    pub(crate) early: Option<Arc<Early>>,
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
        if let Some(file) = File::later(node, flags) {
            return Ok(file);
        }
        node.file_system().in_time(|| {
            let (handle, mut attributes, early) = node.join_for(flags)?;
            let file = File { node: node.clone(), slot: Slot::of(handle), flags, early };
            file.begin(&mut attributes)?;
            Ok((file, attributes))
        })
    }

    /// One that is opened later, if at all: its bytes are known, and nobody is about to write others.
    fn later(node: &Arc<Node>, flags: Flags) -> Option<(File, Attributes)> {
        if flags.blind || flags.truncate || node.is_open() {
            return None;
        }
        let fs = node.file_system();
        let early = fs.kept(node).filter(|early| early.writable || !flags.write)?;
        let slot = fs.later(node, &early);
        // Who opens it from here on tells this one, and so does who takes names away. Who had before may have written.
        if fs.0.later.may_go() || node.is_open() || !early.holds(node) {
            return None;
        }
        let attributes = early.attributes;
        Some((File { node: node.clone(), slot, flags, early: Some(early) }, attributes))
    }

    /// A file that was just opened, as nobody else here has it open; [`File::begin`] comes next.
    pub(crate) fn of_opened(node: &Arc<Node>, c: Collection, flags: Flags, early: Option<Arc<Early>>) -> File {
        let handle = node.share(Handle::new(node.file_system(), c));
        File { node: node.clone(), slot: Slot::of(handle), flags, early }
    }

    /// What its flags say is done as it is opened.
    pub(crate) fn begin(&self, attributes: &mut Attributes) -> Outcome<()> {
        if self.flags.write && !self.collection()?.is_writable() {
            return Err(Errno::EPERM);
        }
        if self.flags.truncate {
            self.truncate(0)?;
            let now_ns = seam::now_ns();
            (attributes.size, attributes.blocks) = (0, 0);
            (attributes.mtime_ns, attributes.ctime_ns) = (now_ns, now_ns);
            // What rights it gives to who runs it go before others can see what is written.
            let gives_none = attributes.mode & 0o6000 == 0;
            if let Some(handle) = self.joined().filter(|_| self.flags.write && gives_none) {
                self.node.begin_behind(handle, attributes);
            }
        }
        Ok(())
    }

    /// A file that was just made, with these attributes. Somebody may have found it by its name meanwhile.
    pub(crate) fn of_new(node: &Arc<Node>, c: Collection, flags: Flags, attributes: &Attributes) -> File {
        node.tell(attributes);
        let handle = Handle::new(node.file_system(), c);
        handle.begin_behind(attributes, Attr::default(), true);
        let handle = node.share(handle);
        node.file_system().0.tellers.add(&handle);
        File { node: node.clone(), slot: Slot::of(handle), flags, early: None }
    }

    /// What it is open on.
    pub fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// That of all who have it open; none: it is opened later.
    pub(crate) fn joined(&self) -> Option<&Arc<Handle>> {
        self.slot.handle.get()
    }

    /// The same, opened now if need be; none: somebody elsewhere has deleted it before.
    fn handle_of_what_is(&self) -> Outcome<Option<&Arc<Handle>>> {
        if let Some(handle) = self.joined() {
            return Ok(Some(handle));
        }
        match self.node.join() {
            Ok(handle) => Ok(Some(self.slot.handle.get_or_init(|| handle))),
            Err(Errno::ENOENT) if self.early.is_some() => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// The same; what was deleted goes on as a file without a name.
    pub(crate) fn handle(&self) -> Outcome<&Arc<Handle>> {
        if let Some(handle) = self.handle_of_what_is()? {
            return Ok(handle);
        }
        let early = self.early.as_deref().ok_or(Errno::ESTALE)?;
        let handle = self.node.goes_on(early)?;
        Ok(self.slot.handle.get_or_init(|| handle))
    }

    /// Opens it now, if it was to be opened later: somebody is about to have it too, who is to find it whatever becomes of its names.
    pub fn open_now(&self) -> Outcome<()> {
        // What is gone already stays what was known of it.
        self.handle_of_what_is().map(drop)
    }

    /// The collection that it is.
    pub(crate) fn collection(&self) -> Outcome<&Collection> {
        self.handle().map(|handle| &handle.c)
    }

    /// It has no name yet, and goes when it is closed unless it gets one.
    pub(crate) fn set_temporary(&self) {
        if let Some(handle) = self.joined() {
            handle.temporary.store(true, Ordering::Relaxed);
        }
    }

    /// It gets no name ever.
    pub(crate) fn set_nameless(&self) {
        if let Some(handle) = self.joined() {
            handle.nameless.store(true, Ordering::Relaxed);
        }
    }

    /// Whether anybody has written here who has it open.
    pub(crate) fn is_written(&self) -> bool {
        self.joined().is_some_and(|handle| handle.written.load(Ordering::Acquire))
    }

    /// Somebody is about to.
    pub(crate) fn writes(&self) {
        if let Some(handle) = self.joined() {
            handle.written.store(true, Ordering::Release);
        }
    }

    /// The store knows all that was written here.
    pub(crate) fn settle(&self) -> Outcome<()> {
        self.joined().map_or(Ok(()), |handle| handle.settle())
    }

    /// Runs what comes to the same when it is done twice.
    fn again(&self, verb: &str, op: impl Fn(&Collection) -> Op) -> Outcome<ioverbs::Status> {
        self.in_time(|| {
            self.settle()?;
            let c = self.collection()?;
            self.node.file_system().again(verb, || ioverbs::run(c.session(), op(c)))
        })
    }

    fn in_time<T>(&self, work: impl FnOnce() -> T) -> T {
        self.node.file_system().in_time(work)
    }

    /// Reads; short only at the end.
    pub fn read(&self, offset: u64, out: &mut [u8]) -> Outcome<usize> {
        match self.read_early(offset, out) {
            Some(n) => Ok(n),
            None => self.in_time(|| self.read_now(offset, out)),
        }
    }

    fn read_now(&self, offset: u64, out: &mut [u8]) -> Outcome<usize> {
        if let Err(full) = self.settle() {
            match self.joined().and_then(|handle| handle.read_stuck(offset, out)) {
                Some(read) => return read,
                // Somebody else has found room for it meanwhile.
                None => self.settle().map_err(|_| full)?,
            }
        }
        let handle = match (self.handle_of_what_is(), &self.early) {
            (Ok(Some(handle)), _) => handle,
            // Deleted elsewhere, or held: what was there as it was opened is known (O10).
            (Ok(None) | Err(Errno::EBUSY), Some(early)) if self.joined().is_none() => {
                return Ok(early.copy(offset, out));
            }
            (handle, _) => handle?.ok_or(Errno::ESTALE)?,
        };
        self.node.file_system().again("read", || ioverbs::read_at(&handle.c, offset, out))
    }

    /// Writes all of it: at the offset, or where the file was opened so at its end.
    pub fn write(&self, offset: u64, data: &[u8]) -> Outcome<usize> {
        if self.flags.append { self.append(data) } else { self.write_at(offset, data) }
    }

    /// Writes all of it at the end, wherever that is then, however the file was opened.
    pub fn append(&self, data: &[u8]) -> Outcome<usize> {
        if !data.is_empty() {
            self.append_up_to(data)?;
        }
        Ok(data.len())
    }

    /// The same of some bytes; tells the offset behind them.
    pub fn append_up_to(&self, data: &[u8]) -> Outcome<u64> {
        let c = self.collection()?;
        self.writes();
        self.in_time(|| {
            self.settle()?;
            // The system gives the offset, so that nobody's bytes lie on another's (M4).
            let at = self.node.file_system().at_most_once("write", || ioverbs::append(c, data))?;
            Ok(at + data.len() as u64)
        })
    }

    /// Writes at the offset, however the file was opened (`pwritev2` with `RWF_NOAPPEND`): all of it, or as much as there is room for.
    pub fn write_at(&self, offset: u64, data: &[u8]) -> Outcome<usize> {
        // What is there and cannot be made to survive what it is to survive is no short write (P5, P8).
        let unsafe_now = Cell::new(false);
        match self.in_time(|| self.write_whole(offset, data, &unsafe_now)) {
            Err(e @ (Errno::ENOSPC | Errno::EDQUOT | Errno::EFBIG)) if !unsafe_now.get() => {
                self.begun(offset, data).ok_or(e)
            }
            done => done.map(|()| data.len()),
        }
    }

    /// Writes all of it at the offset, or says why not: a part may be there.
    pub fn write_all_at(&self, offset: u64, data: &[u8]) -> Outcome<()> {
        self.in_time(|| self.write_whole(offset, data, &Cell::default()))
    }

    fn write_whole(&self, offset: u64, data: &[u8], unsafe_now: &Cell<bool>) -> Outcome<()> {
        if data.is_empty() {
            return Ok(());
        }
        if offset.checked_add(data.len() as u64).is_none_or(|end| end > i64::MAX as u64) {
            return Err(Errno::EFBIG);
        }
        let handle = self.handle()?;
        self.writes();
        let fs = self.node.file_system();
        if handle.write_behind(offset, data)? {
            return Ok(());
        }
        let is_unsafe = |e: &ioverbs::Error| matches!(e.clause(), Some(Clause::P5 | Clause::P7 | Clause::P8));
        fs.again("write", || ioverbs::write_at(&handle.c, offset, data).inspect_err(|e| unsafe_now.set(is_unsafe(e))))
    }

    /// How much of a write is there that found no room for all of it; none: nothing.
    fn begun(&self, offset: u64, data: &[u8]) -> Option<usize> {
        let (mut there, mut piece) = (0, vec![0; data.len().min(LOOK)]);
        while there < data.len() {
            let len = piece.len().min(data.len() - there);
            let n = self.read(offset + there as u64, &mut piece[..len]).unwrap_or(0);
            let same = piece[..n].iter().zip(&data[there..]).take_while(|(is, was)| is == was).count();
            there += same;
            if same < len {
                break;
            }
        }
        (there > 0).then_some(there)
    }

    /// Sets the length.
    pub fn truncate(&self, size: u64) -> Outcome<()> {
        if size > i64::MAX as u64 {
            return Err(Errno::EFBIG);
        }
        let handle = self.handle()?;
        self.writes();
        self.in_time(|| match handle.truncate_stuck(size)? {
            true => Ok(()),
            false => self.again("truncate", |c| Op::Truncate { c: c.clone(), size }).map(drop),
        })
    }

    /// Its length as of now.
    pub fn size(&self) -> Outcome<u64> {
        if let Some(early) = self.early.as_ref().filter(|early| !self.is_written() && early.holds(&self.node)) {
            return Ok(early.attributes.size);
        }
        let status = self.again("stat", |c| Op::Stat { c: c.clone() });
        if status.is_err()
            && let Some(stuck) = self.joined().and_then(|handle| handle.stuck_attributes())
        {
            return Ok(stuck.size);
        }
        stat_of(Some(&status?)).map(|stat| stat.bytes)
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
        self.in_time(|| {
            self.handle()?;
            self.writes();
            if punches {
                self.again("punch", |c| Op::Punch { c: c.clone(), range })?;
            }
            if allocates {
                self.again("allocate", |c| Op::Allocate { c: c.clone(), range, keep_size })?;
            }
            Ok(())
        })
    }

    /// Copies within the store to where it is told, however that was opened; tells how much there was to copy. Both may be the same file if the ranges lie apart.
    ///
    /// What is short is read and written: that asks less, and leaves bytes that lie beside their records there. The rest goes by pieces, so that
    /// others are served in between, and no piece is late.
    pub fn copy_to(&self, offset: u64, to: &File, to_offset: u64, len: u64) -> Outcome<u64> {
        let (len, mut done) = self.in_time(|| self.copy_first(offset, to, to_offset, len))?;
        while done < len {
            match self.copy_piece(offset + done, to, to_offset + done, len - done) {
                Ok(piece) => done += piece,
                // What is there is told; the rest fails when it is asked for again.
                Err(_) => break,
            }
        }
        Ok(done)
    }

    /// How much there is to copy, and how much of it was: all of what is short, and else the first piece.
    fn copy_first(&self, offset: u64, to: &File, to_offset: u64, len: u64) -> Outcome<(u64, u64)> {
        let len = len.min(self.size()?.saturating_sub(offset));
        if len == 0 {
            return Ok((0, 0));
        }
        let Some(end) = to_offset.checked_add(len).filter(|end| *end <= i64::MAX as u64) else {
            return Err(Errno::EFBIG);
        };
        if self.node.is(&to.node) && to_offset < offset + len && offset < end {
            return Err(Errno::EINVAL);
        }
        if len <= SHORT {
            let mut bytes = vec![0; len as usize];
            let n = self.read(offset, &mut bytes)?;
            let wrote = to.write_at(to_offset, &bytes[..n])? as u64;
            return Ok((wrote, wrote));
        }
        to.collection()?;
        to.writes();
        to.settle()?;
        Ok((len, self.copy_piece(offset, to, to_offset, len)?))
    }

    fn copy_piece(&self, offset: u64, to: &File, to_offset: u64, len: u64) -> Outcome<u64> {
        let (len, target) = (len.min(PIECE), to.collection()?);
        self.again("copy", |c| {
            let (src, dst) = (c.clone(), target.clone());
            Op::Copy { src, src_offset: offset, dst, dst_offset: to_offset, len }
        })?;
        Ok(len)
    }
}

/// Stretches of bytes, as the library lists them.
pub(crate) fn extents_of(output: &Output) -> Outcome<&[ioverbs::Extent]> {
    match output {
        Output::Extents(extents) => Ok(extents),
        _ => Err(Errno::EIO),
    }
}
