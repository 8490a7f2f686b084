//! The one handle of all who have a file open, or do something with it just now. The last of them closes it.

use std::sync::{
    Arc, Weak,
    atomic::{AtomicBool, Ordering, fence},
};

use ioverbs::{Attr, Collection, Kind as Failure, Op, Result, Stat, Which, catalog::Told};

use crate::{
    Attributes, FileSystem, Flags, Node, Outcome,
    behind::Behind,
    early::{self, Early},
    fs::lock,
};

/// Dropping it closes; [`Handle::end`] also says whether that came through.
pub(crate) struct Handle {
    fs: FileSystem,
    pub(crate) c: Collection,
    /// It has no name yet, and goes with this handle unless it gets one.
    pub(crate) temporary: AtomicBool,
    /// It gets no name ever (`O_TMPFILE` with `O_EXCL`).
    pub(crate) nameless: AtomicBool,
    ended: AtomicBool,
    /// Somebody has written by it.
    pub(crate) written: AtomicBool,
    /// What the store has not been told of it.
    pub(crate) behind: Behind,
}

impl Drop for Handle {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

impl Handle {
    pub(crate) fn new(fs: &FileSystem, c: Collection) -> Handle {
        let [temporary, nameless, ended, written] = [const { AtomicBool::new(false) }; 4];
        Handle { fs: fs.clone(), c, temporary, nameless, ended, written, behind: Behind::default() }
    }

    pub(crate) fn file_system(&self) -> &FileSystem {
        &self.fs
    }

    /// Whether it is closed, or about to be.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// Closes it: what was written is published, and persists as its controls say.
    pub(crate) fn end(&self) -> Outcome<()> {
        if self.ended.swap(true, Ordering::Relaxed) { Ok(()) } else { self.end_now() }
    }

    /// The same, where it is marked as ended already.
    pub(crate) fn end_now(&self) -> Outcome<()> {
        self.fs.in_time(|| self.tell_and_close())
    }

    fn tell_and_close(&self) -> Outcome<()> {
        let close = |c: &Collection| Op::Close { c: c.clone() };
        let temporary = self.temporary.load(Ordering::Relaxed);
        // In one request, if there is something to tell.
        let told = if temporary { self.settle().map(|()| false) } else { self.settle_with(Some(&close)) };
        if temporary && let Ok(uuid) = self.c.uuid() {
            let w = self.fs.workspace().clone();
            // What has got a name elsewhere stays, and what cannot be removed goes with this process.
            let discarded = ioverbs::run(self.c.session(), Op::Discard { w: w.clone(), uuid });
            if discarded.is_err_and(|e| e.kind() == Failure::Version) {
                // Of an older release, for which a name makes no difference.
                let _ = ioverbs::run(self.c.session(), Op::Delete { w, parent: None, which: Which::Uuid(uuid) });
            }
        }
        // Nobody waits where nothing is left to be told.
        let closed = match told {
            Ok(true) => Ok(()),
            Ok(false) if self.c.close_unheard() => Ok(()),
            _ => self.fs.run(close(&self.c)).map(drop),
        };
        if self.written.load(Ordering::Acquire) || matches!(told, Ok(true)) {
            self.fs.closes_written(self.c.uuid().ok());
        }
        told.map(drop).and(closed).and(self.take_failure())
    }
}

impl Node {
    /// The handle of those who have it open, if there are any. While it is kept it stays open. One that is being ended is none, and the store
    /// knows by then what was written by it.
    pub(crate) fn handle(&self) -> Option<Arc<Handle>> {
        let handle = lock(&self.shared).upgrade()?;
        if handle.has_ended() {
            handle.settle_for_others();
            return None;
        }
        Some(handle)
    }

    /// Whether somebody has it open, or is closing it just now.
    pub(crate) fn is_open(&self) -> bool {
        lock(&self.shared).strong_count() > 0
    }

    /// Whether it has no name, and goes just now with the last who had it open.
    pub(crate) fn is_going(&self) -> bool {
        let handle = lock(&self.shared).upgrade();
        handle.is_some_and(|handle| handle.has_ended() && handle.temporary.load(Ordering::Relaxed))
    }

