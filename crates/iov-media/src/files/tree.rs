//! The directory of a file target, and what its files are called.
//!
//! ```text
//! format                          which format, and the incarnation; locked by the daemon that has it open
//! data/XX/OBJECT                  bytes; XX is the last byte of the UUID, OBJECT is 32 hex digits, '-', the slot
//! data/XX/OBJECT.side             facts that the file itself does not hold, and the log of appends; only where needed
//! stage/STAGE.OBJECT.log          staged changes
//! stage/STAGE.OBJECT.image        staged bytes at the offsets they will have
//! journal/N                       units on their way into an object
//! leases/PAGE                     the lease page of a client
//! temp/N                          files before they get their name
//! segments/N…                     shared memory, where bytes lie in that; then `data` and `stage` hold indexes of it
//! ```

use std::os::fd::{AsFd, OwnedFd};

use iov_store::seam;
use iov_types::{Error, ObjectId, Result, Uuid};
use rustix::{
    fs::{AtFlags, Dir, FlockOperation, Mode, OFlags},
    io::Errno,
};

use super::io;

/// Files and directories are the daemon's alone (G5).
const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);
const DIRECTORY_MODE: Mode = Mode::RWXU;
/// A sealed file (M2).
pub(super) const SEALED_MODE: Mode = Mode::RUSR;

const FOLDERS: [&str; 5] = ["data", "stage", "journal", "leases", "temp"];
const SEGMENTS: &str = "segments";
const FORMAT: &str = "format";
const FORMAT_TITLE: &str = "IOVerbs files";
const FORMAT_VERSION: u32 = 1;

/// A file of the target.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) enum FileName {
    Data(ObjectId),
    Side(ObjectId),
    Log(Uuid, ObjectId),
    Image(Uuid, ObjectId),
    Journal(usize),
    Lease(Uuid),
    Temp(u64),
}

fn hex(uuid: Uuid) -> String {
    uuid.0.iter().map(|b| format!("{b:02x}")).collect()
}

fn object_name(id: ObjectId) -> String {
    format!("{}-{}", hex(id.collection), id.slot)
}

/// The subdirectory of an object: by a byte that is random in a version 7 UUID.
fn shelf(id: ObjectId) -> u8 {
    id.collection.0[15] ^ id.slot as u8
}

impl FileName {
    /// Relative to the target's directory.
    pub(super) fn path(&self) -> String {
        match self {
            FileName::Data(id) => format!("data/{:02x}/{}", shelf(*id), object_name(*id)),
            FileName::Side(id) => format!("data/{:02x}/{}.side", shelf(*id), object_name(*id)),
            FileName::Log(stage, id) => format!("stage/{}.{}.log", hex(*stage), object_name(*id)),
            FileName::Image(stage, id) => format!("stage/{}.{}.image", hex(*stage), object_name(*id)),
            FileName::Journal(n) => format!("journal/{n}"),
            FileName::Lease(session) => format!("leases/{}", hex(*session)),
            FileName::Temp(n) => format!("temp/{n}"),
        }
    }

    /// The directory that it lies in.
    pub(super) fn folder(&self) -> String {
        match self {
            FileName::Data(id) | FileName::Side(id) => format!("data/{:02x}", shelf(*id)),
            FileName::Log(..) | FileName::Image(..) => "stage".into(),
            FileName::Journal(_) => "journal".into(),
            FileName::Lease(_) => "leases".into(),
            FileName::Temp(_) => "temp".into(),
        }
    }
}

/// The UUID of 32 lower-case hex digits.
fn uuid_of(text: &str) -> Option<Uuid> {
    let mut out = [0; 16];
    if text.len() != 32 || !text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    for (i, byte) in out.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).ok()?;
    }
    Some(Uuid(out))
}

/// The object that a file of bytes is named after.
pub(super) fn object_of(name: &str) -> Option<ObjectId> {
    let (collection, slot) = name.split_once('-')?;
    let id = ObjectId { collection: uuid_of(collection)?, slot: slot.parse().ok()? };
    // Exactly one name for each object: no signs, no leading zeros.
    (object_name(id) == name).then_some(id)
}

/// The stage and object that a log of staged changes is named after.
pub(super) fn log_of(name: &str) -> Option<(Uuid, ObjectId)> {
    let (stage, rest) = name.strip_suffix(".log")?.split_once('.')?;
    Some((uuid_of(stage)?, object_of(rest)?))
}

/// The id that a lease page is named after.
pub(super) fn page_of(name: &str) -> Option<Uuid> {
    uuid_of(name)
}

/// Calls `found` with each lease page of a target.
pub(super) fn pages(root: &OwnedFd, mut found: impl FnMut(OwnedFd)) -> Result<()> {
    Tree::list_in(root, "leases", |name| {
        let Some(page) = page_of(name) else { return Ok(()) };
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        match rustix::fs::openat(root, FileName::Lease(page).path(), flags, Mode::empty()) {
            Ok(file) => found(file),
            Err(Errno::NOENT) => {}
            Err(e) => return Err(io::os("opening a lease page")(e)),
        }
        Ok(())
    })
}

