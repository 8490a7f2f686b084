//! A grant comes back.

use iov_net::frames::Frame;
use iov_types::Result;
use iov_wire::messages::GiveBack;

use crate::{Server, client::Client};

pub(crate) fn run(server: &Server, client: &Client, frame: &Frame) -> Result<()> {
    let back: GiveBack = frame.header.body(&frame.body)?;
    server.targets.at(client.target).grants.give_back(client.session, back.grant);
    Ok(())
}
