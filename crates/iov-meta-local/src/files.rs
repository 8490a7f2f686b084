//! The directory of a store: its lock, its small files, and how files in it are replaced whole.

use std::{
    fs::{DirBuilder, File, OpenOptions, TryLockError},
    io::Write,
    os::{
        fd::AsRawFd,
        unix::fs::{DirBuilderExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
    sync::OnceLock,
};

use iov_types::{Error, Result};

use crate::log::{full, is_full};

/// The format this release writes, and the newest that it reads.
pub(crate) const FORMAT: u32 = 1;
const FORMAT_TEXT: &str = "ioverbs metadata engine, format ";
/// Names of what lies in the directory.
pub(crate) const FORMAT_FILE: &str = "format";
pub(crate) const APPLIED_FILE: &str = "applied";
pub(crate) const UNSYNCED_FILE: &str = "unsynced";
pub(crate) const LOG: &str = "log";
pub(crate) const TABLES: &str = "tables";
pub(crate) const LOCK_FILE: &str = "lock";

/// CRC-64/NVME: as fast as 32 bits here, and long enough to tell a torn frame from a whole one for good.
pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, bytes)
}

/// A number at an offset of bytes that are long enough.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(number)
}

/// A directory that this process alone may use, held by its descriptor: it stays the same when it is renamed, when the
/// process changes its own, and when the descriptor behind a `/proc/self/fd` path is closed. The lock ends with it.
pub(crate) struct Home {
    dir: File,
    /// The log's directory, once there is one: a sync of it must not fail for want of a descriptor.
    log: OnceLock<File>,
    base: PathBuf,
    shown: PathBuf,
    /// None where there was none to lock, and nothing is written.
    _lock: Option<File>,
    _scratch: Option<Scratch>,
}

/// A directory of this process alone, which goes with the last that needs it.
struct Scratch(PathBuf);

/// What names of such directories begin with.
const SCRATCH: &str = "iov-look-";
/// How old one is, in seconds, of which nobody has taken the lock yet: its maker has died.
const SCRATCH_AGE_S: i64 = 60;

