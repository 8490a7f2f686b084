//! A session comes back after its connection broke, or its daemon ended.

use std::sync::{Arc, atomic::Ordering};

use iov_net::{PRESENTED, frames::Frame};
use iov_types::{Result, catalog::CatalogReply};
use iov_wire::messages::{Resume, ResumeAnswer};

use crate::{Server, client::Client, connection::Connection};

pub(crate) fn run(connection: &Arc<Connection>, server: &Server, client: &Client, frame: &Frame) -> Result<()> {
    let request: Resume = frame.header.body(&frame.body)?;
    let cx = client.cx(&request.context, &frame.header);
    let served = server.targets.at(client.target);
    let done = |results: Vec<Result<()>>| results.into_iter().map(|done| done.map(|()| CatalogReply::Done)).collect();
    // The first message of a connection says all, unless it is as large as any: what else there is, the session knows nothing of.
    let is_all = !client.resumed.swap(true, Ordering::SeqCst) && request.opens.len() < PRESENTED;
    // Of a target's session the catalog knows nothing.
    let (opens, locks) = match server.facts.catalog().filter(|_| client.of.is_nil()) {
        Some(catalog) => {
            (done(catalog.resume(&cx, &request.opens, is_all)?), done(catalog.resume_locks(&cx, &request.locks)?))
        }
        None => (Vec::new(), Vec::new()),
    };
    let lost = served.stages.claim(client.owner, request.stages, &*served.grants);
    // What is published is there.
    let lost = lost.into_iter().filter(|stage| !server.facts.remembers(*stage)).collect();
    connection.answer(
        client.version,
        frame.header.request,
        &ResumeAnswer { opens, lost, locks },
        Vec::new(),
        Vec::new(),
    );
    Ok(())
}
