//! One daemon for each store: a lock on a file that names its holder.

use std::{
    fs::File,
    io::{Read, Seek, Write},
    os::fd::{AsFd, BorrowedFd},
};

use iov_types::{Error, Result};
use rustix::{
    fs::{FlockOperation, Mode, OFlags},
    io::Errno,
};

/// The hold on a store; given back in order by [`Hold::release`], or by the kernel when the process dies.
pub(crate) struct Hold {
    file: File,
    /// What it has written there. (A host may be given another name meanwhile.)
    claim: String,
    /// Nothing was served yet, and whoever had it before has given it back in order: it goes as it came. What a daemon left that
    /// crashed stays this host's, where its clients may still move bytes themselves.
    goes: bool,
}

/// How taking the hold ended.
pub(crate) enum Taken {
    /// We have it.
    Ours(Hold),
    /// Another daemon of this host has it and serves the store.
    Served,
}

struct Holder {
    host: String,
    boot: String,
    pid: String,
}

fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

fn boot() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

fn read(file: &mut File) -> Result<String> {
    let mut text = String::new();
    file.rewind().and_then(|()| file.take(4096).read_to_string(&mut text)).map_err(Error::from)?;
    Ok(text)
}

fn holder(text: &str) -> Option<Holder> {
    let mut lines = text.lines().map(str::to_owned);
    match (lines.next(), lines.next(), lines.next()) {
        (Some(host), Some(boot), Some(pid)) => Some(Holder { host, boot, pid }),
        // An empty line or nothing: given back in order. Torn: its writer died before it served anything.
        _ => None,
    }
}

/// How often the lock is tried where it is shared, and how long it is waited for in between: another daemon that starts looks
/// at it in the same way.
const TRIES: usize = 20;
const WAIT_NS: u64 = 5_000_000;

/// Takes the lock. Where it cannot be had, but be shared, no daemon has it: somebody reads the store without one.
fn lock(file: &File) -> Result<rustix::io::Result<()>> {
    let lock = |how| rustix::fs::flock(file.as_fd(), how);
    for _ in 0..TRIES {
        match lock(FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => {}
            other => return Ok(other),
        }
        match lock(FlockOperation::NonBlockingLockShared).and_then(|()| lock(FlockOperation::Unlock)) {
            Err(Errno::WOULDBLOCK) => return Ok(Err(Errno::WOULDBLOCK)),
            Err(e) => return Ok(Err(e)),
            Ok(()) => iov_store::seam::sleep(WAIT_NS),
        }
    }
    Err(Error::busy("somebody reads the store without its daemon, by iov --offline: wait until that has ended"))
}

/// Over what is there, and cut off afterwards: on a full disk the file must not need space that it has given back.
fn write(file: &mut File, text: &str) -> Result<()> {
    let done = file.rewind().and_then(|()| file.write_all(text.as_bytes()));
    let done = done.and_then(|()| file.set_len(text.len() as u64)).and_then(|()| file.sync_data());
    done.map_err(|e| Error::from(e).context("the store's lock file"))
}

impl Hold {
    /// Takes the hold on the store in `dir`.
    pub(crate) fn take(dir: BorrowedFd<'_>) -> Result<Taken> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(dir, "lock", flags, Mode::from_raw_mode(0o600)).map_err(|e| match e {
            Errno::ROFS => Error::unavailable(
                "the store's directory is on a file system that is mounted read-only: mount it for writing, or use \
                     another place",
            ),
            e => Error::from(std::io::Error::from(e)).context("the store's lock file"),
        })?;
        let mut file = File::from(fd);
        let locked = lock(&file)?;
        let holder = holder(&read(&mut file)?);
        let elsewhere = holder.as_ref().filter(|h| h.boot != boot() && h.host != host());
        match (locked, elsewhere) {
            (_, Some(h)) => Err(Error::busy(format!(
                "the store is held by host {} (process {}): use it there, or end that daemon; if that host is gone for \
                 good, remove the file named lock in the store's directory",
                h.host, h.pid
            ))),
            (Err(Errno::WOULDBLOCK), None) => Ok(Taken::Served),
            (Err(e), None) => {
                Err(Error::from(std::io::Error::from(e)).context("the store's lock file cannot be locked"))
            }
            (Ok(()), None) => {
                let claim = format!("{}\n{}\n{}\n", host(), boot(), std::process::id());
                let mut hold = Hold { file, claim, goes: holder.is_none() };
                write(&mut hold.file, &hold.claim)?;
                Ok(Taken::Ours(hold))
            }
        }
    }

    /// From now on the store is served: only an end in order gives it back.
    pub(crate) fn serves(&mut self) {
        self.goes = false;
    }

    /// Gives it back: no daemon serves the store any more, and any host may.
    pub(crate) fn release(mut self) -> Result<()> {
        self.goes = false;
        self.give_back()
    }

    fn give_back(&mut self) -> Result<()> {
        let text = read(&mut self.file)?;
        if text != self.claim && holder(&text).is_some() {
            // Where locks do not reach another host, it may have claimed the store just behind this one.
            return Ok(());
        }
        // An empty line, so that the file keeps its space.
        write(&mut self.file, "\n")
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.goes {
            // Left behind, it names this host and process.
            let _ = self.give_back();
        }
    }
}

#[cfg(test)]
mod tests;
