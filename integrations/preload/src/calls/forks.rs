//! Children: they have a world of their own, by whichever way they are made.

use std::{
    ffi::c_int,
    os::fd::{FromRawFd, IntoRawFd, OwnedFd},
    sync::{
        MutexGuard,
        atomic::{AtomicI32, Ordering},
    },
};

use super::{aio, place, process::publish};
use crate::{
    files::{Files, Held},
    heap, memory,
    raw::{kernel, this_thread},
    record::Record,
    renewed::Renewed,
    signals::Quiet,
    world::{COPIED, Directory, World, leave_world, set_world, world},
};

/// What a fork needs on both sides.
struct Forking {
    /// Who forks.
    thread: usize,
    held: Held<'static>,
    contexts: aio::Contexts,
    token: Vec<u8>,
    directory: Option<Record>,
    /// Nobody has them half changed in the child.
    pipes: MutexGuard<'static, Pipes>,
    /// What the child closes its parent has no more either (`CLONE_FILES`).
    shares_descriptors: bool,
}

type Pipes = Vec<(usize, [c_int; 2])>;

/// The pipes of those who make a child to run something, by their thread: other children must not keep them, as the end of it is waited for.
static PIPES: Renewed<Pipes> = Renewed::new(Vec::new());

/// A pipe of the library's that goes along to the next child of this thread alone.
pub(super) struct Pipe(pub(super) [c_int; 2]);

impl Pipe {
    pub(super) fn new() -> Result<Pipe, c_int> {
        let _quiet = Quiet::enter();
        match Pipe::made() {
            Err(libc::EMFILE) if super::descriptors::gives_up() => Pipe::made(),
            made => made,
        }
    }

    fn made() -> Result<Pipe, c_int> {
        // Who forks has all that are there, and closes them in the child.
        let mut pipes = PIPES.lock();
        let mut ends = [-1_i32; 2];
        let made = kernel!(libc::SYS_pipe2, ends.as_mut_ptr(), libc::O_CLOEXEC);
        if made < 0 {
            return Err(-made as c_int);
        }
        // Not where the program puts its own (`dup2`).
        // SAFETY: they have just been made, and are nobody else's.
        let ends = ends.map(|fd| ioverbs::kept::set_aside(unsafe { OwnedFd::from_raw_fd(fd) }).into_raw_fd());
        ends.into_iter().for_each(ioverbs::kept::keep);
        pipes.push((this_thread(), ends));
        Ok(Pipe(ends))
    }

    /// The child has it, or there is none: others may make theirs.
    pub(super) fn went_along(&self) {
        PIPES.lock().retain(|(_, ends)| *ends != self.0);
    }

    pub(super) fn close(fd: c_int) {
        ioverbs::kept::let_go(fd);
        kernel!(libc::SYS_close, fd);
    }
}

/// Only the thread that forks has it, and the one that its child begins with.
#[derive(Default)]
struct OfFork(Option<Forking>);

// SAFETY: it is filled and emptied by the one thread that forks; the table of files is held from before the one until behind the other.
unsafe impl Send for OfFork {}

static FORKING: Renewed<OfFork> = Renewed::new(OfFork(None));

/// That of this thread. What another one has begun, of which this process is a copy by another call, stays where it is.
fn forking() -> Option<Forking> {
    FORKING.lock().0.take_if(|forking| forking.thread == this_thread())
}

extern "C" fn before_fork() {
    // Until both have what they need.
    Quiet::begin();
    let Some(world) = world() else { return };
    publish(world);
    let directory = place::to_pass(world);
    let token = world.files.token();
    let (pipes, held, contexts) = (PIPES.lock(), world.files.hold(), aio::contexts());
    let thread = this_thread();
    FORKING.lock().0 = Some(Forking { thread, held, contexts, token, directory, pipes, shares_descriptors: false });
}

extern "C" fn in_parent() {
    drop(forking());
    Quiet::leave();
}

