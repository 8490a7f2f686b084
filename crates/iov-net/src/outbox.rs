//! Frames that wait until the socket takes them, so that whoever has something to ask need not wait for that (O8).
//!
//! Payloads stay where they are, in the caller's memory, until the socket takes them, or their request ends.

use std::{collections::VecDeque, io::IoSlice};

use iov_store::{Memory, Rings, seam};
use iov_types::{Error, Result};
use iov_wire::{
    Body, Header,
    frame::{self, NO_DEADLINE},
};

/// The kernel takes at most so many pieces at a time.
const PIECES: usize = 1024;

struct Item {
    /// Of the request, or the place of a frame that is none.
    number: u64,
    head: Vec<u8>,
    /// Lent until the request has ended.
    payload: Vec<Memory>,
    len: usize,
    /// On the monotonic clock; the header says what is left of it.
    deadline_ns: i64,
    /// When the header was made.
    made_ns: i64,
}

/// The header of a frame that waits is made anew after so long.
const FRESH_NS: i64 = 10_000_000;

fn left(deadline_ns: i64, now_ns: i64) -> u64 {
    if deadline_ns == i64::MAX { NO_DEADLINE } else { deadline_ns.saturating_sub(now_ns).max(0) as u64 }
}

impl Item {
    /// All that comes behind its first `skip` bytes.
    fn pieces(&self, mut skip: usize) -> impl Iterator<Item = &[u8]> {
        std::iter::once(&self.head[..]).chain(self.payload.iter().map(Memory::bytes)).filter_map(move |piece| {
            let from = skip.min(piece.len());
            skip -= from;
            (from < piece.len()).then(|| &piece[from..])
        })
    }
}

/// What became of a request's memory.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Withdrawn {
    /// All of its frame has been taken.
    Sent,
    /// Nothing of its frame was taken, and nothing will be.
    Unsent,
    /// A part was taken; the rest comes from memory of our own.
    Begun,
    /// A part was taken, and there is no memory for the rest: the stream cannot go on.
    Stuck,
}

/// Frames in the order of their requests.
#[derive(Default)]
pub(crate) struct Outbox {
    items: VecDeque<Item>,
    /// How many bytes of the first have been taken.
    sent: usize,
    /// The number of the last frame.
    last: u64,
    /// Of a frame that is gone, for the next one.
    spare: Vec<u8>,
    /// What lies in the ring, or has lain there.
    in_ring: VecDeque<InRing>,
    /// How much was put into the ring.
    put: u64,
}

/// Frames that were put into the ring together.
struct InRing {
    /// The first of them, and the one behind the last.
    first: u64,
    end: u64,
    /// Where they lie.
    from: u64,
    to: u64,
}

/// So many are remembered before it is looked which of them were taken.
const IN_RING: usize = 32;

impl Outbox {
    /// Whether everything has been taken.
    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The number that the next request has.
    pub(crate) fn next(&self) -> u64 {
        self.last + 1
    }

    /// Puts a frame behind the others: of the next request, or of none, which takes a number all the same.
    pub(crate) fn push<B: Body>(
        &mut self,
        header: Header,
        body: &B,
        payload: Vec<Memory>,
        deadline_ns: i64,
    ) -> Result<()> {
        let made_ns = seam::monotonic_ns();
        let mut head = std::mem::take(&mut self.spare);
        head.clear();
        let payload_len: usize = payload.iter().map(Memory::len).sum();
        let deadline_left_ns = left(deadline_ns, made_ns);
        let header = Header { payload_len: payload_len as u64, deadline_left_ns, ..header };
        frame::append(header, body, &mut head)?;
        self.items
            .try_reserve(1)
            .map_err(|_| Error::exhausted("no memory is left for a request to the store's daemon"))?;
        self.last += 1;
        let len = head.len() + payload_len;
        self.items.push_back(Item { number: self.last, head, payload, len, deadline_ns, made_ns });
        Ok(())
    }

