//! A socket, and where both ends are on one host the rings beside it: what was sent by either way is received in the order in which it was
//! sent.

use std::{
    io::IoSlice,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
};

use iov_store::Rings;
use iov_types::{Error, Result};
use iov_wire::{Header, Verb};

use crate::socket;

/// Who looks for what comes asks the socket so seldom, in looks, where the other side has not said that it has sent something that way: whether it is still there.
const SELDOM: u32 = 64;
/// Most pieces of which a sender knows that they are all there are: the kernel takes no more at a time.
const PIECES: usize = 1024;

/// How far it was received.
#[derive(Debug, Default)]
struct Received {
    /// Bytes of the socket that were handed out.
    by_socket: u64,
    /// Further ones, which come behind something in the ring.
    held: Vec<u8>,
}

/// A socket with its own bytes.
#[derive(Debug)]
pub struct Local {
    fd: OwnedFd,
    rings: OnceLock<Rings>,
    /// Bytes that went over the socket.
    sent: Mutex<u64>,
    received: Mutex<Received>,
    /// Some of it is held.
    holds_back: AtomicBool,
    /// Bytes that came over the socket.
    got: AtomicU64,
    looked: AtomicU32,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn disordered() -> Error {
    Error::corrupt("what the other side says of the order of its bytes does not fit them")
}

impl AsFd for Local {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Local {
    pub(crate) fn new(fd: OwnedFd) -> Local {
        Local {
            fd,
            rings: OnceLock::new(),
            sent: Mutex::default(),
            received: Mutex::default(),
            holds_back: AtomicBool::new(false),
            got: AtomicU64::new(0),
            looked: AtomicU32::new(0),
        }
    }

    /// See [`Stream::begin`](crate::stream::Stream::begin).
    pub(crate) fn begin(&self, rings: Rings) {
        let sent = lock(&self.sent);
        rings.tell_beside(*sent);
        let _ = self.rings.set(rings);
    }

    /// See [`Stream::look`](crate::stream::Stream::look).
    pub(crate) fn look(&self, looks: bool) {
        if let Some(rings) = self.rings.get().filter(|rings| rings.looks() != looks) {
            rings.look(looks);
        }
    }

    pub(crate) fn looks(&self) -> bool {
        self.rings.get().is_some_and(Rings::looks)
    }

    pub(crate) fn holds(&self) -> bool {
        self.rings.get().is_some_and(|rings| rings.has_some() || self.holds_back.load(Ordering::Relaxed))
    }

    /// See [`Stream::stirs`](crate::stream::Stream::stirs).
    pub(crate) fn stirs(&self) -> bool {
        self.holds() || self.rings.get().is_some_and(|rings| self.is_told(rings))
    }

    /// Whether the other side says that it has sent more over the socket than has come. One that has no rings, though it could have, says nothing.
    fn is_told(&self, rings: &Rings) -> bool {
        let beside = rings.beside();
        beside != 0 && beside != self.got.load(Ordering::Relaxed)
    }

    /// So many bytes went over the socket.
    fn went(&self, sent: &mut u64, bytes: Option<usize>) {
        *sent += bytes.unwrap_or(0) as u64;
        if let (Some(rings), Some(_)) = (self.rings.get(), bytes) {
            rings.tell_beside(*sent);
        }
    }

    pub(crate) fn rings(&self) -> Option<&Rings> {
        self.rings.get()
    }

    /// See [`Stream::send_some`](crate::stream::Stream::send_some). By the ring goes what ends with a frame.
    pub(crate) fn send_some(&self, pieces: &[IoSlice<'_>], fds: &[BorrowedFd<'_>]) -> Result<Option<usize>> {
        let mut sent = lock(&self.sent);
        let all_there_is = fds.is_empty() && pieces.len() < PIECES;
        if let Some(rings) = self.rings.get().filter(|_| all_there_is)
            && rings.offer(*sent, pieces)?
        {
            if rings.sleeps() {
                self.wake(&mut sent);
            }
            return Ok(Some(pieces.iter().map(|piece| piece.len()).sum()));
        }
        let n = socket::send_some(&self.fd, pieces, fds)?;
        self.went(&mut sent, n);
        Ok(n)
    }