/// The directory, open and locked.
pub(super) struct Tree {
    pub(super) root: OwnedFd,
    /// Holds the lock.
    _format: OwnedFd,
    pub(super) incarnation: u64,
    /// Nothing in it is made or changed.
    pub(super) read_only: bool,
}

impl Tree {
    /// Opens the directory of a target, or makes an empty one into it; `now` becomes the incarnation of a new one (P1).
    pub(super) fn open(root: OwnedFd, now: u64) -> Result<Tree> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let format = match rustix::fs::openat(&root, FORMAT, flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT) => new_format(&root, now)?,
            Err(e) => return Err(io::os("opening the format file of a target")(e)),
        };
        Tree::with(root, format, FlockOperation::NonBlockingLockExclusive)
    }

    /// Opens the directory of a target for looking at it, with others who look.
    pub(super) fn look(root: OwnedFd) -> Result<Tree> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let format = rustix::fs::openat(&root, FORMAT, flags, Mode::empty());
        let format = format.map_err(io::os("opening the format file of a target"))?;
        let tree = Tree::with(root, format, FlockOperation::NonBlockingLockShared)?;
        Ok(Tree { read_only: true, ..tree })
    }

    fn with(root: OwnedFd, format: OwnedFd, how: FlockOperation) -> Result<Tree> {
        lock(&format, how)?;
        let mut text = vec![0; 4096];
        let len = io::read(&format, &mut text, 0)?;
        let incarnation = parse_format(&String::from_utf8_lossy(&text[..len]))?;
        Ok(Tree { root, _format: format, incarnation, read_only: false })
    }

    /// Fails where nothing may change.
    fn may_change(&self) -> rustix::io::Result<()> {
        if self.read_only { Err(Errno::ROFS) } else { Ok(()) }
    }

    /// The folder of segments, made if it is not there.
    pub(super) fn segments(&self) -> Result<OwnedFd> {
        if !self.read_only {
            make_folder(&self.root, SEGMENTS)?;
        }
        open_folder(&self.root, SEGMENTS)?.ok_or_else(|| Error::internal("a folder vanished"))
    }

    /// Opens a file; `None` if it is not there.
    pub(super) fn open_file(&self, name: FileName, write: bool) -> rustix::io::Result<Option<OwnedFd>> {
        let access = if write && !self.read_only { OFlags::RDWR } else { OFlags::RDONLY };
        let flags = access | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        match io::retry(|| rustix::fs::openat(&self.root, name.path(), flags, Mode::empty())) {
            Ok(file) => Ok(Some(file)),
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Makes a file that must not be there; its folder with it.
    pub(super) fn create_file(&self, name: FileName) -> rustix::io::Result<OwnedFd> {
        self.may_change()?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let create = || io::retry(|| rustix::fs::openat(&self.root, name.path(), flags, FILE_MODE));
        match create() {
            Err(Errno::NOENT) => match rustix::fs::mkdirat(&self.root, name.folder(), DIRECTORY_MODE) {
                Ok(()) | Err(Errno::EXIST) => create(),
                Err(e) => Err(e),
            },
            other => other,
        }
    }

    /// Whether a file is there.
    pub(super) fn has(&self, name: FileName) -> Result<bool> {
        match rustix::fs::statat(&self.root, name.path(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(e) => Err(io::os("looking for a file")(e)),
        }
    }

    /// Removes a file; whether it was there.
    pub(super) fn remove(&self, name: FileName) -> Result<bool> {
        self.may_change().map_err(io::os("removing a file"))?;
        match rustix::fs::unlinkat(&self.root, name.path(), AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(e) => Err(io::os("removing a file")(e)),
        }
    }

    /// Gives a file another name, over the one that has it.
    pub(super) fn rename(&self, from: FileName, to: FileName) -> Result<()> {
        self.may_change().map_err(io::os("renaming a file"))?;
        let rename = || rustix::fs::renameat(&self.root, from.path(), &self.root, to.path());
        match rename() {
            // The folder of a new object may be missing; of `from` it is not.
            Err(Errno::NOENT) => {
                make_folder(&self.root, &to.folder())?;
                rename()
            }
            other => other,
        }
        .map_err(io::os("renaming a file"))
    }

    /// Makes the entries of a file's folder survive power loss, and the folder itself.
    pub(super) fn sync_folder(&self, name: FileName) -> Result<()> {
        let folder = name.folder();
        // Those of the top are synced when the target is made.
        let above = folder.split_once('/').map(|(above, _)| above);
        for path in [Some(folder.as_str()), above].into_iter().flatten() {
            if let Some(folder) = open_folder(&self.root, path)? {
                io::sync_all(folder)?;
            }
        }
        Ok(())
    }

    /// Calls `found` with the name of each entry of a folder, in no order; a missing folder is empty.
    pub(super) fn list(&self, folder: &str, found: impl FnMut(&str) -> Result<()>) -> Result<()> {
        Tree::list_in(&self.root, folder, found)
    }

    fn list_in(root: &OwnedFd, folder: &str, mut found: impl FnMut(&str) -> Result<()>) -> Result<()> {
        let Some(folder) = open_folder(root, folder)? else { return Ok(()) };
        let wrong = io::os("listing a folder of the target");
        for entry in Dir::read_from(folder).map_err(&wrong)? {
            let entry = entry.map_err(&wrong)?;
            match entry.file_name().to_str() {
                Ok("." | "..") | Err(_) => {}
                Ok(name) => found(name)?,
            }
        }
        Ok(())
    }

    /// Calls `found` with each object that has a file.
    pub(super) fn objects(&self, mut found: impl FnMut(ObjectId)) -> Result<()> {
        for shelf in 0..=u8::MAX {
            self.list(&format!("data/{shelf:02x}"), |name| {
                object_of(name).into_iter().for_each(&mut found);
                Ok(())
            })?;
        }
        Ok(())
    }
}

fn make_folder(root: impl AsFd, folder: &str) -> Result<()> {
    match rustix::fs::mkdirat(root, folder, DIRECTORY_MODE) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(e) => Err(io::os("making a folder of the target")(e)),
    }
}

fn open_folder(root: impl AsFd, folder: &str) -> Result<Option<OwnedFd>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    match io::retry(|| rustix::fs::openat(&root, folder, flags, Mode::empty())) {
        Ok(folder) => Ok(Some(folder)),
        Err(Errno::NOENT) => Ok(None),
        Err(e) => Err(io::os("opening a folder of the target")(e)),
    }
}

