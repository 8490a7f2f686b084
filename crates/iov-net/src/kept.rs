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
use iov_types::{ObjectId, Result};

/// Runs asked for at once: 32 KiB of checksums for 16 MiB of bytes.
const RUNS: u64 = 16;
/// Most pieces kept: 8 MiB of checksums for 4 GiB.
const PIECES: usize = 256;

/// How long what does not fit is not asked for again.
const AGE_NS: i64 = 10_000_000;

struct Piece {
    sums: Vec<BlockSum>,
    asked_ns: i64,
}

/// Checksums that were asked for, by object and first run.
#[derive(Default)]
pub(crate) struct SumCache(Mutex<HashMap<(ObjectId, u64), Arc<Piece>>>);

impl SumCache {
    /// Whether bytes read at `offset`, all there were, are what the object should hold; `false` also where that cannot
    /// be told here.
    pub(crate) fn compare(
        &self,
        object: ObjectId,
        file: &OwnedFd,
        offset: u64,
        bytes: &[u8],
        ask: impl Fn(u64, u64) -> Result<Vec<BlockSum>>,
    ) -> bool {
        let mut at = offset;
        let end = offset + bytes.len() as u64;
        while at < end {
            let first = at / (RUN * RUNS) * RUNS;
            let until = end.min((first + RUNS) * RUN);
            let Some(piece) = self.piece((object, first), &ask) else { return false };
            let part = &bytes[(at - offset) as usize..(until - offset) as usize];
            if blocks_fit(&piece.sums, first * RUN, file, at, part).is_none() {
                // It may be out of date, unless it has just come: a program that reads what it writes asks now and then.
                if seam::monotonic_ns() - piece.asked_ns > AGE_NS {
                    self.lock().remove(&(object, first));
                }
                return false;
            }
            at = until;
        }
        true
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<(ObjectId, u64), Arc<Piece>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn piece(&self, key: (ObjectId, u64), ask: impl Fn(u64, u64) -> Result<Vec<BlockSum>>) -> Option<Arc<Piece>> {
        if let Some(piece) = self.lock().get(&key) {
            return Some(piece.clone());
        }
        // Whatever is the matter, the daemon will say it when it is asked for the bytes.
        let asked_ns = seam::monotonic_ns();
        let piece = Arc::new(Piece { sums: ask(key.1, RUNS).ok()?, asked_ns });
        let mut pieces = self.lock();
        if pieces.len() >= PIECES {
            pieces.clear();
        }
        pieces.insert(key, piece.clone());
        Some(piece)
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
