//! The directory of a store in shared memory: whose it is, and whether there is room.

use std::{
    io::Read,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::{
            ffi::{OsStrExt, OsStringExt},
            fs::MetadataExt,
        },
    },
    path::{Path, PathBuf},
};

use iov_store::seam;
use iov_types::{Clause, Error, Kind, Result};
use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
};

use super::os;
use crate::texts;

/// Names the store's directory, in a directory of bytes elsewhere.
pub(super) const OWNER: &str = "store";

/// A new one's name.
pub(super) fn new_place(base: &Path) -> PathBuf {
    let mut name = [0; 8];
    seam::random_bytes(&mut name);
    let name: String = name.iter().map(|b| format!("{b:02x}")).collect();
    base.join(format!("iov-{}-{name}", rustix::process::geteuid().as_raw()))
}

/// Opens the directory of the target; it is made where it went with the machine.
pub(super) fn open(place: &Path, dir: &OwnedFd) -> Result<OwnedFd> {
    match rustix::fs::mkdir(place, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(e) => return Err(os(&format!("the store's shared memory in {}", place.display()))(e)),
    }
    let target = open_own(place)?;
    note_owner_if_room(dir, &target)?;
    Ok(target)
}

/// Opens a directory that must be this user's alone.
pub(super) fn open_own(place: &Path) -> Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let target = rustix::fs::open(place, flags, Mode::empty())
        .map_err(|e| os(&format!("the store's bytes in {}", place.display()))(e))?;
    // In shared memory everybody may make directories, under any name.
    let stat = rustix::fs::fstat(&target).map_err(os("the store's bytes"))?;
    if stat.st_uid != rustix::process::geteuid().as_raw() || stat.st_mode & 0o077 != 0 {
        return Err(Error::denied(format!(
            "{} is not this user's alone: somebody else has made it, or changed it; remove it",
            place.display()
        ))
        .with_clause(Clause::G5));
    }
    Ok(target)
}

/// Gives the memory back, and all bytes with it; how many bytes that were. Clients that have some mapped keep it until they end.
pub(super) fn release(place: &Path) -> Result<u64> {
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

/// Says in a directory of bytes whose they are, for whoever finds it where the store's directory was removed.
pub(super) fn note_owner(dir: &OwnedFd, target: &OwnedFd) -> Result<()> {
    let path = path_of(dir)?;
    texts::write(target, OWNER, path.as_os_str().as_bytes())
        .map_err(|e| Error::from(e).context("saying beside the store's bytes whose they are"))
}

/// The same for bytes that there are: what can be deleted must not wait for room to say whose they are. A later start says so.
pub(super) fn note_owner_if_room(dir: &OwnedFd, target: &OwnedFd) -> Result<()> {
    match note_owner(dir, target) {
        Err(e) if e.kind() == Kind::Exhausted => Ok(()),
        noted => noted,
    }
}

/// Where a directory is that is open.
pub(super) fn path_of(dir: &OwnedFd) -> Result<PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{}", dir.as_raw_fd())).map_err(Error::from)
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
pub(super) fn owner_of(place: &Path) -> Option<PathBuf> {
    let path = read_owner(place, OWNER)?;
    (!path.is_empty()).then(|| std::ffi::OsString::from_vec(path).into())
}

fn read_owner(place: &Path, name: &str) -> Option<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = std::fs::File::from(rustix::fs::open(place.join(name), flags, Mode::empty()).ok()?);
    let mut path = Vec::new();
    file.take(4096).read_to_end(&mut path).ok()?;
    Some(path)
}

/// Whether a file in a directory of bytes says that they are this store's, or was about to when its daemon ended.
pub(super) fn says_ours(place: &Path, name: &str, dir: &OwnedFd) -> bool {
    let begun = name == texts::fresh(OWNER);
    let said = (begun || name == OWNER).then(|| read_owner(place, name)).flatten();
    let ours = path_of(dir).ok();
    said.zip(ours).is_some_and(|(said, ours)| {
        let ours = ours.as_os_str().as_bytes();
        said == ours || said.is_empty() || begun && ours.starts_with(&said)
    })
}

/// Whether the machine has so much shared memory; `taken`: some of it is the store's already.
pub(super) fn check_room(base: &Path, capacity: u64, taken: bool) -> Result<()> {
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
