//! Descriptors: closing them, making more of them, asking them this and that.

use std::{
    ffi::{c_int, c_ulong},
    sync::{Arc, atomic::Ordering},
};

use iov_posix::{Errno, Outcome};
use ioverbs::kept;

use super::{export, locks};
use crate::{
    files::{Open, with},
    holder, memory,
    raw::{failed, kernel},
    signals::Quiet,
    world::{Inside, World, lock, world},
};

/// `_IOWR(0x94, 54, struct file_dedupe_range)`
const FIDEDUPERANGE: c_ulong = 0xc018_9436;

/// Closes a descriptor of the kernel, and with it what it stands for.
fn close_one(fd: c_int) -> isize {
    let Some(world) = world() else { return kernel!(libc::SYS_close, fd) };
    if kept::is_kept(fd) {
        // Programs that close what they do not know have not opened this.
        if !Inside::is() {
            return failed(Errno::EBADF);
        }
        kept::let_go(fd);
        return kernel!(libc::SYS_close, fd);
    }
    if !world.files.may_have(fd) {
        return kernel!(libc::SYS_close, fd);
    }
    let _quiet = Quiet::enter();
    // A child that shares the memory of its parent closes its own descriptor, not its parent's.
    if world.files.get(fd).is_none() || crate::raw::pid() != world.pid {
        return kernel!(libc::SYS_close, fd);
    }
    let errno = crate::raw::errno();
    let _inside = Inside::enter();
    let open = world.files.take(fd);
    let held = open.as_ref().and_then(|open| holder::before_close(fd, open));
    let rest = open.as_ref().and_then(|open| open.at_rest());
    let closed = kernel!(libc::SYS_close, fd);
    drop(rest);
    let told = open.map_or(Ok(()), |open| world.files.close(world, open));
    held.inspect(holder::closed);
    crate::raw::set_errno(errno);
    match told {
        Ok(()) => closed,
        Err(e) => failed(e),
    }
}

/// A number that the kernel has given to something else does not stand for what was closed under it behind the library's back.
fn forget(new: isize) {
    if let (Some(world), Ok(fd)) = (world(), c_int::try_from(new))
        && world.files.may_have(fd)
        && world.files.get(fd).is_some()
        && crate::raw::pid() == world.pid
        && let Some(stale) = world.files.take(fd)
    {
        let (errno, _inside) = (crate::raw::errno(), Inside::enter());
        let _ = world.files.close(world, stale);
        crate::raw::set_errno(errno);
    }
}

/// Has the kernel give a number out; where none is left, once more when the library has closed what it can do without.
pub(super) fn numbered(give: impl Fn() -> isize) -> isize {
    let given = match give() {
        none if none == failed(Errno(libc::EMFILE)) && gives_up() => give(),
        given => given,
    };
    forget(given);
    given
}

/// The library closes what it can do without; `false`: there is nothing. A child that shares the memory of its parent would close nothing of its parent's.
pub(super) fn gives_up() -> bool {
    if world().is_none_or(|world| crate::raw::pid() != world.pid) {
        return false;
    }
    let _quiet = Quiet::enter();
    let _inside = Inside::enter();
    let errno = crate::raw::errno();
    let some = kept::give_up();
    crate::raw::set_errno(errno);
    some
}

/// Has the kernel make another descriptor of one, or put it under a number, which then stands for what the old one does, if one of them is ours; what it stood
/// for before is closed.
fn dupped(fds: [c_int; 2], make: impl Fn() -> isize) -> isize {
    let _quiet = Quiet::enter();
    let ours = |world: &&World| fds.iter().any(|fd| world.files.get(*fd).is_some()) && crate::raw::pid() == world.pid;
    let Some(world) = world().filter(ours) else {
        return numbered(make);
    };
    let errno = crate::raw::errno();
    let open = if fds[0] == fds[1] { None } else { world.files.get(fds[1]) };
    let held = open.as_ref().and_then(|open| holder::before_close(fds[1], open));
    let rest = open.as_ref().and_then(|open| open.at_rest());
    let (mut done, mut before) = world.files.dup(fds[0], &make);
    if done == failed(Errno(libc::EMFILE)) && gives_up() {
        (done, before) = world.files.dup(fds[0], &make);
    }
    drop(rest);
    drop(open);
    if let Some(before) = before {
        // As the kernel does it: nobody hears of what fails.
        let _ = world.files.close(world, before);
        held.inspect(holder::closed);
    }
    crate::raw::set_errno(errno);
    done
}