    /// Marks a handle of it as ended if the caller is the only one who has it: nobody gets it from now on. `false`: others go on with it, for a
    /// moment at least.
    pub(crate) fn ends(&self, handle: &Arc<Handle>) -> bool {
        // Under the lock under which others get it.
        let _shared = lock(&self.shared);
        if Arc::strong_count(handle) > 1 {
            return false;
        }
        // What others did who had it comes before this.
        fence(Ordering::Acquire);
        !handle.ended.swap(true, Ordering::Relaxed)
    }

    /// What is written by a handle of it, which is empty, is told later from now on, if the caller is the only one who has it. Others who get it then have it told first.
    pub(crate) fn begin_behind(&self, handle: &Arc<Handle>, attributes: &Attributes) {
        let shared = lock(&self.shared);
        if Arc::strong_count(handle) == 1 {
            // What others did who had it comes before this.
            fence(Ordering::Acquire);
            // The time is told, too, so that it is the one that was seen meanwhile.
            let timed = attributes.uid == ioverbs::caller().uid;
            let mtime_ns = timed.then_some(attributes.mtime_ns);
            handle.begin_behind(attributes, Attr { mtime_ns, ..Attr::default() }, timed);
        }
        drop(shared);
        self.file_system().0.tellers.add(handle);
    }

    /// A handle for who opens it: the one that there is if it is still good, else a new one.
    pub(crate) fn join(&self) -> Outcome<Arc<Handle>> {
        self.join_for(Flags { blind: true, ..Flags::default() }).map(|(handle, ..)| handle)
    }

    /// The same, with facts as of now, and what came along of its bytes.
    pub(crate) fn join_for(&self, flags: Flags) -> Outcome<(Arc<Handle>, Attributes, Option<Arc<Early>>)> {
        let fs = self.file_system();
        if let Some(handle) = self.handle() {
            handle.settle_for_others();
            let told =
                fs.again("open", || match stat(ioverbs::run(handle.c.session(), Op::Stat { c: handle.c.clone() })) {
                    Err(e) if matches!(e.kind(), Failure::Stale | Failure::Fenced | Failure::Invalid) => Ok(None),
                    other => other.map(Some),
                });
            if let Some(stat) = told? {
                let attributes = handle.stuck_attributes().map_or_else(|| fs.attributes(&stat), Ok)?;
                self.tell(&attributes);
                return Ok((handle, attributes, None));
            }
            // Who has it goes on to hear that it has ended; who comes now has nothing to do with it.
            self.detach(&handle);
        }
        // Not under the lock: it may take long, and others only want to look.
        let since = fs.since();
        let opened = fs.again("open", || {
            let c = fs.workspace().pending_told(early::wanted(flags));
            fs.all_of(vec![self.open_op(&c).into()])?;
            let told = fs.told(&c)?;
            Ok((c, told))
        });
        let (c, mut told) = opened?;
        let attributes = fs.attributes(&told.stat)?;
        self.tell_since(&attributes, since.clone());
        let early = fs.early(&mut told, &attributes, (flags, c.is_writable()), since);
        Ok((self.share(Handle::new(fs, c)), attributes, early))
    }

    /// Makes a handle the one of all, unless another one is by now; the one that is.
    pub(crate) fn share(&self, handle: Handle) -> Arc<Handle> {
        self.touch();
        let handle = Arc::new(handle);
        let mut shared = lock(&self.shared);
        let before = shared.upgrade().filter(|before| !before.has_ended());
        if before.is_none() {
            *shared = Arc::downgrade(&handle);
        }
        drop(shared);
        let handle = before.unwrap_or(handle);
        self.file_system().0.later.give(self.uuid(), &handle);
        handle
    }

    fn detach(&self, handle: &Arc<Handle>) {
        let mut shared = lock(&self.shared);
        if Weak::ptr_eq(&shared, &Arc::downgrade(handle)) {
            *shared = Weak::new();
        }
    }
}

impl FileSystem {
    /// What was told of a file as it was opened, or is now.
    pub(crate) fn told(&self, c: &Collection) -> Result<Told> {
        match c.take_told() {
            Some(told) => Ok(told),
            None => Ok(Told {
                stat: stat(ioverbs::run(c.session(), Op::Stat { c: c.clone() }))?,
                bytes: None,
                group: None,
                may_keep: false,
            }),
        }
    }
}

/// The facts that a stat tells.
pub(crate) fn stat(done: Result<ioverbs::Status>) -> Result<Stat> {
    match done?.output {
        ioverbs::Output::Stat(stat) => Ok(*stat),
        _ => Err(ioverbs::Error::internal("a stat returned no facts")),
    }
}
