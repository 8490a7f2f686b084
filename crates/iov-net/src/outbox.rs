//! Frames that wait until the socket takes them, so that whoever has something to ask need not wait for that (O8).

use std::collections::VecDeque;

use iov_types::Result;
use iov_wire::{Body, Header, frame};

/// Most bytes that wait; beyond that the senders do.
const ROOM: usize = 16 << 20;

/// Frames without payload, in order.
#[derive(Default)]
pub(crate) struct Outbox {
    bytes: Vec<u8>,
    /// How many of them the socket has taken.
    sent: usize,
    /// The request and the end of each frame that has not been taken as a whole.
    frames: VecDeque<(u64, usize)>,
    /// Somebody is sending a frame with payload: others wait.
    pub(crate) busy: bool,
}

impl Outbox {
    /// Whether everything has been taken.
    pub(crate) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Whether one more frame may wait here.
    pub(crate) fn has_room(&self) -> bool {
        self.bytes.len() - self.sent < ROOM
    }

    /// Puts a frame behind the others.
    pub(crate) fn push<B: Body>(&mut self, header: Header, body: &B) -> Result<()> {
        if self.is_empty() {
            self.bytes.clear();
            self.sent = 0;
        }
        frame::append(header, body, &mut self.bytes)?;
        self.frames.push_back((header.request, self.bytes.len()));
        Ok(())
    }

    /// Puts the rest of a frame in front of all that others have put here meanwhile: it was begun, so it comes next.
    /// `false`: there is no memory for it, and nothing has changed.
    pub(crate) fn push_rest(&mut self, request: u64, parts: &[&[u8]], sent: usize) -> bool {
        let len = parts.iter().map(|part| part.len()).sum::<usize>() - sent;
        let mut bytes = Vec::new();
        if bytes.try_reserve_exact(len + self.rest().len()).is_err() {
            return false;
        }
        let mut skip = sent;
        for part in parts {
            let from = skip.min(part.len());
            skip -= from;
            bytes.extend_from_slice(&part[from..]);
        }
        bytes.extend_from_slice(self.rest());
        self.frames.iter_mut().for_each(|(_, end)| *end = *end - self.sent + len);
        self.frames.push_front((request, len));
        (self.bytes, self.sent) = (bytes, 0);
        true
    }

    /// What comes next.
    pub(crate) fn rest(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    /// So many bytes more were taken.
    pub(crate) fn took(&mut self, bytes: usize) {
        self.sent += bytes;
        while self.frames.front().is_some_and(|(_, end)| *end <= self.sent) {
            self.frames.pop_front();
        }
        if self.sent >= ROOM && !self.is_empty() {
            self.bytes.drain(..self.sent);
            self.frames.iter_mut().for_each(|(_, end)| *end -= self.sent);
            self.sent = 0;
        }
    }

    /// The requests that were not taken as a whole, and so have no effect; they are dropped.
    pub(crate) fn give_up(&mut self) -> Vec<u64> {
        (self.bytes, self.sent) = (Vec::new(), 0);
        self.frames.drain(..).map(|(request, _)| request).collect()
    }
}

#[cfg(test)]
mod tests;
