//! A daemon of targets is there: they get their numbers, and it gets what it needs to know.

use std::sync::{Arc, PoisonError, atomic::Ordering};

use iov_net::{Link, frames::Frame, secret};
use iov_store::{Backend, Catalog, seam};
use iov_types::{Error, Reach, Result};
use iov_wire::messages::{Join, JoinAnswer};

use crate::{
    Entrance, Server,
    client::Client,
    connection::Connection,
    elsewhere::{BEAT_NS, capability_of},
};

pub(crate) fn run(connection: &Arc<Connection>, server: &Server, client: &Client, frame: &Frame) -> Result<()> {
    let request: Join = frame.header.body(&frame.body)?;
    let answer = join(connection, server, client, request)?;
    connection.answer(client.version, frame.header.request, &answer, Vec::new(), Vec::new());
    Ok(())
}

fn join(connection: &Connection, server: &Server, client: &Client, request: Join) -> Result<JoinAnswer> {
    let catalog = server.facts.need_catalog()?;
    let Join { daemon, incarnation, targets, leaves, ready, catalog: known, store } = request;
    if daemon.is_nil() {
        return Err(Error::invalid("a daemon that joins has a UUID"));
    }
    if !store.is_nil() && store != catalog.store_uuid() {
        return Err(Error::conflict(format!(
            "the daemon's targets belong to the store {store}, and this is another one ({}): join with an empty directory",
            catalog.store_uuid()
        )));
    }
    if server.members.is_outdated(daemon, incarnation) {
        return Err(Error::stale("another daemon with the same directory has joined since: one of them is a copy"));
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
    for target in &targets {
        numbers.push(catalog.number_target(target.clone())?);
    }
    // Who has not put its stages in order by this catalog's word does so first: nothing is asked of it before. Whoever waits for
    // it holds what the list needs, and gives up in time.
    let ready = ready && known == server.members.session;
    let unfinished = if ready { Vec::new() } else { catalog.unfinished() };
    // One after the other: the way that is taken and the one that is kept are the same.
    let _one = server.members.joining.lock().unwrap_or_else(PoisonError::into_inner);
    for (number, target) in numbers.iter().copied().zip(&targets).filter(|_| ready) {
        let link = |address| -> Result<Arc<Link>> {
            let ticket = catalog.own_ticket(server.members.session)?;
            Ok(Link::of_catalog(address, catalog.store_uuid(), capability_of(catalog.capability(), target), ticket))
        };
        let (way, fresh) = server.members.way((daemon, incarnation), number, target, link)?;
        if fresh {
            let backend: Arc<dyn Backend> = way.clone();
            catalog.reach_target(number, backend, target.capability.clone());
        }
        catalog.note_target(number, Reach::Online, Some((target.capacity, target.free)));
        ways.push((number, way));
    }
    if ready {
        let heard = server.members.heard((daemon, client.session), incarnation, ways);
        heard.gone.iter().for_each(|number| catalog.note_target(*number, Reach::Offline, None));
        server.returns.fetch_or(heard.is_back, Ordering::AcqRel);
    }
    let (key, nonce) = masked_key(connection, server)?;
    Ok(JoinAnswer {
        store: catalog.store_uuid(),
        numbers,
        catalog: server.members.session,
        key,
        nonce,
        now_ns: seam::now_ns(),
        lease_ns: server.lease_ns(),
        beat_ns: BEAT_NS as u64,
        unfinished,
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
