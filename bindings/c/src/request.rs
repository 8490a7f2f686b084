//! Requests: `iov_wait`, `iov_test`, `iov_cancel`, `iov_request_free`, and what happens when a completion is told.

use std::{
    ffi::c_int,
    sync::{Arc, Mutex},
};

use ioverbs::{Error, Kind, OpState, Request, Result};

use crate::{
    guard::{guard, guard_number},
    last_error, log,
    memory::Uses,
    object::{BatchHandle, CollectionHandle, RequestHandle},
    out::Out,
    pending::Pending,
    submit::{lock, log_end},
    text_store::TextStore,
};

/// What is behind an `iov_request`.
pub struct RequestObject {
    pub(crate) run: Arc<Run>,
}

/// What is to be done when the completion is told.
#[derive(Default)]
pub(crate) struct Waiting {
    /// Out-arguments, by operation.
    pub(crate) outs: Vec<(usize, Pending)>,
    /// Handles that the batch ends.
    pub(crate) closes: Vec<CollectionHandle>,
}

/// One start of a batch, shared by the batch and its request.
pub(crate) struct Run {
    pub(crate) request: Request,
    /// Until somebody has been told.
    waiting: Mutex<Option<(Waiting, Uses)>>,
    /// What out-arguments point to: as long as the batch keeps it (rule 9).
    texts: Mutex<TextStore>,
    pub(crate) handle: RequestHandle,
    pub(crate) batch: BatchHandle,
    pub(crate) user_data: usize,
}

impl Run {
    pub(crate) fn new(
        request: Request,
        waiting: Waiting,
        uses: Uses,
        handle: RequestHandle,
        batch: BatchHandle,
        user_data: usize,
    ) -> Run {
        let waiting = Mutex::new(Some((waiting, uses)));
        Run { request, waiting, texts: Mutex::default(), handle, batch, user_data }
    }

    /// The request has completed and this thread is about to say so: out-arguments first, then the ends of handles.
    /// A second thread that is told at the same time waits here until they are written.
    pub(crate) fn tell(&self) {
        let mut waiting = lock(&self.waiting);
        let Some((Waiting { outs, closes }, uses)) = waiting.take() else { return };
        let mut texts = lock(&self.texts);
        for (index, out) in outs {
            let Ok(status) = self.request.status(index) else { continue };
            if status.state == OpState::Ok
                && let Err(e) = out.write(&status, &mut |bytes: &[u8]| texts.keep(bytes))
            {
                log::line(log::ERROR, || format!("operation {index} has no result: {e}"));
            }
        }
        end_handles(&closes);
        drop(uses);
        self.log();
    }

    /// Nobody will be told any more.
    pub(crate) fn abandon(&self) {
        if let Some((Waiting { closes, .. }, uses)) = lock(&self.waiting).take() {
            end_handles(&closes);
            drop(uses);
        }
        // So that iov_poll does not report it.
        let _ = self.request.wait(0);
    }

    fn log(&self) {
        if let Err(e) = self.request.result() {
            log_end("batch", &e);
            if log::wants(log::WARN) {
                let errors = (0..).map_while(|i| self.request.status(i).ok()).filter_map(|s| s.error);
                errors
                    .filter(|e| e.clause() != Some(ioverbs::Clause::B2))
                    .take(8)
                    .for_each(|e| log_end("operation", &e));
            }
        }
    }
}

fn end_handles(closes: &[CollectionHandle]) {
    for handle in closes {
        // If it was closed by itself meanwhile, that is what it was to become.
        let _ = handle.end();
    }
}

/// Drives the request until it completes.
#[unsafe(no_mangle)]
pub extern "C" fn iov_wait(r: RequestHandle, timeout_ns: i64) -> c_int {
    guard(|| {
        let run = r.get()?.run.clone();
        let result = run.request.wait(timeout_ns);
        match result {
            Err(e) if e.kind() != Kind::Partial => Err(e),
            told => {
                run.tell();
                told
            }
        }
    })
}

/// Looks whether the request has completed.
#[unsafe(no_mangle)]
pub extern "C" fn iov_test(r: RequestHandle, done: Out<c_int>) -> c_int {
    guard_number(|| {
        let run = r.get()?.run.clone();
        let done = done.required("done")?;
        match run.request.test() {
            None => {
                done.write(0);
                Ok(0)
            }
            Some(Err(e)) if e.kind() != Kind::Partial => Err(e),
            Some(told) => {
                run.tell();
                done.write(1);
                // The one function that tells a result along with an error: rule 4.
                Ok(told.map_or_else(last_error::failed, |()| 0))
            }
        }
    })
}

/// Asks to give up what has not taken effect.
#[unsafe(no_mangle)]
pub extern "C" fn iov_cancel(r: RequestHandle) -> c_int {
    guard(|| {
        let run = r.get()?.run.clone();
        run.request.cancel()?;
        log::line(log::INFO, || "a request is asked to give up".into());
        Ok(())
    })
}

/// Frees a completed request.
#[unsafe(no_mangle)]
pub extern "C" fn iov_request_free(r: RequestHandle) -> c_int {
    guard(|| {
        if r.is_null() {
            return Ok(());
        }
        let run = r.get()?.run.clone();
        in_flight(&run)?;
        r.end()?;
        run.abandon();
        Ok(())
    })
}

fn in_flight(run: &Run) -> Result<()> {
    if run.request.is_done() { Ok(()) } else { Err(Error::busy("the request is in flight: wait for it")) }
}
