//! What stands for an open file in the kernel's table of descriptors, and where its offset is.
//!
//! As long as no other process can have it, that is one memory file for all that a program opens, of which a descriptor costs a hundredth of a
//! file of its own; the offset and what `F_SETFL` sets are then kept here. Before there is another process, or another program, each
//! gets a file of its own that says what it is ([`crate::record`]), under the same numbers, and the offset is the kernel's from then on.

use std::{
    ffi::c_int,
    os::fd::{FromRawFd, IntoRawFd, OwnedFd},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicI32, AtomicI64, Ordering},
    },
};

use iov_posix::{Errno, Outcome};

use crate::{
    files::{Files, Open},
    raw::kernel,
    record::{Record, empty, seal},
    world::lock,
};

/// What `F_SETFL` can change of what stands for a file.
const STATUS: c_int = libc::O_APPEND | libc::O_NONBLOCK | libc::O_NOATIME;

/// Where an open file is. Whoever moves it has [`Open::moving`].
#[derive(Debug)]
pub(crate) struct Standing {
    /// A file of its own stands for it, in which is written what it is: the rest is the kernel's to know.
    own: AtomicBool,
    /// What stands for it while it has none.
    of: Option<Which>,
    offset: AtomicI64,
    status: AtomicI32,
}

impl Standing {
    /// It has a file of its own: another process has handed it to this one.
    pub(crate) fn own() -> Standing {
        Standing { own: AtomicBool::new(true), of: None, offset: AtomicI64::new(0), status: AtomicI32::new(0) }
    }

    /// The file that stands for all stands for it too.
    pub(crate) fn lent(of: Which, flags: c_int) -> Standing {
        let (own, offset) = (AtomicBool::new(false), AtomicI64::new(0));
        Standing { own, of: Some(of), offset, status: AtomicI32::new(flags & STATUS) }
    }

    /// The same for a child of `fork`, which may find itself with what was not told to anybody in time.
    pub(crate) fn of_parent(&self) -> Standing {
        Standing {
            own: AtomicBool::new(self.is_own()),
            of: self.of,
            offset: AtomicI64::new(self.offset.load(Ordering::Relaxed)),
            status: AtomicI32::new(self.status.load(Ordering::Relaxed)),
        }
    }

    pub(crate) fn is_own(&self) -> bool {
        self.own.load(Ordering::Acquire)
    }

    /// The offset, or the negated number of an error.
    pub(crate) fn offset(&self, fd: c_int) -> isize {
        match self.is_own() {
            true => kernel!(libc::SYS_lseek, fd, 0, libc::SEEK_CUR),
            false => self.offset.load(Ordering::Relaxed) as isize,
        }
    }

    /// Moves the offset there. What comes of it as of [`Standing::offset`].
    pub(crate) fn move_to(&self, fd: c_int, at: u64) -> isize {
        if self.is_own() {
            return kernel!(libc::SYS_lseek, fd, at, libc::SEEK_SET);
        }
        match i64::try_from(at) {
            Ok(at) => {
                self.offset.store(at, Ordering::Relaxed);
                at as isize
            }
            Err(_) => -(libc::EINVAL as isize),
        }
    }

    /// Moves the offset by so much.
    pub(crate) fn move_by(&self, fd: c_int, by: i64) -> isize {
        if self.is_own() {
            return kernel!(libc::SYS_lseek, fd, by, libc::SEEK_CUR);
        }
        match self.offset.load(Ordering::Relaxed).checked_add(by).and_then(|at| u64::try_from(at).ok()) {
            Some(at) => self.move_to(fd, at),
            None => -(libc::EINVAL as isize),
        }
    }

    /// What `F_GETFL` says, without how it may be used.
    pub(crate) fn status(&self, fd: c_int) -> isize {
        let flags = kernel!(libc::SYS_fcntl, fd, libc::F_GETFL);
        match self.is_own() || flags < 0 {
            true => flags,
            false => flags & !(STATUS as isize) | self.status.load(Ordering::Relaxed) as isize,
        }
    }

