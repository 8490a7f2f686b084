//! Memory for what is read for clients, used again: fresh pages cost more than the bytes that go into them.

use std::{
    ops::Deref,
    sync::{Arc, Mutex, PoisonError},
};

/// Smaller pieces come from the allocator as they are needed.
const SMALL: usize = 64 << 10;
/// Larger ones are not kept.
const LARGE: usize = 4 << 20;
/// Most bytes kept.
const KEPT: usize = 32 << 20;

/// Memory that is free.
#[derive(Debug, Default)]
pub(crate) struct Buffers(Mutex<Vec<Vec<u8>>>);

/// Bytes to be sent.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    len: usize,
    home: Option<Arc<Buffers>>,
}

impl Buffers {
    /// At least so many bytes, with anything in them.
    pub(crate) fn take(self: &Arc<Self>, len: usize) -> Vec<u8> {
        if len < SMALL {
            return vec![0; len];
        }
        let mut free = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = free.iter().rposition(|bytes| bytes.len() >= len);
        match fits.map(|at| free.swap_remove(at)) {
            Some(bytes) => bytes,
            None => {
                drop(free);
                vec![0; len]
            }
        }
    }

    /// The first `len` of what was taken; the memory comes back when they have been sent.
    pub(crate) fn filled(self: &Arc<Self>, bytes: Vec<u8>, len: usize) -> Buffer {
        let home = (SMALL..=LARGE).contains(&bytes.len()).then(|| self.clone());
        Buffer { len: len.min(bytes.len()), bytes, home }
    }
}

impl From<Vec<u8>> for Buffer {
    fn from(bytes: Vec<u8>) -> Buffer {
        Buffer { len: bytes.len(), bytes, home: None }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let Some(home) = &self.home else { return };
        let mut free = home.0.lock().unwrap_or_else(PoisonError::into_inner);
        if free.iter().map(Vec::len).sum::<usize>() + self.bytes.len() <= KEPT {
            free.push(std::mem::take(&mut self.bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_comes_back_and_not_all_of_it_is_kept() {
        let buffers = Arc::<Buffers>::default();
        let bytes = buffers.take(SMALL);
        let at = bytes.as_ptr();
        let buffer = buffers.filled(bytes, 10);
        assert_eq!(buffer.len(), 10);
        drop(buffer);
        let again = buffers.take(SMALL);
        assert_eq!(again.as_ptr(), at);
        let all: Vec<Buffer> = (0..20).map(|_| buffers.filled(buffers.take(LARGE), 1)).collect();
        drop(all);
        drop(buffers.filled(buffers.take(LARGE + 1), 1));
        assert_eq!(buffers.0.lock().unwrap().len(), KEPT / LARGE);
    }
}
