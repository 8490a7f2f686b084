//! Who is on the other side of a local socket (A2): the kernel says so.

use std::os::fd::AsFd;

use iov_types::{Clause, Error, Result};

/// A proven peer.
pub(crate) struct Peer {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) pid: u32,
}

impl Peer {
    /// The peer of a connected socket; only `owner` and root are let in.
    pub(crate) fn of(socket: impl AsFd, owner: u32) -> Result<Peer> {
        let credentials = rustix::net::sockopt::socket_peercred(&socket)
            .map_err(|e| Error::denied(format!("the kernel does not say who connects: {e}")).with_clause(Clause::A2))?;
        let (uid, gid) = (credentials.uid.as_raw(), credentials.gid.as_raw());
        if uid != owner {
            return Err(Error::denied(format!(
                "this store belongs to user {owner}, you are user {uid}: a file: store serves its owner only"
            ))
            .with_clause(Clause::A2));
        }
        let pid = credentials.pid.as_raw_nonzero().get() as u32;
        Ok(Peer { uid, gid, pid })
    }
}
