//! All targets of a store, in the order of their numbers: a line each in the file `storage` of its directory.

use std::{io::Read, os::fd::OwnedFd};

use iov_types::{Error, Result};
use rustix::{
    fs::{AtFlags, Mode, OFlags},
    io::Errno,
};

use super::{Asked, Files, Storage, os};
use crate::{Args, texts};

const FILE: &str = "storage";
/// The file that a target in files has in its directory.
pub(super) const FILES_FORMAT: &str = "format";
/// Most targets of one daemon.
const MOST: usize = 64;

/// Where a store keeps its bytes.
pub(crate) struct Storages(pub(crate) Vec<Storage>);

impl Storages {
    /// What is written down; without a file, bytes lie in files.
    pub(crate) fn load(dir: &OwnedFd) -> Result<Storages> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = match rustix::fs::openat(dir, FILE, flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(Storages(vec![Storage::Files(Files::default())])),
            Err(e) => return Err(os("the file storage of the store")(e)),
        };
        let mut text = String::new();
        std::fs::File::from(file).take(MOST as u64 * 8192).read_to_string(&mut text).map_err(Error::from)?;
        let read: Option<Vec<Storage>> = text.trim_end_matches('\n').split('\n').map(Storage::read).collect();
        read.map(Storages).ok_or_else(|| {
            Error::corrupt(
                "the file storage in the store's directory cannot be read: it says where the store's bytes are, a line for each \
                 target, as in `shmem BYTES DIRECTORY`; restore it",
            )
        })
    }

    /// Brings what is asked for together with what is written down, and writes down what is new. The first that are asked for
    /// are those that there are; more of them are new targets.
    pub(crate) fn choose(dir: &OwnedFd, args: &Args) -> Result<Storages> {
        let there = Storages::load(dir)?;
        // Who wrote it down may have been killed before its directory was on disk, and what follows relies on it.
        rustix::fs::fsync(dir).map_err(os("syncing the store's directory"))?;
        let has_files = rustix::fs::statat(dir, FILES_FORMAT, AtFlags::empty()).is_ok();
        let is_new = there.0 == [Storage::Files(Files::default())] && !has_files;
        let new = args.new_storage.iter().filter(|_| is_new).cloned();
        let asked: Vec<Asked> = if args.storage.is_empty() { new.collect() } else { args.storage.clone() };
        if asked.is_empty() {
            return Ok(there);
        }
        if asked.len() > MOST {
            return Err(Error::too_big(format!(
                "a daemon serves at most {MOST} targets: start others (iov up --join)"
            )));
        }
        let mut there = if is_new { Vec::new() } else { there.0 }.into_iter();
        let mut storages = Vec::new();
        for asked in asked {
            storages.push(match there.next() {
                Some(there) => there.again(asked, &args.shm)?,
                None => Storage::make(asked, dir, &args.shm)?,
            });
        }
        // Those that nobody has named are as they were.
        storages.extend(there);
        let storages = Storages(storages);
        storages.write(dir)?;
        Ok(storages)
    }

    fn write(&self, dir: &OwnedFd) -> Result<()> {
        if Storages::load(dir).is_ok_and(|there| there.0 == self.0) {
            return Ok(());
        }
        let text: String = self.0.iter().map(|storage| format!("{}\n", storage.text())).collect();
        // Without it the store would be taken for one in files, whose bytes are not there (P1).
        texts::write(dir, FILE, text.as_bytes())
            .map_err(|e| Error::from(e).context("writing down where the store keeps its bytes"))
    }

    /// Gives memory back that outlives the daemon, and all bytes with it; how many bytes that were.
    pub(crate) fn release(&self) -> Result<u64> {
        self.0.iter().map(Storage::release).sum()
    }
}

#[cfg(test)]
mod tests;
