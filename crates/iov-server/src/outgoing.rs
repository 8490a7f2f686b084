//! Answers on their way to a peer. What it does not take at once waits here, and nothing more is read from it meanwhile: a
//! peer that does not listen takes the memory of the answers to what it has asked already, and no more.

use std::{
    collections::VecDeque,
    io::IoSlice,
    os::fd::{AsFd, OwnedFd},
};

use iov_net::stream::Stream;
use iov_types::Result;

use crate::buffers::Buffer;

/// The kernel takes at most so many pieces at a time.
const PIECES: usize = 1024;

/// A frame.
#[derive(Default)]
pub(crate) struct Parcel {
    /// Header and body.
    pub(crate) head: Vec<u8>,
    /// One behind the other.
    pub(crate) payload: Vec<Buffer>,
    /// Go beside its first byte.
    pub(crate) fds: Vec<OwnedFd>,
}

impl Parcel {
    fn len(&self) -> usize {
        self.head.len() + self.payload.iter().map(|piece| piece.len()).sum::<usize>()
    }

    /// All that comes behind its first `skip` bytes.
    fn pieces(&self, mut skip: usize) -> Vec<IoSlice<'_>> {
        let all = std::iter::once(&self.head[..]).chain(self.payload.iter().map(|piece| &piece[..]));
        all.filter_map(|piece| {
            let from = skip.min(piece.len());
            skip -= from;
            (from < piece.len()).then(|| IoSlice::new(&piece[from..]))
        })
        .take(PIECES)
        .collect()
    }
}

/// Frames in the order in which they go.
#[derive(Default)]
pub(crate) struct Outgoing {
    parcels: VecDeque<Parcel>,
    /// How much of the first has been taken.
    sent: usize,
}

impl Outgoing {
    pub(crate) fn is_empty(&self) -> bool {
        self.parcels.is_empty()
    }

    pub(crate) fn push(&mut self, parcel: Parcel) {
        self.parcels.push_back(parcel);
    }

    /// Sends what the peer takes now; whether that was anything.
    pub(crate) fn send(&mut self, to: &Stream) -> Result<bool> {
        let mut any = false;
        while let Some(first) = self.parcels.front() {
            let fds: Vec<_> = match self.sent {
                0 => first.fds.iter().map(AsFd::as_fd).collect(),
                _ => Vec::new(),
            };
            let Some(taken) = to.send_some(&first.pieces(self.sent), &fds)? else { break };
            any = true;
            self.sent += taken;
            if self.sent == first.len() {
                self.parcels.pop_front();
                self.sent = 0;
            }
        }
        Ok(to.push()? || any)
    }
}

#[cfg(test)]
mod tests;
