//! A UNIX stream socket that carries frames, and descriptors beside them.
//!
//! A socket's path has at most 108 bytes; stores lie anywhere. So sockets are reached through the descriptor of their
//! directory: `/proc/self/fd/N/NAME` is always short.

use std::{
    io::{IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
};

use iov_store::kept;
use iov_types::{Clause, Error, Result};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
    },
};

/// Most descriptors beside one frame.
pub const MAX_FDS: usize = 16;

fn address(dir: BorrowedFd<'_>, name: &str) -> Result<SocketAddrUnix> {
    SocketAddrUnix::new(format!("/proc/self/fd/{}/{name}", dir.as_raw_fd()))
        .map_err(|e| Error::internal(format!("the address of the store's socket: {e}")))
}

fn socket() -> Result<OwnedFd> {
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .map(kept::set_aside)
        .map_err(|_| no_descriptor("a connection to the store's daemon"))
}

/// Connects to the socket `name` in a directory. The error is the operating system's, for the caller to sort.
pub fn connect(dir: BorrowedFd<'_>, name: &str) -> Result<std::result::Result<OwnedFd, rustix::io::Errno>> {
    let fd = socket()?;
    // One that has no more room for those who wait says so.
    rustix::io::ioctl_fionbio(&fd, true).map_err(|e| Error::internal(format!("the store's socket: {e}")))?;
    let address = address(dir, name)?;
    Ok(rustix::io::retry_on_intr(|| rustix::net::connect(&fd, &address)).map(|()| fd))
}

/// Listens on the socket `name` in a directory; what was there before must have been removed.
pub fn listen(dir: BorrowedFd<'_>, name: &str) -> Result<OwnedFd> {
    let fd = socket()?;
    let address = address(dir, name)?;
    rustix::net::bind(&fd, &address)
        .and_then(|()| rustix::net::listen(&fd, 1024))
        .map_err(|e| Error::from(std::io::Error::from(e)).context("the store's socket cannot be made"))?;
    Ok(fd)
}

/// Sends all of `parts`, with descriptors beside the first byte. While the peer takes nothing, `full` is called: it may
/// receive, since two sides that both only send would wait for each other for ever. `false` gives up: a part may be sent.
pub fn send(fd: impl AsFd, parts: &[&[u8]], fds: &[BorrowedFd<'_>], mut full: impl FnMut() -> bool) -> Result<()> {
    let fd = fd.as_fd();
    let mut at = (0, 0);
    let mut fds = fds;
    loop {
        let rest: Vec<IoSlice<'_>> = parts
            .iter()
            .enumerate()
            .skip(at.0)
            .map(|(i, part)| IoSlice::new(if i == at.0 { &part[at.1..] } else { part }))
            .filter(|slice| !slice.is_empty())
            .collect();
        if rest.is_empty() {
            return Ok(());
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(Error::internal(format!("more than {MAX_FDS} descriptors beside a frame")));
        }
        // The kernel takes at most 1,024 pieces at a time.
        let rest = &rest[..rest.len().min(1024)];
        let sent = match rustix::net::sendmsg(fd, rest, &mut ancillary, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(n) => n,
            Err(rustix::io::Errno::INTR) => continue,
            Err(rustix::io::Errno::AGAIN) => {
                if !full() {
                    return Err(Error::timeout("the other side takes nothing").with_clause(Clause::O8));
                }
                wait_for(fd, PollFlags::OUT | PollFlags::IN, 100_000_000);
                continue;
            }
            Err(e) => return Err(broken(e)),
        };
        fds = &[];
        let mut left = sent;
        while left > 0 {
            let room = parts[at.0].len() - at.1;
            if left < room {
                at.1 += left;
                left = 0;
            } else {
                left -= room;
                at = (at.0 + 1, 0);
            }
        }
        while at.0 < parts.len() && parts[at.0].len() == at.1 {
            at = (at.0 + 1, 0);
        }
    }
}

/// Sends what the peer takes now, of at most 1,024 pieces, with descriptors beside the first byte; `None`: nothing.
pub fn send_some(fd: impl AsFd, pieces: &[IoSlice<'_>], fds: &[BorrowedFd<'_>]) -> Result<Option<usize>> {
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !beside.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Error::internal(format!("more than {MAX_FDS} descriptors beside a frame")));
    }
    match rustix::io::retry_on_intr(|| rustix::net::sendmsg(&fd, pieces, &mut beside, flags)) {
        Ok(n) => Ok(Some(n)),
        Err(rustix::io::Errno::AGAIN) => Ok(None),
        Err(e) => Err(broken(e)),
    }
}

