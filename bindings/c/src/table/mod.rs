//! Handles: pointer-sized numbers that are looked up, never followed. Whatever a program passes in, NULL, a handle closed
//! long ago, one of another type, any address, is recognised.
//!
//! ```text
//! handle   kind:4 | generation:28 | index:32          kind is never 0, so that no address of user space is a handle
//! state    kind:4 | generation:28 | closing:1 | pins:31
//! ```
//!
//! A slot's generation grows with each use of the slot; a slot whose generations are used up is never used again, so
//! that a stale handle stays stale for ever. Everything is lock-free: a lookup is one compare-and-swap, and after a fork
//! the child finds no lock held by a thread that it does not have.

mod chunks;

#[cfg(test)]
mod tests;

use std::{
    cell::UnsafeCell,
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
};

use ioverbs::{Error, Result, seam};

use crate::object::Object;
use chunks::Chunks;

const CLOSING: u64 = 1 << 31;
const GENERATIONS: u64 = 1 << 28;
const NO_SLOT: u32 = u32::MAX;

pub(crate) struct Slot {
    state: AtomicU64,
    /// The fork generation of the process that filled it.
    born: AtomicU64,
    /// The next free slot, while this one is free.
    next: AtomicU32,
    /// Written while nobody can have a pin: before the state says "open", and by the last pin after "closing".
    value: UnsafeCell<Option<Object>>,
}

// SAFETY: `value` is shared for reading only while pins exist, and changed only by the one thread that fills the slot or
// releases it (see the field); `Object` is Send and Sync, which `assert_shareable` checks.
unsafe impl Sync for Slot {}

const fn assert_shareable<T: Send + Sync>() {}
const _: () = assert_shareable::<Object>();

impl Slot {
    fn new() -> Slot {
        Slot {
            state: AtomicU64::new(CLOSING),
            born: AtomicU64::new(0),
            next: AtomicU32::new(NO_SLOT),
            value: UnsafeCell::new(None),
        }
    }
}

struct Table {
    chunks: Chunks,
    /// Slots ever handed out.
    used: AtomicU64,
    /// tag:32 | index:32 of the first free slot; the tag grows with each change.
    free: AtomicU64,
}

static TABLE: Table = Table { chunks: Chunks::new(), used: AtomicU64::new(0), free: AtomicU64::new(NO_SLOT as u64) };

impl Table {
    fn pop_free(&self) -> Option<u32> {
        let mut head = self.free.load(Ordering::Acquire);
        loop {
            let index = head as u32;
            let slot = self.chunks.get(index)?;
            // May be out of date if another thread takes the slot now; then the tag has changed and the swap fails.
            let next = slot.next.load(Ordering::Relaxed);
            let new = (head >> 32).wrapping_add(1) << 32 | next as u64;
            match self.free.compare_exchange_weak(head, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(index),
                Err(now) => head = now,
            }
        }
    }

