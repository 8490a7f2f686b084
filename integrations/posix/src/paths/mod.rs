//! Paths, for front doors whose programs the kernel does not walk for: the way to a file, who may go it, and what is done there.
//!
//! A way may lead out of the workspace, by `..` above its root or by a symbolic link to an absolute path. Then it ends with
//! [`Stop::Leaves`], and the front door goes on from there.

mod access;
mod ahead;
mod change;
mod known;
mod open;

use std::sync::{Arc, atomic::Ordering};

use ioverbs::Uuid;

pub use access::Caller;
pub use open::{How, Opened};

use crate::{Attributes, Directory, Errno, FileSystem, Found, Kind, Level, Node, fs::lock};
use known::{Asked, Known};

/// Symbolic links in one path, at most, as on Linux.
const LINKS: usize = 40;
/// Longest path, without its end, as on Linux.
const PATH: usize = 4095;

/// Why a way ends before its end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Stop {
    /// It fails.
    Failed(Errno),
    /// It leaves the workspace: at an absolute path, or at one that goes on from the directory above the root.
    Leaves(Vec<u8>),
}

impl From<Errno> for Stop {
    fn from(errno: Errno) -> Stop {
        Stop::Failed(errno)
    }
}

/// What a way comes to.
pub type Way<T> = std::result::Result<T, Stop>;

/// A name in a directory.
#[derive(Clone, Debug)]
pub struct Last {
    /// The directory.
    pub parent: Arc<Node>,
    /// The name.
    pub name: Vec<u8>,
    /// A slash stands behind it: it is to be a directory.
    pub slash: bool,
}

/// Where a way ends.
#[derive(Clone, Debug)]
pub enum Reached {
    /// At something.
    Found {
        /// What that is.
        node: Arc<Node>,
        /// Its attributes as of now.
        attributes: Attributes,
        /// Under which name it was found; none: it is the root, or was reached by `.` or `..`.
        last: Option<Last>,
    },
    /// At a directory that does not have the last name.
    Missing(Last),
}

/// The paths of a file system.
pub struct Paths {
    fs: FileSystem,
    /// Kept, with what is known of it: all ways from the top begin here.
    _root: Arc<Node>,
    /// What was found a moment ago.
    known: Known,
}

impl Paths {
    /// Those of `fs`.
    pub fn new(fs: FileSystem) -> Paths {
        Paths { _root: fs.root(), fs, known: Known::default() }
    }

    /// The file system.
    pub fn file_system(&self) -> &FileSystem {
        &self.fs
    }

    /// Goes its ways on behalf of somebody.
    pub fn walker<'a>(&'a self, caller: &'a Caller) -> Walker<'a> {
        Walker { paths: self, fs: &self.fs, caller }
    }

    /// A program reads a directory, and may look at its entries next.
    pub fn reads(&self, dir: &Directory) {
        if !self.fs.0.options.unseen.is_zero() || self.fs.since().is_some() {
            self.known.reads(dir);
        }
    }

    /// A program has opened a file to read it, and may do so with others of its directory.
    pub fn opened(&self, node: &Node) {
        let found_in = *lock(&node.found_in);
        if let Some(dir) = found_in {
            self.known.ahead.was_opened(dir);
        }
    }

    /// Whoever has got a lock sees what was done under it elsewhere: nothing that was found before holds.
    pub fn refresh(&self) {
        self.known.clear();
        self.fs.untell_all();
    }

    /// What a name stands for as of now: as it is remembered where that is known to hold, else as the store says. Nothing that
    /// others do is unseen.
    pub fn lookup(&self, parent: &Arc<Node>, name: &[u8]) -> crate::Outcome<Found> {
        let last = Last { parent: parent.clone(), name: name.to_vec(), slash: false };
        self.known.held(&last).map_or_else(|| self.ask(&last, false), |recalled| recalled.ok_or(Errno::ENOENT))
    }