fn fcntl_ours(world: &World, fd: c_int, open: &Arc<Open>, command: c_int, arg: usize) -> Outcome<isize> {
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => Ok(dupped([fd, fd], || kernel!(libc::SYS_fcntl, fd, command, arg))),
        libc::F_GETFL => {
            let flags = open.standing.status(fd) as c_int;
            let access = match (open.reads(), open.writes()) {
                _ if open.is_path() => libc::O_PATH,
                (true, true) => libc::O_RDWR,
                (false, true) => libc::O_WRONLY,
                _ => libc::O_RDONLY,
            };
            Ok(((flags & !libc::O_ACCMODE) | access | open.record.access.sync) as isize)
        }
        libc::F_SETFL => {
            let flags = arg as c_int & (libc::O_APPEND | libc::O_NONBLOCK | libc::O_NOATIME);
            let one = lock(&open.moving);
            let done = open.standing.set_status(fd, flags);
            drop(one);
            if done == 0 {
                open.append.store(flags & libc::O_APPEND != 0, Ordering::Relaxed);
            }
            Ok(done)
        }
        libc::F_GETLK | libc::F_SETLK | libc::F_SETLKW | libc::F_OFD_GETLK | libc::F_OFD_SETLK | libc::F_OFD_SETLKW => {
            let mut lock = memory::given(arg as *const libc::flock)?;
            let done = locks::fcntl(world, fd, open, command, &mut lock)?;
            if matches!(command, libc::F_GETLK | libc::F_OFD_GETLK) {
                memory::give(arg as *mut libc::flock, lock)?;
            }
            Ok(done)
        }
        // Not while something else is put there to stand for it.
        libc::F_SETFD => {
            let _held = world.files.hold();
            Ok(kernel!(libc::SYS_fcntl, fd, command, arg))
        }
        libc::F_GETFD => Ok(kernel!(libc::SYS_fcntl, fd, command, arg)),
        // What writes may come is not known of files that others write.
        libc::F_SETLEASE | libc::F_ADD_SEALS | libc::F_GET_SEALS => Err(Errno::EINVAL),
        libc::F_GETLEASE => Ok(libc::F_UNLCK as isize),
        // What else there is the kernel keeps with what stands for it.
        _ => {
            world.files.own_one(open, false)?;
            Ok(kernel!(libc::SYS_fcntl, fd, command, arg))
        }
    }
}

fn ioctl_ours(world: &World, fd: c_int, open: &Arc<Open>, request: c_ulong, arg: usize) -> Outcome<isize> {
    if open.is_path() {
        return Err(Errno::EBADF);
    }
    match request {
        libc::FIONREAD if !open.may_be_listed() || open.file(world).is_ok() => {
            let size = open.to_read(world)?.size()?;
            let at = open.standing.offset(fd).max(0) as u64;
            let left = c_int::try_from(size.saturating_sub(at)).unwrap_or(c_int::MAX);
            memory::give(arg as *mut c_int, left).map(|()| 0)
        }
        // Nothing here waits, and it is kept what was said.
        libc::FIONBIO => {
            let waits = memory::given(arg as *const c_int)? == 0;
            let flags = open.standing.status(fd) as c_int & !libc::O_NONBLOCK;
            fcntl_ours(world, fd, open, libc::F_SETFL, (flags | if waits { 0 } else { libc::O_NONBLOCK }) as usize)
        }
        libc::FIOCLEX | libc::FIONCLEX => {
            let _held = world.files.hold();
            Ok(kernel!(libc::SYS_ioctl, fd, request, arg))
        }
        // Its blocks are not shared.
        libc::FICLONE | libc::FICLONERANGE | FIDEDUPERANGE => Err(Errno::EOPNOTSUPP),
        // It is no terminal.
        _ => Err(Errno(libc::ENOTTY)),
    }
}

