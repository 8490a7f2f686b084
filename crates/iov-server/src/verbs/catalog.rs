//! Operations on facts, in one submission.

use std::sync::Arc;

use iov_net::frames::Frame;
use iov_types::{Result, catalog::Submission};
use iov_wire::messages::{CatalogAnswer, CatalogRequest};

use crate::{Server, client::Client, connection::Connection};

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
    let left = server.clone();
    let done = move |answer| {
        if let Some(batch) = batch {
            left.targets.leave(batch);
        }
        // Without a number nobody waits.
        if id != 0 {
            connection.answer(version, id, &CatalogAnswer::from(answer), Vec::new(), Vec::new());
        }
    };
    server.submit_of(from, cx, ops, request.how, Box::new(done))
}
