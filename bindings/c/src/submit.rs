//! What every `[op]` function does: append to a batch, or run now.

use std::{
    cell::RefCell,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use ioverbs::{Error, Kind, Op, Result, Session};

use crate::{
    log,
    memory::Buffers,
    object::{BatchHandle, CollectionHandle},
    out::CText,
    pending::Pending,
    text_store::TextStore,
};

/// What all objects of one session share; it lives until the last of them is gone (rule 5).
pub(crate) struct Context {
    pub(crate) session: Session,
    pub(crate) buffers: Buffers,
}

/// A stretch of the program's memory: address and length.
pub(crate) type Lent = (usize, usize);

/// A mutex that a panic does not close: what it guards is replaced as a whole.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An operation, as a function has understood it.
pub(crate) struct Submission<'a> {
    pub(crate) cx: &'a Arc<Context>,
    pub(crate) op: Op,
    pub(crate) out: Pending,
    /// Memory that it uses.
    pub(crate) lent: &'a [Lent],
    /// The handle that it ends.
    pub(crate) closes: Option<CollectionHandle>,
}

impl<'a> Submission<'a> {
    /// An operation without result, memory and end.
    pub(crate) fn new(cx: &'a Arc<Context>, op: Op) -> Submission<'a> {
        Submission { cx, op, out: Pending::None, lent: &[], closes: None }
    }

    /// The same with a result.
    pub(crate) fn with(cx: &'a Arc<Context>, op: Op, out: Pending) -> Submission<'a> {
        Submission { out, ..Submission::new(cx, op) }
    }
}

/// Appends the operation to a batch; with NULL runs it now.
#[inline]
pub(crate) fn submit(batch: BatchHandle, submission: Submission<'_>) -> Result<()> {
    if !batch.is_null() {
        let batch = batch.get()?;
        same_session(&batch.cx, submission.cx)?;
        return batch.append(submission.op, submission.out, submission.lent, submission.closes);
    }
    let Submission { cx, op, out, lent, .. } = submission;
    let _uses = cx.buffers.uses(lent);
    let verb = op.verb();
    let status = ioverbs::run(&cx.session, op).inspect_err(|e| log_end(verb, e))?;
    if out.is_none() { Ok(()) } else { write_now(&out, &status) }
}

thread_local! {
    /// What the results of this thread's last blocking call without container point to (rule 9).
    static LAST_RESULT: RefCell<TextStore> = RefCell::default();
}

fn write_now(out: &Pending, status: &ioverbs::Status) -> Result<()> {
    if !matches!(out, Pending::Value(_)) {
        return out.write(status, &mut |_| std::ptr::null());
    }
    LAST_RESULT.with_borrow_mut(|texts| {
        texts.clear();
        out.write(status, &mut |bytes: &[u8]| -> CText { texts.keep(bytes) })
    })
}

/// Lines that an operator wants to see: what was given up.
pub(crate) fn log_end(verb: &str, error: &Error) {
    if matches!(error.kind(), Kind::Cancelled | Kind::Timeout) {
        log::line(log::WARN, || format!("{verb}: {error}"));
    }
}

/// Objects of different sessions cannot meet in one call.
pub(crate) fn same_session(a: &Arc<Context>, b: &Arc<Context>) -> Result<()> {
    if Arc::ptr_eq(a, b) {
        return Ok(());
    }
    Err(Error::invalid(
        "the handles belong to different sessions; open both in one, or hand one over by iov_handle_export",
    ))
}
