//! Names: finding, making, moving and removing what they stand for.

use std::sync::{Arc, atomic::Ordering};

use ioverbs::{
    Attr, Collection, Controls, Kind as Failure, Lifetime, Metadata, Name, Op, Output, Stat, Which,
    catalog::{Named, RenameMode},
    seam,
};

use crate::{
    Attributes, Create, Errno, File, FileSystem, Flags, Found, Kind, Node, Outcome, early,
    fs::{name, stat_of},
    making::{Fresh, Made, New},
    remembered::Since,
    unsure::{Became, Stands},
};

#[cfg(test)]
thread_local! {
    /// How long this thread takes from the answer to a lookup on to make something of it.
    pub(crate) static ANSWERED_NS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// What a rename does where the new name is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Rename {
    /// What was there goes.
    #[default]
    Replace,
    /// It fails (`RENAME_NOREPLACE`).
    NoReplace,
    /// The two change places (`RENAME_EXCHANGE`).
    Exchange,
}

/// How often a name is looked at again whose file was replaced before anybody could look at that.
const REPLACED: usize = 100;

/// What stands behind a name that was asked for, and its name.
pub(crate) type Behind = (Found, Vec<u8>);

/// What came of opening a file that is made if there is none.
#[derive(Debug)]
pub enum OpenedOrFound {
    /// It was made, and is open.
    Made(File, Attributes),
    /// Its name was taken already, by this.
    Found(Found),
}

impl FileSystem {
    /// What a name stands for.
    pub fn lookup(&self, parent: &Node, bytes: &[u8]) -> Outcome<Found> {
        self.look_ahead(parent, bytes, (0, 0)).map(|(found, _)| found)
    }

    /// The same, and what up to `ahead` of the names behind it stand for, as far as the catalog can tell that at once. What it tells of
    /// bytes, of files that have no more than `tell`, is kept for who opens them.
    pub(crate) fn look_ahead(&self, parent: &Node, bytes: &[u8], more: (u32, u64)) -> Outcome<(Found, Vec<Behind>)> {
        // What is replaced again and again has gone by the time it is looked at; another one has its name.
        let looked = (0..REPLACED).find_map(|_| self.look_once(parent, bytes, more).transpose());
        looked.unwrap_or(Err(Errno::ENOENT))
    }

    /// The same; none: what was found has gone.
    fn look_once(
        &self,
        parent: &Node,
        bytes: &[u8],
        (ahead, tell): (u32, u64),
    ) -> Outcome<Option<(Found, Vec<Behind>)>> {
        let (group, which) = (parent.group()?, Which::Name(known(bytes)?));
        if parent.has_not(bytes) {
            return Err(Errno::ENOENT);
        }
        let look = || {
            let (w, parent) = (self.workspace().clone(), Some(group.clone()));
            Op::Look { w, parent, which: which.clone(), ahead, tell }
        };
        let (since, closes) = (self.since(), self.closes());
        let status = self.again("lookup", || ioverbs::run(self.session(), look()))?;
        let Output::Looked(entries) = status.output else {
            let found = self.found(stat_of(Some(&status))?, parent, bytes, (since, closes))?;
            return Ok(found.map(|found| (found, Vec::new())));
        };
        let mut entries = entries.into_iter();
        let mut first = entries.next().ok_or(Errno::EIO)?;
        let Some(found) = self.found(&first.stat, parent, bytes, (since.clone(), closes))? else { return Ok(None) };
        if let Some(bytes) = first.bytes.take()
            && !found.0.is_open()
            && self.closes() == closes
        {
            self.keep_bytes(bytes, &self.attributes(&first.stat)?, first.writable, since.clone());
        }
        // The number of a device would have to be asked for, and some names are none to programs.
        let seen = |entry: &Named| {
            let kind = Kind::of(entry.stat.kind, entry.stat.mode);
            !kind.is_device() && !matches!(entry.name.as_bytes(), b"." | b"..")
        };
        let mut behind = Vec::with_capacity(entries.len());
        for mut entry in entries.filter(seen) {
            let attributes = self.attributes(&entry.stat)?;
            let node = self.node(attributes.uuid, attributes.kind);
            // What is known of it here may be of later.
            if !node.is_open() && self.closes() == closes {
                if let Some(bytes) = entry.bytes.take() {
                    self.keep_bytes(bytes, &attributes, entry.writable, since.clone());
                }
                node.tell_since(&attributes, since.clone());
                if node.parent().is_none() {
                    self.placed(&node, parent, entry.name.as_bytes());
                }
                behind.push(((node, attributes), entry.name.as_bytes().to_vec()));
            }
        }
        Ok(Some((found, behind)))
    }

