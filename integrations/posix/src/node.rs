//! Something with an identity: a directory, a file, a symbolic link.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex, OnceLock, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use ioverbs::{
    Attr, Collection, Controls, EntryKind, Kind as Failure, Lent, Op, Result, Stat, Status, Uuid, Which, seam,
};

use crate::{
    Attributes, Change, Errno, FileSystem, Kind, Outcome, acl, attributes,
    fs::{lock, stat_of},
    handle::Handle,
    promised::Said,
    remembered::Since,
    rules::Place,
    told::Told,
    unsure::Became,
};

/// Which names there may be in a directory that was made here.
struct Names {
    all: HashSet<Box<[u8]>>,
    /// Since when none else is known (monotonic clock).
    at_ns: i64,
    /// How things were behind the last name that was made or taken away here, if it is known until when that holds, and how often names in it had begun to
    /// change by then.
    since: Option<(Since, u32)>,
}

/// A file system has one node for each identity that somebody has to do with: who has it keeps it, not the file.
pub struct Node {
    fs: FileSystem,
    uuid: Uuid,
    kind: Kind,
    /// The handle of all who have it open, where it is no directory.
    pub(crate) shared: Mutex<Weak<Handle>>,
    /// What was told of it last.
    pub(crate) told: Mutex<Option<Told>>,
    /// Of a directory: where it is, as far as that is known.
    pub(crate) place: Mutex<Option<Place>>,
    /// Of a file: the directory in which it was found last.
    pub(crate) found_in: Mutex<Option<Uuid>>,
    /// Of a directory that was made here: which names there may be in it.
    names: Mutex<Option<Names>>,
    /// Of a directory: what it says of the files that are made below it.
    pub(crate) said: Mutex<Said>,
    /// Lists of who may do what.
    pub(crate) lists: Mutex<Option<acl::Known>>,
    /// Of a symbolic link: where it leads, which never changes.
    pub(crate) target: OnceLock<Vec<u8>>,
    /// It runs with the rights of its owner or group, as far as was told last.
    pub(crate) gives_rights: AtomicBool,
    /// Its last name was taken away here.
    pub(crate) removed: AtomicBool,
    /// How often it was changed here, or opened.
    touched: AtomicU64,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} {}", self.kind, self.uuid)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.fs.forget(self.uuid);
    }
}

impl Node {
    pub(crate) fn new(fs: FileSystem, uuid: Uuid, kind: Kind) -> Node {
        Node {
            fs,
            uuid,
            kind,
            shared: Mutex::new(Weak::new()),
            told: Mutex::default(),
            place: Mutex::default(),
            found_in: Mutex::default(),
            said: Mutex::default(),
            names: Mutex::default(),
            lists: Mutex::default(),
            target: OnceLock::new(),
            gives_rights: AtomicBool::new(true),
            removed: AtomicBool::new(false),
            touched: AtomicU64::new(0),
        }
    }

    /// The file system.
    pub fn file_system(&self) -> &FileSystem {
        &self.fs
    }

    /// Its identity; nil = the root.
    pub fn uuid(&self) -> Uuid {
        self.uuid
    }

    /// Its number: see [`Attributes::ino`].
    pub fn ino(&self) -> u64 {
        attributes::number(self.uuid)
    }

    /// What it is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The group that a directory is.
    pub(crate) fn group(&self) -> Outcome<Collection> {
        if self.kind != Kind::Directory {
            return Err(Errno::ENOTDIR);
        }
        Ok(self.unopened())
    }

    /// What it is to the library, to ask for facts and change them: nothing is open for that.
    fn unopened(&self) -> Collection {
        let kind = if self.kind == Kind::Directory { EntryKind::Group } else { EntryKind::Collection };
        self.fs.workspace().unopened(kind, self.uuid)
    }

    /// Opens it into a handle.
    pub(crate) fn open_op(&self, out: &Collection) -> Op {
        Op::Open { out: out.clone(), parent: None, which: Which::Uuid(self.uuid), controls: Controls::default() }
    }

    /// It is changed here, or opened: what is remembered of it does not hold any more.
    pub(crate) fn touch(&self) {
        // In this order: who sees the second and not the first notes nothing.
        self.fs.0.changes.fetch_add(1, Ordering::AcqRel);
        self.touched.fetch_add(1, Ordering::AcqRel);
    }

    /// How often that was.
    pub(crate) fn touched(&self) -> u64 {
        self.touched.load(Ordering::Acquire)
    }

