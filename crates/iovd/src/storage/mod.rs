//! Where a store keeps its bytes. It is chosen when the store is made, and written down in the file `storage` of its directory.

mod all;
mod files;
mod open;
mod shared;

use std::{
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use iov_media::Way;
use iov_semantics::quantity::parse_size;
use iov_types::{Error, Result};
use rustix::io::Errno;

use all::FILES_FORMAT;
pub(crate) use all::Storages;
pub(crate) use open::Opened;

/// Where bytes lie.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Storage {
    /// In files of the store's directory, or of another one.
    Files(Files),
    /// In shared memory: so many bytes at most, in segments below a directory.
    Shared { capacity: u64, place: PathBuf },
    /// In the daemon's own memory: so many bytes at most.
    Heap(u64),
    /// Nowhere.
    Null,
    /// At a backend that a shared object brings.
    Virtual(Virtual),
}

/// Which files, and how bytes get there.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Files {
    /// `None`: those of the store's own directory.
    place: Option<PathBuf>,
    way: Way,
}

/// The names of ways.
const WAYS: [(&str, Way); 3] = [("pwrite", Way::Cached), ("direct", Way::Direct), ("uring", Way::Ring)];

impl Files {
    /// Reads what stands behind `files`: nothing, `:DIR`, `,io=WAY`, or both.
    fn read(text: &str) -> std::result::Result<Files, String> {
        let (place, way) = match text.rsplit_once(",io=") {
            None => (text, Way::Cached),
            Some((place, name)) => {
                let way = WAYS.iter().find(|(known, _)| *known == name).map(|(_, way)| *way);
                (place, way.ok_or_else(|| format!("io={name}: there are io=pwrite, io=direct and io=uring"))?)
            }
        };
        let place = match place.strip_prefix(':') {
            None if place.is_empty() => None,
            Some(dir) if !dir.is_empty() && !dir.contains('\n') => Some(dir.into()),
            _ => return Err("files:DIR needs a directory".into()),
        };
        Ok(Files { place, way })
    }
}

impl std::fmt::Display for Files {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(place) = &self.place {
            write!(f, ":{}", place.display())?;
        }
        match WAYS.iter().find(|(_, way)| *way == self.way && *way != Way::Cached) {
            Some((name, _)) => write!(f, ",io={name}"),
            None => Ok(()),
        }
    }
}

/// A shared object, and its own configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Virtual {
    library: PathBuf,
    config: String,
}

impl Virtual {
    /// Reads `PATH` or `PATH,CONFIG`.
    fn read(text: &str) -> Option<Virtual> {
        let (library, config) = text.split_once(',').unwrap_or((text, ""));
        (!library.is_empty() && !text.contains('\n'))
            .then(|| Virtual { library: library.into(), config: config.into() })
    }
}

impl std::fmt::Display for Virtual {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{},{}", self.library.display(), self.config)
    }
}

/// What is asked for when a daemon is started by hand.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Asked {
    Files(Files),
    Shared(u64),
    Heap(u64),
    Null,
    Virtual(Virtual),
}

/// What there is, for messages.
const KINDS: &str = "files[:DIR][,io=direct|uring], shmem:SIZE, heap:SIZE (both as in shmem:2GiB), null, and \
                     virtual:LIBRARY[,CONFIGURATION]";

fn size_of(what: &str, size: &str, least: u64) -> std::result::Result<u64, String> {
    match parse_size(size) {
        Ok(size) if size >= least => Ok(size),
        Ok(_) => Err(format!("{what} of {size}: at least {} are needed", if least > 1 { "4MiB" } else { "1 byte" })),
        Err(why) => Err(format!("the size {size:?} {why}")),
    }
}

/// Reads what [`KINDS`] tells of.
pub(crate) fn parse(text: &str) -> std::result::Result<Asked, String> {
    if let Some(rest) = text.strip_prefix("files")
        && (rest.is_empty() || rest.starts_with([':', ',']))
    {
        let files = Files::read(rest)?;
        let place = files.place.map(std::path::absolute).transpose();
        return Ok(Asked::Files(Files { place: place.map_err(|e| format!("the directory in {text}: {e}"))?, ..files }));
    }
    match text.split_once(':') {
        None if text == "null" => Ok(Asked::Null),
        Some(("virtual", text)) => {
            let asked = Virtual::read(text).ok_or("virtual: needs the path of a shared object")?;
            let library = std::path::absolute(&asked.library).map_err(|e| format!("the path {text}: {e}"))?;
            Ok(Asked::Virtual(Virtual { library, ..asked }))
        }
        Some(("shmem", size)) => size_of("shared memory", size, LEAST).map(Asked::Shared),
        Some(("heap", size)) => size_of("a heap", size, 1).map(Asked::Heap),
        _ => Err(format!("no storage is called {text:?}: there are {KINDS}")),
    }
}

