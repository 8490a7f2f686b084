//! Files as memory: what is only read, or changed for this process alone. Memory that several processes write as one file needs
//! pages of the kernel, and so a mount.

use std::{
    ffi::{c_int, c_void},
    os::fd::AsRawFd,
    sync::Arc,
};

use iov_posix::{Errno, File, Outcome, Seek};

use super::export;
use crate::{
    files::{Open, with},
    patch::PAGE,
    raw::kernel,
    world::World,
};

/// Of so many bytes it is asked which of them there are.
const LONG: usize = 1 << 20;

/// What a mapping of a file may be asked for, where it is to be refused what is not known.
const KNOWN: c_int = libc::MAP_TYPE
    | libc::MAP_FIXED
    | libc::MAP_FIXED_NOREPLACE
    | libc::MAP_DENYWRITE
    | libc::MAP_EXECUTABLE
    | libc::MAP_GROWSDOWN
    | libc::MAP_LOCKED
    | libc::MAP_NONBLOCK
    | libc::MAP_NORESERVE
    | libc::MAP_POPULATE
    | libc::MAP_STACK
    | libc::MAP_HUGETLB
    // `MAP_32BIT`, which only some machines have.
    | 0x40;

/// A mapping as it is asked for.
#[derive(Clone, Copy)]
struct Wanted {
    addr: *mut c_void,
    len: usize,
    access: c_int,
    flags: c_int,
    at: i64,
}

fn checked(answer: isize) -> Outcome<isize> {
    if (-4095..0).contains(&answer) { Err(Errno(-answer as i32)) } else { Ok(answer) }
}

fn map(world: &World, open: &Arc<Open>, wanted: Wanted) -> Outcome<isize> {
    let Wanted { addr, len, access, flags, at } = wanted;
    let shared = match flags & libc::MAP_TYPE {
        libc::MAP_SHARED_VALIDATE if flags & !KNOWN != 0 => return Err(Errno::EOPNOTSUPP),
        libc::MAP_SHARED | libc::MAP_SHARED_VALIDATE => true,
        libc::MAP_PRIVATE => false,
        _ => return Err(Errno::EINVAL),
    };
    if open.is_path() {
        return Err(Errno::EBADF);
    }
    let offset = u64::try_from(at).map_err(|_| Errno::EINVAL)?;
    if len == 0 || offset % PAGE as u64 != 0 {
        return Err(Errno::EINVAL);
    }
    if !open.reads() {
        return Err(Errno::EACCES);
    }
    let file = open.file(world).map_err(|_| Errno(libc::ENODEV))?;
    if shared && access & libc::PROT_WRITE != 0 {
        return Err(if open.writes() { Errno(libc::ENODEV) } else { Errno::EACCES });
    }
    // What nobody changes any more is mapped where it lies.
    if let Some(lent) = file.lend() {
        let fd = lent.file().as_raw_fd();
        return checked(kernel!(libc::SYS_mmap, addr, len, access, flags, fd, at));
    }
    // Who locks it wants to see what others write, and a copy does not show that: SQLite (`mmap_size`) then reads instead.
    if shared && crate::world::lock(&world.files.locked).contains(&open.record.uuid) {
        return Err(Errno(libc::ENODEV));
    }
    // Whole pages, as far as the file goes.
    let len = len.checked_next_multiple_of(PAGE).ok_or(Errno::ENOMEM)?;
    let wanted = Wanted { len, ..wanted };
    let there = usize::try_from(file.size()?.saturating_sub(offset)).unwrap_or(usize::MAX).min(len);
    in_file(file, there, wanted, shared)?.map_or_else(|| in_memory(file, there, wanted), Ok)
}

/// Reads bytes into memory that is zero. What the file has none of, in a long range, takes up no memory.
fn read(file: &File, at: u64, bytes: &mut [u8]) -> Outcome<()> {
    if bytes.len() < LONG {
        return file.read(at, bytes).map(drop);
    }
    let end = at + bytes.len() as u64;
    let mut from = at;
    while from < end {
        // Behind the last of them is nothing; and somebody may have made it shorter.
        let found = file.seek(from, Seek::Data).and_then(|data| Ok((data, file.seek(data, Seek::Hole)?)));
        let (data, hole) = match found {
            Err(Errno::ENXIO) => return Ok(()),
            found => found?,
        };
        let hole = hole.min(end);
        if data >= hole {
            return Ok(());
        }
        file.read(data, &mut bytes[(data - at) as usize..(hole - at) as usize])?;
        from = hole;
    }
    Ok(())
}

