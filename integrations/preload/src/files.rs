//! What is open, by descriptor.
//!
//! Each open file has a descriptor of the kernel that stands for it ([`crate::standing`]), which `dup`, `fork` and `exec` pass on.

use std::{
    ffi::c_int,
    sync::{
        Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockWriteGuard,
        atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU64, Ordering},
    },
};

use iov_posix::{Attributes, Directory, Errno, File, Flags, Kind, Node, Outcome};
use ioverbs::Uuid;

use telling::Failed;

use crate::{
    raw::{kernel, outcome},
    record::{Record, descriptors},
    standing::{Lender, Ready, Standing},
    world::{Inside, Mounted, World, lock},
};

mod adding;
mod ending;
mod offset;
mod table;
mod telling;

pub(crate) use adding::Adding;
pub(crate) use ending::Patience;
pub(crate) use offset::Moving;

/// Descriptors that are looked for at once; others are looked for in the table.
const BITS: usize = 1 << 16;

/// What is open, once this process has looked.
pub(crate) enum What {
    /// A file.
    File(File),
    /// A directory of a workspace.
    Directory(Directory),
    /// Something that was only found.
    Path(Arc<Node>),
    /// The directory of all workspaces, with their names.
    Top(OnceLock<Vec<Vec<u8>>>),
}

impl What {
    /// Whether it is listed by its descriptor.
    fn is_listed(&self) -> bool {
        matches!(self, What::Directory(_) | What::Top(_))
    }
}

/// What an open file has locked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Locked {
    /// Nothing.
    No,
    /// All of it, for reading.
    Shared,
    /// All of it, for writing.
    Alone,
    /// Parts of it, or what nobody can tell any more.
    Parts,
}

/// An open file, as POSIX has it: descriptors share it.
pub(crate) struct Open {
    pub(crate) record: Record,
    what: OnceLock<What>,
    opening: Mutex<()>,
    /// What stands for it, and its offset.
    pub(crate) standing: Standing,
    /// Each write goes to the end.
    pub(crate) append: AtomicBool,
    /// Something was written of which nobody else has been told.
    pub(crate) dirty: AtomicBool,
    /// It has no name any more, or never had one, and another process has it open for those that get its descriptors.
    pub(crate) kept: AtomicBool,
    /// What it has locked, where this process holds that.
    locked: AtomicU8,
    /// Who changes that.
    pub(crate) locking: Mutex<()>,
    /// Why others could not be told, where who closes it has not heard of it.
    failed: Mutex<Option<Failed>>,
    /// Who moves the offset.
    pub(crate) moving: Mutex<()>,
    /// The thread that does, where others may have it, too; and the one that is about to close a descriptor of it meanwhile, and comes before those.
    mover: AtomicI32,
    closer: AtomicI32,
    /// Another process may have it too, and move the offset.
    pub(crate) shared: AtomicBool,
    /// What is written in the file of its own that stands for it, as soon as it has one: by this who holds its locks knows it.
    proof: OnceLock<Vec<u8>>,
    /// Distinguishes it from others of this process.
    pub(crate) id: u64,
}

/// All of a process.
pub(crate) struct Files {
    table: RwLock<Vec<Option<Arc<Open>>>>,
    /// Descriptors of the table, a bit each, so that a look at another one costs nothing.
    bits: Box<[AtomicU64]>,
    /// Who has locks by `fcntl` on what, by identity.
    pub(crate) locked: Mutex<Vec<Uuid>>,
    ids: AtomicU64,
    /// What stands for what is open.
    pub(crate) lender: Lender,
    /// By this others may use what this process has open; none: nobody has asked for it yet.
    token: Mutex<Vec<u8>>,
    /// The process of which these are.
    pub(crate) pid: i32,
}

/// The table for as long as nobody may change it.
pub(crate) type Held<'a> = RwLockWriteGuard<'a, Vec<Option<Arc<Open>>>>;