    /// The answer is remembered for as long as it holds; with `lately`, also where that is not known, for as long as what others do
    /// may stay unseen.
    fn ask(&self, last: &Last, lately: bool) -> crate::Outcome<Found> {
        // Also in a directory that is known to be empty, and so has no such name.
        if last.name.len() > ioverbs::limits::NAME_BYTES {
            return Err(Errno::ENAMETOOLONG);
        }
        if last.parent.has_not(&last.name) {
            // As far as is known here: the catalog has not said so.
            return Err(Errno::ENOENT);
        }
        let asked = Asked::now(&self.fs);
        let remembers = asked.is_told() || (lately && !self.fs.0.options.unseen.is_zero());
        let (ahead, tell) = if remembers { self.known.ahead.wanted(&last.parent) } else { (0, 0) };
        // What is told of bytes holds as long as the catalog says so.
        let tell = if asked.is_told() && self.fs.level() == Level::Session { tell } else { 0 };
        let (found, behind) = match self.fs.look_ahead(&last.parent, &last.name, (ahead, tell)) {
            Err(e) => {
                if e == Errno::ENOENT {
                    self.known.put_missing(last, &asked);
                }
                return Err(e);
            }
            Ok(looked) => looked,
        };
        if remembers {
            self.known.put(last, &found, found.0.touched(), &asked);
            self.known.put_behind(&last.parent, behind, &asked);
        }
        Ok(found)
    }

    /// A name does not stand any more for what it stood for.
    fn forget(&self, last: &Last) {
        self.known.forget(last);
    }
}

/// Whether a symbolic link at the end of a path is followed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Follow {
    /// It is.
    Always,
    /// Where a slash stands behind it.
    ToDirectory,
    /// It is not: a name is moved or taken away.
    Never,
    /// Nobody looks what is there: a name is made.
    Unseen,
}

/// Goes ways in a file system, on behalf of somebody.
#[derive(Clone, Copy)]
pub struct Walker<'a> {
    paths: &'a Paths,
    pub(crate) fs: &'a FileSystem,
    caller: &'a Caller,
}

impl Walker<'_> {
    /// The way of a path that begins in a directory; `follow`: a symbolic link at its end is followed.
    pub fn walk(&self, from: &Arc<Node>, path: &[u8], follow: bool) -> Way<Reached> {
        self.walk_to(from, path, if follow { Follow::Always } else { Follow::ToDirectory })
    }

    fn walk_to(&self, from: &Arc<Node>, path: &[u8], follow: Follow) -> Way<Reached> {
        if path.len() > PATH {
            return Err(Errno::ENAMETOOLONG.into());
        }
        let (mut dir, mut links) = (from.clone(), 0);
        let mut rest = path.to_vec();
        let mut reached: Option<Reached> = None;
        loop {
            // The next name, and whether anything but slashes comes behind it.
            let start = rest.iter().position(|b| *b != b'/').unwrap_or(rest.len());
            if start == rest.len() {
                return match reached {
                    Some(reached) => Ok(reached),
                    None => self.found(dir, None),
                };
            }
            let end = rest[start..].iter().position(|b| *b == b'/').map_or(rest.len(), |n| start + n);
            let (name, slash) = (rest[start..end].to_vec(), end < rest.len());
            rest.drain(..end);
            let is_last = rest.iter().all(|b| *b == b'/');
            self.may_search(&dir)?;
            match &name[..] {
                b"." => {
                    reached = None;
                    continue;
                }
                b".." => {
                    reached = None;
                    let unseen = dir.file_system().0.options.unseen;
                    dir.file_system().place_anew(&dir, 1, unseen)?;
                    match dir.parent() {
                        Some(parent) => dir = parent,
                        None if dir.uuid().is_nil() => {
                            return Err(Stop::Leaves(rest.iter().copied().skip_while(|b| *b == b'/').collect()));
                        }
                        // Nobody knows any more where it is.
                        None => return Err(Errno::ENOENT.into()),
                    }
                    continue;
                }
                _ => {}
            }
            let last = Last { parent: dir.clone(), name, slash };
            if is_last && follow == Follow::Unseen {
                return Ok(Reached::Missing(last));
            }
            let (node, attributes) = match self.look(&last, is_last) {
                Err(Errno::ENOENT) if is_last => return Ok(Reached::Missing(last)),
                found => found?,
            };
            match node.kind() {
                Kind::Symlink if !is_last || follow == Follow::Always || (slash && follow == Follow::ToDirectory) => {
                    links += 1;
                    if links > LINKS {
                        return Err(Errno::ELOOP.into());
                    }
                    let mut target = match node.read_link() {
                        // Another one has its name by now, or will have.
                        Err(Errno::ENOENT | Errno::ESTALE) if links < LINKS => {
                            self.paths.forget(&last);
                            rest.splice(0..0, last.name);
                            reached = None;
                            continue;
                        }
                        target => target?,
                    };
                    // Each by itself is no longer than a path may be.
                    if target.len() > PATH {
                        return Err(Errno::ENAMETOOLONG.into());
                    }
                    target.extend_from_slice(&rest);
                    if target.first() == Some(&b'/') {
                        return Err(Stop::Leaves(target));
                    }
                    rest = target;
                    reached = None;
                }
                Kind::Directory => {
                    dir = node.clone();
                    reached = Some(Reached::Found { node, attributes, last: Some(last) });
                }
                Kind::Symlink => return Ok(Reached::Found { node, attributes, last: Some(last) }),
                _ if !is_last || slash => return Err(Errno::ENOTDIR.into()),
                _ => return Ok(Reached::Found { node, attributes, last: Some(last) }),
            }
        }
    }

    /// What is at the end of a path.
    pub fn find(&self, from: &Arc<Node>, path: &[u8], follow: bool) -> Way<(Arc<Node>, Attributes)> {
        match self.walk(from, path, follow)? {
            Reached::Found { node, attributes, .. } => Ok((node, attributes)),
            Reached::Missing(_) => Err(Errno::ENOENT.into()),
        }
    }

    fn found(&self, node: Arc<Node>, last: Option<Last>) -> Way<Reached> {
        let attributes = node.attributes()?;
        Ok(Reached::Found { node, attributes, last })
    }

    fn may_search(&self, dir: &Arc<Node>) -> Way<()> {
        let lately = dir.attributes_lately().or_else(|e| match e {
            // It was removed: from there it goes up all the same.
            Errno::ENOENT | Errno::ESTALE => dir.told_at_the_end().ok_or(e),
            e => Err(e),
        });
        Ok(self.caller.check(dir, &lately?, access::EXECUTE)?)
    }

    /// What a name stands for; `now`: it is what is asked for, and not gone through.
    fn look(&self, last: &Last, now: bool) -> crate::Outcome<Found> {
        let known = &self.paths.known;
        if let Some(recalled) = known.get(last, now) {
            return recalled.ok_or(Errno::ENOENT);
        }
        if let Some(found) = known.look_ahead(last) {
            return Ok(found);
        }
        self.paths.ask(last, true)
    }
}

