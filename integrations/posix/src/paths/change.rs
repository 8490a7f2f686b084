//! What is done to names and attributes at the end of a path, by whoever may.

use std::sync::Arc;

use super::{Follow, Last, Reached, Walker, Way, access};
use crate::{Attributes, Change, Errno, Found, Gone, Kind, Node, Rename, SetTime, SetXattr, acl};

impl Walker<'_> {
    /// The name at the end of a path, and what it stands for, if anything; a symbolic link is not followed.
    pub fn last(&self, from: &Arc<Node>, path: &[u8]) -> Way<(Last, Option<Found>)> {
        match self.walk_to(from, path, Follow::Never)? {
            Reached::Missing(last) => Ok((last, None)),
            Reached::Found { last: Some(last), node, attributes } => Ok((last, Some((node, attributes)))),
            // The root, `.` and `..` are no names.
            Reached::Found { last: None, .. } => Err(Errno::EBUSY.into()),
        }
    }

    /// Fails unless the caller may make names in a directory.
    pub(super) fn may_change(&self, dir: &Arc<Node>) -> Way<()> {
        Ok(self.caller.check(dir, &dir.attributes_lately()?, access::WRITE | access::EXECUTE)?)
    }

    /// The name for something new, which the caller may make. Whether it is free is known when it is made.
    fn new_name(&self, from: &Arc<Node>, path: &[u8], directory: bool) -> Way<Last> {
        match self.walk_to(from, path, Follow::Unseen)? {
            Reached::Found { .. } => Err(Errno::EEXIST.into()),
            Reached::Missing(last) => {
                self.may_make(&last, directory)?;
                Ok(last)
            }
        }
    }

    /// Fails unless the caller may make something of this name. That it is there already is said first.
    pub(super) fn may_make(&self, last: &Last, directory: bool) -> Way<()> {
        let why = match self.may_change(&last.parent) {
            Ok(()) if last.slash && !directory => Errno::ENOENT.into(),
            Ok(()) => return Ok(()),
            Err(why) => why,
        };
        match self.fs.lookup(&last.parent, &last.name) {
            Ok(_) => Err(Errno::EEXIST.into()),
            Err(Errno::ENOENT) => Err(why),
            Err(e) => Err(e.into()),
        }
    }

    /// Something was made: what was remembered of its name does not hold.
    pub(super) fn made<T>(&self, last: &Last, made: crate::Outcome<T>) -> Way<T> {
        self.paths.forget(last);
        Ok(made?)
    }

    /// `mkdir`.
    pub fn mkdir(&self, from: &Arc<Node>, path: &[u8], mode: u32) -> Way<()> {
        let last = self.new_name(from, path, true)?;
        self.made(&last, self.fs.mkdir(&last.parent, &last.name, self.born(mode & 0o1777))).map(drop)
    }

    /// `mknod`.
    pub fn mknod(&self, from: &Arc<Node>, path: &[u8], kind: Kind, rdev: u64, mode: u32) -> Way<()> {
        let last = self.new_name(from, path, false)?;
        if matches!(kind, Kind::CharDevice | Kind::BlockDevice) && self.caller.uid != 0 {
            return Err(Errno::EPERM.into());
        }
        self.made(&last, self.fs.mknod(&last.parent, &last.name, kind, rdev, self.born(mode))).map(drop)
    }

    /// `symlink`.
    pub fn symlink(&self, from: &Arc<Node>, path: &[u8], target: &[u8]) -> Way<()> {
        if target.is_empty() {
            return Err(Errno::ENOENT.into());
        }
        let last = self.new_name(from, path, false)?;
        self.made(&last, self.fs.symlink(&last.parent, &last.name, target, self.born(0o777))).map(drop)
    }

    /// `link`, to something that was found.
    pub fn link(&self, node: &Arc<Node>, from: &Arc<Node>, path: &[u8]) -> Way<()> {
        let last = self.new_name(from, path, false)?;
        // Only something that is not there says that a directory can have no other name.
        if node.kind() == Kind::Directory && self.last(from, path)?.1.is_some() {
            return Err(Errno::EEXIST.into());
        }
        self.made(&last, self.fs.link(node, &last.parent, &last.name)).map(drop)
    }

    /// `unlink`.
    pub fn unlink(&self, from: &Arc<Node>, path: &[u8]) -> Way<Gone> {
        if let Some(gone) = self.unlink_unseen(from, path)? {
            return Ok(gone);
        }
        let (last, there) = self.last(from, path).map_err(|stop| match stop {
            super::Stop::Failed(Errno::EBUSY) => Errno::EISDIR.into(),
            stop => stop,
        })?;
        let (node, attributes) = there.ok_or(Errno::ENOENT)?;
        self.caller.check_removal(&last.parent, &last.parent.attributes_lately()?, &attributes)?;
        match (node.kind(), last.slash) {
            (Kind::Directory, _) => Err(Errno::EISDIR.into()),
            (_, true) => Err(Errno::ENOTDIR.into()),
            _ => {
                let gone = self.fs.unlink(&last.parent, &last.name);
                // It may have others.
                node.touch();
                self.paths.forget(&last);
                gone?;
                Ok(Gone { uuid: node.uuid(), kind: node.kind(), links: attributes.links.saturating_sub(1) })
            }
        }
    }

    /// The same without looking what it is, where that cannot matter: the caller may take any name out of the directory.
    fn unlink_unseen(&self, from: &Arc<Node>, path: &[u8]) -> Way<Option<Gone>> {
        let Reached::Missing(last) = self.walk_to(from, path, Follow::Unseen)? else { return Ok(None) };
        if last.slash || !self.caller.may_remove_all(&last.parent, &last.parent.attributes_lately()?) {
            return Ok(None);
        }
        let gone = self.fs.unlink_file(&last.parent, &last.name);
        self.paths.forget(&last);
        Ok(gone?)
    }

    /// The directory of the last name of a path, which the caller may look into.
    pub(super) fn directory_of_last(&self, from: &Arc<Node>, path: &[u8]) -> Way<Arc<Node>> {
        let end = path.iter().rposition(|b| *b != b'/').map_or(0, |at| at + 1);
        let begin = path[..end].iter().rposition(|b| *b == b'/').map_or(0, |at| at + 1);
        let dir = if begin == 0 { &b"."[..] } else { &path[..begin] };
        let (dir, attributes) = self.find(from, dir, true)?;
        if dir.kind() != Kind::Directory {
            return Err(Errno::ENOTDIR.into());
        }
        self.caller.check(&dir, &attributes, access::EXECUTE)?;
        Ok(dir)
    }

    /// `rmdir`.
    pub fn rmdir(&self, from: &Arc<Node>, path: &[u8]) -> Way<()> {
        let end = path.iter().rposition(|b| *b != b'/').map_or(0, |at| at + 1);
        let name = path[..end].rsplit(|b| *b == b'/').next().unwrap_or_default();
        let never = match name {
            b"." => Some(Errno::EINVAL),
            b".." => Some(Errno::ENOTEMPTY),
            _ => None,
        };
        if let Some(never) = never {
            // What is wrong with the way there is said first.
            self.directory_of_last(from, path)?;
            return Err(never.into());
        }
        let (last, there) = self.last(from, path)?;
        let (node, attributes) = there.ok_or(Errno::ENOENT)?;
        self.caller.check_removal(&last.parent, &last.parent.attributes_lately()?, &attributes)?;
        if node.kind() != Kind::Directory {
            return Err(Errno::ENOTDIR.into());
        }
        let gone = self.fs.rmdir(&last.parent, &last.name);
        node.touch();
        self.paths.forget(&last);
        Ok(gone?)
    }

    /// The name at the end of a path, which nobody has looked at; none: it ends with the root, `.` or `..`.
    pub fn name(&self, from: &Arc<Node>, path: &[u8]) -> Way<Option<Last>> {
        Ok(match self.walk_to(from, path, Follow::Unseen)? {
            Reached::Missing(last) => Some(last),
            Reached::Found { .. } => None,
        })
    }

    /// `rename`, of two names in this file system. What is wrong with the names is said in the order of Linux, for who may change both directories.
    pub fn rename(&self, from: Option<&Last>, to: Option<&Last>, how: Rename) -> Way<()> {
        let from = from.ok_or(Errno::EBUSY)?;
        let to = to.ok_or(if how == Rename::NoReplace { Errno::EEXIST } else { Errno::EBUSY })?;
        let (node, attributes) = self.look(from, true)?;
        let there = match self.look(to, true) {
            Err(Errno::ENOENT) => None,
            there => Some(there?),
        };
        let directory = node.kind() == Kind::Directory;
        let is_dir = there.as_ref().is_some_and(|(other, _)| other.kind() == Kind::Directory);
        match (&there, how) {
            (Some(_), Rename::NoReplace) => return Err(Errno::EEXIST.into()),
            (None, Rename::Exchange) => return Err(Errno::ENOENT.into()),
            (Some(_), Rename::Exchange) if !is_dir && to.slash => return Err(Errno::ENOTDIR.into()),
            _ if !directory && (from.slash || (to.slash && how != Rename::Exchange)) => {
                return Err(Errno::ENOTDIR.into());
            }
            _ => {}
        }
        // Two names of one file: nothing happens.
        if there.as_ref().is_some_and(|(other, _)| other.is(&node)) {
            return Ok(());
        }
        self.caller.check_removal(&from.parent, &from.parent.attributes_lately()?, &attributes)?;
        let to_dir = to.parent.attributes_lately()?;
        match &there {
            Some((_, attributes)) => self.caller.check_removal(&to.parent, &to_dir, attributes)?,
            None => self.caller.check(&to.parent, &to_dir, access::WRITE | access::EXECUTE)?,
        }
        if let Some((other, _)) = &there
            && how == Rename::Replace
            && directory != is_dir
        {
            // Neither could be within the other, whatever they are.
            let is_above =
                |one: &Arc<Node>, of: &Last| of.parent.is(one) || of.parent.above().any(|above| above.is(one));
            return Err(match directory {
                true if is_above(&node, to) => Errno::EINVAL,
                true => Errno::ENOTDIR,
                false if is_above(other, from) => Errno::ENOTEMPTY,
                false => Errno::EISDIR,
            }
            .into());
        }
        // Its own `..` changes.
        if !from.parent.is(&to.parent) {
            let exchanged = there.as_ref().filter(|_| is_dir && how == Rename::Exchange);
            let moved = directory.then_some((&node, &attributes));
            for (node, attributes) in moved.into_iter().chain(exchanged.map(|(node, there)| (node, there))) {
                self.caller.check(node, attributes, access::WRITE)?;
            }
        }
        let moved = self.fs.rename((&from.parent, &from.name), (&to.parent, &to.name), how);
        node.touch();
        there.inspect(|(other, _)| other.touch());
        self.paths.forget(from);
        self.paths.forget(to);
        Ok(moved?)
    }

    /// `chmod`, `chown`, `truncate` and `utimens`, of something that was found.
    pub fn change(&self, node: &Arc<Node>, change: &Change) -> Way<Attributes> {
        let attributes = node.attributes()?;
        let mut change = *change;
        let Change { mode, uid, gid, size, atime, mtime } = change;
        if let Some(mode) = mode {
            self.caller.check_owner(&attributes)?;
            // Who is not in its group gives nobody the rights of it.
            let lowers = self.caller.uid != 0 && !self.caller.is_in(attributes.gid);
            change.mode = Some(if lowers { mode & !0o2000 } else { mode });
        }
        let root = self.caller.uid == 0;
        if uid.is_some_and(|uid| !root && (uid != attributes.uid || uid != self.caller.uid)) {
            return Err(Errno::EPERM.into());
        }
        if let Some(gid) = gid.filter(|_| !root) {
            self.caller.check_owner(&attributes)?;
            if gid != attributes.gid && !self.caller.is_in(gid) {
                return Err(Errno::EPERM.into());
            }
        }
        if size.is_some() {
            self.caller.check(node, &attributes, access::WRITE)?;
            if !root {
                node.lower_rights()?;
            }
        }
        let times = [atime, mtime];
        if times.iter().flatten().next().is_some() && self.caller.check_owner(&attributes).is_err() {
            // Who may write it may say that it was used now.
            match times {
                [Some(SetTime::Now), Some(SetTime::Now)] => self.caller.check(node, &attributes, access::WRITE)?,
                _ => return Err(Errno::EPERM.into()),
            }
        }
        Ok(node.change(&change)?)
    }

    /// Sets an attribute.
    pub fn set_xattr(&self, node: &Arc<Node>, name: &[u8], bytes: &[u8], how: SetXattr) -> Way<()> {
        self.may_xattr(node, name, true)?;
        node.set_xattr(name, bytes, how)?;
        // Who is not in its group gives nobody the rights of it.
        if name == acl::ACCESS && self.caller.uid != 0 && !self.caller.is_in(node.attributes()?.gid) {
            node.take_group_right()?;
        }
        Ok(())
    }

    /// Fails unless the caller may set an attribute, or, for looking at it, may read it.
    pub fn may_xattr(&self, node: &Arc<Node>, name: &[u8], sets: bool) -> Way<()> {
        if acl::is_list(name) {
            // Everybody may see who may do what.
            let attributes = if sets { node.attributes()? } else { return Ok(()) };
            return Ok(self.caller.check_owner(&attributes)?);
        }
        if !name.starts_with(b"user.") {
            return Err(Errno::EOPNOTSUPP.into());
        }
        // As Linux has it: rights of links, pipes and devices are not those of files, and say nothing of who may.
        match node.kind() {
            crate::Kind::File | crate::Kind::Directory => {}
            _ => return Err(if sets { Errno::EPERM } else { Errno::ENODATA }.into()),
        }
        let wanted = if sets { access::WRITE } else { access::READ };
        Ok(self.caller.check(node, &node.attributes()?, wanted)?)
    }
}
