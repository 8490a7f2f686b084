//! How a connection ends, or turns out to have ended.

use iov_store::seam;
use iov_types::Error;

use super::{Connection, PAUSE_NS};
use crate::socket;

impl Connection {
    /// Looks whether a connection on which nobody waits for anything has ended: over a network a request to a daemon that is
    /// gone is sent all the same, and then nobody knows what became of it.
    pub(crate) fn look(&self) {
        if !self.network {
            return;
        }
        if self.is_awaited() {
            // Perhaps only for an answer that nobody needs, which is there, as after a close.
            self.drive(0);
        }
        if !self.is_awaited() && socket::has_ended(self.as_fd()) {
            self.fail(&Error::unavailable("the store's daemon has closed the connection"));
        }
    }

    /// Waits until nothing is left to be sent. Who cannot be told finds the connection gone.
    pub(crate) fn send_rest(&self, until_ns: i64) {
        loop {
            self.flush();
            if self.is_broken() || !self.has_more_to_send() || seam::monotonic_ns() >= until_ns {
                return;
            }
            self.drive(0);
            socket::wait_for_either(&self.stream, PAUSE_NS);
        }
    }
}