impl Open {
    fn new(record: Record, what: Option<What>, standing: Standing, append: bool, id: u64) -> Open {
        let cell = OnceLock::new();
        if let Some(what) = what {
            let _ = cell.set(what);
        }
        Open {
            record,
            what: cell,
            opening: Mutex::default(),
            standing,
            append: AtomicBool::new(append),
            dirty: AtomicBool::new(false),
            kept: AtomicBool::new(false),
            locked: AtomicU8::new(Locked::No as u8),
            locking: Mutex::default(),
            failed: Mutex::default(),
            moving: Mutex::default(),
            mover: AtomicI32::new(0),
            closer: AtomicI32::new(0),
            shared: AtomicBool::new(false),
            proof: OnceLock::new(),
            id,
        }
    }

    /// What is written in the file of its own that stands for it. Not read from there: closing a descriptor for that would end the lock of who moves the offset.
    pub(crate) fn proof(&self) -> Option<&[u8]> {
        self.proof.get().map(Vec::as_slice)
    }

    /// That file says this.
    pub(crate) fn is_proven_by(&self, proof: Vec<u8>) {
        let _ = self.proof.set(proof);
    }

    /// The same file stands for another open file of this process.
    fn proves(&self, other: &Open) {
        if let Some(proof) = self.proof.get() {
            other.is_proven_by(proof.clone());
        }
    }

    /// Whether it may be listed: it is a directory, or nobody here knows yet what it is.
    pub(crate) fn may_be_listed(&self) -> bool {
        self.what.get().is_none_or(What::is_listed)
    }

    /// Whether this process has opened it, and not only been handed it.
    pub(crate) fn is_opened(&self) -> bool {
        self.what.get().is_some()
    }

    /// What it is: opened now, if another process has handed it to this one.
    pub(crate) fn what(&self, world: &World) -> Outcome<&What> {
        if let Some(what) = self.what.get() {
            return Ok(what);
        }
        let _one = lock(&self.opening);
        if let Some(what) = self.what.get() {
            return Ok(what);
        }
        let what = self.open(world)?;
        Ok(self.what.get_or_init(|| what))
    }

    fn open(&self, world: &World) -> Outcome<What> {
        let record = &self.record;
        if record.workspace.is_empty() {
            return Ok(What::Top(OnceLock::new()));
        }
        let mounted = world.mounted(&record.at, &record.workspace)?;
        let node = record.find(&mounted)?;
        if record.access.path {
            return Ok(What::Path(node));
        }
        match node.kind() {
            Kind::Directory => Ok(What::Directory(Directory::open(&node)?)),
            _ => {
                let open = || File::open(&node, Flags { write: self.writes(), ..Flags::default() });
                let opened = match open() {
                    // Somebody holds it exclusively: mostly who has handed it on.
                    Err(Errno::EBUSY) if !record.token.is_empty() && record.join(&mounted).is_ok() => open(),
                    opened => opened,
                };
                Ok(What::File(opened?.0))
            }
        }
    }

    /// The file that it is, to read or write.
    pub(crate) fn file(&self, world: &World) -> Outcome<&File> {
        match self.what(world)? {
            What::File(file) => Ok(file),
            What::Directory(_) | What::Top(_) => Err(Errno::EISDIR),
            What::Path(_) => Err(Errno::EBADF),
        }
    }

    /// The file, for who reads it.
    pub(crate) fn to_read(&self, world: &World) -> Outcome<&File> {
        if self.reads() { self.file(world) } else { Err(Errno::EBADF) }
    }

    /// The file, for who writes it.
    pub(crate) fn to_write(&self, world: &World) -> Outcome<&File> {
        if !self.writes() {
            return Err(Errno::EBADF);
        }
        let file = self.file(world)?;
        self.dirty.store(true, Ordering::Relaxed);
        Ok(file)
    }

    pub(crate) fn reads(&self) -> bool {
        self.record.access.read
    }

    pub(crate) fn writes(&self) -> bool {
        self.record.access.write
    }

    /// Nothing was opened (`O_PATH`).
    pub(crate) fn is_path(&self) -> bool {
        self.record.access.path
    }

    /// Whether each write by this descriptor goes to the end. Others who have it may have changed that, in processes of their own.
    pub(crate) fn appends(&self, fd: c_int) -> bool {
        match self.shared.load(Ordering::Relaxed) {
            true => self.standing.status(fd) & libc::O_APPEND as isize != 0,
            false => self.append.load(Ordering::Relaxed),
        }
    }