extern "C" fn in_child() {
    // Unless what others have done in it has been seen to; it may be that copies are not found here.
    if !COPIED.see(become_copy) {
        become_copy();
    }
    no_longer_of_vfork();
    Quiet::leave();
}

/// In a child of `vfork`: what its parent waits for the end of.
static OF_VFORK: AtomicI32 = AtomicI32::new(-1);

fn no_longer_of_vfork() {
    let fd = OF_VFORK.swap(-1, Ordering::Relaxed);
    if fd >= 0 && ioverbs::kept::is_kept(fd) {
        Pipe::close(fd);
    }
}

/// This process is a copy of another one, by `fork` or by a call that tells nobody who watches forks: it has a world of its own from now on, and closes what is its parent's.
pub(crate) fn become_copy() {
    let _quiet = Quiet::enter();
    let errno = crate::raw::errno();
    heap::let_go();
    heap::begin_anew_if_held();
    FORKING.renew_if_held();
    let forking = forking();
    // Where there is no memory for what comes now, the program ends, and says so by calls that would wait for the locks of its parent's.
    if let Some(parent) = leave_world() {
        let child = match forking {
            Some(forking) => of_fork(forking),
            None => found(parent),
        };
        become_child(parent, child);
    }
    crate::raw::set_errno(errno);
}

/// What a child begins with.
struct Child {
    files: Files,
    directory: Directory,
    /// By which it says why it does not run what it was made for.
    pipe: Option<[c_int; 2]>,
    shares_descriptors: bool,
}

fn of_fork(forking: Forking) -> Child {
    let Forking { held, mut contexts, token, directory, mut pipes, shares_descriptors, .. } = forking;
    // The last one, if a handler of a signal forks in between.
    let pipe = pipes.drain(..).rfind(|(thread, _)| *thread == this_thread()).map(|(_, pipe)| pipe);
    drop(pipes);
    // They are the parent's alone.
    *contexts = None;
    drop(contexts);
    let files = Files::of_child(&held, token);
    // The lock is that of the parent's world, which nobody uses here any more.
    std::mem::forget(held);
    Child { files, directory: directory.map_or(Directory::Outside, place::passed), pipe, shares_descriptors }
}

/// The same of a copy that was made without a word: what is as it was there. Other threads may have been in the middle of something, who are not here.
fn found(parent: &'static World) -> Child {
    PIPES.renew_if_held();
    PIPES.lock().clear();
    aio::forget_contexts();
    let files = match parent.files.hold_soon() {
        Some(held) => {
            let files = Files::of_child(&held, parent.files.token_now().unwrap_or_default());
            std::mem::forget(held);
            files
        }
        // What the kernel can tell, as a new program finds it.
        None => Files::inherited(),
    };
    Child { files, directory: place::of_copy(parent), pipe: None, shares_descriptors: shares_descriptors() }
}

fn become_child(parent: &World, child: Child) {
    let Child { files, directory, pipe, shares_descriptors } = child;
    if !shares_descriptors {
        ioverbs::kept::limit_of_child();
        // So are its connections: the parent's end when it does, and not when this process does.
        for fd in ioverbs::kept::kept() {
            ioverbs::kept::let_go(fd);
            if !pipe.is_some_and(|pipe| pipe.contains(&fd)) {
                kernel!(libc::SYS_close, fd);
            }
        }
    }
    let umask = parent.umask.load(Ordering::Relaxed);
    let child = World::new(parent.settings.clone(), parent.library.clone(), files, umask);
    child.comes_from(parent);
    *child.directory.write().unwrap_or_else(std::sync::PoisonError::into_inner) = directory;
    set_world(child);
}

