//! Sessions that outlive their catalog: they come back and go on.

use std::sync::atomic::Ordering::Relaxed;

use iov_store::OpCx;
use iov_types::{
    Error, Result, Uuid,
    catalog::{Presented, PresentedLock},
};

use crate::{
    Service, batch,
    exec::{Exec, Mode, groups::group_key},
    recovery, verbs,
    view::Pending,
};

impl Service {
    /// Takes up again what a session has open that this catalog does not know of: its server crashed. One result each;
    /// `Fenced` where an exclusive hold has passed on meanwhile, `NotFound` where the object is gone.
    ///
    /// What a session says of itself is believed, so this is for stores of one user.
    /// `is_all`: the session has nothing else open; what else it has here was opened without its ever hearing of it.
    pub fn resume(&self, cx: &OpCx, presented: &[Presented], is_all: bool) -> Result<Vec<Result<()>>> {
        let mut holder = self.admit(cx, presented.len())?;
        if !self.core.is_single_user() {
            return Err(Error::stale("the server does not know the session any more: open everything anew"));
        }
        if holder != cx.caller.holder {
            self.core.sessions().rejoin(cx.caller.session, cx.caller.holder, self.core.monotonic_ns());
            holder = cx.caller.holder;
        }
        let mut order: Vec<usize> = (0..presented.len()).collect();
        order.sort_by_key(|i| verbs::resume::order(&presented[*i]));
        let mut results: Vec<Result<()>> = presented.iter().map(|_| Ok(())).collect();
        let mut writer = self.core.writer();
        self.may_write(&writer)?;
        if holder != cx.caller.session {
            self.core.note_joined()?;
        }
        self.settle(&mut writer, cx);
        // It is back before its end could be written down.
        writer.unended.retain(|session| *session != cx.caller.session);
        let mut x = self.start(&mut writer, cx, holder, Mode::Each);
        for i in order {
            results[i] = x.attempt(|x| verbs::resume::resume(x, &presented[i]));
        }
        if is_all {
            let keep = presented.iter().map(|p| group_key(p.ws, p.uuid)).collect();
            // What cannot be closed now is at the session's end.
            let _ = x.attempt(|x| verbs::close::close_all_but(x, &keep));
        }
        self.commit_own(&mut writer, cx, x)?;
        Ok(results)
    }

    /// Takes up again the locks that a session has, on what it has open here. One result each; `Fenced` where one has
    /// ended, so that others may have had it (O11).
    pub fn resume_locks(&self, cx: &OpCx, presented: &[PresentedLock]) -> Result<Vec<Result<()>>> {
        let holder = self.admit(cx, presented.len())?;
        if !self.core.is_single_user() {
            return Err(Error::stale("the server does not know the session any more: open everything anew"));
        }
        let mut x = Exec::new(&self.core, cx, holder, Mode::Read, Pending::default());
        let now_ns = x.monotonic_ns;
        let resume = |p: &PresentedLock| {
            verbs::lock::check(&mut x, p.ws, p.uuid, p.lock.exclusive)?;
            self.core.locks().resume(p.uuid, cx.caller.session, &p.lock, now_ns)
        };
        let results = presented.iter().map(resume).collect();
        self.deliver();
        Ok(results)
    }

    /// Whether sessions of the incarnation before may still come back.
    pub fn in_grace(&self) -> bool {
        self.core.in_grace()
    }

    /// Nobody is left who could come back, or their time is over: what they held and had open is free.
    pub fn end_grace(&self) -> Result<()> {
        if self.core.grace_ns.load(Relaxed) == 0 {
            return Ok(());
        }
        // First: whoever finds that the time is over finds the locks free.
        self.core.locks().end_grace();
        self.deliver();
        if self.core.grace_ns.swap(0, Relaxed) == 0 {
            return Ok(());
        }
        *self.core.in_doubt() = None;
        {
            // Whoever has seen that some may still come back has written down by then what it did for them.
            let _writer = self.core.writer();
            self.core.shared_mut().nobody_comes_back();
        }
        let sealed = self.seal_all_parted();
        let mut writer = self.core.writer();
        self.may_write(&writer)?;
        recovery::remove_deleted(self, &mut writer).and(sealed)
    }

    /// Committed batches of which a target still has something to do.
    pub fn unfinished(&self) -> Vec<Uuid> {
        self.core.writer().redo.iter().map(|redo| redo.batch).collect()
    }

    /// Whether a batch is remembered as applied, or was when the catalog was opened.
    pub fn remembers(&self, batch: Uuid) -> bool {
        self.core.finished.get().is_some_and(|finished| finished.contains(&batch))
            || batch::known(self, batch).is_ok_and(|record| record.is_some())
    }

    /// Whether a session has anything open; nil = whether any has by which it acts.
    pub fn has_open(&self, session: Uuid) -> bool {
        let shared = self.core.shared();
        if session.is_nil() {
            shared.opens.iter().any(|(_, entry)| entry.is_in_use())
        } else {
            shared.opens.has_open(session)
        }
    }
}
