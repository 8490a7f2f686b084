//! Opens the target of a store.

use std::{os::fd::OwnedFd, path::Path, sync::Arc};

use iov_foreign::{Foreign, Setup, Source};
use iov_media::{Files, OpenSums, Way};
use iov_meta_local::LocalStore;
use iov_semantics::stores;
use iov_server::{GrantBook, Room};
use iov_store::{Backend, Heap, MetadataStore, Null};
use iov_types::{Error, Persistence, Result};

use super::{Storage, Virtual, files, shared};
use crate::{begin::inside, log};

/// A target, as the server wants it.
pub(crate) struct Opened {
    pub(crate) target: Arc<dyn Backend>,
    pub(crate) grants: Arc<dyn GrantBook>,
    /// Its bytes are gone when the daemon ends: it does not end by itself.
    pub(crate) stays: bool,
    /// Clients may move bytes by themselves.
    pub(crate) direct: bool,
    /// No collection may live in its record: what the store is for would not be seen.
    pub(crate) all_at_target: bool,
    /// How much room there is.
    pub(crate) room: Room,
}

impl Opened {
    fn new<T: Backend + GrantBook + 'static>(target: T) -> Opened {
        let target = Arc::new(target);
        let grants: Arc<dyn GrantBook> = target.clone();
        let space = grants.clone();
        let room = Box::new(move || space.space().map(|s| (s.capacity, s.capacity.saturating_sub(s.used + s.held))));
        Opened { target, grants, stays: false, direct: true, all_at_target: false, room }
    }
}

/// Memory of the engine that keeps checksums: 1 KiB of them stand for 1 MiB of bytes.
const SUMS: iov_meta_local::Options =
    iov_meta_local::Options { write_buffer: 4 << 20, record_cache: 8 << 20, table_cache: 4 << 20, many_deletes: false };

/// The name of something of a target in the store's directory; of the first one it has no number.
fn of(number: u32, name: &str) -> String {
    if number == 0 { name.to_owned() } else { format!("{name}-{number}") }
}

/// Where the target keeps its checksums.
fn sums_in(dir: &OwnedFd, number: u32) -> Result<OpenSums> {
    let dir = dir.try_clone().map_err(Error::from)?;
    Ok(Box::new(move |make| {
        let path = inside(&dir, &of(number, "sums"));
        // One whose making was cut short, as by a full disk, holds nothing: a start does not depend on it.
        let engine = if make { LocalStore::open(&path, SUMS).map(Some) } else { LocalStore::open_made(&path, SUMS) };
        let engine = engine.map_err(|e| e.context("the checksums of the store, in sums/"))?;
        Ok(engine.map(|engine| Arc::new(engine) as Arc<dyn MetadataStore>))
    }))
}

/// Loads the shared object; `stages` is where is kept what it holds of stages.
pub(super) fn load(of: &Virtual, stages: Option<&Path>) -> Result<Foreign> {
    let log = |_: u32, line: &str| log::line(&format!("backend: {line}"));
    let setup = Setup {
        config: &of.config,
        stages,
        at_most: Persistence::Replicated,
        stage_bytes: iov_types::limits::STAGE_BYTES,
        log: Box::new(log),
    };
    iov_foreign::open(&Source::File(of.library.clone()), setup)
}

impl Storage {
    /// Opens the target with this number; `incarnation` is a number that grows with each start.
    pub(crate) fn open(&self, dir: &OwnedFd, number: u32, incarnation: u64) -> Result<Opened> {
        let options = iov_media::Options::default();
        Ok(match self {
            Storage::Files(files) => {
                let place = match &files.place {
                    None if number == 0 => dir.try_clone().map_err(Error::from)?,
                    None => files::below(dir, &of(number, "target"))?,
                    Some(place) => files::open(place, dir)?,
                };
                let options = iov_media::Options { way: files.way, ..options };
                // What clients write by themselves goes through the cache.
                let direct = files.way == Way::Cached;
                let room = files::room(&place)?;
                let sums = Some(sums_in(dir, number)?);
                Opened { direct, room, ..Opened::new(Files::open_with(place, options, sums)?) }
            }
            Storage::Shared { capacity, place } => {
                let options = iov_media::Options { shared: Some(*capacity), ..options };
                // What survives no reboot has no use for checksums on a medium.
                Opened::new(Files::open_with(shared::open(place, dir)?, options, None)?)
            }
            Storage::Heap(capacity) => {
                Opened { stays: true, ..Opened::new(Heap::limited(stores::heap(incarnation), *capacity)) }
            }
            Storage::Virtual(what) => {
                let target = load(what, Some(&inside(dir, &of(number, "stages"))))?;
                let stays = target.capability().durability == Persistence::Volatile;
                Opened { stays, ..Opened::new(target) }
            }
            Storage::Null => {
                Opened { stays: true, all_at_target: true, ..Opened::new(Null::new(stores::null(incarnation))) }
            }
        })
    }
}