impl FileSystem {
    /// How much has been changed or opened here.
    fn changes(&self) -> u64 {
        self.0.changes.load(Ordering::Acquire)
    }

    /// What has this identity, for who was handed something open by another process.
    pub fn by_identity(&self, uuid: Uuid) -> crate::Outcome<(Arc<Node>, Attributes)> {
        use ioverbs::{Op, Which};
        let which = Which::Uuid(uuid);
        let status = self.again("open", || {
            let (w, which) = (self.workspace().clone(), which.clone());
            ioverbs::run(self.session(), Op::Look { w, parent: None, which, ahead: 0, tell: 0 })
        })?;
        let attributes = self.attributes(crate::fs::stat_of(Some(&status))?)?;
        let node = self.node(attributes.uuid, attributes.kind);
        node.tell(&attributes);
        Ok((node, attributes))
    }
}

impl Node {
    /// The directory that this one is in, as far as that is known.
    pub fn parent(&self) -> Option<Arc<Node>> {
        self.above().next()
    }

    /// What was told of a directory a moment ago, or is now.
    fn attributes_lately(&self) -> crate::Outcome<Attributes> {
        self.told_lately().map_or_else(|| self.attributes(), Ok)
    }

    /// What was told of a directory a moment ago.
    fn told_lately(&self) -> Option<Attributes> {
        let lately = self.told_within(self.file_system().0.options.unseen).map(|(attributes, _)| attributes);
        lately.or_else(|| self.told_still())
    }

    /// The path of a directory from the root of its file system, which is `/`, as it is now: the store is asked if that was found longer ago
    /// than what others do may stay unseen. Where that cannot be told, it is where it was.
    pub fn path_now(&self) -> Option<Vec<u8>> {
        let _ = self.file_system().place_anew(self, usize::MAX, self.file_system().0.options.unseen);
        self.path()
    }

    /// The path of a directory from the root of its file system, which is `/`, as far as it is known here: nothing is asked. None: nobody
    /// knows where it is.
    pub fn path(&self) -> Option<Vec<u8>> {
        if self.uuid().is_nil() {
            return Some(b"/".to_vec());
        }
        let path = crate::rules::path_of(self);
        let top = self.above().last().is_some_and(|top| top.uuid().is_nil());
        (top && !path.is_empty()).then_some(path)
    }
}
