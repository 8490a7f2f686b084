//! Whether the daemon of a target is on this host, where its clients can reach it by the socket in its directory and move bytes
//! themselves (SEMANTICS §2.6).
//!
//! It says of itself on which host it is: the kernel that runs since a certain start, and a network of it. In another network
//! namespace it counts as another machine, also where both see its directory. Whether the socket can really be reached, a
//! client tries.

use std::{
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

use rustix::fs::{Mode, OFlags};

use crate::{reach::SOCKET, socket};

/// What tells hosts apart; `None`: this one does not tell.
fn this_host() -> Option<String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let network = rustix::fs::stat("/proc/self/ns/net").ok()?;
    Some(format!("{}.{}", boot.trim(), network.st_ino))
}

/// What a daemon tells of its directory, for [`find`]; nothing where it cannot be told.
pub fn tell(dir: &Path) -> String {
    let told = || Some(format!("{}:{}", this_host()?, dir.to_str()?));
    told().unwrap_or_default()
}

/// The directory of which a daemon has told this, if it is here, of this user, and somebody listens there.
pub(crate) fn find(told: &str) -> Option<OwnedFd> {
    let (host, dir) = told.split_once(':')?;
    if this_host()? != host || !Path::new(dir).is_absolute() {
        return None;
    }
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    let dir = iov_store::kept::set_aside(rustix::fs::open(dir, flags, Mode::empty()).ok()?);
    let stat = rustix::fs::fstat(&dir).ok()?;
    // Whoever else might have made it in place of ours.
    let is_ours = stat.st_uid == rustix::process::geteuid().as_raw() && stat.st_mode & 0o022 == 0;
    let listens = is_ours && socket::connect(dir.as_fd(), SOCKET).is_ok_and(|connected| connected.is_ok());
    listens.then_some(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_directory_of_this_host_in_which_somebody_listens_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let told = tell(dir.path());
        assert!(find(&told).is_none(), "nobody listens");
        let listener = std::os::unix::net::UnixListener::bind(dir.path().join(SOCKET)).unwrap();
        assert!(find(&told).is_some());
        let (_, path) = told.split_once(':').unwrap();
        for wrong in [String::new(), path.to_owned(), format!("elsewhere:{path}"), format!("{told}/none")] {
            assert!(find(&wrong).is_none(), "{wrong}");
        }
        drop(listener);
        assert!(find(&told).is_none());
    }
}
