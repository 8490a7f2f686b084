//! Waiting for the socket.

use super::{Connection, lock};
use crate::socket;

/// So long what lies in the ring is left to a worker that looks at it besides others, in nanoseconds: about what it takes to do something
/// that is not short for one of those.
const UNTAKEN_NS: i64 = 200_000;

impl Connection {
    /// Waits until something comes, or goes. Nobody looks at what comes by the ring any more.
    pub(super) fn sleep(&self, timeout_ns: i64) {
        if self.has_more_to_send() {
            // What the socket takes meanwhile is sent with the next look.
            return socket::wait_for_either(&self.stream, timeout_ns);
        }
        // A negative one is for ever.
        let left_ns = if timeout_ns < 0 { timeout_ns } else { (timeout_ns - UNTAKEN_NS).max(0) };
        if left_ns != 0 && self.stream.is_untaken() {
            if socket::wait_readable(self.as_fd(), UNTAKEN_NS) {
                return;
            }
            let out = lock(&self.out);
            // Not within a frame; and what is to be sent wakes somebody anyhow.
            if !self.has_unsent(&out) {
                self.stream.call();
            }
            drop(out);
            socket::wait_readable(self.as_fd(), left_ns);
        } else {
            socket::wait_readable(self.as_fd(), timeout_ns);
        }
    }
}