    /// What each of several names stands for, in one request; none: it is not there.
    pub(crate) fn lookup_all<'a>(
        &self,
        parent: &Node,
        names: impl Iterator<Item = &'a [u8]>,
    ) -> Outcome<Vec<Option<Found>>> {
        let group = parent.group()?;
        let names: Vec<(&[u8], Name)> = names.map(|bytes| Ok((bytes, known(bytes)?))).collect::<Outcome<_>>()?;
        let look = |(_, name): &(&[u8], Name)| {
            let (w, parent, which) = (self.workspace().clone(), Some(group.clone()), Which::Name(name.clone()));
            Op::Look { w, parent, which, ahead: 0, tell: 0 }.into()
        };
        let (since, closes) = (self.since(), self.closes());
        let statuses = self.again("lookup", || {
            let statuses = self.try_all(names.iter().map(look).collect())?;
            let mut failed = statuses.iter().filter_map(|status| status.result().err());
            match failed.find(|e| e.kind() != Failure::NotFound) {
                Some(e) => Err(e),
                None => Ok(statuses),
            }
        })?;
        let all = names.iter().zip(&statuses);
        all.map(|((bytes, _), status)| match status.result() {
            Err(_) => Ok(None),
            Ok(()) => match self.found(stat_of(Some(status))?, parent, bytes, (since.clone(), closes))? {
                // Another one has its name by now.
                None => self
                    .lookup(parent, bytes)
                    .map_or_else(|e| if e == Errno::ENOENT { Ok(None) } else { Err(e) }, |found| Ok(Some(found))),
                found => Ok(found),
            },
        })
        .collect()
    }

    /// What is told of a name is known of what it stands for.
    fn noted(&self, stat: &Stat, parent: &Node, bytes: &[u8], since: Option<Since>) -> Outcome<Found> {
        let attributes = self.attributes(stat)?;
        let node = self.node(attributes.uuid, attributes.kind);
        node.tell_since(&attributes, since);
        self.placed(&node, parent, bytes);
        Ok((node, attributes))
    }

    /// What was found under a name, as things were when it was asked for; none: it has gone since.
    fn found(&self, stat: &Stat, parent: &Node, bytes: &[u8], then: (Option<Since>, u64)) -> Outcome<Option<Found>> {
        #[cfg(test)]
        seam::sleep(ANSWERED_NS.get());
        let (node, attributes) = self.noted(stat, parent, bytes, then.0)?;
        // Whoever has it open here may have written what nobody else has been told of yet.
        if node.is_open() || self.closes() != then.1 {
            return match node.attributes() {
                Err(Errno::ENOENT | Errno::ESTALE) => Ok(None),
                attributes => Ok(Some((node, attributes?))),
            };
        }
        Ok(Some((node, attributes)))
    }

    /// Opens a file by its name, in one request. `None`: it is no file, or it is open here already, or cannot be opened so.
    pub fn open_by_name(&self, parent: &Node, bytes: &[u8], flags: Flags) -> Outcome<Option<(File, Attributes)>> {
        let (group, name) = (parent.group()?, known(bytes)?);
        let (since, closes) = (self.since(), self.closes());
        let (c, opened) = self.again("open", || {
            let c = self.workspace().pending_told(early::wanted(flags));
            let (parent, which) = (Some(group.clone()), Which::Name(name.clone()));
            let open = Op::Open { out: c.clone(), parent, which, controls: Controls::default() };
            let opened = self.try_all(vec![open.into()])?.pop();
            let opened = opened.ok_or_else(|| ioverbs::Error::internal("a batch of one ended without it"))?;
            match opened.result() {
                Err(e) if e.kind() == Failure::Unavailable => Err(e),
                opened => Ok((c, opened)),
            }
        })?;
        match opened {
            Err(e) if e.kind() == Failure::NotFound => return Err(self.errno("open", &e)),
            Err(_) => return Ok(None),
            Ok(()) => {}
        }
        let Ok(mut told) = self.told(&c) else { return Ok(None) };
        if Kind::of(told.stat.kind, told.stat.mode) != Kind::File {
            return Ok(None);
        }
        let attributes = self.attributes(&told.stat)?;
        let node = self.node(attributes.uuid, attributes.kind);
        if node.is_open() || self.closes() != closes {
            return Ok(None);
        }
        node.tell_since(&attributes, since.clone());
        self.placed(&node, parent, bytes);
        let early = self.early(&mut told, &attributes, (flags, c.is_writable()), since);
        Ok(Some((File::of_opened(&node, c, flags, early), attributes)))
    }

    /// Makes a file and opens it. Fails with `EEXIST` if the name is taken.
    pub fn create(
        &self,
        parent: &Node,
        bytes: &[u8],
        born: Create,
        flags: Flags,
    ) -> Outcome<(File, Arc<Node>, Attributes)> {
        self.create_file(parent, Some(bytes), born, flags)
    }

    /// The same; if the name is taken, what it stands for, which is not opened. `ESTALE`: that had gone before anybody could look at it.
    pub fn create_or_find(&self, parent: &Node, bytes: &[u8], born: Create, flags: Flags) -> Outcome<OpenedOrFound> {
        let (new, closes) = (self.new_file(parent, Some(bytes), born), self.closes());
        match self.make_or_find(new, &|_| Vec::new())? {
            Made::New(fresh) => {
                let (file, _, attributes) = self.new_open(fresh, flags)?;
                Ok(OpenedOrFound::Made(file, attributes))
            }
            Made::Taken(found) => {
                let found = self.found(&found, parent, bytes, (None, closes))?;
                found.map(OpenedOrFound::Found).ok_or(Errno::ESTALE)
            }
        }
    }

    /// Makes a file without a name and opens it (`O_TMPFILE`): it goes with its last handle, unless it gets one.
    pub fn create_unnamed(&self, parent: &Node, born: Create, flags: Flags) -> Outcome<(File, Arc<Node>, Attributes)> {
        self.create_file(parent, None, born, flags)
    }

    /// The same, as the store has it.
    pub(crate) fn make_unnamed(&self, parent: &Node, born: Create) -> Outcome<Collection> {
        Ok(self.make(self.new_file(parent, None, born), &|_| Vec::new())?.c)
    }

    fn create_file(
        &self,
        parent: &Node,
        name: Option<&[u8]>,
        born: Create,
        flags: Flags,
    ) -> Outcome<(File, Arc<Node>, Attributes)> {
        let new = self.new_file(parent, name, born);
        let made = self.new_open(self.make(new, &|_| Vec::new())?, flags)?;
        if name.is_none() {
            made.0.set_temporary();
        }
        Ok(made)
    }

    fn new_file<'a>(&self, parent: &'a Node, name: Option<&'a [u8]>, born: Create) -> New<'a> {
        let (metadata, uuid) = (Metadata::new(), seam::new_uuid());
        New { parent, name, kind: Kind::File, born, metadata, uuid }
    }

    /// A file that was made and is open, with its facts.
    fn new_open(&self, mut fresh: Fresh, flags: Flags) -> Outcome<(File, Arc<Node>, Attributes)> {
        let attributes = self.attributes_of(&mut fresh)?;
        let node = self.node(attributes.uuid, Kind::File);
        Ok((File::of_new(&node, fresh.c, flags, &attributes), node, attributes))
    }

    /// Makes a directory.
    pub fn mkdir(&self, parent: &Node, bytes: &[u8], born: Create) -> Outcome<(Arc<Node>, Attributes)> {
        let new = New {
            parent,
            name: Some(bytes),
            kind: Kind::Directory,
            born,
            metadata: Metadata::new(),
            uuid: seam::new_uuid(),
        };
        let since = self.since();
        // Nothing is done with it by that handle.
        let mut made = self.make(new, &|c| vec![Op::Close { c: c.clone() }.into()])?;
        let attributes = self.attributes_of(&mut made)?;
        let node = self.node(attributes.uuid, Kind::Directory);
        node.tell(&attributes);
        node.says_nothing();
        node.is_new(since, made.unknown_names);
        self.placed(&node, parent, bytes);
        Ok((node, attributes))
    }

    /// Moves a name.
    pub fn rename(&self, from: (&Node, &[u8]), to: (&Node, &[u8]), rename: Rename) -> Outcome<()> {
        self.check_writable()?;
        let mode = match rename {
            Rename::Replace => RenameMode::ReplaceAlike,
            Rename::NoReplace => RenameMode::NoReplace,
            Rename::Exchange => RenameMode::Exchange,
        };
        let (from_parent, to_parent, from_name, to_name) =
            (from.0.group()?, to.0.group()?, known(from.1)?, name(to.1)?);
        let _going = (mode != RenameMode::NoReplace).then(|| self.names_go());
        to.0.may_have(to.1);
        if mode == RenameMode::Exchange {
            from.0.may_have(from.1);
        }
        let rename = || Op::Rename {
            w: self.workspace().clone(),
            from_parent: Some(from_parent.clone()),
            from: from_name.clone(),
            to_parent: Some(to_parent.clone()),
            to: to_name.clone(),
            mode: match mode {
                RenameMode::ReplaceAlike if self.0.looks_first.load(Ordering::Relaxed) => RenameMode::Replace,
                mode => mode,
            },
        };
        let places: &[(&Node, &[u8])] = if mode == RenameMode::Exchange { &[to, from] } else { &[to] };
        let groups = [&to_parent, &from_parent];
        let look = |(group, (_, bytes)): (&&Collection, &(&Node, &[u8]))| {
            let which = Which::Name(known(bytes).ok()?);
            Some(Op::Look { w: self.workspace().clone(), parent: Some((*group).clone()), which, ahead: 0, tell: 0 })
        };
        let looks = || groups.iter().zip(places).filter_map(look).collect();
        let became = |begun_ns| {
            let stands = (self.stands(from.0, &from_name, begun_ns)?, self.stands(to.0, &to_name, begun_ns)?);
            Ok(match (mode, stands) {
                // What is exchanged is there before and behind it.
                (RenameMode::Exchange, (Stands::AsBefore, Stands::AsBefore)) => Became::Nothing,
                (RenameMode::Exchange, _) => Became::Unsure,
                (_, (Stands::AsBefore, _)) => Became::Nothing,
                (_, (Stands::Free, Stands::Changed)) => Became::Done,
                _ => Became::Unsure,
            })
        };
        let done = from.0.rename_in("rename", &[to.0], (&rename, &became), &looks);
        self.names_changed();
        let is_none = || self.lookup(to.0, to.1).is_ok_and(|(other, _)| other.kind() != Kind::Directory);
        // Where what is there is no directory, the one that is moved is.
        let done = done.map_err(|e| if e == Errno::EISDIR && is_none() { Errno::ENOTDIR } else { e });
        for (looked, place) in done?.iter().zip(places) {
            self.moved(*place, looked);
        }
        Ok(())
    }

    /// What is known of the names of files does not hold any more.
    pub(crate) fn names_changed(&self) {
        self.0.names.fetch_add(1, Ordering::AcqRel);
    }

    /// One more name for a file.
    pub fn link(&self, node: &Node, parent: &Node, bytes: &[u8]) -> Outcome<Attributes> {
        self.check_writable()?;
        if node.kind() == Kind::Directory {
            return Err(Errno::EPERM);
        }
        let (group, name) = (parent.group()?, name(bytes)?);
        parent.may_have(bytes);
        // Kept until it has a name or not: who closes it meanwhile does not remove it.
        let held = node.handle();
        let never = held.as_ref().is_some_and(|h| h.nameless.load(Ordering::Relaxed));
        if never || (held.is_none() && node.is_going()) {
            return Err(Errno::ENOENT);
        }
        let temporary = held.as_ref().is_some_and(|h| h.temporary.load(Ordering::Relaxed));
        // Another process may have made it without a name, and handed it on.
        let nameless = temporary || (held.is_some() && node.attributes()?.links == 0);
        let mut ops = |c: &Collection| {
            let link = Op::Link { c: c.clone(), parent: Some(group.clone()), name: name.clone() };
            // What had no name stays from now on.
            let stays = Attr { lifetime: Some(Lifetime::KEPT), ..Attr::default() };
            let stays = nameless.then(|| Op::SetAttr { c: c.clone(), attr: stays });
            stays.into_iter().chain([link, Op::Stat { c: c.clone() }]).collect()
        };
        node.settle()?;
        parent.untell();
        self.names_changed();
        // It is made once it has its name: what comes behind that may be asked for again.
        let linked = self.once(|| node.try_first_with_handle(1 + usize::from(nameless), &mut ops));
        node.touch();
        // Who has looked at the directory meanwhile has not seen it.
        parent.untell();
        let linked = match linked {
            (Ok(statuses), _) => match stat_of(statuses.last().filter(|status| status.result().is_ok())) {
                Ok(stat) => self.attributes(stat),
                Err(_) => node.attributes(),
            },
            // By an attempt that was not answered, perhaps.
            (Err(e), true) if e.kind() == Failure::Exists => match self.lookup(parent, bytes)? {
                (there, attributes) if there.uuid() == node.uuid() => Ok(attributes),
                _ => Err(Errno::EEXIST),
            },
            (Err(e), _) if e.kind() == Failure::TooBig => Err(Errno::EMLINK),
            (Err(e), _) => Err(self.errno("link", &e)),
        };
        if let Some(handle) = held.filter(|_| linked.is_ok()) {
            handle.temporary.store(false, Ordering::Relaxed);
        }
        linked
    }
}

/// A name that may be there.
pub(crate) fn known(bytes: &[u8]) -> Outcome<Name> {
    name(bytes).map_err(|e| if e == Errno::EINVAL { Errno::ENOENT } else { e })
}
