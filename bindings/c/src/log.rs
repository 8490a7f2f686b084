//! Lines for a program's log. The library itself prints nothing; without `iov_log_set` nothing is even formatted.
//!
//! Secrets never get here: tokens and credentials are in no error's detail.

use std::{
    cell::Cell,
    ffi::{c_char, c_void},
    ptr,
    sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering},
};

use ioverbs::{Error, Result, seam};

use crate::text_store::c_string;

pub(crate) const ERROR: u32 = 1;
pub(crate) const WARN: u32 = 2;
pub(crate) const INFO: u32 = 3;
pub(crate) const TRACE: u32 = 5;

/// `iov_log_fn`; NULL turns the log off.
pub type LogFn = Option<extern "C" fn(ctx: *mut c_void, level: u32, line: *const c_char)>;

struct Sink {
    function: extern "C" fn(*mut c_void, u32, *const c_char),
    ctx: *mut c_void,
}

static LEVEL: AtomicU32 = AtomicU32::new(0);
static SINK: AtomicPtr<Sink> = AtomicPtr::new(ptr::null_mut());
/// fork generation:32 | threads that are just using the sink:32. No lock: a child would find it held for ever.
static USERS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// This thread is just in the program's function, which must not call the library.
    static TELLING: Cell<bool> = const { Cell::new(false) };
}

fn enter() -> u64 {
    let generation = seam::fork_generation() << 32;
    let mut users = USERS.load(Ordering::Relaxed);
    loop {
        // What the parent's other threads were doing, they do not do here.
        let new = if users >> 32 << 32 == generation { users + 1 } else { generation + 1 };
        match USERS.compare_exchange_weak(users, new, Ordering::SeqCst, Ordering::Relaxed) {
            Ok(_) => return generation,
            Err(now) => users = now,
        }
    }
}

fn leave(entered: u64) {
    // Unless the function forked, and this is the child.
    if entered == seam::fork_generation() << 32 && USERS.load(Ordering::Relaxed) >> 32 << 32 == entered {
        USERS.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Whether lines of this level go anywhere.
pub(crate) fn wants(level: u32) -> bool {
    level <= LEVEL.load(Ordering::Relaxed)
}

/// Tells the program, if it wants to hear lines of this level.
pub(crate) fn line(level: u32, text: impl FnOnce() -> String) {
    if !wants(level) || TELLING.try_with(|t| t.replace(true)).unwrap_or(true) {
        return;
    }
    let text = c_string(text().as_bytes());
    let entered = enter();
    // SAFETY: a sink is freed only after every user that may have seen it has left.
    if let Some(sink) = unsafe { SINK.load(Ordering::SeqCst).as_ref() } {
        (sink.function)(sink.ctx, level, text.as_ptr());
    }
    leave(entered);
    let _ = TELLING.try_with(|t| t.set(false));
}

/// Sends lines up to `level` to `function`; returns once nobody uses the one before any more.
pub(crate) fn set(level: u32, function: LogFn, ctx: *mut c_void) -> Result<()> {
    if level > TRACE {
        return Err(Error::invalid(format!("the log level {level} is none of IOV_LOG_*")));
    }
    if TELLING.try_with(Cell::get).unwrap_or(false) {
        return Err(Error::invalid("the log function must not call the library"));
    }
    let sink = match function {
        Some(function) if level > 0 => Box::into_raw(Box::new(Sink { function, ctx })),
        _ => ptr::null_mut(),
    };
    LEVEL.store(if sink.is_null() { 0 } else { level }, Ordering::Relaxed);
    let old = SINK.swap(sink, Ordering::SeqCst);
    let mine = seam::fork_generation();
    loop {
        let users = USERS.load(Ordering::SeqCst);
        if users as u32 == 0 || users >> 32 != mine {
            break;
        }
        seam::sleep(10_000);
    }
    if !old.is_null() {
        // SAFETY: it came from `Box::into_raw`, was swapped out once, and nobody uses it any more.
        drop(unsafe { Box::from_raw(old) });
    }
    Ok(())
}
