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
                ))
                .with_next("leave --offline out: the daemon answers"));
            }
            Err(e) => return Err(Error::from(std::io::Error::from(e)).context("the store's lock file")),
        }
        if !is_local(dir) {
            elsewhere(&mut file)?;
        }
        Ok(Hold { _file: Some(file) })
    }
}

/// File systems that one host at a time has: ext, XFS, Btrfs, ZFS, F2FS, tmpfs, overlays, and those of images and discs. There
/// the lock alone tells everything, and what is written in it may be of the host that a backup was made on.
const LOCAL: [u64; 11] = [
    0xef53,
    0x5846_5342,
    0x9123_683e,
    0x2fc1_2fc1,
    0xf2f5_2010,
    0x0102_1994,
    0x794c_7630,
    0x7371_7368,
    0xe0f5_e1e2,
    0x9660,
    0x1501_3346,
];

fn is_local(dir: BorrowedFd<'_>) -> bool {
    rustix::fs::fstatfs(dir).is_ok_and(|facts| LOCAL.contains(&(facts.f_type as u64)))
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