    /// What it is open on; none: the directory of all workspaces.
    pub(crate) fn node(&self, world: &World) -> Outcome<Option<Arc<Node>>> {
        Ok(match self.what(world)? {
            What::File(file) => Some(file.node().clone()),
            What::Directory(dir) => Some(dir.node().clone()),
            What::Path(node) => Some(node.clone()),
            What::Top(_) => None,
        })
    }

    /// The workspace that it is in; none: the directory of all.
    pub(crate) fn mounted(&self, world: &World) -> Outcome<Option<Arc<Mounted>>> {
        match self.record.workspace.is_empty() {
            true => Ok(None),
            false => world.mounted(&self.record.at, &self.record.workspace).map(Some),
        }
    }

    /// What it has locked by the locks of open files, where this process holds that.
    pub(crate) fn locked(&self) -> Locked {
        let is = |locked: &Locked| *locked as u8 == self.locked.load(Ordering::Relaxed);
        [Locked::No, Locked::Shared, Locked::Alone].into_iter().find(is).unwrap_or(Locked::Parts)
    }

    /// It has locked this from now on.
    pub(crate) fn set_locked(&self, locked: Locked) {
        self.locked.store(locked as u8, Ordering::Relaxed);
    }

    /// Whether this process has it open, and others who inherit it could not open it once this one is gone: it has no name, or is held exclusively.
    pub(crate) fn ends_with_opener(&self) -> Outcome<bool> {
        match self.what.get() {
            Some(What::File(file)) => Ok(file.is_exclusive() || file.node().attributes()?.links == 0),
            _ => Ok(false),
        }
    }

    /// A lock on it was got: names and attributes are looked for anew.
    pub(crate) fn refresh(&self, world: &World) {
        if let Ok(Some(mounted)) = self.mounted(world) {
            mounted.paths.refresh();
        }
    }
}

impl Default for Files {
    fn default() -> Files {
        Files {
            table: RwLock::default(),
            bits: (0..BITS / 64).map(|_| AtomicU64::new(0)).collect(),
            locked: Mutex::default(),
            ids: AtomicU64::new(1),
            lender: Lender::default(),
            token: Mutex::default(),
            pid: crate::raw::pid(),
        }
    }
}

impl Files {
    /// What this process was started with.
    pub(crate) fn inherited() -> Files {
        let files = Files::default();
        for fd in descriptors() {
            if let Some(record) = Record::of(fd) {
                let flags = kernel!(libc::SYS_fcntl, fd, libc::F_GETFL) as c_int;
                let (same, proof) = (files.same_description(fd, &record), record.to_bytes());
                let open =
                    same.unwrap_or_else(|| files.opened(record, None, Standing::own(), flags & libc::O_APPEND != 0));
                open.shared.store(true, Ordering::Relaxed);
                open.is_proven_by(proof);
                // A thread of the program before may have been about to move it.
                Moving::change(fd, libc::F_UNLCK);
                files.put(fd, open);
            }
        }
        files
    }

    /// What a child of `fork` has: the same, opened anew when it is used.
    pub(crate) fn of_child(held: &Held<'_>, token: Vec<u8>) -> Files {
        let files = Files::default();
        let mut known: Vec<(u64, Arc<Open>)> = Vec::new();
        for (fd, open) in held.iter().enumerate() {
            let Some(open) = open else { continue };
            let child = match known.iter().find(|(id, _)| *id == open.id) {
                Some((_, child)) => child.clone(),
                None => {
                    let append = open.appends(fd as c_int);
                    let mut record = open.record.clone();
                    if !token.is_empty() && (open.is_opened() || record.token.is_empty()) {
                        record.token.clone_from(&token);
                    }
                    let child = files.opened(record, None, open.standing.of_parent(), append);
                    child.shared.store(open.standing.is_own(), Ordering::Relaxed);
                    open.proves(&child);
                    known.push((open.id, child.clone()));
                    child
                }
            };
            files.put(fd as c_int, child);
        }
        files
    }

    /// Another descriptor of the same open file, of those that were inherited.
    fn same_description(&self, fd: c_int, record: &Record) -> Option<Arc<Open>> {
        const KCMP_FILE: c_int = 0;
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let pid = crate::raw::pid();
        let same = |other: usize| kernel!(libc::SYS_kcmp, pid, pid, KCMP_FILE, fd, other) == 0;
        let found = table
            .iter()
            .enumerate()
            .find(|(other, open)| open.as_ref().is_some_and(|open| open.record == *record) && same(*other));
        found.and_then(|(_, open)| open.clone())
    }