/// How often a lock is tried, and how long it is waited for in between: a child that an earlier daemon has forked holds
/// it until it runs another program.
const LOCK_TRIES: usize = 20;
const LOCK_WAIT_NS: u64 = 5_000_000;

fn lock(format: &OwnedFd, how: FlockOperation) -> Result<()> {
    for _ in 0..LOCK_TRIES {
        match rustix::fs::flock(format, how) {
            Ok(()) => return Ok(()),
            Err(Errno::WOULDBLOCK) => seam::sleep(LOCK_WAIT_NS),
            Err(e) => return Err(io::os("locking a target")(e)),
        }
    }
    Err(Error::busy("another daemon has this target open; talk to that one"))
}

/// Writes the format file of a new target. The directory must not hold one that has lost it.
fn new_format(root: &OwnedFd, now: u64) -> Result<OwnedFd> {
    let mut held = false;
    Tree::list_in(root, "data", |_| {
        held = true;
        Ok(())
    })?;
    if held {
        return Err(Error::corrupt(
            "the target's directory has bytes in the folder data but no file format: it is damaged, or no target; \
             restore the file format, or choose another directory",
        ));
    }
    // Before the format file: where it is found, the folders are, too.
    for folder in FOLDERS {
        make_folder(root, folder)?;
    }
    let text = format!("{FORMAT_TITLE}\nversion {FORMAT_VERSION}\nincarnation {now}\n");
    // By way of another name, so that whoever finds the file finds all of it.
    let fresh = format!("{FORMAT}.{now}");
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let made = rustix::fs::openat(root, &fresh, flags, FILE_MODE).map_err(io::os("making a target"))?;
    io::write_all(&made, text.as_bytes(), 0)?;
    io::sync_all(&made)?;
    let flags = rustix::fs::RenameFlags::NOREPLACE;
    let renamed = rustix::fs::renameat_with(root, &fresh, root, FORMAT, flags);
    if let Err(e) = renamed {
        rustix::fs::unlinkat(root, &fresh, AtFlags::empty()).map_err(io::os("making a target"))?;
        if e != Errno::EXIST {
            return Err(io::os("making a target")(e));
        }
        // Somebody else was faster.
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        return rustix::fs::openat(root, FORMAT, flags, Mode::empty()).map_err(io::os("opening a target"));
    }
    io::sync_all(root)?;
    Ok(made)
}

fn parse_format(text: &str) -> Result<u64> {
    let damaged = || Error::corrupt("the format file of a target cannot be read; restore it from a copy of the store");
    let mut lines = text.lines();
    if lines.next() != Some(FORMAT_TITLE) {
        return Err(damaged());
    }
    let mut number = |key: &str| -> Result<u64> {
        let line = lines.next().ok_or_else(damaged)?;
        line.strip_prefix(key).and_then(|n| n.trim().parse().ok()).ok_or_else(damaged)
    };
    let version = number("version ")?;
    if version != u64::from(FORMAT_VERSION) {
        let why = format!("a target of format {version}, this program knows {FORMAT_VERSION}: update the older one");
        return Err(Error::version(why));
    }
    number("incarnation ")
}
