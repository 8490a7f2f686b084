//! Submissions that could not be carried out since a target of another daemon is away: they wait until it is back, or to the end
//! of their time (O8). Nothing of them was applied.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, atomic::Ordering};

use iov_store::{Answer, Catalog, OnAnswer, OpCx, seam};
use iov_types::{
    Error, Kind, Outcome, Result, Uuid,
    catalog::{CatalogOp, CatalogReply, Submission},
};

use crate::{Server, connection::Connection, elsewhere::GONE_NS};

/// Most that wait.
const MOST: usize = 1 << 14;
/// How long before the end of its time one is answered: it is better told why than that nothing came.
const BEFORE_NS: i64 = 300_000_000;

/// Until when a submission may wait: not for one that is gone for good.
fn until(cx: &OpCx) -> i64 {
    let in_time = cx.deadline_ns.saturating_sub(BEFORE_NS);
    in_time.min(seam::monotonic_ns().saturating_add(GONE_NS))
}

/// A submission that waits.
struct Parked {
    /// Over which it came.
    from: Arc<Connection>,
    cx: OpCx,
    ops: Vec<CatalogOp>,
    how: Submission,
    /// What is answered if nothing has changed by then, on the monotonic clock.
    answer: Answer,
    until_ns: i64,
    since_ns: i64,
    done: OnAnswer,
}

/// All of them.
#[derive(Default)]
struct Book {
    parked: Vec<Parked>,
    /// The session and the connection of the one that is being tried again.
    tried: Option<(Uuid, u64)>,
}

/// Where they wait.
#[derive(Default)]
pub(crate) struct Lot {
    book: Mutex<Book>,
    tried: Condvar,
}

impl Parked {
    fn whose(&self) -> (Uuid, u64) {
        (self.cx.caller.session, self.from.id())
    }
}

fn is_away(e: &Error) -> bool {
    e.kind() == Kind::Unavailable && e.outcome() == Outcome::NotApplied
}

/// Whether a submission failed as a target was away, and left nothing behind.
fn waits(how: &Submission, answer: &Answer) -> bool {
    let last = |replies: &Vec<Result<CatalogReply>>| matches!(replies.last(), Some(Err(e)) if is_away(e));
    match (how, answer) {
        (Submission::All { .. } | Submission::DryRun, Err(e)) => is_away(e),
        (Submission::All { .. } | Submission::DryRun, Ok(replies)) => last(replies),
        (Submission::Each | Submission::UntilFailure, Ok(replies)) => replies.len() == 1 && last(replies),
        (_, Err(_)) => false,
    }
}

impl Lot {
    fn lock(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those that wait no more: all, or those whose time is up.
    fn take(&self, all: bool) -> Vec<Parked> {
        let now_ns = seam::monotonic_ns();
        let mut book = self.lock();
        let (leave, stay) = std::mem::take(&mut book.parked).into_iter().partition(|p| all || p.until_ns <= now_ns);
        book.parked = stay;
        leave
    }

    /// The first of those that were there at a time, to be tried again.
    fn try_next(&self, before_ns: i64) -> Option<Parked> {
        let mut book = self.lock();
        let next = book.parked.iter().position(|parked| parked.since_ns <= before_ns)?;
        let parked = book.parked.remove(next);
        book.tried = Some(parked.whose());
        Some(parked)
    }

    fn was_tried(&self) {
        self.lock().tried = None;
        self.tried.notify_all();
    }

    /// A session ends: nothing of it is tried any more, as what it has staged goes with it. Waits for what is being tried.
    pub(crate) fn forget(&self, session: Uuid) {
        drop(self.take_of(|(of, _)| of == session));
    }

    /// Takes out what is of some session or connection. Waits for what is being tried of it.
    fn take_of(&self, is_of: impl Fn((Uuid, u64)) -> bool) -> Vec<Parked> {
        let mut book = self.lock();
        let mut taken = Vec::new();
        loop {
            let (leave, stay): (Vec<_>, _) =
                std::mem::take(&mut book.parked).into_iter().partition(|p| is_of(p.whose()));
            book.parked = stay;
            taken.extend(leave);
            if !book.tried.is_some_and(&is_of) {
                return taken;
            }
            // It may be put back.
            book = self.tried.wait(book).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Server {
    /// Submits to the catalog. What a target that is away keeps from being done waits for that.
    pub(crate) fn submit(
        self: &Arc<Self>,
        from: &Arc<Connection>,
        cx: OpCx,
        ops: Vec<CatalogOp>,
        how: Submission,
        done: OnAnswer,
    ) -> Result<()> {
        let catalog = self.facts.need_catalog()?;
        if self.members.is_empty() {
            catalog.submit(&cx, ops, how, done);
            return Ok(());
        }
        let (server, from, again, known) = (self.clone(), from.clone(), cx.clone(), (ops.clone(), how.clone()));
        let answered = move |answer: Answer| {
            let (ops, how) = known;
            let until_ns = until(&again);
            if !waits(&how, &answer) || until_ns <= seam::monotonic_ns() || server.is_stopping() {
                return done(answer);
            }
            let mut book = server.lot.lock();
            if book.parked.len() < MOST && !from.has_left() {
                let since_ns = seam::monotonic_ns();
                book.parked.push(Parked { from, cx: again, ops, how, answer, until_ns, since_ns, done });
                drop(book);
                if server.members.are_there() {
                    // It has come back meanwhile.
                    server.returns.store(true, Ordering::Release);
                }
                return;
            }
            drop(book);
            done(answer);
        };
        catalog.submit(&cx, ops, how, Box::new(answered));
        Ok(())
    }

    /// A target is back: what has waited goes on.
    pub(crate) fn unpark(self: &Arc<Self>) {
        let before_ns = seam::monotonic_ns();
        while let Some(Parked { from, cx, ops, how, answer, done, .. }) = self.lot.try_next(before_ns) {
            if cx.left_ns() == 0 {
                done(answer);
            } else {
                // The catalog was there.
                let _ = self.submit(&from, cx, ops, how, done);
            }
            self.lot.was_tried();
        }
    }

    /// A connection has ended: nothing that came over it takes effect any more. Its session may live, and say the same again over another one.
    pub(crate) fn leave_parked(&self, connection: &Connection) {
        let id = connection.id();
        // Behind that nothing of it is put there.
        connection.leaves();
        self.lot.take_of(|(_, of)| of == id).into_iter().for_each(|parked| (parked.done)(parked.answer));
    }

    /// Answers those whose time is up; all, if the daemon ends.
    pub(crate) fn give_up_parked(&self, all: bool) {
        self.lot.take(all).into_iter().for_each(|parked| (parked.done)(parked.answer));
    }
}
