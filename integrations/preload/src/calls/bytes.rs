//! Bytes of open files, and where they are.

use std::{
    ffi::{c_int, c_void},
    sync::Arc,
};

use iov_posix::{Errno, File, Outcome, Seek};

use super::{export, flagged, limits, replaced, space};
use crate::{
    files::{Open, What, with},
    memory::{self, Use},
    raw::{failed, kernel, unanswered},
    signals::Quiet,
    world::{World, user},
};

/// What `sync_file_range` may be asked for.
const SYNC_FLAGS: u32 =
    libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;

/// Where the next byte is read or written.
pub(super) fn position(fd: c_int, open: &Open) -> Outcome<u64> {
    let at = open.standing.offset(fd);
    u64::try_from(at).map_err(|_| Errno(-at as i32))
}

/// An offset that a program has given.
pub(super) fn offset(at: i64) -> Outcome<u64> {
    u64::try_from(at).map_err(|_| Errno::EINVAL)
}

/// No call moves more, as on Linux.
const MOST: usize = 0x7fff_f000;

/// The memory of a program, to be used so. `EFAULT`: it has none there.
///
/// # Safety
/// It must be the program's for the call, and nobody else may use it meanwhile.
unsafe fn used<'a>(at: *mut c_void, len: usize, how: Use) -> Outcome<&'a mut [u8]> {
    let len = len.min(MOST);
    if len == 0 {
        return Ok(&mut []);
    }
    memory::check(at, len, how)?;
    // SAFETY: the caller says so.
    Ok(unsafe { std::slice::from_raw_parts_mut(at.cast(), len) })
}

/// The memory of a program, to be written.
///
/// # Safety
/// As of [`used`].
unsafe fn room<'a>(at: *mut c_void, len: usize) -> Outcome<&'a mut [u8]> {
    // SAFETY: the caller says so.
    unsafe { used(at, len, Use::Write) }
}

/// The memory of a program, to be read.
///
/// # Safety
/// It must be the program's for the call, and nobody may change it meanwhile.
unsafe fn bytes<'a>(at: *const c_void, len: usize) -> Outcome<&'a [u8]> {
    // SAFETY: the caller says so.
    unsafe { used(at.cast_mut(), len, Use::Read) }.map(|bytes| &*bytes)
}

/// The pieces of memory of `readv` and `writev`, up to the first that the program does not have. `EFAULT`: it has none of them.
///
/// # Safety
/// As of [`used`], for each of them.
pub(super) unsafe fn pieces<'a>(iov: *const libc::iovec, count: c_int, how: Use) -> Outcome<Vec<&'a mut [u8]>> {
    let count = usize::try_from(count).ok().filter(|count| *count <= 1024).ok_or(Errno::EINVAL)?;
    if count == 0 {
        return Ok(Vec::new());
    }
    memory::check(iov.cast(), count * size_of::<libc::iovec>(), Use::Read)?;
    // SAFETY: the program says that there are so many, and they can be read.
    let given = unsafe { std::slice::from_raw_parts(iov, count) };
    if given.iter().any(|piece| isize::try_from(piece.iov_len).is_err()) {
        return Err(Errno::EINVAL);
    }
    let (mut pieces, mut left) = (Vec::with_capacity(count), MOST);
    for piece in given {
        let len = piece.iov_len.min(left);
        // SAFETY: the caller says so.
        match unsafe { used(piece.iov_base, len, how) } {
            Ok(piece) => pieces.push(piece),
            Err(_) if left < MOST => break,
            Err(e) => return Err(e),
        }
        left -= len;
    }
    Ok(pieces)
}

/// The same, to be written from.
///
/// # Safety
/// As of [`pieces`].
pub(super) unsafe fn pieces_to_write<'a>(iov: *const libc::iovec, count: c_int) -> Outcome<Vec<&'a [u8]>> {
    // SAFETY: the caller says so.
    let pieces = unsafe { pieces(iov, count, Use::Read) }?;
    Ok(pieces.into_iter().map(|piece| &*piece).collect())
}

