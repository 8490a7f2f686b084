//! `clone` and `vfork` of the C library, whose children run functions of the program, or its own code, before they are programs of their own.

use std::ffi::{c_int, c_void};

use super::forks;
use crate::raw::{answer, kernel, set_errno};

/// What a child of `clone` runs.
type Work = unsafe extern "C" fn(*mut c_void) -> c_int;

// A thread, or what shares the memory of this process: the child begins at the end of the stack that it is given, from which it takes what to run, and with what.
#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    ".globl iov_preload_clone",
    ".hidden iov_preload_clone",
    ".type iov_preload_clone,@function",
    "iov_preload_clone:",
    ".cfi_startproc",
    "and rsi, -16",
    "mov [rsi - 16], rdi",
    "mov [rsi - 8], rcx",
    "sub rsi, 16",
    // In the kernel's order: flags, stack, and where parent, child and thread have something of their own.
    "mov edi, edx",
    "mov rdx, r8",
    "mov r8, r9",
    "mov r10, [rsp + 8]",
    "mov eax, 56",
    "syscall",
    "test rax, rax",
    "jz 2f",
    "ret",
    "2:",
    // Nobody is above it.
    ".cfi_undefined rip",
    "xor ebp, ebp",
    "pop rax",
    "pop rdi",
    "call rax",
    "mov edi, eax",
    "mov eax, 60",
    "syscall",
    "hlt",
    ".cfi_endproc",
    ".size iov_preload_clone, . - iov_preload_clone",
);

#[cfg(target_arch = "x86_64")]
unsafe extern "C" {
    /// As the kernel answers.
    fn iov_preload_clone(
        run: Work,
        stack: *mut c_void,
        flags: c_int,
        with: *mut c_void,
        parent: *mut c_void,
        own: *mut c_void,
        child: *mut c_void,
    ) -> isize;
}

/// `clone(2)`
///
/// # Safety
/// As the function that it stands for.
#[cfg(target_arch = "x86_64")]
pub(crate) unsafe extern "C" fn clone(
    run: Option<Work>,
    stack: *mut c_void,
    flags: c_int,
    with: *mut c_void,
    parent: *mut c_void,
    own: *mut c_void,
    child: *mut c_void,
) -> c_int {
    let Some(run) = run.filter(|_| !stack.is_null()) else {
        set_errno(libc::EINVAL);
        return -1;
    };
    if !forks::is_copy(flags as u64) {
        // SAFETY: the program gives it so.
        return answer(unsafe { iov_preload_clone(run, stack, flags, with, parent, own, child) }) as c_int;
    }
    let make = |flags: u64| kernel!(libc::SYS_clone, flags, 0, parent, child, own);
    match forks::copied(u64::from(flags as u32), make) {
        // SAFETY: the program gives it so, and expects that its child ends with that.
        0 => unsafe { runs_on(stack, run, with) },
        made => answer(made) as c_int,
    }
}

/// Runs a function on another stack, and ends the process with what it says.
///
/// # Safety
/// The stack is nobody's.
#[cfg(target_arch = "x86_64")]
unsafe fn runs_on(stack: *mut c_void, run: Work, with: *mut c_void) -> ! {
    // SAFETY: nothing comes back here.
    unsafe {
        std::arch::asm!(
            "and {stack}, -16",
            "mov rsp, {stack}",
            "xor ebp, ebp",
            "call {run}",
            "mov edi, eax",
            "call {ends}",
            "ud2",
            stack = in(reg) stack,
            run = in(reg) run,
            ends = sym ends,
            in("rdi") with,
            options(noreturn),
        );
    }
}

#[cfg(target_arch = "x86_64")]
extern "C" fn ends(code: c_int) {
    // SAFETY: it takes a number.
    unsafe { super::process::exit(code) };
}

/// `vfork(2)`: a copy, as what runs in the memory of its parent would change what that has open. The parent waits until it runs a program, or ends.
pub(crate) extern "C" fn vfork() -> libc::pid_t {
    answer(forks::until_it_runs(forks::forked)) as libc::pid_t
}
