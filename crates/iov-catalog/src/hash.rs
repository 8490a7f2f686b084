//! A fast hash with a secret seed, for tables whose keys come from clients.

use std::hash::{BuildHasher, Hasher};

use iov_store::seam;

/// Makes hashers of one seed.
#[derive(Clone, Debug)]
pub(crate) struct Seeded(u64);

impl Default for Seeded {
    fn default() -> Seeded {
        let mut seed = [0; 8];
        seam::random_bytes(&mut seed);
        Seeded(u64::from_le_bytes(seed))
    }
}

impl BuildHasher for Seeded {
    type Hasher = Fold;

    #[inline]
    fn build_hasher(&self) -> Fold {
        Fold(self.0)
    }
}

/// Folds eight bytes at a time by a multiplication.
pub(crate) struct Fold(u64);

impl Fold {
    #[inline]
    fn mix(&mut self, word: u64) {
        // The golden ratio; any odd number without structure does.
        let product = u128::from(self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        self.0 = (product as u64) ^ ((product >> 64) as u64);
    }
}

impl Hasher for Fold {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let mut words = bytes.chunks_exact(8);
        for word in &mut words {
            self.mix(u64::from_le_bytes(word.try_into().expect("a chunk of eight bytes")));
        }
        let rest = words.remainder();
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            self.mix(u64::from_le_bytes(last));
        }
        self.mix(bytes.len() as u64);
    }

    #[inline]
    fn write_u64(&mut self, n: u64) {
        self.mix(n);
    }

    #[inline]
    fn write_usize(&mut self, n: usize) {
        self.mix(n as u64);
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

/// For keys that are hashes already.
#[derive(Clone, Default, Debug)]
pub(crate) struct Ready;

impl BuildHasher for Ready {
    type Hasher = Same;

    #[inline]
    fn build_hasher(&self) -> Same {
        Same(0)
    }
}

/// Hands the key through.
pub(crate) struct Same(u64);

impl Hasher for Same {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    #[inline]
    fn write_u64(&mut self, n: u64) {
        self.0 = n;
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}
