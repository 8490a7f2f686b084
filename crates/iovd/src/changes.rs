//! The page in the store's directory in which its catalog says what changes.

use std::{fs::File, os::fd::OwnedFd, os::unix::fs::OpenOptionsExt};

use iov_net::CHANGES;
use iov_store::ChangePage;
use iov_types::{Error, Result};

use crate::begin::inside;

/// Goes on with the page of the daemon before. `None`: there was none, and none can be made, so that programs ask for everything. One
/// that is there and cannot be gone on with must not stay as it is: programs rely on it.
pub(crate) fn open(dir: &OwnedFd, incarnation: u64, troubles: &mut Vec<String>) -> Result<Option<ChangePage>> {
    let path = inside(dir, CHANGES);
    let open = |new: bool| {
        let file = File::options().read(true).write(true).create_new(new).mode(0o600).open(&path);
        ChangePage::open(file.map_err(Error::from)?, incarnation)
    };
    let there = path.try_exists().map_err(|e| Error::from(e).context(path.display()))?;
    match open(!there) {
        Ok(page) => Ok(Some(page)),
        Err(e) if there => {
            Err(e.context("`changes` in the store's directory (remove it once no program has the store open)"))
        }
        Err(e) => {
            // Nobody maps a part of one.
            let _ = std::fs::remove_file(&path);
            troubles.push(format!("programs ask for all facts anew each time: {e}"));
            Ok(None)
        }
    }
}