/// Removes directories of processes that were killed.
fn sweep(place: &Path) {
    for entry in std::fs::read_dir(place).into_iter().flatten().flatten() {
        use std::os::unix::fs::MetadataExt;
        let ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(SCRATCH));
        let now = iov_store::seam::now_ns() / 1_000_000_000;
        let old = |facts: &std::fs::Metadata| facts.is_dir() && facts.mtime() < now - SCRATCH_AGE_S;
        if !ours || !entry.path().symlink_metadata().is_ok_and(|facts| old(&facts)) {
            continue;
        }
        // Whoever uses one holds its lock. What cannot be removed is another user's.
        let unused = File::open(entry.path()).is_ok_and(|dir| dir.try_lock().is_ok());
        if unused {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed is links and a list of tables, in a place for such things.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Home {
    /// Opens a directory, and makes it if it is not there.
    pub(crate) fn open(path: &Path) -> Result<Home> {
        let at = |e: std::io::Error| Error::from(e).context(format_args!("the metadata engine's {}", path.display()));
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(at)?;
        let dir = File::open(path).map_err(at)?;
        let proc = PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd()));
        let base = if proc.is_dir() { proc } else { std::path::absolute(path).map_err(at)? };
        let lock = create(&base.join(LOCK_FILE), false).map_err(at)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Error::busy(format!(
                    "{} is open already: end the process that uses it, or drop the store and its views here, then repeat",
                    path.display()
                )));
            }
            Err(TryLockError::Error(e)) => return Err(at(e)),
        }
        // Whoever opened it by a descriptor is told the name that people know.
        let shown = std::fs::read_link(&base).unwrap_or_else(|_| path.to_path_buf());
        Ok(Home { dir, log: OnceLock::new(), base, shown, _lock: Some(lock), _scratch: None })
    }

    /// Opens a directory for looking at it: nothing in it is made or changed. Others may look at the same time; who wants to
    /// change something waits.
    pub(crate) fn look(path: &Path) -> Result<Home> {
        let at = |e: std::io::Error| Error::from(e).context(format_args!("the metadata engine's {}", path.display()));
        let dir = File::open(path).map_err(at)?;
        let base = std::fs::canonicalize(path).map_err(at)?;
        let lock = match File::open(base.join(LOCK_FILE)) {
            Ok(lock) => Some(lock),
            // A copy that was made without it: nobody else knows of it either.
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
            Err(e) => return Err(at(e)),
        };
        match lock.as_ref().map_or(Ok(()), File::try_lock_shared) {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Error::busy(format!(
                    "{} is open already: end the process that uses it, then repeat",
                    path.display()
                )));
            }
            Err(TryLockError::Error(e)) => return Err(at(e)),
        }
        Ok(Home { dir, log: OnceLock::new(), shown: base.clone(), base, _lock: lock, _scratch: None })
    }

    /// A directory that shows the tables of this one, for the library, which deletes what it has no use for: files that stay
    /// as they are once they are written are links, the others copies.
    pub(crate) fn mirror(self, families: &[&str]) -> Result<Home> {
        let mut name = [0; 8];
        iov_store::seam::random_bytes(&mut name);
        let place = std::env::temp_dir();
        sweep(&place);
        let base = place.join(format!("{SCRATCH}{:016x}", u64::from_le_bytes(name)));
        let at = |e: std::io::Error| {
            Error::from(e).context(format_args!("the directory {}, in a place that TMPDIR can name", base.display()))
        };
        DirBuilder::new().mode(0o700).create(&base).map_err(at)?;
        let scratch = Scratch(base.clone());
        let dir = File::open(&base).map_err(at)?;
        // A file system without locks keeps what is left; this process goes on all the same.
        let _ = dir.try_lock();
        for family in families {
            let (from, to) = (self.base.join(TABLES).join(family), base.join(TABLES).join(family));
            if !from.is_dir() {
                continue;
            }
            DirBuilder::new().recursive(true).mode(0o700).create(&to).map_err(at)?;
            for entry in std::fs::read_dir(&from).map_err(|e| self.failed(TABLES, e))? {
                let entry = entry.map_err(|e| self.failed(TABLES, e))?;
                let (path, new) = (entry.path(), to.join(entry.file_name()));
                if !path.is_dir() {
                    std::fs::copy(&path, &new).map_err(at)?;
                    continue;
                }
                DirBuilder::new().mode(0o700).create(&new).map_err(at)?;
                for table in std::fs::read_dir(&path).map_err(|e| self.failed(TABLES, e))? {
                    let table = table.map_err(|e| self.failed(TABLES, e))?;
                    std::os::unix::fs::symlink(table.path(), new.join(table.file_name())).map_err(at)?;
                }
            }
        }
        Ok(Home { dir, log: OnceLock::new(), base, shown: self.shown, _lock: self._lock, _scratch: Some(scratch) })
    }

    /// Where to reach a file.
    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.base.join(name)
    }

    /// How to call a file in a text for people.
    pub(crate) fn shown(&self, name: impl AsRef<Path>) -> String {
        self.shown.join(name).display().to_string()
    }

    /// An error of the operating system, naming the file.
    pub(crate) fn failed(&self, name: impl AsRef<Path>, e: std::io::Error) -> Error {
        Error::from(e).context(self.shown(name))
    }

    /// The same of something that could not be written: where there is no room, it says so.
    pub(crate) fn unwritten(&self, name: impl AsRef<Path>, e: std::io::Error) -> Error {
        if is_full(&e) { full(&self.shown(name), e) } else { self.failed(name, e) }
    }

    /// Makes a directory that only this user can enter.
    pub(crate) fn make_dir(&self, name: &str) -> Result<()> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(self.path(name));
        made.map_err(|e| self.failed(name, e))
    }

    /// Holds the log's directory, which is there.
    pub(crate) fn hold_log(&self) -> Result<()> {
        let log = File::open(self.path(LOG)).map_err(|e| self.failed(LOG, e))?;
        self.log.get_or_init(|| log);
        Ok(())
    }

    /// Makes the entries of a directory survive power loss; "" is the store's own.
    pub(crate) fn sync_dir(&self, name: &str) -> Result<()> {
        let sync = || match (name, self.log.get()) {
            ("", _) => self.dir.sync_all(),
            (LOG, Some(log)) => log.sync_all(),
            _ => File::open(self.path(name))?.sync_all(),
        };
        sync().map_err(|e| self.failed(name, e))
    }

    /// A file's bytes, if it is there.
    pub(crate) fn read(&self, name: &str) -> Result<Option<Vec<u8>>> {
        match std::fs::read(self.path(name)) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(self.failed(name, e)),
        }
    }

    /// Replaces a file, wholly and for good: after a crash there is the old one or the new one.
    pub(crate) fn replace(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let new = format!("{name}.new");
        let write = || {
            let mut file = create(&self.path(&new), true)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            std::fs::rename(self.path(&new), self.path(name))
        };
        if let Err(e) = write() {
            // On a full medium it would keep what others need.
            let _ = self.remove(&new);
            return Err(self.unwritten(name, e));
        }
        self.sync_dir("")
    }

    /// Deletes a file, if it is there.
    pub(crate) fn remove(&self, name: impl AsRef<Path>) -> Result<()> {
        match std::fs::remove_file(self.path(&name)) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(self.failed(name, e)),
            _ => Ok(()),
        }
    }

    /// Bytes that can still be written here; `None` if the file system does not say.
    pub(crate) fn free_bytes(&self) -> Option<u64> {
        let stat = rustix::fs::fstatvfs(&self.dir).ok().filter(|stat| stat.f_blocks > 0)?;
        Some(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    /// Bytes that can still be written here, and of the whole file system; `None` if it does not say.
    pub(crate) fn space(&self) -> Option<(u64, u64)> {
        self.free_bytes().zip(self.total_bytes())
    }

    /// Bytes of the whole file system; `None` if it does not say.
    pub(crate) fn total_bytes(&self) -> Option<u64> {
        let stat = rustix::fs::fstatvfs(&self.dir).ok()?;
        Some(stat.f_blocks.saturating_mul(stat.f_frsize)).filter(|total| *total > 0)
    }

    /// Whether the format file is there; an error if it speaks of a format that this release does not know.
    pub(crate) fn check_format(&self) -> Result<bool> {
        let Some(text) = self.read(FORMAT_FILE)? else { return Ok(false) };
        let text = String::from_utf8_lossy(&text);
        match text.strip_prefix(FORMAT_TEXT).and_then(|number| number.trim_end().parse::<u32>().ok()) {
            Some(FORMAT) => Ok(true),
            Some(newer) if newer > FORMAT => Err(Error::version(format!(
                "{} has format {newer}, this release reads up to {FORMAT}: update the program",
                self.shown("")
            ))),
            _ => Err(Error::corrupt(format!(
                "{} does not name a format: restore the file, or the whole store from a copy",
                self.shown(FORMAT_FILE)
            ))),
        }
    }

    /// Says that the store is complete: the last step of making one.
    pub(crate) fn write_format(&self) -> Result<()> {
        self.replace(FORMAT_FILE, format!("{FORMAT_TEXT}{FORMAT}\n").as_bytes())
    }
}

/// Opens a file for reading and writing that only this user can open, and makes it if it is not there.
pub(crate) fn create(path: &Path, truncate: bool) -> std::io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(truncate).mode(0o600).open(path)
}

