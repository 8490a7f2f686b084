//! Where a store keeps its bytes: in files of its directory, or in shared memory. It is chosen when the store is made, and
//! written down in the file `storage` of its directory.

use std::{
    io::{Read, Write},
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::{
            ffi::{OsStrExt, OsStringExt},
            fs::MetadataExt,
        },
    },
    path::{Path, PathBuf},
};

use iov_semantics::quantity::parse_size;
use iov_store::seam;
use iov_types::{Clause, Error, Result};
use rustix::{
    fs::{AtFlags, Mode, OFlags},
    io::Errno,
};

use crate::Args;

const FILE: &str = "storage";
const FRESH: &str = "storage.new";
/// Names the store's directory, in its shared memory.
const OWNER: &str = "store";
/// The file that a target in the store's own directory has.
const FILES_FORMAT: &str = "format";

/// Where bytes lie.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Storage {
    /// In files of the store's directory.
    Files,
    /// In shared memory: so many bytes at most, in segments below a directory.
    Shared { capacity: u64, place: PathBuf },
}

/// What is asked for when a daemon is started by hand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Asked {
    Files,
    Shared(u64),
}

/// Reads `shmem:SIZE` or `files`.
pub(crate) fn parse(text: &str) -> std::result::Result<Asked, String> {
    match text.split_once(':') {
        None if text == "files" => Ok(Asked::Files),
        Some(("shmem", size)) => match parse_size(size) {
            Ok(size) if size >= LEAST => Ok(Asked::Shared(size)),
            Ok(_) => Err(format!("shared memory of {size}: at least 4MiB are needed")),
            Err(why) => Err(format!("the size {size:?} {why}")),
        },
        _ => Err(format!("no storage is called {text:?}: there are shmem:SIZE, as in shmem:2GiB, and files")),
    }
}

impl std::fmt::Display for Asked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Asked::Files => write!(f, "files"),
            Asked::Shared(size) => write!(f, "shmem:{size}"),
        }
    }
}

/// Two segments of the least length.
const LEAST: u64 = 4 << 20;

fn os(what: &str) -> impl Fn(Errno) -> Error + '_ {
    move |e| Error::from(std::io::Error::from(e)).context(what)
}

impl Storage {
    /// What is written down; without a file, bytes lie in files.
    pub(crate) fn load(dir: &OwnedFd) -> Result<Storage> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = match rustix::fs::openat(dir, FILE, flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(Storage::Files),
            Err(e) => return Err(os("the file storage of the store")(e)),
        };
        let mut text = String::new();
        std::fs::File::from(file).take(4096).read_to_string(&mut text).map_err(Error::from)?;
        let mut words = text.trim_end().splitn(3, ' ');
        let (kind, capacity, place) = (words.next(), words.next().and_then(|n| n.parse().ok()), words.next());
        match (kind, capacity, place) {
            (Some("shmem"), Some(capacity), Some(place)) if Path::new(place).is_absolute() => {
                Ok(Storage::Shared { capacity, place: place.into() })
            }
            _ => Err(Error::corrupt(
                "the file storage in the store's directory cannot be read: it says `shmem BYTES DIRECTORY`; restore it",
            )),
        }
    }

    /// Brings what is asked for together with what is written down, and writes down what is new.
    pub(crate) fn choose(dir: &OwnedFd, args: &Args) -> Result<Storage> {
        let there = Storage::load(dir)?;
        let base: &Path = &args.shm;
        let has_files = rustix::fs::statat(dir, FILES_FORMAT, AtFlags::empty()).is_ok();
        let new = args.new_storage.filter(|_| there == Storage::Files && !has_files);
        let Some(asked) = args.storage.or(new) else { return Ok(there) };
        let storage = match (asked, there) {
            (Asked::Files, Storage::Files) => return Ok(Storage::Files),
            (Asked::Files, Storage::Shared { .. }) => {
                return Err(Error::exists(
                    "this store keeps its bytes in shared memory, which is chosen once: use another directory for a store \
                     of files",
                ));
            }
            (Asked::Shared(capacity), Storage::Shared { capacity: before, place }) => {
                if capacity == before {
                    return Ok(Storage::Shared { capacity, place });
                }
                check_room(base, capacity, place.exists())?;
                Storage::Shared { capacity, place }
            }
            (Asked::Shared(capacity), Storage::Files) => {
                if has_files {
                    return Err(Error::exists(
                        "this store keeps its bytes in files, which is chosen once: use another directory for a store in \
                         shared memory",
                    ));
                }
                // It is written down, and read by daemons that begin elsewhere.
                let base = base.to_str().filter(|text| text.starts_with('/')).map(Path::new).ok_or_else(|| {
                    Error::invalid(format!("{}: the whole path of shared memory is needed, in UTF-8", base.display()))
                })?;
                check_room(base, capacity, false)?;
                let mut name = [0; 8];
                seam::random_bytes(&mut name);
                let name: String = name.iter().map(|b| format!("{b:02x}")).collect();
                let place = base.join(format!("iov-{}-{name}", rustix::process::geteuid().as_raw()));
                Storage::Shared { capacity, place }
            }
        };
        storage.write(dir)?;
        Ok(storage)
    }

    fn write(&self, dir: &OwnedFd) -> Result<()> {
        let Storage::Shared { capacity, place } = self else { return Ok(()) };
        let text = format!("shmem {capacity} {}\n", place.display());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = rustix::fs::openat(dir, FRESH, flags, Mode::RUSR | Mode::WUSR)
            .map_err(os("writing down where the store keeps its bytes"))?;
        let mut file = std::fs::File::from(file);
        file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(Error::from)?;
        // Without it the store would be taken for one in files, whose bytes are not there (P1).
        rustix::fs::renameat(dir, FRESH, dir, FILE)
            .and_then(|()| rustix::fs::fsync(dir))
            .map_err(os("writing down where the store keeps its bytes"))
    }

    /// The directory of the target.
    pub(crate) fn open(&self, dir: &OwnedFd) -> Result<OwnedFd> {
        let Storage::Shared { place, .. } = self else { return dir.try_clone().map_err(Error::from) };
        match rustix::fs::mkdir(place, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(e) => return Err(os(&format!("the store's shared memory in {}", place.display()))(e)),
        }
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let target = rustix::fs::open(place, flags, Mode::empty())
            .map_err(|e| os(&format!("the store's shared memory in {}", place.display()))(e))?;
        // Everybody may make directories there, under any name.
        let stat = rustix::fs::fstat(&target).map_err(os("the store's shared memory"))?;
        if stat.st_uid != rustix::process::geteuid().as_raw() || stat.st_mode & 0o077 != 0 {
            return Err(Error::denied(format!(
                "{} is not this user's alone: somebody else has made it, or changed it; remove it",
                place.display()
            ))
            .with_clause(Clause::G5));
        }
        note_owner(dir, &target)?;
        Ok(target)
    }

    /// Gives the memory back, and all bytes with it; how many bytes that were. Clients that have some mapped keep it until
    /// they end.
    pub(crate) fn release(&self) -> Result<u64> {
        let Storage::Shared { place, .. } = self else { return Ok(0) };
        let mut bytes = 0;
        for entry in std::fs::read_dir(place.join("segments")).into_iter().flatten().flatten() {
            bytes += entry.metadata().map_or(0, |m| m.len());
        }
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        if let Ok(target) = rustix::fs::open(place, flags, Mode::empty()) {
            // Programs that have some of it mapped must not go on to take for stored what they write there.
            iov_media::void_grants(&target)?;
        }
        match std::fs::remove_dir_all(place) {
            Ok(()) => Ok(bytes),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(0),
            Err(e) => Err(Error::from(e).context(format!("removing {}", place.display()))),
        }
    }
}

