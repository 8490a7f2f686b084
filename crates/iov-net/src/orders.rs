//! What a daemon is asked by those who run it.

use std::sync::Arc;

use iov_store::{OpCx, peer_credentials};
use iov_types::{Error, Result};
use iov_wire::messages::{Join, JoinAnswer, Shutdown, StatusAnswer, StatusRequest};

use crate::{
    link::{Link, call},
    socket,
};

impl Link {
    /// How the daemon is.
    pub fn status(self: &Arc<Link>, cx: &OpCx) -> Result<StatusAnswer> {
        let frame = self.call(cx, &StatusRequest)?;
        frame.header.body(&frame.body)
    }

    /// Tells the catalog's daemon of the targets of this one.
    pub fn join(self: &Arc<Link>, cx: &OpCx, join: &Join) -> Result<JoinAnswer> {
        let frame = self.call(cx, join)?;
        frame.header.body(&frame.body)
    }

    /// Asks the daemon to end, and waits until it has: its directory can be removed then.
    pub fn shutdown(self: &Arc<Link>, cx: &OpCx) -> Result<()> {
        let up = self.up(cx)?;
        let daemon = match up.connection.is_network() {
            true => None,
            false => peer_credentials(up.connection.as_fd())
                .ok()
                .and_then(|peer| rustix::process::Pid::from_raw(peer.pid as i32))
                .and_then(|pid| rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok()),
        };
        call(&up, cx, &Shutdown)?;
        // One of another host or container cannot be watched: its word has to do.
        let Some(daemon) = daemon else { return Ok(()) };
        while !socket::wait_readable(&daemon, cx.left_ns()) {
            if cx.left_ns() == 0 {
                return Err(Error::timeout("the daemon is ending, but has not ended yet: ask for its status"));
            }
        }
        Ok(())
    }
}
