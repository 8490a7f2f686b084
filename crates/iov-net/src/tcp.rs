//! TCP connections: names and addresses, connecting within a time, listening, and what a socket is told to do.

use std::{
    net::{IpAddr, SocketAddr, ToSocketAddrs},
    os::fd::{AsFd, OwnedFd},
    sync::mpsc,
    time::Duration,
};

use iov_store::seam;
use iov_types::{Error, Result};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::{AddressFamily, SocketFlags, SocketType, sockopt},
};

/// The port of a daemon that is told none.
pub const PORT: u16 = 4867;

/// A connection without traffic is asked for a sign of life after so long …
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(10), Duration::from_secs(5), 3);
/// … and given up after as long as all of that; so is one whose bytes nobody takes.
const USER_TIMEOUT_MS: u32 = 25_000;

/// A name or an address, and a port.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Host {
    /// As it was given, without brackets.
    pub name: String,
    /// The port.
    pub port: u16,
}

impl std::fmt::Display for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.name.contains(':') {
            true => write!(f, "[{}]:{}", self.name, self.port),
            false => write!(f, "{}:{}", self.name, self.port),
        }
    }
}

impl Host {
    /// Reads `HOST`, `HOST:PORT`, `[ADDRESS]` or `[ADDRESS]:PORT`.
    pub fn parse(text: &str) -> Result<Host> {
        let wrong = |why: &str| Error::invalid(format!("{text:?} is not HOST or HOST:PORT: {why}"));
        let (name, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (name, port) = rest.split_once(']').ok_or_else(|| wrong("its bracket does not end"))?;
                match port {
                    "" => (name, None),
                    port => {
                        (name, Some(port.strip_prefix(':').ok_or_else(|| wrong("behind the bracket comes :PORT"))?))
                    }
                }
            }
            None => match text.split_once(':') {
                Some((_, port)) if port.contains(':') => return Err(wrong("write an IPv6 address in brackets")),
                Some((name, port)) => (name, Some(port)),
                None => (text, None),
            },
        };
        let fits = |c: char| c.is_ascii_alphanumeric() || "-._:%".contains(c);
        if name.is_empty() || !name.chars().all(fits) {
            return Err(wrong("it names no host"));
        }
        let port = match port {
            None => PORT,
            Some(port) => port.parse().map_err(|_| wrong("the port is a number from 0 to 65535"))?,
        };
        Ok(Host { name: name.to_owned(), port })
    }

    /// Its addresses, if they are known before a time of the monotonic clock: resolvers have times of their own. A name is looked
    /// up in a thread that ends when it is known, however long that takes.
    pub fn resolve_until(&self, until_ns: i64) -> Result<Vec<SocketAddr>> {
        if self.name.parse::<IpAddr>().is_ok() {
            return self.resolve();
        }
        let late =
            || Error::unavailable(format!("the name {} could not be looked up in time: use its address", self.name));
        if until_ns <= seam::monotonic_ns() {
            return Err(late());
        }
        let (told, answer) = mpsc::channel();
        let host = self.clone();
        let looked_up = seam::spawn("iov-resolve", move || {
            // Nobody may wait for it any more.
            let _ = told.send(host.resolve());
        });
        looked_up.map_err(|e| Error::from(e).context("a thread to look a name up"))?;
        let left_ns = until_ns.saturating_sub(seam::monotonic_ns()).max(0);
        answer.recv_timeout(Duration::from_nanos(left_ns as u64)).unwrap_or_else(|_| Err(late()))
    }

    /// Its addresses. Waits for the resolver.
    pub fn resolve(&self) -> Result<Vec<SocketAddr>> {
        if let Ok(ip) = self.name.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(ip, self.port)]);
        }
        let found = (self.name.as_str(), self.port).to_socket_addrs();
        let found: Vec<SocketAddr> =
            found.map_err(|e| Error::unavailable(format!("the name {} is not known: {e}", self.name)))?.collect();
        if found.is_empty() {
            return Err(Error::unavailable(format!("the name {} has no address", self.name)));
        }
        Ok(found)
    }
}

