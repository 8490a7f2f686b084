//! Which descriptor stands for what.

use std::{
    ffi::c_int,
    sync::{
        Arc, PoisonError, TryLockError,
        atomic::{AtomicU64, Ordering},
    },
};

use super::{Files, Held, Open};

/// How often it is tried to get the table without waiting for it.
const SOON: u32 = 1000;

impl Files {
    /// Nobody changes the table until this is let go of.
    pub(crate) fn hold(&self) -> Held<'_> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn bit(&self, fd: c_int) -> Option<(&AtomicU64, u64)> {
        let fd = usize::try_from(fd).ok()?;
        Some((self.bits.get(fd / 64)?, 1 << (fd % 64)))
    }

    /// The table, where nobody has it for long; else none.
    pub(crate) fn hold_soon(&self) -> Option<Held<'_>> {
        (0..SOON).find_map(|_| match self.table.try_write() {
            Ok(held) => Some(held),
            Err(TryLockError::Poisoned(held)) => Some(held.into_inner()),
            Err(TryLockError::WouldBlock) => {
                std::thread::yield_now();
                None
            }
        })
    }

    /// Has the kernel put under a number what an open file has under another one, and notes that; what was there before. The kernel's answer is a number, or
    /// a negated error.
    pub(crate) fn dup(&self, old: c_int, put: impl FnOnce() -> isize) -> (isize, Option<Arc<Open>>) {
        let mut table = self.hold();
        let done = put();
        let Ok(at) = usize::try_from(done) else { return (done, None) };
        let open = usize::try_from(old).ok().and_then(|old| table.get(old)?.clone());
        if table.len() <= at {
            table.resize(at + 1, None);
        }
        if let Some((word, bit)) = self.bit(done as c_int) {
            match open.is_some() {
                true => word.fetch_or(bit, Ordering::Release),
                false => word.fetch_and(!bit, Ordering::Release),
            };
        }
        (done, std::mem::replace(&mut table[at], open))
    }

    /// Whether something may be open under a descriptor, for a look that locks nothing.
    pub(crate) fn may_have(&self, fd: c_int) -> bool {
        self.bit(fd).is_none_or(|(word, bit)| word.load(Ordering::Acquire) & bit != 0)
    }

    /// What is open under a descriptor.
    pub(crate) fn get(&self, fd: c_int) -> Option<Arc<Open>> {
        if !self.may_have(fd) {
            return None;
        }
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        table.get(usize::try_from(fd).ok()?)?.clone()
    }

    /// The same, behind whoever is about to change that.
    pub(crate) fn get_settled(&self, fd: c_int) -> Option<Arc<Open>> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        table.get(usize::try_from(fd).ok()?)?.clone()
    }

    /// From now on a descriptor stands for this.
    pub(crate) fn put(&self, fd: c_int, open: Arc<Open>) {
        let Ok(at) = usize::try_from(fd) else { return };
        let before = {
            let mut table = self.hold();
            if table.len() <= at {
                table.resize(at + 1, None);
            }
            table[at].replace(open)
        };
        if let Some((word, bit)) = self.bit(fd) {
            word.fetch_or(bit, Ordering::Release);
        }
        // What it was before the kernel gave the number out anew.
        drop(before);
    }

    /// It stands for something else from now on, unless it has ceased to stand for what it did.
    pub(super) fn replace(&self, fd: c_int, before: &Arc<Open>, open: Arc<Open>) {
        let mut table = self.hold();
        let at = usize::try_from(fd).ok().and_then(|fd| table.get_mut(fd)?.as_mut());
        let before = at.filter(|at| Arc::ptr_eq(at, before)).map(|at| std::mem::replace(at, open));
        drop(table);
        drop(before);
    }

    /// It stands for nothing from now on; what it stood for.
    pub(crate) fn take(&self, fd: c_int) -> Option<Arc<Open>> {
        let taken = self.hold().get_mut(usize::try_from(fd).ok()?)?.take();
        if let Some((word, bit)) = self.bit(fd) {
            word.fetch_and(!bit, Ordering::Release);
        }
        taken
    }

    /// Descriptors that are open, and what they stand for.
    pub(crate) fn all(&self) -> Vec<(c_int, Arc<Open>)> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        table.iter().enumerate().filter_map(|(fd, open)| Some((fd as c_int, open.clone()?))).collect()
    }
}
