//! The one place that names clock, randomness, threads and fork, so that a simulation can replace them.
#![allow(clippy::disallowed_methods)] // this module is what the bans point to

use std::{
    cell::{Cell, RefCell},
    sync::{
        Once,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use iov_types::Uuid;

use crate::copied::Copied;

/// How far behind others threads are that work in the background: they get one part of ten where processors are short.
const BACKGROUND_NICE: i32 = 10;

/// Nanoseconds since 1970, UTC.
pub fn now_ns() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as i64)
}

/// As [`now_ns`], a few milliseconds late at most, and cheap enough to be asked at each write.
pub fn coarse_now_ns() -> i64 {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a live timespec; CLOCK_REALTIME_COARSE exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME_COARSE, &mut ts) };
    ts.tv_sec * 1_000_000_000 + ts.tv_nsec
}

/// Nanoseconds on a clock that never goes back; the same for all processes of this boot.
pub fn monotonic_ns() -> i64 {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a live timespec; CLOCK_MONOTONIC exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut ts) };
    ts.tv_sec * 1_000_000_000 + ts.tv_nsec
}

static FORKS: AtomicU64 = AtomicU64::new(0);
static HANDLER: Once = Once::new();

static COPIED: Copied = Copied::new();

fn grows() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

extern "C" fn in_child() {
    // Another such function may have asked before.
    if !COPIED.see(grows) {
        grows();
    }
}

/// Grows by one in each copy of the process, as `fork` makes it, or `clone` without a word to anybody; a handle of another generation is the parent's (rule 7 of the header).
pub fn fork_generation() -> u64 {
    HANDLER.call_once(|| {
        COPIED.watch();
        // SAFETY: `in_child` only touches atomics, which is async-signal-safe.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
    COPIED.see(grows);
    FORKS.load(Ordering::Relaxed)
}

struct Pool {
    bytes: [u8; 512],
    used: usize,
    generation: u64,
}

thread_local! {
    static POOL: RefCell<Pool> = const { RefCell::new(Pool { bytes: [0; 512], used: 512, generation: 0 }) };
}

/// Random bytes of the operating system. Pooled per thread: a system call per id would show in batches of creates.
pub fn random_bytes(out: &mut [u8]) {
    fn fill(mut to: &mut [u8]) {
        while !to.is_empty() {
            match rustix::rand::getrandom(&mut *to, rustix::rand::GetRandomFlags::empty()) {
                Ok(n) => to = &mut to[n..],
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => panic!("the operating system gives no random bytes: {e}"),
            }
        }
    }
    let generation = fork_generation();
    POOL.with_borrow_mut(|pool| {
        if out.len() > pool.bytes.len() {
            return fill(out);
        }
        // After a fork the child must not repeat what the parent will hand out.
        if pool.generation != generation || pool.used + out.len() > pool.bytes.len() {
            fill(&mut pool.bytes);
            pool.used = 0;
            pool.generation = generation;
        }
        out.copy_from_slice(&pool.bytes[pool.used..][..out.len()]);
        pool.used += out.len();
    });
}

/// A new version 7 UUID.
pub fn new_uuid() -> Uuid {
    let mut random = [0; 10];
    random_bytes(&mut random);
    Uuid::v7((now_ns() / 1_000_000) as u64, random)
}

/// Starts a named thread with every signal blocked: a library must not run the program's handlers on its threads.
pub fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<std::thread::JoinHandle<()>> {
    // SAFETY: the two sets are live; blocking around the spawn makes the child inherit the full mask.
    let old = unsafe {
        let (mut all, mut old) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut old);
        old
    };
    let thread = unbound(|| std::thread::Builder::new().name(name.into()).stack_size(512 << 10).spawn(body));
    // SAFETY: `old` was filled above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &old, std::ptr::null_mut()) };
    thread
}

/// The same for a thread that has none of this process's descriptors. What is killed while one of its threads waits in the kernel keeps its descriptors open until that wait
/// ends: a thread that waits for what the process itself serves must not keep open what says that nobody serves it any more. Where the system does not let it be without
/// them (Linux before 5.9, filters of calls), it has them.
pub fn spawn_apart(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<std::thread::JoinHandle<()>> {
    spawn(name, move || {
        // SAFETY: it takes numbers only; from now on this thread has a table of its own, which is empty, and nothing that it runs uses what was in the other one.
        unsafe { libc::syscall(libc::SYS_close_range, 0, libc::c_uint::MAX, libc::CLOSE_RANGE_UNSHARE) };
        body();
    })
}

/// Lets signals come to the calling thread and those that it starts, whatever it has inherited: who was started by a thread of [`spawn`] would hear of none.
pub fn let_signals_in() {
    // SAFETY: the set is live, and emptied before it is used.
    unsafe {
        let mut none = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::pthread_sigmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
    }
}

/// Names the calling thread, and, where that is the first one, the process, as `ps` and `pgrep` show it: by 15 bytes at most.
pub fn is_called(name: &std::ffi::CStr) {
    // SAFETY: the name ends with a zero, and is read before the call returns.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

thread_local! {
    /// Where a thread could run before it was bound.
    static BEFORE: Cell<Option<libc::cpu_set_t>> = const { Cell::new(None) };
}

fn run_on(processors: &libc::cpu_set_t) -> bool {
    // SAFETY: the set is live, and its size is told; 0 is the calling thread.
    unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), processors) == 0 }
}

