//! Children: they have a world of their own, by whichever way they are made.

use std::{
    ffi::c_int,
    sync::{Mutex, MutexGuard},
};

use super::{aio, place, process::publish};
use crate::{
    files::{Files, Held},
    raw::kernel,
    record::Record,
    signals::Quiet,
    world::{World, leave_world, lock, set_world, world},
};

/// What a fork needs on both sides.
struct Forking {
    held: Held<'static>,
    contexts: aio::Contexts,
    token: Vec<u8>,
    directory: Option<Record>,
    /// Nobody has them half changed in the child.
    pipes: MutexGuard<'static, Pipes>,
}

type Pipes = Vec<(usize, [c_int; 2])>;

/// The pipes of those who make a child to run something, by their thread: other children must not keep them, as the end of it is waited for.
static PIPES: Mutex<Pipes> = Mutex::new(Vec::new());

/// Which thread this is, also in its child.
fn this_thread() -> usize {
    // SAFETY: it only tells a place.
    unsafe { libc::__errno_location() as usize }
}

/// A pipe of the library's that goes along to the next child of this thread alone.
pub(super) struct Pipe(pub(super) [c_int; 2]);

impl Pipe {
    pub(super) fn new() -> Result<Pipe, c_int> {
        let mut ends = [-1_i32; 2];
        let made = kernel!(libc::SYS_pipe2, ends.as_mut_ptr(), libc::O_CLOEXEC);
        if made < 0 {
            return Err(-made as c_int);
        }
        ends.into_iter().for_each(ioverbs::kept::keep);
        let _quiet = Quiet::enter();
        lock(&PIPES).push((this_thread(), ends));
        Ok(Pipe(ends))
    }

    /// The child has it, or there is none: others may make theirs.
    pub(super) fn went_along(&self) {
        lock(&PIPES).retain(|(thread, _)| *thread != this_thread());
    }

    pub(super) fn close(fd: c_int) {
        ioverbs::kept::let_go(fd);
        kernel!(libc::SYS_close, fd);
    }
}

/// Only the thread that forks has it, and the one that its child begins with.
struct OfFork(Mutex<Option<Forking>>);

// SAFETY: it is filled and emptied by the one thread that forks; the table of files is held from before the one until behind the other.
unsafe impl Sync for OfFork {}

static FORKING: OfFork = OfFork(Mutex::new(None));

extern "C" fn before_fork() {
    // Until both have what they need.
    Quiet::begin();
    let Some(world) = world() else { return };
    publish(world);
    let directory = place::to_pass(world);
    let token = world.files.token();
    let (pipes, held) = (lock(&PIPES), world.files.hold());
    *lock(&FORKING.0) = Some(Forking { held, contexts: aio::contexts(), token, directory, pipes });
}

extern "C" fn in_parent() {
    drop(lock(&FORKING.0).take());
    Quiet::leave();
}

extern "C" fn in_child() {
    become_child();
    Quiet::leave();
}

fn become_child() {
    let (Some(world), Some(forking)) = (world(), lock(&FORKING.0).take()) else { return };
    // Where there is no memory for what comes now, the program ends, and says so by calls that would wait for the locks of its parent's.
    leave_world();
    let Forking { held, mut contexts, token, directory, mut pipes } = forking;
    // By which it says why it does not run what it was made for.
    let pipe = pipes.drain(..).find(|(thread, _)| *thread == this_thread()).map(|(_, pipe)| pipe);
    drop(pipes);
    // They are the parent's alone.
    *contexts = None;
    drop(contexts);
    let files = Files::of_child(&held, token);
    // The lock is that of the parent's world, which nobody uses here any more.
    std::mem::forget(held);
    ioverbs::kept::limit_of_child();
    // So are its connections: the parent's end when it does, and not when this process does.
    for fd in ioverbs::kept::kept() {
        ioverbs::kept::let_go(fd);
        if !pipe.is_some_and(|pipe| pipe.contains(&fd)) {
            kernel!(libc::SYS_close, fd);
        }
    }
    let umask = world.umask.load(std::sync::atomic::Ordering::Relaxed);
    let child = World::new(world.settings.clone(), world.library.clone(), files, umask);
    child.comes_from(world);
    if let Some(record) = directory {
        *child.directory.write().unwrap_or_else(std::sync::PoisonError::into_inner) = place::passed(record);
    }
    set_world(child);
}

/// From now on children of `fork` have a world of their own.
pub(crate) fn watch_forks() {
    // SAFETY: the functions stay.
    unsafe { libc::pthread_atfork(Some(before_fork), Some(in_parent), Some(in_child)) };
}

/// Makes a child as `fork` does, which tells those who watch forks: the kernel's call does not, and who has locks in the middle of something would have
/// them for ever in the child. As a call of the kernel is answered.
pub(super) fn forked() -> isize {
    // SAFETY: whoever calls it wanted a copy of the process, and goes on as it does behind `fork`.
    match unsafe { libc::fork() } {
        -1 => -(crate::raw::errno() as isize),
        child => child as isize,
    }
}

/// Whether a call of the kernel makes nothing else than `fork` does.
pub(super) fn is_fork(number: libc::c_long, flags: usize, stack: usize) -> bool {
    match number {
        libc::SYS_clone => stack == 0 && flags == libc::SIGCHLD as usize,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_fork => true,
        _ => false,
    }
}

/// `_Fork(3)`
#[unsafe(no_mangle)]
pub(crate) extern "C" fn _Fork() -> libc::pid_t {
    crate::raw::answer(forked()) as libc::pid_t
}
