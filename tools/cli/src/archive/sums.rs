//! CRC-32C of contents that are read in pieces, in any order, and without their holes.

use crc_fast::{CrcAlgorithm::Crc32Iscsi, checksum, checksum_combine};
use ioverbs::Range;

/// The checksum of some bytes, and how many they are.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Sum {
    pub(crate) crc: u32,
    pub(crate) len: u64,
}

impl Sum {
    /// Of these bytes.
    pub(crate) fn of(bytes: &[u8]) -> Sum {
        Sum { crc: checksum(Crc32Iscsi, bytes) as u32, len: bytes.len() as u64 }
    }

    /// Of so many zeros, without going through them.
    pub(crate) fn zeros(len: u64) -> Sum {
        let (mut out, mut power, mut left) = (Sum::default(), Sum::of(&[0]), len);
        while left > 0 {
            if left & 1 == 1 {
                out = out.then(power);
            }
            left >>= 1;
            if left > 0 {
                power = power.then(power);
            }
        }
        out
    }

    /// Of these bytes and those behind them.
    pub(crate) fn then(self, next: Sum) -> Sum {
        match (self.len, next.len) {
            (_, 0) => self,
            (0, _) => next,
            _ => {
                let crc = checksum_combine(Crc32Iscsi, u64::from(self.crc), u64::from(next.crc), next.len);
                Sum { crc: crc as u32, len: self.len + next.len }
            }
        }
    }

    /// Of a content of `size` bytes, of which these pieces are known and all else is zero.
    pub(crate) fn of_pieces(mut pieces: Vec<(Range, Sum)>, size: u64) -> Sum {
        pieces.sort_unstable_by_key(|(range, _)| range.offset);
        let mut out = Sum::default();
        for (range, sum) in pieces {
            out = out.then(Sum::zeros(range.offset.saturating_sub(out.len))).then(sum);
        }
        out.then(Sum::zeros(size.saturating_sub(out.len)))
    }
}