    /// What `F_SETFL` does, with what may be set.
    pub(crate) fn set_status(&self, fd: c_int, flags: c_int) -> isize {
        let flags = flags & STATUS;
        if self.is_own() {
            return kernel!(libc::SYS_fcntl, fd, libc::F_SETFL, flags);
        }
        self.status.store(flags, Ordering::Relaxed);
        0
    }
}

/// Which file of the kernel something is: its device, and its number there.
pub(crate) type Which = (u64, u64);

pub(crate) fn which(fd: c_int) -> Option<Which> {
    // SAFETY: the kernel fills it.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    (kernel!(libc::SYS_fstat, fd, &raw mut stat) == 0).then_some((stat.st_dev, stat.st_ino))
}

/// The memory file of which descriptors are lent, under a number that is kept.
#[derive(Debug, Default)]
pub(crate) struct Lender(Mutex<Option<(c_int, Which)>>);

/// A descriptor for what is about to be opened: an `open` that empties or makes a file does so only where it can be given one. Closed again where nothing comes of it.
#[derive(Debug)]
pub(crate) struct Ready(Option<(c_int, Which)>);

impl Ready {
    /// Which it is, and of what, for what was opened.
    fn take(mut self, cloexec: bool) -> Option<(c_int, Which)> {
        let lent = self.0.take()?;
        if !cloexec {
            kernel!(libc::SYS_fcntl, lent.0, libc::F_SETFD, 0);
        }
        Some(lent)
    }
}

impl Drop for Ready {
    fn drop(&mut self) {
        if let Some((fd, _)) = self.0 {
            kernel!(libc::SYS_close, fd);
        }
    }
}

impl Lender {
    /// One for what is about to be opened. Another program does not get it: who starts one meanwhile, in another thread, knows nothing of it.
    pub(crate) fn ready(&self) -> Outcome<Ready> {
        Ok(Ready(Some(self.lend(true)?)))
    }

    /// The same for a child that shares the memory of its parent, where what stands for the file says which it is: whether there is room.
    pub(crate) fn has_room() -> Outcome<Ready> {
        kernel!(libc::SYS_close, empty(true)?);
        Ok(Ready(None))
    }

    /// What was made ready, or else as [`Lender::lend`].
    pub(crate) fn lend_ready(&self, ready: Option<Ready>, cloexec: bool) -> Outcome<(c_int, Which)> {
        ready.and_then(|ready| ready.take(cloexec)).map_or_else(|| self.lend(cloexec), Ok)
    }

    /// A descriptor of it, and which file that is. Where there is none left, the library closes what it can do without.
    pub(crate) fn lend(&self, cloexec: bool) -> Outcome<(c_int, Which)> {
        match self.lend_one(cloexec) {
            Err(Errno(libc::EMFILE)) if ioverbs::kept::give_up() => self.lend_one(cloexec),
            other => other,
        }
    }

    fn lend_one(&self, cloexec: bool) -> Outcome<(c_int, Which)> {
        let command = if cloexec { libc::F_DUPFD_CLOEXEC } else { libc::F_DUPFD };
        let mut file = lock(&self.0);
        for _ in 0..2 {
            let (of, is) = match *file {
                Some(file) => file,
                None => *file.insert(Lender::made()?),
            };
            let lent = kernel!(libc::SYS_fcntl, of, command, 0);
            match c_int::try_from(lent) {
                Ok(fd) if fd >= 0 && which(fd) == Some(is) => return Ok((fd, is)),
                // A program that closes all that there is has closed that too, and may have something else there.
                Ok(fd) if fd >= 0 => drop(kernel!(libc::SYS_close, fd)),
                _ if lent == -(libc::EBADF as isize) => {}
                _ => return Err(Errno(-lent as i32)),
            }
            ioverbs::kept::let_go(of);
            *file = None;
        }
        Err(Errno(libc::EMFILE))
    }