/// Why something cannot be had that comes with a descriptor.
pub(crate) fn no_descriptor(what: &str) -> Error {
    Error::exhausted(format!("no descriptor is left for {what}: close files, or raise the limit (ulimit -n)"))
}

/// Receives up to `buf.len()` bytes and what came beside them; 0 = the peer has closed. `None`: nothing there yet.
///
/// Descriptors of a frame for which this process has no room stand as one `None` behind those that came: what they belong
/// to can then still be told.
pub fn receive(
    fd: impl AsFd,
    buf: &mut [u8],
    fds: &mut impl Extend<Option<OwnedFd>>,
    wait: bool,
) -> Result<Option<usize>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let flags = RecvFlags::CMSG_CLOEXEC | if wait { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
    loop {
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        match rustix::net::recvmsg(&fd, &mut [IoSliceMut::new(buf)], &mut ancillary, flags) {
            Ok(message) => {
                for message in ancillary.drain() {
                    if let RecvAncillaryMessage::ScmRights(rights) = message {
                        fds.extend(rights.map(|fd| Some(kept::set_aside(fd))));
                    }
                }
                // Behind those of the same frame that did come: the kernel delivers those of one frame at a time.
                if message.flags.contains(ReturnFlags::CTRUNC) {
                    fds.extend([None]);
                }
                return Ok(Some(message.bytes));
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::AGAIN) => return Ok(None),
            Err(e) => return Err(broken(e)),
        }
    }
}

/// Whether the other side has closed the connection, or it broke, and nothing is there to be received before that.
pub(crate) fn has_ended(fd: BorrowedFd<'_>) -> bool {
    let mut one = [0; 1];
    match rustix::net::recv(fd, &mut one, RecvFlags::PEEK | RecvFlags::DONTWAIT) {
        Ok((n, _)) => n == 0,
        Err(e) => !matches!(e, rustix::io::Errno::AGAIN | rustix::io::Errno::INTR),
    }
}

/// Receives up to `buf.len()` bytes beside which nothing comes: what is in the middle of a frame.
pub(crate) fn receive_bytes(fd: BorrowedFd<'_>, buf: &mut [u8], wait: bool) -> Result<Option<usize>> {
    let flags = if wait { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
    match rustix::io::retry_on_intr(|| rustix::net::recv(fd, &mut *buf, flags)) {
        Ok((n, _)) => Ok(Some(n)),
        Err(rustix::io::Errno::AGAIN) => Ok(None),
        Err(e) => Err(broken(e)),
    }
}

fn broken(e: rustix::io::Errno) -> Error {
    Error::unavailable(format!("the connection to the store's daemon broke: {e}"))
}

/// Waits until there is something to receive; `false` after `timeout_ns` (negative = for ever).
pub fn wait_readable(fd: impl AsFd, timeout_ns: i64) -> bool {
    wait_for(fd.as_fd(), PollFlags::IN, timeout_ns)
}

/// Waits until the peer takes something, or there is something to receive.
pub(crate) fn wait_for_either(fd: impl AsFd, timeout_ns: i64) {
    wait_for(fd.as_fd(), PollFlags::OUT | PollFlags::IN, timeout_ns);
}

/// Waits until the peer takes something.
pub(crate) fn wait_for_room(fd: impl AsFd, timeout_ns: i64) {
    wait_for(fd.as_fd(), PollFlags::OUT, timeout_ns);
}

/// Waits until there is something to receive on one of several, or room on one that has more to send.
pub(crate) fn wait_for_any(all: &[(BorrowedFd<'_>, bool)], timeout_ns: i64) {
    let what = |more: bool| if more { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
    let mut fds: Vec<PollFd<'_>> = all.iter().map(|(fd, more)| PollFd::from_borrowed_fd(*fd, what(*more))).collect();
    let timeout = Timespec { tv_sec: timeout_ns / 1_000_000_000, tv_nsec: (timeout_ns % 1_000_000_000) as _ };
    // An interruption is like a timeout.
    let _ = poll(&mut fds, Some(&timeout));
}

fn wait_for(fd: BorrowedFd<'_>, what: PollFlags, timeout_ns: i64) -> bool {
    let timeout = (timeout_ns >= 0)
        .then_some(Timespec { tv_sec: timeout_ns / 1_000_000_000, tv_nsec: (timeout_ns % 1_000_000_000) as _ });
    let mut fds = [PollFd::new(&fd, what)];
    // An interruption is like a timeout: the caller looks again at what it waits for.
    poll(&mut fds, timeout.as_ref()).is_ok_and(|n| n > 0)
}
