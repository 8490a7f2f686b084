//! Hello: who it is, which version both speak, and the lease page of its session. Over a network the peer proves first that it
//! has the store's secret.

use std::{
    os::fd::OwnedFd,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicI64},
    },
};

use iov_net::{
    frames::Frame,
    secret::{self, Nonce, Side},
};
use iov_types::{Clause, Error, Result};
use iov_wire::messages::{Challenge, Hello, Proof, Welcome};

use crate::{Entrance, Server, client::Client, connection::Connection, peer::Peer, server::MAX_CHANNELS};

/// How far a greeting is.
#[derive(Default)]
pub(crate) enum Greeting {
    /// Nothing has come.
    #[default]
    Silent,
    /// Who has said this was asked for proof.
    Asked(Box<Hello>, Nonce),
}

fn nothing() -> Result<OwnedFd> {
    let opened = std::fs::File::open("/dev/null");
    opened.map(OwnedFd::from).map_err(|e| Error::from(e).context("a descriptor to send"))
}

/// Takes a frame of a peer that is not in yet; whoever it is, once it is.
pub(crate) fn greet(
    connection: &Connection,
    server: &Server,
    greeting: &mut Greeting,
    frame: &Frame,
) -> Result<Option<Client>> {
    if !frame.payload.is_empty() {
        return Err(Error::corrupt("a greeting has no payload"));
    }
    match std::mem::take(greeting) {
        Greeting::Silent => {
            let hello: Hello = frame.header.body(&frame.body)?;
            match (connection.is_network(), &server.options.entrance) {
                (false, _) => {
                    let peer = Peer::of(connection, server.options.owner)?;
                    let_in(connection, server, peer, &hello, Vec::new(), frame).map(Some)
                }
                (true, Entrance::Anybody) => {
                    let peer = Peer::owner(server.options.owner);
                    let_in(connection, server, peer, &hello, Vec::new(), frame).map(Some)
                }
                (true, Entrance::Secret(_)) => {
                    let version = hello.choose()?;
                    let nonce = secret::nonce();
                    let challenge = Challenge { challenge: nonce.to_vec() };
                    connection.answer(version, frame.header.request, &challenge, Vec::new(), Vec::new());
                    *greeting = Greeting::Asked(Box::new(hello), nonce);
                    Ok(None)
                }
            }
        }
        Greeting::Asked(hello, nonce) => {
            let given: Proof = frame.header.body(&frame.body)?;
            let Entrance::Secret(secret) = &server.options.entrance else {
                return Err(Error::internal("a proof was asked for without a secret"));
            };
            // Over TLS it is of this connection only: who stands in the middle has two.
            let secret = secret.within(connection.exported()?.as_ref());
            if !secret.fits(&given.proof, Side::Client, &hello, &nonce) {
                return Err(Error::denied(
                    "your secret is not the one of this store: copy the file named secret from its directory anew",
                )
                .with_clause(Clause::A2));
            }
            let proof = secret.proof(Side::Server, &hello, &hello.challenge).to_vec();
            let peer = Peer::owner(server.options.owner);
            let_in(connection, server, peer, &hello, proof, frame).map(Some)
        }
    }
}

fn let_in(
    connection: &Connection,
    server: &Server,
    peer: Peer,
    hello: &Hello,
    proof: Vec<u8>,
    frame: &Frame,
) -> Result<Client> {
    let version = hello.choose()?;
    if hello.session.is_nil() {
        return Err(Error::invalid("a session has a UUID"));
    }
    if hello.channel > MAX_CHANNELS {
        return Err(Error::too_big(format!("a session has at most {MAX_CHANNELS} channels besides its first")));
    }
    // Who comes to a daemon without a catalog as to a store asks how it is, or tells it to end.
    let none = (hello.target == 0 && server.facts.catalog().is_none()).then_some(0);
    let target = server.targets.find(hello.target).or(none).ok_or_else(|| {
        Error::not_found(format!("this daemon has no target {}: ask the catalog where it is now", hello.target))
    })?;
    // At another daemon's target nobody knows the session for the store: whose stages there are, the session for the target says.
    let of = (target > 0 && server.facts.catalog().is_some()).then_some(hello.of);
    server.session_begins(hello.session, of, hello.channel, connection.id())?;
    let page = match (peer.pid, hello.channel) {
        // What the kernel says counts, not what the peer says of itself. A descriptor comes with every welcome; without a
        // page it is another one, so that the client does not ask for grants.
        (Some(pid), 0) => server.targets.at(target).grants.open_session(hello.session, pid, peer.uid),
        _ => Ok(None),
    };
    let paged = matches!(page, Ok(Some(_)));
    let page = page.and_then(|page| match (page, peer.pid) {
        (None, None) => Ok(Vec::new()),
        (None, Some(_)) => nothing().map(|fd| vec![fd]),
        (Some(page), _) => Ok(vec![page]),
    });
    let page = page.inspect_err(|_| server.session_never_began(hello.session, hello.channel, connection.id()))?;
    // What no lease page stands for is written down elsewhere, for the next daemon. (That of a program of this host at a target
    // without pages is not waited for: nothing is kept for it there.)
    let is_seen = peer.pid.is_some_and(|pid| pid != 0);
    if hello.channel == 0 && !paged && !(is_seen && of.is_some()) {
        server.afar.begins(hello.session);
    }
    let mut beside = page;
    // Who cannot have them goes on without.
    let rings = (hello.rings && hello.channel == 0 && !connection.is_network()).then(|| connection.begin_rings().ok());
    let rings = rings.flatten().map(|memory| beside.push(memory)).is_some();
    let welcome = Welcome {
        version,
        store: server.options.store,
        incarnation: server.options.incarnation,
        capability: server.capability(target),
        daemon: env!("CARGO_PKG_VERSION").into(),
        pid: std::process::id(),
        lease_ns: server.lease_ns(),
        proof,
        addresses: server.options.addresses.clone(),
        target: hello.target,
        priorities: true,
        rings,
    };
    connection.answer(version, frame.header.request, &welcome, Vec::new(), beside);
    Ok(Client {
        peer,
        session: hello.session,
        owner: of.unwrap_or(hello.session),
        of: hello.of,
        channel: hello.channel,
        target,
        version,
        segments: Mutex::default(),
        alive_ns: AtomicI64::new(0),
        resumed: AtomicBool::new(false),
    })
}
