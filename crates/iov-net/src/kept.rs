//! Compares what a process has read by itself with the checksums of an object that is kept by them (I1).
//!
//! Checksums are asked for in large pieces and cached without any lease: bytes that fit one are what somebody wrote, and
//! what does not fit is read by the daemon, which knows whether it was changed or damaged.

use std::{
    collections::HashMap,
    os::fd::OwnedFd,
    sync::{Arc, Mutex, PoisonError},
};

use iov_store::{
    block_sums::{BLOCK, BlockSum, RUN},
    seam,
};
use iov_types::ObjectId;

/// Runs asked for at once: 32 KiB of checksums for 16 MiB of bytes.
pub(crate) const RUNS: u64 = 16;
/// Most pieces kept: 8 MiB of checksums for 4 GiB.
const PIECES: usize = 256;

/// How long what does not fit is not asked for again.
const AGE_NS: i64 = 10_000_000;

pub(crate) struct Piece {
    sums: Vec<BlockSum>,
    asked_ns: i64,
}

/// The pieces that a stretch of an object needs, as far as they are here.
pub(crate) struct Pieces {
    first: u64,
    found: Vec<Option<Arc<Piece>>>,
}

impl Pieces {
    /// What is still to be asked for, by first run; [`RUNS`] each.
    pub(crate) fn missing(&self) -> impl Iterator<Item = u64> {
        let numbers = self.found.iter().zip(self.first..);
        numbers.filter(|(piece, _)| piece.is_none()).map(|(_, number)| number * RUNS)
    }

    /// Takes a piece that was asked for.
    pub(crate) fn fill(&mut self, first_run: u64, piece: Arc<Piece>) {
        if let Some(slot) = (first_run / RUNS).checked_sub(self.first).and_then(|i| self.found.get_mut(i as usize)) {
            *slot = Some(piece);
        }
    }
}

/// Checksums that were asked for, by object and first run.
#[derive(Default)]
pub(crate) struct SumCache(Mutex<HashMap<(ObjectId, u64), Arc<Piece>>>);

impl SumCache {
    /// What there is for `len` bytes at `offset`.
    pub(crate) fn pieces(&self, object: ObjectId, offset: u64, len: u64) -> Pieces {
        let first = offset / (RUN * RUNS);
        let all = self.lock();
        let found = (first..(offset + len).div_ceil(RUN * RUNS)).map(|n| all.get(&(object, n * RUNS)).cloned());
        Pieces { first, found: found.collect() }
    }

    /// Keeps a piece that was asked for at `asked_ns` of the monotonic clock.
    pub(crate) fn keep(&self, object: ObjectId, first_run: u64, sums: Vec<BlockSum>, asked_ns: i64) -> Arc<Piece> {
        let piece = Arc::new(Piece { sums, asked_ns });
        let mut all = self.lock();
        if all.len() >= PIECES {
            all.clear();
        }
        all.insert((object, first_run), piece.clone());
        piece
    }

    /// Whether bytes read at `offset`, all there were, are what the object should hold; `false` also where that cannot
    /// be told here.
    pub(crate) fn compare(&self, object: ObjectId, file: &OwnedFd, offset: u64, bytes: &[u8], pieces: &Pieces) -> bool {
        let mut at = offset;
        let end = offset + bytes.len() as u64;
        for (piece, number) in pieces.found.iter().zip(pieces.first..) {
            let Some(piece) = piece else { return false };
            let base = number * RUN * RUNS;
            let until = end.min(base + RUN * RUNS);
            let part = &bytes[(at - offset) as usize..(until - offset) as usize];
            if blocks_fit(&piece.sums, base, file, at, part).is_none() {
                // It may be out of date, unless it has just come: a program that reads what it writes asks now and then.
                if seam::monotonic_ns() - piece.asked_ns > AGE_NS {
                    self.lock().remove(&(object, number * RUNS));
                }
                return false;
            }
            at = until;
        }
        at == end
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<(ObjectId, u64), Arc<Piece>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `Some` if all blocks of a piece that begins at `base` fit; `bytes` were read at `at`.
fn blocks_fit(sums: &[BlockSum], base: u64, file: &OwnedFd, at: u64, bytes: &[u8]) -> Option<()> {
    let end = at + bytes.len() as u64;
    let mut begin = at / BLOCK * BLOCK;
    while begin < end {
        let sum = *sums.get(((begin - base) / BLOCK) as usize)?;
        let next = begin + BLOCK;
        let fits = if begin >= at && next <= end {
            sum.fits(&bytes[(begin - at) as usize..(next - at) as usize])
        } else {
            // A part of a block was asked for, or the object ends in it: all of it is needed.
            let mut whole = [0; BLOCK as usize];
            let got = read_block(file, &mut whole, begin)?;
            let (from, to) = (at.max(begin), end.min(next));
            let same = whole.get((from - begin) as usize..(to - begin) as usize)?
                == &bytes[(from - at) as usize..(to - at) as usize];
            // Else it has changed since it was read.
            same.then_some(())?;
            sum.fits(&whole[..got])
        };
        fits.filter(|fits| *fits)?;
        begin = next;
    }
    Some(())
}

/// Reads a block, as far as the file reaches.
fn read_block(file: &OwnedFd, out: &mut [u8], offset: u64) -> Option<usize> {
    let mut done = 0;
    while done < out.len() {
        match rustix::io::pread(file, &mut out[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return None,
        }
    }
    Some(done)
}

#[cfg(test)]
mod tests;
