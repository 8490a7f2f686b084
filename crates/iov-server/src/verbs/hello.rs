//! Hello: who it is, which version both speak, and the lease page of its session.

use std::{os::fd::OwnedFd, sync::Mutex};

use iov_net::frames::Frame;
use iov_types::{Error, Result};
use iov_wire::messages::{Hello, Welcome};

use crate::{
    Server,
    connection::{Client, Connection},
    peer::Peer,
};

fn nothing() -> Result<OwnedFd> {
    let opened = std::fs::File::open("/dev/null");
    opened.map(OwnedFd::from).map_err(|e| Error::from(e).context("a descriptor to send"))
}

pub(crate) fn greet(connection: &Connection, server: &Server, peer: Peer, frame: &Frame) -> Result<Client> {
    let hello: Hello = frame.header.body(&frame.body)?;
    let version = hello.choose()?;
    if hello.session.is_nil() {
        return Err(Error::invalid("a session has a UUID"));
    }
    server.session_begins(hello.session)?;
    // What the kernel says counts, not what the peer says of itself.
    let page = server.grants.open_session(hello.session, peer.pid, peer.uid);
    // A descriptor comes with every welcome; without a page it is another one, so that the client does not ask for grants.
    let page = page.and_then(|page| page.map_or_else(nothing, Ok));
    let page = page.inspect_err(|_| server.session_ends(hello.session))?;
    let welcome = Welcome {
        version,
        store: server.options.store,
        incarnation: server.options.incarnation,
        capability: server.capability(),
        daemon: env!("CARGO_PKG_VERSION").into(),
        pid: std::process::id(),
        lease_ns: server.lease_ns(),
    };
    connection.answer(version, frame.header.request, &welcome, Vec::new(), vec![page]);
    Ok(Client { peer, session: hello.session, version, segments: Mutex::default() })
}
