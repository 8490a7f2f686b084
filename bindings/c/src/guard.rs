//! No panic crosses the ABI, and none prints: it becomes `-IOV_EINTERNAL` with a detail.

#[cfg(test)]
mod tests;

use std::{
    any::Any,
    cell::{Cell, RefCell},
    ffi::c_int,
    panic::{self, AssertUnwindSafe, PanicHookInfo},
    sync::atomic::{AtomicBool, Ordering},
};

use ioverbs::{Error, Result};

use crate::{last_error, log};

thread_local! {
    static INSIDE: Cell<u32> = const { Cell::new(0) };
    static WHERE: RefCell<String> = const { RefCell::new(String::new()) };
}

static QUIET: AtomicBool = AtomicBool::new(false);

/// From now on panics in this thread, while it is inside the library, and those of the library's own threads are kept for
/// the log instead of being printed. All others go where they went before.
fn be_quiet() {
    if QUIET.load(Ordering::Relaxed) || QUIET.swap(true, Ordering::Relaxed) {
        return;
    }
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |info: &PanicHookInfo<'_>| {
        let inside = INSIDE.try_with(|n| n.get() > 0).unwrap_or(false);
        let ours = std::thread::current().name().is_some_and(|name| name.starts_with("iov-"));
        if !inside && !ours {
            return before(info);
        }
        let place = info.location().map_or(String::new(), |l| format!(" at {}:{}", l.file(), l.line()));
        let _ = WHERE.try_with(|w| w.replace(place.clone()));
        if !inside {
            log::line(log::ERROR, || format!("a thread of the library ended: {}{place}", said(info.payload())));
        }
    }));
}

fn said(payload: &(dyn Any + Send)) -> &str {
    match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (None, Some(text)) => text,
        (None, None) => "a panic without words",
    }
}

fn protected<T>(body: impl FnOnce() -> Result<T>) -> Result<T> {
    be_quiet();
    // A thread that is ending has no count any more; its panics would be printed, and are still caught.
    let count = |by: i32| INSIDE.try_with(|n| n.set(n.get().wrapping_add_signed(by))).ok();
    count(1);
    let result = panic::catch_unwind(AssertUnwindSafe(body));
    count(-1);
    result.unwrap_or_else(|payload| {
        let place = WHERE.try_with(RefCell::take).unwrap_or_default();
        Err(Error::internal(format!("{}{place}", said(&*payload))).with_outcome(ioverbs::Outcome::Unknown))
    })
}

/// Runs the body of a function that returns 0 or a negative error.
#[inline]
pub(crate) fn guard(body: impl FnOnce() -> Result<()>) -> c_int {
    match protected(body) {
        Ok(()) => 0,
        Err(error) => last_error::failed(error),
    }
}

/// The same for a function that returns a number of its own on success.
pub(crate) fn guard_number(body: impl FnOnce() -> Result<c_int>) -> c_int {
    protected(body).unwrap_or_else(last_error::failed)
}

/// Runs the body of a function that cannot tell of an error but by `otherwise`.
pub(crate) fn guard_value<T>(otherwise: T, body: impl FnOnce() -> Result<T>) -> T {
    protected(body).unwrap_or_else(|error| {
        last_error::failed(error);
        otherwise
    })
}