    fn opened(&self, record: Record, what: Option<What>, standing: Standing, append: bool) -> Arc<Open> {
        Arc::new(Open::new(record, what, standing, append, self.ids.fetch_add(1, Ordering::Relaxed)))
    }

    /// By this others may use what this process has open, whatever becomes of its name, as soon as somebody has asked for it.
    pub(crate) fn token(&self) -> Vec<u8> {
        lock(&self.token).clone()
    }

    /// The same in a copy of the process, where nobody may be there who has it. `None`: somebody had.
    pub(crate) fn token_now(&self) -> Option<Vec<u8>> {
        self.token.try_lock().ok().map(|token| token.clone())
    }

    /// That is this from now on; none: it is asked for anew.
    pub(crate) fn set_token(&self, token: Vec<u8>) {
        *lock(&self.token) = token;
    }

    /// Gives something that was opened a descriptor, the one that was made ready for it.
    pub(crate) fn add(&self, opened: Adding<'_>, ready: Option<Ready>) -> Outcome<c_int> {
        let Adding { record, what, how, flags } = opened;
        let (fd, of) = self.lender.lend_ready(ready, flags & libc::O_CLOEXEC != 0)?;
        let open = self.opened(record, Some(what), Standing::lent(of, flags), how.append);
        // A new file is not told of until somebody has to know.
        open.dirty
            .store(how.write && (how.create.is_some() || how.truncate || how.unnamed.is_some()), Ordering::Relaxed);
        self.put(fd, open);
        Ok(fd)
    }

    /// The same in a child that shares the memory of its parent until it runs another program: for that one alone.
    pub(crate) fn add_for_next(opened: Adding<'_>) -> Outcome<c_int> {
        opened.record.descriptor(opened.what.is_listed(), opened.flags & libc::O_CLOEXEC != 0, opened.flags)
    }

    /// Everybody else is told all that was written: there is another process from now on, which has it too.
    pub(crate) fn publish(&self, world: &World, patience: &mut Patience) {
        let _inside = Inside::enter();
        let all = self.all();
        // Asked for anew: the daemon may be another one by now. Without it children cannot open what has no name, or what this process alone may open: so
        // it is waited for, whatever was waited for before.
        if all.iter().any(|(_, open)| !open.standing.is_own()) {
            let asked = patience.with(|| Some(world.token()).filter(|token| !token.is_empty()).ok_or(Errno::EIO));
            self.set_token(asked.unwrap_or_default());
        }
        if all.iter().any(|(_, open)| open.has_waited()) {
            patience.was_over();
        }
        for (_, open) in &all {
            // What is not told now is told later.
            let _ = patience.with(|| {
                open.publish_early();
                open.untold().map_or(Ok(()), Err)
            });
            if let Some(What::File(file)) = open.what.get() {
                let _ = patience.with(|| file.open_now());
            }
        }
        self.own(false);
        all.iter().for_each(|(_, open)| open.shared.store(open.standing.is_own(), Ordering::Relaxed));
    }
}

/// The attributes of what is open.
pub(crate) fn attributes(open: &Open, world: &World) -> Outcome<Option<Attributes>> {
    let asked = |node: &Arc<Node>| match node.attributes() {
        Err(e @ (Errno::ENOENT | Errno::ESTALE)) => node.told_at_the_end().ok_or(e),
        other => other,
    };
    open.node(world)?.as_ref().map(asked).transpose()
}

/// A call on a descriptor that may be one of ours: what it comes to, or none.
pub(crate) fn with(fd: c_int, work: impl FnOnce(&World, &Arc<Open>) -> Outcome<isize>) -> Option<isize> {
    let world = crate::world::world().filter(|world| world.files.may_have(fd))?;
    let (errno, _inside) = (crate::raw::errno(), Inside::enter());
    let open = world.files.get(fd)?;
    let done = outcome(work(world, &open));
    // What was used here for it is not the program's.
    crate::raw::set_errno(errno);
    Some(done)
}
