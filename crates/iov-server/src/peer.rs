//! Who is on the other side (A2): of a local socket the kernel says so; over a network it is whoever has the store's secret,
//! and that is its owner.

use std::os::fd::AsFd;

use iov_store::Credentials;
use iov_types::{Clause, Error, Result};

/// A proven peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Its process, 0 where that has no number here; `None` = on another host, perhaps.
    pub(crate) pid: Option<u32>,
}

impl Peer {
    /// The peer of a connected socket; only `owner` is let in.
    pub(crate) fn of(socket: impl AsFd, owner: u32) -> Result<Peer> {
        let Credentials { pid, uid, gid } = iov_store::peer_credentials(&socket)
            .map_err(|e| Error::denied(format!("the kernel does not say who connects: {e}")).with_clause(Clause::A2))?;
        if uid != owner {
            return Err(Error::denied(format!(
                "this store belongs to user {owner}, you are user {uid}: a file: store serves its owner only"
            ))
            .with_clause(Clause::A2));
        }
        Ok(Peer { uid, gid, pid: Some(pid) })
    }

    /// Whoever comes over a network and has proved that it may.
    pub(crate) fn owner(uid: u32) -> Peer {
        Peer { uid, gid: rustix::process::getegid().as_raw(), pid: None }
    }
}
