//! The steps of the protocol between a target's server and clients that move bytes themselves, on the words that they share
//! (G1–G3, T18). They stand here for any kind of atomic word, so that a model checker can run the very same steps.

use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(test)]
mod tests;

/// What a slot's state says besides its generation: the bytes were taken back, or moved out of reach as well.
pub(crate) const REVOKED: u64 = 1;
pub(crate) const RELOCATED: u64 = 2;

/// A word that processes share.
pub(crate) trait Word {
    fn load(&self, order: Ordering) -> u64;
    fn store(&self, value: u64, order: Ordering);
    fn add(&self, value: u64, order: Ordering);
    fn subtract(&self, value: u64, order: Ordering);
    fn raise(&self, value: u64, order: Ordering);
    /// Orders everything before it against everything behind it.
    fn fence();
    /// What two sequentially consistent accesses, one behind the other, need besides: nothing, but for a checker that takes
    /// them for weaker ones.
    fn between() {}
}

impl Word for AtomicU64 {
    #[inline]
    fn load(&self, order: Ordering) -> u64 {
        AtomicU64::load(self, order)
    }

    #[inline]
    fn store(&self, value: u64, order: Ordering) {
        AtomicU64::store(self, value, order);
    }

    #[inline]
    fn add(&self, value: u64, order: Ordering) {
        AtomicU64::fetch_add(self, value, order);
    }

    #[inline]
    fn subtract(&self, value: u64, order: Ordering) {
        AtomicU64::fetch_sub(self, value, order);
    }

    #[inline]
    fn raise(&self, value: u64, order: Ordering) {
        AtomicU64::fetch_max(self, value, order);
    }

    #[inline]
    fn fence() {
        std::sync::atomic::fence(Ordering::SeqCst);
    }
}

/// A writer announces itself; whether its grant holds. Whatever the answer, [`retire`] ends it.
#[inline]
pub(crate) fn announce<W: Word>(busy: &W, state: &W, granted: u64) -> bool {
    busy.add(1, Ordering::SeqCst);
    W::between();
    state.load(Ordering::SeqCst) == granted
}

/// A writer has written: whether it counts.
#[inline]
pub(crate) fn counts<W: Word>(state: &W, granted: u64) -> bool {
    // The bytes must be there before the word is read: else a server that declares them void just behind that could move
    // them without the last of them.
    W::fence();
    state.load(Ordering::SeqCst) & !REVOKED == granted
}

/// The end of what was announced.
#[inline]
pub(crate) fn retire<W: Word>(busy: &W) {
    busy.subtract(1, Ordering::SeqCst);
}

/// Whether a grant holds.
#[inline]
pub(crate) fn holds<W: Word>(state: &W, granted: u64) -> bool {
    state.load(Ordering::SeqCst) == granted
}

/// Whether what was read since [`holds`] may be used.
#[inline]
pub(crate) fn is_valid<W: Word>(state: &W, granted: u64) -> bool {
    // The bytes must have been read before the word is.
    W::fence();
    holds(state, granted)
}

/// The server says something of a grant, before it changes what the grant reaches.
pub(crate) fn declare<W: Word>(state: &W, word: u64) {
    state.store(word, Ordering::SeqCst);
    W::fence();
}

/// Whether nothing that was announced is under way.
pub(crate) fn is_drained<W: Word>(busy: &W) -> bool {
    busy.load(Ordering::SeqCst) == 0
}

/// Bytes up to `end` are there: whoever sees the length sees them.
#[inline]
pub(crate) fn note_end<W: Word>(size: &W, end: u64) {
    // Most writes are overwrites: those must not take the line from all others.
    if size.load(Ordering::Relaxed) < end {
        size.raise(end, Ordering::AcqRel);
    }
}

/// How long an object is; what lies before may be read.
#[inline]
pub(crate) fn length<W: Word>(size: &W) -> u64 {
    size.load(Ordering::Acquire)
}
