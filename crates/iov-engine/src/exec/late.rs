//! What an answer has done that nobody waits for any more.

use std::sync::Arc;

use iov_store::{Answer, OpCx};
use iov_types::{
    Uuid,
    catalog::{CatalogOp, CatalogReply, Submission},
};

use super::inbox::OnLate;
use crate::{Collection, Op, Session};

/// What a submission may leave open.
#[derive(Default)]
pub(super) struct Leaves {
    /// The catalog only tries it: what it tells as open is not.
    tried: bool,
    /// Which handles it opens and closes itself: where in it the close is, and the open.
    closes: Vec<(usize, usize)>,
}

impl Leaves {
    /// `sent`: the operation behind each of the submission.
    pub(super) fn of(asked: &[CatalogOp], how: &Submission, sent: &[Option<usize>], ops: &[Op]) -> Leaves {
        let op = |at: usize| sent.get(at).copied().flatten().and_then(|i| ops.get(i));
        // By the handle: another one of the same collection may have been open before.
        let opens = |c: &Collection| {
            (0..asked.len()).find(|at| op(*at).and_then(Op::out).is_some_and(|out| Arc::ptr_eq(&out.0, &c.0)))
        };
        let closes = asked.iter().enumerate().filter_map(|(at, asked)| match (asked, op(at)) {
            (CatalogOp::Close { .. }, Some(Op::Close { c })) => Some((at, opens(c)?)),
            _ => None,
        });
        Leaves { tried: matches!(how, Submission::DryRun), closes: closes.collect() }
    }

    /// What is open by an answer and was not closed again in the same submission.
    fn open(&self, answer: Answer) -> Vec<(Uuid, Uuid)> {
        let mut open = Vec::new();
        for (at, reply) in answer.into_iter().flatten().enumerate() {
            if let Ok(CatalogReply::Opened(opened)) = reply {
                open.push((at, (opened.ws, opened.uuid)));
            } else if let Some((_, opened)) = self.closes.iter().find(|(close, _)| *close == at) {
                // A close ends its handle whatever it says; of one before which the submission stopped there is no reply.
                open.retain(|(at, _)| at != opened);
            }
        }
        open.into_iter().map(|(_, which)| which).collect()
    }

    /// What is opened by an answer that nobody waits for any more is closed again: else nobody could, and it would be held as long as
    /// the session lives (X1, O10). `remembered`: who repeats the batch by its id finds open what it has opened.
    pub(super) fn close_late(self, session: &Session, cx: &OpCx, remembered: bool) -> OnLate {
        // A session that has ended meanwhile has closed everything.
        let (session, cx) = (Arc::downgrade(&session.0), cx.clone());
        let keeps = remembered || self.tried;
        Box::new(move |answer| {
            let Some(session) = session.upgrade().filter(|_| !keeps) else { return };
            let close = |(ws, uuid)| CatalogOp::Close { ws, uuid, published: None };
            let ops: Vec<CatalogOp> = self.open(answer).into_iter().map(close).collect();
            if !ops.is_empty() {
                let cx = OpCx::new(cx.caller.clone(), iov_types::limits::DEFAULT_DEADLINE_NS);
                session.sides.catalog.submit(&cx, ops, Submission::Each, Box::new(|_| {}));
            }
        })
    }
}