    /// Does something that needs no bytes, by the handle of those who have it open or by none. It is one request, and may be sent
    /// twice where the store could not be reached.
    pub(crate) fn with_handle(&self, verb: &str, mut work: impl FnMut(&Collection) -> Vec<Op>) -> Outcome<Vec<Status>> {
        self.settle()?;
        match self.fs.again(verb, || self.try_with_handle(&mut work)) {
            // Somebody has it open, and was to open it later.
            Err(Errno::ENOENT) => match self.fs.0.later.early(self.uuid) {
                Some(early) if self.is_gone() => {
                    let _goes_on = self.goes_on(&early)?;
                    self.fs.again(verb, || self.try_with_handle(&mut work))
                }
                // It may be something of it that is not there.
                _ => Err(Errno::ENOENT),
            },
            other => other,
        }
    }

    /// The store knows all that was written to it here.
    pub(crate) fn settle(&self) -> Outcome<()> {
        self.handle().map_or(Ok(()), |handle| handle.settle())
    }

    /// The same, once. The store knows all that was written.
    pub(crate) fn try_with_handle(&self, work: &mut dyn FnMut(&Collection) -> Vec<Op>) -> Result<Vec<Status>> {
        self.try_first_with_handle(usize::MAX, work)
    }

    /// The same, where only so many of the operations, the first, have to succeed.
    pub(crate) fn try_first_with_handle(
        &self,
        first: usize,
        work: &mut dyn FnMut(&Collection) -> Vec<Op>,
    ) -> Result<Vec<Status>> {
        let mut run = |c: &Collection| {
            let statuses = self.fs.try_all(work(c).into_iter().map(Lent::from).collect())?;
            statuses.iter().take(first).try_for_each(Status::result).map(|()| statuses)
        };
        // Kept until it is done: nobody closes it meanwhile.
        if let Some(handle) = self.handle() {
            match run(&handle.c) {
                // It has ended by itself: none is as good.
                Err(e) if matches!(e.kind(), Failure::Stale | Failure::Fenced) => {}
                other => return other,
            }
        }
        run(&self.unopened())
    }

    /// Whether the store is still to be told something of it, which then knows better when it was changed.
    pub fn is_untold(&self) -> bool {
        self.handle().is_some_and(|handle| handle.has_untold())
    }

    /// Its attributes as of now.
    pub fn attributes(&self) -> Outcome<Attributes> {
        let handle = self.handle();
        if let Some(untold) = handle.as_ref().and_then(|handle| handle.untold_attributes()) {
            return Ok(untold);
        }
        if let Some(told) = self.told_as_it_is() {
            return Ok(told);
        }
        let since = self.fs.since();
        let status = self.fs.again("stat", || ioverbs::run(self.fs.session(), self.stat_op(handle.as_deref())));
        let status = match status {
            // Gone, but somebody has it open who was to open it later.
            Err(Errno::ENOENT) => return self.fs.0.later.attributes(self.uuid).ok_or(Errno::ENOENT),
            other => other?,
        };
        let attributes = self.fs.attributes(stat_of(Some(&status))?)?;
        self.tell_since(&attributes, since);
        Ok(attributes)
    }

    /// Asks for facts: by the handle of who has it open, since that knows what nobody else has been told yet.
    pub(crate) fn stat_op(&self, handle: Option<&Handle>) -> Op {
        match handle {
            Some(handle) => Op::Stat { c: handle.c.clone() },
            None => {
                let w = self.fs.workspace().clone();
                Op::Look { w, parent: None, which: Which::Uuid(self.uuid), ahead: 0, tell: 0 }
            }
        }
    }

