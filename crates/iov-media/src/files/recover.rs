//! What is done when a target is opened: what an earlier daemon has begun is brought to its end or taken back.

use std::{
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, atomic::AtomicBool},
};

use iov_store::seam;
use iov_types::{Capability, Error, Kind, ObjectId, Persistence, Result, Uuid};
use rustix::io::Errno;

use super::{
    Files, OpenSums, Options,
    disk::Disk,
    grants::WHOLE,
    io,
    journal::{FILES, Found, Journal},
    leases::Leases,
    listing::Listing,
    object::torn,
    stage::budget::Budget,
    sums::SumStore,
    tree::{FileName, Tree, log_of},
    way::{self, Way},
};
use crate::{
    fail,
    segments::{MOST, Segments, Shared},
};

/// File systems that lie in memory: nothing on them survives the machine (P3).
const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];

impl Files {
    /// Opens the target in a directory, or makes an empty directory into one. Only one daemon can have it open.
    ///
    /// Changes that were cut short are finished or undone before this returns. Stages stay until they are published,
    /// discarded or dropped by [`Files::drop_stages`].
    pub fn open(directory: OwnedFd, options: Options) -> Result<Files> {
        Files::open_with(directory, options, None)
    }

    /// As [`Files::open`]; with a place for checksums, what is durable is compared with them whenever it is read (I1).
    pub fn open_with(directory: OwnedFd, options: Options, sums: Option<OpenSums>) -> Result<Files> {
        fail::arm_from_environment()?;
        let tree = Tree::open(directory, seam::now_ns() as u64)?;
        let capability = capability_of(&tree, &options)?;
        let segments = options.shared.map(|capacity| open_segments(&tree, capacity)).transpose()?;
        let disk = Disk::new(tree, options.descriptor_limit(), segments, options.way);
        let mut temporary = Vec::new();
        disk.tree.list("temp", |name| {
            temporary.extend(name.parse().ok().map(FileName::Temp));
            Ok(())
        })?;
        for name in temporary {
            disk.remove(name)?;
        }
        if options.way != Way::Cached && options.shared.is_none() {
            check_way(&disk, options.way)?;
        }
        let max_file = if disk.segments().is_some() { MOST } else { largest_file(&disk)? };
        let mut files = Files::over(disk, capability, &options, sums)?;
        files.max_file = max_file;
        files.recover()?;
        Ok(files)
    }

    /// Over a disk of which nothing is known yet.
    pub(super) fn over(disk: Disk, capability: Capability, options: &Options, sums: Option<OpenSums>) -> Result<Files> {
        Ok(Files {
            max_file: MOST,
            capability,
            objects: Default::default(),
            object_limit: options.objects.max(1),
            budget: Budget::new(options.stage_bytes),
            journal: Journal::new(),
            leases: Leases::new(options.recall_ns),
            sums: SumStore::new(sums)?,
            listing: Listing::default(),
            settled: AtomicBool::new(false),
            behind: Default::default(),
            births: 0.into(),
            temporary: 0.into(),
            troubles: Vec::new(),
            disk,
        })
    }

    /// Brings everything to its end. What cannot be is told by [`Files::troubles`], and by the object that it concerns;
    /// all others are served.
    fn recover(&mut self) -> Result<()> {
        // Before anything is taken for what nobody writes: clients have gone on by what they were granted, and were told so.
        let stuck = self.leases.recover(&self.disk)?;
        let (tails, mut troubles) = self.claim_space()?;
        // Images of staged bytes that were never finished have gone by now.
        let decided = self.find_stages(&mut troubles)?;
        if let Some(segments) = self.disk.segments() {
            segments.hold_all(&self.leases.all_waits());
            segments.start()?;
        }
        for id in stuck {
            if let Err(e) = self.recover_from_writer(id) {
                troubles.push(e.context(format!("moving {id:?} out of the reach of a stuck client")));
            }
        }
        for id in tails {
            let object = self.object(id);
            // One that cannot be read keeps what it has.
            if let Ok(mut state) = object.write_now(self) {
                self.trim_tail(&object, &mut state);
            }
        }
        for n in 0..FILES {
            if let Err(e) = self.recover_unit(n) {
                self.journal.keep(n);
                troubles.push(e.context(format!("finishing the change in journal/{n}")));
            }
        }
        for (stage, id) in decided {
            if let Err(e) = self.recover_publication(stage, id) {
                troubles.push(e.context(format!("finishing a publication of {id:?}")));
            }
        }
        self.troubles = troubles;
        Ok(())
    }

