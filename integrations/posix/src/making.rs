//! Making something new.

use std::{sync::atomic::Ordering, time::Duration};

use ioverbs::{
    Attr, Collection, Controls, EntryKind, Kind as Failure, Lent, Lifetime, Metadata, Op, Stat, Status, Uuid, Which,
};

use crate::{
    Attributes, Create, Errno, FileSystem, Kind, Node, Outcome,
    fs::{name, stat_of},
};

/// Something new, as it is asked for.
pub(crate) struct New<'a> {
    pub(crate) parent: &'a Node,
    /// None: it has no name yet.
    pub(crate) name: Option<&'a [u8]>,
    pub(crate) kind: Kind,
    pub(crate) born: Create,
    pub(crate) metadata: Metadata,
    /// Its identity, a new one.
    pub(crate) uuid: Uuid,
}

/// Something new.
pub(crate) struct Fresh {
    /// It is open by this, unless it was closed in the same request.
    pub(crate) c: Collection,
    /// How its creation, its attributes and what was done to it besides ended.
    pub(crate) statuses: Vec<Status>,
    /// Its facts as it was made, if they were told.
    stat: Option<Stat>,
    /// How many names had been made where it is not known which there are, before it was made.
    pub(crate) unknown_names: u64,
}

/// What came of making something new.
pub(crate) enum Made {
    /// It is there.
    New(Fresh),
    /// Its name is taken: the facts of what that stands for.
    Taken(Stat),
}

impl FileSystem {
    /// Makes something new; the handle is open. `more` are further operations on it in the same request.
    pub(crate) fn make<'a>(&self, new: New<'_>, more: &dyn Fn(&Collection) -> Vec<Lent<'a>>) -> Outcome<Fresh> {
        match self.make_or_find(new, more)? {
            Made::New(fresh) => Ok(fresh),
            Made::Taken(_) => Err(Errno::EEXIST),
        }
    }

    /// The same; if the name is taken, what that stands for, in the same request.
    pub(crate) fn make_or_find<'a>(&self, new: New<'_>, more: &dyn Fn(&Collection) -> Vec<Lent<'a>>) -> Outcome<Made> {
        self.check_writable()?;
        let directory = new.kind == Kind::Directory;
        let parent = new.parent.group()?;
        let name = new.name.map(name).transpose()?;
        new.name.inspect(|name| new.parent.may_have(name));
        let unknown_names = self.0.unknown_names.load(Ordering::Acquire);
        let kind = if directory { EntryKind::Group } else { EntryKind::Collection };
        let Create { mode, umask, who } = new.born;
        let above = new.parent.attributes_of_parent()?;
        let mut metadata = new.metadata;
        let mut mode = new.parent.born_with(&above, new.kind, (mode & 0o7777, umask), &mut metadata)?;
        // The group belongs to what is made in a directory with set-group-id.
        let inherited = (above.mode & 0o2000 != 0).then_some(above.gid);
        if directory && inherited.is_some() {
            mode |= 0o2000;
        }
        let attr = Attr {
            mode: Some(if directory || new.kind == Kind::File { mode } else { mode | new.kind.bits() }),
            uid: Some(who.uid),
            gid: Some(inherited.unwrap_or(who.gid)),
            // What dies without a name goes with this process.
            lifetime: (name.is_none() && !directory).then_some(Lifetime::PROCESS),
            ..Attr::default()
        };
        let controls = if directory { Controls::default() } else { self.controls(new.parent, new.name)? };
        let uuid = new.uuid;
        let run = |out: &Collection, first: [Op; 2]| {
            let statuses = self.try_all(first.into_iter().map(Lent::from).chain(more(out)).collect())?;
            let Some(e) = statuses.iter().find_map(|status| status.result().err()) else {
                return Ok((Made::New(Fresh { c: out.clone(), statuses, stat: None, unknown_names }), out.take_told()));
            };
            // Unless it is what an attempt has made that was not answered.
            let other = out.take_told().filter(|told| e.kind() == Failure::Exists && told.stat.uuid != uuid);
            other.map_or(Err(e), |told| Ok((Made::Taken(told.stat), None)))
        };
        let (made, perhaps) = self.once(|| {
            let out = self.workspace().pending_as_told(kind, uuid);
            let (parent, name) = (Some(parent.clone()), name.clone());
            let (metadata, controls) = (metadata.clone(), controls.clone());
            let create = Op::Create { out: out.clone(), parent, name, metadata, controls };
            run(&out, [create, Op::SetAttr { c: out.clone(), attr: attr.clone() }])
        });
        let made = match made {
            // By an attempt that was not answered, it seems.
            Err(e) if perhaps && e.kind() == Failure::Exists => {
                let out = self.workspace().pending(kind);
                let which = Which::Uuid(uuid);
                let open = Op::Open { out: out.clone(), parent: None, which, controls: Controls::default() };
                run(&out, [open, Op::Stat { c: out.clone() }]).map_err(|_| e)
            }
            other => other,
        };
        let (mut made, told) = made.map_err(|e| {
            new.parent.untell();
            match e.kind() {
                // There are no deeper directories.
                Failure::TooBig if directory => Errno::ENAMETOOLONG,
                _ => self.errno("create", &e),
            }
        })?;
        if let Made::New(fresh) = &mut made {
            // What that makes of the directory comes along.
            let (stat, group) = told.map_or((None, None), |told| (Some(told.stat), told.group));
            fresh.stat = stat;
            new.parent.tell_of(group.as_ref());
        }
        Ok(made)
    }

    /// The attributes that something new was made with.
    pub(crate) fn attributes_of(&self, fresh: &mut Fresh) -> Outcome<Attributes> {
        let stat = match (fresh.stat.take(), fresh.c.uuid()) {
            (Some(stat), _) => stat,
            (None, Err(e)) => return Err(self.errno("stat", &e)),
            (None, Ok(uuid)) => {
                let look = || Op::Look {
                    w: self.workspace().clone(),
                    parent: None,
                    which: Which::Uuid(uuid),
                    ahead: 0,
                    tell: 0,
                };
                stat_of(Some(&self.again("stat", || ioverbs::run(self.session(), look()))?))?.clone()
            }
        };
        self.attributes(&stat)
    }
}

impl Node {
    /// The attributes of a directory in which something is made.
    fn attributes_of_parent(&self) -> Outcome<Attributes> {
        // As it was told last, since whoever makes something has looked the way to it.
        self.told_within(Duration::MAX).map_or_else(|| self.attributes(), |(told, _)| Ok(told))
    }
}
