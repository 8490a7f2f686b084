//! Checksums of blocks (I1), as targets keep them and clients compare them.

use iov_types::{Error, Result};

/// Bytes that one checksum covers. A page: what is changed in part is read in whole.
pub const BLOCK: u64 = 4096;
/// Blocks of a run, whose checksums are kept and told together.
pub const BLOCKS: usize = 256;
/// Bytes of a run.
pub const RUN: u64 = BLOCK * BLOCKS as u64;

/// What is known of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlockSum {
    /// It holds zeros.
    Zeros,
    /// Its CRC-32C. What lies behind the end of the object counts as zeros.
    Sum(u32),
    /// It has changed since the last sync: nothing.
    Open,
}

impl BlockSum {
    /// Whether a block of which `bytes` are there is what it should be; `None`: it cannot be told.
    pub fn fits(self, bytes: &[u8]) -> Option<bool> {
        match self {
            BlockSum::Open => None,
            BlockSum::Zeros => Some(sum_of(bytes).is_none()),
            BlockSum::Sum(sum) => Some(sum_of(bytes) == Some(sum)),
        }
    }

    /// Bytes of one on the wire: a word that says which, and the sum, both little-endian.
    pub const BYTES: usize = 8;

    /// For the wire.
    pub fn encode(self) -> [u8; BlockSum::BYTES] {
        let (which, sum) = match self {
            BlockSum::Zeros => (0, 0),
            BlockSum::Sum(sum) => (1, sum),
            BlockSum::Open => (2, 0),
        };
        (u64::from(sum) << 32 | which).to_le_bytes()
    }

    /// From the wire.
    pub fn decode(bytes: [u8; BlockSum::BYTES]) -> Result<BlockSum> {
        let word = u64::from_le_bytes(bytes);
        match word as u32 {
            0 => Ok(BlockSum::Zeros),
            1 => Ok(BlockSum::Sum((word >> 32) as u32)),
            2 => Ok(BlockSum::Open),
            which => Err(Error::corrupt(format!("a checksum of kind {which}, which this release does not know"))),
        }
    }
}

/// The checksum of a block of which `bytes` are there and the rest, as behind the end of an object, is zeros; `None` if
/// all of it is.
pub fn sum_of(bytes: &[u8]) -> Option<u32> {
    if is_zero(bytes) {
        return None;
    }
    if bytes.len() as u64 == BLOCK {
        return Some(crc_fast::crc32_iscsi(bytes));
    }
    let mut sum = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    sum.update(bytes);
    sum.update(&[0; BLOCK as usize][bytes.len().min(BLOCK as usize)..]);
    Some(sum.finalize() as u32)
}

fn is_zero(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<16>();
    words.iter().all(|w| *w == [0; 16]) && rest.iter().all(|b| *b == 0)
}