/// What is mapped of a file, in one of the kernel's: dropped from memory (`MADV_DONTNEED`) it comes again, also where this process has changed it for itself, and what is shared is
/// written by nobody, whatever becomes of its protection (`mprotect`). `None`: there can be none.
fn in_file(file: &File, there: usize, wanted: Wanted, shared: bool) -> Outcome<Option<isize>> {
    let Wanted { addr, len, access, flags, at } = wanted;
    let mut most = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    let none = std::ptr::null::<libc::rlimit64>();
    let asked = kernel!(libc::SYS_prlimit64, 0, libc::RLIMIT_FSIZE, none, &raw mut most);
    if asked < 0 || most.rlim_cur < len as u64 {
        // Who made it longer would get a signal.
        return Ok(None);
    }
    let made = kernel!(libc::SYS_memfd_create, c"iov-map".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING);
    if made < 0 {
        return Ok(None);
    }
    let fd = made as c_int;
    let filled = || {
        // Behind the end of the file are zeros.
        if kernel!(libc::SYS_ftruncate, fd, len) < 0 {
            return Ok(None);
        }
        if there > 0 {
            let writable = libc::PROT_READ | libc::PROT_WRITE;
            let null = std::ptr::null::<c_void>();
            let start = kernel!(libc::SYS_mmap, null, there, writable, libc::MAP_SHARED, fd, 0);
            let Ok(start) = checked(start) else { return Ok(None) };
            // SAFETY: it was just made, of this length, and nobody else knows of it.
            let bytes = unsafe { std::slice::from_raw_parts_mut(start as *mut u8, there) };
            let read = read(file, at as u64, bytes);
            kernel!(libc::SYS_munmap, start, there);
            read?;
        }
        if shared && kernel!(libc::SYS_fcntl, fd, libc::F_ADD_SEALS, libc::F_SEAL_FUTURE_WRITE) < 0 {
            return Ok(None);
        }
        checked(kernel!(libc::SYS_mmap, addr, len, access, flags, fd, 0)).map(Some)
    };
    let mapped = filled();
    kernel!(libc::SYS_close, fd);
    mapped
}

/// The same in memory of this process alone.
fn in_memory(file: &File, there: usize, wanted: Wanted) -> Outcome<isize> {
    let Wanted { addr, len, access, flags, at } = wanted;
    let flags = (flags & !libc::MAP_TYPE) | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let writable = libc::PROT_READ | libc::PROT_WRITE;
    let start = checked(kernel!(libc::SYS_mmap, addr, len, writable, flags, -1_i32, 0))?;
    // SAFETY: it was just made, of this length, and nobody else knows of it.
    let bytes = unsafe { std::slice::from_raw_parts_mut(start as *mut u8, there) };
    let filled = read(file, at as u64, bytes).and_then(|()| match access == writable {
        true => Ok(0),
        false => checked(kernel!(libc::SYS_mprotect, start, len, access)),
    });
    match filled {
        Ok(_) => Ok(start),
        Err(e) => {
            kernel!(libc::SYS_munmap, start, len);
            Err(e)
        }
    }
}

export! {
    /// `mmap(2)`
    fn mmap(addr: *mut c_void, len: usize, access: c_int, flags: c_int, fd: c_int, at: i64) -> *mut c_void = {
        let ours = match flags & libc::MAP_ANONYMOUS == 0 && fd >= 0 {
            true => with(fd, |w, open| map(w, open, Wanted { addr, len, access, flags, at })),
            // Also what the allocator needs, which must not be called here.
            false => None,
        };
        ours.unwrap_or_else(|| kernel!(libc::SYS_mmap, addr, len, access, flags, fd, at))
    };
}
