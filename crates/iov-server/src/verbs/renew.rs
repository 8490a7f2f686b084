//! Keeps the leases of a session.

use std::sync::Arc;

use iov_net::frames::Frame;
use iov_store::Catalog;
use iov_types::{
    Result,
    catalog::{CatalogOp, Submission},
};
use iov_wire::messages::{Context, Renew};

use crate::{Server, client::Client, connection::Connection};

pub(crate) fn run(connection: &Arc<Connection>, server: &Server, client: &Client, frame: &Frame) -> Result<()> {
    let _: Renew = frame.header.body(&frame.body)?;
    let cx = client.cx(&Context::default(), &frame.header);
    if let Some(catalog) = server.facts.catalog() {
        catalog.submit(&cx, vec![CatalogOp::Renew], Submission::Each, Box::new(|_| {}));
    }
    connection.answer(
        client.version,
        frame.header.request,
        &Renew { lease_ns: server.lease_ns() },
        Vec::new(),
        Vec::new(),
    );
    Ok(())
}
