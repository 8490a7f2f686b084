//! Asks the daemon to end; the answer is how it was.

use std::sync::Arc;

use iov_net::frames::Frame;
use iov_types::Result;
use iov_wire::messages::{Goodbye, Shutdown};

use crate::{Server, client::Client, connection::Connection};

pub(crate) fn run(connection: &Arc<Connection>, server: &Server, client: &Client, frame: &Frame) -> Result<()> {
    let _: Shutdown = frame.header.body(&frame.body)?;
    connection.answer(client.version, frame.header.request, &Goodbye, Vec::new(), Vec::new());
    server.stop();
    Ok(())
}
