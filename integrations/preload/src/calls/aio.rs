//! Asynchronous I/O of the kernel as `libaio` offers it. What concerns a workspace is done when it is submitted, and told with what the kernel has
//! done of other files in the same context.
//!
//! The layouts are those of `linux/aio_abi.h`.

use std::{
    collections::{HashMap, VecDeque},
    ffi::{c_int, c_long, c_void},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use iov_posix::{Errno, Outcome};
use ioverbs::seam;

use super::{bytes, syncs};
use crate::{
    memory,
    raw::{self, failed, kernel, unanswered},
    renewed::Renewed,
    signals::Quiet,
    world::lock,
};

/// What a program asks for (`struct iocb`).
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Asked {
    data: u64,
    #[cfg(target_endian = "little")]
    key: u32,
    rw_flags: c_int,
    #[cfg(target_endian = "big")]
    key: u32,
    opcode: u16,
    priority: i16,
    fd: c_int,
    buf: u64,
    len: u64,
    at: i64,
    reserved: u64,
    flags: u32,
    /// By which a program is told as well, with [`TELLS`].
    eventfd: c_int,
}

/// What has become of it (`struct io_event`).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    data: u64,
    /// Where the program has what it asked for.
    asked: u64,
    answer: i64,
    second: i64,
}

/// `IOCB_FLAG_RESFD`.
const TELLS: u32 = 1;

/// What is asked for.
mod opcode {
    pub(super) const READ: u16 = 0;
    pub(super) const WRITE: u16 = 1;
    pub(super) const SYNC: u16 = 2;
    pub(super) const SYNC_DATA: u16 = 3;
    pub(super) const READ_PIECES: u16 = 7;
    pub(super) const WRITE_PIECES: u16 = 8;
}

/// The number of `io_pgetevents`.
pub(super) const PGETEVENTS: c_long = if cfg!(target_arch = "x86_64") { 333 } else { 292 };

/// How long a wait for the kernel is, where something else may come meanwhile.
const SLICE: Duration = Duration::from_millis(1);

/// A context: what of it the kernel does not know.
#[derive(Default)]
pub(crate) struct Context {
    state: Mutex<State>,
    /// Changes with each event, for those who wait.
    changes: AtomicU32,
}

#[derive(Default)]
struct State {
    /// As many events as the program has said that there may be.
    most: usize,
    done: VecDeque<Event>,
    /// What the kernel has to do.
    kernel: usize,
    ended: bool,
}

impl Context {
    /// Those who wait look again.
    fn tell(&self) {
        self.changes.fetch_add(1, Ordering::Release);
        kernel!(libc::SYS_futex, self.changes.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, i32::MAX);
    }

    /// Waits for a change since; an error: a signal came.
    fn wait(&self, since: u32, most: Option<Duration>) -> Outcome<()> {
        let time = most.map(timespec);
        let pointer = time.as_ref().map_or(std::ptr::null(), |time| time as *const libc::timespec);
        let op = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
        match kernel!(libc::SYS_futex, self.changes.as_ptr(), op, since, pointer) {
            e if e == failed(Errno::EINTR) => Err(Errno::EINTR),
            _ => Ok(()),
        }
    }

    fn adds(&self, event: Event) {
        lock(&self.state).done.push_back(event);
        self.tell();
    }
}

fn timespec(time: Duration) -> libc::timespec {
    libc::timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) }
}

/// The contexts of this process, by what the kernel calls them.
static CONTEXTS: Renewed<Option<HashMap<usize, Arc<Context>>>> = Renewed::new(None);

/// All of them, which nobody changes meanwhile.
pub(crate) type Contexts = MutexGuard<'static, Option<HashMap<usize, Arc<Context>>>>;

pub(crate) fn contexts() -> Contexts {
    CONTEXTS.lock()
}

/// In a copy of the process, which has none of them, and not who may have been at work with them.
pub(super) fn forget_contexts() {
    CONTEXTS.renew_if_held();
    std::mem::forget(CONTEXTS.lock().take());
}

fn context(id: usize) -> Option<Arc<Context>> {
    CONTEXTS.lock().as_ref()?.get(&id).cloned()
}