fn read_at(file: &File, mut at: u64, pieces: &mut [&mut [u8]]) -> Outcome<usize> {
    let mut done = 0;
    for piece in pieces.iter_mut().filter(|piece| !piece.is_empty()) {
        let n = match file.read(at, piece) {
            // What was read before is not lost.
            Err(_) if done > 0 => break,
            read => read?,
        };
        (at, done) = (at + n as u64, done + n);
        if n < piece.len() {
            break;
        }
    }
    Ok(done)
}

/// Reads at the offset that all who share the descriptor have.
fn read_next(world: &World, fd: c_int, open: &Arc<Open>, pieces: &mut [&mut [u8]]) -> Outcome<isize> {
    let file = open.to_read(world)?;
    let one = open.rests();
    if !replaced::stands_for(world, fd, open) {
        drop(one);
        return match world.files.get(fd) {
            Some(other) => read_next(world, fd, &other, pieces),
            None => replaced::read(fd, pieces),
        };
    }
    let _one = open.moves_from(one, fd);
    let at = position(fd, open)?;
    let n = read_at(file, at, pieces)?;
    if n > 0 {
        open.standing.move_to(fd, at + n as u64);
    }
    Ok(n as isize)
}

/// So many bytes of pieces.
fn first<'a>(pieces: &[&'a [u8]], mut room: usize) -> Vec<&'a [u8]> {
    let cut = |piece: &&'a [u8]| {
        let (first, _) = piece.split_at(piece.len().min(room));
        room -= first.len();
        first
    };
    pieces.iter().map(cut).filter(|piece| !piece.is_empty()).collect()
}

/// Appends as many bytes as may be, of some; how many, and the offset behind them.
pub(super) fn append_pieces(file: &File, pieces: &[&[u8]]) -> Outcome<(usize, u64)> {
    let len = pieces.iter().map(|piece| piece.len()).sum();
    let room = limits::room(len, || file.size())?;
    // They stay together.
    let end = match pieces {
        [piece] => file.append_up_to(&piece[..room])?,
        pieces => file.append_up_to(&pieces.concat()[..room])?,
    };
    Ok((room, end))
}