fn socket(to: SocketAddr) -> Result<OwnedFd> {
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .map(iov_store::kept::set_aside)
        .map_err(|_| crate::socket::no_descriptor("a connection to the store's daemon"))
}

/// Small frames go at once, and a peer that vanished without a word is noticed.
pub fn tune(fd: impl AsFd) -> std::io::Result<()> {
    sockopt::set_tcp_nodelay(&fd, true)?;
    sockopt::set_socket_keepalive(&fd, true)?;
    let (idle, between, count) = KEEPALIVE;
    sockopt::set_tcp_keepidle(&fd, idle)?;
    sockopt::set_tcp_keepintvl(&fd, between)?;
    sockopt::set_tcp_keepcnt(&fd, count)?;
    sockopt::set_tcp_user_timeout(&fd, USER_TIMEOUT_MS)?;
    Ok(())
}

/// Connects until a time of the monotonic clock. The error is the operating system's, for the caller to sort.
pub fn connect(to: SocketAddr, until_ns: i64) -> Result<std::result::Result<OwnedFd, Errno>> {
    let fd = socket(to)?;
    rustix::io::ioctl_fionbio(&fd, true).map_err(|e| Error::internal(format!("a socket: {e}")))?;
    match rustix::net::connect(&fd, &to) {
        Ok(()) => {}
        Err(Errno::INPROGRESS | Errno::INTR) => {
            let left = (until_ns - seam::monotonic_ns()).max(0);
            let timeout = Timespec { tv_sec: left / 1_000_000_000, tv_nsec: (left % 1_000_000_000) as _ };
            let mut fds = [PollFd::new(&fd, PollFlags::OUT)];
            match rustix::io::retry_on_intr(|| poll(&mut fds, Some(&timeout))) {
                Ok(0) => return Ok(Err(Errno::TIMEDOUT)),
                Ok(_) => {}
                Err(e) => return Ok(Err(e)),
            }
            match sockopt::socket_error(&fd) {
                Ok(Ok(())) => {}
                Ok(Err(e)) | Err(e) => return Ok(Err(e)),
            }
        }
        Err(e) => return Ok(Err(e)),
    }
    // What cannot be set costs time, not promises.
    let _ = tune(&fd);
    Ok(Ok(fd))
}

/// Listens on every address of a host; port 0 takes one that is free.
pub fn listen(host: &Host) -> Result<Vec<OwnedFd>> {
    host.resolve()?
        .into_iter()
        .map(|address| {
            let fd = socket(address)?;
            let bound = sockopt::set_socket_reuseaddr(&fd, true)
                .and_then(|()| match address.is_ipv6() {
                    true => sockopt::set_ipv6_v6only(&fd, true),
                    false => Ok(()),
                })
                .and_then(|()| rustix::net::bind(&fd, &address))
                .and_then(|()| rustix::net::listen(&fd, 1024));
            bound.map_err(|e| match e {
                Errno::ADDRINUSE => {
                    Error::busy(format!("something else listens on {address} already: choose another port"))
                }
                Errno::ADDRNOTAVAIL => {
                    Error::invalid(format!("{address} is no address of this machine: see ip address for those it has"))
                }
                e => Error::from(std::io::Error::from(e)).context(format!("the daemon cannot listen on {address}")),
            })?;
            Ok(fd)
        })
        .collect()
}

/// What a listening socket listens on.
pub fn address_of(fd: impl AsFd) -> Result<SocketAddr> {
    let address = rustix::net::getsockname(fd).map_err(|e| Error::internal(format!("a listening socket: {e}")))?;
    address.try_into().map_err(|_| Error::internal("a listening socket has no address"))
}

/// The other side of a connected socket, for people.
pub fn peer_of(fd: impl AsFd) -> String {
    let peer = rustix::net::getpeername(fd).ok().and_then(|address| SocketAddr::try_from(address?).ok());
    peer.map(|address| address.to_string()).unwrap_or_default()
}

/// Ends a connection so that the other side sees that it broke, and not that this one has ended.
pub fn abort(fd: impl AsFd) {
    // It may be gone already. Linux resets a connection that is taken back so.
    let _ = rustix::net::connect_unspec(fd);
}

#[cfg(test)]
mod tests;
