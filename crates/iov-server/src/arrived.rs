//! What others of this host have sent before somebody is told that they are in his way.
//!
//! A close of which nobody has to hear is sent, and not waited for ([`iov_store::OpCx::unheard`]). Who opens something exclusively after that must not be
//! told that it is open: what has been sent is served first, and then it is tried once more.

use std::sync::Arc;

use iov_store::{Answer, OnAnswer, OpCx, seam};
use iov_types::{
    Concurrency, Error, Kind, Outcome, Result,
    catalog::{CatalogOp, Submission},
};

use crate::{Server, connection::Connection};

/// Longest that is waited for what others have sent, in nanoseconds: one of them may take none of its answers.
const PATIENCE_NS: i64 = 20_000_000;
/// Between two looks, in nanoseconds.
const PAUSE_NS: u64 = 20_000;

/// Whether what others have open can be in its way.
fn may_be_kept_out(op: &CatalogOp) -> bool {
    match op {
        CatalogOp::Open { controls, .. } => controls.concurrency == Some(Concurrency::Exclusive),
        CatalogOp::WorkspaceDelete { .. } => true,
        _ => false,
    }
}

/// Whether a submission that is refused since somebody is in its way leaves nothing behind, and takes nothing with it: what a batch has staged goes
/// with its refusal.
fn may_be_repeated(how: &Submission, ops: usize) -> bool {
    match how {
        Submission::All { staged, .. } => staged.is_empty(),
        Submission::DryRun => true,
        Submission::Each | Submission::UntilFailure => ops == 1,
    }
}

/// Whether one was.
fn was_kept_out(answer: &Answer) -> bool {
    let is_busy = |e: &Error| e.kind() == Kind::Busy && e.outcome() == Outcome::NotApplied;
    match answer {
        Err(e) => is_busy(e),
        Ok(replies) => replies.last().is_some_and(|last| last.as_ref().is_err_and(is_busy)),
    }
}

impl Server {
    /// As [`Server::submit`], for a client; what it is kept out by is what there is once all that others have sent has been served. What can be is tried first,
    /// as it is hardly ever kept out.
    pub(crate) fn submit_of(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        cx: OpCx,
        ops: Vec<CatalogOp>,
        how: Submission,
        done: OnAnswer,
    ) -> Result<()> {
        if !ops.iter().any(may_be_kept_out) {
            return self.submit(connection, cx, ops, how, done);
        }
        if !may_be_repeated(&how, ops.len()) {
            self.take_in(connection);
            return self.submit(connection, cx, ops, how, done);
        }
        let (server, of, again, known) = (self.clone(), connection.clone(), cx.clone(), (ops.clone(), how.clone()));
        let answered = move |answer: Answer| {
            let (ops, how) = known;
            if !was_kept_out(&answer) {
                return done(answer);
            }
            server.take_in(&of);
            // The catalog was there.
            let _ = server.submit(&of, again, ops, how, done);
        };
        self.submit(connection, cx, ops, how, Box::new(answered))
    }

    /// Waits until what others of this host have sent so far has been served; not for those who wait so themselves, of whom all that came before has been.
    fn take_in(&self, of: &Arc<Connection>) {
        let _waits = of.waits_for_others();
        let others = self.all().into_iter().filter(|other| !other.is_network() && !Arc::ptr_eq(other, of));
        let mut behind: Vec<_> = others.map(|other| (other.round(), other)).collect();
        let until_ns = seam::monotonic_ns() + PATIENCE_NS;
        loop {
            behind.retain(|(round, other)| !other.is_through(*round));
            if behind.is_empty() || seam::monotonic_ns() > until_ns {
                return;
            }
            // The one who looks at them may be this thread.
            self.watch.check();
            seam::sleep(PAUSE_NS);
        }
    }
}

#[cfg(test)]
mod tests;
