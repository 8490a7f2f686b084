//! The handlers of a program, which do not run while this library does something for it: a handler may call what the library has locked just then, or leave with
//! `siglongjmp` what it was doing. The kernel lets a program call `write` and others at any time, and so does this: a signal that comes meanwhile is put back, and
//! comes again as the thread leaves the library.
//!
//! In the kernel's table [`on_signal`] stands for each handler; programs that ask are told their own.

use std::{
    ffi::{c_int, c_void},
    sync::atomic::{AtomicUsize, Ordering},
};

use super::{
    Action, SIZE, bit,
    state::{held, inside, put_back, set_held, set_inside, set_put_back},
};
use crate::raw::{answer, failed, kernel};

/// Signals there are, and one more, as they are counted from one.
const SIGNALS: usize = 65;
/// What the C library needs for itself.
const ITS_OWN: [c_int; 2] = [32, 33];

/// What a program wants done.
struct Wanted {
    handler: AtomicUsize,
    flags: AtomicUsize,
}

static WANTED: [Wanted; SIGNALS] =
    [const { Wanted { handler: AtomicUsize::new(libc::SIG_DFL), flags: AtomicUsize::new(0) } }; SIGNALS];

/// No handler of the program runs on this thread for as long as this is kept.
pub(crate) struct Quiet(());

impl Quiet {
    pub(crate) fn enter() -> Quiet {
        set_held(held() + 1);
        Quiet(())
    }

    /// Does something during which handlers may run, unless what has called here does not allow it: the kernel may have the thread wait there.
    pub(crate) fn without<T>(&self, work: impl FnOnce() -> T) -> T {
        if held() > 1 { work() } else { let_run(work) }
    }

    /// As [`Quiet::enter`], to be ended by [`Quiet::leave`].
    pub(crate) fn begin() {
        std::mem::forget(Quiet::enter());
    }

    /// Ends what [`Quiet::begin`] has begun.
    pub(crate) fn leave() {
        drop(Quiet(()));
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        set_held(held().saturating_sub(1));
        if held() == 0 {
            let_through();
        }
    }
}

/// What the thread was doing, and does again when this ends. A handler that leaves with `siglongjmp` leaves nothing behind of it.
struct Aside {
    held: u32,
    inside: u32,
}

impl Aside {
    fn put() -> Aside {
        let aside = Aside { held: held(), inside: inside() };
        set_inside(0);
        set_held(0);
        aside
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        set_held(self.held);
        set_inside(self.inside);
    }
}

/// Does something during which handlers run whatever has called it.
pub(crate) fn let_run<T>(work: impl FnOnce() -> T) -> T {
    let _aside = Aside::put();
    let_through();
    work()
}

/// Handlers run during this, by which the kernel is asked to wait with signals as they were before.
pub(super) fn while_waiting(wait: impl FnOnce() -> isize) -> isize {
    let _aside = Aside::put();
    wait()
}

/// Those of a mask that only wait for the thread to leave the library: somebody else sees to it from now on that they come.
pub(super) fn take_put_back() -> u64 {
    set_put_back(0)
}

/// What was put back comes now.
fn let_through() {
    if put_back() != 0 {
        let set = set_put_back(0);
        kernel!(libc::SYS_rt_sigprocmask, libc::SIG_UNBLOCK, &raw const set, 0, SIZE);
    }
}

/// Whether something that the thread itself has done has led to a signal: it would do it again.
fn is_own_doing(signal: c_int, info: &libc::siginfo_t) -> bool {
    let such = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP, libc::SIGSYS];
    // `abort` does not wait for it.
    (such.contains(&signal) && info.si_code > 0) || (signal == libc::SIGABRT && info.si_code == libc::SI_TKILL)
}

/// Whether any thread of the process may get a signal.
fn is_of_process(signal: c_int, info: &libc::siginfo_t) -> bool {
    [libc::SI_USER, libc::SI_KERNEL].contains(&info.si_code) || (signal == libc::SIGCHLD && info.si_code > 0)
}

/// Has a signal come again when it is let through; whether it will.
///
/// # Safety
/// All of it is as the kernel has told the handler.
unsafe fn put_off(signal: c_int, info: *mut libc::siginfo_t, context: *mut libc::ucontext_t) -> bool {
    let set = bit(signal);
    // Also where the handler does not block its own signal.
    kernel!(libc::SYS_rt_sigprocmask, libc::SIG_BLOCK, &raw const set, 0, SIZE);
    let pid = kernel!(libc::SYS_getpid);
    // SAFETY: the kernel tells of the signal by it.
    let to_process = match is_of_process(signal, unsafe { &*info }) {
        true => kernel!(libc::SYS_rt_sigqueueinfo, pid, signal, info),
        false => -1,
    };
    // What others have sent only the first thread may send to the process, and each to itself.
    let sent = match to_process {
        0 => 0,
        _ => kernel!(libc::SYS_rt_tgsigqueueinfo, pid, kernel!(libc::SYS_gettid), signal, info),
    };
    if sent != 0 {
        // SAFETY: as below.
        let before = unsafe { (&raw const (*context).uc_sigmask).cast::<u64>().read() };
        if before & set == 0 && WANTED[signal as usize].flags.load(Ordering::Relaxed) & libc::SA_NODEFER as usize != 0 {
            kernel!(libc::SYS_rt_sigprocmask, libc::SIG_UNBLOCK, &raw const set, 0, SIZE);
        }
        return false;
    }
    // SAFETY: the kernel has put it there, and takes it back behind the handler; its first eight bytes are all of the kernel's mask.
    unsafe {
        let mask = (&raw mut (*context).uc_sigmask).cast::<u64>();
        mask.write(mask.read() | set);
    }
    set_put_back(put_back() | set);
    true
}