impl std::fmt::Display for Asked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Asked::Files(files) => write!(f, "files{files}"),
            Asked::Shared(size) => write!(f, "shmem:{size}"),
            Asked::Heap(size) => write!(f, "heap:{size}"),
            Asked::Null => write!(f, "null"),
            Asked::Virtual(of) => write!(f, "virtual:{of}"),
        }
    }
}

/// Two segments of the least length.
const LEAST: u64 = 4 << 20;

fn os(what: &str) -> impl Fn(Errno) -> Error + '_ {
    move |e| Error::from(std::io::Error::from(e)).context(what)
}

impl Storage {
    fn read(text: &str) -> Option<Storage> {
        if let Some(rest) = text.strip_prefix("files") {
            let files = Files::read(rest).ok()?;
            return files.place.iter().all(|place| place.is_absolute()).then_some(Storage::Files(files));
        }
        let (kind, rest) = text.split_once(' ').unwrap_or((text, ""));
        let absolute = |path: &str| Path::new(path).is_absolute().then(|| PathBuf::from(path));
        match kind {
            "shmem" => {
                let (capacity, place) = rest.split_once(' ')?;
                Some(Storage::Shared { capacity: capacity.parse().ok()?, place: absolute(place)? })
            }
            "heap" => rest.parse().ok().map(Storage::Heap),
            "null" if rest.is_empty() => Some(Storage::Null),
            "virtual" => Virtual::read(rest).filter(|of| of.library.is_absolute()).map(Storage::Virtual),
            _ => None,
        }
    }

    /// As it is written down.
    fn text(&self) -> String {
        match self {
            Storage::Files(files) => format!("files{files}"),
            Storage::Shared { capacity, place } => format!("shmem {capacity} {}", place.display()),
            Storage::Heap(capacity) => format!("heap {capacity}"),
            Storage::Null => "null".to_owned(),
            Storage::Virtual(of) => format!("virtual {of}"),
        }
    }

    /// The word by which a layout asks for it.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Storage::Files(_) => "files",
            Storage::Shared { .. } => "shmem",
            Storage::Heap(_) => "heap",
            Storage::Null => "null",
            Storage::Virtual(_) => "virtual",
        }
    }

    /// Where bytes lie, in a sentence.
    fn in_words(&self) -> String {
        match self {
            Storage::Files(Files { place: None, .. }) => "in files".into(),
            Storage::Files(Files { place: Some(dir), .. }) => format!("in files of {}", dir.display()),
            Storage::Shared { .. } => "in shared memory".into(),
            Storage::Heap(_) => "in its daemon's memory".into(),
            Storage::Null => "nowhere".into(),
            Storage::Virtual(of) => format!("at the backend {}", of.library.display()),
        }
    }

    /// The same target as it is asked for now: with another size, another way to its files.
    fn again(self, asked: Asked, shm: &Path) -> Result<Storage> {
        Ok(match (asked, self) {
            (Asked::Files(asked), Storage::Files(there)) if asked.place == there.place => Storage::Files(asked),
            // In other words: those that it has.
            (Asked::Files(Files { place: None, way }), Storage::Files(there)) => Storage::Files(Files { way, ..there }),
            (Asked::Null, Storage::Null) => Storage::Null,
            (Asked::Virtual(asked), Storage::Virtual(there)) if asked == there => Storage::Virtual(there),
            (Asked::Heap(capacity), Storage::Heap(_)) => Storage::Heap(capacity),
            (Asked::Shared(capacity), Storage::Shared { capacity: before, place }) => {
                if capacity != before {
                    shared::check_room(shm, capacity, place.exists())?;
                }
                Storage::Shared { capacity, place }
            }
            (_, there) => {
                return Err(Error::exists(format!(
                    "this store keeps its bytes {}, which is chosen once: use another directory for another store",
                    there.in_words()
                )));
            }
        })
    }

    /// Makes the place of a new store's bytes.
    fn make(asked: Asked, dir: &OwnedFd, shm: &Path) -> Result<Storage> {
        Ok(match asked {
            Asked::Null => Storage::Null,
            Asked::Heap(capacity) => Storage::Heap(capacity),
            Asked::Virtual(of) => {
                // What cannot be loaded is told before anything is begun.
                open::load(&of, None)?;
                Storage::Virtual(of)
            }
            Asked::Files(files) => {
                if let Some(place) = &files.place {
                    files::make(place, dir)?;
                }
                Storage::Files(files)
            }
            Asked::Shared(capacity) => {
                // It is written down, and read by daemons that begin elsewhere.
                let base = shm.to_str().filter(|text| text.starts_with('/')).map(Path::new).ok_or_else(|| {
                    Error::invalid(format!("{}: the whole path of shared memory is needed, in UTF-8", shm.display()))
                })?;
                shared::check_room(base, capacity, false)?;
                Storage::Shared { capacity, place: shared::new_place(base) }
            }
        })
    }

    /// Gives memory back that outlives the daemon, and all bytes with it; how many bytes that were.
    pub(crate) fn release(&self) -> Result<u64> {
        match self {
            Storage::Shared { place, .. } => shared::release(place),
            _ => Ok(0),
        }
    }
}
