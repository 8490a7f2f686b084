//! Small new files are written behind: what a program writes to a file that it has just made, or opened to write all of it anew (`O_TRUNC`), from its
//! beginning on, and what it
//! sets of its attributes, goes to the store together with the publication, in one request, when the file is closed.
//!
//! That is what `session` and `commit` allow (C2, C3): nobody else has been promised to see any of it before. It ends for a file with the first thing
//! that needs the store to know (a read, a lock, another opening, `fsync`, bytes elsewhere than at the end), and after a second at most. Of a file
//! that becomes larger than [`MOST`] the bytes go to the store whenever so many have come, and the rest is told with the close as before. What fails
//! then is told there, and where nobody was there to hear of it, when the file is closed. Where there is no room for it, or no answer, it stays here meanwhile, for who reads
//! it and for another attempt ([`stuck`]): the program was told that it is written.

mod stuck;

use std::{
    sync::{
        Arc, Mutex, TryLockError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use ioverbs::{
    Attr, Collection, Consistency, Controls, Effective, EntryKind, Lent, Mutability, Op, Persistence, Point, Which,
    seam,
};

use crate::{
    Attributes, Errno, Level, Outcome,
    fs::{Inner, lock, stat_of},
    handle::Handle,
};

/// Most bytes of a file that are kept at a time: what most files of a tree of sources have.
const MOST: usize = 64 << 10;
/// Most bytes of one write to a file of which not all is told.
const LONG: usize = 4 << 20;
/// Half of how long they are kept at most.
const SPAN: Duration = Duration::from_millis(500);

/// How long it takes to tell the store something, at least.
#[cfg(test)]
pub(crate) static TELLING_NS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

/// What the store has not been told.
pub(crate) struct Untold {
    /// As they will be.
    attributes: Attributes,
    /// The last of the file's bytes.
    data: Vec<u8>,
    /// Where they begin: the store has those before them.
    from: u64,
    attr: Attr,
    /// When it was written is told, too: not of another one's file, whose times only he may set. The store takes its own then.
    timed: bool,
    /// How often names had been taken away or moved when it was made.
    names: u64,
    /// How far bytes may have come of a write that failed, and that nobody was told is written.
    reached: u64,
}

/// What a handle has to tell the store.
#[derive(Default)]
pub(crate) struct Behind {
    untold: Mutex<Option<Untold>>,
    /// There is something, perhaps; else nobody need look.
    any: AtomicBool,
    /// It was to be told, and there was no room for it, or no answer.
    stuck: AtomicBool,
    /// Why the store was not told, for who closes the file.
    failed: Mutex<Option<Errno>>,
}

/// The handles that have something to tell, of a file system.
#[derive(Default)]
pub(crate) struct Tellers {
    all: Mutex<Vec<Weak<Handle>>>,
    runs: AtomicBool,
}

/// Whether somebody may not do any more what he may, as his bytes are there. Root may do all.
fn takes_rights(of: &Attributes, attr: &Attr) -> bool {
    let less = attr.mode.is_some_and(|mode| of.mode & !mode & 0o6777 != 0);
    let other = |new: Option<u32>, old: u32| new.is_some_and(|new| new != old);
    less || (other(attr.uid, of.uid) && of.uid != 0) || (other(attr.gid, of.gid) && of.mode & 0o077 != 0)
}

impl Handle {
    /// From now on what is done to this file, which was just made or is empty since it was opened, is told later, if that is allowed. `timed`: also when.
    pub(crate) fn begin_behind(&self, attributes: &Attributes, attr: Attr, timed: bool) {
        let allows = |effective: Effective| {
            matches!(effective.consistency, Consistency::Session | Consistency::Commit)
                && effective.mutability == Mutability::Overwrite
                && (effective.persistence == Persistence::Volatile || effective.point == Point::Close)
        };
        // Of one that somebody has found by its name meanwhile, and written, not all would be kept.
        let allowed = self.file_system().level() == Level::Session
            && attributes.size == 0
            && self.c.is_writable()
            && self.c.effective().is_ok_and(allows);
        if allowed {
            let names = self.file_system().0.names.load(Ordering::Acquire);
            let untold = Untold { attributes: *attributes, data: Vec::new(), from: 0, attr, timed, names, reached: 0 };
            *lock(&self.behind.untold) = Some(untold);
            self.behind.any.store(true, Ordering::Release);
        }
    }

    /// Whether there is something that the store has not been told, perhaps.
    pub(crate) fn has_untold(&self) -> bool {
        self.behind.any.load(Ordering::Acquire)
    }

    /// The attributes of a file of which the store has not been told all; `None`: the store knows. What became of its names
    /// only the store knows, which is told then.
    pub(crate) fn untold_attributes(&self) -> Option<Attributes> {
        if !self.behind.any.load(Ordering::Acquire) {
            return None;
        }
        let names = self.file_system().0.names.load(Ordering::Acquire);
        let untold = lock(&self.behind.untold).as_ref().map(|u| (u.attributes, u.names == names));
        match untold {
            Some((attributes, true)) => Some(attributes),
            _ => {
                self.settle_for_others();
                self.stuck_attributes()
            }
        }
    }

    /// Takes bytes to tell the store later, or with what else it is to be told of the file later; `false`: it has to be told now, and knows all that was
    /// before.
    pub(crate) fn write_behind(&self, offset: u64, data: &[u8]) -> Outcome<bool> {
        if !self.behind.any.load(Ordering::Acquire) {
            return Ok(false);
        }
        if self.is_stuck() {
            self.settle()?;
        }
        let mut behind = lock(&self.behind.untold);
        let len = data.len() as u64;
        // Who looks meanwhile waits, but not for long.
        let fits = |u: &&mut Untold| offset == u.attributes.size && data.len() <= LONG;
        let Some(untold) = behind.as_mut().filter(fits) else {
            drop(behind);
            return self.settle().map(|()| false);
        };
        let size = offset + len;
        if size - untold.from <= MOST as u64 {
            untold.data.extend_from_slice(data);
        } else if let Err(e) = self.send(untold, data) {
            drop(behind);
            self.settle_for_others();
            return Err(e);
        }
        let now_ns = seam::now_ns();
        let a = &mut untold.attributes;
        (a.size, a.blocks) = (size, size.div_ceil(512));
        (a.mtime_ns, a.ctime_ns) = (now_ns, now_ns);
        if untold.timed {
            untold.attr.mtime_ns = Some(now_ns);
        }
        Ok(true)
    }

    /// The store is given all bytes that it has not, and these.
    fn send(&self, untold: &mut Untold, data: &[u8]) -> Outcome<()> {
        self.tell_rights(untold)?;
        let before = untold.data.len();
        let end = untold.from + (before + data.len()) as u64;
        if before > 0 && data.len() <= MOST {
            untold.data.extend_from_slice(data);
            let written = self.send_to(untold.from, &untold.data);
            untold.data.truncate(before);
            written.inspect_err(|e| self.has_failed(untold, end, *e))?;
        } else {
            if before > 0 {
                self.send_to(untold.from, &untold.data)?;
                untold.from += before as u64;
                untold.data.clear();
            }
            self.send_to(untold.from, data).inspect_err(|e| self.has_failed(untold, end, *e))?;
        }
        untold.data.clear();
        untold.from = end;
        Ok(())
    }

    fn send_to(&self, offset: u64, data: &[u8]) -> Outcome<()> {
        self.file_system().again("write", || ioverbs::write_at(&self.c, offset, data)).map(drop)
    }

    /// Who may do what is told before the first bytes are: nobody gets any who may not have them.
    fn tell_rights(&self, untold: &mut Untold) -> Outcome<()> {
        if untold.from == 0 { self.send_rights(untold, false) } else { Ok(()) }
    }

    /// `looks`: for who wants to know when that was.
    fn send_rights(&self, Untold { attributes, attr, .. }: &mut Untold, looks: bool) -> Outcome<()> {
        let rights = Attr { mode: attr.mode, uid: attr.uid, gid: attr.gid, ..Attr::default() };
        if rights != Attr::default() {
            let (fs, c) = (self.file_system(), &self.c);
            let set = || Lent::from(Op::SetAttr { c: c.clone(), attr: rights.clone() });
            let look = || looks.then(|| Lent::from(Op::Stat { c: c.clone() }));
            let told = fs.again("setattr", || fs.all_of(std::iter::once(set()).chain(look()).collect()))?;
            if looks {
                attributes.ctime_ns = Attributes::new(stat_of(told.last())?, 0).ctime_ns;
            }
            (attr.mode, attr.uid, attr.gid) = (None, None, None);
        }
        Ok(())
    }

    /// Keeps attributes to tell the store later; those that the file then has. None: the store has to be told now.
    pub(crate) fn change_behind(&self, attr: &Attr) -> Outcome<Option<Attributes>> {
        if !self.behind.any.load(Ordering::Acquire) {
            return Ok(None);
        }
        let mut behind = lock(&self.behind.untold);
        let Some(untold) = behind.as_mut() else { return Ok(None) };
        let less = takes_rights(&untold.attributes, attr);
        let before = (untold.attributes, untold.attr.clone());
        let Untold { attributes: a, attr: kept, .. } = untold;
        let set = |to: &mut u32, kept: &mut Option<u32>, new: Option<u32>| {
            if let Some(new) = new {
                (*to, *kept) = (new, Some(new));
            }
        };
        set(&mut a.mode, &mut kept.mode, attr.mode);
        set(&mut a.uid, &mut kept.uid, attr.uid);
        set(&mut a.gid, &mut kept.gid, attr.gid);
        if let Some(ns) = attr.mtime_ns {
            (a.mtime_ns, kept.mtime_ns) = (ns, Some(ns));
        }
        if let Some(ns) = attr.atime_ns {
            (a.atime_ns, kept.atime_ns) = (ns, Some(ns));
        }
        a.ctime_ns = seam::now_ns();
        if less && let Err(e) = self.send_rights(untold, true) {
            // Whoever opened it until that is told would have it open, whatever is written to it.
            (untold.attributes, untold.attr) = before;
            return Err(e);
        }
        let attributes = untold.attributes;
        if untold.data.is_empty() && untold.attr == Attr::default() && !self.is_stuck() {
            *behind = None;
            self.behind.any.store(false, Ordering::Release);
        }
        Ok(Some(attributes))
    }

    /// Tells the store what it has not been told. From now on everything is told at once.
    pub(crate) fn settle(&self) -> Outcome<()> {
        self.settle_with(None).map(drop)
    }

    /// The same, and what comes behind it, in one request. `false`: there was nothing to tell, and that has not been done either.
    pub(crate) fn settle_with(&self, end: Option<&dyn Fn(&Collection) -> Op>) -> Outcome<bool> {
        if !self.behind.any.load(Ordering::Acquire) {
            return Ok(false);
        }
        // Who tells it just now may wait for that as long.
        self.file_system().in_time(|| self.settle_now(end))
    }

    fn settle_now(&self, end: Option<&dyn Fn(&Collection) -> Op>) -> Outcome<bool> {
        // Until the store knows: whoever comes meanwhile waits, and finds it there.
        let mut behind = lock(&self.behind.untold);
        let has_some = |u: &&mut Untold| !u.data.is_empty() || u.attr != Attr::default();
        let Some(untold) = behind.as_mut().filter(has_some) else {
            // It was made, and nothing more; or what had no room was cut.
            *behind = None;
            self.behind.any.store(false, Ordering::Release);
            self.is_stuck_no_more(true);
            return Ok(false);
        };
        let fs = self.file_system();
        // What had no room before is told by itself: what comes behind it is done whatever becomes of it.
        let by_itself = untold.from > 0 || self.is_stuck();
        let rights = if by_itself && !untold.data.is_empty() { self.tell_rights(untold) } else { Ok(()) };
        let untold = &*untold;
        #[cfg(test)]
        seam::sleep(TELLING_NS.load(Ordering::Relaxed));
        // Where the bytes do not go into the file's record, they come before what is told of it: that is one question then.
        let (alone, along) = if by_itself { (&untold.data[..], &[][..]) } else { (&[][..], &untold.data[..]) };
        let written = match alone.is_empty() || rights.is_err() {
            true => rights,
            false => self.send_to(untold.from, alone),
        };
        let cuts = written.is_ok() && self.is_stuck();
        let (mut c, mut open, mut anew, mut cut) = (self.c.clone(), None, false, None);
        let tell = || {
            let write = (!along.is_empty()).then(|| Lent::Write { c: c.clone(), offset: 0, data: along });
            // Nothing can be asked of what is only about to be opened.
            if cuts && !anew {
                cut = self.cut(untold)?;
            }
            let cut = cut.map(|cut| Lent::from(cut.of(&c)));
            let set = || Op::SetAttr { c: c.clone(), attr: untold.attr.clone() };
            let set = (untold.attr != Attr::default()).then(|| Lent::from(set()));
            let last = end.map(|end| Lent::from(end(&c)));
            let ops: Vec<_> = open.take().into_iter().chain(write).chain(cut).chain(set).chain(last).collect();
            let told = match ops.is_empty() {
                true => Ok(Vec::new()),
                false => fs.all_of(ops),
            };
            if anew && told.as_ref().is_err_and(|e| e.kind() == ioverbs::Kind::NotFound) {
                // It has no name any more, and went with the attempt before.
                return Ok(Vec::new());
            }
            if told.is_err()
                && self.has_ended()
                && end.is_some()
                && let Ok(uuid) = self.c.uuid()
            {
                anew = true;
                // A close ends its handle, whatever came of it: the next attempt needs one of its own.
                let (out, which) = (fs.workspace().pending(EntryKind::Collection), Which::Uuid(uuid));
                open =
                    Some(Lent::from(Op::Open { out: out.clone(), parent: None, which, controls: Controls::default() }));
                if untold.from > 0 {
                    out.note_changed();
                }
                c = out;
            }
            told
        };
        // What is told is told, also where the last bytes have found no room.
        let told = fs.again("write", tell);
        let attributes_told = told.is_ok();
        let told = written.and(told);
        if let Err(e) = &told {
            *lock(&self.behind.failed) = Some(*e);
        }
        if told.as_ref().is_err_and(|e| stuck::may_come_through(*e)) && !self.has_ended() {
            if let Some(untold) = behind.as_mut().filter(|_| attributes_told) {
                // What comes later would change the times.
                let Attr { mtime_ns, atime_ns, .. } = untold.attr;
                untold.attr = Attr { mtime_ns, atime_ns, ..Attr::default() };
            }
            self.behind.stuck.store(true, Ordering::Release);
        } else {
            *behind = None;
            self.behind.any.store(false, Ordering::Release);
            self.is_stuck_no_more(told.is_ok());
        }
        told.map(|_| true)
    }

    /// Tells the store, for somebody who only wants to look: what fails is for who closes the file.
    pub(crate) fn settle_for_others(&self) {
        let _ = self.settle();
    }

    /// The same, unless it would have to wait for somebody who writes; `false`: so it is.
    fn settle_if_free(&self) -> bool {
        let is_free = !matches!(self.behind.untold.try_lock(), Err(TryLockError::WouldBlock));
        if is_free {
            self.settle_for_others();
        }
        is_free
    }

    /// Why the store was not told something, for who wants to know before it is closed.
    pub(crate) fn failure(&self) -> Outcome<()> {
        lock(&self.behind.failed).map_or(Ok(()), Err)
    }

    /// The same, for the first who closes the file.
    pub(crate) fn take_failure(&self) -> Outcome<()> {
        lock(&self.behind.failed).take().map_or(Ok(()), Err)
    }
}

impl Tellers {
    /// Sees to it that the store is told in time, where there may be something to tell.
    pub(crate) fn add(&self, handle: &Arc<Handle>) {
        if !handle.behind.any.load(Ordering::Acquire) {
            return;
        }
        lock(&self.all).push(Arc::downgrade(handle));
        if self.runs.swap(true, Ordering::AcqRel) {
            return;
        }
        let fs = Arc::downgrade(&handle.file_system().0);
        if seam::spawn("iov-behind", move || run(&fs)).is_err() {
            self.runs.store(false, Ordering::Release);
            // Nobody would see to it.
            handle.settle_for_others();
        }
    }
}

/// Tells the store what nobody else has told it for long, until there is nothing.
fn run(fs: &Weak<Inner>) {
    let mut before: Vec<Weak<Handle>> = Vec::new();
    loop {
        seam::sleep(SPAN.as_nanos() as u64);
        // Those that were there a span ago. What fails is kept for who closes the file. Who is being told something just now comes behind all others.
        let (mut busy, mut stuck) = (Vec::new(), Vec::new());
        // Each is kept no longer than it takes: who closes it meanwhile is not the last who has it.
        for weak in before.drain(..) {
            match weak.upgrade() {
                Some(handle) if !handle.settle_if_free() => busy.push(weak),
                Some(handle) if handle.is_stuck() => stuck.push(weak),
                _ => {}
            }
        }
        for weak in busy {
            if let Some(handle) = weak.upgrade() {
                handle.settle_for_others();
                if handle.is_stuck() {
                    stuck.push(weak);
                }
            }
        }
        // For what had no room there may be some next time.
        before = stuck;
        let Some(inner) = fs.upgrade() else { return };
        let mut all = lock(&inner.tellers.all);
        before.append(&mut all);
        before.retain(|handle| handle.strong_count() > 0);
        if before.is_empty() {
            inner.tellers.runs.store(false, Ordering::Release);
            return;
        }
    }
}