/// What the kernel calls for each signal that has a handler.
///
/// # Safety
/// The kernel calls it.
unsafe extern "C" fn on_signal(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let Some(wanted) = WANTED.get(signal as usize) else { return };
    // SAFETY: the kernel tells of the signal by these.
    unsafe {
        if held() > 0 && !is_own_doing(signal, &*info) && put_off(signal, info, context.cast()) {
            return;
        }
    }
    let handler = wanted.handler.load(Ordering::Acquire);
    if wanted.flags.load(Ordering::Relaxed) & libc::SA_RESETHAND as usize != 0 {
        let default: Action = [0; 4];
        kernel!(libc::SYS_rt_sigaction, signal, &raw const default, 0, SIZE);
    }
    // It may have none any more, since just now.
    if ![libc::SIG_DFL, libc::SIG_IGN].contains(&handler) {
        // SAFETY: the program has said that it is one; those that want the signal alone find it where they look for it.
        unsafe {
            let handler: unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = std::mem::transmute(handler);
            handler(signal, info, context);
        }
    }
}

/// Where handlers return to: the kernel wants to be called then. Those that unwind stacks know it by these bytes.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C" fn behind() {
    // The first one is before it, as unwinders look there.
    std::arch::naked_asm!(".byte 0x90, 0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05")
}

/// Where handlers return to, as the kernel wants to be told.
fn restorer() -> (u64, u64) {
    #[cfg(target_arch = "x86_64")]
    return (0x0400_0000, behind as *const () as u64 + 1);
    #[cfg(not(target_arch = "x86_64"))]
    (0, 0)
}

/// The kernel's form of what a program wants done, and the program's own.
fn to_kernel(new: &libc::sigaction) -> Action {
    // SAFETY: the first eight bytes are all of the kernel's mask.
    let mask = unsafe { (&raw const new.sa_mask).cast::<u64>().read() };
    if [libc::SIG_DFL, libc::SIG_IGN].contains(&new.sa_sigaction) {
        return [new.sa_sigaction as u64, new.sa_flags as u32 as u64, 0, mask];
    }
    let (has, place) = restorer();
    // It is told all that there is of the signal, and ends itself where it is to be called once.
    let flags = (new.sa_flags & !libc::SA_RESETHAND) | libc::SA_SIGINFO;
    [on_signal as *const () as u64, flags as u32 as u64 | has, place, mask]
}

fn from_kernel(old: &Action, own: (usize, usize)) -> libc::sigaction {
    let is_own = old[0] == on_signal as *const () as u64;
    let (handler, flags) = if is_own { own } else { (old[0] as usize, old[1] as usize & !(restorer().0 as usize)) };
    // SAFETY: all of it may be zero; the mask is larger than the kernel's.
    unsafe {
        let mut told: libc::sigaction = std::mem::zeroed();
        told.sa_sigaction = handler;
        told.sa_flags = flags as c_int;
        (&raw mut told.sa_mask).cast::<u64>().write(old[3]);
        told
    }
}

/// # Safety
/// As of [`sigaction`].
unsafe fn change(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> isize {
    let Some(wanted) = usize::try_from(signal).ok().filter(|n| *n > 0).and_then(|n| WANTED.get(n)) else {
        return failed(iov_posix::Errno::EINVAL);
    };
    if ITS_OWN.contains(&signal) {
        return failed(iov_posix::Errno::EINVAL);
    }
    let own = (wanted.handler.load(Ordering::Acquire), wanted.flags.load(Ordering::Acquire));
    let mut before: Action = [0; 4];
    // SAFETY: the program says so.
    let asked = unsafe { new.as_ref() }.map(|new| (to_kernel(new), new.sa_sigaction, new.sa_flags as u32 as usize));
    // It has to be there when the first signal comes.
    if let Some((action, handler, flags)) = &asked
        && action[0] == on_signal as *const () as u64
    {
        wanted.flags.store(*flags, Ordering::Release);
        wanted.handler.store(*handler, Ordering::Release);
    }
    let pointer = asked.as_ref().map_or(std::ptr::null(), |(action, ..)| action.as_ptr());
    let done = kernel!(libc::SYS_rt_sigaction, signal, pointer, before.as_mut_ptr(), SIZE);
    if done != 0 {
        wanted.flags.store(own.1, Ordering::Release);
        wanted.handler.store(own.0, Ordering::Release);
        return done;
    }
    if !old.is_null() {
        // SAFETY: the program says so.
        unsafe { old.write(from_kernel(&before, own)) };
    }
    0
}

/// `sigaction(2)`, by which the C library does `signal` and others, too.
///
/// # Safety
/// As the function that it stands for.
pub(crate) unsafe extern "C" fn sigaction(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    // SAFETY: the program gives it so.
    answer(unsafe { change(signal, new, old) }) as c_int
}
