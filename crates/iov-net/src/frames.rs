//! Cuts a stream of bytes into frames, and pairs descriptors with the frame they came beside.
//!
//! Payloads go from the socket to where they are wanted: into the memory of whoever asked ([`Frames::head`],
//! [`Frames::payload`]), or into one buffer that is used again ([`Frames::next`]).

use std::{collections::VecDeque, ops::Deref, os::fd::OwnedFd};

use iov_types::{Error, Result};
use iov_wire::{Header, frame::HEADER_BYTES};

use crate::{socket, stream::Stream};

/// The payload of a frame.
#[derive(Debug, Default)]
pub struct Payload {
    buf: Vec<u8>,
    len: usize,
}

impl Deref for Payload {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.buf[..self.len]
    }
}

/// A received frame.
#[derive(Debug)]
pub struct Frame {
    /// Its header.
    pub header: Header,
    /// Its body, not yet checked.
    pub body: Vec<u8>,
    /// Its payload.
    pub payload: Payload,
}

/// Bytes asked of the socket at a time while the size of what comes is unknown: small frames come as a whole, and little of a
/// large payload is copied once more.
const READ_AHEAD: usize = 16 << 10;

/// A stream being cut into frames.
#[derive(Default)]
pub struct Frames {
    /// Bytes that have come, from `at` to `end`; the rest is room.
    buf: Vec<u8>,
    at: usize,
    end: usize,
    /// `None`: one that was lost on its way, as this process has no room for more.
    fds: VecDeque<Option<OwnedFd>>,
    takes_none: bool,
    at_end: bool,
    most: Option<usize>,
    /// A frame whose payload is still coming.
    begun: Option<(Header, Vec<u8>)>,
    payload: Payload,
    /// Memory of a body that has been dealt with.
    spare: Vec<u8>,
}

/// Most bytes a buffer grows at a time: what a peer announces takes memory only as it arrives.
const GROWTH: usize = 1 << 20;
/// Most memory of a body that is kept for the next one: as much as the bytes of a small file that come in a request take.
const SPARE: usize = 128 << 10;
/// Most descriptors that wait for their frame.
const WAITING_FDS: usize = 1024;

