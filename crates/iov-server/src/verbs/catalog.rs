//! Operations on facts, in one submission.

use std::sync::Arc;

use iov_net::frames::Frame;
use iov_types::{
    Outcome, Result,
    catalog::{CatalogOp, Submission},
};
use iov_wire::messages::{CatalogAnswer, CatalogRequest};

use crate::{Server, client::Client, connection::Connection};

/// What is true of a submission of which nothing can be told.
fn untold(how: &Submission, ops: &[CatalogOp]) -> Outcome {
    let only_reads = |op: &CatalogOp| {
        matches!(
            op,
            CatalogOp::WorkspaceSearch { .. }
                | CatalogOp::WorkspaceStat { .. }
                | CatalogOp::Stat { .. }
                | CatalogOp::Look { .. }
                | CatalogOp::Read { .. }
                | CatalogOp::Search { .. }
                | CatalogOp::MetaGet { .. }
                | CatalogOp::MetaList { .. }
                | CatalogOp::LockQuery { .. }
                | CatalogOp::Map { .. }
                | CatalogOp::Ticket { .. }
        )
    };
    match *how == Submission::DryRun || ops.iter().all(only_reads) {
        true => Outcome::NotApplied,
        false => Outcome::Unknown,
    }
}

pub(crate) fn run(
    connection: &Arc<Connection>,
    server: &Arc<Server>,
    client: &Arc<Client>,
    frame: &Frame,
) -> Result<()> {
    let request: CatalogRequest = frame.header.body(&frame.body)?;
    let cx = client.cx(&request.context, &frame.header);
    let (id, version) = (frame.header.request, client.version);
    // One that only a newer release understands fails the submission: what depends on it must not run without it.
    let ops = request.ops.into_iter().collect::<Result<Vec<_>>>()?;
    let (from, connection) = (connection, connection.clone());
    let batch = match &request.how {
        Submission::All { batch, .. } => Some(*batch),
        _ => None,
    };
    let (left, untold) = (server.clone(), untold(&request.how, &ops));
    let done = move |answer| {
        if let Some(batch) = batch {
            left.targets.leave(batch);
        }
        // Without a number nobody waits.
        if id != 0 {
            connection.answer_of(version, id, &CatalogAnswer::from(answer), Vec::new(), Vec::new(), untold);
        }
    };
    server.submit_of(from, cx, ops, request.how, Box::new(done))
}