    /// See [`Stream::call`](crate::stream::Stream::call).
    pub(crate) fn call(&self) {
        self.wake(&mut lock(&self.sent));
    }

    /// Whoever waits for the socket looks into the ring then. Where it is full, or has ended, there is something to wake for.
    fn wake(&self, sent: &mut u64) {
        let frame = Header::new(Verb::Wake, 0).encode();
        // A UNIX socket takes so few bytes as a whole. A failure is for who receives: what lies in the ring may have been taken by now.
        let n = socket::send_some(&self.fd, &[IoSlice::new(&frame)], &[]).ok().flatten();
        self.went(sent, n);
    }

    /// See [`Stream::receive`](crate::stream::Stream::receive).
    pub(crate) fn receive(
        &self,
        buf: &mut [u8],
        fds: &mut impl Extend<Option<OwnedFd>>,
        wait: bool,
    ) -> Result<Option<usize>> {
        self.receive_by(buf, |buf| socket::receive(&self.fd, buf, fds, wait))
    }

    pub(crate) fn receive_bytes(&self, buf: &mut [u8], wait: bool) -> Result<Option<usize>> {
        self.receive_by(buf, |buf| socket::receive_bytes(self.fd.as_fd(), buf, wait))
    }

    fn receive_by(
        &self,
        buf: &mut [u8],
        mut by_socket: impl FnMut(&mut [u8]) -> Result<Option<usize>>,
    ) -> Result<Option<usize>> {
        let mut by_socket = |buf: &mut [u8]| -> Result<Option<usize>> {
            let n = by_socket(buf)?;
            self.got.fetch_add(n.unwrap_or(0) as u64, Ordering::Relaxed);
            Ok(n)
        };
        let Some(rings) = self.rings.get() else {
            let n = by_socket(buf)?;
            lock(&self.received).by_socket += n.unwrap_or(0) as u64;
            return Ok(n);
        };
        let mut received = lock(&self.received);
        loop {
            // How much of the socket comes before what is in the ring.
            let before = match rings.next()? {
                Some(after) => Some(after.checked_sub(received.by_socket).ok_or_else(disordered)?),
                None => None,
            };
            if before == Some(0) {
                return rings.take(buf).map(Some);
            }
            let most = before.map_or(buf.len(), |n| usize::try_from(n).unwrap_or(usize::MAX).min(buf.len()));
            if !received.held.is_empty() {
                let n = received.held.len().min(most);
                buf[..n].copy_from_slice(&received.held[..n]);
                received.held.drain(..n);
                self.holds_back.store(!received.held.is_empty(), Ordering::Relaxed);
                received.by_socket += n as u64;
                return Ok(Some(n));
            }
            let seldom = || self.looked.fetch_add(1, Ordering::Relaxed).is_multiple_of(SELDOM);
            if before.is_none() && rings.looks() && !self.is_told(rings) && !seldom() {
                return Ok(None);
            }
            let got = match by_socket(&mut buf[..most]) {
                // What came by the ring before that comes before it.
                Err(_) if before.is_none() && rings.has_some() => continue,
                got => got?,
            };
            if before.is_some() {
                // It was sent before what is in the ring.
                let n = got.ok_or_else(disordered)?;
                received.by_socket += n as u64;
                return Ok(Some(n));
            }
            // Something may have come by the ring before these bytes, or before the end.
            let Some(after) = rings.next()? else {
                received.by_socket += got.unwrap_or(0) as u64;
                return Ok(got);
            };
            let first = after.checked_sub(received.by_socket).ok_or_else(disordered)?;
            let n = got.unwrap_or(0);
            let first = usize::try_from(first).unwrap_or(usize::MAX).min(n);
            received.held.extend_from_slice(&buf[first..n]);
            self.holds_back.store(!received.held.is_empty(), Ordering::Relaxed);
            if first > 0 {
                received.by_socket += first as u64;
                return Ok(Some(first));
            }
        }
    }
}

#[cfg(test)]
mod tests;
