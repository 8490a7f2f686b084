//! The daemon's log: lines with a time, in the store's directory once it serves in the background.

use std::{
    fs::File,
    io::Write,
    os::fd::{AsFd, BorrowedFd},
};

use iov_store::seam;
use iov_types::{Error, Kind, Result};
use rustix::fs::{Mode, OFlags};

/// Largest log that is kept as it is at a start; a larger one is moved aside once.
const KEEP: u64 = 16 << 20;

/// Sends standard error into the store's log file.
pub(crate) fn to_file(dir: BorrowedFd<'_>) -> Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND | OFlags::CLOEXEC;
    let open = || {
        rustix::fs::openat(dir, "iovd.log", flags, Mode::from_raw_mode(0o600))
            .map(File::from)
            .map_err(|e| Error::from(std::io::Error::from(e)).context("the daemon's log"))
    };
    let mut file = match open() {
        // A start does not depend on it.
        Err(e) if e.kind() == Kind::Exhausted => return Ok(()),
        opened => opened?,
    };
    if file.metadata().map_err(Error::from)?.len() > KEEP {
        rustix::fs::renameat(dir, "iovd.log", dir, "iovd.log.old").map_err(|e| Error::from(std::io::Error::from(e)))?;
        // On a full disk there may be no new one: the old one goes on.
        file = open().unwrap_or(file);
    }
    rustix::stdio::dup2_stderr(file.as_fd()).map_err(|e| Error::from(std::io::Error::from(e)))?;
    Ok(())
}

/// Writes a line.
pub(crate) fn line(text: &str) {
    let now = seam::now_ns();
    // On a full disk there is no log, and a daemon all the same.
    let _ = writeln!(std::io::stderr(), "{}.{:03} {text}", now / 1_000_000_000, now / 1_000_000 % 1000);
}