/// The context, which something is to be added to that the kernel does not know of.
fn context_to_use(id: usize) -> Outcome<Arc<Context>> {
    if let Some(known) = context(id) {
        return Ok(known);
    }
    // It was made in a way that is not seen here, or there is none.
    match kernel!(libc::SYS_io_submit, id, 0, 0) {
        0 => Ok(add_context(id, usize::MAX)),
        e => Err(Errno(-e as c_int)),
    }
}

fn add_context(id: usize, most: usize) -> Arc<Context> {
    let context = Context { state: Mutex::new(State { most, ..State::default() }), ..Context::default() };
    let new = Arc::new(context);
    CONTEXTS.lock().get_or_insert_default().entry(id).or_insert(new).clone()
}

fn setup(most: c_int, to: *mut usize) -> isize {
    let _quiet = Quiet::enter();
    let done = kernel!(libc::SYS_io_setup, most, to);
    if done == 0 && crate::world::world().is_some() {
        // SAFETY: the kernel has just written there.
        let id = unsafe { to.read() };
        CONTEXTS.lock().get_or_insert_default().remove(&id);
        // The kernel has some room more, too.
        add_context(id, (most as usize).max(64).saturating_mul(2));
    }
    done
}

fn destroy(id: usize) -> isize {
    let _quiet = Quiet::enter();
    let known = CONTEXTS.lock().as_mut().and_then(|contexts| contexts.remove(&id));
    if let Some(context) = known {
        lock(&context.state).ended = true;
        context.tell();
    }
    kernel!(libc::SYS_io_destroy, id)
}

/// Does what is asked for of a workspace's file.
fn perform(asked: &Asked) -> isize {
    let (fd, buf, at, errno) = (asked.fd, asked.buf as *mut c_void, asked.at, raw::errno());
    let one = libc::iovec { iov_base: buf, iov_len: asked.len as usize };
    let (pieces, count) = match asked.opcode {
        opcode::READ_PIECES | opcode::WRITE_PIECES => {
            (buf as *const libc::iovec, c_int::try_from(asked.len).unwrap_or(c_int::MAX))
        }
        _ => (&raw const one, 1),
    };
    // SAFETY: the program says so of its memory.
    let done = unsafe {
        match asked.opcode {
            opcode::READ | opcode::READ_PIECES => bytes::preadv2(fd, pieces, count, at, asked.rw_flags),
            opcode::WRITE | opcode::WRITE_PIECES => bytes::pwritev2(fd, pieces, count, at, asked.rw_flags),
            _ => syncs::fsync(fd) as isize,
        }
    };
    let answer = unanswered(done);
    raw::set_errno(errno);
    answer
}

/// Whether this is done here.
fn is_ours(asked: &Asked) -> bool {
    let known =
        [opcode::READ, opcode::WRITE, opcode::SYNC, opcode::SYNC_DATA, opcode::READ_PIECES, opcode::WRITE_PIECES];
    known.contains(&asked.opcode) && bytes::is_ours(asked.fd)
}

/// Does one of a workspace's.
fn submit_here(id: usize, place: *const Asked, asked: &Asked) -> Outcome<()> {
    let context = context_to_use(id)?;
    if asked.at < 0 && !matches!(asked.opcode, opcode::SYNC | opcode::SYNC_DATA) {
        return Err(Errno::EINVAL);
    }
    {
        let state = lock(&context.state);
        if state.done.len() + state.kernel >= state.most {
            return Err(Errno::EAGAIN);
        }
    }
    let answer = perform(asked);
    if answer == failed(Errno::EBADF) {
        return Err(Errno::EBADF);
    }
    context.adds(Event { data: asked.data, asked: place as u64, answer: answer as i64, second: 0 });
    if asked.flags & TELLS != 0 {
        let one = 1_u64;
        kernel!(libc::SYS_write, asked.eventfd, &raw const one, size_of::<u64>());
    }
    Ok(())
}

/// One of a program's list, and where the program has it.
fn nth(list: *const *const Asked, n: usize) -> Outcome<(*const Asked, Asked)> {
    let place = memory::given(list.wrapping_add(n))?;
    Ok((place, memory::given(place)?))
}

