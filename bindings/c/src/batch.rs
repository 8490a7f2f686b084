//! Batches: `iov_batch_*` and `iov_explain`.

use std::{
    collections::HashMap,
    ffi::{CString, c_int},
    sync::{Arc, Mutex},
};

use ioverbs::{Batch, BatchAttr, Drive, Error, OnError, Op, Request, Result, Status, Uuid};

use crate::{
    abi,
    arg::{BytesMut, In, reserved},
    convert,
    guard::{guard, guard_value},
    last_error::clause_text,
    object::{BatchHandle, CollectionHandle, Place, RequestHandle, SessionHandle},
    out::{Out, OutBuffer, OutStruct},
    pending::Pending,
    request::{RequestObject, Run, Waiting},
    submit::{Context, Lent, lock},
    text_store::c_string,
};

/// What is behind an `iov_batch`.
pub struct BatchObject {
    pub(crate) cx: Arc<Context>,
    pub(crate) inner: Mutex<Inner>,
    pub(crate) user_data: usize,
}

pub(crate) struct Inner {
    engine: Batch,
    waiting: Waiting,
    lent: Vec<Lent>,
    pub(crate) run: Option<Arc<Run>>,
    /// Details of statuses that were asked for, until reset.
    details: HashMap<usize, CString>,
}

impl BatchObject {
    /// Appends an operation.
    pub(crate) fn append(&self, op: Op, out: Pending, lent: &[Lent], closes: Option<CollectionHandle>) -> Result<()> {
        let mut inner = lock(&self.inner);
        let index = inner.engine.push(op)?;
        if !out.is_none() {
            inner.waiting.outs.push((index, out));
        }
        inner.waiting.closes.extend(closes);
        inner.lent.extend_from_slice(lent);
        Ok(())
    }
}

impl Inner {
    /// Forgets a completed run: nobody is told of it any more, and its out-arguments stay untouched.
    fn abandon(&mut self) -> Result<()> {
        self.engine.check_idle()?;
        if let Some(run) = self.run.take() {
            run.abandon();
        }
        Ok(())
    }
}

fn batch_attr(attr: &abi::BatchAttr, handle: BatchHandle) -> Result<BatchAttr> {
    reserved("iov_batch_attr", &attr.reserved0)?;
    let on_error = match attr.on_error {
        0 => None,
        n => Some(
            OnError::from_number(n)
                .ok_or_else(|| Error::invalid(format!("iov_batch_attr.on_error is {n}, none of IOV_ON_ERROR_*")))?,
        ),
    };
    let drive = match attr.progress {
        0 => Drive::Auto,
        1 => Drive::Caller,
        2 => Drive::Background,
        n => return Err(Error::invalid(format!("iov_batch_attr.progress is {n}, none of IOV_PROGRESS_*"))),
    };
    if attr.deadline_ns < 0 {
        return Err(Error::invalid("iov_batch_attr.deadline_ns is negative: it is a time from the start on"));
    }
    let id = Uuid(attr.id.bytes);
    Ok(BatchAttr {
        on_error,
        drive,
        id: (!id.is_nil()).then_some(id),
        deadline_ns: attr.deadline_ns,
        controls: convert::optional_controls(attr.controls)?,
        user_data: handle.bits() as usize,
    })
}

/// Makes an empty batch.
#[unsafe(no_mangle)]
pub extern "C" fn iov_batch_create(s: SessionHandle, attr: In<abi::BatchAttr>, out: Out<BatchHandle>) -> c_int {
    guard(|| {
        let session = s.get()?;
        let out = out.required("out")?;
        let attr = attr.read()?.unwrap_or_else(abi::BatchAttr::init);
        let place = Place::new()?;
        let engine = Batch::new(&session.cx.session, batch_attr(&attr, place.handle())?)?;
        let inner = Inner { engine, waiting: Waiting::default(), lent: Vec::new(), run: None, details: HashMap::new() };
        let object =
            BatchObject { cx: session.cx.clone(), inner: Mutex::new(inner), user_data: attr.user_data as usize };
        out.write(place.fill(object));
        Ok(())
    })
}