fn write_pieces(file: &File, mut at: u64, pieces: &[&[u8]]) -> Outcome<usize> {
    let len = pieces.iter().map(|piece| piece.len()).sum();
    let room = limits::room(len, || Ok(at))?;
    let cut = (room < len).then(|| first(pieces, room));
    let pieces = cut.as_deref().unwrap_or(pieces);
    let mut done = 0;
    for piece in pieces {
        match file.write_at(at, piece) {
            // Behind what found no room nothing may follow.
            Ok(n) if n < piece.len() => {
                done += n;
                break;
            }
            Ok(n) => (at, done) = (at + n as u64, done + n),
            Err(_) if done > 0 => break,
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}

/// What was written, once it survives what it is to survive where the file was opened so (`O_DSYNC`).
pub(super) fn kept(open: &Open, file: &File, n: usize) -> Outcome<isize> {
    if n > 0 && open.record.access.sync != 0 {
        file.sync()?;
    }
    Ok(n as isize)
}

/// Root's writes take no rights from a file, others' do. Who a program is changes, so that it is asked.
pub(super) fn lower(file: &File) -> Outcome<()> {
    if user() == 0 { Ok(()) } else { file.node().lower_rights().map(drop) }
}

/// Moves the offset behind what was appended, unless somebody who has appended later has moved it further, or has stopped while he moves it.
fn behind(fd: c_int, open: &Open, file: &File, end: u64) {
    open.with_offset(fd, || {
        // Behind the end of the file it was nobody who has appended.
        if position(fd, open).is_ok_and(|at| at <= end || file.size().is_ok_and(|size| at > size)) {
            open.standing.move_to(fd, end);
        }
    });
}

/// Writes at the offset that all who share the descriptor have, or at the end.
fn write_next(world: &World, fd: c_int, open: &Arc<Open>, pieces: &[&[u8]]) -> Outcome<isize> {
    let file = open.to_write(world)?;
    lower(file)?;
    let len: usize = pieces.iter().map(|piece| piece.len()).sum();
    if len == 0 {
        return Ok(0);
    }
    // Nobody puts something else under the number meanwhile.
    let one = open.rests();
    if !replaced::stands_for(world, fd, open) {
        drop(one);
        return match world.files.get(fd) {
            Some(other) => write_next(world, fd, &other, pieces),
            None => replaced::write(fd, pieces),
        };
    }
    if open.appends(fd) {
        // The store finds the place, whoever else is about to write: no other process is waited for.
        let (n, end) = append_pieces(file, pieces)?;
        behind(fd, open, file, end);
        return kept(open, file, n);
    }
    let _one = open.moves_from(one, fd);
    let mut at = position(fd, open)?;
    // Others who have the descriptor, in other processes, write elsewhere: it is moved first.
    let end = open.standing.move_by(fd, len as i64);
    if let Ok(end) = u64::try_from(end) {
        at = end - len as u64;
    }
    match write_pieces(file, at, pieces) {
        Ok(n) if n == len => kept(open, file, n),
        short => {
            let n = *short.as_ref().unwrap_or(&0);
            open.standing.move_to(fd, at + n as u64);
            short.and_then(|n| kept(open, file, n))
        }
    }
}

fn write_there(world: &World, fd: c_int, open: &Arc<Open>, at: i64, pieces: &[&[u8]]) -> Outcome<isize> {
    let file = open.to_write(world)?;
    lower(file)?;
    let at = offset(at)?;
    let n = match pieces.iter().all(|piece| piece.is_empty()) {
        true => 0,
        // As Linux does it: what was opened for appending appends.
        false if open.appends(fd) => append_pieces(file, pieces)?.0,
        false => write_pieces(file, at, pieces)?,
    };
    kept(open, file, n)
}

/// Writes there, however it was opened.
pub(super) fn write_at(world: &World, open: &Arc<Open>, at: i64, pieces: &[&[u8]]) -> Outcome<isize> {
    let file = open.to_write(world)?;
    lower(file)?;
    let n = write_pieces(file, offset(at)?, pieces)?;
    kept(open, file, n)
}

/// `lseek`
fn seek(world: &World, fd: c_int, open: &Arc<Open>, by: i64, whence: c_int) -> Outcome<isize> {
    let _one = open.moves(fd);
    if open.is_path() {
        return Err(Errno::EBADF);
    }
    let file = match open.what(world)? {
        What::File(file) => file,
        // Positions of a directory are those of `getdents64`.
        _ => {
            if whence == libc::SEEK_SET && by == 0 {
                super::directories::rewind(world, open)?;
            }
            return Ok(match whence {
                libc::SEEK_SET => open.standing.move_to(fd, offset(by)?),
                libc::SEEK_CUR => open.standing.move_by(fd, by),
                // A directory has no end that could be said in advance, and no holes.
                _ => return Err(Errno::EINVAL),
            });
        }
    };
    let from = match whence {
        libc::SEEK_SET => 0,
        libc::SEEK_CUR => position(fd, open)? as i64,
        libc::SEEK_END => file.size()? as i64,
        libc::SEEK_DATA | libc::SEEK_HOLE => {
            let from = u64::try_from(by).map_err(|_| Errno::ENXIO)?;
            let what = if whence == libc::SEEK_DATA { Seek::Data } else { Seek::Hole };
            return Ok(open.standing.move_to(fd, file.seek(from, what)?));
        }
        _ => return Err(Errno::EINVAL),
    };
    let to = from.checked_add(by).ok_or(Errno::EOVERFLOW)?;
    let to = u64::try_from(to).map_err(|_| Errno::EINVAL)?;
    Ok(open.standing.move_to(fd, to))
}

pub(super) fn is_ours(fd: c_int) -> bool {
    crate::world::world().filter(|world| world.files.may_have(fd)).is_some_and(|world| {
        let _quiet = Quiet::enter();
        world.files.get(fd).is_some()
    })
}

/// What a call comes to that only a file can be asked, which is open.
fn of_file(fd: c_int, work: impl FnOnce(&World, &File) -> Outcome<()>) -> Option<isize> {
    with(fd, |world, open| work(world, open.file(world)?).map(|()| 0))
}

fn of_written(fd: c_int, work: impl FnOnce(&File) -> Outcome<()>) -> Option<isize> {
    with(fd, |world, open| {
        let file = open.to_write(world)?;
        lower(file)?;
        work(file).map(|()| 0)
    })
}

fn cut(fd: c_int, size: i64) -> Option<isize> {
    with(fd, |world, open| {
        // As Linux says it of files that are not open for writing.
        if !open.writes() && !open.is_path() {
            return Err(Errno::EINVAL);
        }
        let file = open.to_write(world)?;
        lower(file)?;
        let size = offset(size)?;
        limits::may_grow(|| file.size(), size)?;
        file.truncate(size).map(|()| 0)
    })
}

fn allocate(file: &File, (at, len): (i64, i64), mode: c_int) -> Outcome<()> {
    let (at, len) = (offset(at)?, offset(len)?);
    if mode & libc::FALLOC_FL_KEEP_SIZE == 0 {
        limits::may_grow(|| file.size(), at.saturating_add(len))?;
    }
    file.allocate(at, len, mode)
}

export! {
    /// `read(2)`
    fn read(fd: c_int, buf: *mut c_void, n: usize) -> isize =
        with(fd, |w, open| {
            open.to_read(w)?;
            // SAFETY: the memory is the program's for this call.
            read_next(w, fd, open, &mut [unsafe { room(buf, n) }?])
        })
            .unwrap_or_else(|| kernel!(libc::SYS_read, fd, buf, n));
    /// `pread(2)`
    fn pread(fd: c_int, buf: *mut c_void, n: usize, at: i64) -> isize =
        // SAFETY: the memory is the program's for this call.
        with(fd, |w, open| open.to_read(w)?.read(offset(at)?, unsafe { room(buf, n) }?).map(|n| n as isize))
            .unwrap_or_else(|| kernel!(libc::SYS_pread64, fd, buf, n, at));
    /// `readv(2)`
    fn readv(fd: c_int, iov: *const libc::iovec, count: c_int) -> isize =
        // SAFETY: the memory is the program's for this call.
        with(fd, |w, open| read_next(w, fd, open, &mut unsafe { pieces(iov, count, Use::Write) }?))
            .unwrap_or_else(|| kernel!(libc::SYS_readv, fd, iov, count));
    /// `preadv(2)`
    fn preadv(fd: c_int, iov: *const libc::iovec, count: c_int, at: i64) -> isize =
        with(fd, |w, open| {
            // SAFETY: the memory is the program's for this call.
            let mut pieces = unsafe { pieces(iov, count, Use::Write) }?;
            Ok(read_at(open.to_read(w)?, offset(at)?, &mut pieces)? as isize)
        })
            .unwrap_or_else(|| kernel!(libc::SYS_preadv, fd, iov, count, at, 0));
    /// `preadv2(2)`
    fn preadv2(fd: c_int, iov: *const libc::iovec, count: c_int, at: i64, flags: c_int) -> isize =
        match is_ours(fd) {
            true if !flagged::may_read(flags) => failed(Errno::EOPNOTSUPP),
            // SAFETY: as of the two.
            true => unanswered(unsafe { if at == -1 { readv(fd, iov, count) } else { preadv(fd, iov, count, at) } }),
            false => kernel!(libc::SYS_preadv2, fd, iov, count, at, 0, flags),
        };
    /// `write(2)`
    fn write(fd: c_int, buf: *const c_void, n: usize) -> isize =
        with(fd, |w, open| {
            open.to_write(w)?;
            // SAFETY: the memory is the program's for this call.
            write_next(w, fd, open, &[unsafe { bytes(buf, n) }?])
        })
            .unwrap_or_else(|| replaced::once_more(fd, || kernel!(libc::SYS_write, fd, buf, n), || {
                // SAFETY: as of this one.
                unanswered(unsafe { write(fd, buf, n) })
            }));
    /// `pwrite(2)`
    fn pwrite(fd: c_int, buf: *const c_void, n: usize, at: i64) -> isize =
        with(fd, |w, open| {
            open.to_write(w)?;
            // SAFETY: the memory is the program's for this call.
            write_there(w, fd, open, at, &[unsafe { bytes(buf, n) }?])
        })
            .unwrap_or_else(|| kernel!(libc::SYS_pwrite64, fd, buf, n, at));
    /// `writev(2)`
    fn writev(fd: c_int, iov: *const libc::iovec, count: c_int) -> isize =
        // SAFETY: the memory is the program's for this call.
        with(fd, |w, open| write_next(w, fd, open, &unsafe { pieces_to_write(iov, count) }?))
        .unwrap_or_else(|| replaced::once_more(fd, || kernel!(libc::SYS_writev, fd, iov, count), || {
            // SAFETY: as of this one.
            unanswered(unsafe { writev(fd, iov, count) })
        }));
    /// `pwritev(2)`
    fn pwritev(fd: c_int, iov: *const libc::iovec, count: c_int, at: i64) -> isize =
        // SAFETY: the memory is the program's for this call.
        with(fd, |w, open| write_there(w, fd, open, at, &unsafe { pieces_to_write(iov, count) }?))
        .unwrap_or_else(|| kernel!(libc::SYS_pwritev, fd, iov, count, at, 0));
    /// `pwritev2(2)`
    fn pwritev2(fd: c_int, iov: *const libc::iovec, count: c_int, at: i64, flags: c_int) -> isize =
        match is_ours(fd) {
            // SAFETY: as of this one.
            true => unsafe { flagged::write(fd, iov, count, at, flags) },
            false => kernel!(libc::SYS_pwritev2, fd, iov, count, at, 0, flags),
        };
    /// `lseek(2)`
    fn lseek(fd: c_int, by: i64, whence: c_int) -> i64 =
        with(fd, |w, open| seek(w, fd, open, by, whence))
            .unwrap_or_else(|| kernel!(libc::SYS_lseek, fd, by, whence));
    /// `ftruncate(2)`
    fn ftruncate(fd: c_int, size: i64) -> c_int =
        cut(fd, size).unwrap_or_else(|| kernel!(libc::SYS_ftruncate, fd, size));
    /// `fallocate(2)`
    fn fallocate(fd: c_int, mode: c_int, at: i64, len: i64) -> c_int =
        of_written(fd, |file| allocate(file, (at, len), mode))
            .unwrap_or_else(|| kernel!(libc::SYS_fallocate, fd, mode, at, len));
    /// `sync_file_range(2)`
    fn sync_file_range(fd: c_int, at: i64, len: i64, flags: u32) -> c_int =
        match flags & !SYNC_FLAGS {
            0 if at < 0 || len < 0 || at.checked_add(len).is_none() => failed(Errno::EINVAL),
            0 => of_file(fd, |_, _| Ok(())).unwrap_or_else(|| kernel!(libc::SYS_sync_file_range, fd, at, len, flags)),
            _ => failed(Errno::EINVAL),
        };
    /// `readahead(2)`
    fn readahead(fd: c_int, at: i64, n: usize) -> isize =
        match of_file(fd, |_, _| Ok(())) {
            // As Linux says it of directories.
            Some(e) if e == failed(Errno::EISDIR) => failed(Errno::EINVAL),
            done => done.unwrap_or_else(|| kernel!(libc::SYS_readahead, fd, at, n)),
        };
}

/// A number of an error, which some functions return instead of setting it.
fn number(done: Option<isize>) -> Option<c_int> {
    done.map(|done| -done as c_int)
}

/// `posix_fallocate(3)`
///
/// # Safety
/// As the function that it stands for.
pub(crate) unsafe extern "C" fn posix_fallocate(fd: c_int, at: i64, len: i64) -> c_int {
    let done = of_written(fd, |file| allocate(file, (at, len), 0));
    number(done).unwrap_or_else(|| match kernel!(libc::SYS_fallocate, fd, 0, at, len) {
        e if e == failed(Errno::EOPNOTSUPP) => -space::fill(fd, at, len) as c_int,
        done => -done as c_int,
    })
}

/// `posix_fadvise(2)`
///
/// # Safety
/// As the function that it stands for.
pub(crate) unsafe extern "C" fn posix_fadvise(fd: c_int, at: i64, len: i64, advice: c_int) -> c_int {
    let known = matches!(advice, libc::POSIX_FADV_NORMAL..=libc::POSIX_FADV_NOREUSE);
    number(of_file(fd, |_, _| if known && len >= 0 { Ok(()) } else { Err(Errno::EINVAL) }))
        .unwrap_or_else(|| -kernel!(libc::SYS_fadvise64, fd, at, len, advice) as c_int)
}
