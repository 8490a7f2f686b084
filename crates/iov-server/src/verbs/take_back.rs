//! Ends what was lent to a client, to be written by others.

use std::sync::Arc;

use iov_net::frames::Frame;
use iov_types::Result;
use iov_wire::messages::{TakeBack, TakeBackAnswer};

use crate::{Server, client::Client, connection::Connection};

pub(crate) fn run(connection: &Arc<Connection>, server: &Server, client: &Arc<Client>, frame: &Frame) -> Result<()> {
    let request: TakeBack = frame.header.body(&frame.body)?;
    let cx = client.cx(&request.context, &frame.header);
    // Whatever else it may do: what was lent to its session is its own.
    let failed = server.targets.at(client.target).grants.take_back(&cx, client.session, request.object).err();
    connection.answer(client.version, frame.header.request, &TakeBackAnswer { failed }, Vec::new(), Vec::new());
    Ok(())
}