    fn made() -> Outcome<(c_int, Which)> {
        let fd = empty(true)?;
        seal(fd);
        // SAFETY: it was made for this, and nobody else has it.
        let fd = ioverbs::kept::set_aside(unsafe { OwnedFd::from_raw_fd(fd) }).into_raw_fd();
        which(fd).map(|is| (fd, is)).ok_or(Errno(libc::EBADF))
    }

    /// Gives its number up: somebody needs one, and there is none left.
    fn end(&self) {
        if let Some((of, is)) = lock(&self.0).take() {
            ioverbs::kept::let_go(of);
            if which(of) == Some(is) {
                kernel!(libc::SYS_close, of);
            }
        }
    }
}

impl Files {
    /// Each open file has one of its own that stands for it, so that others who get its descriptors find out what it is. `hasty`: not what somebody uses just now,
    /// who may be the one that this thread has interrupted.
    pub(crate) fn own(&self, hasty: bool) {
        let all = match hasty {
            true => self.hold_soon().map(|table| table.iter().flatten().cloned().collect()),
            false => Some(self.all().into_iter().map(|(_, open)| open).collect::<Vec<_>>()),
        };
        for open in all.unwrap_or_default() {
            // Without room for it another process does not find it.
            let _ = self.own_one(&open, hasty);
        }
    }

    /// What others are told of an open file of this process. What it has not opened itself is still for those who act for whoever handed it on.
    fn told(&self, open: &Open) -> Record {
        let mut told = open.record.clone();
        let token = self.token();
        if !token.is_empty() && (open.is_opened() || told.token.is_empty()) {
            told.token = token;
        }
        told
    }

    /// The same for one.
    pub(crate) fn own_one(&self, open: &Arc<Open>, hasty: bool) -> Outcome<()> {
        let standing = &open.standing;
        let Some(is) = standing.of.filter(|_| !standing.is_own()) else { return Ok(()) };
        let _one = match hasty {
            true => match open.moving.try_lock() {
                Ok(one) => one,
                Err(_) => return Err(Errno::EBUSY),
            },
            false => lock(&open.moving),
        };
        if standing.is_own() {
            return Ok(());
        }
        let told = self.told(open);
        let make = || told.descriptor(open.may_be_listed(), true, standing.status.load(Ordering::Relaxed));
        let own = match make() {
            Err(Errno(libc::EMFILE)) => {
                self.lender.end();
                match make() {
                    // Who uses them may be the one that this thread has interrupted.
                    Err(Errno(libc::EMFILE)) if !hasty && ioverbs::kept::give_up() => make()?,
                    other => other?,
                }
            }
            own => own?,
        };
        kernel!(libc::SYS_lseek, own, standing.offset.load(Ordering::Relaxed), libc::SEEK_SET);
        let mut all = false;
        // A handler of a signal may have interrupted who looks into it.
        if let Some(table) = self.hold_soon() {
            all = true;
            let is_it = |other: &&Option<Arc<Open>>| other.as_ref().is_some_and(|other| Arc::ptr_eq(other, open));
            for (fd, _) in table.iter().enumerate().filter(|(_, other)| is_it(other)) {
                let flags = kernel!(libc::SYS_fcntl, fd, libc::F_GETFD);
                // One that was closed behind our back may be something else by now.
                if flags >= 0 && which(fd as c_int) == Some(is) {
                    let cloexec = if flags as c_int & libc::FD_CLOEXEC != 0 { libc::O_CLOEXEC } else { 0 };
                    // Not a number beyond what the process may have by now.
                    all &= kernel!(libc::SYS_dup3, own, fd, cloexec) >= 0;
                }
            }
            // A child that shares the memory of its parent has done so for itself alone.
            if all && crate::raw::pid() == self.pid {
                open.is_proven_by(told.to_bytes());
                standing.own.store(true, Ordering::Release);
            }
        }
        kernel!(libc::SYS_close, own);
        if all { Ok(()) } else { Err(Errno::EBUSY) }
    }
}
