//! Slots in chunks that double in size: they never move, so that a lookup needs no lock, and are never given back.

use std::{
    ptr,
    sync::atomic::{AtomicPtr, Ordering},
};

use super::Slot;

pub(super) const FIRST: u64 = 64;
/// Enough for every index of 32 bits.
pub(super) const CHUNKS: usize = 27;

pub(super) struct Chunks([AtomicPtr<Slot>; CHUNKS]);

/// Which chunk, and where in it.
pub(super) fn place(index: u32) -> (usize, usize) {
    let shifted = index as u64 + FIRST;
    let chunk = (shifted.ilog2() - FIRST.ilog2()) as usize;
    (chunk, (shifted - (FIRST << chunk)) as usize)
}

impl Chunks {
    pub(super) const fn new() -> Chunks {
        Chunks([const { AtomicPtr::new(ptr::null_mut()) }; CHUNKS])
    }

    /// The slot, if its chunk exists.
    #[inline]
    pub(super) fn get(&self, index: u32) -> Option<&'static Slot> {
        let (chunk, offset) = place(index);
        let base = self.0[chunk].load(Ordering::Acquire);
        if base.is_null() {
            return None;
        }
        // SAFETY: the chunk has `FIRST << chunk` slots, `offset` is smaller, and chunks live for ever.
        Some(unsafe { &*base.add(offset) })
    }

    /// The slot, of a new chunk if need be.
    pub(super) fn get_or_make(&self, index: u32) -> &'static Slot {
        loop {
            if let Some(slot) = self.get(index) {
                return slot;
            }
            let (chunk, _) = place(index);
            let len = (FIRST << chunk) as usize;
            let slots: Box<[Slot]> = (0..len).map(|_| Slot::new()).collect();
            let new = Box::into_raw(slots).cast::<Slot>();
            if self.0[chunk].compare_exchange(ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire).is_err() {
                // SAFETY: another thread was faster and ours was seen by nobody; it came from a box of `len` slots.
                drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(new, len)) });
            }
        }
    }
}
