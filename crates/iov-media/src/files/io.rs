//! System calls on files, whole: interrupted ones are repeated, short ones go on, errors say what to do.

use std::os::fd::{AsFd, BorrowedFd};

use iov_types::{Error, Extent, ExtentKind, Kind, Outcome, Range, Result};
use rustix::{
    fs::{Advice, FallocateFlags, SeekFrom, Stat, Timespec, Timestamps},
    io::Errno,
};

/// Sets the time of the last change.
pub(super) fn set_time(file: impl AsFd, time: Timespec) -> Result<()> {
    let omit = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT };
    let times = Timestamps { last_access: omit, last_modification: time };
    rustix::fs::futimens(file, &times).map_err(os("setting a time"))
}

/// Bytes moved at once where a copy goes through memory.
pub(super) const PIECE: usize = 1 << 20;

/// Sorts an error of the operating system and says what it came from.
pub(super) fn os(what: &str) -> impl Fn(Errno) -> Error + '_ {
    move |e| {
        let told = std::io::Error::from(e);
        match e {
            Errno::NOSPC => Error::exhausted(format!("{what}: the file system of the store is full; free some space")),
            Errno::DQUOT => {
                Error::exhausted(format!("{what}: the disk quota of the store's user is used up; free some"))
            }
            Errno::ROFS => Error::denied(format!("{what}: the file system is mounted read-only")),
            Errno::OPNOTSUPP | Errno::NOSYS => Error::unsupported(format!("{what}: this file system cannot do it")),
            Errno::IO => Error::unavailable(format!("{what}: the disk reports an input/output error; check it")),
            _ => Error::from(told).context(what),
        }
    }
}

/// Repeats an interrupted call.
pub(super) fn retry<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

pub(super) fn stat(file: impl AsFd) -> Result<Stat> {
    rustix::fs::fstat(file).map_err(os("reading a file's facts"))
}

/// Length of a file.
pub(super) fn length(file: impl AsFd) -> Result<u64> {
    stat(file).map(|s| s.st_size as u64)
}

/// Writes all of it. Where only a part could be written, the outcome of the error is unknown.
pub(super) fn write_all(file: impl AsFd, mut data: &[u8], mut offset: u64) -> Result<()> {
    let file = file.as_fd();
    let mut begun = false;
    while !data.is_empty() {
        let outcome = if begun { Outcome::Unknown } else { Outcome::NotApplied };
        match retry(|| rustix::io::pwrite(file, data, offset)) {
            Ok(0) => return Err(Error::unavailable("the file system takes no bytes").with_outcome(outcome)),
            Ok(n) => (data, offset, begun) = (&data[n..], offset + n as u64, true),
            Err(e) => return Err(os("writing")(e).with_outcome(outcome)),
        }
    }
    Ok(())
}

/// Fills as much of `out` as there is; short at the end of the file.
pub(super) fn read(file: impl AsFd, out: &mut [u8], offset: u64) -> Result<usize> {
    let file = file.as_fd();
    let mut done = 0;
    while done < out.len() {
        match retry(|| rustix::io::pread(file, &mut out[done..], offset + done as u64)) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) => return Err(os("reading")(e)),
        }
    }
    Ok(done)
}

/// Fills `out`; `None` if the file ends before.
pub(super) fn read_exact(file: impl AsFd, out: &mut [u8], offset: u64) -> Result<Option<()>> {
    Ok((read(file, out, offset)? == out.len()).then_some(()))
}

pub(super) fn truncate(file: impl AsFd, size: u64) -> Result<()> {
    let file = file.as_fd();
    retry(|| rustix::fs::ftruncate(file, size)).map_err(os("setting a length"))
}

/// Makes a range a hole, as far as the file reaches. Where the file system has no holes, zeros are written.
pub(super) fn punch(file: impl AsFd, range: Range) -> Result<()> {
    let file = file.as_fd();
    let Some(range) = range.intersect(&Range { offset: 0, len: length(file)? }) else { return Ok(()) };
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match retry(|| rustix::fs::fallocate(file, flags, range.offset, range.len)) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
            let zeros = vec![0; PIECE.min(range.len as usize)];
            let mut at = range.offset;
            while at < range.end() {
                let n = zeros.len().min((range.end() - at) as usize);
                write_all(file, &zeros[..n], at)?;
                at += n as u64;
            }
            Ok(())
        }
        other => other.map_err(os("making a hole")),
    }
}

/// Reserves space.
pub(super) fn allocate(file: impl AsFd, range: Range, keep_size: bool) -> Result<()> {
    if range.len == 0 {
        return Ok(());
    }
    let file = file.as_fd();
    let flags = if keep_size { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() };
    retry(|| rustix::fs::fallocate(file, flags, range.offset, range.len)).map_err(os("reserving space"))
}

/// No file system allocates less than a sector at a time.
const SECTOR: u64 = 512;
/// Nor does one round a file up by more than this, unless space was reserved behind its end.
const BLOCK: u64 = 4096;

/// Whether a file has no holes, as far as its length and the space it takes tell. Asking for holes themselves would cost
/// more than what is saved: in memory each page is looked at.
pub(super) fn is_dense(file: impl AsFd) -> Result<bool> {
    let stat = stat(file)?;
    let (length, taken) = (stat.st_size as u64, stat.st_blocks as u64 * 512);
    Ok((length..=length.next_multiple_of(BLOCK)).contains(&taken))
}

