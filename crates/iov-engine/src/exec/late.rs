//! What an answer has done that nobody waits for any more.

use std::{collections::HashMap, sync::Arc};

use iov_store::{Answer, OpCx};
use iov_types::{
    Uuid,
    catalog::{CatalogOp, CatalogReply, Submission},
};

use super::inbox::OnLate;
use crate::Session;

/// What a submission may leave open.
#[derive(Default)]
pub(super) struct Leaves {
    /// The catalog only tries it: what it tells as open is not.
    tried: bool,
    /// What it closes itself, by its place in the submission.
    closes: Vec<(usize, Uuid, Uuid)>,
}

impl Leaves {
    pub(super) fn of(ops: &[CatalogOp], how: &Submission) -> Leaves {
        let closes = ops.iter().enumerate().filter_map(|(i, op)| match op {
            CatalogOp::Close { ws, uuid, .. } => Some((i, *ws, *uuid)),
            _ => None,
        });
        Leaves { tried: matches!(how, Submission::DryRun), closes: closes.collect() }
    }

    /// What is open by an answer and was not closed again in the same submission, as often as that was opened.
    fn open(&self, answer: Answer) -> Vec<(Uuid, Uuid)> {
        let mut open: HashMap<(Uuid, Uuid), usize> = HashMap::new();
        for (i, reply) in answer.into_iter().flatten().enumerate() {
            match reply {
                Ok(CatalogReply::Opened(opened)) => *open.entry((opened.ws, opened.uuid)).or_default() += 1,
                Ok(_) => {
                    let closed = self.closes.iter().find(|(at, ..)| *at == i);
                    // One that was open before is not of this submission.
                    if let Some(n) = closed.and_then(|(_, ws, uuid)| open.get_mut(&(*ws, *uuid))) {
                        *n = n.saturating_sub(1);
                    }
                }
                Err(_) => {}
            }
        }
        open.into_iter().flat_map(|(which, n)| std::iter::repeat_n(which, n)).collect()
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
