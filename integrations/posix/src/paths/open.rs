//! `open`, with all that it may be told.

use std::sync::Arc;

use super::{Follow, Last, Reached, Stop, Walker, Way, access, known::Asked};
use crate::{Attributes, Create, Directory, Errno, File, Flags, Kind, Level, Node, Who, names::OpenedOrFound};

/// What `open` is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct How {
    /// Its bytes are read.
    pub read: bool,
    /// Its bytes are written.
    pub write: bool,
    /// `O_APPEND`.
    pub append: bool,
    /// `O_TRUNC`.
    pub truncate: bool,
    /// `O_CREAT`, with these permission bits.
    pub create: Option<u32>,
    /// `O_EXCL`: it must not be there.
    pub exclusive: bool,
    /// `O_DIRECTORY`.
    pub directory: bool,
    /// `O_NOFOLLOW`.
    pub nofollow: bool,
    /// `O_PATH`: nothing is opened.
    pub path: bool,
    /// `O_TMPFILE`, with these permission bits: a file without a name, in this directory.
    pub unnamed: Option<u32>,
    /// Only for its owner (`O_NOATIME`): reading it is not to be noticed.
    pub unseen: bool,
}

/// What was opened.
#[derive(Debug)]
pub enum Opened {
    /// A file.
    File(File, Attributes),
    /// A directory.
    Directory(Directory),
    /// Something that was only found (`O_PATH`).
    Path(Arc<Node>, Attributes),
}

/// How often what was not there and then was is looked at again.
const RACES: usize = 16;