    fn push_free(&self, index: u32, slot: &Slot) {
        let mut head = self.free.load(Ordering::Acquire);
        loop {
            slot.next.store(head as u32, Ordering::Relaxed);
            let new = (head >> 32).wrapping_add(1) << 32 | index as u64;
            match self.free.compare_exchange_weak(head, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    fn take_slot(&self) -> Result<(u32, &'static Slot)> {
        let exhausted = || Error::exhausted("no handle is left: close some");
        let index = match self.pop_free() {
            Some(index) => index,
            None => {
                let index = self.used.fetch_add(1, Ordering::Relaxed);
                u32::try_from(index).ok().filter(|i| *i < NO_SLOT).ok_or_else(exhausted)?
            }
        };
        Ok((index, TABLE.chunks.get_or_make(index)))
    }
}

/// A handle that is known before there is something behind it.
pub(crate) struct Reservation {
    index: u32,
    slot: &'static Slot,
    handle: u64,
    filled: bool,
}

/// Takes a handle of this kind; until it is filled nobody can use it.
pub(crate) fn reserve(kind: u8) -> Result<Reservation> {
    let (index, slot) = TABLE.take_slot()?;
    let generation = (slot.state.load(Ordering::Relaxed) >> 32) + 1;
    let high = (kind as u64) << 28 | generation;
    Ok(Reservation { index, slot, handle: high << 32 | index as u64, filled: false })
}

impl Reservation {
    /// The handle.
    pub(crate) fn handle(&self) -> u64 {
        self.handle
    }

    /// Puts something behind it.
    pub(crate) fn fill(mut self, object: Object) -> u64 {
        self.filled = true;
        // SAFETY: the slot is ours alone until the store below: its state has been "closing, no pins" since it was taken.
        unsafe { *self.slot.value.get() = Some(object) };
        self.slot.born.store(seam::fork_generation(), Ordering::Relaxed);
        self.slot.state.store(self.handle >> 32 << 32, Ordering::Release);
        self.handle
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if !self.filled {
            TABLE.push_free(self.index, self.slot);
        }
    }
}

/// Keeps the object behind a handle alive, even if the handle is closed meanwhile.
pub(crate) struct Pin {
    index: u32,
    slot: &'static Slot,
}

impl Pin {
    /// The object.
    pub(crate) fn object(&self) -> &Object {
        // SAFETY: a pinned slot is filled, and is not changed before the last pin is gone.
        match unsafe { &*self.slot.value.get() } {
            Some(object) => object,
            None => unreachable!("a pinned slot is filled"),
        }
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let before = self.slot.state.fetch_sub(1, Ordering::AcqRel);
        if before & (CLOSING - 1) == 1 && before & CLOSING != 0 {
            release(self.index, self.slot, before);
        }
    }
}

/// After the last pin of a closed handle.
fn release(index: u32, slot: &'static Slot, state: u64) {
    // SAFETY: no pin is left and "closing" allows no new one: the slot is ours alone.
    let object = unsafe { (*slot.value.get()).take() };
    let generation = state >> 32 & (GENERATIONS - 1);
    slot.state.store(generation << 32 | CLOSING, Ordering::Release);
    if generation + 1 < GENERATIONS {
        TABLE.push_free(index, slot);
    }
    // Last: it may run code of every layer below.
    drop(object);
}

/// The object of an open handle of this kind.
pub(crate) fn get(handle: u64, kind: u8, what: &str) -> Result<Pin> {
    open(handle, kind, what, false)
}

/// The same, and closes the handle: nobody finds it any more, and the object goes with the last pin.
pub(crate) fn remove(handle: u64, kind: u8, what: &str) -> Result<Pin> {
    open(handle, kind, what, true)
}

fn open(handle: u64, kind: u8, what: &str, close: bool) -> Result<Pin> {
    let index = handle as u32;
    let Some(slot) = TABLE.chunks.get(index).filter(|_| handle >> 60 == kind as u64) else {
        return Err(wrong(handle, what));
    };
    let mut state = slot.state.load(Ordering::Acquire);
    loop {
        let pins = state & (CLOSING - 1);
        if state >> 32 != handle >> 32 || state & CLOSING != 0 || pins == CLOSING - 1 {
            return Err(wrong(handle, what));
        }
        // Before a pin is taken: what the parent's threads may hold, the child must not touch (rule 7). If the slot has
        // changed hands since the load above, the swap below fails.
        if slot.born.load(Ordering::Relaxed) != seam::fork_generation() {
            return Err(of_parent(what));
        }
        let new = if close { (state + 1) | CLOSING } else { state + 1 };
        match slot.state.compare_exchange_weak(state, new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return Ok(Pin { index, slot }),
            Err(now) => state = now,
        }
    }
}

#[cold]
fn of_parent(what: &str) -> Error {
    Error::forked(format!("the {what} belongs to the parent process; open the store anew in this one"))
}

#[cold]
fn wrong(handle: u64, what: &str) -> Error {
    let kind = (handle >> 60) as u8;
    Error::invalid(match crate::object::name_of_kind(kind) {
        _ if handle == 0 => format!("the {what} is NULL"),
        None => format!("{handle:#x} is no handle of this library; a {what} was expected"),
        Some(name) if name == what => format!("the {what} {handle:#x} is closed, or never was one"),
        Some(name) => format!("{handle:#x} is a {name}; a {what} was expected"),
    })
}
