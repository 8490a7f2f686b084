//! A daemon of targets is there: they get their numbers, and it gets what it needs to know.

use std::sync::Arc;

use iov_net::{Link, frames::Frame, secret};
use iov_store::{Backend, Catalog, seam};
use iov_types::{Error, Reach, Result};
use iov_wire::messages::{Join, JoinAnswer};

use crate::{
    Entrance, Server,
    connection::{Client, Connection},
    elsewhere::{BEAT_NS, capability_of},
};

pub(crate) fn run(connection: &Arc<Connection>, server: &Server, client: &Client, frame: &Frame) -> Result<()> {
    let request: Join = frame.header.body(&frame.body)?;
    let answer = join(connection, server, request)?;
    connection.answer(client.version, frame.header.request, &answer, Vec::new(), Vec::new());
    Ok(())
}

fn join(connection: &Connection, server: &Server, request: Join) -> Result<JoinAnswer> {
    let catalog = server.facts.need_catalog()?;
    let Join { daemon, incarnation, targets, leaves } = request;
    if daemon.is_nil() {
        return Err(Error::invalid("a daemon that joins has a UUID"));
    }
    if leaves {
        let gone = server.members.leaves(daemon);
        gone.into_iter().for_each(|number| catalog.note_target(number, Reach::Offline, None));
        return Ok(JoinAnswer::default());
    }
    if targets.is_empty() {
        return Err(Error::invalid("a daemon that joins has targets"));
    }
    let (mut numbers, mut ways) = (Vec::new(), Vec::new());
    for target in targets {
        let target = iov_types::Target { reach: Reach::Online, ..target };
        let number = catalog.number_target(target.clone())?;
        let link = |address| -> Result<Arc<Link>> {
            let ticket = catalog.own_ticket(server.members.session)?;
            Ok(Link::of_catalog(address, catalog.store_uuid(), capability_of(catalog.capability(), &target), ticket))
        };
        let (way, fresh) = server.members.way((daemon, incarnation), number, &target, link)?;
        if fresh {
            let backend: Arc<dyn Backend> = way.clone();
            catalog.reach_target(number, backend, target.capability.clone());
        }
        catalog.note_target(number, Reach::Online, Some((target.capacity, target.free)));
        numbers.push(number);
        ways.push((number, way));
    }
    let heard = server.members.heard(daemon, incarnation, ways);
    heard.gone.iter().for_each(|number| catalog.note_target(*number, Reach::Offline, None));
    let (key, nonce) = masked_key(connection, server)?;
    if heard.is_new {
        server.returns.store(true, std::sync::atomic::Ordering::Release);
    }
    Ok(JoinAnswer {
        store: catalog.store_uuid(),
        incarnation: catalog.incarnation(),
        numbers,
        catalog: server.members.session,
        key,
        nonce,
        now_ns: seam::now_ns(),
        lease_ns: server.lease_ns(),
        beat_ns: BEAT_NS as u64,
        // Whoever waits for this target gives up in time.
        unfinished: if heard.is_new { catalog.unfinished() } else { Vec::new() },
    })
}

/// The key of tickets: over a network only for those who have the store's secret.
fn masked_key(connection: &Connection, server: &Server) -> Result<(Vec<u8>, Vec<u8>)> {
    let key = server.facts.need_catalog()?.ticket_key()?;
    match &server.options.entrance {
        Entrance::Secret(secret) if connection.is_network() => {
            let nonce = secret::nonce();
            Ok((secret.mask(&nonce, key.bytes()).to_vec(), nonce.to_vec()))
        }
        _ => Ok((key.bytes().to_vec(), Vec::new())),
    }
}
