//! Shorter deadlines for what a thread does, such as when a program ends whose store does not answer.

use std::cell::Cell;

use iov_store::seam;

/// Until when something of several operations is to be done, on the monotonic clock, and what each of them has at least (ns).
#[derive(Clone, Copy)]
struct End {
    until_ns: i64,
    least_ns: i64,
}

const NONE: End = End { until_ns: i64::MAX, least_ns: 0 };

thread_local! {
    static MOST_NS: Cell<i64> = const { Cell::new(i64::MAX) };
    static END: Cell<End> = const { Cell::new(NONE) };
}

struct Restores(i64, End);

impl Restores {
    fn now() -> Restores {
        Restores(MOST_NS.get(), END.get())
    }
}

impl Drop for Restores {
    fn drop(&mut self) {
        MOST_NS.set(self.0);
        END.set(self.1);
    }
}

/// Does something whose operations have `timeout_ns` nanoseconds each at most, whatever the sessions and batches say that they have (O8): those that
/// the calling thread begins. Within another such call the shorter one holds.
pub fn within<T>(timeout_ns: i64, work: impl FnOnce() -> T) -> T {
    let _restores = Restores::now();
    MOST_NS.set(MOST_NS.get().min(timeout_ns.max(1)));
    work()
}

/// A moment is one of so many parts of a timeout.
const PARTS: i64 = 16;
/// Its least and its most, in nanoseconds.
const MOMENT_NS: (i64, i64) = (20_000_000, 1_000_000_000);

/// How long is waited for each of what comes behind something that has waited in vain for so long (ns): only that one's target may be away.
pub fn moment_ns(timeout_ns: i64) -> i64 {
    (timeout_ns / PARTS).clamp(MOMENT_NS.0, MOMENT_NS.1)
}

/// Does something of several operations that have `timeout_ns` nanoseconds all together (O8): those that the calling thread begins. Once that is over each has
/// a moment still, a sixteenth of it and a second at most, as only the target that was waited for may be away. Within another such call the earlier end holds.
pub fn within_all<T>(timeout_ns: i64, work: impl FnOnce() -> T) -> T {
    let _restores = Restores::now();
    let until_ns = seam::monotonic_ns().saturating_add(timeout_ns.max(1));
    if until_ns < END.get().until_ns {
        END.set(End { until_ns, least_ns: moment_ns(timeout_ns) });
    }
    work()
}

/// The most that an operation has that the calling thread begins now.
pub(crate) fn most_ns() -> i64 {
    let (most_ns, end) = (MOST_NS.get(), END.get());
    match end.until_ns {
        i64::MAX => most_ns,
        until_ns => most_ns.min((until_ns - seam::monotonic_ns()).max(end.least_ns)),
    }
}

#[cfg(test)]
mod tests;
