//! Cuts a stream of bytes into frames, and pairs descriptors with the frame they came beside.

use std::{
    collections::VecDeque,
    os::fd::{AsFd, OwnedFd},
};

use iov_types::{Error, Result};
use iov_wire::{Header, frame::HEADER_BYTES};

use crate::socket;

/// A received frame.
#[derive(Debug)]
pub struct Frame {
    /// Its header.
    pub header: Header,
    /// Its body, not yet checked.
    pub body: Vec<u8>,
    /// Its payload.
    pub payload: Vec<u8>,
}

/// Bytes asked of the socket at a time while the size of what comes is unknown.
const READ_AHEAD: usize = 64 << 10;

/// A stream being cut into frames.
#[derive(Default)]
pub struct Frames {
    buf: Vec<u8>,
    at: usize,
    /// `None`: one that was lost on its way, as this process has no room for more.
    fds: VecDeque<Option<OwnedFd>>,
    takes_none: bool,
    at_end: bool,
    most: Option<usize>,
}

/// Most bytes the buffer grows at a time: what a peer announces takes memory only as it arrives.
const GROWTH: usize = 1 << 20;
/// Most descriptors that wait for their frame.
const WAITING_FDS: usize = 1024;

/// Room for more bytes: these are the large pieces of memory, whose lack must not end the program.
fn room(buf: &mut Vec<u8>, more: usize) -> Result<()> {
    buf.try_reserve(more).map_err(|_| Error::exhausted("no memory is left to receive what the store's daemon sends"))
}

impl Frames {
    /// Of a peer that has no descriptors to send: they are closed as they come.
    pub fn without_descriptors() -> Frames {
        Frames { takes_none: true, ..Frames::default() }
    }

    /// Larger frames than this end the connection from now on.
    pub fn limit(&mut self, most: usize) {
        self.most = Some(most);
    }

    /// Whether the peer has closed its side.
    pub fn at_end(&self) -> bool {
        self.at_end
    }

    /// The `n` descriptors that came with the frame just taken; `None` if this process has no room for all of them.
    pub fn take_fds(&mut self, n: usize) -> Result<Option<Vec<OwnedFd>>> {
        let mut out = Vec::with_capacity(n.min(socket::MAX_FDS));
        for _ in 0..n {
            match self.take_fd()? {
                Some(fd) => out.push(fd),
                // Nothing of this frame comes behind it.
                None => return Ok(None),
            }
        }
        Ok(Some(out))
    }

    /// The descriptor that came with the frame just taken; `None` if this process has no room for it. The kernel may deliver
    /// it together with frames before, so that only whoever reads a frame that has one knows when it is due.
    pub fn take_fd(&mut self) -> Result<Option<OwnedFd>> {
        self.fds.pop_front().ok_or_else(|| Error::corrupt("the peer sent a frame without the descriptor it announces"))
    }

    fn have(&self) -> usize {
        self.buf.len() - self.at
    }

    /// Fills the buffer up to `want` bytes; `false`: not there yet (only without `wait`).
    fn fill(&mut self, fd: impl AsFd, want: usize, wait: bool) -> Result<bool> {
        while self.have() < want {
            if self.at > 0 && self.at == self.buf.len() {
                self.buf.clear();
                self.at = 0;
            }
            let old = self.buf.len();
            let more = (want - self.have()).clamp(READ_AHEAD, GROWTH);
            room(&mut self.buf, more)?;
            self.buf.resize(old + more, 0);
            let got = socket::receive(&fd, &mut self.buf[old..], &mut self.fds, wait);
            self.buf.truncate(old + *got.as_ref().unwrap_or(&None).as_ref().unwrap_or(&0));
            if self.takes_none {
                self.fds.clear();
            } else if self.fds.len() > WAITING_FDS {
                return Err(Error::corrupt("the peer sent more descriptors than it announced"));
            }
            self.at_end = matches!(got, Ok(Some(0)));
            match got? {
                None => return Ok(false),
                Some(0) if self.have() == 0 => return Err(Error::unavailable("the peer has closed the connection")),
                Some(0) => return Err(Error::unavailable("the peer closed the connection in the middle of a frame")),
                Some(_) => {}
            }
        }
        Ok(true)
    }

    fn take(&mut self, n: usize) -> Result<Vec<u8>> {
        let mut part = Vec::new();
        room(&mut part, n)?;
        part.extend_from_slice(&self.buf[self.at..self.at + n]);
        self.at += n;
        if self.at == self.buf.len() {
            self.buf.clear();
            self.at = 0;
        } else if self.at > READ_AHEAD * 4 {
            self.buf.drain(..self.at);
            self.at = 0;
        }
        Ok(part)
    }

    /// The next frame; `None`: not complete yet (only without `wait`). An error ends the connection.
    pub fn next(&mut self, fd: impl AsFd, wait: bool) -> Result<Option<Frame>> {
        let fd = fd.as_fd();
        if !self.fill(fd, HEADER_BYTES, wait)? {
            return Ok(None);
        }
        let mut header = [0; HEADER_BYTES];
        header.copy_from_slice(&self.buf[self.at..][..HEADER_BYTES]);
        let header = Header::decode(&header)?;
        let (body, payload) = (header.body_len as usize, header.payload_len as usize);
        if self.most.is_some_and(|most| body.saturating_add(payload) > most) {
            return Err(Error::corrupt("a greeting is larger than any is"));
        }
        if !self.fill(fd, HEADER_BYTES + body + payload, wait)? {
            return Ok(None);
        }
        self.at += HEADER_BYTES;
        let body = self.take(body)?;
        let payload = self.take(payload)?;
        Ok(Some(Frame { header, body, payload }))
    }
}