    /// Runs what changes a name in it, and looks at what that makes of it; also what some further looks behind that come to.
    pub(crate) fn rename_in(
        &self,
        verb: &str,
        others: &[&Node],
        (op, became): (&dyn Fn() -> Op, &dyn Fn(i64) -> Result<Became>),
        further: &dyn Fn() -> Vec<Op>,
    ) -> Outcome<Vec<Status>> {
        let nodes: Vec<&Node> = std::iter::once(self).chain(others.iter().copied()).collect();
        nodes.iter().for_each(|node| node.names_change());
        let looks = || nodes.iter().map(|node| node.stat_op(None)).chain(further());
        let run = || {
            let all = || self.fs.try_all(std::iter::once(op()).chain(looks()).map(Lent::from).collect());
            let mut statuses = all()?;
            let is_newer = |status: &Status| status.result().is_err_and(|e| e.kind() == Failure::Version);
            if statuses.first().is_some_and(is_newer) && !self.fs.0.looks_first.swap(true, Ordering::Relaxed) {
                // A daemon of an older release cannot compare what is there with what it is taken for.
                statuses = all()?;
            }
            statuses.first().map_or(Ok(()), Status::result).map(|()| statuses)
        };
        let done = self.fs.once_for_sure(verb, run, became).and_then(|done| match done {
            Some(statuses) => Ok(statuses),
            // Only what it comes to is left to be looked at.
            None => {
                let looked = self.fs.again(verb, || self.fs.try_all(looks().map(Lent::from).collect()))?;
                Ok(std::iter::once(Status::default()).chain(looked).collect())
            }
        });
        for (i, node) in nodes.iter().enumerate() {
            let looked = done.as_ref().ok().and_then(|statuses| statuses.get(i + 1));
            node.tell_of(looked.and_then(|status| stat_of(Some(status)).ok()));
        }
        done.map(|mut statuses| statuses.split_off(nodes.len() + 1))
    }

    /// Notes what a look at it came to, behind a change of the names in it.
    pub(crate) fn tell_of(&self, looked: Option<&Stat>) {
        if looked.is_some() {
            self.name_changed();
        }
        match looked.map(|stat| self.fs.attributes(stat)) {
            Some(Ok(attributes)) => self.tell(&attributes),
            _ => self.untell(),
        }
    }

    /// Changes attributes, and tells them afterwards.
    pub fn change(&self, change: &Change) -> Outcome<Attributes> {
        self.fs.check_writable()?;
        let changed = match self.change_now(change) {
            Err(e @ (Errno::ENOENT | Errno::ESTALE)) => self.change_at_the_end(change).ok_or(e),
            changed => changed,
        };
        self.touch();
        changed
    }

    fn change_now(&self, change: &Change) -> Outcome<Attributes> {
        match (self.kind, change.size) {
            (Kind::Directory, Some(_)) => return Err(Errno::EISDIR),
            (kind, Some(_)) if kind != Kind::File => return Err(Errno::EINVAL),
            (_, Some(size)) if size > i64::MAX as u64 => return Err(Errno::EFBIG),
            _ => {}
        }
        if let Some(size) = change.size
            && let Some(handle) = self.handle().filter(|handle| handle.is_stuck())
            && handle.truncate_stuck(size)?
        {
            return self.change_now(&Change { size: None, ..*change });
        }
        // Who gives a file away takes its rights from it, in the same step: nobody has the one without the other.
        let given =
            change.mode.is_none() && (change.uid.is_some() || change.gid.is_some() || *change == Change::default());
        let lowered = if given { self.lowered_mode()? } else { None };
        let now_ns = seam::now_ns();
        let attr = Attr {
            mode: change.mode.map(|mode| mode & 0o7777).or(lowered),
            uid: change.uid,
            gid: change.gid,
            mtime_ns: change.mtime.map(|time| time.ns(now_ns)),
            // 0 is that nobody has set it.
            atime_ns: change.atime.map(|time| time.ns(now_ns)).map(|ns| if ns == 0 { 1 } else { ns }),
            lifetime: None,
        };
        let untold = self.handle().filter(|_| change.size.is_none());
        if let Some(attributes) = untold.map_or(Ok(None), |handle| handle.change_behind(&attr))? {
            self.tell(&attributes);
            return Ok(attributes);
        }
        // A length is one of bytes, which have to be open.
        let open = change.size.map(|_| self.join_or_go_on()).transpose()?;
        let statuses = self.with_handle("setattr", |c| {
            let mut ops = Vec::new();
            ops.extend(change.size.map(|size| Op::Truncate { c: c.clone(), size }));
            if attr != Attr::default() {
                ops.push(Op::SetAttr { c: c.clone(), attr: attr.clone() });
            }
            ops.push(Op::Stat { c: c.clone() });
            ops
        })?;
        let attributes = self.fs.attributes(stat_of(statuses.last())?)?;
        self.tell(&attributes);
        // Where this was the last, what is published with the close is to be heard of.
        open.and_then(Arc::into_inner).map_or(Ok(()), |handle| handle.end())?;
        Ok(attributes)
    }

