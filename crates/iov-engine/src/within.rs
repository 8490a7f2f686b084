//! Shorter deadlines for what a thread does, such as when a program ends whose store does not answer.

use std::cell::Cell;

thread_local! {
    static MOST_NS: Cell<i64> = const { Cell::new(i64::MAX) };
}

struct Restores(i64);

impl Drop for Restores {
    fn drop(&mut self) {
        MOST_NS.set(self.0);
    }
}

/// Does something whose operations have `timeout_ns` nanoseconds each at most, whatever the sessions and batches say that they have (O8): those that
/// the calling thread begins. Within another such call the shorter one holds.
pub fn within<T>(timeout_ns: i64, work: impl FnOnce() -> T) -> T {
    let _restores = Restores(MOST_NS.get());
    MOST_NS.set(most_ns().min(timeout_ns.max(1)));
    work()
}

/// The most that an operation has that the calling thread begins now.
pub(crate) fn most_ns() -> i64 {
    MOST_NS.get()
}

#[cfg(test)]
mod tests;
