//! Asks for direct access: the answer brings a descriptor.

use std::{os::fd::AsFd, sync::Arc};

use iov_net::frames::Frame;
use iov_types::Result;
use iov_wire::messages::{Access, GrantAnswer, GrantRequest, Granted};

use crate::{
    Server,
    connection::{Client, Connection},
    verbs::object::check_there,
};

pub(crate) fn run(connection: &Arc<Connection>, server: &Server, client: &Arc<Client>, frame: &Frame) -> Result<()> {
    let request: GrantRequest = frame.header.body(&frame.body)?;
    let cx = client.cx(&request.context, &frame.header);
    let answer =
        |body: &GrantAnswer, fds: &[_]| connection.answer(client.version, frame.header.request, body, &[], fds);
    let at_target = server.catalog.at_target(&cx, request.object.collection).and_then(|()| match request.access {
        Access::Write => check_there(server, &cx, request.object, None),
        Access::Read => Ok(()),
    });
    match at_target
        .and_then(|()| server.grants.grant(&cx, request.object, request.access, request.range, request.epoch))
    {
        Ok(granted) => {
            let body = GrantAnswer::Granted(Granted {
                grant: granted.number,
                range: granted.range,
                position: granted.range.offset,
                access: request.access,
                epoch: granted.epoch,
                lease_ns: server.lease_ns(),
                kept: granted.kept,
            });
            answer(&body, &[granted.fd.as_fd()]);
        }
        Err(e) => answer(&GrantAnswer::Failed(e), &[]),
    }
    Ok(())
}