/// How far the log has been moved into tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Applied {
    /// The last generation that is wholly in tables.
    pub(crate) generation: u64,
    /// The number of its last frame.
    pub(crate) sequence: u64,
    /// The last revision in it.
    pub(crate) revision: u64,
}

const APPLIED_MAGIC: [u8; 8] = *b"IOVMAPP1";

impl Applied {
    /// Writes the mark.
    pub(crate) fn write(&self, home: &Home) -> Result<()> {
        let mut bytes = APPLIED_MAGIC.to_vec();
        for number in [self.generation, self.sequence, self.revision] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&checksum(&bytes).to_le_bytes());
        home.replace(APPLIED_FILE, &bytes)
    }

    /// Reads it; `None` if there is none.
    pub(crate) fn read(home: &Home) -> Result<Option<Applied>> {
        let Some(bytes) = home.read(APPLIED_FILE)? else { return Ok(None) };
        if bytes.len() != 40 || bytes[..8] != APPLIED_MAGIC || u64_at(&bytes, 32) != checksum(&bytes[..32]) {
            return Err(Error::corrupt(format!(
                "{} is damaged: restore the store from a copy",
                home.shown(APPLIED_FILE)
            )));
        }
        Ok(Some(Applied { generation: u64_at(&bytes, 8), sequence: u64_at(&bytes, 16), revision: u64_at(&bytes, 24) }))
    }
}
