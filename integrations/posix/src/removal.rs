//! Names that are taken away.

use std::sync::atomic::Ordering;

use ioverbs::{Clause, EntryKind, Kind as Failure, Op, Output, Uuid, Which, catalog::Removed};

use crate::{
    Errno, FileSystem, Kind, Node, Outcome,
    names::known,
    unsure::{Became, Stands},
};

/// What had a name that was taken away.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gone {
    /// Its identity; nil where the store's daemon was killed before it had told.
    pub uuid: Uuid,
    /// What it is.
    pub kind: Kind,
    /// The names that are left to it. Without any, it goes once nobody has it open.
    pub links: u32,
}

impl FileSystem {
    /// Takes a name away, and with the last one what it stands for, once nobody has it open. What stands there is a file:
    /// the caller has looked.
    pub fn unlink(&self, parent: &Node, bytes: &[u8]) -> Outcome<()> {
        match self.unlink_file(parent, bytes)? {
            Some(_) => Ok(()),
            None => self.remove(parent, bytes),
        }
    }

    /// The same, of what nobody has looked at, in one request: `EISDIR` for a directory. `None`: the store does not know how.
    pub(crate) fn unlink_file(&self, parent: &Node, bytes: &[u8]) -> Outcome<Option<Gone>> {
        self.take_name(parent, bytes, false)
    }

    /// The same of an empty `directory`, and `ENOTDIR` for a file.
    fn take_name(&self, parent: &Node, bytes: &[u8], directory: bool) -> Outcome<Option<Gone>> {
        self.check_writable()?;
        let (group, name) = (parent.group()?, known(bytes)?);
        if parent.has_not(bytes) {
            return Err(Errno::ENOENT);
        }
        if self.0.looks_first.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let is_other = |e: &ioverbs::Error| e.kind() == Failure::Invalid && e.clause() == Some(Clause::O10);
        let _going = self.names_go();
        parent.names_change();
        let verb = if directory { "delete" } else { "unlink" };
        // Another one may have got the name by the second time.
        let became = |begun_ns| {
            Ok(match self.stands(parent, &name, begun_ns)? {
                Stands::Free => Became::Done,
                Stands::AsBefore => Became::Nothing,
                Stands::Changed => Became::Unsure,
            })
        };
        let remove = || {
            let (w, parent) = (self.workspace().clone(), Some(group.clone()));
            let ended = ioverbs::run(self.session(), Op::Unlink { w, parent, name: name.clone(), group: directory });
            match ended.map(|status| status.output) {
                Ok(Output::Removed(removed)) => Ok(Ok(*removed)),
                Ok(_) => Err(ioverbs::Error::internal("a name was removed, and nothing is said of it")),
                Err(e) if is_other(&e) || e.kind() == Failure::Version => Ok(Err(e)),
                Err(e) => Err(e),
            }
        };
        let done = self.once_for_sure(verb, remove, &became);
        self.names_changed();
        let entry = if directory { EntryKind::Group } else { EntryKind::Collection };
        let done = done.inspect_err(|_| {
            // It may have gone all the same.
            parent.untell();
            self.0.changes.fetch_add(1, Ordering::AcqRel);
        })?;
        let Removed { uuid, mode, links, group } = match done {
            None => {
                parent.untell();
                self.0.changes.fetch_add(1, Ordering::AcqRel);
                // Of what it was nothing has been told.
                return Ok(Some(Gone { uuid: Uuid::NIL, kind: Kind::of(entry, 0), links: 1 }));
            }
            Some(Ok(removed)) => removed,
            Some(Err(e)) if is_other(&e) => return Err(if directory { Errno::ENOTDIR } else { Errno::EISDIR }),
            Some(Err(_)) => {
                self.0.looks_first.store(true, Ordering::Relaxed);
                return Ok(None);
            }
        };
        parent.tell_of(group.as_ref());
        let gone = Gone { uuid, kind: Kind::of(entry, mode), links };
        // It may have other names, and be open here.
        self.touch(uuid);
        if gone.kind != Kind::File && (directory || links == 0) {
            let node = self.node(uuid, gone.kind);
            node.removed.store(true, Ordering::Relaxed);
            node.untell();
        }
        Ok(Some(gone))
    }

    /// Removes an empty directory.
    pub fn rmdir(&self, parent: &Node, bytes: &[u8]) -> Outcome<()> {
        match bytes {
            b"." => Err(Errno::EINVAL),
            b".." => Err(Errno::ENOTEMPTY),
            _ => match self.take_name(parent, bytes, true)? {
                Some(_) => Ok(()),
                None => self.remove(parent, bytes),
            },
        }
    }

    /// Removes what a store of an older release cannot compare with what it is taken for: the caller has looked.
    fn remove(&self, parent: &Node, bytes: &[u8]) -> Outcome<()> {
        self.check_writable()?;
        let which = Which::Name(known(bytes)?);
        let group = parent.group()?;
        let _going = self.names_go();
        let delete = || Op::Delete { w: self.workspace().clone(), parent: Some(group.clone()), which: which.clone() };
        // Another one may have got the name by the second time.
        let done = parent.rename_in("delete", &[], (&delete, &|_| Ok(Became::Unsure)), &Vec::new);
        self.names_changed();
        done.map(drop)
    }
}
