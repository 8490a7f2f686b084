//! Who may do what, by modes and owners: what the kernel checks for the programs of a mount.

use crate::{Attributes, Errno, Kind, Node, Outcome};

/// Wanted: reading a file, listing a directory.
pub(crate) const READ: u32 = 4;
/// Wanted: writing a file, making and removing names of a directory.
pub(crate) const WRITE: u32 = 2;
/// Wanted: running a file, going through a directory.
pub(crate) const EXECUTE: u32 = 1;

/// Sticky directories: only owners take names away.
const STICKY: u32 = 0o1000;

/// A process as far as it is asked what it may do.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Caller {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Further groups.
    pub groups: Vec<u32>,
    /// What nobody gets of the permission bits of what it makes.
    pub umask: u32,
}

impl Caller {
    /// Fails unless this one may do all that is wanted (`R_OK`, `W_OK`, `X_OK` of `access`) with something, of which these are the attributes. Root may, but
    /// does not run what nobody may run.
    pub fn check(&self, node: &Node, attributes: &Attributes, wanted: u32) -> Outcome<()> {
        let mode = attributes.mode;
        // Where the mask lets nobody do anything, Linux does not look into the list.
        let listed = attributes.acl && mode & 0o070 != 0 && ![0, attributes.uid].contains(&self.uid);
        let list = if listed { node.lists(attributes, true)?.access } else { None };
        let may = match list {
            Some(list) => list.lets(self, attributes.gid, wanted),
            None => self.may(attributes, wanted),
        };
        if may { Ok(()) } else { Err(Errno::EACCES) }
    }

    /// The same by the mode alone, as if there were no list.
    pub fn may(&self, attributes: &Attributes, wanted: u32) -> bool {
        let mode = attributes.mode;
        if self.uid == 0 {
            let runs = attributes.kind == Kind::Directory || mode & 0o111 != 0;
            return wanted & EXECUTE == 0 || runs;
        }
        let bits = match () {
            () if self.uid == attributes.uid => mode >> 6,
            () if self.is_in(attributes.gid) => mode >> 3,
            () => mode,
        };
        bits & wanted == wanted
    }

    /// Fails unless what has these attributes is the caller's own, or the caller root.
    pub(crate) fn check_owner(&self, attributes: &Attributes) -> Outcome<()> {
        if self.uid == 0 || self.uid == attributes.uid { Ok(()) } else { Err(Errno::EPERM) }
    }

    /// Whether this one is in a group.
    pub(crate) fn is_in(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }

    /// Whether this one may take any name out of a directory, whatever that is for.
    pub(crate) fn may_remove_all(&self, node: &Node, dir: &Attributes) -> bool {
        let own = self.uid == 0 || dir.uid == self.uid;
        self.check(node, dir, WRITE | EXECUTE).is_ok() && (dir.mode & STICKY == 0 || own)
    }

    /// Fails unless this one may take a name for `what` out of a directory, of which `dir` are the attributes.
    pub(crate) fn check_removal(&self, node: &Node, dir: &Attributes, what: &Attributes) -> Outcome<()> {
        self.check(node, dir, WRITE | EXECUTE)?;
        let own = self.uid == 0 || [dir.uid, what.uid].contains(&self.uid);
        if dir.mode & STICKY == 0 || own { Ok(()) } else { Err(Errno::EPERM) }
    }
}
