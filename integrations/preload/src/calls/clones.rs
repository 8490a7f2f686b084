//! `clone` and `vfork` of the C library, whose children run functions of the program, or its own code, before they are programs of their own.

use std::ffi::{c_int, c_void};

use super::forks::{self, Pipe};
use crate::raw::{answer, errno, kernel, set_errno};

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
    // A copy has this stack too.
    let flags = flags as u32 as usize;
    let arguments = [flags, 0, parent as usize, child as usize, own as usize, 0];
    match forks::copied(libc::SYS_clone, arguments) {
        0 => {
            // SAFETY: the program gives it so, and expects that its child ends with that.
            unsafe { super::process::exit(run(with)) };
            0
        }
        made => answer(made) as c_int,
    }
}

/// `vfork(2)`: a copy, as what runs in the memory of its parent would change what that has open. The parent waits until it runs a program, or ends.
pub(crate) extern "C" fn vfork() -> libc::pid_t {
    // Where there is no number left for it, the parent does not wait.
    let pipe = Pipe::new().ok();
    // SAFETY: a program that calls it expects another process.
    let made = unsafe { libc::fork() };
    let why = errno();
    let Some(pipe) = pipe else { return made };
    pipe.went_along();
    let [ended, runs] = pipe.0;
    match made {
        0 => {
            Pipe::close(ended);
            forks::closes_with_program(runs);
        }
        -1 => {
            [ended, runs].into_iter().for_each(Pipe::close);
            set_errno(why);
        }
        _ => {
            Pipe::close(runs);
            let mut none = 0_u8;
            while kernel!(libc::SYS_read, ended, &raw mut none, 1) == -(libc::EINTR as isize) {}
            Pipe::close(ended);
        }
    }
    made
}
