//! Children: they have a world of their own, by whichever way they are made.

use std::{
    ffi::c_int,
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicI32, Ordering},
    },
};

use super::{aio, place, process::publish};
use crate::{
    files::{Files, Held},
    heap, memory,
    raw::kernel,
    record::Record,
    signals::Quiet,
    world::{COPIED, World, leave_world, lock, set_world, world},
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

impl Forking {
    /// In a copy that was made without a word: what is as it was there, if nobody was about to change any of it, who is not here.
    fn found(world: &'static World) -> Option<Forking> {
        if !heap::is_free() {
            return None;
        }
        Some(Forking {
            held: world.files.hold_soon()?,
            contexts: aio::contexts_now()?,
            token: world.files.token_now()?,
            directory: place::to_pass_now(world).ok()?,
            pipes: PIPES.try_lock().ok()?,
        })
    }
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
    COPIED.is_new();
    let forking = lock(&FORKING.0).take();
    // Else there is no world, or what others have done here was seen to before.
    if forking.is_some() {
        become_child(forking);
    }
    no_longer_of_vfork();
    Quiet::leave();
}

/// In a child of `vfork`: what its parent waits for the end of.
static OF_VFORK: AtomicI32 = AtomicI32::new(-1);

/// This descriptor of the library's closes when the process runs another program, or ends; and its own children do not have it.
pub(super) fn closes_with_program(fd: c_int) {
    ioverbs::kept::keep(fd);
    OF_VFORK.store(fd, Ordering::Relaxed);
}

fn no_longer_of_vfork() {
    let fd = OF_VFORK.swap(-1, Ordering::Relaxed);
    if fd >= 0 && ioverbs::kept::is_kept(fd) {
        Pipe::close(fd);
    }
}

/// This process is a copy that was made by a call which tells nobody who watches forks, or has not told us yet: it has a world of its own from now on. Where another
/// thread of its parent was in the middle of something it does without, as far as it does not run another program.
pub(crate) fn found_as_copy() {
    let _quiet = Quiet::enter();
    let errno = crate::raw::errno();
    let (forking, world) = (FORKING.0.try_lock().ok().and_then(|mut forking| forking.take()), world());
    become_child(forking.or_else(|| Forking::found(world?)));
    crate::raw::set_errno(errno);
}

fn become_child(forking: Option<Forking>) {
    // Where there is no memory for what comes now, the program ends, and says so by calls that would wait for the locks of its parent's.
    let Some(world) = leave_world() else { return };
    let Some(Forking { held, mut contexts, token, directory, mut pipes }) = forking else { return };
    // By which it says why it does not run what it was made for.
    let pipe = pipes.drain(..).find(|(thread, _)| *thread == this_thread()).map(|(_, pipe)| pipe);
    drop(pipes);
    // They are the parent's alone.
    *contexts = None;
    drop(contexts);
    let files = Files::of_child(&held, token);
    // The lock is that of the parent's world, which nobody uses here any more.
    std::mem::forget(held);
    if !shares_descriptors() {
        ioverbs::kept::limit_of_child();
        // So are its connections: the parent's end when it does, and not when this process does.
        for fd in ioverbs::kept::kept() {
            ioverbs::kept::let_go(fd);
            if !pipe.is_some_and(|pipe| pipe.contains(&fd)) {
                kernel!(libc::SYS_close, fd);
            }
        }
    }
    let umask = world.umask.load(Ordering::Relaxed);
    let child = World::new(world.settings.clone(), world.library.clone(), files, umask);
    child.comes_from(world);
    if let Some(record) = directory {
        *child.directory.write().unwrap_or_else(std::sync::PoisonError::into_inner) = place::passed(record);
    }
    set_world(child);
}

/// Whether what this process closes its parent does not have any more either (`CLONE_FILES`).
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

/// How a call of the kernel makes another process.
pub(super) enum Makes {
    /// As `fork` does, and nothing else.
    Fork,
    /// A copy of this one, which goes on behind the call.
    Copy,
}

/// Whether `clone` makes a copy of this process, and not a thread, or what shares its memory.
pub(super) fn is_copy(flags: u64) -> bool {
    flags & libc::CLONE_VM as u64 == 0
}

/// Which of them a call does; none: neither, as it makes a thread, or what shares the memory of this process, or begins on a stack of its own.
pub(super) fn makes(number: libc::c_long, [a, b, ..]: &[usize; 6]) -> Option<Makes> {
    /// The words of `struct clone_args` that matter here: flags, and where the stack is.
    const FLAGS: usize = 0;
    const STACK: usize = 5;
    match number {
        libc::SYS_clone if *b == 0 && *a == libc::SIGCHLD as usize => Some(Makes::Fork),
        libc::SYS_clone => (*b == 0 && is_copy(*a as u64)).then_some(Makes::Copy),
        libc::SYS_clone3 if *b > STACK * size_of::<u64>() => {
            let word = |n: usize| memory::given((*a as *const u64).wrapping_add(n)).ok();
            (is_copy(word(FLAGS)?) && word(STACK)? == 0).then_some(Makes::Copy)
        }
        #[cfg(target_arch = "x86_64")]
        libc::SYS_fork => Some(Makes::Fork),
        _ => None,
    }
}

/// Makes a copy of this process by a call of the kernel, which answers in both.
pub(super) fn copied(number: libc::c_long, arguments: [usize; 6]) -> isize {
    before_fork();
    heap::hold();
    // SAFETY: the program gives them so, and goes on in a copy of this process.
    let made = unsafe { crate::raw::syscall(number, arguments) };
    heap::let_go();
    if made == 0 {
        in_child()
    } else {
        in_parent()
    }
    made
}

/// `_Fork(3)`
#[unsafe(no_mangle)]
pub(crate) extern "C" fn _Fork() -> libc::pid_t {
    crate::raw::answer(forked()) as libc::pid_t
}