/// Says in the shared memory whose it is, for whoever finds it where the store's directory was removed.
fn note_owner(dir: &OwnedFd, target: &OwnedFd) -> Result<()> {
    let path = std::fs::read_link(format!("/proc/self/fd/{}", dir.as_raw_fd())).map_err(Error::from)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file =
        rustix::fs::openat(target, OWNER, flags, Mode::RUSR | Mode::WUSR).map_err(os("the store's shared memory"))?;
    std::fs::File::from(file).write_all(path.as_os_str().as_bytes()).map_err(Error::from)
}

/// Shared memory of this user whose store is not where it was: removed, or moved. Only its owner can tell, so that it is named
/// and stays.
fn orphans(base: &Path) -> Vec<String> {
    let me = rustix::process::geteuid().as_raw();
    let ours = format!("iov-{me}-");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(base).into_iter().flatten().flatten() {
        let place = entry.path();
        // Everybody may make anything there, under any name.
        let is_ours = std::fs::symlink_metadata(&place)
            .is_ok_and(|facts| facts.is_dir() && facts.uid() == me && facts.mode() & 0o077 == 0);
        if !is_ours || !entry.file_name().to_string_lossy().starts_with(&ours) {
            continue;
        }
        let Some(owner) = owner_of(&place) else { continue };
        if std::fs::symlink_metadata(&owner).is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound) {
            found.push(format!("{} is of a store that was in {}", place.display(), owner.display()));
        }
    }
    found
}

/// The store that shared memory says it belongs to.
fn owner_of(place: &Path) -> Option<PathBuf> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = std::fs::File::from(rustix::fs::open(place.join(OWNER), flags, Mode::empty()).ok()?);
    let mut path = Vec::new();
    file.take(4096).read_to_end(&mut path).ok()?;
    (!path.is_empty()).then(|| std::ffi::OsString::from_vec(path).into())
}

/// Whether the machine has so much shared memory; `taken`: some of it is the store's already.
fn check_room(base: &Path, capacity: u64, taken: bool) -> Result<()> {
    let folder = std::fs::File::open(base).map_err(|e| {
        Error::from(e).context(format!("{}: a store in shared memory needs it; mount a tmpfs there", base.display()))
    })?;
    let facts = rustix::fs::fstatvfs(folder.as_fd()).map_err(os("asking how much shared memory there is"))?;
    let (all, free) = (facts.f_blocks * facts.f_frsize, facts.f_bavail * facts.f_frsize);
    if capacity > all {
        return Err(Error::exhausted(format!(
            "this machine's /dev/shm has {all} bytes, fewer than the {capacity} asked for: ask for less, or give it more \
             (docker run --shm-size=SIZE, or mount -o remount,size=SIZE /dev/shm)"
        )));
    }
    if !taken && capacity > free {
        let orphans: String =
            orphans(base).iter().map(|orphan| format!("; {orphan}: remove it if that is gone")).collect();
        return Err(Error::exhausted(format!(
            "/dev/shm has {free} bytes free, fewer than the {capacity} asked for: ask for less, or free some (ls -l \
             /dev/shm shows whose they are){orphans}"
        )));
    }
    Ok(())
}
