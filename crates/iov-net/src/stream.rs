//! The stream of bytes of a connection: a socket as it is, with rings in shared memory beside it on one host, or TLS over one.
//!
//! What TLS has taken need not have gone yet ([`Stream::owes`]), and what has come need not have been handed out
//! ([`Stream::holds`]). No socket tells of either: who is about to wait for the socket asks first.

use std::{
    io::IoSlice,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use iov_store::{Rings, seam};
use iov_types::{Error, Result};

use crate::{
    local::Local,
    socket,
    tls::{Channel, Exported},
};

/// A connected stream.
#[derive(Debug)]
pub enum Stream {
    /// The socket's own bytes.
    Plain(Box<Local>),
    /// TLS over a TCP socket.
    Tls(Box<Channel>),
}

impl From<OwnedFd> for Stream {
    fn from(fd: OwnedFd) -> Stream {
        Stream::Plain(Box::new(Local::new(fd)))
    }
}

/// The socket, to wait for and to be set up. Bytes go through the stream only.
impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Plain(local) => local.as_fd(),
            Stream::Tls(channel) => channel.as_fd(),
        }
    }
}

impl Stream {
    /// Takes what can go now, of at most 1,024 pieces, with descriptors beside the first byte, which TLS has no way for;
    /// `None`: nothing, and 0: only of what was taken before.
    pub fn send_some(&self, pieces: &[IoSlice<'_>], fds: &[BorrowedFd<'_>]) -> Result<Option<usize>> {
        match self {
            Stream::Plain(local) => local.send_some(pieces, fds),
            Stream::Tls(channel) => channel.send_some(pieces),
        }
    }

    /// Sends more of what was taken before; whether anything went.
    pub fn push(&self) -> Result<bool> {
        match self {
            Stream::Plain(_) => Ok(false),
            Stream::Tls(channel) => channel.push(),
        }
    }

    /// Whether some of what was taken has not gone yet.
    pub fn owes(&self) -> bool {
        match self {
            Stream::Plain(_) => false,
            Stream::Tls(channel) => channel.owes(),
        }
    }

    /// Whether something has come of which the socket does not tell any more, or never did.
    pub fn holds(&self) -> bool {
        match self {
            Stream::Plain(local) => local.holds(),
            Stream::Tls(channel) => channel.holds(),
        }
    }

    /// Whether something has come by either way, as far as that can be known without asking the socket: for who looks.
    pub fn stirs(&self) -> bool {
        match self {
            Stream::Plain(local) => local.stirs(),
            Stream::Tls(channel) => channel.holds(),
        }
    }

    /// Receives up to `buf.len()` bytes and what came beside them; 0 = the peer has closed. `None`: nothing there yet, and
    /// nothing held.
    pub fn receive(&self, buf: &mut [u8], fds: &mut impl Extend<Option<OwnedFd>>, wait: bool) -> Result<Option<usize>> {
        match self {
            Stream::Plain(local) => local.receive(buf, fds, wait),
            Stream::Tls(channel) => channel.receive(buf, wait),
        }
    }

    /// Receives up to `buf.len()` bytes from the middle of a frame on. Something comes beside them only if that frame ends by a ring, and another one has begun
    /// to come by the socket.
    pub(crate) fn receive_bytes(
        &self,
        buf: &mut [u8],
        fds: &mut impl Extend<Option<OwnedFd>>,
        wait: bool,
    ) -> Result<Option<usize>> {
        match self {
            Stream::Plain(local) if local.rings().is_some() => local.receive(buf, fds, wait),
            Stream::Plain(local) => local.receive_bytes(buf, wait),
            Stream::Tls(channel) => channel.receive(buf, wait),
        }
    }

    /// From now on what may goes by these rings.
    pub fn begin(&self, rings: Rings) {
        if let Stream::Plain(local) = self {
            local.begin(rings);
        }
    }

    /// Says whether somebody looks for what comes, again and again: whoever sends then need not wake anybody. Behind `false` it is
    /// asked what this [holds](Stream::holds) before anybody waits for the socket.
    pub fn look(&self, looks: bool) {
        if let Stream::Plain(local) = self {
            local.look(looks);
        }
    }

    /// Whether somebody has said so.
    pub fn looks(&self) -> bool {
        matches!(self, Stream::Plain(local) if local.looks())
    }

    /// Whether it has rings.
    pub fn has_rings(&self) -> bool {
        self.rings().is_some()
    }

    /// Whether the other side has not taken all that was sent by the ring.
    pub(crate) fn is_untaken(&self) -> bool {
        self.rings().is_some_and(|rings| rings.put() != rings.taken())
    }

    /// Wakes somebody on the other side who takes it, if it is still there.
    pub(crate) fn call(&self) {
        if let Stream::Plain(local) = self
            && self.is_untaken()
        {
            local.call();
        }
    }

    /// The rings, if it has any.
    pub(crate) fn rings(&self) -> Option<&Rings> {
        match self {
            Stream::Plain(local) => local.rings(),
            Stream::Tls(_) => None,
        }
    }

    /// Agrees with the other side on what is to be agreed before the first byte, until a time of the monotonic clock.
    pub(crate) fn shake(&self, until_ns: i64) -> Result<()> {
        match self {
            Stream::Plain(_) => Ok(()),
            Stream::Tls(channel) => channel.shake(until_ns),
        }
    }

    /// What only the two ends of this connection know; `None`: nothing.
    pub fn exported(&self) -> Result<Option<Exported>> {
        match self {
            Stream::Plain(_) => Ok(None),
            Stream::Tls(channel) => channel.exported().map(Some),
        }
    }

    /// Sends all of it, until a time of the monotonic clock; what has gone by then has gone.
    pub(crate) fn send_all(&self, bytes: &[u8], until_ns: i64) -> Result<()> {
        let mut at = 0;
        while at < bytes.len() || self.owes() {
            let taken = match &bytes[at..] {
                [] => self.push()?.then_some(0),
                rest => self.send_some(&[IoSlice::new(rest)], &[])?,
            };
            match taken {
                Some(n) => at += n,
                None if seam::monotonic_ns() >= until_ns => return Err(Error::timeout("the other side takes nothing")),
                None => socket::wait_for_room(self, 100_000_000),
            }
        }
        Ok(())
    }
}
