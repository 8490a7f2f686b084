//! Children: they have a world of their own, by whichever way they are made.

use std::sync::Mutex;

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
    *lock(&FORKING.0) = Some(Forking { held: world.files.hold(), contexts: aio::contexts(), token, directory });
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
    let Forking { held, mut contexts, token, directory } = forking;
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
        kernel!(libc::SYS_close, fd);
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
