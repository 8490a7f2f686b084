//! Submissions that could not be carried out since a target of another daemon is away: they wait until it is back, or to the end
//! of their time (O8). Nothing of them was applied.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use iov_store::{Answer, Catalog, OnAnswer, OpCx, seam};
use iov_types::{
    Error, Kind, Outcome, Result,
    catalog::{CatalogOp, CatalogReply, Submission},
};

use crate::{Server, elsewhere::GONE_NS};

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
    cx: OpCx,
    ops: Vec<CatalogOp>,
    how: Submission,
    /// What is answered if nothing has changed by then, on the monotonic clock.
    answer: Answer,
    until_ns: i64,
    done: OnAnswer,
}

/// All of them.
#[derive(Default)]
pub(crate) struct Lot(Mutex<Vec<Parked>>);

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
    fn lock(&self) -> MutexGuard<'_, Vec<Parked>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those that wait no more: all, or those whose time is up.
    fn take(&self, all: bool) -> Vec<Parked> {
        let now_ns = seam::monotonic_ns();
        let mut lot = self.lock();
        let (leave, stay) = std::mem::take(&mut *lot).into_iter().partition(|p: &Parked| all || p.until_ns <= now_ns);
        *lot = stay;
        leave
    }
}

impl Server {
    /// Submits to the catalog. What a target that is away keeps from being done waits for that.
    pub(crate) fn submit(
        self: &Arc<Self>,
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
        let (server, again, known) = (self.clone(), cx.clone(), (ops.clone(), how.clone()));
        let answered = move |answer: Answer| {
            let (ops, how) = known;
            let until_ns = until(&again);
            if !waits(&how, &answer) || until_ns <= seam::monotonic_ns() {
                return done(answer);
            }
            let mut lot = server.lot.lock();
            if lot.len() < MOST {
                return lot.push(Parked { cx: again, ops, how, answer, until_ns, done });
            }
            drop(lot);
            done(answer);
        };
        catalog.submit(&cx, ops, how, Box::new(answered));
        Ok(())
    }

    /// A target is back: what has waited goes on.
    pub(crate) fn unpark(self: &Arc<Self>) {
        for Parked { cx, ops, how, answer, done, .. } in self.lot.take(true) {
            if cx.left_ns() == 0 {
                done(answer);
                continue;
            }
            // The catalog was there.
            let _ = self.submit(cx, ops, how, done);
        }
    }

    /// Answers those whose time is up; all, if the daemon ends.
    pub(crate) fn give_up_parked(&self, all: bool) {
        self.lot.take(all).into_iter().for_each(|parked| (parked.done)(parked.answer));
    }
}