/// Orders what was appended before everything appended later.
#[unsafe(no_mangle)]
pub extern "C" fn iov_batch_barrier(b: BatchHandle) -> c_int {
    guard(|| lock(&b.get()?.inner).engine.barrier())
}

/// The number of operations; 0 for what is no batch.
#[unsafe(no_mangle)]
pub extern "C" fn iov_batch_count(b: BatchHandle) -> usize {
    guard_value(0, || Ok(lock(&b.get()?.inner).engine.count()))
}

/// Writes the plan as JSON.
#[unsafe(no_mangle)]
pub extern "C" fn iov_explain(b: BatchHandle, out: BytesMut, cap: usize, needed: Out<usize>) -> c_int {
    guard(|| {
        let plan = lock(&b.get()?.inner).engine.explain()?;
        OutBuffer { memory: out, cap, needed }.write_text(&plan, "the plan")
    })
}

/// Starts a batch.
#[unsafe(no_mangle)]
pub extern "C" fn iov_batch_start(b: BatchHandle, out: Out<RequestHandle>) -> c_int {
    guard(|| {
        let batch = b.get()?;
        let out = out.required("out")?;
        let place: Place<RequestObject> = Place::new()?;
        let mut inner = lock(&batch.inner);
        let uses = batch.cx.buffers.uses(&inner.lent);
        let engine: Request = inner.engine.start()?;
        let waiting = std::mem::take(&mut inner.waiting);
        let run = Arc::new(Run::new(engine, waiting, uses, place.handle(), b, batch.user_data));
        inner.run = Some(run.clone());
        // Before anybody who polls can get at the run: the handle must be good by then.
        out.write(place.fill(RequestObject { run }));
        Ok(())
    })
}

/// How an operation ended.
#[unsafe(no_mangle)]
pub extern "C" fn iov_batch_status(b: BatchHandle, index: usize, out: OutStruct<abi::Status>) -> c_int {
    guard(|| {
        let batch = b.get()?;
        let out = out.place()?;
        let mut inner = lock(&batch.inner);
        let Some(run) = inner.run.clone() else {
            return Err(match index < inner.engine.count() {
                true => Error::busy("the batch has not been started"),
                false => Error::invalid(format!("the batch has no operation {index}")),
            });
        };
        let Status { state, outcome, error, bytes, .. } = run.request.status(index)?;
        let detail = match &error {
            None => c"".as_ptr(),
            Some(e) => {
                let detail = inner.details.entry(index).or_insert_with(|| c_string(e.detail().as_bytes()));
                detail.as_ptr()
            }
        };
        out.write(abi::Status {
            code: error.as_ref().map_or(0, Error::code),
            state: state as u8,
            outcome: outcome as u8,
            clause: clause_text(error.as_ref().and_then(Error::clause)),
            detail,
            bytes,
            ..abi::Status::init()
        });
        Ok(())
    })
}

/// Empties a completed batch.
#[unsafe(no_mangle)]
pub extern "C" fn iov_batch_reset(b: BatchHandle) -> c_int {
    guard(|| {
        let batch = b.get()?;
        let mut inner = lock(&batch.inner);
        inner.abandon()?;
        inner.engine.reset()?;
        inner.waiting = Waiting::default();
        inner.lent.clear();
        inner.details.clear();
        Ok(())
    })
}

/// Frees a batch.
#[unsafe(no_mangle)]
pub extern "C" fn iov_batch_free(b: BatchHandle) -> c_int {
    guard(|| {
        if b.is_null() {
            return Ok(());
        }
        let batch = b.get()?;
        lock(&batch.inner).abandon()?;
        b.end().map(drop)
    })
}