fn submit(id: usize, count: c_long, list: *const *const Asked) -> isize {
    let whole = || kernel!(libc::SYS_io_submit, id, count, list);
    let Ok(count @ 1..) = usize::try_from(count) else { return whole() };
    let quiet = Quiet::enter();
    let mut done = 0;
    while done < count {
        let so_far = |e: isize| if done > 0 { done as isize } else { e };
        if let Ok((place, asked)) = nth(list, done)
            && is_ours(&asked)
        {
            match submit_here(id, place, &asked) {
                Ok(()) => done += 1,
                Err(e) => return so_far(failed(e)),
            }
            continue;
        }
        // The kernel's, up to the next one of ours; it says what is wrong with those that cannot be read.
        let ours = |n: &usize| nth(list, *n).is_ok_and(|(_, asked)| is_ours(&asked));
        let end = (done + 1..count).find(ours).unwrap_or(count);
        let known = context(id);
        // Before it is done: who looks for it must know that there is something.
        let counts = |by: isize| {
            if let Some(context) = &known {
                let mut state = lock(&context.state);
                state.kernel = state.kernel.saturating_add_signed(by);
            }
        };
        let asked = (end - done) as isize;
        counts(asked);
        let went = quiet.without(|| kernel!(libc::SYS_io_submit, id, asked, list.wrapping_add(done)));
        counts(went.max(0) - asked);
        if let Some(context) = &known {
            context.tell();
        }
        if went < asked {
            return if went < 0 { so_far(went) } else { done as isize + went };
        }
        done = end;
    }
    done as isize
}

/// How `io_getevents` waits.
struct Waits {
    /// Until then, on the clock that only goes forward, in nanoseconds; none: for ever.
    until: Option<i64>,
    /// Signals while it waits (`struct __aio_sigset`); null: as ever.
    signals: *const c_void,
}

impl Waits {
    fn left(&self) -> Option<Duration> {
        self.until.map(|until| Duration::from_nanos(until.saturating_sub(seam::monotonic_ns()).max(0) as u64))
    }

    /// Asks the kernel for what it has done.
    fn ask(&self, id: usize, least: usize, room: usize, to: *mut Event, most: Duration) -> isize {
        let time = timespec(most);
        kernel!(PGETEVENTS, id, least, room, to, &raw const time, self.signals)
    }
}

fn get(id: usize, (least, room): (c_long, c_long), to: *mut Event, waits: &Waits) -> Option<isize> {
    let quiet = Quiet::enter();
    let context = context(id)?;
    let (Ok(least), Ok(room)) = (usize::try_from(least), usize::try_from(room)) else {
        return Some(failed(Errno::EINVAL));
    };
    if least > room {
        return Some(failed(Errno::EINVAL));
    }
    let mut got = 0;
    loop {
        let so_far = |got: usize, e: Errno| Some(if got > 0 { got as isize } else { failed(e) });
        let since = context.changes.load(Ordering::Acquire);
        let mut state = lock(&context.state);
        if state.ended {
            return so_far(got, Errno::EINVAL);
        }
        while got < room
            && let Some(event) = state.done.front()
        {
            if memory::give(to.wrapping_add(got), *event).is_err() {
                return so_far(got, Errno(libc::EFAULT));
            }
            state.done.pop_front();
            got += 1;
        }
        let in_kernel = state.kernel > 0;
        drop(state);
        let done = |got: usize| got >= least || got == room;
        if in_kernel || !waits.signals.is_null() {
            let left = waits.left().unwrap_or(SLICE).min(SLICE);
            // Once more than asked for: what is there is taken along.
            let wants = usize::from(!done(got));
            let left = if wants > 0 { left } else { Duration::ZERO };
            let more = quiet.without(|| waits.ask(id, wants, room - got, to.wrapping_add(got), left));
            if more < 0 {
                return so_far(got, Errno(-more as c_int));
            }
            got += more as usize;
            let mut state = lock(&context.state);
            state.kernel = state.kernel.saturating_sub(more as usize);
        }
        if done(got) || waits.left() == Some(Duration::ZERO) {
            return Some(got as isize);
        }
        if !in_kernel && waits.signals.is_null() {
            // What was told meanwhile ends the wait at once.
            if let Err(e) = quiet.without(|| context.wait(since, waits.left())) {
                return so_far(got, e);
            }
        }
    }
}