impl Walker<'_> {
    /// Opens what is at the end of a path. The way there and the open have one deadline (O8).
    pub fn open(&self, from: &Arc<Node>, path: &[u8], how: &How) -> Way<Opened> {
        self.paths.fs.in_time(|| self.open_now(from, path, how))
    }

    fn open_now(&self, from: &Arc<Node>, path: &[u8], how: &How) -> Way<Opened> {
        if how.create.is_some() && how.directory && how.unnamed.is_none() && !how.path {
            // As Linux since 6.4: nothing is made that is no directory.
            return Err(Errno::EINVAL.into());
        }
        if how.create.is_some() && path.ends_with(b"/") && path.iter().any(|b| *b != b'/') {
            // What is wrong with the way there is said first.
            self.directory_of_last(from, path)?;
            return Err(Errno::EISDIR.into());
        }
        if let Some(mode) = how.unnamed {
            return self.open_unnamed(from, path, mode, how);
        }
        if let (Some(mode), true, false) = (how.create, how.exclusive, how.path) {
            return match self.walk_to(from, path, Follow::Unseen)? {
                Reached::Found { .. } => Err(Errno::EEXIST.into()),
                Reached::Missing(last) => self.create(&last, mode, how),
            };
        }
        let (mut from, mut path) = (from.clone(), path.to_vec());
        if !how.path
            && !how.directory
            && let Reached::Missing(last) = self.walk_to(&from, &path, Follow::Unseen)?
        {
            if let Some(opened) = self.open_at_once(&last, how)? {
                return Ok(opened);
            }
            // The way to there has been gone.
            (from, path) = (last.parent, last.name);
            path.extend(last.slash.then_some(b'/'));
        }
        for _ in 0..RACES {
            match self.walk(&from, &path, !how.nofollow)? {
                Reached::Found { node, mut attributes, last } => {
                    if let Some(last) = last.as_ref().filter(|_| node.may_come_along(&attributes))
                        && self.come_along(last, how)
                        && let Ok((again, now)) = self.paths.ask(last, true)
                        && again.is(&node)
                    {
                        attributes = now;
                    }
                    match (self.open_found(&node, attributes, how), last) {
                        // It went since it was looked at: another may have the name, or may get it.
                        (Err(Stop::Failed(Errno::ENOENT | Errno::ESTALE)), Some(last)) => self.paths.forget(&last),
                        (opened, _) => return opened,
                    }
                }
                Reached::Missing(last) => {
                    let Some(mode) = how.create.filter(|_| !how.path) else { return Err(Errno::ENOENT.into()) };
                    match self.create(&last, mode, how) {
                        Err(Stop::Failed(Errno::EEXIST)) => {}
                        made => return made,
                    }
                }
            }
        }
        Err(Errno::EIO.into())
    }

    /// Opens, or makes, in one request what nothing is known of. `None`: that has to be looked at first.
    fn open_at_once(&self, last: &Last, how: &How) -> Way<Option<Opened>> {
        if last.name.len() > ioverbs::limits::NAME_BYTES {
            return Err(Errno::ENAMETOOLONG.into());
        }
        let known = &self.paths.known;
        let writes = how.write || how.truncate || how.create.is_some();
        let looks = last.slash || (writes && self.fs.check_writable().is_err());
        if looks || known.get(last, true).is_some() || known.look_ahead(last).is_some() {
            return Ok(None);
        }
        let Some(mode) = how.create else {
            if last.parent.has_not(&last.name) {
                return Err(Errno::ENOENT.into());
            }
            let asked = Asked::now(self.fs);
            // Several at once, and their bytes, where a program reads one file of a directory after the other.
            if self.come_along(last, how) {
                self.paths.ask(last, true)?;
                return Ok(None);
            }
            let opened = self.fs.open_by_name(&last.parent, &last.name, flags(how));
            if opened.as_ref().is_err_and(|e| *e == Errno::ENOENT) {
                known.put_missing(last, &asked);
            }
            let Some((file, mut attributes)) = opened? else { return Ok(None) };
            if how.read && !how.truncate {
                known.ahead.was_asked(&last.parent);
                self.paths.opened(file.node());
            }
            if !writes {
                known.put_opened(last, &(file.node().clone(), attributes), &asked);
            }
            self.may_open(file.node(), &attributes, how)?;
            file.begin(&mut attributes)?;
            self.opened(file.node(), how)?;
            return Ok(Some(Opened::File(file, attributes)));
        };
        if self.may_change(&last.parent).is_err() {
            return Ok(None);
        }
        let made = self.fs.create_or_find(&last.parent, &last.name, self.born(mode), flags(how));
        if made.as_ref().is_err_and(|e| matches!(*e, Errno::EEXIST | Errno::ESTALE)) {
            // It is there, but could not be looked at, or was: why not is said by who looks again.
            return Ok(None);
        }
        match made? {
            OpenedOrFound::Made(file, attributes) => {
                self.paths.forget(last);
                Ok(Some(Opened::File(file, attributes)))
            }
            OpenedOrFound::Found((node, _)) if node.kind() == Kind::Symlink && !how.nofollow => Ok(None),
            OpenedOrFound::Found((node, attributes)) => match self.open_found(&node, attributes, how) {
                // It went since.
                Err(Stop::Failed(Errno::ENOENT | Errno::ESTALE)) => Ok(None),
                opened => opened.map(Some),
            },
        }
    }

    /// Whether to ask for several files of a directory at once, with their bytes: a program reads one after the other.
    fn come_along(&self, last: &Last, how: &How) -> bool {
        let reads = how.read && !how.truncate && !how.path && how.create.is_none();
        reads
            && self.fs.level() == Level::Session
            && self.fs.since().is_some()
            && matches!(self.paths.known.ahead.wanted(&last.parent), (1.., 1..))
    }

    fn may_open(&self, node: &Node, attributes: &Attributes, how: &How) -> Way<()> {
        if how.unseen {
            self.caller.check_owner(attributes)?;
        }
        let writes = how.write || how.truncate;
        let wanted = if how.read { access::READ } else { 0 } | if writes { access::WRITE } else { 0 };
        Ok(self.caller.check(node, attributes, wanted)?)
    }

    /// A file was opened.
    fn opened(&self, node: &Arc<Node>, how: &How) -> Way<()> {
        if how.truncate && self.caller.uid != 0 {
            node.lower_rights()?;
        }
        Ok(())
    }

    /// Opens once more what is open, whatever its name is by now.
    pub fn reopen(&self, node: &Arc<Node>, how: &How) -> Way<Opened> {
        self.open_found(node, node.attributes()?, how)
    }

    /// What something new is born with.
    pub(super) fn born(&self, mode: u32) -> Create {
        Create { mode, umask: self.caller.umask, who: Who { uid: self.caller.uid, gid: self.caller.gid } }
    }

    fn create(&self, last: &Last, mode: u32, how: &How) -> Way<Opened> {
        if last.slash {
            return Err(Errno::EISDIR.into());
        }
        self.may_make(last, false)?;
        // Whatever its mode, who makes it has it open as asked for.
        let made = self.fs.create(&last.parent, &last.name, self.born(mode), flags(how));
        let (file, _, attributes) = self.made(last, made)?;
        Ok(Opened::File(file, attributes))
    }

    fn open_unnamed(&self, from: &Arc<Node>, path: &[u8], mode: u32, how: &How) -> Way<Opened> {
        if !how.write {
            return Err(Errno::EINVAL.into());
        }
        let (dir, _) = self.find(from, path, !how.nofollow)?;
        if dir.kind() != Kind::Directory {
            return Err(Errno::ENOTDIR.into());
        }
        self.may_change(&dir)?;
        let (file, _, attributes) = self.fs.create_unnamed(&dir, self.born(mode), flags(how))?;
        if how.exclusive {
            file.set_nameless();
        }
        Ok(Opened::File(file, attributes))
    }

    fn open_found(&self, node: &Arc<Node>, attributes: Attributes, how: &How) -> Way<Opened> {
        if how.directory && node.kind() != Kind::Directory {
            return Err(Errno::ENOTDIR.into());
        }
        if how.path {
            return Ok(Opened::Path(node.clone(), attributes));
        }
        if node.kind() == Kind::Symlink {
            return Err(Errno::ELOOP.into());
        }
        if node.kind() == Kind::Directory {
            if how.write || how.truncate || how.create.is_some() {
                return Err(Errno::EISDIR.into());
            }
            self.may_open(node, &attributes, how)?;
            if node.told_at_the_end().is_none() {
                node.tell(&attributes);
            }
            return Ok(Opened::Directory(Directory::open(node)?));
        }
        self.may_open(node, &attributes, how)?;
        let (file, attributes) = File::open(node, flags(how))?;
        if how.read && !how.truncate {
            self.paths.opened(node);
        }
        self.opened(node, how)?;
        Ok(Opened::File(file, attributes))
    }
}

fn flags(how: &How) -> Flags {
    Flags { write: how.write, append: how.append, truncate: how.truncate, blind: !how.read && how.write }
}