/// Where this thread may run; `None`: the machine has more processors than there is room for.
fn runs_on() -> Option<libc::cpu_set_t> {
    // SAFETY: a set of zeros is an empty one, which the kernel fills; its size is told.
    unsafe {
        let mut set = std::mem::zeroed();
        (libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) == 0).then_some(set)
    }
}

/// Binds this thread to a processor; what it starts is not. `false`: that one is not this process's to use.
pub fn bind(processor: usize) -> bool {
    if processor >= libc::CPU_SETSIZE as usize {
        return false;
    }
    let Some(before) = runs_on() else { return false };
    // SAFETY: a set of zeros is an empty one, and it gets a number that it has room for.
    let one = unsafe {
        let mut one = std::mem::zeroed();
        libc::CPU_SET(processor, &mut one);
        one
    };
    let bound = run_on(&one);
    if bound && BEFORE.get().is_none() {
        BEFORE.set(Some(before));
    }
    bound
}

/// Does something with this thread running elsewhere for that time.
fn run_meanwhile<T>(on: &libc::cpu_set_t, start: impl FnOnce() -> T) -> T {
    let now = runs_on();
    run_on(on);
    let started = start();
    if let Some(now) = now {
        run_on(&now);
    }
    started
}

/// Does something that starts threads or processes, which inherit where this thread may run: where it could before it was bound.
pub fn unbound<T>(start: impl FnOnce() -> T) -> T {
    match BEFORE.get() {
        Some(before) => run_meanwhile(&before, start),
        None => start(),
    }
}

/// Does something with this thread running wherever the system lets it, whatever a launcher or the program has bound it to: it starts a process that serves others too.
pub fn for_others<T>(start: impl FnOnce() -> T) -> T {
    // SAFETY: a set of zeros is an empty one, and it gets numbers that it has room for.
    let all = unsafe {
        let mut all = std::mem::zeroed();
        (0..libc::CPU_SETSIZE as usize).for_each(|processor| libc::CPU_SET(processor, &mut all));
        all
    };
    run_meanwhile(&all, start)
}

/// Has this thread give way to others, for processors and, as the kernel derives the one from the other, for disks.
pub fn in_background() {
    // A thread that cannot be told so does its work all the same.
    // SAFETY: no memory is involved; on Linux it is of the calling thread alone.
    let _ = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, BACKGROUND_NICE) };
}

/// Sleeps.
pub fn sleep(ns: u64) {
    std::thread::sleep(Duration::from_nanos(ns));
}