    /// The mode of a file that runs with the rights of its owner or group (`S_ISUID`, `S_ISGID`) without them; `None`: it does not.
    fn lowered_mode(&self) -> Outcome<Option<u32>> {
        let lowered = |mode: u32| {
            let group = if mode & 0o2010 == 0o2010 { 0o2000 } else { 0 };
            mode & 0o7777 & !(0o4000 | group)
        };
        // Of directories it says something else.
        if matches!(self.kind, Kind::Directory | Kind::Symlink) {
            return Ok(None);
        }
        let mode = self.attributes()?.mode & 0o7777;
        Ok(Some(lowered(mode)).filter(|new| *new != mode))
    }

    /// Somebody who may not give it such rights changes its bytes: it runs with those of its owner or group no more. Kernels do that
    /// themselves, unless they leave it to the file system.
    ///
    /// Asks nobody where the file had none when it was last looked at, which kernels do each time they open it. Whether it had, so that its mode is another one now.
    pub fn lower_rights(&self) -> Outcome<bool> {
        if !self.gives_rights.load(Ordering::Relaxed) {
            return Ok(false);
        }
        match self.lowered_mode()? {
            Some(mode) => self.change(&Change { mode: Some(mode), ..Change::default() }).map(|_| true),
            None => Ok(false),
        }
    }

    /// It was made here, and empty; `since` and `unknown_names`: as of before it was. Another thread may have found it meanwhile, and made names in it.
    pub(crate) fn is_new(&self, since: Option<Since>, unknown_names: u64) {
        let mut names = lock(&self.names);
        let nobody_else = self.fs.0.unknown_names.load(Ordering::Acquire) == unknown_names;
        if nobody_else && !self.fs.0.options.unseen.is_zero() {
            let at_ns = seam::monotonic_ns();
            let with_begun = |since| self.fs.begun(&since, self.names_in_it()).map(|begun| (since, begun));
            let since = since.map(with_begun);
            // The catalog that was to say so is there no more: nothing is known.
            *names =
                (!matches!(since, Some(None))).then(|| Names { all: HashSet::new(), at_ns, since: since.flatten() });
        }
    }

    /// Somebody else may have made any name in it.
    pub(crate) fn may_have_any(&self) {
        *lock(&self.names) = None;
    }

    /// A name in it is about to be made or taken away here. What others have made before that would not be seen behind it.
    pub(crate) fn names_change(&self) {
        let mut names = lock(&self.names);
        let since = names.as_ref().and_then(|names| names.since.as_ref());
        if since.is_some_and(|(since, _)| !self.fs.holds(since, &[self.names_in_it()])) {
            *names = None;
        }
    }

    /// One was made or taken away here. Where another one was as well, meanwhile, it may be any.
    fn name_changed(&self) {
        let mut names = lock(&self.names);
        let Some((since, begun)) = names.as_mut().and_then(|names| names.since.as_mut()) else { return };
        // In this order: who begins between the two is found now, and who does so later by then.
        let now = self.fs.since();
        match (now, self.fs.begun(since, self.names_in_it())) {
            (_, Some(same)) if same == *begun => {}
            (Some(now), Some(one_more)) if one_more == begun.wrapping_add(1) => (*since, *begun) = (now, one_more),
            _ => *names = None,
        }
    }

    /// Somebody may find this name in it from now on.
    pub(crate) fn may_have(&self, name: &[u8]) {
        self.names_change();
        match &mut *lock(&self.names) {
            Some(names) => drop(names.all.insert(name.into())),
            // Whoever is just making this directory, and has not heard so yet, is not to take it for empty.
            None => drop(self.fs.0.unknown_names.fetch_add(1, Ordering::AcqRel)),
        }
    }

    /// Whether it has not had this name since it was made here, unless somebody elsewhere has made it within the time for which
    /// that may stay unseen, and the catalog has not said so.
    pub(crate) fn has_not(&self, name: &[u8]) -> bool {
        let mut names = lock(&self.names);
        let Some(Names { all, at_ns, since }) = &*names else { return false };
        if u128::try_from(seam::monotonic_ns() - at_ns).is_ok_and(|age| age < self.fs.0.options.unseen.as_nanos()) {
            let holds = since.as_ref().is_none_or(|(since, _)| self.fs.holds(since, &[self.names_in_it()]));
            return holds && !all.contains(name);
        }
        *names = None;
        false
    }

    /// Whether the two are one.
    pub fn is(self: &Arc<Self>, other: &Arc<Node>) -> bool {
        Arc::ptr_eq(self, other)
    }
}