/// Until when a program waits: none is for ever.
fn until(timeout: *const libc::timespec) -> Outcome<Option<i64>> {
    if timeout.is_null() {
        return Ok(None);
    }
    let time = memory::given(timeout)?;
    if time.tv_sec < 0 || !(0..1_000_000_000).contains(&time.tv_nsec) {
        return Err(Errno::EINVAL);
    }
    let ns = time.tv_sec.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec);
    Ok(Some(seam::monotonic_ns().saturating_add(ns)))
}

fn get_events(id: usize, wanted: (c_long, c_long), to: *mut Event, timeout: *const libc::timespec) -> isize {
    let whole = || kernel!(libc::SYS_io_getevents, id, wanted.0, wanted.1, to, timeout);
    match until(timeout) {
        Ok(until) => get(id, wanted, to, &Waits { until, signals: std::ptr::null() }).unwrap_or_else(whole),
        Err(e) => failed(e),
    }
}

fn get_with_signals(
    id: usize,
    wanted: (c_long, c_long),
    to: *mut Event,
    timeout: *const libc::timespec,
    signals: *const c_void,
) -> isize {
    let whole = || kernel!(PGETEVENTS, id, wanted.0, wanted.1, to, timeout, signals);
    match until(timeout) {
        Ok(until) => get(id, wanted, to, &Waits { until, signals }).unwrap_or_else(whole),
        Err(e) => failed(e),
    }
}

/// These calls by their numbers; none: it is another one.
pub(super) fn by_number(number: c_long, arguments: [usize; 6]) -> Option<isize> {
    let [a, b, c, d, e, f] = arguments;
    let wanted = (b as c_long, c as c_long);
    Some(match number {
        libc::SYS_io_setup => setup(a as c_int, b as *mut usize),
        libc::SYS_io_destroy => destroy(a),
        libc::SYS_io_submit => submit(a, b as c_long, c as *const *const Asked),
        libc::SYS_io_getevents => get_events(a, wanted, d as *mut Event, e as *const libc::timespec),
        PGETEVENTS => get_with_signals(a, wanted, d as *mut Event, e as *const libc::timespec, f as *const c_void),
        _ => return None,
    })
}

/// Functions of `libaio`, which return numbers of errors negated.
macro_rules! of_libaio {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $kind:ty),* $(,)?) = $body:expr;)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Safety
            /// As the function of `libaio` that it stands for.
            #[unsafe(no_mangle)]
            pub(crate) unsafe extern "C" fn $name($($arg: $kind),*) -> c_int {
                let answer: isize = $body;
                answer as c_int
            }
        )*
    };
}

of_libaio! {
    /// `io_setup(2)`
    fn io_setup(most: c_int, to: *mut usize) = setup(most, to);
    /// `io_queue_init(3)`
    fn io_queue_init(most: c_int, to: *mut usize) = match most {
        1.. => match memory::give(to, 0) {
            Ok(()) => setup(most, to),
            Err(e) => failed(e),
        },
        _ => failed(Errno::EINVAL),
    };
    /// `io_destroy(2)`
    fn io_destroy(id: usize) = destroy(id);
    /// `io_queue_release(3)`
    fn io_queue_release(id: usize) = destroy(id);
    /// `io_submit(2)`
    fn io_submit(id: usize, count: c_long, list: *const *const Asked) = submit(id, count, list);
    /// `io_getevents(2)`
    fn io_getevents(id: usize, least: c_long, room: c_long, to: *mut Event, timeout: *const libc::timespec) =
        get_events(id, (least, room), to, timeout);
    /// `io_pgetevents(2)`, whose signals `libaio` takes as a set alone.
    fn io_pgetevents(
        id: usize, least: c_long, room: c_long, to: *mut Event, timeout: *const libc::timespec, set: *const c_void
    ) = {
        // As many signals as the kernel knows.
        let signals = (set, 8_usize);
        let pointer = if set.is_null() { std::ptr::null() } else { (&raw const signals).cast() };
        get_with_signals(id, (least, room), to, timeout, pointer)
    };
}

#[cfg(test)]
mod tests;
