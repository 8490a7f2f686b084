//! Keeps daemons away while a store is read. Nothing is written for that: the daemon's own lock is taken, shared with others
//! who read.

use std::{fs::File, io::Read, os::fd::BorrowedFd, path::Path};

use iov_types::{Error, Result};
use rustix::{
    fs::{FlockOperation, Mode, OFlags},
    io::Errno,
};

/// The lock, until it is dropped. A store that was copied without its lock file has none; what lies in it is locked too.
pub(crate) struct Hold {
    _file: Option<File>,
}

impl Hold {
    /// Takes it.
    pub(crate) fn take(dir: BorrowedFd<'_>, shown: &Path) -> Result<Hold> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let mut file = match rustix::fs::openat(dir, "lock", flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT) => return Ok(Hold { _file: None }),
            Err(e) => return Err(Error::from(std::io::Error::from(e)).context("the store's lock file")),
        };
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                return Err(Error::busy(format!(
                    "a daemon serves the store in {}: leave --offline out, or end it first, by iov down",
                    shown.display()
                )));
            }
            Err(e) => return Err(Error::from(std::io::Error::from(e)).context("the store's lock file")),
        }
        elsewhere(&mut file)?;
        Ok(Hold { _file: Some(file) })
    }
}

/// Fails if a daemon of another host has the store, over a shared file system whose locks end with each host.
fn elsewhere(file: &mut File) -> Result<()> {
    let mut text = String::new();
    file.take(4096).read_to_string(&mut text).map_err(Error::from)?;
    let mut lines = text.lines();
    let (Some(host), Some(boot), Some(pid)) = (lines.next(), lines.next(), lines.next()) else { return Ok(()) };
    let ours = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    if boot == ours.trim() || rustix::system::uname().nodename().to_bytes() == host.as_bytes() {
        return Ok(());
    }
    Err(Error::busy(format!(
        "the store is held by host {host} (process {pid}): read it there, or end that daemon; if that host is gone for good, \
         remove the file named lock in the store's directory"
    )))
}
