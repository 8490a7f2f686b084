//! Short texts in files that say something of a store.

use std::{
    fs::File,
    io::{Read, Result, Write},
    os::fd::AsFd,
};

use rustix::fs::{AtFlags, Mode, OFlags};

/// What is read to compare.
const MOST: u64 = 1 << 20;

/// Writes one, by way of a file of another name: on a full disk, or where the daemon is killed meanwhile, it is as it was. One
/// that says so already is not touched: a start needs no room for what is there. Either way it survives power loss behind this.
pub(crate) fn write(dir: impl AsFd, name: &str, text: &[u8]) -> Result<()> {
    let dir = dir.as_fd();
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    if let Ok(there) = rustix::fs::openat(dir, name, flags, Mode::empty()) {
        let mut old = Vec::new();
        if File::from(there).take(MOST).read_to_end(&mut old).is_ok() && old == text {
            // Who wrote it may have been killed when it had its name, and before its directory was on disk.
            return Ok(rustix::fs::fsync(dir)?);
        }
    }
    let fresh = fresh(name);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let mut file = File::from(rustix::fs::openat(dir, &fresh, flags, Mode::RUSR | Mode::WUSR)?);
    let written = file.write_all(text).and_then(|()| file.sync_all());
    let named = written.and_then(|()| {
        rustix::fs::renameat(dir, &fresh, dir, name)?;
        Ok(rustix::fs::fsync(dir)?)
    });
    // Half of one is of no use, and takes room.
    named.inspect_err(|_| {
        let _ = rustix::fs::unlinkat(dir, &fresh, AtFlags::empty());
    })
}

/// By which name one comes.
pub(crate) fn fresh(name: &str) -> String {
    format!("{name}.new")
}

#[cfg(test)]
mod tests;
