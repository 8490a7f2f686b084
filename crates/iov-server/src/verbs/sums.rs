//! Tells checksums to a client that reads by itself.

use std::sync::Arc;

use iov_net::frames::Frame;
use iov_store::block_sums::BlockSum;
use iov_types::{Error, Result};
use iov_wire::messages::{SumsAnswer, SumsRequest};

use crate::{Server, client::Client, connection::Connection};

/// Most runs of one answer.
const RUNS: u64 = 64;

pub(crate) fn run(connection: &Arc<Connection>, server: &Server, client: &Arc<Client>, frame: &Frame) -> Result<()> {
    let request: SumsRequest = frame.header.body(&frame.body)?;
    let cx = client.cx(&request.context, &frame.header);
    let known = match request.runs {
        1..=RUNS => server.targets.at(client.target).grants.sums(&cx, request.object, request.first, request.runs),
        runs => Err(Error::too_big(format!("checksums of {runs} runs; ask for 1 to {RUNS} at a time"))),
    };
    let (failed, sums) = match known {
        Ok(sums) => (None, sums.into_iter().flat_map(BlockSum::encode).collect::<Vec<u8>>()),
        Err(e) => (Some(e), Vec::new()),
    };
    connection.answer(client.version, frame.header.request, &SumsAnswer { failed }, vec![sums.into()], Vec::new());
    Ok(())
}