    /// Tells the segments what is in use. What cannot be read is a trouble of its object. The objects that have space behind
    /// their end, which writers were lent.
    fn claim_space(&self) -> Result<(Vec<ObjectId>, Vec<Error>)> {
        let Some(segments) = self.disk.segments() else { return Ok(Default::default()) };
        let (mut names, mut tails, mut troubles) = (Vec::new(), Vec::new(), Vec::new());
        self.disk.tree.objects(|id| names.push(FileName::Data(id)))?;
        self.disk.tree.list("stage", |name| {
            let image = name.strip_suffix(".image").and_then(|n| log_of(&format!("{n}.log")));
            names.extend(image.map(|(stage, id)| FileName::Image(stage, id)));
            Ok(())
        })?;
        for name in names {
            let Some(file) = self.disk.sparing(|| self.disk.tree.open_file(name, false))? else { continue };
            match (Shared::claim(segments, file), name) {
                (Ok(Some(true)), FileName::Data(id)) => tails.push(id),
                // Its daemon was killed while it made it, and said nothing to anybody. It is made again, in the right domain.
                (Ok(None), _) => drop(self.disk.tree.remove(name)?),
                (Ok(_), _) => {}
                (Err(e), _) => troubles.push(e.context(format!("looking for the space of {}", name.path()))),
            }
        }
        segments.claimed();
        Ok((tails, troubles))
    }

    /// What could not be brought to its end when the target was opened.
    pub fn troubles(&self) -> &[Error] {
        &self.troubles
    }

    /// Moves an object away from a client of the earlier daemon that is stuck in a write.
    fn recover_from_writer(&self, id: ObjectId) -> Result<()> {
        let object = self.object(id);
        // Nobody is served what cannot be read, but it may be readable again while its late writer still lives.
        let mut state = object.write_now(self).inspect_err(|_| object.note_unmoved())?;
        self.relocate(&object, &mut state, &[WHOLE]).inspect_err(|e| {
            state.torn = Some(e.clone());
            state.unmoved = vec![WHOLE];
        })
    }

    fn recover_publication(&self, stage: Uuid, id: ObjectId) -> Result<()> {
        let object = self.object(id);
        let mut state = object.write_now(self)?;
        match state.stages.get(&stage) {
            Some(Err(e)) => Err(e.clone()),
            // Whether it was decided could not be read before.
            Some(Ok(staged)) if !staged.lock().unwrap_or_else(std::sync::PoisonError::into_inner).decided => Ok(()),
            _ => {
                let finished = self.finish(&object, &mut state, stage, false);
                if !state.stages.contains_key(&stage) {
                    object.end_freeze(&mut state, stage);
                }
                finished
            }
        }
    }

    fn recover_unit(&self, n: usize) -> Result<()> {
        match self.journal.find(&self.disk, n)? {
            None => return Ok(()),
            Some(Found::Whole { id, change }) => {
                let object = self.object(id);
                let mut state = object.write_now(self)?;
                // Removed or sealed since: then it had been done, and only the mark was not taken away on disk.
                if state.exists && !state.sealed {
                    let body = state.data(&self.disk, id)?;
                    self.redo(id, &body, change.as_change())?;
                    if let Some(log) = &state.appends {
                        // The end is where the log says, or where the change has put it.
                        let end = change.end(log.end());
                        self.commit_end(&object, &mut state, end)?;
                    }
                    body.sync_data()?;
                }
            }
            Some(Found::Damaged { id }) => {
                let object = self.object(id);
                let mut state = object.write_now(self)?;
                if state.exists {
                    self.update(&object, &mut state, true, |facts| facts.torn = true)?;
                    state.torn = Some(torn("a change of a unit was cut short, and what it was is damaged"));
                }
            }
        }
        self.journal.retire(&self.disk, n)
    }

