//! The checksums of one run: 256 blocks of 4 KiB, and which of them are meant.

use iov_store::block_sums::BLOCKS;
use iov_types::{Error, Result};

use crate::files::sidecar::short;

/// Length of a set of blocks on disk.
const BITS: usize = BLOCKS / 8;

/// Some of the blocks of a run.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(in crate::files) struct Blocks([u64; BLOCKS / 64]);

impl Blocks {
    /// All of them.
    pub(in crate::files) const ALL: Blocks = Blocks([u64::MAX; BLOCKS / 64]);

    /// The blocks from `first` to before `end`.
    pub(in crate::files) fn range(first: usize, end: usize) -> Blocks {
        let mut out = Blocks::default();
        (first..end.min(BLOCKS)).for_each(|i| out.add(i));
        out
    }

    pub(in crate::files) fn add(&mut self, block: usize) {
        self.0[block / 64] |= 1 << (block % 64);
    }

    pub(in crate::files) fn has(&self, block: usize) -> bool {
        self.0[block / 64] & (1 << (block % 64)) != 0
    }

    pub(in crate::files) fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    pub(in crate::files) fn or(self, other: Blocks) -> Blocks {
        Blocks(std::array::from_fn(|i| self.0[i] | other.0[i]))
    }

    pub(in crate::files) fn without(self, other: Blocks) -> Blocks {
        Blocks(std::array::from_fn(|i| self.0[i] & !other.0[i]))
    }

    pub(in crate::files) fn encode(&self) -> [u8; BITS] {
        let mut out = [0; BITS];
        for (to, word) in out.chunks_exact_mut(8).zip(self.0) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        out
    }

    pub(in crate::files) fn decode(bytes: &[u8]) -> Result<Blocks> {
        let bytes: &[u8; BITS] = bytes.try_into().map_err(|_| strange())?;
        Ok(Blocks(std::array::from_fn(|i| crate::files::sidecar::number(bytes, 8 * i))))
    }
}

fn strange() -> Error {
    Error::corrupt("a record of checksums has a length that none can have; restore the store from a copy")
}

/// The checksums of a run. A block without one holds zeros, or is not kept by a checksum yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::files) struct Run {
    pub(in crate::files) present: Blocks,
    sums: [u32; BLOCKS],
}

impl Default for Run {
    fn default() -> Run {
        Run { present: Blocks::default(), sums: [0; BLOCKS] }
    }
}

impl Run {
    /// Sets the checksum of a block, or takes it away.
    pub(in crate::files) fn set(&mut self, block: usize, sum: Option<u32>) {
        match sum {
            Some(_) => self.present.add(block),
            None => self.present = self.present.without(Blocks::range(block, block + 1)),
        }
        self.sums[block] = sum.unwrap_or(0);
    }

    /// The checksum of a block.
    pub(in crate::files) fn get(&self, block: usize) -> Option<u32> {
        self.present.has(block).then(|| self.sums[block])
    }

    /// The set of blocks, then the checksums of those in it, in order.
    pub(in crate::files) fn encode(&self) -> Vec<u8> {
        let mut out = self.present.encode().to_vec();
        (0..BLOCKS).filter_map(|i| self.get(i)).for_each(|sum| out.extend(sum.to_le_bytes()));
        out
    }

    pub(in crate::files) fn decode(bytes: &[u8]) -> Result<Run> {
        let (bits, sums) = bytes.split_at_checked(BITS).ok_or_else(strange)?;
        let present = Blocks::decode(bits)?;
        let mut run = Run { present, ..Run::default() };
        let mut sums = sums.chunks(4);
        for block in (0..BLOCKS).filter(|i| present.has(*i)) {
            let sum = sums.next().filter(|s| s.len() == 4).ok_or_else(strange)?;
            run.sums[block] = short(sum, 0);
        }
        if sums.next().is_some() { Err(strange()) } else { Ok(run) }
    }
}
