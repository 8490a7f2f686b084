//! Asks for direct access: the answer brings descriptors.

use std::{
    collections::BTreeSet,
    os::fd::OwnedFd,
    sync::{Arc, PoisonError},
};

use iov_net::{frames::Frame, socket::MAX_FDS};
use iov_store::OpCx;
use iov_types::{Clause, Error, Result};
use iov_wire::messages::{Access, GrantAnswer, GrantRequest, Granted, Window};

use crate::{Server, client::Client, connection::Connection};

pub(crate) fn run(connection: &Arc<Connection>, server: &Server, client: &Arc<Client>, frame: &Frame) -> Result<()> {
    let request: GrantRequest = frame.header.body(&frame.body)?;
    let cx = client.cx(&request.context, &frame.header);
    let answer =
        |body: &GrantAnswer, fds| connection.answer(client.version, frame.header.request, body, Vec::new(), fds);
    match grant(server, client, &cx, &request) {
        Ok((granted, descriptors)) => answer(&GrantAnswer::Granted(granted), descriptors),
        Err(e) => answer(&GrantAnswer::Failed(e), Vec::new()),
    }
    Ok(())
}

fn grant(server: &Server, client: &Client, cx: &OpCx, request: &GrantRequest) -> Result<(Granted, Vec<OwnedFd>)> {
    let served = server.targets.at(client.target);
    if !served.direct {
        // The session has a lease page all the same: by that the next daemon knows who lives.
        let why = "this store's bytes go through its daemon: use the socket";
        return Err(Error::unsupported(why).with_clause(Clause::G6));
    }
    let write = request.access != Access::Read;
    let leave = server.leave(client, &request.tickets)?;
    let (domain, epoch) = leave.to_grant(served, cx, request.object, write)?;
    if let Some(domain) = domain {
        served.grants.place(request.object, domain);
    }
    let epoch = request.epoch.max(epoch);
    let granted = served.grants.grant(cx, request.object, request.access, request.range, epoch)?;
    let (mut range, mut window, mut descriptors) = (granted.range, None, Vec::new());
    match granted.lent {
        Ok(descriptor) => descriptors.push(descriptor),
        Err(lent) => {
            let passed = pass(server, client, request, lent);
            let (lent, opened, covered) = passed.inspect_err(|_| {
                served.grants.give_back(client.session, granted.number);
            })?;
            range.len = covered.unwrap_or(range.end()).clamp(range.offset, range.end()) - range.offset;
            (window, descriptors) = (Some(lent), opened);
        }
    }
    let granted = Granted {
        grant: granted.number,
        range,
        position: range.offset,
        access: request.access,
        epoch: granted.epoch,
        lease_ns: server.lease_ns(),
        kept: granted.kept,
        window,
        // Whoever does not know of it has nothing on several targets.
        version: if request.object.slot == 0 { 0 } else { granted.version },
    };
    Ok((granted, descriptors))
}

/// Opens the segments that the client has not got yet. Not more of them than go beside one frame: then the window is shorter,
/// and where it ends is told.
fn pass(
    server: &Server,
    client: &Client,
    request: &GrantRequest,
    mut window: Window,
) -> Result<(Window, Vec<OwnedFd>, Option<u64>)> {
    if !request.memory {
        let why = "this program's library does not know shared memory: it uses the socket; update it";
        return Err(Error::unsupported(why).with_clause(Clause::G6));
    }
    let served = server.targets.at(client.target);
    let mut known = client.segments.lock().unwrap_or_else(PoisonError::into_inner);
    if request.anew {
        known.clear();
    }
    // What is read is mapped for reading, whatever else is mapped: a stray pointer cannot reach it, and a child inherits it.
    let has = |known: &BTreeSet<_>, number: u64| known.contains(&(number, request.access == Access::Write));
    let mut new = BTreeSet::new();
    let mut covered = None;
    let mut count = 0;
    if !has(&known, window.head_segment) {
        new.insert(window.head_segment);
    }
    for stretch in &window.stretches {
        if !has(&known, stretch.segment) && !new.contains(&stretch.segment) {
            if new.len() == MAX_FDS {
                covered = Some(stretch.offset);
                break;
            }
            new.insert(stretch.segment);
        }
        count += 1;
    }
    window.stretches.truncate(count);
    let opened: Vec<OwnedFd> =
        new.iter().map(|number| served.grants.segment(*number, request.access)).collect::<Result<_>>()?;
    known.extend(new.iter().map(|number| (*number, request.access == Access::Write)));
    window.passed = new.into_iter().collect();
    Ok((window, opened, covered))
}
