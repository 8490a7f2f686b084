//! Calls of the kernel past the C library, whose own functions lead here.

use std::ffi::{c_int, c_long};

use iov_posix::Errno;

/// Calls the kernel: what it answers, which is a negated number of an error or something else.
///
/// # Safety
/// As the call that it is: the arguments must be what the kernel expects.
#[cfg(target_arch = "x86_64")]
pub(crate) unsafe fn syscall(number: c_long, args: [usize; 6]) -> isize {
    let answer: isize;
    // SAFETY: the registers are those of the kernel's convention, and it preserves all others.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => answer,
            in("rdi") args[0], in("rsi") args[1], in("rdx") args[2],
            in("r10") args[3], in("r8") args[4], in("r9") args[5],
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    answer
}

/// Calls the kernel: what it answers, which is a negated number of an error or something else.
///
/// # Safety
/// As the call that it is: the arguments must be what the kernel expects.
#[cfg(target_arch = "aarch64")]
pub(crate) unsafe fn syscall(number: c_long, args: [usize; 6]) -> isize {
    let answer: isize;
    // SAFETY: the registers are those of the kernel's convention, and it preserves all others.
    unsafe {
        std::arch::asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") args[0] as isize => answer,
            in("x1") args[1], in("x2") args[2], in("x3") args[3], in("x4") args[4], in("x5") args[5],
            options(nostack),
        );
    }
    answer
}

/// Calls the kernel with up to six arguments of any integer or pointer type.
macro_rules! kernel {
    ($number:expr $(, $arg:expr)* $(,)?) => {{
        let given: &[usize] = &[$($arg as usize),*];
        let mut args = [0_usize; 6];
        for (arg, given) in args.iter_mut().zip(given) {
            *arg = *given;
        }
        // SAFETY: the arguments are the program's own, for the call that it made, or are made for this call here.
        unsafe { $crate::raw::syscall($number, args) }
    }};
}
pub(crate) use kernel;

/// Where the C library keeps the number of an error.
fn errno_place() -> *mut c_int {
    // SAFETY: there is always one, of this thread.
    unsafe { libc::__errno_location() }
}

/// The number of this thread's last error, which a call that succeeds leaves alone.
pub(crate) fn errno() -> c_int {
    // SAFETY: it is a valid place of this thread.
    unsafe { *errno_place() }
}

pub(crate) fn set_errno(number: c_int) {
    // SAFETY: it is a valid place of this thread.
    unsafe { *errno_place() = number }
}

/// What a function of the C library returns for an answer of the kernel.
pub(crate) fn answer(answer: isize) -> isize {
    if (-4095..0).contains(&answer) {
        set_errno(-answer as c_int);
        return -1;
    }
    answer
}

/// The answer of the kernel for which a function of the C library has returned this.
pub(crate) fn unanswered(returned: isize) -> isize {
    if returned == -1 { -(errno() as isize) } else { returned }
}

/// The answer of the kernel that says the same.
pub(crate) fn failed(errno: Errno) -> isize {
    -(errno.0 as isize)
}

/// The answer that an outcome is.
pub(crate) fn outcome(outcome: Result<isize, Errno>) -> isize {
    outcome.unwrap_or_else(failed)
}

/// The process, as the kernel knows it now: a child that shares the memory of its parent has another one.
pub(crate) fn pid() -> i32 {
    kernel!(libc::SYS_getpid) as i32
}

/// Which thread of the process this is, also in a copy that it has made.
pub(crate) fn this_thread() -> usize {
    errno_place() as usize
}

/// The thread, as the kernel knows it.
pub(crate) fn tid() -> i32 {
    kernel!(libc::SYS_gettid) as i32
}
