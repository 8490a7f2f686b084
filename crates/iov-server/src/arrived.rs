//! What others of this host have sent before somebody is told that they are in his way.
//!
//! A close of which nobody has to hear is sent, and not waited for ([`iov_store::OpCx::unheard`]). Who opens something exclusively after that must not be
//! told that it is open: what has been sent is served first, and then it is tried once more.

use std::sync::Arc;

use iov_store::{Answer, OnAnswer, OpCx, seam};
use iov_types::{
    Concurrency, Error, Kind, Result,
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

/// Whether it failed as somebody was, and left nothing behind.
fn was_kept_out(how: &Submission, answer: &Answer) -> bool {
    let is_busy = |e: &Error| e.kind() == Kind::Busy;
    match (how, answer) {
        (Submission::All { .. } | Submission::DryRun, Err(e)) => is_busy(e),
        (Submission::All { .. } | Submission::DryRun, Ok(replies)) => {
            replies.last().is_some_and(|last| last.as_ref().is_err_and(is_busy))
        }
        (_, Ok(replies)) => matches!(&replies[..], [Err(e)] if is_busy(e)),
        (_, Err(_)) => false,
    }
}

impl Server {
    /// As [`Server::submit`], for a client; what it is kept out by is what there is once all that others have sent has been served.
    pub(crate) fn submit_of(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        cx: OpCx,
        ops: Vec<CatalogOp>,
        how: Submission,
        done: OnAnswer,
    ) -> Result<()> {
        if !ops.iter().any(may_be_kept_out) {
            return self.submit(cx, ops, how, done);
        }
        let (server, connection, again, known) =
            (self.clone(), connection.clone(), cx.clone(), (ops.clone(), how.clone()));
        let answered = move |answer: Answer| {
            let (ops, how) = known;
            if !was_kept_out(&how, &answer) {
                return done(answer);
            }
            server.take_in(&connection);
            // The catalog was there.
            let _ = server.submit(again, ops, how, done);
        };
        self.submit(cx, ops, how, Box::new(answered))
    }

    /// Waits until what others of this host have sent so far has been served.
    fn take_in(&self, but: &Arc<Connection>) {
        let others = self.all().into_iter().filter(|other| !other.is_network() && !Arc::ptr_eq(other, but));
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