    /// Whether nothing of a request's frame has been taken.
    pub(crate) fn is_unsent(&self, request: u64) -> bool {
        let at = self.items.binary_search_by_key(&request, |item| item.number);
        at.is_ok_and(|at| at > 0 || self.sent == 0)
    }

    /// Has frames that waited for long say how much time is left to them now.
    pub(crate) fn refresh(&mut self) {
        let Some(first) = self.items.front() else { return };
        let now_ns = seam::monotonic_ns();
        if now_ns - first.made_ns < FRESH_NS {
            return;
        }
        let begun = usize::from(self.sent > 0);
        for item in self.items.iter_mut().take(PIECES).skip(begun) {
            if now_ns - item.made_ns < FRESH_NS {
                continue;
            }
            let Some(bytes) = item.head.first_chunk_mut() else { continue };
            if let Ok(header) = Header::decode(bytes) {
                *bytes = Header { deadline_left_ns: left(item.deadline_ns, now_ns), ..header }.encode();
                item.made_ns = now_ns;
            }
        }
    }

    /// What comes next, as far as the kernel takes it at once.
    pub(crate) fn pieces(&self) -> Vec<IoSlice<'_>> {
        let skips = std::iter::once(self.sent).chain(std::iter::repeat(0));
        let pieces = self.items.iter().zip(skips).flat_map(|(item, skip)| item.pieces(skip));
        pieces.take(PIECES).map(IoSlice::new).collect()
    }

    /// So many bytes more were taken, perhaps by the ring.
    pub(crate) fn took(&mut self, bytes: usize, rings: Option<&Rings>) {
        let first = self.items.front().map_or(0, |item| item.number);
        self.pop(bytes);
        let Some(rings) = rings else { return };
        let (from, to) = (self.put, rings.put());
        if from == to {
            return;
        }
        self.put = to;
        if self.in_ring.len() >= IN_RING {
            let taken = rings.taken();
            self.in_ring.retain(|piece| piece.to > taken);
        }
        self.in_ring.push_back(InRing {
            first,
            end: self.items.front().map_or(self.last + 1, |item| item.number),
            from,
            to,
        });
    }

    fn pop(&mut self, bytes: usize) {
        self.sent += bytes;
        while let Some(first) = self.items.front()
            && first.len <= self.sent
        {
            self.sent -= first.len;
            if let Some(item) = self.items.pop_front() {
                self.spare = item.head;
            }
        }
    }

    /// Touches no memory of a request any more.
    pub(crate) fn withdraw(&mut self, request: u64) -> Withdrawn {
        let Ok(at) = self.items.binary_search_by_key(&request, |item| item.number) else { return Withdrawn::Sent };
        if at > 0 || self.sent == 0 {
            self.items.remove(at);
            return Withdrawn::Unsent;
        }
        let first = &mut self.items[0];
        let mut rest = Vec::new();
        if rest.try_reserve_exact(first.len - self.sent + 1).is_err() {
            return Withdrawn::Stuck;
        }
        // Behind one byte that counts as taken: it is begun.
        rest.push(0);
        first.pieces(self.sent).for_each(|piece| rest.extend_from_slice(piece));
        (first.len, first.head, first.payload) = (rest.len(), rest, Vec::new());
        self.sent = 1;
        Withdrawn::Begun
    }

    /// The requests that were not taken as a whole, in order, and so have no effect; they are dropped. The other side has taken so much from the ring,
    /// and takes no more.
    pub(crate) fn give_up(&mut self, taken: u64) -> Vec<u64> {
        self.sent = 0;
        let in_ring =
            self.in_ring.drain(..).filter(|piece| piece.from >= taken).flat_map(|piece| piece.first..piece.end);
        in_ring.chain(self.items.drain(..).map(|item| item.number)).collect()
    }
}

#[cfg(test)]
mod tests;