/// Whether what this process closes its parent does not have any more either (`CLONE_FILES`), as far as the kernel tells.
fn shares_descriptors() -> bool {
    const KCMP_FILES: c_int = 2;
    let parent = kernel!(libc::SYS_getppid);
    parent > 0 && kernel!(libc::SYS_kcmp, crate::raw::pid(), parent, KCMP_FILES, 0, 0) == 0
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

/// Whether `clone` makes a copy of this process, and not a thread, or what shares its memory.
pub(super) fn is_copy(flags: u64) -> bool {
    flags & libc::CLONE_VM as u64 == 0
}

/// The words of `struct clone_args` that matter here: flags, and where the stack is.
const FLAGS: usize = 0;
const STACK: usize = 5;
/// As many words has it now, and more than anybody needs.
const WORDS: usize = 16;

/// Makes another process as a call of the kernel does; none: the call makes a thread, or what shares the memory of this process, or begins on a stack of its own.
pub(super) fn made(number: libc::c_long, arguments: [usize; 6]) -> Option<isize> {
    let [a, b, c, d, e, _] = arguments;
    match number {
        libc::SYS_clone if b == 0 && a == libc::SIGCHLD as usize => Some(forked()),
        libc::SYS_clone if b == 0 && is_copy(a as u64) => {
            Some(copied(a as u64, |flags| kernel!(libc::SYS_clone, flags, 0, c, d, e)))
        }
        libc::SYS_clone3 if b > STACK * size_of::<u64>() && b <= WORDS * size_of::<u64>() => {
            let mut how = [0_u64; WORDS];
            let words = b / size_of::<u64>();
            for (n, word) in how.iter_mut().enumerate().take(words) {
                *word = memory::given((a as *const u64).wrapping_add(n)).ok()?;
            }
            let flags = how[FLAGS];
            let is_copy = is_copy(flags) && how[STACK] == 0;
            let make = |flags: u64| {
                how[FLAGS] = flags;
                kernel!(libc::SYS_clone3, how.as_ptr(), words * size_of::<u64>())
            };
            is_copy.then(|| copied(flags, make))
        }
        #[cfg(target_arch = "x86_64")]
        libc::SYS_fork => Some(forked()),
        _ => None,
    }
}

/// Makes a copy of this process by a call of the kernel with these flags, which answers in both.
pub(super) fn copied(flags: u64, mut make: impl FnMut(u64) -> isize) -> isize {
    let has = |flag: c_int| flags & flag as u64 != 0;
    let mut copy = || {
        before_fork();
        if let Some(forking) = &mut FORKING.lock().0 {
            forking.shares_descriptors = has(libc::CLONE_FILES);
        }
        heap::hold();
        // The kernel would have the parent wait with all that is held.
        let made = make(flags & !(libc::CLONE_VFORK as u64));
        heap::let_go();
        match made {
            0 => in_child(),
            _ => in_parent(),
        }
        made
    };
    match has(libc::CLONE_VFORK) && !has(libc::CLONE_FILES) {
        true => until_it_runs(copy),
        false => copy(),
    }
}

/// Makes a process, and waits in its parent until it runs a program, or ends. As a call of the kernel is answered.
pub(super) fn until_it_runs(make: impl FnOnce() -> isize) -> isize {
    // A handler of a signal may fork.
    let quiet = Quiet::enter();
    // Where there is no number left for it, the parent does not wait.
    let pipe = Pipe::new().ok();
    let made = make();
    let Some(pipe) = pipe else { return made };
    pipe.went_along();
    drop(quiet);
    let [ended, runs] = pipe.0;
    match made {
        0 => {
            Pipe::close(ended);
            // It closes with the process's program, and its own children do not have it.
            ioverbs::kept::keep(runs);
            OF_VFORK.store(runs, Ordering::Relaxed);
        }
        1.. => {
            Pipe::close(runs);
            let mut none = 0_u8;
            while kernel!(libc::SYS_read, ended, &raw mut none, 1) == -(libc::EINTR as isize) {}
            Pipe::close(ended);
        }
        _ => [ended, runs].into_iter().for_each(Pipe::close),
    }
    made
}

/// `_Fork(3)`
#[unsafe(no_mangle)]
pub(crate) extern "C" fn _Fork() -> libc::pid_t {
    crate::raw::answer(forked()) as libc::pid_t
}
