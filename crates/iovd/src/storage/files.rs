//! Bytes in files of a directory that is not the store's own: on another disk, or a file system that is faster.

use std::{os::fd::OwnedFd, path::Path};

use iov_server::Room;
use iov_types::{Error, Kind, Result};
use rustix::{fs::Mode, io::Errno};

use super::{FILES_FORMAT, os, shared};

/// Makes the directory, or takes an empty one.
pub(super) fn make(place: &Path, dir: &OwnedFd) -> Result<()> {
    let what = format!("the directory {} for the store's bytes", place.display());
    match rustix::fs::mkdir(place, Mode::RWXU) {
        Ok(()) => {}
        Err(Errno::EXIST) => {
            let mut entries = std::fs::read_dir(place).map_err(|e| Error::from(e).context(&what))?;
            // A file system that was just made has the first one; the other one a start that was cut short.
            let ours = |name: &std::ffi::OsStr| name.to_str().is_some_and(|name| shared::says_ours(place, name, dir));
            let harmless = |name: &std::ffi::OsStr| name == "lost+found" || ours(name);
            if entries.any(|entry| entry.is_ok_and(|entry| !harmless(&entry.file_name()))) {
                return Err(Error::exists(format!(
                    "{what} is not empty: give one that is, or that does not exist yet"
                )));
            }
            rustix::fs::chmod(place, Mode::RWXU).map_err(os(&what))?;
        }
        Err(e) => return Err(os(&what)(e)),
    }
    shared::note_owner(dir, &shared::open_own(place)?)
}

/// Opens it, if it is there with the bytes.
pub(super) fn open(place: &Path, dir: &OwnedFd) -> Result<OwnedFd> {
    let target = match shared::open_own(place) {
        Ok(target) if shared::owner_of(place).is_some() || place.join(FILES_FORMAT).exists() => target,
        Err(e) if e.kind() != Kind::NotFound => return Err(e),
        // An empty store in its place would be taken for one that has lost everything.
        _ => {
            return Err(Error::unavailable(format!(
                "the store's bytes are in {}, which does not have them now: mount its file system, then try again",
                place.display()
            )));
        }
    };
    shared::note_owner_if_room(dir, &target).map(|()| target)
}

/// Those of a target that has no directory of its own choice: below the store's.
pub(super) fn below(dir: &OwnedFd, name: &str) -> Result<OwnedFd> {
    let place = shared::path_of(dir)?.join(name);
    match rustix::fs::mkdir(&place, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(e) => return Err(os(&format!("the directory {}", place.display()))(e)),
    }
    shared::open_own(&place)
}

/// How much room the file system has.
pub(super) fn room(place: &OwnedFd) -> Result<Room> {
    let place = place.try_clone().map_err(Error::from)?;
    Ok(Box::new(move || {
        let facts = rustix::fs::fstatvfs(&place).ok()?;
        Some((facts.f_blocks * facts.f_frsize, facts.f_bavail * facts.f_frsize))
    }))
}
