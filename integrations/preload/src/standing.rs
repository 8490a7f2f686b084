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
    record::{empty, seal},
    world::lock,
};

/// What `F_SETFL` can change of what stands for a file.
const STATUS: c_int = libc::O_APPEND | libc::O_NONBLOCK | libc::O_NOATIME;

/// Where an open file is. Whoever moves it has [`Open::moving`].
#[derive(Debug)]
pub(crate) struct Standing {
    /// A file of its own stands for it, in which is written what it is: the rest is the kernel's to know.
    own: AtomicBool,
    offset: AtomicI64,
    status: AtomicI32,
}

impl Standing {
    /// It has a file of its own: another process has handed it to this one.
    pub(crate) fn own() -> Standing {
        Standing { own: AtomicBool::new(true), offset: AtomicI64::new(0), status: AtomicI32::new(0) }
    }

    /// The file that stands for all stands for it too.
    pub(crate) fn lent(flags: c_int) -> Standing {
        Standing { own: AtomicBool::new(false), offset: AtomicI64::new(0), status: AtomicI32::new(flags & STATUS) }
    }

    /// The same for a child of `fork`, which may find itself with what was not told to anybody in time.
    pub(crate) fn of_parent(&self) -> Standing {
        Standing {
            own: AtomicBool::new(self.is_own()),
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

/// The memory file of which descriptors are lent.
#[derive(Debug, Default)]
pub(crate) struct Lender(Mutex<Option<c_int>>);

impl Lender {
    /// A descriptor of it.
    pub(crate) fn lend(&self, cloexec: bool) -> Outcome<c_int> {
        let command = if cloexec { libc::F_DUPFD_CLOEXEC } else { libc::F_DUPFD };
        let mut file = lock(&self.0);
        for _ in 0..2 {
            let of = match *file {
                Some(of) => of,
                None => *file.insert(Lender::made()?),
            };
            match kernel!(libc::SYS_fcntl, of, command, 0) {
                // Somebody has closed all that there is.
                e if e == -(libc::EBADF as isize) => *file = None,
                e if e < 0 => return Err(Errno(-e as i32)),
                fd => return Ok(fd as c_int),
            }
        }
        Err(Errno(libc::EMFILE))
    }

    fn made() -> Outcome<c_int> {
        let fd = empty(true)?;
        seal(fd);
        // SAFETY: it was made for this, and nobody else has it.
        Ok(ioverbs::kept::set_aside(unsafe { OwnedFd::from_raw_fd(fd) }).into_raw_fd())
    }

    /// Whether a descriptor is still one of those that were lent. Where the kernel does not say, it is.
    fn has_lent(&self, fd: c_int) -> bool {
        const KCMP_FILE: c_int = 0;
        let (pid, of) = (crate::raw::pid(), *lock(&self.0));
        of.is_none_or(|of| kernel!(libc::SYS_kcmp, pid, pid, KCMP_FILE, fd, of) <= 0)
    }
}

impl Files {
    /// Each open file has one of its own that stands for it, so that others who get its descriptors find out what it is.
    pub(crate) fn own(&self) {
        for (_, open) in self.all() {
            // Without room for it another process does not find it.
            let _ = self.own_one(&open);
        }
    }

    /// The same for one.
    pub(crate) fn own_one(&self, open: &Arc<Open>) -> Outcome<()> {
        let standing = &open.standing;
        if standing.is_own() {
            return Ok(());
        }
        let _one = lock(&open.moving);
        if standing.is_own() {
            return Ok(());
        }
        let own = open.record.descriptor(true, standing.status.load(Ordering::Relaxed))?;
        kernel!(libc::SYS_lseek, own, standing.offset.load(Ordering::Relaxed), libc::SEEK_SET);
        let table = self.hold();
        for (fd, _) in
            table.iter().enumerate().filter(|(_, other)| other.as_ref().is_some_and(|o| Arc::ptr_eq(o, open)))
        {
            let flags = kernel!(libc::SYS_fcntl, fd, libc::F_GETFD);
            // One that was closed behind our back may be something else by now.
            if flags >= 0 && self.lender.has_lent(fd as c_int) {
                let cloexec = if flags as c_int & libc::FD_CLOEXEC != 0 { libc::O_CLOEXEC } else { 0 };
                kernel!(libc::SYS_dup3, own, fd, cloexec);
            }
        }
        // A child that shares the memory of its parent has done so for itself alone.
        if crate::raw::pid() == self.pid {
            standing.own.store(true, Ordering::Release);
        }
        drop(table);
        kernel!(libc::SYS_close, own);
        Ok(())
    }
}