/// Reserves space for bytes that are written next; a file system that cannot reserve must have as much free.
pub(super) fn make_room(file: impl AsFd, range: Range) -> Result<()> {
    let file = file.as_fd();
    if range.len == 0 || (range.end() <= length(file)?.next_multiple_of(SECTOR) && is_dense(file)?) {
        return Ok(());
    }
    match allocate(file, range, true) {
        Err(e) if e.kind() == Kind::Unsupported => {
            let free = rustix::fs::fstatvfs(file).map_err(os("asking for free space"))?;
            if free.f_bavail.saturating_mul(free.f_frsize) < range.len {
                return Err(os("reserving space")(Errno::NOSPC));
            }
            Ok(())
        }
        other => other,
    }
}

/// Data and holes of a range, at most `max`, neighbours of one kind merged.
pub(super) fn extents(file: impl AsFd, range: Range, size: u64, max: usize) -> Result<Vec<Extent>> {
    let file = file.as_fd();
    let mut out: Vec<Extent> = Vec::new();
    let Some(range) = range.intersect(&Range { offset: 0, len: size }) else { return Ok(out) };
    let mut at = range.offset;
    while at < range.end() && out.len() < max {
        let data = match retry(|| rustix::fs::seek(file, SeekFrom::Data(at))) {
            Ok(data) => data.clamp(at, range.end()),
            Err(Errno::NXIO) => range.end(),
            // Without holes everything is data.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => at,
            Err(e) => return Err(os("looking for data")(e)),
        };
        let (to, kind) = if data > at {
            (data, ExtentKind::Hole)
        } else {
            match retry(|| rustix::fs::seek(file, SeekFrom::Hole(at))) {
                Ok(hole) if hole > at => (hole.min(range.end()), ExtentKind::Data),
                Ok(_) | Err(Errno::NXIO | Errno::INVAL | Errno::OPNOTSUPP) => (range.end(), ExtentKind::Data),
                Err(e) => return Err(os("looking for a hole")(e)),
            }
        };
        push_extent(&mut out, Range { offset: at, len: to - at }, kind);
        at = to;
    }
    Ok(out)
}

/// Adds an extent, or lengthens the last one.
pub(super) fn push_extent(out: &mut Vec<Extent>, range: Range, kind: ExtentKind) {
    match out.last_mut() {
        _ if range.len == 0 => {}
        Some(last) if last.kind == kind && last.range.end() == range.offset => last.range.len += range.len,
        _ => out.push(Extent { range, kind, target: 0 }),
    }
}

/// Copies bytes between files of one file system; how many there were before the source's end.
pub(super) fn copy(from: impl AsFd, mut at: u64, to: impl AsFd, mut offset: u64, len: u64) -> Result<u64> {
    let (from, to) = (from.as_fd(), to.as_fd());
    let mut left = len;
    while left > 0 {
        let want = left.min(1 << 30) as usize;
        let (mut source, mut target) = (at, offset);
        let copied = retry(|| rustix::fs::copy_file_range(from, Some(&mut source), to, Some(&mut target), want));
        let n = match copied {
            Ok(n) => n as u64,
            Err(Errno::XDEV | Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => {
                return copy_through_memory(from, at, to, offset, left).map(|n| len - left + n);
            }
            Err(e) if left < len => return Err(os("copying")(e).with_outcome(Outcome::Unknown)),
            Err(e) => return Err(os("copying")(e)),
        };
        if n == 0 {
            break;
        }
        (at, offset, left) = (at + n, offset + n, left - n);
    }
    Ok(len - left)
}

fn copy_through_memory(from: BorrowedFd<'_>, at: u64, to: BorrowedFd<'_>, offset: u64, len: u64) -> Result<u64> {
    let mut piece = vec![0; PIECE.min(len as usize)];
    let mut done = 0;
    while done < len {
        let want = piece.len().min((len - done) as usize);
        let got = read(from, &mut piece[..want], at + done)?;
        write_all(to, &piece[..got], offset + done).map_err(|e| e.with_outcome(Outcome::Unknown))?;
        done += got as u64;
        if got < want {
            break;
        }
    }
    Ok(done)
}

/// Makes the bytes of a file, and what is needed to find them, survive power loss.
pub(super) fn sync_data(file: impl AsFd) -> Result<()> {
    let file = file.as_fd();
    retry(|| rustix::fs::fdatasync(file)).map_err(os("syncing a file"))
}

/// As [`sync_data`], and all other facts of a file or directory.
pub(super) fn sync_all(file: impl AsFd) -> Result<()> {
    let file = file.as_fd();
    retry(|| rustix::fs::fsync(file)).map_err(os("syncing a file or directory"))
}

/// Drops a range from the kernel's cache, as far as it is on disk, and starts to write the rest. Only a wish.
pub(super) fn forget(file: impl AsFd, range: Range) {
    let _ = rustix::fs::fadvise(file, range.offset, std::num::NonZeroU64::new(range.len), Advice::DontNeed);
}

/// CRC-32C.
pub(super) fn checksum(data: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(data)
}

/// CRC-32C over several stretches.
pub(super) struct Checksum(crc_fast::Digest);

impl Checksum {
    pub(super) fn new() -> Checksum {
        Checksum(crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi))
    }

    pub(super) fn add(&mut self, data: &[u8]) {
        self.0.update(data);
    }

    pub(super) fn value(&self) -> u32 {
        self.0.finalize() as u32
    }
}