    /// Finds staged changes; tells those whose publication has begun, or may have. What cannot be read for now is a trouble, of
    /// which its object tells as well; the others are served. Files that mean nothing are removed.
    pub(super) fn find_stages(&self, troubles: &mut Vec<Error>) -> Result<Vec<(Uuid, ObjectId)>> {
        let (mut logs, mut others) = (Vec::new(), Vec::new());
        self.disk.tree.list("stage", |name| {
            match log_of(name) {
                Some(log) => logs.push(log),
                None => others.extend(name.strip_suffix(".image").and_then(|n| log_of(&format!("{n}.log")))),
            }
            Ok(())
        })?;
        for (stage, id) in others {
            if !self.disk.tree.read_only && !self.disk.tree.has(FileName::Log(stage, id))? {
                self.disk.remove(FileName::Image(stage, id))?;
            }
        }
        let mut decided = Vec::new();
        for (stage, id) in logs {
            // In segments it must be known of all what lies where: their space would be given to others.
            let concerns_one = self.disk.segments().is_none();
            let mut unread = |e: Error| match e.kind() {
                Kind::Unavailable if concerns_one => {
                    troubles.push(e.context(format!("looking at what is staged for {id:?}")));
                    Ok(())
                }
                _ => Err(e),
            };
            let log = self.disk.must(FileName::Log(stage, id), true).and_then(io::length);
            let log = log.or_else(|e| unread(e).map(|()| 0))?;
            let image = self.disk.body(FileName::Image(stage, id), true);
            let image = match image.and_then(|image| image.map_or(Ok(0), |image| Ok(image.facts()?.allocated))) {
                // Its object says so; the others are served.
                Err(e) if e.kind() == Kind::Corrupt => 0,
                image => image.or_else(|e| unread(e).map(|()| 0))?,
            };
            self.budget.found(stage, id, log + image);
            match super::stage::Stage::was_decided(&self.disk, stage, id) {
                Ok(false) => {}
                // Reading it once more tells.
                Err(e) => unread(e).map(|()| decided.push((stage, id)))?,
                Ok(true) => decided.push((stage, id)),
            }
        }
        Ok(decided)
    }

    /// Every stage that has changes for objects of this target.
    pub fn stages(&self) -> Vec<(Uuid, Vec<ObjectId>)> {
        self.budget.all()
    }
}

/// What a target can do that lies there.
pub(super) fn capability_of(tree: &Tree, options: &Options) -> Result<Capability> {
    let magic = rustix::fs::fstatfs(&tree.root).map_err(io::os("asking for the file system"))?.f_type as u64;
    let stage_bytes = options.stage_bytes;
    let mut capability = match options.shared {
        Some(_) => Capability { stage_bytes, ..iov_semantics::stores::shmem(tree.incarnation) },
        None => Capability { stage_bytes, ..iov_semantics::stores::file(tree.incarnation) },
    };
    if IN_MEMORY.contains(&magic) {
        capability.durability = Persistence::Process;
    }
    Ok(capability)
}

/// The segments of a target that keeps its bytes in shared memory.
fn open_segments(tree: &Tree, capacity: u64) -> Result<Arc<Segments>> {
    Segments::open(tree.segments()?, capacity).map(Arc::new)
}

/// Whether bytes can go that way here.
fn check_way(disk: &Disk, way: Way) -> Result<()> {
    let name = FileName::Temp(u64::MAX - 1);
    match disk.create(name) {
        // Without an inode for the question, writes find out.
        Err(e) if e.kind() == Kind::Exhausted => Ok(()),
        created => way::check(way, created?.as_fd()).and(disk.remove(name).map(drop)),
    }
}

/// The largest length that the file system of a target, and this process, allow a file.
fn largest_file(disk: &Disk) -> Result<u64> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
    let most = limit.unwrap_or(i64::MAX as u64).min(i64::MAX as u64);
    let name = FileName::Temp(u64::MAX);
    let file = match disk.create(name) {
        // Without an inode for the question, writes find out.
        Err(e) if e.kind() == Kind::Exhausted => return Ok(most),
        created => created?,
    };
    let fits = |size| match io::retry(|| rustix::fs::ftruncate(&file, size)) {
        Ok(()) => Ok(true),
        Err(Errno::FBIG | Errno::INVAL) => Ok(false),
        Err(e) => Err(io::os("asking for the largest file")(e)),
    };
    // What lies below `low` fits, what lies from `high` on does not.
    let (mut low, mut high) = (0, most);
    if fits(most)? {
        low = most;
    }
    while low + 1 < high {
        let middle = low + (high - low) / 2;
        if fits(middle)? {
            low = middle;
        } else {
            high = middle;
        }
    }
    disk.remove(name)?;
    Ok(low)
}
