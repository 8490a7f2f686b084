//! Where a store keeps its bytes, as its daemon has written it down.

use std::{
    io::Read,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use iov_types::{Error, Result};
use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
};

/// A place that can be read without a daemon.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// Files, of the store's directory or of another one.
    Files(Option<PathBuf>),
    /// Segments of shared memory, below a directory.
    Shared(PathBuf),
    /// The daemon's own memory.
    Heap,
    /// Nowhere.
    Null,
}

impl Place {
    /// The word by which a layout asks for it.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Place::Files(_) => "files",
            Place::Shared(_) => "shmem",
            Place::Heap => "heap",
            Place::Null => "null",
        }
    }
}

/// Reads where each of its targets is, in the order of their numbers.
pub(crate) fn of(dir: &OwnedFd, shown: &Path) -> Result<Vec<Place>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let places = match rustix::fs::openat(dir, "storage", flags, Mode::empty()) {
        Ok(file) => {
            let mut text = String::new();
            std::fs::File::from(file).take(512 << 10).read_to_string(&mut text).map_err(Error::from)?;
            text.trim_end_matches('\n').split('\n').map(|line| read(line, shown)).collect::<Result<_>>()?
        }
        Err(Errno::NOENT) => vec![Place::Files(None)],
        Err(e) => return Err(Error::from(std::io::Error::from(e)).context("the file storage of the store")),
    };
    let marked = |at: &Path| at.join("store").exists();
    let missing = |place: &Place| match place {
        Place::Files(Some(at)) if !marked(at) => Some(at.clone()),
        _ => None,
    };
    if let Some(at) = places.iter().find_map(missing) {
        return Err(Error::unavailable(format!(
            "the store's bytes are in {}, which does not have them now: mount its file system, then try again",
            at.display()
        )));
    }
    Ok(places)
}

/// Reads the line; `shown` is the store, for messages.
pub(crate) fn read(text: &str, shown: &Path) -> Result<Place> {
    let (kind, rest) = text.split_at(text.find([' ', ':', ',']).unwrap_or(text.len()));
    let at = rest.strip_prefix(':').map(|rest| rest.rsplit_once(",io=").map_or(rest, |(at, _)| at));
    Ok(match (kind, at) {
        ("files", Some(at)) if at.starts_with('/') => Place::Files(Some(at.into())),
        ("files", None) if rest.is_empty() || rest.starts_with(",io=") => Place::Files(None),
        ("shmem", _) if let Some((_, at)) = rest.trim_start().split_once(' ') => Place::Shared(at.into()),
        ("heap", _) => Place::Heap,
        ("null", _) => Place::Null,
        _ => {
            return Err(Error::unsupported(format!(
                "the bytes of the store in {} are at `{text}`, which only its daemon reaches: leave --offline out",
                shown.display()
            )));
        }
    })
}