/// Closes a range of descriptors, or marks it.
fn close_many(first: u32, last: u32, flags: c_int) -> isize {
    let _quiet = Quiet::enter();
    if let Some(world) = world()
        && flags as u32 & libc::CLOSE_RANGE_CLOEXEC == 0
        && crate::raw::pid() == world.pid
    {
        // Not the open files themselves: who closes the last descriptor of one ends its locks.
        let all: Vec<c_int> = world.files.all().into_iter().map(|(fd, _)| fd).collect();
        for fd in all {
            if u32::try_from(fd).is_ok_and(|fd| (first..=last).contains(&fd)) {
                close_one(fd);
            }
        }
    }
    // Around those that the program has not opened.
    let mut from = first;
    for fd in kept::kept().into_iter().filter_map(|fd| u32::try_from(fd).ok()).filter(|fd| (first..=last).contains(fd))
    {
        if fd > from {
            kernel!(libc::SYS_close_range, from, fd - 1, flags);
        }
        from = fd + 1;
    }
    if from > last && from > first { 0 } else { kernel!(libc::SYS_close_range, from, last, flags) }
}

/// Closes all from one on, where the kernel cannot do that at once.
fn close_from(first: c_int) -> isize {
    let first = first.max(0);
    match close_many(first as u32, u32::MAX, 0) {
        0 => 0,
        _ => {
            for fd in first..65536 {
                close_one(fd);
            }
            0
        }
    }
}

export! {
    /// `close(2)`
    fn close(fd: c_int) -> c_int = close_one(fd);
    /// `close_range(2)`
    fn close_range(first: u32, last: u32, flags: c_int) -> c_int = close_many(first, last, flags);
    /// `closefrom(3)`
    fn closefrom(first: c_int) -> c_int = close_from(first);
    /// `dup(2)`
    fn dup(fd: c_int) -> c_int = dupped([fd, fd], || kernel!(libc::SYS_dup, fd));
    /// `dup2(2)`
    fn dup2(old: c_int, new: c_int) -> c_int = dup_to(old, new, 0);
    /// `dup3(2)`
    fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int = match old == new {
        true => failed(Errno::EINVAL),
        false => dup_to(old, new, flags),
    };
    /// `fcntl(2)`
    fn fcntl(fd: c_int, command: c_int, arg: usize) -> c_int =
        with(fd, |w, open| fcntl_ours(w, fd, open, command, arg))
            .unwrap_or_else(|| match command {
                libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => numbered(|| kernel!(libc::SYS_fcntl, fd, command, arg)),
                _ => kernel!(libc::SYS_fcntl, fd, command, arg),
            });
    /// `ioctl(2)`
    fn ioctl(fd: c_int, request: c_ulong, arg: usize) -> c_int =
        with(fd, |w, open| ioctl_ours(w, fd, open, request, arg))
            .unwrap_or_else(|| kernel!(libc::SYS_ioctl, fd, request, arg));
    /// `flock(2)`
    fn flock(fd: c_int, operation: c_int) -> c_int =
        with(fd, |w, open| locks::flock(w, fd, open, operation)).unwrap_or_else(|| kernel!(libc::SYS_flock, fd, operation));
}

fn dup_to(old: c_int, new: c_int, flags: c_int) -> isize {
    // Of two equal ones the kernel says whether they are any.
    if old == new {
        return match kernel!(libc::SYS_fcntl, old, libc::F_GETFD) {
            e if e < 0 => e,
            _ => old as isize,
        };
    }
    if kept::is_kept(new) {
        return failed(Errno::EBUSY);
    }
    dupped([old, new], || kernel!(libc::SYS_dup3, old, new, flags))
}