/// Room for so many bytes: these are the large pieces of memory, whose lack must not end the program.
fn grow(buf: &mut Vec<u8>, to: usize) -> Result<()> {
    if buf.len() < to {
        buf.try_reserve_exact(to - buf.len())
            .map_err(|_| Error::exhausted("no memory is left to receive what the store's daemon sends"))?;
        buf.resize(to, 0);
    }
    Ok(())
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

    /// Puts a buffer there for payloads, for as long as the caller reads, in exchange for the one that was there. Nothing is
    /// exchanged while a payload is coming.
    pub fn exchange(&mut self, buffer: &mut Vec<u8>) {
        if self.begun.is_none() {
            std::mem::swap(&mut self.payload.buf, buffer);
        }
    }

    /// Takes the buffer for payloads back, unless a payload is coming: it stays where it has begun to arrive.
    pub fn take_back(&mut self, buffer: &mut Vec<u8>) {
        if self.begun.is_none() {
            let ours = std::mem::take(&mut self.payload.buf);
            if ours.len() > buffer.len() {
                *buffer = ours;
            }
        }
    }

    /// Whether nothing of a frame has arrived and waits here.
    pub fn is_between(&self) -> bool {
        self.begun.is_none() && self.have() == 0
    }

    /// A frame has been dealt with: its memory is used again. What is freed and asked for anew each time, the allocator gives back to the
    /// system now and then, which clears it again.
    pub fn give_back(&mut self, frame: Frame) {
        let Frame { body, payload, .. } = frame;
        if self.begun.is_none() && payload.buf.len() > self.payload.buf.len() {
            self.payload = payload;
        }
        if (self.spare.capacity() + 1..=SPARE).contains(&body.capacity()) {
            self.spare = body;
        }
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
        self.end - self.at
    }

    /// Fills the buffer up to `want` bytes; `false`: not there yet (only without `wait`).
    fn fill(&mut self, from: &Stream, want: usize, wait: bool) -> Result<bool> {
        while self.have() < want {
            if self.at == self.end {
                (self.at, self.end) = (0, 0);
            }
            // Not all of it at once: what is announced need not come.
            let more = (want - self.have()).clamp(READ_AHEAD, GROWTH);
            if self.at > 0 && self.end + more > self.buf.len() {
                self.buf.copy_within(self.at..self.end, 0);
                (self.at, self.end) = (0, self.have());
            }
            grow(&mut self.buf, self.end + more)?;
            let got = from.receive(&mut self.buf[self.end..], &mut self.fds, wait);
            if self.takes_none {
                self.fds.clear();
            } else if self.fds.len() > WAITING_FDS {
                return Err(Error::corrupt("the peer sent more descriptors than it announced"));
            }
            match got? {
                None => return Ok(false),
                Some(0) => return Err(self.closed(self.have() == 0)),
                Some(n) => self.end += n,
            }
        }
        Ok(true)
    }

    fn closed(&mut self, between_frames: bool) -> Error {
        self.at_end = true;
        match between_frames {
            true => Error::unavailable("the peer has closed the connection"),
            false => Error::unavailable("the peer closed the connection in the middle of a frame"),
        }
    }

    fn take(&mut self, n: usize) -> Result<Vec<u8>> {
        let mut part = std::mem::take(&mut self.spare);
        part.clear();
        part.try_reserve_exact(n)
            .map_err(|_| Error::exhausted("no memory is left to receive what the store's daemon sends"))?;
        part.extend_from_slice(&self.buf[self.at..self.at + n]);
        self.at += n;
        if self.at == self.end {
            (self.at, self.end) = (0, 0);
            // A large body was an exception.
            if self.buf.len() > GROWTH {
                self.buf = Vec::new();
            }
        }
        Ok(part)
    }

    /// The header and the body of the next frame, whose payload comes next; `None`: not complete yet (only without `wait`). An
    /// error ends the connection.
    pub fn head(&mut self, from: &Stream, wait: bool) -> Result<Option<(Header, Vec<u8>)>> {
        if !self.fill(from, HEADER_BYTES, wait)? {
            return Ok(None);
        }
        let mut header = [0; HEADER_BYTES];
        header.copy_from_slice(&self.buf[self.at..][..HEADER_BYTES]);
        let header = Header::decode(&header)?;
        let (body, payload) = (header.body_len as usize, header.payload_len as usize);
        if self.most.is_some_and(|most| body.saturating_add(payload) > most) {
            return Err(Error::corrupt("a greeting is larger than any is"));
        }
        if !self.fill(from, HEADER_BYTES + body, wait)? {
            return Ok(None);
        }
        self.at += HEADER_BYTES;
        Ok(Some((header, self.take(body)?)))
    }

    /// Whether the payload of a frame is coming that [`Frames::next`] takes.
    pub(crate) fn is_within(&self) -> bool {
        self.begun.is_some()
    }

    /// Leaves the payload behind what [`Frames::head`] has taken to [`Frames::next`].
    pub(crate) fn begin(&mut self, header: Header, body: Vec<u8>) {
        self.payload.len = 0;
        self.begun = Some((header, body));
    }

    /// Receives the next bytes of a payload, and no more than `into` has room for; `None`: nothing there yet (only without
    /// `wait`). The caller knows from the header how many come.
    pub fn payload(&mut self, from: &Stream, into: &mut [u8], wait: bool) -> Result<Option<usize>> {
        let here = self.have().min(into.len());
        if here > 0 || into.is_empty() {
            into[..here].copy_from_slice(&self.buf[self.at..self.at + here]);
            self.at += here;
            return Ok(Some(here));
        }
        let got = from.receive_bytes(into, &mut self.fds, wait);
        if self.takes_none {
            self.fds.clear();
        }
        match got? {
            Some(0) => Err(self.closed(false)),
            got => Ok(got),
        }
    }

    /// The next frame; `None`: not complete yet (only without `wait`). An error ends the connection.
    pub fn next(&mut self, from: &Stream, wait: bool) -> Result<Option<Frame>> {
        let (header, body) = match self.begun.take() {
            Some(begun) => begun,
            None => match self.head(from, wait)? {
                Some(head) => {
                    self.payload.len = 0;
                    head
                }
                None => return Ok(None),
            },
        };
        let len = header.payload_len as usize;
        let mut payload = std::mem::take(&mut self.payload);
        while payload.len < len {
            let room = len.min(payload.len + GROWTH);
            let got = match grow(&mut payload.buf, room) {
                Ok(()) => self.payload(from, &mut payload.buf[payload.len..room], wait),
                Err(e) => Err(e),
            };
            match got? {
                Some(n) => payload.len += n,
                None => {
                    (self.begun, self.payload) = (Some((header, body)), payload);
                    return Ok(None);
                }
            }
        }
        Ok(Some(Frame { header, body, payload }))
    }
}

#[cfg(test)]
mod tests;
