//! Locks of the whole process that a copy of it may find taken, by who is not there.

use std::sync::{
    Mutex, MutexGuard, TryLockError,
    atomic::{AtomicPtr, Ordering},
};

use crate::world::lock;

/// See the module.
pub(crate) struct Renewed<T: 'static> {
    first: Mutex<T>,
    later: AtomicPtr<Mutex<T>>,
}

impl<T: Default> Renewed<T> {
    pub(crate) const fn new(first: T) -> Renewed<T> {
        Renewed { first: Mutex::new(first), later: AtomicPtr::new(std::ptr::null_mut()) }
    }

    fn now(&'static self) -> &'static Mutex<T> {
        // SAFETY: what was put there was leaked.
        unsafe { self.later.load(Ordering::Acquire).as_ref() }.unwrap_or(&self.first)
    }

    pub(crate) fn lock(&'static self) -> MutexGuard<'static, T> {
        lock(self.now())
    }

    /// In a copy of the process, which has one thread: another one takes its place if somebody has it, with nothing in it.
    pub(crate) fn renew_if_held(&'static self) {
        if matches!(self.now().try_lock(), Err(TryLockError::WouldBlock)) {
            self.later.store(Box::into_raw(Box::default()), Ordering::Release);
        }
    }
}
