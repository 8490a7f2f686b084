//! Sessions: `iov_open`, `iov_close`, counters, the event descriptor, `iov_poll`.

use std::{ffi::c_int, sync::Arc};

use ioverbs::{Error, Priority, Request, Result, SessionAttr, seam};

use crate::{
    abi::{self, flag},
    arg::{In, Text, flags},
    guard::{guard, guard_number},
    log,
    memory::Buffers,
    object::{self, BatchHandle, SessionHandle},
    out::{Out, OutStruct},
    request::Run,
    submit::{Context, lock},
};

/// What is behind an `iov_session`.
pub struct SessionObject {
    pub(crate) cx: Arc<Context>,
}

impl Drop for Context {
    fn drop(&mut self) {
        self.buffers.leave();
    }
}

fn session_attr(attr: Option<abi::SessionAttr>) -> Result<SessionAttr> {
    let Some(attr) = attr else { return Ok(SessionAttr::default()) };
    let known = flag::SESSION_READONLY
        | flag::SESSION_NODIRECT
        | flag::SESSION_NOCACHE
        | flag::SESSION_NOSTART
        | flag::SESSION_BACKGROUND;
    let set = flags(attr.flags, known, "iov_session_attr.flags")?;
    if !attr.token.is_null() {
        let why =
            "iov_session_attr.token: no store of this release takes a credential; it knows who calls; leave it NULL";
        return Err(Error::unsupported(why));
    }
    if !attr.config.is_null() {
        let why = "iov_session_attr.config: this release reads no configuration file; leave it NULL";
        return Err(Error::unsupported(why));
    }
    if attr.deadline_ns < 0 {
        return Err(Error::invalid("iov_session_attr.deadline_ns is negative: it is a time from the call on"));
    }
    // SAFETY: the texts of a struct are what the header says, as the struct itself is.
    let program = unsafe { Text::new(attr.program) };
    Ok(SessionAttr {
        readonly: set & flag::SESSION_READONLY != 0,
        nodirect: set & flag::SESSION_NODIRECT != 0,
        nocache: set & flag::SESSION_NOCACHE != 0,
        nostart: set & flag::SESSION_NOSTART != 0,
        deadline_ns: attr.deadline_ns,
        cache_bytes: attr.cache_bytes,
        priority: match set & flag::SESSION_BACKGROUND {
            0 => Priority::Foreground,
            _ => Priority::Background,
        },
        program: program.utf8("program")?.map(str::to_owned),
    })
}

/// Opens a store.
#[unsafe(no_mangle)]
pub extern "C" fn iov_open(url: Text, attr: In<abi::SessionAttr>, out: Out<SessionHandle>) -> c_int {
    guard(|| {
        let out = out.required("out")?;
        let attr = session_attr(attr.read()?)?;
        let session = ioverbs::open(url.utf8("URL")?, attr)?;
        log::line(log::INFO, || format!("session opened: {}", session.url()));
        out.write(object::register(SessionObject { cx: Arc::new(Context { session, buffers: Buffers::default() }) })?);
        Ok(())
    })
}

/// Ends a session.
#[unsafe(no_mangle)]
pub extern "C" fn iov_close(s: SessionHandle) -> c_int {
    guard(|| {
        if s.is_null() {
            return Ok(());
        }
        let session = s.get()?;
        session.cx.session.close()?;
        s.end()?;
        let left = session.cx.buffers.count();
        if left > 0 {
            log::line(log::WARN, || format!("session closed with {left} buffers: their memory stays the program's"));
        }
        log::line(log::INFO, || format!("session closed: {}", session.cx.session.url()));
        Ok(())
    })
}

/// Copies the counters.
#[unsafe(no_mangle)]
pub extern "C" fn iov_session_counters(s: SessionHandle, out: OutStruct<abi::Counters>) -> c_int {
    guard(|| {
        let session = s.get()?;
        let out = out.place()?;
        let mut counters = abi::Counters::init();
        for (to, from) in counters.values.iter_mut().zip(session.cx.session.counters().snapshot()) {
            *to = from;
        }
        out.write(counters);
        Ok(())
    })
}

/// A descriptor that is readable when `iov_poll` has work.
#[unsafe(no_mangle)]
pub extern "C" fn iov_event_fd(s: SessionHandle) -> c_int {
    guard_number(|| s.get()?.cx.session.event_fd())
}

/// Reports completed requests.
#[unsafe(no_mangle)]
pub extern "C" fn iov_poll(
    s: SessionHandle,
    out: OutStruct<abi::Completion>,
    max: usize,
    n: Out<usize>,
    timeout_ns: i64,
) -> c_int {
    guard(|| {
        let session = s.get()?;
        let place = out.place()?;
        let n = n.required("n")?;
        if max == 0 {
            return Err(Error::invalid("max is 0: there is no room for a completion"));
        }
        let start = seam::monotonic_ns();
        loop {
            let left = if timeout_ns < 0 { -1 } else { (timeout_ns - (seam::monotonic_ns() - start)).max(0) };
            let done = session.cx.session.poll_completed(max, left)?;
            if done.is_empty() {
                return Err(Error::timeout("no request has completed yet: poll again"));
            }
            let mut told = 0;
            // A batch that was freed meanwhile has nobody to be told of it.
            for run in done.iter().filter_map(run_of) {
                run.tell();
                place.write_at(
                    told,
                    abi::Completion {
                        code: run.request.result().map_or_else(|e| e.code(), |()| 0),
                        request: run.handle.bits(),
                        batch: run.batch.bits(),
                        user_data: run.user_data as *mut _,
                        ..abi::Completion::init()
                    },
                );
                told += 1;
            }
            if told > 0 {
                n.write(told);
                return Ok(());
            }
        }
    })
}

/// The run that a request of the engine belongs to.
fn run_of(request: &Request) -> Option<Arc<Run>> {
    let batch = BatchHandle::from_bits(request.user_data() as u64).get().ok()?;
    let inner = lock(&batch.inner);
    inner.run.clone().filter(|run| run.request.is(request))
}
