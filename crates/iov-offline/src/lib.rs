//! Reads the directory of a store without its daemon, and without changing a byte of it: the last way out.
//!
//! The engine of metadata and the target are opened for reading only ([`iov_meta_local::ReadOnly`],
//! [`iov_media::Files::look`]). What a catalog writes when it is opened and used goes to memory over them (`overlay.rs`), and
//! what it asks of the target to change is answered as if it were done, where nobody can see a difference, and else refused
//! (`still.rs`). So the same code reads the store that serves it.
#![forbid(unsafe_code)]

mod front;
mod hold;
mod overlay;
mod place;
mod still;

use std::{
    collections::HashSet,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    sync::Arc,
};

use iov_catalog::{Fleet, Options, Service, anywhere};
use iov_engine::{Session, SessionAttr, Sides};
use iov_media::{Files, OpenSums};
use iov_meta_local::ReadOnly;
use iov_semantics::stores;
use iov_store::{Backend, Heap, MetadataStore, Null, Spread, seam};
use iov_types::{Caller, Clause, Error, Health, Reach, Result, Target};
use rustix::fs::{Mode, OFlags};

use front::Front;
use hold::Hold;
use overlay::Overlay;
use place::Place;
use still::Still;

/// A store that is read.
pub struct Offline {
    /// A session on it, through which nothing can be changed.
    pub session: Session,
    /// The directory that its bytes are in; `None`: they are gone, or never were in one.
    pub place: Option<PathBuf>,
}

/// Opens the store in a directory for reading. No daemon can start meanwhile; where one runs, that is an error. Others may read
/// too.
///
/// Errors: `NotFound` where there is no store, `Busy` while a daemon serves it, `Unsupported` for bytes that only a daemon
/// reaches.
pub fn open(dir: &Path, attr: SessionAttr) -> Result<Offline> {
    let shown = dir.display();
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    let fd = rustix::fs::open(dir, flags, Mode::empty()).map_err(|e| match e {
        rustix::io::Errno::ACCESS => {
            Error::denied(format!("{shown} belongs to another user: read it as that user")).with_clause(Clause::A2)
        }
        e => Error::from(std::io::Error::from(e)).context(format!("the store's directory {shown}")),
    })?;
    let stat = rustix::fs::fstat(&fd).map_err(|e| Error::from(std::io::Error::from(e)))?;
    let hold = Hold::take(fd.as_fd(), dir)?;
    let places = place::of(&fd, dir)?;
    let none = || Error::not_found(format!("there is no store in {shown}"));
    let meta = ReadOnly::open(&dir.join("meta"), iov_meta_local::Options::default());
    let meta = meta.map_err(|e| if dir.join("meta").exists() { e } else { none() })?.ok_or_else(none)?;
    let store = Arc::new(Overlay::new(meta.snapshot()?));
    let (fleet, at) = fleet(&places, dir, Arc::new(hold))?;
    let targets = Arc::new(fleet.spread.clone());
    // Whoever can read the directory is shown what its owner would be.
    let options = Options {
        single_user: true,
        uid: stat.st_uid,
        lease_ns: i64::MAX,
        inline_bytes: 0,
        store_uuid: iov_types::Uuid::NIL,
    };
    let catalog = Arc::new(Service::open_fleet(store, fleet, options, 0)?);
    let id = seam::new_uuid();
    let caller = Caller { uid: stat.st_uid, gid: stat.st_gid, groups: Vec::new(), session: id, holder: id };
    let backend = Arc::new(Front::new(catalog.clone(), targets));
    let attr = SessionAttr { readonly: true, ..attr };
    let session = Session::new(&format!("file:{shown}"), Sides { catalog, backend }, caller, attr, Arc::default());
    Ok(Offline { session, place: at })
}

type Opened = (Arc<dyn Backend>, HashSet<still::Staged>, Option<PathBuf>);

fn directory(path: &Path) -> Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty())
        .map_err(|e| Error::from(std::io::Error::from(e)).context(format!("the store's bytes in {}", path.display())))
}

/// The targets that the store's daemon has, none of which anybody changes. The directory of the first one's bytes.
fn fleet(places: &[Place], dir: &Path, hold: Arc<Hold>) -> Result<(Fleet, Option<PathBuf>)> {
    let (mut stills, mut known, mut first_at) = (Vec::new(), Vec::new(), None);
    for (number, place) in places.iter().enumerate() {
        let (target, stages, at) = target(place, number, dir)?;
        if number == 0 {
            first_at = at;
        }
        let still: Arc<dyn Backend> = Arc::new(Still::new(target, stages, hold.clone()));
        known.push(Target {
            number: number as u32,
            uuid: iov_types::Uuid::NIL,
            capability: still.capability().clone(),
            storage: place.kind().to_owned(),
            host: String::new(),
            domain: String::new(),
            addresses: Vec::new(),
            capacity: 0,
            free: 0,
            reach: Reach::Offline,
            health: Health::Good,
            local: String::new(),
        });
        stills.push(still);
    }
    let first = stills.first().ok_or_else(|| Error::internal("a store without a target"))?;
    let capability = anywhere(&known).unwrap_or_else(|| first.capability().clone());
    let spread = Spread::new(first.clone(), capability);
    for (still, target) in stills.iter().zip(&known) {
        spread.add_target(target.number, still.clone(), target.capability.clone());
    }
    Ok((Fleet { spread, targets: known }, first_at))
}

/// The name of something of a target; that of the first one has no number.
fn of(number: usize, name: &str) -> String {
    if number == 0 { name.to_owned() } else { format!("{name}-{number}") }
}

/// Where the bytes are, as far as they are there: what has gone with a daemon or a machine is told by whoever reads it (P1).
fn target(place: &Place, number: usize, dir: &Path) -> Result<Opened> {
    let now = seam::now_ns() as u64;
    let files = match place {
        Place::Files(at) => {
            let own = if number == 0 { dir.to_owned() } else { dir.join(of(number, "target")) };
            let at = at.clone().unwrap_or(own);
            let sums = sums_in(dir, of(number, "sums"));
            (Files::look(directory(&at)?, iov_media::Options::default(), Some(sums))?, at)
        }
        Place::Shared(at) if at.exists() => {
            // Any size: nothing is taken.
            let options = iov_media::Options { shared: Some(0), ..iov_media::Options::default() };
            (Files::look(directory(at)?, options, None)?, at.clone())
        }
        Place::Shared(_) => return Ok((Arc::new(Heap::limited(stores::shmem(now), 0)), HashSet::new(), None)),
        Place::Heap => return Ok((Arc::new(Heap::limited(stores::heap(now), 0)), HashSet::new(), None)),
        Place::Null => return Ok((Arc::new(Null::new(stores::null(now))), HashSet::new(), None)),
    };
    let (files, at) = files;
    let stages = files.stages().into_iter();
    let stages = stages.flat_map(|(stage, objects)| objects.into_iter().map(move |object| (stage, object))).collect();
    Ok((Arc::new(files), stages, Some(at)))
}

/// The checksums that are there (I1).
fn sums_in(dir: &Path, name: String) -> OpenSums {
    let path = dir.join(name);
    Box::new(move |_| {
        let small = iov_meta_local::Options {
            write_buffer: 4 << 20,
            record_cache: 8 << 20,
            table_cache: 4 << 20,
            many_deletes: false,
        };
        let found = ReadOnly::open(&path, small).map_err(|e| e.context("the checksums of the store, in sums/"))?;
        Ok(found.map(|found| Arc::new(found) as Arc<dyn MetadataStore>))
    })
}

#[cfg(test)]
mod tests;
